"""Elastic jobs of a cluster: which of them change their size now, and what that means for pods that wait.

A job that grows is given pods first, which then wait for their places as all pods do, after all others; no node is
bought for them but with money that the job may spend. Pods for which a job shrinks wait until its tasks have ended:
nothing is bought for them meanwhile.

Sizes are decided before pods are placed, as those for which jobs shrink are not bought for; and growth once more
afterwards, in the room and within the money that the plan leaves: what a gang takes of own machines, of nodes on their
way and of the limits, beside what is bought for it, is no room to grow into.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final

from autoscaler.config.policy import Elastic
from autoscaler.model.actions import Resize
from autoscaler.model.cluster import Cluster, Pod
from autoscaler.model.jobs import ElasticRole
from autoscaler.model.labels import COMPLETION_INDEX, HOSTNAME, OWNER, RESERVED
from autoscaler.model.pauses import spent_for
from autoscaler.planner.demand.gangs import Gang, pinned_to, waits
from autoscaler.planner.elastic.sizes import sizes
from autoscaler.planner.elastic.values import Claim, ElasticJob, ElasticParameters, Follower, Look, Sizes
from autoscaler.planner.placement.offerings import Market
from autoscaler.planner.supply.candidate_nodes import Place
from autoscaler.planner.supply.fleet import Fleet
from autoscaler.planner.supply.node_places import has_joined

_NO_TIME: Final = timedelta()
_NOWHERE: Final[Mapping[str, Place]] = MappingProxyType({})
_UNPAID: Final = "nothing is bought for tasks above the minimum of an elastic job that may spend nothing"


@dataclass(frozen=True, slots=True)
class Role:
    """An elastic Job with its pods."""

    job: ElasticRole
    pods: Mapping[int, Pod]
    """Its tasks that are there and are to stay, by index."""
    ending: tuple[Pod, ...]
    """Pods of it that are being deleted, or are about to be."""
    task: Pod
    """What one of its tasks is, wherever it runs."""

    @property
    def growth(self) -> Iterator[Pod]:
        """Its tasks above the minimum."""
        return (pod for index, pod in self.pods.items() if index >= self.job.minimum)

    @property
    def is_placed(self) -> bool:
        """Whether a task of it has a node."""
        return any(not waits(pod) for pod in self.pods.values())


@dataclass(frozen=True, slots=True)
class Resizing:
    """What is done about sizes, and about pods that wait."""

    steps: tuple[Resize, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Key of a pod for which no place is sought -> why."""
    unbought: Mapping[str, str] = field(default_factory=dict)
    """Name of a gang for which nothing is bought now -> why."""
    homes: Mapping[str, Place] = field(default_factory=dict)
    """Key of a pod that waits -> its place in the last plan, else where the sizes were decided with it.

    Tasks above a minimum go where the sizes have them, or wait: elsewhere they would take the room of others.
    """
    growing: frozenset[str] = frozenset()
    """Names of gangs of which only tasks above a minimum wait: they are served last."""
    looks: tuple[datetime, ...] = ()
    """When a size may change again, or others shrink for a job that has just come."""

    def depends_on(self, planned: Collection[str], gangs: Iterable[Gang]) -> bool:
        """Whether the plan may leave less room than the sizes count on: a job grows, or its new tasks have no place."""
        growing = (pod for gang in gangs if gang.name in self.growing for pod in gang.waiting)
        return any(step.to > step.was for step in self.steps) or any(pod.key not in planned for pod in growing)


def roles_of(cluster: Cluster) -> tuple[Role, ...]:
    """The elastic Jobs of which pods are there; at no cost where no Job is elastic."""
    if not cluster.elastic:
        return ()
    wanted = {(one.namespace, one.owner) for one in cluster.elastic}
    pods: dict[tuple[str, str], list[Pod]] = defaultdict(list)
    for pod in cluster.pods:
        key = (pod.namespace, pod.owner)
        if key in wanted and not pod.is_finished:
            pods[key].append(pod)
    found = (_role(one, pods[one.namespace, one.owner]) for one in cluster.elastic)
    return tuple(sorted((one for one in found if one is not None), key=lambda one: one.job.key))


def resize(
    cluster: Cluster,
    rules: Elastic,
    fleet: Fleet,
    *,
    roles: Sequence[Role],
    gangs: Sequence[Gang],
    homes: Mapping[str, Place],
    market: Market,
    planned: Mapping[str, Place] = _NOWHERE,
) -> Resizing:
    """Decide on the sizes of all elastic jobs. The snapshot is left as it was.

    ``gangs``: those that may be planned; ``homes``: pod key -> its place in the last plan; ``planned``: in this one, on
    the snapshot.
    """
    if not roles:
        return Resizing(homes=homes)
    return _Resizing(cluster, rules, fleet, roles, gangs, homes, market, planned).decide()


@dataclass(frozen=True, slots=True)
class _Resizing:
    cluster: Cluster
    rules: Elastic
    fleet: Fleet
    roles: Sequence[Role]
    gangs: Sequence[Gang]
    homes: Mapping[str, Place]
    market: Market
    planned: Mapping[str, Place]

    def decide(self) -> Resizing:
        """See :func:`resize`."""
        snapshot, start = self.market.snapshot, self.market.snapshot.mark()
        growth = {pod.key: role.job.key for role in self.roles for pod in role.growth}
        jobs = tuple(self._jobs())
        look = Look(self.cluster.seen_at, jobs, tuple(self._claims(growth)))
        parameters = ElasticParameters(interval=self.rules.interval)
        is_ending = self._leave()
        told = sizes(look, self.market, parameters)
        soon = self._served_soon(look, told, parameters)
        snapshot.undo(start)
        steps = tuple(self._steps(told))
        homes = self._homes(look, told, growth)
        left_out = {**self._left_out(told, growth), **self._not_yet(look, homes, growth)}
        waiting = {gang.name: {pod.key for pod in gang.waiting} - self._ending for gang in self.gangs}
        growing = {
            name: {growth[key] for key in keys} for name, keys in waiting.items() if keys and keys <= growth.keys()
        }
        paying = {one.name for job in jobs if job.usd_per_hour > 0 for one in job.parts}
        changes_at = {job.may_change_at(self.rules.interval) for job in jobs if not job.stays}
        shrinking = is_ending or any(step.to < step.was for step in steps)
        return Resizing(
            steps=steps,
            left_out=left_out,
            unbought={
                **(dict.fromkeys(told.served, "tasks of elastic jobs end to make room for it") if shrinking else {}),
                **soon,
                **{name: _UNPAID for name, owners in growing.items() if not owners & paying},
            },
            homes={**homes, **self.homes, **{key: place for key, place in homes.items() if key in growth}},
            growing=frozenset(growing),
            looks=tuple(sorted(when for when in changes_at if when > self.cluster.seen_at)),
        )

    # --- What there is ------------------------------------------------------------------------------------------------

    @property
    def _ending(self) -> frozenset[str]:
        """Keys of pods that end, or that their Jobs are about to delete: they ask for no place."""
        return frozenset(pod.key for role in self.roles for pod in role.ending)

    def _jobs(self) -> Iterator[ElasticJob]:
        """Jobs that have started, each with what follows it."""
        following: dict[str, list[Role]] = defaultdict(list)
        for role in self.roles:
            if role.job.follows:
                following[f"{role.job.namespace}/{role.job.follows}"].append(role)
        for role in self.roles:
            job = role.job
            if job.follows or not role.is_placed:
                continue
            team = (role, *following[job.key])
            paid = self._paid(team)
            yield ElasticJob(
                name=job.key,
                task=role.task,
                minimum=job.minimum,
                maximum=job.maximum,
                may_grow=all(map(self._may_grow, team)),
                created=job.created,
                priority=role.task.priority,
                followers=tuple(self._follower(one) for one in team[1:]),
                tasks=self._nodes(role),
                changed=max((one.job.changed for one in team if one.job.changed), default=None),
                stays=any(one.job.stays for one in team),
                restart=job.restart or _NO_TIME,
                warm_up=job.warm_up or _NO_TIME,
                usd_per_hour=self._may_spend(team, paid),
                paid=paid,
            )

    def _may_spend(self, team: Sequence[Role], paid: Mapping[str, float]) -> float:
        """Where a budget of the namespace or of an owner is spent, no more than it does."""
        job = team[0].job
        own = self.rules.usd_per_hour if job.usd_per_hour is None else job.usd_per_hour
        owners = {one.task.labels.get(OWNER, "") for one in team}
        is_spent = spent_for(self.cluster.pauses, namespace=job.namespace, owners=owners) is not None
        return min(own, sum(paid.values())) if is_spent else own

    def _may_grow(self, role: Role) -> bool:
        """Whether its minimum runs, and no task of it waits for a node that is on its way or bought now."""
        planned = (self.planned[pod.key] for pod in role.pods.values() if pod.key in self.planned)
        return _has_its_least(role) and all(map(has_joined, planned))

    def _follower(self, role: Role) -> Follower:
        return Follower(role.job.key, role.task, role.job.minimum, role.job.maximum, self._nodes(role))

    def _nodes(self, role: Role) -> tuple[str, ...]:
        """Returns the nodes of its tasks by index; those of the minimum that wait are claims, and are counted there."""
        return tuple(
            "?" if index < role.job.minimum and self._waits(role, index) else self._node(role.pods.get(index))
            for index in range(role.job.size)
        )

    def _waits(self, role: Role, index: int) -> bool:
        return index not in role.pods or waits(role.pods[index])

    def _node(self, pod: Pod | None) -> str:
        if pod is None or waits(pod):
            return self.planned[pod.key].name if pod is not None and pod.key in self.planned else ""
        place = None if pod.node else self.market.snapshot.place_on(pinned_to(pod) or "")
        return pod.node or (place.name if place is not None else "?")

    def _paid(self, team: Sequence[Role]) -> dict[str, float]:
        """Nodes of groups, also planned ones, that hold nothing but what these jobs have above their minimum."""
        own = {pod.key: pod for role in team for pod in role.growth}
        bought = {place.name: place.group for place in self.planned.values() if place.group is not None}
        shared = {place.name for place in self.planned.values() if not own.keys() >= {*place.guests}}
        groups = {node: self.fleet.group_of.get(node) or bought.get(node) for node in map(self._node, own.values())}
        return {
            node: group.usd_per_hour
            for node, group in sorted(groups.items(), key=lambda one: one[0])
            if group is not None and node not in shared
            if all(pod.key in own or pod.deleting for pod in self.fleet.residents.get(node, ()))
        }

    def _claims(self, growth: Collection[str]) -> Iterator[Claim]:
        """What waits, but for what has a node on its way, and what its Job is about to delete."""
        settled = {*growth, *self.planned, *self._ending}
        for gang in self.gangs:
            pods = [pod for pod in gang.waiting if pod.key not in settled]
            if all(pod.key in self.homes and not self.homes[pod.key].standing for pod in pods):
                continue
            anchor = self._anchor(gang)
            least = max(0, gang.minimum - sum(pod.key in self.planned for pod in gang.waiting))
            first, rest = pods[:least], pods[least:]
            if first:
                yield Claim(gang.name, tuple(first), gang.oldest, gang.priority, gang.topology, anchor)
            for pod in rest:
                yield Claim(f"{gang.name} {pod.key}", (pod,), gang.oldest, gang.priority, gang.topology, anchor)

    def _anchor(self, gang: Gang) -> str | None:
        """The value of the gang's topology where pods of it run."""
        places = (place for host in gang.nodes if (place := self.market.snapshot.place_on(host)) is not None)
        values = (place.labels.get(gang.topology) for place in places) if gang.topology else ()
        return next((value for value in values if value is not None), None)

    def _leave(self) -> bool:
        """Take what is ending off the snapshot. Gives whether there is any."""
        found = False
        for role in self.roles:
            for pod in role.ending:
                place = self.market.snapshot.place(pod.node or "")
                if place is not None and has_joined(place):
                    self.market.snapshot.remove_pod(self.market.snapshot.shape(pod), place)
                    found = True
        return found

    # --- What is done -------------------------------------------------------------------------------------------------

    def _served_soon(self, look: Look, told: Sizes, parameters: ElasticParameters) -> dict[str, str]:
        """Claims for which jobs will shrink as soon as they may change their size again."""
        recent = [job for job in look.jobs if job.changed and job.changed + parameters.interval > look.seen_at]
        if not recent or all(claim.name in told.served for claim in look.claims):
            return {}
        free = tuple(replace(job, changed=None) for job in look.jobs)
        later = sizes(replace(look, jobs=free), self.market, parameters)
        when = max(job.changed for job in recent if job.changed) + parameters.interval
        why = f"an elastic job may shrink for it at {when:%Y-%m-%d %H:%M:%S} UTC, so soon after its last change of size"
        return dict.fromkeys(sorted(later.served.keys() - told.served.keys()), why)

    def _steps(self, told: Sizes) -> Iterator[Resize]:
        """Followers grow before what they follow, and shrink after it."""
        roles = {role.job.key: role for role in self.roles}
        found = []
        for name, tasks in told.tasks.items():
            job = roles[name].job
            leader = f"{job.namespace}/{job.follows}" if job.follows else name
            because = told.because.get(name)
            if because is not None and len(tasks) != job.size:
                is_first = bool(job.follows) == (len(tasks) > job.size)
                step = Resize(job.namespace, job.name, was=job.size, to=len(tasks), because=because)
                found.append((leader, not is_first, name, step))
        return (step for *_, step in sorted(found, key=lambda one: one[:3]))

    def _homes(self, look: Look, told: Sizes, growth: Collection[str]) -> dict[str, Place]:
        """Returns by key the place of each pod that has room without a purchase."""
        nodes = {
            pod.key: node
            for claim in look.claims
            for pod, node in zip(claim.pods, told.served.get(claim.name, ()), strict=False)
        }
        for role in self.roles:
            tasks = told.tasks.get(role.job.key, ())
            waiting = {index: pod for index, pod in role.pods.items() if pod.key in growth and waits(pod)}
            nodes |= {pod.key: tasks[index] for index, pod in waiting.items() if index < len(tasks)}
        found = ((key, self.market.snapshot.place(node)) for key, node in nodes.items())
        return {key: place for key, place in found if place is not None and place.standing}

    def _not_yet(self, look: Look, homes: Mapping[str, Place], growth: Collection[str]) -> dict[str, str]:
        """Tasks above a minimum whose room is held by what ends, or is kept for those that are served before them."""
        snapshot, start = self.market.snapshot, self.market.snapshot.mark()
        first = [pod for claim in look.claims for pod in claim.pods]
        found = {}
        for pod in [*first, *(pod for role in self.roles for pod in role.growth if pod.key in growth)]:
            place = homes.get(pod.key)
            if place is None:
                continue
            shape = snapshot.shape(pod)
            if snapshot.why_not(shape, place) is None:
                snapshot.put(shape, place, pod.key)
            elif pod.key in growth:
                found[pod.key] = f"its place on {place.name} is free once what ends there has ended"
        snapshot.undo(start)
        return found

    def _left_out(self, told: Sizes, growth: Collection[str]) -> dict[str, str]:
        """Tasks for which there is no room any more, and those that are about to be deleted."""
        found = {}
        for role in self.roles:
            for pod in role.ending:
                if waits(pod):
                    found[pod.key] = f"its job {role.job.key} has fewer tasks by now"
            tasks = told.tasks.get(role.job.key)
            for index, pod in role.pods.items():
                if tasks is not None and pod.key in growth and waits(pod) and not "".join(tasks[index : index + 1]):
                    found[pod.key] = f"there is no room for so large a job {role.job.key} any more"
        return found


def _has_its_least(role: Role) -> bool:
    """Says whether the job's minimum of tasks runs."""
    return all(index in role.pods and not waits(role.pods[index]) for index in range(role.job.minimum))


def _role(job: ElasticRole, pods: Iterable[Pod]) -> Role | None:
    tasks: dict[int, Pod] = {}
    ending = []
    for pod in sorted(pods, key=lambda one: one.key):
        index = pod.labels.get(COMPLETION_INDEX, "")
        if pod.deleting or not index.isdecimal() or int(index) >= job.size:
            ending.append(pod)
        else:
            tasks[int(index)] = pod
    return Role(job, tasks, tuple(ending), _task(tasks[min(tasks)])) if tasks else None


def _task(pod: Pod) -> Pod:
    """What a pod was before it was given a node."""
    host = pod.admitted_to
    terms = tuple(
        tuple(one for one in term if not (host and one.key == HOSTNAME and one.values == (host,)))
        for term in pod.affinity
    )
    return replace(
        pod,
        node=None,
        phase="Pending",
        admitted_to="",
        affinity=terms if any(terms) else (),
        tolerations=tuple(one for one in pod.tolerations if one.key != RESERVED),
    )


def in_turn(gangs: Iterable[Gang], resizing: Resizing) -> list[Gang]:
    """The gangs in the order in which they are served, without pods for which no place is sought."""
    if not (resizing.left_out or resizing.growing):
        return list(gangs)
    kept = []
    for gang in gangs:
        waiting = tuple(pod for pod in gang.waiting if pod.key not in resizing.left_out)
        if waiting:
            kept.append(gang if len(waiting) == len(gang.waiting) else replace(gang, waiting=waiting))
    return sorted(kept, key=lambda gang: gang.name in resizing.growing)
