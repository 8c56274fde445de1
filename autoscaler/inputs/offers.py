"""What can be bought, as pods see it: prices from a catalogue, or the groups of a policy at those prices, by zone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from autoscaler.config.group_entry import DISK, LARGEST_DISK, GroupEntry
from autoscaler.config.policy import Policy
from autoscaler.inputs.asked import Asked
from autoscaler.inputs.labels_elsewhere import labels_elsewhere, region_asked, region_of, values_asked
from autoscaler.model import labels as words
from autoscaler.model.cluster import DaemonSet, Node, Pod
from autoscaler.model.constraints import Taint
from autoscaler.model.errors import BadInput
from autoscaler.model.feasibility import amount_in_words, why_not_on
from autoscaler.model.instance_types import Price, ephemeral_storage_of, root_volume_with
from autoscaler.model.resources import EPHEMERAL_STORAGE, Resources, parse_quantity
from autoscaler.model.volumes import Storage


@dataclass(frozen=True, slots=True)
class Offer:
    """A kind of node that may be bought, with what pods see of it."""

    name: str
    price: Price
    zone: str
    entry: str
    """Of the policy; empty where none is given."""
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]


def offers_of(asked: Asked, prices: Sequence[Price], policy: Policy | None, zones: Sequence[str]) -> list[Offer]:
    """A policy's groups, or every price in every zone: those given, else those that some pod or its volume names."""
    if policy is not None:
        return list(_of_policy(prices, policy))
    named = values_asked(asked.pods, words.ZONE) | _zones_of_volumes(asked.storage)
    zones, region = sorted(set(zones)) or sorted(named) or [""], region_asked(asked.pods)
    disk = root_volume_for(asked.pods)
    return [
        _offer(
            replace(price, room=_with_disk(price.room, disk)),
            zone=zone,
            entry="",
            labels=labels_elsewhere(price, region=region_of(zone) or region),
        )
        for price in prices
        for zone in ((price.zone,) if price.zone else zones)
    ]


def root_volume_for(pods: Iterable[Pod]) -> int:
    """Bytes of the root volume of a node from a catalogue: the usual, or what the pod needs that writes the most."""
    usual = int(parse_quantity(DISK))
    most = max((pod.requests[EPHEMERAL_STORAGE] for pod in pods if not pod.node), default=0)
    disk = usual if most <= ephemeral_storage_of(usual) else root_volume_with(most)
    return disk if disk <= LARGEST_DISK else usual


def note_on_disks(pods: Iterable[Pod]) -> list[str]:
    """What is assumed of root volumes, where it is not the usual."""
    disk = root_volume_for(pods)
    if disk == int(parse_quantity(DISK)):
        return []
    size = amount_in_words(EPHEMERAL_STORAGE, disk)
    return [f"ephemeral-storage: root volumes of {size} are planned (disk of an entry), their price is not counted"]


def _with_disk(room: Resources, disk: int) -> Resources:
    """What a price says, and what pods may write on a root volume of that size."""
    return Resources({EPHEMERAL_STORAGE: ephemeral_storage_of(disk), **dict(room.items())})


def _zones_of_volumes(storage: Storage | None) -> set[str]:
    """Those that hold a volume of some claim."""
    claims = storage.claims.values() if storage else ()
    volumes = [storage.volumes[one.volume] for one in claims if storage and one.volume]
    named = {
        value
        for volume in volumes
        for term in volume.affinity
        for one in term
        if one.key == words.ZONE and one.operator == "In"
        for value in one.values
    }
    return named | {volume.labels[words.ZONE] for volume in volumes if words.ZONE in volume.labels}


def _of_policy(prices: Sequence[Price], policy: Policy) -> Iterable[Offer]:
    by_type: dict[str, list[Price]] = {}
    for price in prices:
        by_type.setdefault(price.instance_type, []).append(price)
    for entry in policy.groups:
        for zone in entry.zones:
            types = [_price_of(by_type, kind, zone, entry) for kind in entry.types]
            # Of a set any may come: count on what every one has, at the price of the dearest.
            least = {name: min(one.room[name] for one in types) for name in types[0].room if name != words.EFA}
            room = Resources({**_with_disk(Resources(least), entry.disk_bytes), **Resources.parse(entry.resources)})
            usd = max(one.usd for one in types) if entry.usd_per_hour is None else entry.usd_per_hour
            price = Price(" or ".join(entry.types), types[0].arch, room, usd, zone, entry.capacity_type)
            gpus = {(one.gpu_model, one.gpu_memory_mib) for one in types}
            model, memory = gpus.pop() if len(gpus) == 1 else ("", 0)
            yield _offer(
                replace(price, gpu_model=model, gpu_memory_mib=memory),
                zone=zone,
                entry=entry.name,
                labels={words.GROUP: entry.name, words.REGION: policy.region, **entry.labels},
                taints=tuple(taint.as_taint() for taint in entry.taints),
            )


def _price_of(by_type: Mapping[str, Sequence[Price]], kind: str, zone: str, entry: GroupEntry) -> Price:
    """Returns the price in that zone for that capacity, where the catalogue tells them apart; else that of the type."""
    known = by_type.get(kind, ())
    if not known:
        raise BadInput(f"group {entry.name!r}: instance_type {kind!r} is not in the catalogue")
    here = [one for one in known if one.zone in ("", zone)]
    if not here:
        zones = ", ".join(sorted({one.zone for one in known}))
        raise BadInput(f"group {entry.name!r}: zone {zone!r} has no {kind!r} in the catalogue: {zones} have")
    return min(here, key=lambda one: one.capacity_type != entry.capacity_type)


def _offer(
    price: Price,
    *,
    zone: str,
    entry: str,
    labels: Mapping[str, str] | None = None,
    taints: tuple[Taint, ...] = (),
) -> Offer:
    seen = {
        **({} if " " in price.instance_type else {words.INSTANCE_TYPE: price.instance_type}),
        words.CAPACITY_TYPE: price.capacity_type,
        words.ORIGIN: words.EC2,
        words.ARCH: price.arch,
        words.OS: "linux",
        **({words.ZONE: zone} if zone else {}),
        **({words.GPU_PRODUCT: price.gpu_model} if price.gpu_model else {}),
        **({words.GPU_MEMORY: str(price.gpu_memory_mib)} if price.gpu_model and price.gpu_memory_mib else {}),
        **(labels or {}),
    }
    name = "/".join(part for part in (entry, price.instance_type, zone, price.capacity_type) if part)
    return Offer(name, price, zone, entry, seen, taints)


def nodes_beside_daemons(nodes: Iterable[Node], daemon_sets: Sequence[DaemonSet], pods: Iterable[Pod]) -> list[Node]:
    """The same machines, less what DaemonSets take whose pods are not listed on them."""
    there = {(pod.node, pod.namespace, pod.owner) for pod in pods if pod.is_daemon} if daemon_sets else set()
    found = []
    for node in nodes:
        missing = [one for one in daemon_sets if (node.name, one.namespace, f"DaemonSet/{one.name}") not in there]
        taken = Resources.total(one.requests for one in _matching(missing, node.labels, node.taints))
        room = {name: max(0, amount - taken[name]) for name, amount in node.allocatable.items()}
        found.append(replace(node, allocatable=Resources(room)))
    return found


def _matching(
    daemon_sets: Iterable[DaemonSet], labels: Mapping[str, str], taints: tuple[Taint, ...]
) -> list[DaemonSet]:
    return [
        one
        for one in daemon_sets
        if why_not_on(affinity=one.affinity, tolerations=one.tolerations, labels=labels, taints=taints) is None
    ]
