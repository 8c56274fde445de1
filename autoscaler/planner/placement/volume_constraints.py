"""What the volumes of waiting pods ask of their nodes, as the scheduler's own plugins see it. Pure.

- A claim that is bound: where its volume can be used (``nodeAffinity``, or the zone and region on its labels).
- A claim that waits for its first pod: where its class makes volumes, or where a volume that suits it is at hand.
- ``ReadWriteOncePod``: no other pod uses it. ``ReadWriteOnce`` is no rule of the scheduler's: it is kept when volumes
  are attached, and a second pod on another node waits there.
- A node takes so many volumes of each driver: what its CSINode says; of a new EC2 node the least that a node of its
  group says, else :data:`USUAL`. A pod counts each of its volumes, also one that another pod on the node uses already.

What keeps a pod from every node until somebody acts on the claim is a reason to hold it, and never to buy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from autoscaler.model.cluster import Cluster, Pod
from autoscaler.model.constraints import Requirement
from autoscaler.model.feasibility import NODE_NAME, term_holds
from autoscaler.model.resources import ATTACHMENTS, Resources
from autoscaler.model.volumes import Storage, Terms, Volume, VolumeClaim
from autoscaler.planner.supply.candidate_nodes import Place
from autoscaler.planner.supply.fleet import Fleet

USUAL: Final[Mapping[str, int]] = {"ebs.csi.aws.com": 25}
"""Driver -> volumes of it on an EC2 node of which nothing better is known.

25 is what Kubernetes counted on the newer instance types itself (``DefaultMaxEBSNitroVolumeLimit`` in
pkg/volume/util/attach_limit.go): 28 attachments, shared with network interfaces and the root volume. Types with many
GPUs, interfaces or disks of their own take fewer: their CSINode says so once one of them has joined.
"""
MANY: Final = 1_000_000
_ZONAL: Final = frozenset({"ebs.csi.aws.com"})
_ONCE: Final = "ReadWriteOncePod"
_PLACES: Final = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
)


class Claims:
    """Answers for the pods of one look."""

    def __init__(self, cluster: Cluster) -> None:
        self._pods = cluster.pods
        self._storage = cluster.storage
        self._users: dict[tuple[str, str], str] | None = None

    def resolve(self, pod: Pod) -> Pod:
        """The pod, told where its volumes can be used and how many of each driver it attaches."""
        if not pod.claims or self.why_held(pod):
            return pod
        ties = tuple(tie for claim in self._of(pod) for tie in self._ties(claim))
        attached = Counter(driver for claim in self._of(pod) if (driver := self._driver(claim)))
        asked = Resources({ATTACHMENTS + driver: many for driver, many in attached.items()})
        return replace(pod, ties=tuple(dict.fromkeys(ties)), requests=pod.requests + asked)

    def why_held(self, pod: Pod) -> str:
        """What about its claims keeps it from every node; empty where nothing does."""
        if not pod.claims:
            return ""
        if self._storage is None:
            return "waits until what there is of volumes is known"
        return next((why for name in pod.claims if (why := self._why_not_usable(pod, name, self._storage))), "")

    def share_a_zone(self, pods: Iterable[Pod]) -> bool:
        """Whether two of them want one volume that is still to be made, by a driver whose volumes stay in a zone."""
        wanted = Counter(
            (claim.namespace, claim.name)
            for pod in pods
            for claim in self._of(pod)
            if not claim.volume and self._driver(claim) in _ZONAL
        )
        return any(many > 1 for many in wanted.values())

    def equip(self, fleet: Fleet, pods: Iterable[Pod]) -> Fleet:
        """The fleet with room for as many volumes as its nodes take, of the drivers that these pods ask for."""
        drivers = sorted({name.removeprefix(ATTACHMENTS) for pod in pods for name in pod.requests if _is_ours(name)})
        if not drivers or self._storage is None:
            return fleet
        limits = _Limits(self._storage, fleet)
        for place in fleet.places:
            place.version += 1  # what is known of it is of before
            for driver in drivers:
                taken = sum(
                    self._driver(claim) == driver
                    for pod in (fleet.residents.get(place.name, ()) if place.node else ())
                    for claim in self._of(pod)
                )
                place.free[ATTACHMENTS + driver] = limits.of(place, driver) - taken
        rooms = {
            name: room + Resources({ATTACHMENTS + driver: limits.of_new(name, driver) for driver in drivers})
            for name, room in fleet.rooms.items()
        }
        return replace(fleet, rooms=rooms, samples={})

    def _why_not_usable(self, pod: Pod, name: str, storage: Storage) -> str:
        claim = storage.claims.get((pod.namespace, name))
        if claim is None:
            return f"volume claim {name} is not there"
        if claim.deleting:
            return f"volume claim {name} is being deleted"
        user = self._user(pod, claim) if _ONCE in claim.modes else ""
        if user:
            return f"volume claim {name} is {_ONCE}, and pod {user} uses it"
        if not claim.volume:
            return self._why_not_made(claim, storage)
        missing = claim.volume not in storage.volumes
        return f"volume {claim.volume}, which claim {name} is bound to, is not there" if missing else ""

    def _why_not_made(self, claim: VolumeClaim, storage: Storage) -> str:
        """Says why an unbound claim is not for us to place: only one that waits for its first pod is."""
        if storage.binds_at_once(claim):
            return f"volume claim {claim.name} is not bound, and not by waiting for a pod: its provisioner acts first"
        known = storage.classes.get(claim.storage_class)
        if known is None:
            return f"volume claim {claim.name} is not bound, and its StorageClass {claim.storage_class} is not there"
        if not known.makes_volumes and not any(self._suiting(claim)):
            return f"no free volume of class {claim.storage_class} suits claim {claim.name}"
        return ""

    def _user(self, pod: Pod, claim: VolumeClaim) -> str:
        """Another pod that has the claim, or will have it before this one."""
        if self._users is None:
            self._users = {}
            for one in sorted(self._pods, key=lambda one: (one.node is None, one.key)):
                for name in one.claims if not one.is_finished else ():
                    self._users.setdefault((one.namespace, name), one.key)
        first = self._users.get((claim.namespace, claim.name), pod.key)
        return first if first != pod.key else ""

    def _of(self, pod: Pod) -> Iterator[VolumeClaim]:
        for name in pod.claims:
            claim = self._storage.claims.get((pod.namespace, name)) if self._storage else None
            if claim is not None:
                yield claim

    def _driver(self, claim: VolumeClaim) -> str:
        """Empty where it is not CSI's, or not known."""
        if self._storage is None:
            return ""
        if claim.volume:
            volume = self._storage.volumes.get(claim.volume)
            return volume.driver if volume else ""
        known = self._storage.classes.get(claim.storage_class)
        return known.provisioner if known and known.makes_volumes else ""

    def _ties(self, claim: VolumeClaim) -> Iterator[Terms]:
        """Yields terms, of each of which one must hold for the node."""
        storage = self._storage or Storage()
        if claim.volume:
            yield from _ties_of(storage.volumes[claim.volume])
            return
        if claim.node:
            yield ((Requirement(NODE_NAME, "In", (claim.node,)),),)
        known = storage.classes[claim.storage_class]
        suiting = [volume.affinity for volume in self._suiting(claim)]
        if (known.makes_volumes and not known.topologies) or () in suiting:
            return
        made = known.topologies if known.makes_volumes else ()
        yield tuple(dict.fromkeys((*made, *(term for terms in suiting for term in terms))))

    def _suiting(self, claim: VolumeClaim) -> Iterator[Volume]:
        """Volumes at hand that the claim may be bound to."""
        for volume in (self._storage or Storage()).volumes.values():
            alike = volume.storage_class == claim.storage_class and volume.block == claim.block
            enough = volume.bytes >= claim.bytes and volume.modes >= claim.modes
            if volume.available and alike and enough and term_holds(claim.selector, volume.labels):
                yield volume


class _Limits:
    """How many volumes of a driver nodes take."""

    def __init__(self, storage: Storage, fleet: Fleet) -> None:
        self._drivers = storage.drivers
        self._known = {driver for one in storage.drivers.values() for driver in one.limits}
        self._members = fleet.group_of

    def of(self, place: Place, driver: str) -> int:
        """Returns the limit of a node that is there; none for a machine of ours without a driver that others have."""
        told = self._drivers.get(place.name)
        if told is not None and driver in told.limits:
            limit = told.limits[driver]
            return MANY if limit is None else limit
        if place.group is not None:
            return self.of_new(place.group.name, driver)
        return 0 if driver in self._known else MANY

    def of_new(self, group: str, driver: str) -> int:
        """Returns the limit of a new node of an Auto Scaling group."""
        told = [
            limit
            for node, one in self._drivers.items()
            if node in self._members and self._members[node].name == group
            if (limit := one.limits.get(driver)) is not None
        ]
        return min(told, default=USUAL.get(driver, MANY))


def _is_ours(resource: str) -> bool:
    return resource.startswith(ATTACHMENTS)


def _ties_of(volume: Volume) -> Iterator[Terms]:
    """Its own affinity; and the zone or region on its labels, which nodes that have neither need not have."""
    if volume.affinity:
        yield volume.affinity
    nowhere = tuple(Requirement(key, "DoesNotExist") for key in _PLACES)
    for key in _PLACES:
        if key in volume.labels:
            values = tuple(volume.labels[key].split("__"))
            yield ((Requirement(key, "In", values),), nowhere)
