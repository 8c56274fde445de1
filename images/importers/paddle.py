"""A PaddlePaddle TrainingJob as a job: trainers are workers, of which there may be MIN..MAX."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from autoscaler.model import labels as words
from images.importers.reading import Foreign, Imported, asked_amounts

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
    resources = (*at, "resources")
    found |= asked_amounts(source, resources, whose=f"spec.{part}")
    gpus = [source.take(*resources, "limits", name) for name in (words.GPU, "alpha.kubernetes.io/nvidia-gpu")]
    return found | {"gpus": source.whole(gpus[0] or gpus[1] or 0, *resources)}
