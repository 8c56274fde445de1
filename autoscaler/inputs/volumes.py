"""Volumes of pods from a file: what it says of claims, volumes and classes, and what is taken for granted, told so.

Manifests name claims and classes, and seldom hold what a cluster has of them. What is not in the file is taken as what
a cluster on EC2 usually makes of it: a volume of the EBS driver, made in the zone of the first pod that uses it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from autoscaler.inputs.kube_lists import NAMESPACE, Written
from autoscaler.kube.schema.core import Meta
from autoscaler.kube.schema.storage import (
    ClaimJson,
    ClassJson,
    DriversJson,
    VolumeJson,
    claim_from,
    class_from,
    drivers_from,
    volume_from,
)
from autoscaler.model.cluster import Pod
from autoscaler.model.volumes import NodeDrivers, Storage, Volume, VolumeClaim, VolumeClass

_EBS: Final = "ebs.csi.aws.com"
_SHARED: Final = "a driver of volumes that several nodes use"
"""Stands for the driver of a class that is not in the file, where EBS cannot make what is asked for."""
_USUAL: Final = "the cluster's default"
"""Stands for the name of the default class, where the file has none."""
_IS_DEFAULT: Final = "storageclass.kubernetes.io/is-default-class"
_BY_ONE: Final = frozenset({"ReadWriteOnce", "ReadWriteOncePod"})
_Key = tuple[str, str]


@dataclass(slots=True)
class Volumes:
    """What a file says of them."""

    _claims: dict[_Key, tuple[ClaimJson, VolumeClaim]] = field(default_factory=dict)
    _volumes: dict[str, Volume] = field(default_factory=dict)
    _promised: dict[_Key, str] = field(default_factory=dict)
    """Namespace and name of a claim -> the volume that is kept for it."""
    _classes: dict[str, VolumeClass] = field(default_factory=dict)
    _drivers: dict[str, NodeDrivers] = field(default_factory=dict)
    _default: str = _USUAL

    def read(self, one: Written) -> bool:
        """Take the object in; whether it is of one of these kinds."""
        match one.api_group, one.kind:
            case "", "PersistentVolumeClaim":
                one.made(ClaimJson, self.add)
            case "", "PersistentVolume":
                one.made(VolumeJson, self._add_volume)
            case "storage.k8s.io", "StorageClass":
                raw = one.read(ClassJson)
                self._classes[raw.metadata.name] = class_from(raw)
                self._default = raw.metadata.name if raw.metadata.annotations.get(_IS_DEFAULT) else self._default
            case "storage.k8s.io", "CSINode":
                found = one.made(DriversJson, drivers_from)
                self._drivers[found.node] = found
            case _:
                return False
        return True

    def add(self, claim: ClaimJson) -> None:
        """A claim of the file. Raises ``ValueError`` for an amount that is none."""
        self._claims[claim.metadata.namespace, claim.metadata.name] = _with_value(claim)

    def add_made(self, claim: ClaimJson) -> None:
        """The same for one that a controller makes for a pod, unless the file has it."""
        if (claim.metadata.namespace, claim.metadata.name) not in self._claims:
            self.add(claim)

    def _add_volume(self, raw: VolumeJson) -> None:
        """A volume without a status, as in a manifest, is available."""
        kept_for = raw.spec.claim_ref
        if kept_for is not None:
            self._promised[kept_for.namespace or NAMESPACE, kept_for.name] = raw.metadata.name
        made = volume_from(raw)
        self._volumes[made.name] = replace(made, available=made.available or (not raw.status.phase and not kept_for))

    def of(self, pods: Iterable[Pod]) -> tuple[Storage | None, tuple[str, ...]]:
        """What the planner is to know for these pods, and what is taken for granted; none where no pod has a claim."""
        wanted = {(pod.namespace, name): None for pod in pods for name in pod.claims}
        if not wanted:
            return None, ()
        absent = [key for key in wanted if key not in self._claims]
        claims = {key: self._claim(key) for key in wanted}
        classes, notes = dict(self._classes), list(_absent_claims(absent))
        for name, its in _by_class(claims.values()).items():
            known = classes.get(name)
            if known is None:
                classes[name] = self._class(name, its)
                if classes[name].provisioner and any((one.namespace, one.name) in self._claims for one in its):
                    notes.append(_absent_class(classes[name]))
            elif not known.waits:
                classes[name] = replace(known, waits=True)
                notes.append(f"StorageClass {name} binds at once: its volumes are taken to be where their pods run")
        return Storage(claims, self._volumes, classes, self._drivers), tuple(notes)

    def _claim(self, key: _Key) -> VolumeClaim:
        """Returns the claim: bound where the file holds its volume, and of the default class where it names none."""
        raw, value = self._claims.get(key) or _with_value(ClaimJson(metadata=Meta(namespace=key[0], name=key[1])))
        named = raw.spec.storage_class_name
        volume = value.volume or raw.spec.volume_name or self._promised.get(key, "")
        return replace(
            value,
            volume=volume if volume in self._volumes else "",
            storage_class=self._default if named is None else named,
            modes=value.modes or frozenset({"ReadWriteOnce"}),
        )

    def _class(self, name: str, claims: list[VolumeClaim]) -> VolumeClass:
        """One that is not in the file: it gives out the file's volumes of its name, or makes new ones."""
        if not name or any(volume.storage_class == name for volume in self._volumes.values()):
            return VolumeClass(name, waits=True)
        driver = _EBS if all(claim.modes <= _BY_ONE for claim in claims) else _SHARED
        return VolumeClass(name, provisioner=driver, waits=True)


def _with_value(claim: ClaimJson) -> tuple[ClaimJson, VolumeClaim]:
    return claim, claim_from(claim)


def _by_class(claims: Iterable[VolumeClaim]) -> dict[str, list[VolumeClaim]]:
    """Those that have no volume yet."""
    found: dict[str, list[VolumeClaim]] = {}
    for claim in claims:
        if not claim.volume:
            found.setdefault(claim.storage_class, []).append(claim)
    return found


def _absent_class(one: VolumeClass) -> str:
    called = f"{_USUAL} StorageClass" if one.name == _USUAL else f"StorageClass {one.name}"
    return f"{called} is not in the file: {one.provisioner} is taken to make its volumes where their pods run"


def _absent_claims(keys: list[_Key]) -> Iterator[str]:
    for namespace, names in sorted(Counter(key[0] for key in keys).items()):
        first = min(name for space, name in keys if space == namespace)
        others = f" and {names - 1} more" if names > 1 else ""
        where = f" of namespace {namespace}" if namespace not in ("", NAMESPACE) else ""
        these, are = ("volume claim", "is") if names == 1 else ("volume claims", "are")
        yield f"{these} {first}{others}{where} {are} not in the file: volumes are taken to be made where their pods run"
