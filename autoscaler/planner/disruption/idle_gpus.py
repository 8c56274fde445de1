"""Pods that hold GPUs and do not use them: their owners are told, and where the policy says so the GPUs are freed.

What is measured is a moment; idle is what was below the threshold at every look since. How long that has been is
remembered across restarts. What is not measured for a while (no exporter, MIG) counts as used.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from autoscaler.config.policy import IdleGpus as Rules
from autoscaler.config.policy import Policy
from autoscaler.model.actions import FreeGpus, Memory, Step, Unused
from autoscaler.model.cluster import Cluster, Pod
from autoscaler.model.enumeration import counted
from autoscaler.model.labels import GPU
from autoscaler.model.pod_index import GangKey, gang_key
from autoscaler.planner.supply.fleet import Fleet

_NOTED: Final = timedelta(minutes=5)
"""When it was seen idle last is written down so often."""
_FORGOTTEN: Final = timedelta(minutes=15)
"""What was not measured for so long is not known to have been idle meanwhile."""


@dataclass(frozen=True, slots=True)
class IdleGpus:
    """Which owners are told of idle GPUs, and what is freed."""

    steps: tuple[Step, ...] = ()
    told: Mapping[str, str] = field(default_factory=dict)
    """As ``Plan.idle_gpus``."""
    since: Mapping[str, Unused] = field(default_factory=dict)
    """As ``Memory.unused``."""
    wake_at: datetime | None = None


def idle_gpus(cluster: Cluster, policy: Policy, fleet: Fleet, memory: Memory) -> IdleGpus:
    """Tell owners after ``told_after``; free ``freed_after`` after they were told what may be freed.

    Never evicted are pods that are marked do-not-disrupt, and those of a gang unless ``gangs`` says so, none of it is
    marked and all of it is idle; nor is any where terminating is paused. What has no GPUs goes with its gang.
    """
    rules, now = policy.idle_gpus, cluster.seen_at
    if not rules.enabled:
        return IdleGpus()
    known = {one.pod for one in cluster.gpu_use}
    looked_at = {one.node for one in cluster.gpu_use}
    held = {pod.key: pod for node in looked_at for pod in fleet.residents.get(node, ()) if _holds_gpus(pod)}
    since = dict(_idle(held, cluster, memory, rules))
    silent = {key: one for key, one in memory.unused.items() if key not in known and now < one.seen + _FORGOTTEN}
    gangs = {gang_key(gang) for key in since if rules.gangs and (gang := held[key].gang) is not None}
    by_gang = _by_gang(fleet, gangs)
    told, due, ends = {}, [], dict[str, datetime]()
    for key, one in sorted(since.items()):
        tell = one.since + rules.told_after
        if now < tell:
            due.append(tell)
            continue
        first = one.told or now
        since[key] = one._replace(told=first)
        pod = held[key]
        why_kept = _why_kept(pod, rules, by_gang)
        if rules.freed_after is not None and not why_kept:
            ends[key] = max(tell, first) + rules.freed_after
        told[key] = _told(pod, one, rules, ends.get(key), why_kept)
    freed = dict[tuple[str, ...], str]()
    for key, end in ends.items():
        together = _together(held[key], by_gang)
        if now < end:
            due.append(end)
        elif all(_may_go(pod, ends, cluster, fleet) for pod in together):
            because = f"no GPU of {_those(together)} was used since {_at(since[key].since)}, as was told"
            freed.setdefault(tuple(pod.key for pod in together), because)
    return IdleGpus(
        steps=tuple(FreeGpus(pods, because) for pods, because in freed.items()),
        told=told,
        since=dict(sorted((silent | since).items())),
        wake_at=min(due, default=None),
    )


def _idle(held: Mapping[str, Pod], cluster: Cluster, memory: Memory, rules: Rules) -> Iterator[tuple[str, Unused]]:
    measured, now = {(one.pod, one.node): one.busiest for one in cluster.gpu_use}, cluster.seen_at
    for key, pod in held.items():
        if measured.get((key, pod.node or ""), 1.0) >= rules.below or pod.started is None:
            continue
        before = memory.unused.get(key)
        if before is None or now >= before.seen + _FORGOTTEN or before.since < pod.started:
            yield key, Unused(now, now)
        else:
            yield key, before if now < before.seen + _NOTED else before._replace(seen=now)


def _holds_gpus(pod: Pod) -> bool:
    return pod.phase == "Running" and not pod.deleting and pod.requests[GPU] > 0


def _by_gang(fleet: Fleet, gangs: Collection[GangKey]) -> dict[GangKey, list[Pod]]:
    """The pods of each of the gangs that have a node."""
    found: dict[GangKey, list[Pod]] = defaultdict(list)
    for pods in fleet.residents.values() if gangs else ():
        for pod in pods:
            if pod.gang is not None and gang_key(pod.gang) in gangs:
                found[gang_key(pod.gang)].append(pod)
    return {name: sorted(pods, key=lambda pod: pod.key) for name, pods in found.items()}


def _together(pod: Pod, by_gang: Mapping[GangKey, list[Pod]]) -> list[Pod]:
    return [pod] if pod.gang is None else by_gang[gang_key(pod.gang)]


def _may_go(pod: Pod, ends: Mapping[str, datetime], cluster: Cluster, fleet: Fleet) -> bool:
    """Whether its time is over, where it has GPUs, and its node is of no group in which terminating is paused."""
    if any(one.stops_terminating(_entry(pod, fleet)) for one in cluster.pauses):
        return False
    return not pod.requests[GPU] or (pod.key in ends and ends[pod.key] <= cluster.seen_at)


def _entry(pod: Pod, fleet: Fleet) -> str:
    group = fleet.group_of.get(pod.node or "")
    return group.entry if group is not None else ""


def _why_kept(pod: Pod, rules: Rules, by_gang: Mapping[GangKey, list[Pod]]) -> str:
    if pod.do_not_disrupt:
        return "it is marked do-not-disrupt"
    if pod.gang is not None and not rules.gangs:
        return "it is of a gang"
    marked = [one.key for one in _together(pod, by_gang) if one.do_not_disrupt]
    return f"{marked[0]} of its gang is marked do-not-disrupt" if marked else ""


def _told(pod: Pod, one: Unused, rules: Rules, ends: datetime | None, why_kept: str) -> str:
    gpus = pod.requests[GPU]
    held = f"{counted(gpus, 'GPU')} held and used less than {rules.below:.0%} since {_at(one.since)}"
    if ends is not None and pod.gang is not None:
        return f"{held}: its gang is evicted from {_at(ends)} on, unless a pod of it uses its GPUs"
    if ends is not None:
        return f"{held}: it is evicted at {_at(ends)} unless it uses them"
    return f"{held}: it stays, for {why_kept or 'the policy frees none (idle_gpus.freed_after)'}"


def _those(pods: list[Pod]) -> str:
    return pods[0].key if len(pods) == 1 else f"the {len(pods)} pods of the gang"


def _at(when: datetime) -> str:
    return f"{when:%Y-%m-%d %H:%M:%S} UTC"
