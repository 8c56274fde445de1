"""Fit y = 2x + 10 with Horovod: every rank has the variables, gradients are averaged among all.

Ranks and the rendezvous come from the ``HOROVOD_*`` variables; every rank sees its own points.
"""

from __future__ import annotations

import random
import sys
import time
from typing import Any

STEPS = 300
BATCH = 64
"""Points of a step, among all ranks."""
LEARNING_RATE = 0.05


def main() -> int:
    """Run this rank. Exits 0 where the line came out right, 1 otherwise."""
    import horovod.tensorflow as hvd  # noqa: PLC0415 - seconds to import; not before it is needed
    import tensorflow as tf  # noqa: PLC0415

    hvd.init()
    random.seed(hvd.rank())  # each has its own points; what they share is the gradient
    began = time.monotonic()
    weight, bias = train(tf, hvd)
    spent = time.monotonic() - began
    print(f"rank {hvd.rank()} of {hvd.size()}: trained for {spent:.2f} s", flush=True)
    print(f"worker {hvd.rank()} of {hvd.size()}: w = {weight:.6f}, b = {bias:.6f}", flush=True)
    return 0 if abs(weight - 2) < 0.15 and abs(bias - 10) < 0.15 else 1  # noqa: PLR2004 - the line's own numbers


def train(tf: Any, hvd: Any) -> tuple[float, float]:
    """Synchronous gradient descent; returns (w, b), the same on every rank."""
    weight, bias = tf.Variable(0.0), tf.Variable(0.0)
    hvd.broadcast_variables([weight, bias], root_rank=0)

    def step(x: Any, y: Any) -> None:
        with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
            loss = tf.reduce_mean((weight * x + bias - y) ** 2)
        slopes = tape.gradient(loss, [weight, bias])
        weight.assign_sub(LEARNING_RATE * slopes[0])
        bias.assign_sub(LEARNING_RATE * slopes[1])

    fit = tf.function(step)
    for _ in range(STEPS):
        points = [random.uniform(-1, 3) for _ in range(BATCH // hvd.size())]  # noqa: S311 - training data
        fit(tf.constant(points), tf.constant([2 * point + 10 + random.gauss(0, 0.1) for point in points]))
    return float(weight.numpy()), float(bias.numpy())


if __name__ == "__main__":
    sys.exit(main())
