"""Fit y = 2x + 10 with ParameterServerStrategy: this coordinator hands steps to workers, variables live on the servers.

Workers and parameter servers run ``server.py``; the cluster comes from ``TF_CONFIG``, in which this task is the chief.
"""

from __future__ import annotations

import random
import sys
from typing import Any

STEPS = 1500
LEARNING_RATE = 0.01


def main() -> int:
    """Coordinate the training. Exits 0 where the line came out right, 1 otherwise."""
    import tensorflow as tf  # noqa: PLC0415 - seconds to import; not before it is needed

    strategy = tf.distribute.ParameterServerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver())
    weight, bias = train(tf, strategy)
    print(f"coordinator: w = {weight:.3f}, b = {bias:.3f}", flush=True)
    return 0 if abs(weight - 2) < 0.15 and abs(bias - 10) < 0.15 else 1  # noqa: PLR2004 - the line's own numbers


def train(tf: Any, strategy: Any) -> tuple[float, float]:
    """Asynchronous stochastic gradient descent; returns (w, b)."""
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        weight, bias = tf.Variable(0.0), tf.Variable(0.0)

    def step(x: Any, y: Any) -> None:
        wrong = y - (weight * x + bias)
        weight.assign_add(2 * LEARNING_RATE * wrong * x)
        bias.assign_add(2 * LEARNING_RATE * wrong)

    fit = tf.function(step)
    for _ in range(STEPS):
        point = random.uniform(-1, 5)  # noqa: S311 - training data
        value = 2 * point + 10 + random.gauss(0, 0.1)
        coordinator.schedule(fit, args=(tf.constant(point), tf.constant(value)))
    coordinator.join()
    return float(weight.numpy()), float(bias.numpy())


if __name__ == "__main__":
    sys.exit(main())
