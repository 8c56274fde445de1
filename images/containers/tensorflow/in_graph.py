"""Fit y = 2x + 10 in-graph: this client alone builds the graph, and places its operations on servers that only wait.

The client of the founding documents: variables on parameter server 0, the loss on worker 0, the gradients on the last
worker, ten epochs over 101 points. Servers run ``server.py``; their addresses come from ``TF_CONFIG``.
"""

from __future__ import annotations

import json
import os
import random
import sys

EPOCHS = 10
LEARNING_RATE = 0.01
POINTS = [(step / 50 - 1, 2 * (step / 50 - 1) + 10 + random.gauss(0, 0.33)) for step in range(101)]


def main() -> int:
    """Train through worker 0. Exits 0 where the line came out right, 1 otherwise."""
    workers = json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"]
    weight, bias = train(f"grpc://{workers[0]}", last=len(workers) - 1)
    print(f"client: w = {weight:.3f}, b = {bias:.3f}", flush=True)
    return 0 if abs(weight - 2) < 0.15 and abs(bias - 10) < 0.15 else 1  # noqa: PLR2004 - the line's own numbers


def train(target: str, *, last: int) -> tuple[float, float]:
    """Stochastic gradient descent on ps 0, worker 0 and worker ``last``; returns (w, b)."""
    import tensorflow as tf  # noqa: PLC0415 - seconds to import; not before it is needed

    v1 = tf.compat.v1
    with tf.Graph().as_default():
        x, y = v1.placeholder(tf.float32), v1.placeholder(tf.float32)
        with v1.device("/job:ps/task:0/cpu:0"):
            weight = v1.get_variable("w", shape=(), use_resource=False, initializer=v1.zeros_initializer())
            bias = v1.get_variable("b", shape=(), use_resource=False, initializer=v1.zeros_initializer())
        with v1.device("/job:worker/task:0"):
            loss = tf.square(y - x * weight - bias)
        with v1.device(f"/job:worker/task:{last}"):
            fit = v1.train.GradientDescentOptimizer(LEARNING_RATE).minimize(loss)
        # The cluster names this client too, as chief; without filters the servers would wait for it to serve.
        config = v1.ConfigProto(device_filters=["/job:ps", "/job:worker"])
        with v1.Session(target, config=config) as session:
            session.run(v1.global_variables_initializer())
            for _ in range(EPOCHS):
                for point, value in POINTS:
                    session.run(fit, {x: point, y: value})
            found = session.run([weight, bias])
    return float(found[0]), float(found[1])


if __name__ == "__main__":
    sys.exit(main())
