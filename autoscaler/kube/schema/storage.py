"""Claims, volumes, storage classes and CSINodes as the API server writes them, and as the model has them. Pure."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from autoscaler.kube.schema.core import Json, LabelSelector, Meta, NodeSelector, Quantities
from autoscaler.model.constraints import Requirement, Term
from autoscaler.model.feasibility import NODE_NAME
from autoscaler.model.resources import parse_quantity
from autoscaler.model.volumes import NodeDrivers, Volume, VolumeClaim, VolumeClass

_BOUND: Final = "pv.kubernetes.io/bind-completed"
_CHOSEN: Final = "volume.kubernetes.io/selected-node"
_EBS: Final = "ebs.csi.aws.com"
"""Has taken over the volumes of the API's own ``awsElasticBlockStore``."""


class _Amount(Json, frozen=True):
    requests: Quantities = msgspec.field(default_factory=dict)


class _ClaimSpec(Json, frozen=True):
    access_modes: tuple[str, ...] = ()
    resources: _Amount = _Amount()
    selector: LabelSelector | None = None
    storage_class_name: str | None = None
    """Absent: that of the cluster's default class; empty: of no class."""
    volume_mode: str = "Filesystem"
    volume_name: str = ""


class ClaimJson(Json, frozen=True):
    """corev1.PersistentVolumeClaim."""

    metadata: Meta
    spec: _ClaimSpec = _ClaimSpec()


class _ClaimTemplate(Json, frozen=True):
    spec: _ClaimSpec = _ClaimSpec()


class OwnClaimJson(Json, frozen=True):
    """corev1.EphemeralVolumeSource."""

    volume_claim_template: _ClaimTemplate = _ClaimTemplate()


class _Csi(Json, frozen=True):
    driver: str = ""


class _VolumeAffinity(Json, frozen=True):
    required: NodeSelector | None = None


class _ClaimRef(Json, frozen=True):
    namespace: str = ""
    name: str = ""


class _VolumeSpec(Json, frozen=True):
    access_modes: tuple[str, ...] = ()
    capacity: Quantities = msgspec.field(default_factory=dict)
    claim_ref: _ClaimRef | None = None
    csi: _Csi | None = None
    aws_elastic_block_store: dict[str, Any] | None = None
    node_affinity: _VolumeAffinity = _VolumeAffinity()
    storage_class_name: str = ""
    volume_mode: str = "Filesystem"


class _Phase(Json, frozen=True):
    phase: str = ""


class VolumeJson(Json, frozen=True):
    """corev1.PersistentVolume."""

    metadata: Meta
    spec: _VolumeSpec = _VolumeSpec()
    status: _Phase = _Phase()


class _TopologyTerm(Json, frozen=True):
    key: str
    values: tuple[str, ...] = ()


class _Topology(Json, frozen=True):
    match_label_expressions: tuple[_TopologyTerm, ...] = ()


class ClassJson(Json, frozen=True):
    """storagev1.StorageClass."""

    metadata: Meta
    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: tuple[_Topology, ...] = ()


class _Count(Json, frozen=True):
    count: int | None = None


class _Driver(Json, frozen=True):
    name: str
    allocatable: _Count = _Count()


class _DriversSpec(Json, frozen=True):
    drivers: tuple[_Driver, ...] = ()


class DriversJson(Json, frozen=True):
    """storagev1.CSINode."""

    metadata: Meta
    spec: _DriversSpec = _DriversSpec()


class NamespaceJson(Json, frozen=True):
    """corev1.Namespace, as far as pod affinity asks about it."""

    metadata: Meta


def claim_from(raw: ClaimJson) -> VolumeClaim:
    """Returns the claim; it is bound where the controller says that both sides are."""
    meta, spec = raw.metadata, raw.spec
    return VolumeClaim(
        namespace=meta.namespace,
        name=meta.name,
        volume=spec.volume_name if _BOUND in meta.annotations else "",
        storage_class=spec.storage_class_name or "",
        modes=frozenset(spec.access_modes),
        block=spec.volume_mode == "Block",
        bytes=_bytes(spec.resources.requests),
        selector=spec.selector.term() if spec.selector is not None else (),
        node=meta.annotations.get(_CHOSEN, ""),
        deleting=meta.deletion_timestamp is not None,
    )


def volume_from(raw: VolumeJson) -> Volume:
    """Returns the volume as the planner knows it."""
    meta, spec = raw.metadata, raw.spec
    own = _EBS if spec.aws_elastic_block_store is not None else ""
    return Volume(
        name=meta.name,
        labels=meta.labels,
        affinity=_terms(spec.node_affinity.required),
        driver=spec.csi.driver if spec.csi is not None else own,
        storage_class=spec.storage_class_name,
        modes=frozenset(spec.access_modes),
        block=spec.volume_mode == "Block",
        bytes=_bytes(spec.capacity),
        available=spec.claim_ref is None and meta.deletion_timestamp is None and raw.status.phase == "Available",
    )


def class_from(raw: ClassJson) -> VolumeClass:
    """Returns the StorageClass as the planner knows it."""
    return VolumeClass(
        name=raw.metadata.name,
        provisioner=raw.provisioner,
        waits=raw.volume_binding_mode == "WaitForFirstConsumer",
        topologies=tuple(
            tuple(Requirement(one.key, "In", one.values) for one in topology.match_label_expressions)
            for topology in raw.allowed_topologies
        ),
    )


def drivers_from(raw: DriversJson) -> NodeDrivers:
    """Returns how many volumes of each driver a node takes."""
    return NodeDrivers(node=raw.metadata.name, limits={one.name: one.allocatable.count for one in raw.spec.drivers})


def _terms(selector: NodeSelector | None) -> tuple[Term, ...]:
    return tuple(
        tuple(one.requirement() for one in term.match_expressions)
        + tuple(Requirement(NODE_NAME, one.operator, one.values) for one in term.match_fields)
        for term in (selector.node_selector_terms if selector is not None else ())
    )


def _bytes(amounts: Quantities) -> int:
    return int(parse_quantity(amounts.get("storage", 0)))
