"""Volumes: claims, volumes, classes, and how many volumes of each driver a node takes.

Plain values, made by ``kube/schema/storage.py`` of what the API server says;
``planner/placement/volume_constraints.py`` asks them where pods may go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autoscaler.model.constraints import Term

Terms = tuple[Term, ...]
"""One of these must hold."""


@dataclass(frozen=True, slots=True)
class VolumeClaim:
    """A PersistentVolumeClaim."""

    namespace: str
    name: str
    volume: str = ""
    """Name of the volume that it is bound to; empty while it is not bound on both sides."""
    storage_class: str = ""
    modes: frozenset[str] = frozenset()
    """``ReadWriteOnce``, ``ReadWriteOncePod``, ..."""
    block: bool = False
    """A raw device, not a file system."""
    bytes: int = 0
    selector: Term = ()
    """Labels of the volumes that it may be bound to."""
    node: str = ""
    """Where the scheduler has chosen to have its volume made."""
    deleting: bool = False


@dataclass(frozen=True, slots=True)
class Volume:
    """A PersistentVolume."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    affinity: Terms = ()
    """Nodes that can use it; none at all means every node."""
    driver: str = ""
    """Of CSI."""
    storage_class: str = ""
    modes: frozenset[str] = frozenset()
    block: bool = False
    bytes: int = 0
    available: bool = False
    """No claim has it, and none is promised it."""


@dataclass(frozen=True, slots=True)
class VolumeClass:
    """A StorageClass."""

    name: str
    provisioner: str = ""
    waits: bool = False
    """``WaitForFirstConsumer``: the pod is given a node first, and the volume is made, or chosen, for that node."""
    topologies: Terms = ()
    """Where it makes volumes; none at all means everywhere."""

    @property
    def makes_volumes(self) -> bool:
        """Whether it has a provisioner at all."""
        return self.provisioner not in ("", "kubernetes.io/no-provisioner")


@dataclass(frozen=True, slots=True)
class NodeDrivers:
    """A CSINode: the storage drivers of a node."""

    node: str
    limits: Mapping[str, int | None] = field(default_factory=dict)
    """Driver -> how many of its volumes may be attached at once; ``None``: it sets no limit."""


@dataclass(frozen=True, slots=True)
class Storage:
    """Everything about volumes at one moment."""

    claims: Mapping[tuple[str, str], VolumeClaim] = field(default_factory=dict)
    """By namespace and name."""
    volumes: Mapping[str, Volume] = field(default_factory=dict)
    classes: Mapping[str, VolumeClass] = field(default_factory=dict)
    drivers: Mapping[str, NodeDrivers] = field(default_factory=dict)
    """By node name."""

    def binds_at_once(self, claim: VolumeClaim) -> bool:
        """Whether the claim is bound before any pod waits for it; not so where its class is absent."""
        known = self.classes.get(claim.storage_class)
        return not known.waits if known is not None else not claim.storage_class
