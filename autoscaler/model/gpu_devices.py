"""One GPU of a node, as the DCGM exporter there tells of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class GpuDevice:
    """One GPU, or the part of a pod's in one that several share."""

    node: str
    number: int
    """Of the machine: NVML's index, in the order of the PCI bus."""
    uuid: str
    pod: str
    """``namespace/name`` of the pod that holds it; empty: none does."""
    container: str
    use: float
    """Share of the time in which it did something: 0 to 1."""
    idle_since: datetime | None = None
    """From when on it has done nothing; ``None``: it does something."""
