"""Fit y = 2x + 10 on parameter servers and workers: the smallest real distributed job.

Every task reads its part from ``TF_CONFIG``. Between-graph replication: each worker builds the graph, variables live on
the parameter servers, and the chief (without one: worker 0) initialises them. Workers end when the last step is done; a
parameter server serves for ever and is ended from outside, as Spillway does when the workers have succeeded.

Workers may come and go; the number of servers may not change. With ``TRAIN_DIR`` the chief writes a checkpoint every
hundred steps there, and goes on from the last one.
"""

from __future__ import annotations

import json
import os
import random
import sys
from typing import Any

STEPS = int(os.environ.get("STEPS", "1000"))
TOLD_EVERY = 200
CHECKPOINT_EVERY = 100
LEARNING_RATE = float(os.environ.get("LEARNING_RATE", "0.01"))


def main() -> int:
    """Run this task of the cluster. Exits 0 where the line came out right, 1 otherwise."""
    import tensorflow as tf  # noqa: PLC0415 - seconds to import; not before it is needed

    config = json.loads(os.environ["TF_CONFIG"])
    role, index = config["task"]["type"], int(config["task"]["index"])
    tasks = config["cluster"][role]
    address = tasks[index] if isinstance(tasks, list) else tasks[str(index)]  # sparse, where tasks come and go
    # Each task listens on its own address's port on all interfaces; the name may resolve only once it is ready.
    server = tf.distribute.Server(
        tf.train.ClusterSpec(config["cluster"]), job_name=role, task_index=index, protocol="grpc"
    )
    print(f"{role} {index} serves at {address}", flush=True)
    if role == "ps":
        server.join()
    weight, bias = train(tf, server=server, cluster=config["cluster"], role=role, index=index)
    print(f"{role} {index}: w = {weight:.3f}, b = {bias:.3f}", flush=True)
    return 0 if abs(weight - 2) < 0.15 and abs(bias - 10) < 0.15 else 1  # noqa: PLR2004 - the line's own numbers


def train(tf: Any, *, server: Any, cluster: dict[str, list[str]], role: str, index: int) -> tuple[float, float]:
    """Stochastic gradient descent until the global step is reached; returns (w, b) as this task saw them last."""
    v1 = tf.compat.v1
    here = f"/job:{role}/task:{index}"
    placed = v1.train.replica_device_setter(worker_device=here, cluster=cluster)
    with tf.Graph().as_default(), v1.device(placed):
        weight = v1.get_variable("w", shape=(), use_resource=False, initializer=v1.zeros_initializer())
        bias = v1.get_variable("b", shape=(), use_resource=False, initializer=v1.zeros_initializer())
        x, y = v1.placeholder(tf.float32), v1.placeholder(tf.float32)
        step = v1.train.get_or_create_global_step()
        loss = tf.square(y - (x * weight + bias))
        fit = v1.train.GradientDescentOptimizer(LEARNING_RATE).minimize(loss, global_step=step)
        seen, runs = (0.0, 0.0), 0
        # A worker waits for the servers alone: another worker may start later, or have finished before.
        config = v1.ConfigProto(device_filters=["/job:ps", here])
        hooks = [v1.train.StopAtStepHook(last_step=STEPS)]
        leads = role == "chief" or ("chief" not in cluster and index == 0)
        with v1.train.MonitoredTrainingSession(
            master=server.target,
            is_chief=leads,
            config=config,
            hooks=hooks,
            checkpoint_dir=os.environ.get("TRAIN_DIR"),
            save_checkpoint_steps=CHECKPOINT_EVERY,
        ) as session:
            while not session.should_stop():
                point = random.uniform(-1, 5)  # noqa: S311 - training data
                value = 2 * point + 10 + random.gauss(0, 0.1)
                _, *seen_now, now, lost = session.run([fit, weight, bias, step, loss], {x: point, y: value})
                seen = (float(seen_now[0]), float(seen_now[1]))
                if runs % TOLD_EVERY == 0:
                    print(f"{role} {index}: step {now}, loss {lost:.3f}", flush=True)
                runs += 1
    return seen


if __name__ == "__main__":
    sys.exit(main())
