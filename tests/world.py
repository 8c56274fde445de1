"""A stand-in for all that is around the autoscaler: EC2 that refuses, machines that never join, a scheduler, jobs.

Plans are carried out as in the loop, by the real executor through both real doors, against :mod:`tests.cloud` and
:mod:`tests.api`. The world checks every step for itself, with none of the planner's code, and the limits at every
moment at which something changes; it raises ``AssertionError`` in words.
"""

from __future__ import annotations

import math
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent import futures
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar, cast

from autoscaler.acting_policy import OnePolicy
from autoscaler.cloud.autoscaling_groups import Ec2
from autoscaler.config.policy import Policy
from autoscaler.executor import Executor
from autoscaler.kube.cache import Store
from autoscaler.kube.client import Refused
from autoscaler.kube.watched_kinds import NODES, PODS
from autoscaler.kube.writes import Writes
from autoscaler.loop import Loop
from autoscaler.model import labels as words
from autoscaler.model.actions import (
    Admit,
    BeginStep,
    Cancel,
    Cordon,
    EndJob,
    Evict,
    FreeGpus,
    Grow,
    Nominate,
    Order,
    Plan,
    Recreate,
    Release,
    Remove,
    Reserve,
    Resize,
    SetCondition,
    Step,
    StopStep,
    Uncordon,
    Unreserve,
)
from autoscaler.model.cluster import CapacityBlock, Cluster, Group, Node, NodeCondition, Notice, Pod
from autoscaler.model.constraints import Taint, Toleration
from autoscaler.model.pauses import ALL, BUYING, Pause, budget_of
from tests.api import Api
from tests.builders import NOW, nodes_of
from tests.cloud import Cloud, Scaling
from tests.gpu_use_world import Uses
from tests.provisioning_world import Requests

if TYPE_CHECKING:
    from autoscaler.kube.client import Kube
    from autoscaler.reporting.report import Report

NAMESPACE = "team"
"""Of all pods of a world."""
_WARNED = timedelta(minutes=10)
"""Before EC2 begins to end what is in a Capacity Block."""
K = TypeVar("K")
T = TypeVar("T")


class Killed(BaseException):
    """The process has ended at this very point."""


@dataclass
class World:
    """A cluster that changes; :meth:`look` is what the planner gets to see."""

    policy: Policy
    pods: dict[str, Pod]
    nodes: dict[str, Node]
    offered: Iterable[Group]
    chance: random.Random
    refuses: float = 0.0
    never_joins: float = 0.0
    late: tuple[float, float] = (0.0, 0.0)
    """Seconds from an order to its grant or refusal: at least and at most."""
    meanwhile: float = 0.0
    """How often AWS does something between a look at it and a write to it."""
    at_once: bool = True
    """Nodes are bought by ``LaunchInstances``."""
    reserves: bool = False
    """New nodes come reserved."""
    guarded: float = 0.0
    """How often a PodDisruptionBudget forbids an eviction."""
    interrupts: float = 0.0
    """How often EC2 says of an instance that it takes it back in two minutes, or may."""
    breaks: float = 0.0
    """How often a node's hardware is at fault from now on; it is well again now and then."""
    meddles: float = 0.0
    """How often an operator changes a limit, or pauses or resumes."""
    asks: float = 0.0
    """How often there is a new ProvisioningRequest."""
    idles: float = 0.0
    """How often a pod ceases to use its GPUs."""
    quota: int | None = None
    """Nodes that the account's quotas allow of each family of instance types; ``None``: they cannot be asked about."""
    pauses: tuple[Pause, ...] = ()
    used: dict[str, float] = field(default_factory=dict)
    """Of each limit, as it was last: what is above one that was lowered may run on, and becomes no more."""
    notices: dict[str, Notice] = field(default_factory=dict)
    """Instance -> what EC2 says of it."""
    struck: set[str] = field(default_factory=set)
    """Jobs that lost a task by it, and stand in part until it is placed again."""
    now: datetime = NOW
    bought: int = 0
    joining: dict[str, bool] = field(default_factory=dict)
    """Instance -> whether it will ever be a node."""
    dies: bool = False
    """The autoscaler may be killed at any write."""
    done: list[Step] = field(default_factory=list)
    """Steps of the last plan that were taken, as far as AWS and the API server know."""
    leftovers: frozenset[str] = frozenset()
    """Instances that the last plan took for what is left of a gang of which EC2 refused the rest."""
    tally: Counter[str] = field(default_factory=Counter)
    """How often something was checked, or went wrong on purpose."""

    def __post_init__(self) -> None:
        """Every price is in the policy."""
        groups = sorted(self.offered, key=lambda one: one.name)
        usd = {one.entry: one.usd_per_hour for one in groups}
        entries = tuple(one.model_copy(update={"usd_per_hour": usd.get(one.name)}) for one in self.policy.groups)
        self.policy = self.policy.model_copy(update={"groups": entries})
        self.cloud = Cloud.of(
            groups,
            cluster=self.policy.cluster,
            now=self.now,
            chance=self.chance,
            refuses=self.refuses,
            late=self.late,
            at_once=self.at_once,
            quota=self.quota,
            touch=self._touch_aws,
            watch=self._check_limits,
        )
        self.api = Api(self.pods, self.nodes, touch=self._touch, budget=self._allows, evicted=self._make_anew)
        self._looks, self._number = 0, self.chance.getrandbits(32)
        self._ordered: dict[str, Order] = {}
        self._ordered_before: dict[str, Order] = {}
        self.used = self._used()
        self.requests, self.gpu_uses = Requests(self.chance, self.asks), Uses(self.chance, self.idles)
        self.api.requests = self.requests.served
        self.begin()

    def begin(self) -> None:
        """A new process of the autoscaler, which knows nothing."""
        self.store = Store()
        self.door = Ec2(
            self.policy,
            self.cloud.clients(),
            warn=_never,
            now=lambda: self.now,
            pool=lambda _: _InTurn(self._dice("order of purchases")),
        )
        for known in (self.door.reader.quotas, self.door.reader.reservations):
            if known is not None:
                known._clock = self._seconds
        self._executor = Executor(
            kube=Writes(cast("Kube", self.api), pool=lambda _: _InTurn(self._dice("order of writes"))),
            ec2=self.door,
            store=self.store,
            now=lambda: self.now,
        )

    def _seconds(self) -> float:
        return self.now.timestamp()

    @property
    def groups(self) -> dict[str, Group]:
        """As AWS tells them."""
        return {group.name: group for group in self.door.groups()}

    def look(self) -> Cluster:
        """One frozen look, in an order that means nothing."""
        self._looks += 1
        self.api.pods, self.api.nodes = self.pods, self.nodes
        self.api.forget()
        self.store.replace(
            PODS, self._shuffled({tuple(k.split("/")): (self.api.version("pods", k), p) for k, p in self.pods.items()})
        )
        self.store.replace(
            NODES, self._shuffled({("", k): (self.api.version("nodes", k), n) for k, n in self.nodes.items()})
        )
        self.store.saw_notices(self.notices.values())
        self.store.saw_gpus(self.gpu_uses.measured(self.pods.values(), self.now), None)
        self.store.saw_groups(self._shuffled(self.groups).values(), asked_at=time.monotonic())
        for kind, served in self.requests.objects():
            self.store.replace(kind, served)
        return replace(self.store.cluster(self.now), pauses=self.pauses)

    def carry_out(self, plan: Plan) -> bool:
        """Take every step as the loop does, checking that each may be taken; gives whether all were taken in no time.

        Only what AWS did meanwhile makes a step fail. Raises ``Killed`` where the world may kill.
        """
        self._check_words(plan)
        self.gpu_uses.tell(plan.idle_gpus, self.pods, self.now)
        self.leftovers = plan.memory.leftovers
        self._ordered_before, self._ordered = self._ordered, dict(plan.memory.orders)
        self.done.clear()
        before, began, failures = self.cloud.changes, self.now, list[str]()
        report = cast("Report", _Teller(failures))
        loop = Loop(
            policies=OnePolicy(self.policy),
            planner=lambda *_: plan,
            store=self.store,
            executor=cast("Executor", self),
            report=report,
            leader=_Leader(),
        )
        loop._apply(plan.steps)
        self.tally["steps that failed, for AWS had moved on"] += len(failures)
        assert not failures or self.cloud.changes > before, f"{failures} though nothing has changed"
        self._bind_pinned()
        self._check()
        return not failures and (self.cloud.changes, self.now) == (before, began)

    def take(self, batch: Sequence[Step]) -> list[Exception | None]:
        """As the executor does; and checked. What was bought before the process was killed counts as done."""
        for step in batch:
            self._may(step)
        self._may_draw([step for step in batch if isinstance(step, Grow)])
        there = [key for step in batch if isinstance(step, FreeGpus) for key in step.pods if key in self.pods]
        try:
            came = self._executor.take(batch)
        except Killed:
            self._did(one for one in batch if isinstance(one, Grow) and self.cloud.groups[one.group].desired > one.was)
            raise
        for step, failure in zip(batch, came, strict=True):
            if failure is None:
                self._did([step])
                self.tally[f"steps through the doors: {type(step).__name__}"] += 1
                is_told = not isinstance(step, SetCondition) or self.requests.is_as_told(step, self.now)
                assert is_told, f"{step} is not told so"
            elif isinstance(failure, Refused):  # all of a gang is evicted or, where a budget forbids one pod, none
                assert all(key in self.pods for key in there), f"{step}: some were evicted, others are kept by a budget"
        self.tally["steps that were taken beside another"] += len(batch) if len(batch) > 1 else 0
        return came

    def _did(self, steps: Iterable[Step]) -> None:
        for step in steps:
            self.done.append(step)
            self.bought += step.by if isinstance(step, Grow) else 0

    def _touch(self, what: str) -> None:
        """A fault point: the same for the same look."""
        if self.dies and self._dice(what).random() < 0.1:
            raise Killed(what)

    def _dice(self, what: str) -> random.Random:
        """The same for the same thing at the same look."""
        return random.Random(f"{self._number} {self._looks} {what}")  # noqa: S311 - reproducible on purpose

    def _touch_aws(self, what: str) -> None:
        if what.startswith("before") and self.chance.random() < self.meanwhile:
            self.now += timedelta(seconds=5)
            self.cloud.advance(self.now)
        self._touch(what)

    def _allows(self, pod: Pod) -> bool:
        return self._dice(pod.key).random() >= self.guarded

    def _make_anew(self, pod: Pod) -> None:
        """As its controller does."""
        self.tally["pods evicted, which found another node"] += 1
        if pod.gang:
            self.struck.add(job_of(pod))
        name = f"{pod.name.partition('+')[0]}+{self.tally['pods evicted, which found another node']}"
        new = replace(
            pod, name=name, uid=f"uid-{name}", node=None, phase="Pending", started=None, created=self.now, nominated=""
        )
        if new.gang and new.admitted_to:
            new = replace(new, gates=(words.GATE,), admitted_to="")
        self.pods[new.key] = new

    def pass_time(self, span: timedelta) -> None:
        """Instances start or are refused, nodes join, the scheduler binds what it may."""
        self.now += span
        self.cloud.advance(self.now)
        self.tally["launches refused"] += self.cloud.refused
        self.cloud.refused = 0
        self._take_back()
        self._break()
        self.gpu_uses.pass_time(self.pods.values())
        if self.meddles and self.chance.random() < self.meddles:
            self._meddle()
        for group in self.groups.values():
            living = tuple(one for one in group.instances if one.state != "terminating")
            for node in nodes_of(replace(group, instances=living), created=self.now):
                if self._joins(node.instance_id or "") and node.name not in self.nodes and self.chance.random() < 0.7:
                    reserved = self.reserves or group.block is not None
                    taints = (*node.taints, Taint(words.RESERVED)) if reserved else node.taints
                    self.nodes[node.name] = replace(node, taints=taints)
        come = {pod.key: pod for pod in self.requests.pass_time(self.now)}
        self.pods |= come
        self.tally["pods that came for the room of a request"] += len(come)
        self._schedule()
        self._check()

    def _take_back(self) -> None:
        """EC2 tells of some instances, and ends those whose time has come: their groups start successors."""
        for group in self.cloud.groups.values():
            if group.shown.block is not None and self.now >= group.shown.block.taken_back:
                for instance in list(group.instances):
                    self._lose(group, instance)
            if group.shown.block is not None:
                continue
            for instance in [one for one, state in group.instances.items() if not state.startswith("Terminating")]:
                notice = self.notices.get(instance)
                if notice is None and self.chance.random() < self.interrupts:
                    kind: Any = self.chance.choice(("interruption", "rebalance"))
                    ends = self.now + timedelta(minutes=2) if kind == "interruption" else None
                    self.notices[instance] = Notice(instance, kind, self.now, ends)
                    self.tally[f"notices: {kind}"] += 1
                elif notice is not None and notice.ends is not None and notice.ends <= self.now:
                    self._lose(group, instance)

    def _break(self) -> None:
        """Agents write what they find."""
        for name in sorted(self.nodes) if self.breaks else ():
            node = self.nodes[name]
            is_broken = any(one.status == "False" for one in node.conditions)
            if self.chance.random() < (0.3 if is_broken else self.breaks):
                status = "True" if is_broken else "False"
                found = NodeCondition("AcceleratedHardwareReady", status, "NvidiaXID79Error", self.now)
                self.nodes[name] = replace(node, conditions=(found,))
                self.tally["conditions of nodes that changed"] += 1

    def _meddle(self) -> None:
        """An operator changes a limit of the policy or the maximum of an entry, pauses, or resumes."""
        dice = self.chance
        match dice.choice(("limit", "limit", "maximum", "pause", "resume")):
            case "limit":
                name, value = dice.choice((("usd_per_hour", 5.0), ("usd_per_hour", 30.0), ("nodes", 1), ("gpus", 8)))
                limits = self.policy.limits.model_copy(update={name: dice.choice((value, None))})
                self.policy = self.policy.model_copy(update={"limits": limits})
            case "maximum":
                changed = dice.choice(self.policy.groups)
                most = dice.randint(changed.min, 4)
                entries = (
                    one.model_copy(update={"max": most}) if one is changed else one for one in self.policy.groups
                )
                self.policy = self.policy.model_copy(update={"groups": tuple(entries)})
            case "pause":
                entry = dice.choice(self.policy.groups).name
                of_operator = (ALL, BUYING, f"group.{entry}", f"{BUYING}.{entry}")
                of_budget = (budget_of(), budget_of(entry=entry), budget_of(namespace=NAMESPACE))
                self.pauses = (Pause(dice.choice((*of_operator, *of_budget))),)
            case "resume":
                self.pauses = ()
        self.tally["operator's changes"] += 1
        self.begin()

    def _is_paused(self, entry: str, *, buying: bool) -> bool:
        of_buying = (BUYING, f"{BUYING}.{entry}", budget_of(), budget_of(entry=entry))
        scopes = {ALL, f"group.{entry}", *(of_buying if buying else ())}
        return any(pause.scope in scopes for pause in self.pauses)

    def _entry_of(self, pod: Pod) -> str:
        return self.nodes[pod.node].labels.get(words.GROUP, "") if pod.node else ""

    def _is_at_fault(self, name: str) -> bool:
        """Whether the node's condition has stood for long enough."""
        begun = self.now - self.policy.faults.after
        return any(
            one.status == "False" and one.since is not None and one.since <= begun
            for one in self.nodes[name].conditions
        )

    def _lose(self, group: Scaling, instance: str) -> None:
        self.tally["instances that EC2 ended before the autoscaler did"] += 1
        del group.instances[instance]
        self.cloud.changes += 1
        for name in [one.name for one in self.nodes.values() if one.instance_id == instance]:
            for pod in self._residents(name):
                del self.pods[pod.key]
                self._make_anew(pod)
            del self.nodes[name]

    def _notice(self, instance: str) -> Notice | None:
        """What EC2 says of it; ten minutes before it takes back what is in a Capacity Block it says so."""
        found, block = self.notices.get(instance), self._block_of(instance)
        if found is None and block is not None and self.now >= block.taken_back - _WARNED:
            return Notice(instance, "capacity-block", block.taken_back - _WARNED, block.taken_back)
        return found

    def _is_noticed(self, name: str) -> bool:
        """Whether EC2 is about to take the node's instance back."""
        return self._notice(self.nodes[name].instance_id or "") is not None

    def _block_of(self, instance: str | None) -> CapacityBlock | None:
        """That the instance is in."""
        return next((one.shown.block for one in self.cloud.groups.values() if instance in one.instances), None)

    def _check_block(self, pod: Pod, name: str) -> None:
        """That the pod has ended when EC2 warns of the end of the node's Capacity Block, or may be cut off."""
        block = self._block_of(self.nodes[name].instance_id)
        if block is not None and not pod.safe_to_evict:
            assert pod.duration is not None, f"{pod.key} may run for ever, and {name} is in a Capacity Block"
            assert self.now + pod.duration <= block.taken_back - _WARNED, f"{pod.key} outlasts the block of {name}"

    def _joins(self, instance: str) -> bool:
        if instance not in self.joining:
            self.joining[instance] = self.chance.random() >= self.never_joins
            self.tally["machines that never joined"] += not self.joining[instance]
        return self.joining[instance]

    def calm(self) -> None:
        """From now on nothing goes wrong, and nothing new is asked for; what broke is whole."""
        self.refuses = self.never_joins = self.meanwhile = self.guarded = 0.0
        self.breaks = self.meddles = self.interrupts = self.cloud.refuses = 0.0
        self.late = self.cloud.late = (0.0, 0.0)
        self.requests.asks = self.gpu_uses.changes = 0.0
        self.pauses = ()
        self.notices.clear()
        self.nodes = {name: replace(node, conditions=()) for name, node in self.nodes.items()}

    def finish(self, gangs: float) -> None:
        """This share of the jobs that run ends, each as a whole."""
        running = defaultdict(list)
        for pod in self.pods.values():
            running[job_of(pod)].append(pod)
        for job in sorted(running):
            if all(pod.node for pod in running[job]) and self.chance.random() < gangs:
                for pod in running[job]:
                    del self.pods[pod.key]

    def reserved_too_long(self) -> list[str]:
        """Nodes that are still kept for a pod when a new machine would be given up."""
        return [
            node.name
            for node in self.nodes.values()
            if self.now >= node.created + self.policy.scale_up.boot_timeout
            if not node.cordoned and not self._is_noticed(node.name) and self._block_of(node.instance_id) is None
            if any(taint.key == words.RESERVED for taint in node.taints)
        ]

    @property
    def usd_per_hour(self) -> float:
        """The bill."""
        return self.cloud.usd_per_hour

    def _may(self, step: Step) -> None:  # noqa: C901, PLR0912 - one case for each kind of step
        """Whether the step may be taken as things are."""
        match step:
            case Admit(placements=placements):
                for key, name in placements:
                    self._may_admit(self.pods[key], self.nodes[name])
                    self._check_block(self.pods[key], name)
                    assert not self._is_at_fault(name), f"{step}: {name} is at fault"
            case Grow(group=group):
                assert step.by > 0, step
                seen = self.store.group(group)
                assert seen is not None
                is_new = self._ordered_before.get(group) != Order(step.was, step.to, step.at)
                assert not self._was_refused(seen, since=None if is_new else step.at), f"{step} right after a refusal"
                assert not self._is_paused(seen.entry, buying=True), f"{step} though it is paused"
                self.requests.may_buy(step)
                self._may_launch_in_block(step, seen.block if is_new else None)
            case Cancel():
                assert step.to < step.was, step
            case Cordon(node=name):
                is_broken = self._is_at_fault(name)
                assert self.nodes[name].instance_id or is_broken, f"{step} on a node that is not EC2's"
                assert is_broken or self._is_noticed(name) or all(map(_may_move, self._residents(name))), (
                    f"{step} on a busy node"
                )
            case Evict():
                self._may_evict(step)
            case FreeGpus():
                self._may_free(step)
            case Uncordon(node=name):
                assert self.nodes[name].cordoned_by == words.AUTOSCALER, f"{step} lifts another's cordon"
                assert not self._is_at_fault(name), f"{step}, which is at fault"
            case Remove():
                self._may_remove(step)
            case Nominate(placements=placements):
                for key, name in placements:
                    assert not name or name in self.nodes, f"{key} is nominated for {name}, which is not there"
                    assert not name or not self._is_at_fault(name), f"{key} is nominated for {name}, which is at fault"
            case Reserve(placements=placements):
                for key, name in placements:
                    self._may_reserve(self.pods[key], self.nodes[name])
                    self._check_block(self.pods[key], name)
            case Unreserve(nodes=names):
                for name in names:
                    taints = self.nodes[name].taints
                    assert any(one.key == words.RESERVED for one in taints), f"{step} of a node that is not reserved"
                    assert self._block_of(self.nodes[name].instance_id) is None, f"{step} of a node in a Capacity Block"
            case Release(instance=instance, node=name):
                assert name is None or not self._residents(name), f"{step} ends a running job"
                assert self.cloud.groups[step.group].instances[instance] == "Terminating:Wait", step
            case SetCondition():
                takes = (one.name for one in self.nodes.values() if one.ready and not one.cordoned)
                free = [self._free(name) for name in takes if not self._is_at_fault(name)]
                self.requests.may_tell(step, self.now, free)
            case EndJob() | BeginStep() | StopStep() | Recreate() | Resize():
                raise AssertionError(step)

    def _may_evict(self, step: Evict) -> None:
        node, pods = self.nodes[step.node], [self.pods[key] for key in step.pods]
        assert node.cordoned_by == words.AUTOSCALER, f"{step} from a node that is open"
        notice = self._notice(node.instance_id or "")
        if notice is None or not notice.is_certain:
            assert all(map(_may_move, pods)), f"{step} ends work"
            assert not any(pod.do_not_disrupt for pod in pods), f"{step} of what is marked"

    def _may_free(self, step: FreeGpus) -> None:
        self.gpu_uses.may_free(step, self.pods, self.policy.idle_gpus, self.now)
        for pod in (self.pods[key] for key in step.pods if key in self.pods):
            assert not self._is_paused(self._entry_of(pod), buying=False), f"{step} though it is paused"

    def _may_draw(self, steps: Sequence[Grow]) -> None:
        """All of them within the quotas of their families, and for a namespace whose budget is not spent.

        An instance beyond what its group desires, of an order that was cancelled while it was launched, is one of those
        that are desired then.
        """
        assert not (self._is_spent() and any(one.demand for one in steps)), f"{steps} though the budget is spent"
        to = {one.group: one.to for one in steps}
        for kind in {self.cloud.groups[name].shown.instance_type[0] for name in to}:
            then = sum(
                max(to.get(name, one.desired), one.living) + one.held
                for name, one in self.cloud.groups.items()
                if one.shown.instance_type[0] == kind
            )
            assert self.quota is None or then <= self.quota, f"{steps} beyond the quota: {then} would be there"

    def _may_launch_in_block(self, step: Grow, block: CapacityBlock | None) -> None:
        """After it began, and while a node that takes as long as it may to join is of use."""
        if block is not None:
            last = block.taken_back - _WARNED - self.policy.scale_up.boot_timeout
            assert block.starts < step.at < last, f"{step}: the Capacity Block begins at {block.starts}, last at {last}"
            self.tally["purchases in a Capacity Block"] += 1

    def _is_spent(self) -> bool:
        return any(pause.namespace == NAMESPACE for pause in self.pauses)

    @staticmethod
    def _may_reserve(pod: Pod, node: Node) -> None:
        assert node.ready, f"{node.name} is not ready"
        assert pod.node is None, f"{pod.key} runs already"
        assert any(taint.key == words.RESERVED for taint in node.taints), f"{node.name} is not reserved"
        own = Toleration(key=words.RESERVED, value=node.instance_id or "")
        assert own not in pod.tolerations or Taint(words.RESERVED) in node.taints, f"{pod.key} was let in before"

    @staticmethod
    def _may_admit(pod: Pod, node: Node) -> None:
        assert words.GATE in pod.gates, f"{pod.key} has no gate to lift"
        assert node.ready, f"{node.name} is not ready"
        assert not node.cordoned, f"{node.name} is cordoned"

    def _may_remove(self, step: Remove) -> None:
        group = self.cloud.groups[step.group]
        assert step.instance in group.instances, f"{step}: no such instance"
        assert not self._is_paused(group.shown.entry, buying=False), f"{step} though it is paused"
        if step.is_taken_back:
            notice = self._notice(step.instance)
            assert notice is not None, f"{step} though EC2 says nothing of it"
            assert notice.is_certain, f"{step} though EC2 does not end it"
            assert step.node is not None
            assert self.nodes[step.node].cordoned_by == words.AUTOSCALER
            soon = notice.ends
            assert soon is not None
            assert not self._residents(step.node) or self.now >= soon - timedelta(seconds=5), f"{step} is too early"
            return
        kept = max(group.desired, group.living) - 1
        assert step.is_dead or kept >= group.shown.minimum, f"{step} goes below the minimum"
        if step.node is None:
            return
        node = self.nodes[step.node]
        assert node.instance_id == step.instance
        assert not self._residents(step.node), f"{step} ends a running job"
        assert node.cordoned_by == words.AUTOSCALER
        assert node.cordoned_at is not None
        goes_at_once = (
            self._is_noticed(step.node)
            or self._is_at_fault(step.node)
            or step.instance in self.leftovers
            or self._is_surplus(group.shown.entry)
        )
        patience = timedelta(0) if goes_at_once else self.policy.scale_down.idle_after
        assert node.cordoned_at + patience <= self.now, f"{step} is too early"

    def _bind_pinned(self) -> None:
        """A pod whose gates were lifted can go to one node only, and the scheduler binds it at once."""
        for key in sorted(self.pods):
            pod = self.pods[key]
            if pod.node is None and not pod.gates and pod.admitted_to:
                self._bind(key, pod.admitted_to)

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
        self.pods[key] = replace(self.pods[key], node=name, phase="Running", started=self.now, nominated="")
        assert all(amount >= 0 for amount in self._free(name).values()), f"{name} is over-committed by {key}"

    def _free(self, name: str) -> Counter[str]:
        free = Counter(dict(self.nodes[name].allocatable))
        for pod in self._residents(name):
            free.subtract(dict(pod.requests))
        return free

    def _residents(self, name: str) -> list[Pod]:
        return [pod for pod in self.pods.values() if pod.node == name]

    def _was_refused(self, group: Group, *, since: datetime | None) -> bool:
        """Of late; of an order that is made again ``since`` then: what was refused before says nothing of it."""
        pause = self.policy.scale_up.refusal_backoff
        return any(self.now < one.at + pause and (since is None or one.at >= since) for one in group.refusals)

    def _check_words(self, plan: Plan) -> None:
        """Every pod without a place has exactly one word, and it says something."""
        told = Counter(one.pod for one in plan.waiting)
        placed = {key for step in plan.steps if isinstance(step, Admit) for key, _ in step.placements}
        for key, pod in self.pods.items():
            if pod.node is None and pod.gates:
                assert told[key] == (key not in placed), f"{key} is told of {told[key]} times"
            assert told[key] <= 1, f"{key} is told of {told[key]} times"
        assert all(one.because for one in plan.waiting)
        assert told.keys() <= self.pods.keys() | set(self.requests.asked())

    def _check(self) -> None:
        self.tally["looks at limits and budgets"] += 1
        self._check_limits()
        self._check_gangs()

    def _check_limits(self) -> None:
        """Of all that runs, is ordered, or may come of a launch that is being tried."""
        for group in self.cloud.groups.values():
            assert group.paid_for <= group.shown.maximum, f"{group.shown.name} is above its maximum"
        used = self._used()
        for what, limit in self._limits().items():
            allowed = max(limit, self.used[what])
            assert used[what] <= allowed + 1e-6, f"too many {what}: {used[what]}, {allowed} allowed"
        self.used = used

    def _limits(self) -> dict[str, float]:
        """Of all, and of each entry; of one that the policy has no more nothing is bought."""
        limits = self.policy.limits
        most = {"dollars": limits.usd_per_hour, "nodes": limits.nodes, "GPUs": limits.gpus}
        for name in {group.shown.entry for group in self.cloud.groups.values()}:
            entry = self.policy.entry(name)
            most[name] = entry.max if entry is not None else 0
        return {what: math.inf if limit is None else limit for what, limit in most.items()}

    def _is_surplus(self, entry: str) -> bool:
        """Whether a limit on its nodes was lowered below what runs."""
        used, limits = self._used(), self._limits()
        return any(used[what] > limits[what] for what in (entry, "dollars", "nodes", "GPUs"))

    def _used(self) -> dict[str, float]:
        """Of each limit, and of each entry's maximum, which counts no machine that is being ended."""
        used: defaultdict[str, float] = defaultdict(float)
        for group in self.cloud.groups.values():
            successors = 0 < group.shown.minimum == group.paid_for  # Auto Scaling launches them whatever a policy says
            running = group.paid_for + (0 if successors else group.held)
            used[group.shown.entry] += group.paid_for
            used["dollars"] += running * group.shown.usd_per_hour
            used["nodes"] += running
            used["GPUs"] += running * group.shown.allocatable[words.GPU]
        return used

    def _check_gangs(self) -> None:
        jobs: dict[str, list[Pod]] = defaultdict(list)
        for pod in self.pods.values():
            if pod.gang and job_of(pod) not in self.struck:
                jobs[job_of(pod)].append(pod)
        for job, pods in jobs.items():
            bound = sum(1 for pod in pods if pod.node)
            gang = pods[0].gang
            enough = (gang.minimum or gang.size or len(pods)) if gang else 1
            gated = any(words.GATE in pod.gates for pod in pods)
            self.tally["looks at gangs"] += 1
            assert not gated or bound == 0 or bound >= enough, f"{bound} of {job}'s {len(pods)} pods hold a place"

    def _shuffled(self, many: Mapping[K, T]) -> dict[K, T]:
        ordered = list(many.items())
        self.chance.shuffle(ordered)
        return dict(ordered)


class _InTurn(futures.Executor):
    """Writes one by one, in an order that means nothing; what a kill at one of them leaves undone stays undone.

    Of threads others would have written each time, and what hypothesis draws hangs on that.
    """

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice

    def map(self, fn: Callable[..., T], *iterables: Iterable[Any], **_: Any) -> Iterator[T]:
        """What came of each, in their order."""
        calls = list(enumerate(zip(*iterables, strict=True)))
        self._dice.shuffle(calls)
        came = {number: fn(*given) for number, given in calls}
        return iter([came[number] for number in sorted(came)])


class _Leader:
    def is_mine(self) -> bool:
        return True


class _Teller:
    """What the loop tells of steps."""

    def __init__(self, failures: list[str]) -> None:
        self._failures = failures

    def done(self, step: Step, *, pods: object = ()) -> None:
        pass

    def failed(self, step: Step, why: Exception) -> None:
        if not (isinstance(step, Evict | FreeGpus) and "disruption budget" in str(why)):
            self._failures.append(f"{step}: {why}")


def _never(line: str) -> None:
    """But for those that say how nodes are bought, that a quota is used up, and that a Capacity Block has ended."""
    expected = (
        "not by LaunchInstances",
        "vCPUs are in use: ask AWS for more",
        "is expired: nothing is launched into it",
    )
    assert any(one in line for one in expected), line


def _may_move(pod: Pod) -> bool:
    """Made anew by its controller, and nothing is lost by it, or it says that it may be evicted."""
    is_service = pod.owner.startswith("ReplicaSet/") and not pod.requests[words.GPU]
    return not pod.gang and (is_service or pod.safe_to_evict)


def job_of(pod: Pod) -> str:
    """The gang that the pod is of, or itself."""
    return f"{pod.gang.namespace}/{pod.gang.name}" if pod.gang else pod.key


def _allowed(pod: Pod, node: Node) -> bool:
    """Selectors with ``In`` and taints: all that the world's pods use."""
    selected = not pod.affinity or any(
        all(node.labels.get(one.key) in one.values for one in term) for term in pod.affinity
    )
    keys = {one.key for one in pod.tolerations if one.operator == "Exists"}
    values = {(one.key, one.value) for one in pod.tolerations if one.operator == "Equal"}
    return selected and all(taint.key in keys or (taint.key, taint.value) in values for taint in node.taints)
