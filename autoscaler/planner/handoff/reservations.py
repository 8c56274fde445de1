"""New nodes are reserved for the pods that they were bought for, until those are there.

A pod behind our gate goes where the plan has it. Any other pod is the scheduler's, which spreads: it would put others
on a node before those that it was bought for, and one node be left over in the end. But a pod that waits may be given
more tolerations. So a new node joins with a taint of ours (``spillway.dev/reserved``). When it is ready, its taint gets
the instance's id for a value, and the pods that the plan has there are made to tolerate that: they fit nowhere else, or
the scheduler had bound them already. When they are there, the taint is taken off.

A node of a Capacity Block stays reserved: what the scheduler would put there by itself may outlast it. Another stays so
while pods without our gate wait for another one and would fit here: theirs would be left over.
DaemonSets whose pods do not tolerate the taint come when it goes. Where a node lacks devices that its group promises
and such a DaemonSet is kept off it, the taint goes at once: that may be the one that registers them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Final

from autoscaler.model import labels as words
from autoscaler.model.actions import Admit, Reserve, Unreserve
from autoscaler.model.cluster import Cluster, Node, Pod
from autoscaler.model.constraints import Requirement, Taint
from autoscaler.model.feasibility import tolerates, why_not_on
from autoscaler.model.pod_index import NO_LOAD, PodIndex, pod_index_of
from autoscaler.model.resources import Resources
from autoscaler.planner.demand.gangs import Gang, waits
from autoscaler.planner.placement.gang_packing import Placed
from autoscaler.planner.supply.candidate_nodes import Place
from autoscaler.planner.supply.node_places import has_joined, is_ready, labels_of

SPREADS: Final = f"kube-scheduler puts pods without the scheduling gate {words.GATE} where most is free"
"""Why nodes are reserved and nominated for such pods."""
_NEW: Final = Taint(words.RESERVED)


def is_reserved(place: Place) -> bool:
    """Whether it is a node of a group that keeps off pods that it is not reserved for."""
    return _reserved_node(place) is not None


def _reserved_node(place: Place) -> Node | None:
    node = place.node
    if node is None or place.group is None:
        return None
    return node if any(taint.key == words.RESERVED for taint in node.taints) else None


def reservations(
    gangs: Iterable[Gang],
    placed: Mapping[str, Placed | None],
    admits: Iterable[Admit],
    pinned: Iterable[tuple[Pod, Place]],
) -> list[Reserve]:
    """Returns at most one step, for all pods that may go to the reserved node that the plan has them on.

    A gang's pods when as many as must be together have a node that is ready, those behind our gate when it is lifted.
    ``pinned``: pods that can go to one node only, and that node.
    """
    admitted = {key for admit in admits for key, _ in admit.placements}
    going = [*pinned]
    for gang in gangs:
        found = placed.get(gang.name)
        ready = {key: place for key, place in found.places if has_joined(place)} if found is not None else {}
        if len(ready) >= max(1, gang.minimum):
            theirs = [pod for pod in gang.waiting if pod.key in admitted or not pod.gates]
            going += [(pod, ready[pod.key]) for pod in theirs if pod.key in ready]
    news = sorted(
        (pod.key, place.name)
        for pod, place in going
        if (node := _reserved_node(place)) is not None and has_joined(place) and not _may_enter(pod, node)
    )
    because = f"reserved nodes are for the pods that they were bought for, as {SPREADS}"
    return [Reserve(placements=tuple(news), because=because)] if news else []


def let_in(index: PodIndex, places: Iterable[Place]) -> dict[str, str]:
    """Pods that were let onto a node which is still reserved, and have room there -> its host name.

    They stay planned there, whatever else the plan could do with them: the scheduler may bind them at any moment.
    """
    open_to = {
        node.instance_id or "": (place, dict(place.free))
        for place in places
        if (node := _reserved_node(place)) is not None and has_joined(place)
    }
    if not open_to:
        return {}
    found = {}
    for pod in sorted((pod for pod in index.unbound if waits(pod) and not pod.gates), key=lambda pod: pod.key):
        values = (one.value for one in reversed(pod.tolerations) if one.key == words.RESERVED)
        whose = next((value for value in values if value in open_to), None)
        if whose is None:
            continue
        place, free = open_to[whose]
        if all(amount <= free.get(name, 0) for name, amount in pod.requests.items()):
            for name, amount in pod.requests.items():
                free[name] -= amount
            found[pod.key] = place.labels[words.HOSTNAME]
    return found


def kept_where_let_in(index: PodIndex, homes: Mapping[str, str]) -> PodIndex:
    """The same pods; those with a home as if they named its host."""
    if not homes:
        return index

    def kept(pod: Pod) -> Pod:
        host = homes.get(pod.key)
        at_home = (Requirement(words.HOSTNAME, "In", (host,)),) if host else ()
        return replace(pod, affinity=tuple((*term, *at_home) for term in pod.affinity or ((),))) if host else pod

    unbound = tuple(map(kept, index.unbound))
    return replace(index, unbound=unbound, gangs={name: tuple(map(kept, pods)) for name, pods in index.gangs.items()})


def openings(
    cluster: Cluster, homes: Mapping[str, Place], *, places: Iterable[Place], patience: timedelta
) -> list[Unreserve]:
    """Nodes (of ``places``) that need not be reserved any more: none is for longer than ``patience``.

    ``homes``: pods without a node -> where they are planned, or can only go.
    """
    reserved = [
        (place, node)
        for place in places
        if (node := _reserved_node(place)) is not None and is_ready(place) and not _may_stay(place, cluster)
    ]
    if not reserved:
        return []
    expected = {place.name for place in homes.values()}
    loose = [pod for pod in pod_index_of(cluster.pods).unbound if pod.key in homes and not pod.gates]
    rivals = {(pod.requests, pod.affinity, pod.tolerations): pod for pod in loose}.values()
    found: dict[str, list[str]] = defaultdict(list)
    for place, node in reserved:
        if cluster.seen_at >= node.created + patience:
            why = "it has been reserved for long enough"
        elif not has_joined(place):
            kept_off = next(_kept_off(cluster, place), "")
            why = f"its devices are not there yet, and DaemonSet {kept_off} is kept off it" if kept_off else ""
        elif place.name in expected or any(_fits(pod, place, node, cluster) for pod in rivals):
            why = ""
        else:
            why = "the pods that it was reserved for are there"
        if why:
            found[why].append(place.name)
    return [Unreserve(nodes=tuple(names), because=why) for why, names in sorted(found.items())]


def _may_stay(place: Place, cluster: Cluster) -> bool:
    """Whether it is of a Capacity Block; not where that keeps off it what registers its devices."""
    if place.group is None or place.group.block is None:
        return False
    return has_joined(place) or not any(_kept_off(cluster, place))


def _may_enter(pod: Pod, node: Node) -> bool:
    """Whether the pod tolerates the reservation as it will be, and as it is."""
    ours = [taint for taint in node.taints if taint.key == words.RESERVED]
    final = [Taint(words.RESERVED, node.instance_id or "", taint.effect) for taint in ours]
    return all(tolerates(pod.tolerations, taint) for taint in (*ours, *final))


def _kept_off(cluster: Cluster, place: Place) -> Iterator[str]:
    """DaemonSets whose pods nothing but the reservation keeps off the node."""
    if place.group is None:
        return
    labels = labels_of(place.group, place.name)
    for daemon in cluster.daemon_sets:
        mine, taints = daemon.tolerations, place.group.taints
        why = why_not_on(affinity=daemon.affinity, tolerations=mine, labels=labels, taints=taints)
        if why is None and not tolerates(mine, _NEW):
            yield f"{daemon.namespace}/{daemon.name}"


def _fits(pod: Pod, place: Place, node: Node, cluster: Cluster) -> bool:
    """Whether it may go there and finds room, that which is kept for DaemonSets included."""
    taken = Resources(dict(pod_index_of(cluster.pods).loads.get(place.name, NO_LOAD).used))
    if not pod.requests.fits_in(node.allocatable - taken):
        return False
    why = why_not_on(affinity=pod.affinity, tolerations=pod.tolerations, labels=place.labels, taints=place.taints)
    return why is None
