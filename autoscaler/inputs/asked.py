"""What a file asks for, whatever form it has: pods, and what comes with each new node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autoscaler.model.cluster import DaemonSet, Pod
from autoscaler.model.volumes import Storage


@dataclass(frozen=True, slots=True)
class Asked:
    """What a file asks for."""

    pods: tuple[Pod, ...]
    daemon_sets: tuple[DaemonSet, ...] = ()
    """Each new node that they match carries one of their pods."""
    gpu_specs: Mapping[str, str] = field(default_factory=dict)
    """Pod key -> the GPU models that it takes, as a table says them (``gpu_models.with_gpu_models``)."""
    storage: Storage | None = None
    """What there is of the pods' volumes; ``None`` where they have none."""
    notes: tuple[str, ...] = ()
    """What of the file is not planned for, in words."""
