"""Changes that the planner says would help, carried out on plain values; and whether they do: the planner is asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from autoscaler.config.policy import Policy, asg_name
from autoscaler.config.schedules import Limits
from autoscaler.model import labels as words
from autoscaler.model.actions import Grow, Memory, Plan, Waiting
from autoscaler.model.cluster import Cluster, GangRef, Group, Pod
from autoscaler.model.constraints import Requirement, Taint, Toleration
from autoscaler.model.needed_changes import (
    CAPACITY,
    POD_RUNS,
    PULUMI_UP,
    QUOTA_RAISED,
    READY,
    TIME_COMES,
    WORK_ENDS,
    NeededChange,
)
from autoscaler.model.resources import Resources
from autoscaler.planner.plan import plan
from tests.builders import a_group, a_pod, an_entry
from tests.waiting_cases import OLD, Case, unplaced

_ADDED = Taint("example.com/added")
_ROOM = {"cpu": 400, "memory": "2Ti", "pods": 110, "ephemeral-storage": "1Ti"}


@dataclass(frozen=True, slots=True)
class Judged:
    """One answer, put to the test."""

    case: Case
    gang: str
    """Or the pod that stands alone."""
    waiting: Waiting
    is_right: bool
    """What it names lets all of the gang in."""
    is_spare: bool
    """It names a change that is not needed, or more than is needed."""


def judge(case: Case, *, is_thorough: bool = True) -> list[Judged]:
    """Every answer of a case: each carried out alone. ``is_thorough``: tries, too, whether less would do."""
    decided, look = _begun(case)
    found = []
    for name, pods, one in _answers(decided, look):
        right = bool(one.changes) and helps(one.changes, look, pods)
        spare = is_thorough and right and any(helps(fewer, look, pods) for fewer in _fewer(one.changes))
        found.append(Judged(case, name, one, right, spare))
    return found


def all_helped(case: Case) -> bool:
    """Whether every pod has a place, or is bought for, when all that is named for any of them is carried out."""
    after, lacking = carried_out_all(case)
    return not lacking & unplaced(after.plan(), after.cluster)


def carried_out_all(case: Case) -> tuple[Look, set[str]]:
    """The look after all that is named for any pod; and keys of those that were to be helped, as they are then."""
    decided, look = _begun(case)
    after, lacking = look, set[str]()
    for _, pods, one in _answers(decided, look):
        after, lacking = carry_out(one.changes, after, pods), lacking | pods
    return after, _of(lacking, after.cluster)


@dataclass(frozen=True, slots=True)
class Look:
    """What the planner is asked with."""

    cluster: Cluster
    policy: Policy
    memory: Memory

    def plan(self) -> Plan:
        """Its answer."""
        return plan(self.cluster, self.policy, self.memory)


def _begun(case: Case) -> tuple[Plan, Look]:
    """The first plan; and the next look, when what it orders has been ordered."""
    decided = plan(case.cluster, case.policy, Memory())
    ordered = {step.group: step for step in decided.steps if isinstance(step, Grow)}
    vcpus: Counter[str] = Counter()
    for group in case.cluster.groups:
        vcpus[group.quota] += group.vcpus * (ordered[group.name].by if group.name in ordered else 0)
    groups = tuple(
        replace(
            group,
            desired=ordered[group.name].to if group.name in ordered else group.desired,
            quota_left=None if group.quota_left is None else group.quota_left - vcpus[group.quota],
        )
        for group in case.cluster.groups
    )
    memory = replace(decided.memory, orders={})
    return decided, Look(replace(case.cluster, groups=groups), case.policy, memory)


def _answers(decided: Plan, look: Look) -> Iterable[tuple[str, set[str], Waiting]]:
    """Of each gang that has no place: its name, the keys of its pods, and what is said of it."""
    said = {one.pod: one for one in decided.waiting}
    lacking = unplaced(decided, look.cluster)
    for name, pods in sorted(_gangs(pod for pod in look.cluster.pods if pod.key in lacking).items()):
        keys = {pod.key for pod in pods}
        yield name, keys, said.get(min(keys), Waiting(min(keys), "nothing is said"))


def helps(changes: Iterable[NeededChange], look: Look, pods: Collection[str]) -> bool:
    """Whether these pods have a place, or are bought for, once the changes are made."""
    after = carry_out(changes, look, pods)
    return not _of(pods, after.cluster) & unplaced(after.plan(), after.cluster)


def _of(pods: Collection[str], cluster: Cluster) -> set[str]:
    """Keys of these pods, or of those that they were split into."""
    stems = tuple(f"{key}#" for key in pods)
    return {pod.key for pod in cluster.pods if pod.key in pods or pod.key.startswith(stems)}


def carry_out(changes: Iterable[NeededChange], look: Look, pods: Collection[str]) -> Look:
    """The look after it. ``pods``: keys of those that the changes of a pod are made to."""
    changes, cluster, policy = tuple(changes), look.cluster, look.policy
    # `pulumi up` builds what the policy says by then; what else changes of a pod changes of its parts; a partner runs
    # on a node that is open by then.
    for one in sorted(changes, key=lambda one: (one.run == PULUMI_UP, one.other == POD_RUNS, one.pod == "split")):
        if one.path:
            policy, cluster = _edited(one, policy, cluster, pods)
        elif one.pod:
            changed = {pod.key: list(_changed(one, pod)) for pod in cluster.pods if pod.key in pods}
            cluster = replace(cluster, pods=tuple(new for pod in cluster.pods for new in changed.get(pod.key, [pod])))
        elif one.run:
            cluster = _run(one, cluster, policy)
        else:
            cluster = _happens(one, cluster)
    again = {
        group.name for one in changes if one.other == CAPACITY for group in cluster.groups if group.entry in one.groups
    }
    backoffs = {name: one for name, one in look.memory.backoffs.items() if name not in again}
    return Look(cluster, policy, replace(look.memory, backoffs=backoffs))


def _fewer(changes: tuple[NeededChange, ...]) -> Iterable[tuple[NeededChange, ...]]:
    """All but one of them; and all, with a little less of one."""
    for number, one in enumerate(changes):
        rest = changes[:number] + changes[number + 1 :]
        yield rest
        if one.path.startswith(("limits.", "groups[")) and isinstance(one.to, int | float):
            less = round(one.to - 0.01, 2) if isinstance(one.to, float) else one.to - 1
            if less > 0:
                yield (*rest, replace(one, to=less))


def _gangs(pods: Iterable[Pod]) -> dict[str, list[Pod]]:
    found: dict[str, list[Pod]] = {}
    for pod in pods:
        name = f"{pod.namespace}/gang {pod.gang.name}" if pod.gang is not None else pod.key
        found.setdefault(name, []).append(pod)
    return found


def _edited(one: NeededChange, policy: Policy, cluster: Cluster, pods: Collection[str]) -> tuple[Policy, Cluster]:
    if one.path == "groups":
        return _with_group(one, policy, cluster, pods)
    section, _, key = one.path.rpartition(".")
    if section == "limits":
        said = policy.limits.model_dump()
        now = said[key] if said[key] is None else max(said[key], one.to)
        return policy.model_copy(update={"limits": Limits.model_validate(said | {key: now})}), cluster
    name = section.removeprefix("groups[").removesuffix("]")
    entries = tuple(
        entry.model_copy(update={key: max(entry.max, int(one.to or 0))}) if entry.name == name else entry
        for entry in policy.groups
    )
    return policy.model_copy(update={"groups": entries}), cluster


def _with_group(one: NeededChange, policy: Policy, cluster: Cluster, pods: Collection[str]) -> tuple[Policy, Cluster]:
    """An entry of so large nodes, and its Auto Scaling group: for these pods alone."""
    name = f"added-{len(policy.groups)}"
    labels = dict(one.labels)
    zone = labels.pop(words.ZONE, "us-east-1a")
    entry = an_entry(name, zones=("us-east-1a",), max=10, usd_per_hour=1e-8)
    room = dict(Resources.parse(_ROOM).items()) | dict(one.resources)
    group = a_group(name, zone, allocatable=Resources(room), usd_per_hour=1e-8, labels=labels, taints=(_ADDED,))
    theirs = Toleration(_ADDED.key, "Exists")
    everyone = tuple(
        replace(pod, tolerations=(*pod.tolerations, theirs)) if pod.key in pods else pod for pod in cluster.pods
    )
    added = policy.model_copy(update={"groups": (*policy.groups, entry)})
    return added, replace(cluster, pods=everyone, groups=(*cluster.groups, group))


def _changed(one: NeededChange, pod: Pod) -> Iterable[Pod]:
    match one.pod:
        case "tolerations" if one.toleration is not None:
            yield replace(pod, tolerations=(*pod.tolerations, one.toleration))
        case "nodeAffinity" if one.requirement is not None:
            kept = tuple(tuple(new for asked in term for new in _asked(asked, one)) for term in pod.affinity)
            yield replace(pod, affinity=() if any(not term for term in kept) else kept)
        case "podAffinity":
            yield replace(pod, near_to=tuple(term for term in pod.near_to if term != one.term))
        case "podAntiAffinity":
            yield replace(pod, apart_from=tuple(term for term in pod.apart_from if term != one.term))
        case "topologySpread":
            yield replace(pod, spread=tuple(rule for rule in pod.spread if rule.topology_key != one.to))
        case "topology":
            yield replace(pod, gang=replace(pod.gang, topology=None) if pod.gang else None)
        case "split":
            yield from _split(pod, int(one.to or 1), one.pods)
        case "schedulerName":
            yield replace(pod, scheduler="")
        case _:
            raise AssertionError(f"no such part of a pod: {one}")


def _asked(asked: Requirement, one: NeededChange) -> Iterable[Requirement]:
    if asked != one.requirement:
        yield asked
    elif one.to is not None:
        yield replace(asked, values=(str(one.to),))


def _split(pod: Pod, parts: int, only: Collection[str]) -> Iterable[Pod]:
    """Each takes a part of everything, rounded up; a gang is larger by the others."""
    ref = pod.gang
    if only and pod.key not in only:
        more = len(only) * (parts - 1)
        yield replace(pod, gang=_larger(ref, more)) if ref else pod
        return
    more = max(1, len(only)) * (parts - 1)
    amounts = Resources(
        {name: amount if name == "pods" else -(-amount // parts) for name, amount in pod.requests.items()}
    )
    for number in range(parts):
        yield replace(
            pod, name=f"{pod.name}#{number}", uid=f"{pod.uid}#{number}", requests=amounts, gang=_larger(ref, more)
        )


def _larger(ref: GangRef | None, more: int) -> GangRef | None:
    return replace(ref, size=ref.size + more) if ref is not None and ref.size is not None else ref


def _run(one: NeededChange, cluster: Cluster, policy: Policy) -> Cluster:
    if one.run == PULUMI_UP:
        return replace(cluster, groups=tuple(_built(cluster, policy)))
    if one.run.startswith("kubectl uncordon"):
        opened = one.run.split()[2:]
        nodes = tuple(replace(node, cordoned=False) if node.name in opened else node for node in cluster.nodes)
        return replace(cluster, nodes=nodes)
    if one.run.startswith("spillway autoscale resume"):
        return replace(cluster, pauses=())
    raise AssertionError(f"no such command: {one}")


def _built(cluster: Cluster, policy: Policy) -> Iterable[Group]:
    """Every entry has a group in each of its zones, of the size that the policy says."""
    there = {group.name: group for group in cluster.groups}
    for entry in policy.groups:
        for zone in entry.zones:
            name = asg_name(policy.cluster, entry.name, zone)
            group = there.pop(name, None)
            if group is None:
                taints = tuple(taint.as_taint() for taint in entry.taints)
                group = a_group(entry.name, zone, usd_per_hour=entry.usd_per_hour, taints=taints, labels=entry.labels)
            yield replace(group, maximum=entry.max, max_size=entry.max)
    yield from there.values()


def _happens(one: NeededChange, cluster: Cluster) -> Cluster:
    match one.other:
        case str(what) if what == WORK_ENDS:
            return replace(cluster, pods=tuple(pod for pod in cluster.pods if pod.key not in one.pods))
        case str(what) if what == READY:
            nodes = tuple(
                replace(node, ready=True, unready_since=None) if node.name in one.nodes else node
                for node in cluster.nodes
            )
            return replace(cluster, nodes=nodes)
        case str(what) if what == POD_RUNS:
            return replace(cluster, pods=(*cluster.pods, *_partners(one, cluster)))
        case str(what) if what == QUOTA_RAISED:
            groups = tuple(
                replace(group, quota_left=(group.quota_left or 0) + int(one.to or 0))
                if group.quota in one.groups and group.quota_left is not None
                else group
                for group in cluster.groups
            )
            return replace(cluster, groups=groups)
        case str(what) if what == CAPACITY:
            groups = tuple(
                replace(group, refusals=()) if group.entry in one.groups else group for group in cluster.groups
            )
            return replace(cluster, groups=groups)
        case str(what) if what == TIME_COMES:
            return cluster
    raise AssertionError(f"no such event: {one}")


def _partners(one: NeededChange, cluster: Cluster) -> Iterable[Pod]:
    """A pod such as it says, that takes nothing, on a node such as it says, if one is open."""
    assert one.term is not None
    there = [
        node.name
        for node in cluster.nodes
        if node.ready
        and not node.cordoned
        and all((node.labels | {words.HOSTNAME: node.name}).get(key) == value for key, value in one.labels)
    ]
    labels = {asked.key: asked.values[0] if asked.values else "x" for asked in one.term.selector}
    given = {"requests": Resources({"pods": 0}), "labels": labels, "phase": "Running", "created": OLD}
    many = sum(pod.name.startswith("partner-") for pod in cluster.pods)
    for node in there[:1]:
        yield a_pod(f"partner-{many}", namespace=min(one.term.namespaces), node=node, **given)
