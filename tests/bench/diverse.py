"""Five kinds of pods in equal parts, as Karpenter's own scheduling benchmark mixes them, as a Kubernetes List.

Generic; spread over zones; spread over hosts; near to their like in one zone; away from their like on every host. The
labels, the selectors and the requests are drawn from the sets that Karpenter's benchmark draws them from
(kubernetes-sigs/karpenter, pkg/controllers/provisioning/scheduling, ``makeDiversePods``).
"""

from __future__ import annotations

import random
from typing import Any

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
_CPU = (100, 250, 500, 1000, 1500)
_MEMORY = (100, 256, 512, 1024, 2048, 4096)
_VALUES = "abcdefg"


def diverse_pods(count: int, *, seed: int = 42) -> dict[str, Any]:
    """A List of so many pods; the same for the same seed."""
    dice = random.Random(seed)  # noqa: S311 - a workload, not a secret
    items = [_pod(number, dice, sort=number * 5 // count if count >= 5 else 0) for number in range(count)]
    return {"apiVersion": "v1", "kind": "List", "items": items}


def _pod(number: int, dice: random.Random, *, sort: int) -> dict[str, Any]:
    requests = {"cpu": f"{dice.choice(_CPU)}m", "memory": f"{dice.choice(_MEMORY)}Mi"}
    spec: dict[str, Any] = {"containers": [{"name": "main", "image": "image", "resources": {"requests": requests}}]}
    labels = {"my-label": dice.choice(_VALUES)}
    if sort in (1, 2):
        selector = {"matchLabels": {"my-label": dice.choice(_VALUES)}}
        key = ZONE if sort == 1 else HOST
        spec["topologySpreadConstraints"] = [
            {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
        ]
    elif sort == 3:
        labels = {"my-affinity": dice.choice(_VALUES)}
        spec["affinity"] = {"podAffinity": _required(labels, ZONE)}
    elif sort == 4:
        labels = {"app": "nginx"}
        spec["affinity"] = {"podAntiAffinity": _required(labels, HOST)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"pod-{number}", "namespace": "default", "labels": labels},
        "spec": spec,
        "status": {"phase": "Pending"},
    }


def _required(labels: dict[str, str], key: str) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": key}
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
