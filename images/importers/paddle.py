"""A PaddlePaddle TrainingJob as a job: trainers are workers, of which there may be MIN..MAX."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from autoscaler.model import labels as words
from images.importers.reading import Foreign, Imported

_ROLES: Final = {"trainer": "worker", "pserver": "ps"}


def read(document: Mapping[str, Any]) -> Imported:
    """The job. Raises ``BadInput`` where the document is no TrainingJob."""
    source = Foreign(document, what="TrainingJob")
    for key in ("apiVersion", "kind"):
        source.take(key)
    data: dict[str, Any] = {
        "name": source.need("metadata", "name"),
        "namespace": source.take("metadata", "namespace", default="default"),
        "network": "host" if source.take("spec", "host_network") else "own",
    }
    image, port = source.need("spec", "image"), source.take("spec", "port", default=7164)
    restart = "on-failure" if source.take("spec", "fault_tolerant") else "never"
    told = {"image": image, "port": port, "restart": restart}
    passes = source.take("spec", "passes")
    roles = {}
    for part, role in _ROLES.items():
        if source.peek("spec", part):
            roles[role] = told | _role(source, part)
            if passes is not None:
                roles[role]["env"] = {"PASSES": str(passes)}
    return source.imported(data | {"roles": roles})


def _role(source: Foreign, part: str) -> dict[str, Any]:
    at = ("spec", part)
    least = source.take(*at, "min-instance", default=1)
    most = source.take(*at, "max-instance", default=least)
    entry = source.take(*at, "entrypoint")
    found: dict[str, Any] = {"count": str(least) if least == most else f"{least}..{most}"}
    if entry:
        found["entry"] = ["sh", "-c", entry]
    limits, requests = (*at, "resources", "limits"), (*at, "resources", "requests")
    for key, name, assumed in (("cpus", "cpu", 1), ("memory", "memory", "1Gi")):
        most_of, asked = source.take(*limits, name), source.take(*requests, name)
        if asked is None and most_of is None:
            source.tell(f"spec.{part}: it asks for no {name}: {assumed} is assumed")
        found[key] = asked or most_of or assumed
    old_gpus = source.take(*limits, "alpha.kubernetes.io/nvidia-gpu")
    return found | {"gpus": int(source.take(*limits, words.GPU) or old_gpus or 0)}
