"""Serve as one task of a TensorFlow cluster, for a client that builds the graph elsewhere.

    server.py --cluster_spec='worker|a:2222;b:2222,ps|c:2222' --job_name=worker --task_id=0

The flags are those of TensorFlow's own ``grpc_tensorflow_server.py``. It serves for ever and is ended from outside.
"""

from __future__ import annotations

import argparse


def main() -> None:
    """Serve the task that the flags say."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cluster_spec", type=parse_cluster, required=True)
    parser.add_argument("--job_name", required=True)
    parser.add_argument("--task_id", type=int, required=True)
    asked = parser.parse_args()
    import tensorflow as tf  # noqa: PLC0415 - seconds to import; not before a mistake in the flags is told

    # A coordinator has one closure in flight per worker, and a server waits in these threads: two CPUs are too few.
    config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=len(asked.cluster_spec.get("worker", ())) + 2)
    server = tf.distribute.Server(
        asked.cluster_spec, job_name=asked.job_name, task_index=asked.task_id, protocol="grpc", config=config
    )
    print(f"{asked.job_name} {asked.task_id} serves at {server.target}", flush=True)
    server.join()


def parse_cluster(text: str) -> dict[str, list[str]]:
    """Addresses by role. Raises ``ValueError`` where the text has another form."""
    roles = (role.split("|") for role in text.split(","))
    return {name: addresses.split(";") for name, addresses in roles}


if __name__ == "__main__":
    main()
