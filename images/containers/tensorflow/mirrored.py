"""Fit y = 2x + 10 with MultiWorkerMirroredStrategy: every worker has the variables, gradients are all-reduced.

The cluster comes from ``TF_CONFIG``; every task runs this program and sees its own part of the data.
"""

from __future__ import annotations

import json
import os
import random
import sys
from typing import Any

STEPS = 300
BATCH = 32
LEARNING_RATE = 0.05


def main() -> int:
    """Run this worker. Exits 0 where the line came out right, 1 otherwise."""
    import tensorflow as tf  # noqa: PLC0415 - seconds to import; not before it is needed

    task = json.loads(os.environ["TF_CONFIG"])["task"]
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    random.seed(task["index"])  # each has its own points; what they share is the gradient
    weight, bias = train(tf, strategy)
    among = strategy.num_replicas_in_sync
    print(f"{task['type']} {task['index']} of {among}: w = {weight:.6f}, b = {bias:.6f}", flush=True)
    return 0 if abs(weight - 2) < 0.15 and abs(bias - 10) < 0.15 else 1  # noqa: PLR2004 - the line's own numbers


def train(tf: Any, strategy: Any) -> tuple[float, float]:
    """Synchronous gradient descent; returns (w, b), the same on every worker."""
    with strategy.scope():
        weight, bias = tf.Variable(0.0), tf.Variable(0.0)

    def step(x: Any, y: Any) -> None:
        def replica() -> None:
            wrong = weight * x + bias - y
            mine = [tf.reduce_mean(2 * wrong * x), tf.reduce_mean(2 * wrong)]
            slopes = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, mine)
            weight.assign_sub(LEARNING_RATE * slopes[0])
            bias.assign_sub(LEARNING_RATE * slopes[1])

        strategy.run(replica)

    fit = tf.function(step)
    for _ in range(STEPS):
        points = [random.uniform(-1, 3) for _ in range(BATCH)]  # noqa: S311 - training data
        fit(tf.constant(points), tf.constant([2 * point + 10 + random.gauss(0, 0.1) for point in points]))
    return float(weight.numpy()), float(bias.numpy())


if __name__ == "__main__":
    sys.exit(main())
