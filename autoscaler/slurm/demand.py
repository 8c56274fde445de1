"""Slurm's nodes as a look that the planner takes.

A node of Slurm is a pod that takes a whole machine of one group: bound where it has its machine, waiting where it is to
be started. Nodes of one job are a gang. Nothing else of the cluster is shown: which of its nodes Slurm takes is decided
there, own machines first; what may be bought for them, within which limits, is decided here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from autoscaler.model import labels as words
from autoscaler.model.cluster import Cluster, GangRef, Group, Node, Pod
from autoscaler.model.constraints import Requirement, Toleration
from autoscaler.model.resources import PODS, Resources
from autoscaler.slurm.controller import SlurmNode

NAMESPACE: Final = "slurm"
_TRIED: Final = timedelta(minutes=1)
"""Slurm has decided: nothing is waited for."""


def stem_of(group: Group) -> str:
    """What its nodes' names begin with, before their number."""
    return f"{group.entry}-{group.zone}"


def group_of(node: str, groups: Iterable[Group]) -> Group | None:
    """The group that a node of this name is of, or none of ours."""
    stem, _, number = node.rpartition("-")
    return next((group for group in groups if number.isdigit() and stem_of(group) == stem), None)


def machines_of(nodes: Iterable[SlurmNode], groups: Iterable[Group]) -> dict[str, str]:
    """Name of a node that is to have a machine, and has one that lives -> its instance's id."""
    living = {one.id for group in groups for one in group.instances if one.state != "terminating"}
    return {node.name: node.instance for node in nodes if not node.sleeps and node.instance in living}


def look(
    groups: Sequence[Group],
    machines: Mapping[str, str],
    gangs: Iterable[frozenset[str]],
    *,
    now: datetime,
) -> Cluster:
    """``machines``: of nodes that have one. ``gangs``: names that are to be started together."""
    homes = {name: group for name in machines if (group := group_of(name, groups))}
    bound = [_pod(name, group, now, node=name) for name, group in homes.items()]
    waiting = [
        _pod(name, group, now, gang=min(gang))
        for gang in gangs
        for name in sorted(gang)
        if (group := group_of(name, groups))
    ]
    return Cluster(
        seen_at=now,
        pods=(*bound, *waiting),
        nodes=tuple(
            Node(
                name=name,
                allocatable=group.allocatable,
                created=now - _TRIED,
                labels={**group.labels, words.HOSTNAME: name},
                provider_id=f"aws:///{group.zone}/{machines[name]}",
            )
            for name, group in homes.items()
        ),
        groups=tuple(groups),
        may_nominate=False,
    )


def _pod(name: str, group: Group, now: datetime, *, node: str | None = None, gang: str = "") -> Pod:
    place = {words.GROUP: group.entry, words.ZONE: group.zone}
    return Pod(
        namespace=NAMESPACE,
        name=name,
        uid=name,
        requests=Resources({**group.allocatable, PODS: 1}),
        created=now - _TRIED,
        node=node,
        phase="Running" if node else "Pending",
        affinity=(tuple(Requirement(key, "In", (value,)) for key, value in place.items()),),
        tolerations=(Toleration(operator="Exists"),),
        gang=GangRef(NAMESPACE, gang) if gang else None,
    )
