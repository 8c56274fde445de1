"""The loop: when it decides, what it does with a plan, and how each step fails alone."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from autoscaler import loop as loop_module
from autoscaler.acting_policy import OnePolicy
from autoscaler.cloud import autoscaling_groups, errors
from autoscaler.cloud.purchases import Bought
from autoscaler.config.policy import Policy
from autoscaler.executor import Executor, NotYet
from autoscaler.kube import client
from autoscaler.kube.cache import Store
from autoscaler.kube.schema.core import BudgetJson, JobJson, Meta, NodeJson, PodJson
from autoscaler.kube.watched_kinds import KINDS, NODES, PODS
from autoscaler.kube.writes import Writes
from autoscaler.loop import LOOK_AGAIN, Loop
from autoscaler.model import labels as words
from autoscaler.model.actions import (
    IMPOSSIBLE,
    Admit,
    Assignment,
    BeginStep,
    Cancel,
    Cordon,
    EndJob,
    Evict,
    FreeGpus,
    Grow,
    Memory,
    Nominate,
    Order,
    Plan,
    Recreate,
    Release,
    Remove,
    Reserve,
    SetCondition,
    Step,
    StopStep,
    Uncordon,
    Unreserve,
    Waiting,
)
from autoscaler.model.cluster import Cluster, Group, Pod, Refusal
from autoscaler.model.errors import Unavailable
from autoscaler.model.pauses import Pause
from autoscaler.model.pod_index import pod_index_of
from autoscaler.planner.plan import plan
from autoscaler.planner.sanity_check import Counts
from autoscaler.record.decisions import Decision
from autoscaler.reporting.metrics import Metrics
from autoscaler.reporting.report import STANDS_STILL, Log, Report
from tests.builders import NOW, a_gang, a_group, a_pod, a_policy, an_on_prem_node, nodes_of
from tests.test_autoscaler.fake_api import FakeApi
from tests.test_autoscaler.test_kube.test_watcher import until

GROUP = a_group()
GROW = Grow(group=GROUP.name, was=0, to=1, usd_per_hour=1.0, demand=("team/pod",), because="r")
END = EndJob("team", "ps", "r")


@dataclass
class Fakes:
    """Both doors, which remember what they were asked, and fail as told."""

    asked: list[tuple[Any, ...]] = field(default_factory=list)
    failures: dict[str, Exception] = field(default_factory=dict)
    group: Group = GROUP
    refusals: tuple[Refusal, ...] = ()
    on_node: tuple[PodJson, ...] = ()
    of_budgets: tuple[BudgetJson, ...] = ()
    closed: bool = True
    ready: bool = True
    ended: bool = True

    def _note(self, what: str, *details: object) -> None:
        self.asked.append((what, *details))
        if what in self.failures:
            raise self.failures[what]

    def grow(self, orders: Mapping[str, Order], **_more: Any) -> dict[str, Bought | Exception]:
        """EC2's. An order fails as told for all, or for its group."""
        came: dict[str, Bought | Exception] = {}
        for name, order in orders.items():
            self.asked.append(("grow", name, order.was, order.to))
            bought = Bought(desired=order.was if self.refusals else order.to, refusals=self.refusals)
            came[name] = self.failures.get("grow") or self.failures.get(name) or bought
        return came

    def cancel(self, name: str, *, was: int, to: int) -> Group:
        """EC2's."""
        self._note("cancel", name, was, to)
        return replace(self.group, desired=to)

    def terminate(self, instance: str, *, group: str, is_dead: bool = False) -> None:
        """EC2's."""
        self._note("terminate", instance)

    def has_ended(self, instance: str) -> bool:
        """EC2's."""
        self._note("has_ended", instance)
        return self.ended

    def release(self, group: str, instance: str) -> None:
        """EC2's."""
        self._note("release", group, instance)

    def groups(self) -> tuple[Group, ...]:
        """EC2's."""
        self._note("groups")
        return (self.group,)

    def admit(self, placements: dict[tuple[str, str, str], str]) -> dict[tuple[str, str, str], PodJson | Exception]:
        """The API server's."""
        self._note("admit", placements)
        return {
            pod: self.failures.get(pod[1]) or msgspec.convert({"metadata": {"name": pod[1]}}, PodJson)
            for pod in placements
        }

    def nominate(self, pods: Iterable[tuple[tuple[Pod, int], str]]) -> dict[str, PodJson | Exception]:
        """The API server's. A nomination that says nothing new leaves the pod's version as it is."""
        asked = list(pods)
        self._note("nominate", [(pod.key, node) for (pod, _), node in asked])
        return {
            pod.key: self.failures.get(pod.name)
            or msgspec.convert(
                {"metadata": {"name": pod.name, "resourceVersion": str(version + (pod.nominated != node))}}, PodJson
            )
            for (pod, version), node in asked
        }

    def reserve(self, whose: dict[str, str]) -> dict[str, NodeJson | Exception]:
        """The API server's."""
        self._note("reserve", whose)
        return {name: self.failures.get(name) or self.node(name) for name in whose}

    def unreserve(self, names: Iterable[str]) -> dict[str, NodeJson | Exception]:
        """The API server's."""
        self._note("unreserve", tuple(names))
        return {name: self.failures.get(name) or self.node(name) for name in names}

    def let_in(self, pods: Iterable[tuple[Pod, str]]) -> dict[str, PodJson | Exception]:
        """The API server's."""
        asked = list(pods)
        self._note("let_in", [(pod.key, whose) for pod, whose in asked])
        return {
            pod.key: self.failures.get(pod.name) or msgspec.convert({"metadata": {"name": pod.name}}, PodJson)
            for pod, _ in asked
        }

    def node(self, name: str) -> NodeJson:
        """The API server's."""
        marks = {words.CORDONED_BY: words.AUTOSCALER} if self.closed else {}
        meta = {"name": name, "uid": "node-uid", "annotations": marks}
        status = {"conditions": [{"type": "Ready", "status": "True" if self.ready else "Unknown"}]}
        return msgspec.convert({"metadata": meta, "spec": {"unschedulable": self.closed}, "status": status}, NodeJson)

    def pods_on(self, node: str) -> tuple[PodJson, ...]:
        """The API server's."""
        self._note("pods_on", node)
        return self.on_node

    def cordon(self, name: str, *, at: object) -> NodeJson:
        """The API server's."""
        self._note("cordon", name)
        return self.node(name)

    def uncordon(self, name: str) -> NodeJson:
        """The API server's."""
        self._note("uncordon", name)
        return self.node(name)

    def evict(self, pods: Iterable[Pod], *, dry_run: bool = False) -> dict[str, Exception | None]:
        """The API server's."""
        asked = list(pods)
        self._note("evict in a dry run" if dry_run else "evict", [pod.key for pod in asked])
        return {pod.key: self.failures.get(pod.name) for pod in asked}

    def budgets(self, namespace: str) -> tuple[BudgetJson, ...]:
        """The API server's."""
        self._note("budgets", namespace)
        return self.of_budgets

    def delete_node(self, name: str, *, uid: str) -> None:
        """The API server's."""
        self._note("delete_node", name, uid)

    def delete_unbound(self, namespace: str, name: str, *, uid: str) -> None:
        """The API server's."""
        self._note("delete_unbound", namespace, name, uid)

    def end_job(self, namespace: str, name: str) -> None:
        """The API server's."""
        self._note("end_job", namespace, name)

    def begin_step(self, namespace: str, name: str, *, at: datetime) -> JobJson:
        """The API server's."""
        self._note("begin_step", namespace, name, at)
        return JobJson(metadata=Meta(name=name, namespace=namespace))

    def stop_step(self, namespace: str, name: str, *, because: str) -> JobJson:
        """The API server's."""
        self._note("stop_step", namespace, name, because)
        return JobJson(metadata=Meta(name=name, namespace=namespace))

    def set_condition(self, namespace: str, name: str, condition: str, **given: object) -> None:
        """The API server's."""
        self._note("set_condition", namespace, name, condition, *given.values())


class Leads:
    """Who may act, as told."""

    mine = True

    def is_mine(self) -> bool:
        """Whether we may."""
        return self.mine


@dataclass
class Bench:
    """A loop with a plan that is given, and everything around it."""

    plans: list[Plan]
    fakes: Fakes = field(default_factory=Fakes)
    store: Store = field(default_factory=Store)
    leader: Leads = field(default_factory=Leads)
    out: io.StringIO = field(default_factory=io.StringIO)
    seen: list[Cluster] = field(default_factory=list)
    motions: list[None] = field(default_factory=list)

    def loop(self, **more: Any) -> Loop:
        """The loop; its last plan is given again and again."""
        for kind in KINDS:
            self.store.replace(kind, {})

        def planner(cluster: Cluster, _policy: Policy, memory: Memory) -> Plan:
            self.seen.append(cluster)
            return self.plans.pop(0) if len(self.plans) > 1 else self.plans[0]

        ordinary: dict[str, Any] = {
            "policies": OnePolicy(a_policy(scale_up={"debounce": "10ms", "debounce_at_most": "50ms"})),
            "planner": planner,
            "store": self.store,
            "executor": Executor(kube=self.fakes, ec2=self.fakes, store=self.store),  # type: ignore[arg-type]
            "report": Report(Log("text", self.out)),
            "leader": self.leader,
            "set_in_motion": lambda: self.motions.append(None),
        }
        return Loop(**ordinary | more)

    def knows_aws(self, *groups: Group) -> None:
        """AWS has answered."""
        self.store.saw_groups(groups or (GROUP,), asked_at=time.monotonic())

    def did(self) -> list[str]:
        """What the doors were asked for."""
        return [one[0] for one in self.fakes.asked]


def bench(*steps: Step, waiting: Sequence[Waiting] = (), **more: Any) -> Bench:
    """With one plan."""
    return Bench(plans=[Plan(steps=steps, waiting=tuple(waiting), **more)])


def test_steps_are_taken_in_order() -> None:
    """Each through its door."""
    made = bench(END, Uncordon("n", "r"), GROW, Cancel(GROUP.name, 1, 0, "r"), Cordon("m", "r"))
    loop = made.loop()
    made.knows_aws()
    loop.once()
    assert made.did() == ["end_job", "uncordon", "grow", "cancel", "cordon"]
    assert len(made.motions) == 3  # those that AWS or a node's time has to do with


def test_a_step_fails_alone_and_is_left_alone_for_a_while() -> None:
    """The next ones are taken; the failure is told once."""
    made = bench(GROW, Cordon("n", "r"))
    made.fakes.failures["grow"] = Unavailable("AWS does not answer")
    loop = made.loop()
    made.knows_aws()
    loop.once()
    loop.once()
    assert made.did() == ["grow", "cordon", "cordon"]
    assert made.out.getvalue().count("could not grow") == 1


def test_after_a_refused_order_the_planner_is_asked_before_the_next_one() -> None:
    """It is known at once that the group is closed; other steps are taken. The second plan's order is made."""
    other = a_group(zone="us-east-1b")
    again = replace(GROW, group=other.name)
    made = bench()
    made.plans = [Plan(steps=(GROW, again, Cordon("n", "r"))), Plan(steps=(again,))]
    made.fakes.refusals = (Refusal(NOW, "VcpuLimitExceeded", "the limit is 64"),)
    loop = made.loop()
    made.knows_aws(GROUP, other)
    loop.once()
    assert made.did() == ["grow", "cordon"]
    assert "could not grow" in made.out.getvalue()
    made.fakes.refusals = ()
    loop.once()
    assert [one.refusals[0].code for one in made.seen[-1].groups if one.refusals] == ["VcpuLimitExceeded"]
    assert made.fakes.asked[-1] == ("grow", other.name, 0, 1)


def test_orders_for_different_gangs_go_beside_each_other_and_fail_alone() -> None:
    """What is for a gang in a second group waits for the first, and is not ordered where any order was refused."""
    groups = [a_group(zone=f"us-east-1{zone}") for zone in "abc"]
    pods = {pod.key: pod for gang in ("one", "two") for pod in a_gang(gang)}
    steps = [
        replace(GROW, group=group.name, demand=(f"team/{gang}-worker-{number}",))
        for group, gang, number in zip(groups, ("one", "one", "two"), (0, 1, 0), strict=True)
    ]
    made = bench(*steps)
    made.fakes.failures[groups[2].name] = Unavailable("AWS asks for fewer calls")
    loop = made.loop()
    made.store.replace(PODS, {(pod.namespace, pod.name): (1, pod) for pod in pods.values()})
    made.knows_aws(*groups)
    loop.once()
    assert [one[1] for one in made.fakes.asked] == [groups[0].name, groups[2].name, groups[1].name]
    assert made.out.getvalue().count("could not grow") == 1
    made = bench(*steps)
    made.fakes.refusals = (Refusal(NOW, "VcpuLimitExceeded", "the limit is 64"),)
    loop = made.loop()
    made.store.replace(PODS, {(pod.namespace, pod.name): (1, pod) for pod in pods.values()})
    made.knows_aws(*groups)
    loop.once()
    assert [one[1] for one in made.fakes.asked] == [groups[0].name, groups[2].name]


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        (errors.NoAnswer("AWS does not answer"), True),
        (Unavailable("AWS asks for fewer calls"), False),
        (errors.Refused("ValidationError", "no"), False),
        (autoscaling_groups.Changed("it has 2 nodes"), False),
        (None, False),
    ],
)
def test_an_order_is_remembered_until_it_is_answered(answer: Exception | None, *, kept: bool) -> None:
    """The next plan knows which may still be carried out; one that was held back meanwhile is not answered by that."""
    orders = {GROUP.name: Order(0, 1, NOW)}
    made = bench(GROW, memory=Memory(orders=orders))
    made.fakes.failures |= {"grow": answer} if answer else {}
    memories: list[Memory] = []

    def planner(_cluster: Cluster, _policy: Policy, memory: Memory) -> Plan:
        memories.append(memory)
        return made.plans[0]

    loop = made.loop(planner=planner)
    made.knows_aws()
    for _ in range(3):
        loop.once()
    assert memories[0].orders == {}
    assert [one.orders for one in memories[1:]] == [orders if kept else {}] * 2
    made.fakes.failures.clear()
    step = replace(GROW, to=2)  # what failed is left alone for a while
    made.plans[0] = replace(made.plans[0], steps=(step,))
    loop.once()
    loop.once()
    assert memories[-1].orders == {}


@dataclass
class Clock:
    """A monotonic clock that stands still but for jumps, one before each time that it is read."""

    jumps: Iterator[float]
    at: float = 1000.0
    jumped: float = 0.0

    def __call__(self) -> float:
        """Seconds."""
        jump = next(self.jumps, 0.0)
        self.jumped += jump
        self.at += jump
        return self.at


@dataclass
class Waits:
    """What the loop waits for: time passes only here, and in the clock's jumps."""

    store: Store
    clock: Clock
    loop: Loop | None = None
    left: int = 40
    asked: list[float] = field(default_factory=list)

    def wait(self, _since: int, *, seconds: float) -> int:
        """In place of the store's."""
        self.asked.append(seconds)
        self.clock.at += seconds
        self.left -= 1
        if self.left < 0 and self.loop is not None:
            self.loop.stop()
        return 0


@given(
    jumps=st.lists(st.sampled_from((0.0, 0.0, 0.0, 0.3, 0.9, 5.0, 70.0)), max_size=60),
    failures=st.integers(1, 4),
)
def test_what_is_due_is_done_at_once_however_the_time_jumps(jumps: list[float], failures: int) -> None:
    """A step that fails so many times is tried so many times more, and waits for nothing but its own pauses."""
    made = bench(GROW)
    clock = Clock(iter(jumps))
    waits = Waits(made.store, clock)
    tries: list[float] = []

    def grow(orders: Mapping[str, Order], **_named: Any) -> dict[str, Bought | Exception]:
        tries.append(clock.at)
        if len(tries) <= failures:
            return dict.fromkeys(orders, Unavailable("AWS does not answer"))
        assert waits.loop is not None
        waits.loop.stop()
        return dict.fromkeys(orders, Bought(desired=1))

    made.fakes.grow = grow  # type: ignore[method-assign]
    made.store.wait = waits.wait  # type: ignore[method-assign]
    waits.loop = made.loop(clock=clock)
    made.knows_aws()
    waits.loop.run()
    assert len(tries) == failures + 1
    pauses = sum(0.5 * 2**number for number in range(failures))
    assert tries[-1] - tries[0] <= pauses + clock.jumped + 0.05 * len(waits.asked) + 1e-6


@given(jumps=st.lists(st.floats(0, 90), max_size=40), after=st.floats(0, 200))
def test_the_time_that_a_plan_names_is_not_slept_through(jumps: list[float], after: float) -> None:
    """``wake_at`` is a time of day; the loop never waits beyond it."""
    made = bench()
    clock = Clock(iter(jumps))
    wake = NOW + timedelta(seconds=after)
    made.plans = [Plan(wake_at=wake)]
    loop = made.loop(clock=clock, now=lambda: NOW + timedelta(seconds=clock.at - 1000.0))
    made.knows_aws()
    plan = loop.once()
    before = clock.at
    assert before + loop._seconds_until_due(plan) <= max(before + 0.05, 1000.0 + after) + clock.jumped
    assert loop._seconds_until_due(plan) <= LOOK_AGAIN


def test_a_step_that_failed_and_is_not_planned_any_more_wakes_no_loop() -> None:
    """Its hold runs out, and the loop does not turn for it."""
    made = Bench(plans=[Plan(steps=(GROW,)), Plan()])
    made.fakes.failures["grow"] = Unavailable("AWS does not answer")
    clock = Clock(iter(()))
    loop = made.loop(clock=clock)
    made.knows_aws()
    loop.once()
    clock.at += 1.0
    assert loop._seconds_until_due(loop.once()) == LOOK_AGAIN


@pytest.mark.parametrize(
    ("step", "door"), [(Cancel("g", 1, 0, "r"), "cancel"), (Remove(GROUP.name, "i-1", None, "r"), "terminate")]
)
def test_nothing_is_bought_with_money_that_was_not_set_free(step: Step, door: str) -> None:
    """Nor while the step that was to set it free is left alone; what costs nothing is done."""
    made = bench(step, GROW, Cordon("n", "r"))
    made.fakes.failures[door] = autoscaling_groups.Changed("g is not as it was")
    loop = made.loop()
    made.knows_aws()
    loop.once()
    loop.once()
    assert made.did() == [door, "cordon", "cordon"]
    made.fakes.failures.clear()
    for held in loop._held.values():
        held.until = 0
    loop.once()
    assert made.did()[3:] == [door, "grow", "cordon"]


def test_a_step_that_the_cluster_has_overtaken_is_not_left_alone_any_more() -> None:
    """It failed once, and is tried again when its time has come: by then it is not to be done, and nothing holds it."""
    made = bench(Cordon("n", "r"))
    loop = made.loop()
    made.knows_aws()
    made.fakes.failures["cordon"] = Unavailable("no answer")
    loop.once()
    assert len(loop._held) == 1
    for held in loop._held.values():
        held.until = 0
    made.fakes.failures["cordon"] = NotYet()
    loop.once()
    assert loop._held == {}


@dataclass
class Written:
    """A record in memory."""

    told: list[Any] = field(default_factory=list)

    def decided(self, decision: Decision) -> None:
        """With what was seen."""
        self.told.append(decision)

    def came_of(self, outcomes: tuple[str, ...]) -> None:
        """Of the steps."""
        self.told.append(outcomes)


def test_a_decision_is_written_down_before_its_steps_are_taken_and_then_what_came_of_each() -> None:
    """A process that is killed in between has written what it was about to do."""
    made, record = bench(Cancel("g", 1, 0, "r"), GROW, Cordon("n", "r")), Written()
    made.fakes.failures["cancel"] = autoscaling_groups.Changed("g is not as it was")
    cancel = made.fakes.cancel

    def ask(name: str, *, was: int, to: int) -> Group:
        record.told.append("the door")
        return cancel(name, was=was, to=to)

    made.fakes.cancel = ask  # type: ignore[method-assign]
    loop = made.loop(recorder=record)
    made.knows_aws()
    plan = loop.once()
    decision, door, outcomes = record.told
    assert (decision.cluster, decision.plan, door) == (made.seen[0], plan, "the door")
    assert outcomes[0] == "failed: g is not as it was"
    assert outcomes[1].startswith("not tried: ")
    assert outcomes[2] == "done"


def test_what_came_of_a_plan_stands_by_its_steps_where_some_were_not_for_now() -> None:
    """Before AWS has answered, and where the lease is lost on the way."""
    made, record = bench(GROW, END, Cordon("n", "r")), Written()
    made.loop(recorder=record).once()
    assert record.told[1] == ("not tried", "done", "not tried")


def test_a_dry_run_writes_what_it_would_do() -> None:
    """And nothing of what came of it."""
    made, record = bench(GROW), Written()
    loop = made.loop(recorder=record, dry_run=True)
    made.knows_aws()
    loop.once()
    [decision] = record.told
    assert decision.plan.steps == (GROW,)


def test_a_step_that_failed_is_tried_again_when_its_time_has_come() -> None:
    """And once it succeeds, nothing of the failure stays: the next failure waits for as short a time as the first."""
    made = bench(GROW)
    made.fakes.failures["grow"] = Unavailable("AWS does not answer")
    clock = Clock(iter(()))
    loop = made.loop(clock=clock)
    made.knows_aws()
    for _ in range(3):
        clock.at += loop._seconds_until_due(loop.once())
    made.fakes.failures.clear()
    loop.once()
    assert made.did() == ["grow"] * 4
    made.fakes.failures["grow"] = Unavailable("AWS does not answer")
    assert loop._seconds_until_due(loop.once()) <= 0.5


def test_nothing_is_bought_for_a_pod_that_the_scheduler_has_bound_since_the_plan() -> None:
    """Hundreds of nominations come before the purchase, and it goes on. The next plan buys what is needed then."""
    made = bench(GROW)
    loop = made.loop()
    made.knows_aws()
    made.store.put(PODS, ("team", "pod"), 1, a_pod(node="n"))
    loop.once()
    assert made.did() == []
    assert made.out.getvalue() == ""


def test_a_group_that_changed_is_known_at_once() -> None:
    """The next plan starts from what AWS said, not from what we thought."""
    made = bench(GROW)
    now = a_group(desired=5)
    made.fakes.failures["grow"] = autoscaling_groups.Changed("it is at 5 now", now)
    loop = made.loop()
    made.knows_aws()
    loop.once()
    assert made.store.cluster(NOW).groups == (now,)


def test_a_purchase_is_known_before_aws_tells_of_it() -> None:
    """So that the next plan, a moment later, does not buy it again."""
    made = bench(GROW)
    loop = made.loop()
    made.knows_aws()
    loop.once()
    loop.once()
    assert [cluster.groups[0].desired for cluster in made.seen] == [0, 1]


def test_without_the_lease_nothing_is_done() -> None:
    """Not even the rest of a plan that was begun with it."""
    made = bench(END, END, END)
    loop = made.loop()
    made.knows_aws()
    end_job = made.fakes.end_job

    def lose_it(namespace: str, name: str) -> None:
        end_job(namespace, name)
        made.leader.mine = False

    made.fakes.end_job = lose_it  # type: ignore[method-assign]
    loop.once()
    assert made.did() == ["end_job"]


def test_a_dry_run_only_tells() -> None:
    """One `if` around apply."""
    made = bench(GROW)
    loop = made.loop(dry_run=True)
    made.knows_aws()
    loop.once()
    assert made.did() == []
    assert "would grow" in made.out.getvalue()


def test_before_aws_has_answered_only_the_cluster_is_cared_for() -> None:
    """Nothing is bought or given back, and no pod is told to be hopeless.

    What the last replica was emptying stays closed: opened now it would be left alone for an hour, and be paid for.
    """
    lost = Waiting("team/lost", "no group", cause=IMPOSSIBLE)
    answer = SetCondition("team", "ask", "Provisioned", status=True, because="r")
    steps = BeginStep("team", "train", "r"), StopStep("team", "serve", "r"), answer
    made = bench(END, *steps, GROW, Cordon("n", "r"), Uncordon("m", "r"), waiting=[lost])
    made.loop().once()
    assert made.did() == ["end_job", "begin_step", "stop_step", "set_condition"]
    assert "team/lost" not in made.out.getvalue()


def running(loop: Loop) -> threading.Thread:
    """The loop in a thread of its own."""
    thread = threading.Thread(target=loop.run, daemon=True)
    thread.start()
    return thread


def test_it_decides_on_every_change_and_ends_when_told() -> None:
    """A burst of changes is one decision."""
    made = bench()
    loop = made.loop()
    thread = running(loop)
    until(lambda: made.seen)
    decisions = len(made.seen)
    for number in range(20):
        made.store.put(PODS, ("team", f"p{number}"), 1, a_pod(f"p{number}"))
    until(lambda: len(made.seen) > decisions and len(made.seen[-1].pods) == 20)
    assert len(made.seen) <= decisions + 3
    loop.stop()
    thread.join(timeout=10)
    assert not thread.is_alive()


def test_it_decides_again_when_time_alone_changes_the_decision() -> None:
    """An idle node's end needs no event."""
    made = Bench(plans=[Plan(wake_at=NOW + timedelta(milliseconds=80)), Plan()])
    loop = made.loop(now=lambda: NOW)
    thread = running(loop)
    until(lambda: len(made.seen) == 2)
    loop.stop()
    thread.join(timeout=10)


def turning(
    made: Bench, turns: Sequence[Callable[[], object]], *, changes: Sequence[int] = (), **more: Any
) -> list[int]:
    """Run the loop in this thread, and do one of these while it waits for each next turn.

    ``changes``: how many changes the store has told of by then. Gives how many decisions there were before each.
    """
    left, told, decisions = list(turns), list(changes), list[int]()
    loop = made.loop(**more)

    def wait(_since: int, *, seconds: float) -> int:
        assert seconds >= 0
        decisions.append(len(made.seen))
        if left:
            left.pop(0)()
        else:
            loop.stop()
        return told.pop(0) if told else 0

    made.store.wait = wait  # type: ignore[method-assign]
    loop.run()
    return decisions


def nothing() -> None:
    """Nothing happens."""


def test_it_waits_for_the_lease_and_for_the_first_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decision on half a cluster would buy for pods whose nodes are not listed yet."""
    made, lists = bench(), [False]
    made.leader.mine = False
    monkeypatch.setattr(made.store, "is_synced", lambda: lists[0])

    def acts() -> None:
        made.leader.mine = True

    def is_listed() -> None:
        lists[0] = True

    registry = CollectorRegistry()
    at = [0.0]
    report = Report(Log("text", made.out), Metrics(registry), clock=lambda: at[0])
    acting: list[float | None] = []

    def look() -> None:
        at[0] += STANDS_STILL - 1
        acting.append(registry.get_sample_value("spillway_acting"))
        assert report.why_not_alive() == "", "it turns, whether it may act or not"

    assert turning(made, [nothing, look, acts, look, is_listed, nothing], report=report) == [0, 0, 0, 0, 0, 1, 2]
    assert acting == [0, 1]


class Books:
    """A bookkeeper, as far as the loop knows one."""

    def __init__(self) -> None:
        self.did: list[str] = []

    def look(self, _cluster: Cluster, _policy: Policy) -> tuple[Pause, ...]:
        """Notes it."""
        self.did.append("look")
        return ()

    def forget(self) -> None:
        """Notes it."""
        self.did.append("forget")


def test_money_that_another_may_count_is_forgotten_with_the_lease() -> None:
    """What it has counted meanwhile is read when the lease comes back."""
    made, books = bench(), Books()
    made.knows_aws()

    def loses() -> None:
        made.leader.mine = False

    def gets_back() -> None:
        made.leader.mine = True

    turning(made, [nothing, nothing, loses, gets_back, made.knows_aws, nothing], bookkeeper=books)
    told = [one for one, before in zip(books.did, ["", *books.did], strict=False) if one != before]
    assert told == ["look", "forget", "look"]


def test_only_what_changed_is_waited_out_and_the_collector_is_spared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A burst of changes is one decision; a turn that time alone brings about is taken at once."""
    made = bench()
    settled, spared = list[dict[str, float]](), list[int]()
    monkeypatch.setattr(made.store, "settle", lambda **given: settled.append(given) or 7)
    monkeypatch.setattr(loop_module, "_spare_the_collector", lambda: spared.append(len(made.seen)))
    turning(made, [nothing] * 4, changes=[0, 5, 7, 7])
    assert settled == [{"quiet": 0.01, "at_most": 0.05}]
    assert spared == [1]


def admitting(*, failures: dict[str, Exception]) -> Bench:
    """A plan that lets a gang of two go, of which the store knows both."""
    made = bench(Admit("team/g", (("team/g-worker-0", "n"), ("team/g-worker-1", "n")), "r"))
    made.fakes.failures = failures
    loop = made.loop()
    made.knows_aws()
    made.store.put(NODES, ("", "n"), 1, an_on_prem_node("n", labels={words.HOSTNAME: "its-host"}))
    for pod in a_gang("g", 2):
        made.store.put(PODS, ("team", pod.name), 1, pod)
    loop.once()
    return made


def test_a_gang_is_pinned_by_host_name_and_uid() -> None:
    """A node's host name may differ from its name."""
    made = admitting(failures={})
    placements = made.fakes.asked[0][1]
    assert placements == {
        ("team", "g-worker-0", "uid-team-g-worker-0"): "its-host",
        ("team", "g-worker-1", "uid-team-g-worker-1"): "its-host",
    }
    assert "start team/g" in made.out.getvalue()


def test_what_has_vanished_since_the_plan_or_has_no_gate_any_more_is_not_pinned() -> None:
    """A pod, its node, or our gate: the others of the gang go."""
    steps = [(f"team/g-worker-{number}", "gone" if number == 3 else "n") for number in range(4)]
    made = bench(Admit("team/g", tuple(steps), "r"))
    loop = made.loop()
    made.knows_aws()
    made.store.put(NODES, ("", "n"), 1, an_on_prem_node("n"))
    for number, pod in enumerate(a_gang("g", 4)):
        if number:
            made.store.put(PODS, ("team", pod.name), 1, replace(pod, gates=() if number == 1 else pod.gates))
    loop.once()
    assert made.fakes.asked[0][1] == {("team", "g-worker-2", "uid-team-g-worker-2"): "n"}


def test_a_gang_is_not_pinned_where_its_room_has_gone_since_the_plan() -> None:
    """A pod that the scheduler has put there meanwhile, or one that was pinned there and is on its way."""
    there = a_pod("there", gpus=7, node="n", phase="Running")
    coming = a_pod("coming", gpus=7, admitted_to="its-host")
    for other in (there, coming):
        made = bench(Admit("team/g", (("team/g-worker-0", "n"), ("team/g-worker-1", "n")), "r"))
        loop = made.loop()
        made.knows_aws()
        made.store.put(NODES, ("", "n"), 1, an_on_prem_node("n", labels={words.HOSTNAME: "its-host"}))
        for pod in (*a_gang("g", 2, gpus=1), other):
            made.store.put(PODS, ("team", pod.name), 1, pod)
        loop.once()
        assert "node n has no room for them any more" in made.out.getvalue()
        assert not made.fakes.asked


@pytest.mark.parametrize(("gpus", "admitted"), [(4, ["one", "two"]), (5, ["one"])])
def test_gangs_are_pinned_beside_each_other_where_there_is_room_for_both(gpus: int, admitted: list[str]) -> None:
    """By one write of all pods; the second has no room where the first takes it, and fails alone."""
    made = bench(*(Admit(f"team/{name}", ((f"team/{name}-worker-0", "n"),), "r") for name in ("one", "two")))
    loop = made.loop()
    made.knows_aws()
    made.store.put(NODES, ("", "n"), 1, an_on_prem_node("n"))
    for pod in (*a_gang("one", 1, gpus=gpus), *a_gang("two", 1, gpus=gpus)):
        made.store.put(PODS, ("team", pod.name), 1, pod)
    loop.once()
    [(_, placements)] = made.fakes.asked
    assert [name.removesuffix("-worker-0") for _, name, _ in placements] == admitted
    assert made.out.getvalue().count("node n has no room for them any more") == 2 - len(admitted)


def test_a_gang_is_not_let_go_before_the_watch_has_told_of_nominations_for_its_node() -> None:
    """They keep room of which the plan did not know. Nothing is told: the next plan, a moment later, takes the step."""
    made = bench()
    admit = Admit("team/g", (("team/g-worker-0", "n"), ("team/g-worker-1", "n")), "r")
    made.plans = [Plan((Nominate((("team/p", "n"),), "r"),)), Plan((admit,)), Plan((admit,))]
    loop = made.loop()
    made.knows_aws()
    made.store.put(NODES, ("", "n"), 1, an_on_prem_node("n"))
    for pod in (*a_gang("g", 2), a_pod("p")):
        made.store.put(PODS, ("team", pod.name), 1, pod)
    loop.once()
    loop.once()
    assert made.did() == ["nominate"]
    assert "could not" not in made.out.getvalue()
    made.store.put(PODS, ("team", "p"), 2, a_pod("p", nominated="n"))
    loop.once()
    assert made.did() == ["nominate", "admit"]


def test_a_nomination_that_changes_nothing_holds_up_no_pod() -> None:
    """The watch has nothing to tell of it."""
    made = bench(Nominate((("team/p", "n"),), "r"), Admit("team/g", (("team/g-worker-0", "n"),), "r"))
    loop = made.loop()
    made.knows_aws()
    made.store.put(NODES, ("", "n"), 1, an_on_prem_node("n"))
    for pod in (*a_gang("g", 1), a_pod("p", nominated="n")):
        made.store.put(PODS, ("team", pod.name), 1, pod)
    loop.once()
    assert made.did() == ["nominate", "admit"]


def test_a_nomination_that_failed_is_tried_again() -> None:
    """Though the pod has not changed; one of a pod that has changed, when the watch tells how."""
    made = bench(Nominate((("team/p", "n"), ("team/q", "n")), "r"))
    made.fakes.failures = {"p": Unavailable("busy"), "q": client.Refused(409, "changed")}
    loop = made.loop()
    for pod in (a_pod("p"), a_pod("q")):
        made.store.put(PODS, ("team", pod.name), 1, pod)
    loop.once()
    for held in loop._held.values():
        held.until = 0
    loop.once()
    assert made.fakes.asked == [
        ("nominate", [("team/p", "n"), ("team/q", "n")]),
        ("nominate", [("team/p", "n")]),
    ]


def test_rights_that_do_not_let_us_nominate_are_told_and_no_hindrance() -> None:
    """An older release's: the next look goes on without."""
    made = bench(Nominate((("team/p", "n"),), "r"))
    made.fakes.failures = {"p": client.Refused(403, "pods/status is forbidden")}
    loop = made.loop()
    made.store.put(PODS, ("team", "p"), 1, a_pod("p"))
    loop.once()
    assert "pods/status is forbidden" in made.out.getvalue()
    assert not made.store.cluster(NOW).may_nominate


def test_a_reserved_node_gets_its_value_before_pods_are_let_in_by_it() -> None:
    """Those that are bound by now, and those whose node is gone, are left out."""
    made = bench(Reserve((("team/bound", "ip-1"), ("team/late", "gone"), ("team/p", "ip-1")), "r"))
    loop = made.loop()
    made.knows_aws()
    node = an_on_prem_node("ip-1", provider_id="aws:///us-east-1a/i-1")
    made.store.put(NODES, ("", "ip-1"), 1, node)
    for pod in (a_pod("p"), a_pod("late"), a_pod("bound", node="ip-1")):
        made.store.put(PODS, ("team", pod.name), 1, pod)
    loop.once()
    assert made.fakes.asked == [("reserve", {"ip-1": "i-1"}), ("let_in", [("team/p", "i-1")])]


def test_pods_that_are_gone_or_changed_need_not_be_let_in_and_another_failure_is_told() -> None:
    """The next plan tries those again."""
    made = bench(Reserve((("team/p", "ip-1"), ("team/q", "ip-1")), "r"))
    made.fakes.failures = {"p": client.Refused(404, "not found")}
    loop = made.loop()
    made.store.put(NODES, ("", "ip-1"), 1, an_on_prem_node("ip-1", provider_id="aws:///us-east-1a/i-1"))
    for pod in (a_pod("p"), a_pod("q")):
        made.store.put(PODS, ("team", pod.name), 1, pod)
    loop.once()
    assert "could not" not in made.out.getvalue()
    made.fakes.failures["q"] = Unavailable("busy")
    loop.once()
    assert "not all of 2 pods were let onto their nodes (team/q: busy)" in made.out.getvalue()


def test_nodes_are_opened_together_and_one_that_fails_is_told() -> None:
    """One that is gone is open enough."""
    made = bench(Unreserve(("ip-1", "ip-2", "ip-3"), "r"))
    made.fakes.failures = {"ip-2": client.Refused(404, "not found"), "ip-3": client.Refused(409, "changed")}
    made.loop().once()
    assert made.fakes.asked == [("unreserve", ("ip-1", "ip-2", "ip-3"))]
    assert "1 of 3 nodes were not opened (ip-3: changed)" in made.out.getvalue()


def test_a_pod_that_vanished_does_not_stop_its_gang() -> None:
    """Any other failure is told, and the next plan tries again."""
    assert "could not" not in admitting(failures={"g-worker-1": client.Refused(404, "gone")}).out.getvalue()
    made = admitting(failures={"g-worker-1": client.Refused(422, "invalid")})
    assert "1 of 2 pods were not admitted (team/g-worker-1: invalid)" in made.out.getvalue()


@pytest.mark.parametrize(("node", "asked"), [(None, True), ("n", False)])
def test_a_pod_is_made_anew_only_while_it_has_no_node(*, node: str | None, asked: bool) -> None:
    """By its uid, so that a successor of its name is safe."""
    made = bench(Recreate("team/p", "r"))
    loop = made.loop()
    made.knows_aws()
    made.store.put(PODS, ("team", "p"), 1, a_pod("p", node=node))
    loop.once()
    assert (("delete_unbound", "team", "p", "uid-team-p") in made.fakes.asked) == asked


def removing(**changes: Any) -> Bench:
    """A plan that gives an idle node back."""
    group = a_group(joined=2)
    (first, _) = nodes_of(group)
    made = bench(Remove(group.name, group.instances[0].id, first.name, "r"))
    made.fakes.group = group
    for key, value in changes.items():
        setattr(made.fakes, key, value)
    loop = made.loop()
    made.knows_aws(group)
    loop.once()
    return made


def pod_json(phase: str = "Running", owner: str = "Job") -> PodJson:
    """A pod on a node."""
    meta = {"name": "p", "namespace": "team", "ownerReferences": [{"kind": owner, "name": "o", "controller": True}]}
    return msgspec.convert({"metadata": meta, "status": {"phase": phase}}, PodJson)


def test_a_node_is_looked_at_once_more_before_it_goes() -> None:
    """Then its instance ends, then its node; daemons and finished pods do not hold it."""
    made = removing(on_node=(pod_json(owner="DaemonSet"), pod_json(phase="Succeeded")))
    assert made.did() == ["pods_on", "terminate", "delete_node"]
    (left,) = made.store.cluster(NOW).groups
    assert left.desired == 1
    assert sorted(one.state for one in left.instances) == ["in-service", "terminating"]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"on_node": (pod_json(),)}, "holds team/p by now"),
        ({"on_node": (pod_json(phase="Pending"),)}, "holds team/p by now"),
        ({"closed": False}, "is not closed by Spillway any more"),
    ],
)
def test_a_node_that_is_wanted_again_stays(changes: dict[str, Any], why: str) -> None:
    """Whatever came in between."""
    made = removing(**changes)
    assert "terminate" not in made.did()
    assert why in made.out.getvalue()


def test_when_aws_refuses_the_node_stays() -> None:
    """Its instance would go on running unseen."""
    made = removing(failures={"terminate": errors.Refused("ValidationError", "min size")})
    assert made.did() == ["pods_on", "terminate"]


def releasing(*, node: bool = True, **changes: Any) -> Bench:
    """A plan that lets a terminating instance go, with or without a node that stands for it."""
    group = a_group(joined=1)
    (leaving,) = nodes_of(group)
    made = bench(Release(group.name, group.instances[0].id, leaving.name if node else None, "r"))
    for key, value in changes.items():
        setattr(made.fakes, key, value)
    loop = made.loop()
    made.knows_aws(group)
    loop.once()
    return made


def test_a_terminating_instance_is_looked_at_once_more_before_it_is_let_go() -> None:
    """Then its node goes; one without a node is let go at once."""
    assert releasing(on_node=(pod_json(owner="DaemonSet"),)).did() == ["pods_on", "release", "delete_node"]
    assert releasing(node=False).did() == ["release"]


def test_an_instance_is_let_go_once_though_aws_has_not_been_asked_again() -> None:
    """The node that went with it wakes the loop first."""
    group = a_group(joined=1)
    held = replace(group.instances[0], state="terminating", held=True)
    made = bench()
    loop = made.loop(planner=plan)
    made.knows_aws(replace(group, desired=0, instances=(held,)))
    loop.once()
    loop.once()
    assert made.did() == ["release"]


@pytest.mark.parametrize(
    ("changes", "why"),
    [({"on_node": (pod_json(),)}, "holds team/p by now"), ({"closed": False}, "is not closed by Spillway any more")],
)
def test_a_terminating_instance_with_a_job_goes_on_waiting(changes: dict[str, Any], why: str) -> None:
    """As long as the hook's time allows."""
    made = releasing(**changes)
    assert "release" not in made.did()
    assert why in made.out.getvalue()


def test_pods_are_evicted_only_from_a_node_that_is_still_closed() -> None:
    """A pod that has left it meanwhile is not touched, and one that its budget keeps is told."""
    made = bench(Evict(node="n", pods=("team/a", "team/b", "team/gone"), because="r"))
    pods = [a_pod("a", node="n", phase="Running"), a_pod("b", node="elsewhere", phase="Running")]

    def turn() -> None:
        loop = made.loop()
        made.store.replace(PODS, {("team", pod.name): (1, pod) for pod in pods})
        made.knows_aws()
        loop.once()

    turn()
    assert made.fakes.asked[-1] == ("evict", ["team/a"])
    made.fakes.failures["a"] = client.Refused(429, "Cannot evict pod as it would violate the pod's disruption budget.")
    turn()
    assert "could not evict 3 pods (team/a, team/b, team/gone) from node n" in made.out.getvalue()
    assert "1 of 1 pods were not evicted (team/a: " in made.out.getvalue()
    assert "disruption budget" in made.out.getvalue()
    made.fakes.failures["gone"] = made.fakes.failures.pop("a")
    pods.append(a_pod("gone", node="n", phase="Running"))
    turn()
    assert made.fakes.asked[-1] == ("evict", ["team/a", "team/gone"])
    assert "1 of 2 pods were not evicted (team/gone: " in made.out.getvalue()
    made.fakes.closed = False
    made.fakes.asked.clear()
    turn()
    assert "evict" not in made.did()


def test_a_gang_is_evicted_to_free_its_gpus_as_a_whole_or_not_at_all() -> None:
    """Where a budget forbids to evict one of its pods, none is."""
    made = bench(FreeGpus(pods=("team/a", "team/b"), because="r"))
    pods = [a_pod(name, node="n", phase="Running") for name in ("a", "b")]
    made.fakes.failures["b"] = client.Refused(429, "Cannot evict pod as it would violate the pod's disruption budget.")
    loop = made.loop()
    made.store.replace(PODS, {("team", pod.name): (1, pod) for pod in pods})
    made.knows_aws()
    loop.once()
    assert made.fakes.asked == [("evict in a dry run", ["team/a", "team/b"])]
    assert "1 of 2 pods were not evicted (team/b: " in made.out.getvalue()
    del made.fakes.failures["b"]
    loop = made.loop()
    made.store.replace(PODS, {("team", pod.name): (1, pod) for pod in pods})
    loop.once()
    assert made.did() == ["evict in a dry run", "evict in a dry run", "budgets", "evict"]


@pytest.mark.parametrize(
    ("selector", "allowed", "goes"),
    [
        ({"matchLabels": {"job": "a"}}, 1, False),
        ({"matchLabels": {"job": "a"}}, 2, True),
        ({"matchExpressions": [{"key": "job", "operator": "Exists"}]}, 0, False),
        ({"matchLabels": {"job": "b"}}, 0, True),
        ({"matchLabels": {"task": "0"}}, 1, True),
        ({}, 1, False),
        (None, 0, True),
    ],
)
def test_a_budget_that_lets_some_of_a_gang_go_keeps_all_of_it(
    selector: dict[str, Any] | None, allowed: int, *, goes: bool
) -> None:
    """A dry run finds nothing wrong with either; a budget without a selector is of no pod, an empty one of each."""
    made = bench(FreeGpus(pods=("team/a-0", "team/a-1"), because="r"))
    pods = [a_pod(f"a-{task}", node="n", phase="Running", labels={"job": "a", "task": str(task)}) for task in (0, 1)]
    budget = {"metadata": {"name": "kept"}, "spec": {"selector": selector}, "status": {"disruptionsAllowed": allowed}}
    made.fakes.of_budgets = (msgspec.convert(budget, BudgetJson),)
    loop = made.loop()
    made.store.replace(PODS, {("team", pod.name): (1, pod) for pod in pods})
    made.knows_aws()
    loop.once()
    assert made.did() == ["evict in a dry run", "budgets"] + ["evict"] * goes
    refused = f"PodDisruptionBudget team/kept lets {allowed} of 2 pods go"
    assert (refused in made.out.getvalue()) is not goes


@pytest.mark.parametrize("joined", [True, False])
def test_an_instance_that_never_joined_ends_unless_it_just_has(joined: bool) -> None:  # noqa: FBT001 - a table
    """It has no node to look at, so the nodes are looked through for it."""
    group = a_group(joined=1)
    made = bench(Remove(group.name, group.instances[0].id, None, "r"))
    loop = made.loop()
    made.knows_aws(group)
    if joined:
        (node,) = nodes_of(group)
        made.store.put(NODES, ("", node.name), 1, node)
    loop.once()
    assert made.did() == ([] if joined else ["terminate"])


@dataclass
class Notes:
    """A memory, in the order in which it and the doors were used."""

    fakes: Fakes
    memory: Memory = field(default_factory=Memory)
    silent: bool = False

    def read(self) -> Memory:
        """What is in it."""
        self.fakes.asked.append(("read",))
        if self.silent:
            raise Unavailable("the API server does not answer")
        return self.memory

    def write(self, memory: Memory) -> None:
        """Something new."""
        self.fakes.asked.append(("write",))
        self.memory = memory


BOUGHT = Memory(assignments={"team/pod": Assignment("g+1", "g")})


def test_what_is_bought_for_which_pods_is_written_down_before_it_is_bought() -> None:
    """Killed between the two, the next one knows."""
    made = bench(GROW, memory=BOUGHT)
    notes = Notes(made.fakes)
    loop = made.loop(memory_map=notes)
    made.knows_aws()
    loop.once()
    assert made.did() == ["read", "write", "grow"]
    assert notes.memory == BOUGHT


def test_a_plan_made_before_aws_has_answered_is_not_written_down() -> None:
    """It sees nothing on its way: what was bought for whom would be lost."""
    made = bench()
    given: list[Memory] = []

    def planner(_cluster: Cluster, _policy: Policy, memory: Memory) -> Plan:
        given.append(memory)
        return Plan(memory=memory if made.store.knows_groups() else Memory())

    loop = made.loop(memory_map=Notes(made.fakes, memory=BOUGHT), planner=planner)
    loop.once()
    made.knows_aws()
    loop.once()
    assert given == [BOUGHT, BOUGHT]
    assert made.did() == ["read", "write"]


def test_the_replica_that_gets_the_lease_reads_what_the_other_wrote() -> None:
    """And who lost it reads again: another has written since. Until it can be read nothing is decided."""
    made = bench()
    notes = Notes(made.fakes, silent=True)
    loop = made.loop(memory_map=notes)
    made.knows_aws()
    thread = threading.Thread(target=loop.run)
    thread.start()
    try:
        until(made.did)
        assert made.seen == []
        notes.silent = False
        until(lambda: made.did()[-2:] == ["read", "write"])
        made.leader.mine = False
        loop._store.wake()
        until(lambda: loop._memory is None)
        reads = made.did().count("read")
        made.leader.mine = True
        until(lambda: made.did().count("read") > reads)
    finally:
        loop.stop()
        thread.join()


def test_the_replica_that_gets_the_lease_asks_aws_anew_before_anything_is_bought() -> None:
    """What the other one bought last was not seen; nor does an answer count to a question asked before."""
    made = bench(GROW)
    made.leader.mine = False
    loop = made.loop()
    made.knows_aws()
    before = time.monotonic()
    thread = running(loop)
    try:
        time.sleep(0.05)
        assert not made.motions
        made.leader.mine = True
        loop._store.wake()
        until(lambda: made.motions and made.seen)
        made.store.saw_groups((GROUP,), asked_at=before)
        time.sleep(0.05)
        assert made.did() == []
        made.knows_aws()
        until(made.did)
    finally:
        loop.stop()
        thread.join()


def test_a_defect_of_the_planner_ends_neither_the_process_nor_a_job() -> None:
    """It is told with its traceback, nothing is done, and the next turn tries again."""

    def planner(_cluster: Cluster, _policy: Policy, _memory: Memory) -> Plan:
        raise ZeroDivisionError("of everything")

    made = bench(GROW)
    loop = made.loop(planner=planner)
    made.knows_aws()
    assert loop.once().steps == ()
    assert "ZeroDivisionError: of everything" in made.out.getvalue()
    assert "Traceback" in made.out.getvalue()


def a_big_look(made: Bench, *, nodes: int) -> None:
    """What the store knows: so many machines."""
    made.store.replace(NODES, {("", f"n{number}"): (1, an_on_prem_node(f"n{number}")) for number in range(nodes)})


@pytest.mark.parametrize(("really", "acts"), [(5, True), (10, False), (None, False)], ids=["gone", "there", "unknown"])
def test_a_look_without_half_of_the_cluster_is_confirmed_before_it_is_acted_on(
    *, really: int | None, acts: bool
) -> None:
    """By a list that does not come from the watch; where that fails, it is not confirmed."""
    made = bench(GROW)

    def confirm() -> Counts:
        if really is None:
            raise Unavailable("the API server does not answer")
        return Counts(nodes=really, instances=0, busy=0)

    loop = made.loop(confirm=confirm)
    made.knows_aws()
    a_big_look(made, nodes=10)
    loop.once()
    a_big_look(made, nodes=5)
    before = len(made.did())
    plan = loop.once()
    assert (len(made.did()) > before) == acts
    assert bool(plan.warnings) != acts
    if not acts:
        assert "half of the cluster or more seems gone or idle (10 nodes before, 5 now)" in plan.warnings[0]
        a_big_look(made, nodes=9)
        assert loop.once().warnings == ()


@pytest.mark.parametrize(("really", "acts"), [(0, True), (8, False)], ids=["ended", "running"])
def test_a_look_in_which_half_of_the_nodes_fell_idle_is_confirmed(*, really: int, acts: bool) -> None:
    """A list of pods that came back empty would else close nodes on which jobs run; one that ended is acted on."""
    made = bench(GROW)
    loop = made.loop(confirm=lambda: Counts(nodes=8, instances=0, busy=really))
    made.knows_aws()
    a_big_look(made, nodes=8)
    pods = {("team", f"p{number}"): (1, a_pod(f"p{number}", node=f"n{number}")) for number in range(8)}
    made.store.replace(PODS, pods)
    assert loop.once().warnings == ()
    made.store.replace(PODS, {})
    before = len(made.did())
    plan = loop.once()
    assert (len(made.did()) > before) == acts
    if not acts:
        assert "seems gone or idle (8 nodes with pods before, 0 now)" in plan.warnings[0]
        made.store.replace(PODS, pods)
        assert loop.once().warnings == ()


def test_a_process_that_lost_its_lease_while_it_stood_still_writes_nothing() -> None:
    """Asked immediately before each write, at both doors."""
    kept = Writes(FakeApi(), may_write=lambda: False)  # type: ignore[arg-type]
    with pytest.raises(client.Refused, match="another autoscaler may act by now"):
        kept.delete_node("n", uid="u")


def test_gpus_are_freed_of_those_pods_that_are_there_still() -> None:
    """Wherever they run by now."""
    made = bench(FreeGpus(pods=("team/a", "team/gone"), because="r"))
    loop = made.loop()
    made.store.replace(PODS, {("team", "a"): (1, a_pod("a", node="n", phase="Running"))})
    made.knows_aws()
    loop.once()
    assert made.fakes.asked[-1] == ("evict", ["team/a"])


class Heard:
    """Any listener: remembers what it was told, and answers with nothing."""

    def __init__(self) -> None:
        self.told: list[tuple[str, object]] = []

    def __getattr__(self, name: str) -> Callable[..., tuple[()]]:
        """Whatever is called."""

        def call(first: object = None, *_more: object) -> tuple[()]:
            self.told.append((name, first))
            return ()

        return call


@pytest.mark.parametrize("dry", [False, True])
def test_who_owns_pods_is_told_by_events_unless_nothing_is_to_be_done(*, dry: bool) -> None:
    """Of idle GPUs, of what waits in vain, and of pods whose fields are not understood."""
    waits, idle, heard = Waiting("team/pod", "r"), {"team/pod": "holds a GPU and does not use it"}, Heard()
    made = bench(waiting=[waits], idle_gpus=idle)
    loop = made.loop(messenger=heard, dry_run=dry)
    pod = a_pod()
    made.store.replace(PODS, {("team", pod.name): (1, pod)})
    made.knows_aws()
    loop.once()
    told = [("idle_gpus", idle), ("hopeless", (waits,)), ("unread", pod_index_of([pod]).unbound)]
    assert heard.told == ([] if dry else told)


def test_groups_are_compared_with_the_policy_once_aws_has_answered() -> None:
    """So that what an edit leaves to build is told."""
    made, heard = bench(), Heard()
    policies = OnePolicy(a_policy())
    heard.current, heard.refresh = policies.current, policies.refresh  # type: ignore[attr-defined]
    loop = made.loop(policies=heard)
    loop.once()
    assert heard.told == []
    made.knows_aws()
    loop.once()
    assert heard.told == [("compare", made.seen[-1].groups)]
