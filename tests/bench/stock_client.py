"""The list-and-poll design, measured: one full list of pods and nodes with the stock client, as its own process.

    python -m tests.bench.stock_client KUBECONFIG

prints the seconds of one look and the resident memory after it, as JSON.
"""

from __future__ import annotations

import json
import sys
import time

from kubernetes import client, config

from tests.bench.memory import resident_mib


def main() -> None:
    """List twice: the second look is what a poll costs."""
    config.load_kube_config(sys.argv[1])  # type: ignore[no-untyped-call]
    core = client.CoreV1Api()
    for _ in range(2):
        began = time.monotonic()
        pods, nodes = core.list_pod_for_all_namespaces(), core.list_node()
        seconds = time.monotonic() - began
    found = {"seconds": seconds, "mib": resident_mib("self"), "pods": len(pods.items), "nodes": len(nodes.items)}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
