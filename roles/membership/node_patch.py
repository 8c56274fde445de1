"""One change of a node at the Kubernetes API, made to what was just read."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from autoscaler.kube.client import Kube, Refused

_MERGE: Final = "application/merge-patch+json"
_TRIES: Final = 5
_CONFLICT: Final = 409


def patch_node(kube: Kube, name: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Send the merge patch that ``change`` makes of the node (JSON of the API); read again after a conflict.

    Its kubelet and the controller manager write a node at any time. Raises ``Refused`` (409) after five such tries.
    """
    path = f"/api/v1/nodes/{name}"
    for attempt in range(_TRIES):
        now = json.loads(kube.get(path))
        body = change(now)
        body["metadata"] |= {key: now["metadata"][key] for key in ("uid", "resourceVersion")}
        try:
            kube.send("PATCH", path, body, content=_MERGE)
        except Refused as refused:
            if refused.status != _CONFLICT or attempt == _TRIES - 1:
                raise
        else:
            return
