"""A stand-in for all that is around the planner: EC2 that refuses, machines that boot or never join, a scheduler, jobs.

It checks every step for itself, with none of the planner's code, and raises ``AssertionError`` in words.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TypeVar

from autoscaler import labels as words
from autoscaler.cluster import Cluster, Group, Instance, Node, Pod, Refusal
from autoscaler.constraints import Requirement, Taint, Toleration
from autoscaler.policy import Policy
from autoscaler.steps import (
    Admit,
    Cancel,
    Cordon,
    EndJob,
    Grow,
    Nominate,
    Plan,
    Recreate,
    Remove,
    Reserve,
    Step,
    Uncordon,
    Unreserve,
)
from tests.builders import NOW, nodes_of

T = TypeVar("T")


@dataclass
class World:
    """A cluster that changes; :meth:`look` is what the planner gets to see."""

    policy: Policy
    pods: dict[str, Pod]
    nodes: dict[str, Node]
    groups: dict[str, Group]
    chance: random.Random
    refuses: float = 0.0
    never_joins: float = 0.0
    reserves: bool = False
    """New nodes come reserved."""
    now: datetime = NOW
    launched: int = 0
    bought: int = 0
    dead: set[str] = field(default_factory=set)
    """Instances that will never join."""
    tally: Counter[str] = field(default_factory=Counter)
    """How often something was checked, or went wrong on purpose."""

    def look(self) -> Cluster:
        """One frozen look, in an order that means nothing."""
        return Cluster(
            seen_at=self.now,
            pods=self._shuffled(self.pods.values()),
            nodes=self._shuffled(self.nodes.values()),
            groups=self._shuffled(self.groups.values()),
        )

    def carry_out(self, plan: Plan, *, steps: int | None = None) -> None:
        """Take every step, or the first few, checking that each may be taken."""
        self._check_words(plan)
        for step in plan.steps[:steps]:
            self._take(step)
        self._check()

    def pass_time(self, span: timedelta) -> None:
        """Instances start or are refused, nodes join, the scheduler binds what it may."""
        self.now += span
        for name in sorted(self.groups):
            self._launch(name)
        for group in list(self.groups.values()):
            for node in nodes_of(group, created=self.now):
                if node.instance_id not in self.dead and node.name not in self.nodes and self.chance.random() < 0.7:
                    taints = (*node.taints, Taint(words.RESERVED)) if self.reserves else node.taints
                    self.nodes[node.name] = replace(node, taints=taints)
        self._schedule()
        self._check()

    def finish(self, gangs: float) -> None:
        """This share of the jobs that run ends, each as a whole."""
        running = defaultdict(list)
        for pod in self.pods.values():
            running[_job(pod)].append(pod)
        for job in sorted(running):
            if all(pod.node for pod in running[job]) and self.chance.random() < gangs:
                for pod in running[job]:
                    del self.pods[pod.key]

    def reserved_too_long(self) -> list[str]:
        """Nodes that are still kept for somebody when a new machine would be given up."""
        return [
            node.name
            for node in self.nodes.values()
            if self.now >= node.created + self.policy.scale_up.boot_timeout and not node.cordoned
            if any(taint.key == words.RESERVED for taint in node.taints)
        ]

    @property
    def usd_per_hour(self) -> float:
        """The bill."""
        return sum(group.usd_per_hour * group.desired for group in self.groups.values())

    def _take(self, step: Step) -> None:  # noqa: C901 - one case for each kind of step
        match step:
            case Admit():
                self._admit(step)
            case Grow():
                group = self.groups[step.group]
                assert step.was == group.desired, f"{step} on {group.desired}"
                assert step.by > 0
                assert not self._was_refused(group), f"{step} right after a refusal"
                self.bought += step.by
                self.groups[step.group] = replace(group, desired=step.to)
            case Cancel():
                group = self.groups[step.group]
                assert step.was == group.desired
                assert len(group.instances) <= step.to < group.desired, f"{step} would end an instance"
                self.groups[step.group] = replace(group, desired=step.to)
            case Cordon():
                node = self.nodes[step.node]
                assert node.instance_id, f"{step} on a node that is not EC2's"
                mark = replace(node, cordoned=True, cordoned_by=words.AUTOSCALER, cordoned_at=self.now)
                assert not self._residents(step.node), f"{step} on a busy node"
                self.nodes[step.node] = mark
            case Uncordon():
                node = self.nodes[step.node]
                assert node.cordoned_by == words.AUTOSCALER, f"{step} lifts another's cordon"
                self.nodes[step.node] = replace(node, cordoned=False, cordoned_by="", cordoned_at=None)
            case Remove():
                self._remove(step)
            case Nominate(placements=placements):
                for key, name in placements:
                    assert not name or name in self.nodes, f"{key} is nominated for {name}, which is not there"
                    self.pods[key] = replace(self.pods[key], nominated=name)
            case Reserve(placements=placements):
                for key, name in placements:
                    self._reserve(key, name)
            case Unreserve():
                self._unreserve(step)
            case EndJob() | Recreate():
                raise AssertionError(step)

    def _unreserve(self, step: Unreserve) -> None:
        for name in step.nodes:
            node = self.nodes[name]
            left = tuple(taint for taint in node.taints if taint.key != words.RESERVED)
            assert len(left) < len(node.taints), f"{step} of a node that is not reserved"
            self.nodes[name] = replace(node, taints=left)

    def _reserve(self, key: str, name: str) -> None:
        pod, node = self.pods[key], self.nodes[name]
        assert node.ready, f"{name} is not ready"
        assert pod.node is None, f"{key} runs already"
        assert any(taint.key == words.RESERVED for taint in node.taints), f"{name} is not reserved"
        whose = node.instance_id or ""
        others = tuple(taint for taint in node.taints if taint.key != words.RESERVED)
        self.nodes[name] = replace(node, taints=(*others, Taint(words.RESERVED, whose)))
        own = Toleration(key=words.RESERVED, value=whose)
        assert own not in pod.tolerations or Taint(words.RESERVED) in node.taints, f"{key} was let onto {name} before"
        self.pods[key] = replace(pod, tolerations=(*pod.tolerations, own))

    def _admit(self, step: Admit) -> None:
        for key, name in step.placements:
            pod, node = self.pods[key], self.nodes[name]
            assert words.GATE in pod.gates, f"{key} has no gate to lift"
            assert node.ready, f"{name} is not ready"
            assert not node.cordoned, f"{name} is cordoned"
            pin = (Requirement(words.HOSTNAME, "In", (name,)),)
            self.pods[key] = replace(pod, gates=(), affinity=tuple((*term, *pin) for term in pod.affinity or ((),)))
            self._bind(key, name)

    def _remove(self, step: Remove) -> None:
        group = self.groups[step.group]
        assert step.instance in {one.id for one in group.instances}, f"{step}: no such instance"
        if step.node is not None:
            node = self.nodes.pop(step.node)
            assert node.instance_id == step.instance
            assert not self._residents(step.node), f"{step} ends a running job"
            assert node.cordoned_by == words.AUTOSCALER
            assert node.cordoned_at is not None
            assert node.cordoned_at + self.policy.scale_down.idle_after <= self.now, f"{step} is too early"
        kept = tuple(one for one in group.instances if one.id != step.instance)
        self.groups[step.group] = replace(group, instances=kept, desired=group.desired - 1)
        assert group.desired - 1 >= group.minimum, f"{step} goes below the minimum"

    def _launch(self, name: str) -> None:
        group = self.groups[name]
        while len(group.instances) < group.desired:
            if self.chance.random() < self.refuses:
                self.tally["launches refused"] += 1
                group = replace(group, refusals=(Refusal(self.now, "InsufficientInstanceCapacity"), *group.refusals))
                break
            self.launched += 1
            instance = Instance(id=f"i-{self.launched:05}", zone=group.zone, launched=self.now)
            if self.chance.random() < self.never_joins:
                self.dead.add(instance.id)
                self.tally["machines that never joined"] += 1
            group = replace(group, instances=(*group.instances, instance))
        self.groups[name] = group

    def _schedule(self) -> None:
        """Pods without a gate go to the emptiest node that takes them, as the real scheduler's default has it."""
        for key in sorted(self.pods):
            pod = self.pods[key]
            if pod.node is None and not pod.gates:
                fitting = [name for name in sorted(self.nodes) if self._takes(self.nodes[name], pod)]
                if fitting:
                    self._bind(key, max(fitting, key=lambda name: self._free(name)["cpu"]))
                else:
                    self.pods[key] = replace(pod, unschedulable_because="no node takes it")

    def _takes(self, node: Node, pod: Pod) -> bool:
        if node.cordoned or not node.ready or not _allowed(pod, node):
            return False
        free = self._free(node.name)
        return all(free[name] >= amount for name, amount in pod.requests.items())

    def _bind(self, key: str, name: str) -> None:
        assert _allowed(self.pods[key], self.nodes[name]), f"{key} may not run on {name}"
        self.pods[key] = replace(self.pods[key], node=name, phase="Running")
        assert all(amount >= 0 for amount in self._free(name).values()), f"{name} is over-committed by {key}"

    def _free(self, name: str) -> Counter[str]:
        free = Counter(dict(self.nodes[name].allocatable))
        for pod in self._residents(name):
            free.subtract(dict(pod.requests))
        return free

    def _residents(self, name: str) -> list[Pod]:
        return [pod for pod in self.pods.values() if pod.node == name]

    def _was_refused(self, group: Group) -> bool:
        pause = self.policy.scale_up.refusal_backoff
        return any(self.now < refusal.at + pause for refusal in group.refusals)

    def _check_words(self, plan: Plan) -> None:
        """Every pod without a place has exactly one word, and it says something."""
        told = Counter(one.pod for one in plan.waiting)
        placed = {key for step in plan.steps if isinstance(step, Admit) for key, _ in step.placements}
        for key, pod in self.pods.items():
            if pod.node is None and pod.gates:
                assert told[key] == (key not in placed), f"{key} is told of {told[key]} times"
            assert told[key] <= 1, f"{key} is told of {told[key]} times"
        assert all(one.because for one in plan.waiting)
        assert told.keys() <= self.pods.keys()

    def _check(self) -> None:
        limits = self.policy.limits
        self.tally["looks at limits and budgets"] += 1
        desired: Counter[str] = Counter()
        for group in self.groups.values():
            desired[group.entry] += group.desired
            assert group.desired <= group.maximum, f"{group.name} is above its maximum"
        for entry in self.policy.groups:
            assert desired[entry.name] <= entry.max, f"{entry.name}: {desired[entry.name]} nodes, {entry.max} allowed"
        assert limits.usd_per_hour is None or self.usd_per_hour <= limits.usd_per_hour + 1e-6, "too many dollars"
        assert limits.nodes is None or desired.total() <= limits.nodes, "too many nodes"
        gpus = sum(group.desired * group.allocatable[words.GPU] for group in self.groups.values())
        assert limits.gpus is None or gpus <= limits.gpus, "too many GPUs"
        self._check_gangs()

    def _check_gangs(self) -> None:
        jobs: dict[str, list[Pod]] = defaultdict(list)
        for pod in self.pods.values():
            if pod.gang:
                jobs[_job(pod)].append(pod)
        for job, pods in jobs.items():
            bound = sum(1 for pod in pods if pod.node)
            gang = pods[0].gang
            enough = (gang.minimum or gang.size or len(pods)) if gang else 1
            gated = any(words.GATE in pod.gates for pod in pods)
            self.tally["looks at gangs"] += 1
            assert not gated or bound == 0 or bound >= enough, f"{bound} of {job}'s {len(pods)} pods hold a place"

    def _shuffled(self, many: Iterable[T]) -> tuple[T, ...]:
        ordered = list(many)
        self.chance.shuffle(ordered)
        return tuple(ordered)


def _job(pod: Pod) -> str:
    return f"{pod.gang.namespace}/{pod.gang.name}" if pod.gang else pod.key


def _allowed(pod: Pod, node: Node) -> bool:
    """Selectors with ``In`` and taints: all that the world's pods use."""
    selected = not pod.affinity or any(
        all(node.labels.get(one.key) in one.values for one in term) for term in pod.affinity
    )
    keys = {one.key for one in pod.tolerations if one.operator == "Exists"}
    values = {(one.key, one.value) for one in pod.tolerations if one.operator == "Equal"}
    return selected and all(taint.key in keys or (taint.key, taint.value) in values for taint in node.taints)
