"""Whether a gang waits for machines that we own, and why nothing is bought for it whatever it lacks."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from autoscaler.config.policy import Waiting as WaitingPolicy
from autoscaler.model.actions import BUSY, PATIENCE, PAUSED
from autoscaler.model.cluster import FOREVER, Pod
from autoscaler.model.needed_changes import TIME_COMES
from autoscaler.model.pauses import BUDGET, Pause
from autoscaler.planner.admission.demands import demand_of
from autoscaler.planner.admission.wait_or_buy import Patience, Wait
from autoscaler.planner.demand.gangs import Gang, gangs_of
from autoscaler.planner.placement.snapshot import Snapshot
from autoscaler.planner.supply.fleet import survey
from tests.builders import NOW, a_cluster, a_gang, a_group, a_pod, a_policy, an_on_prem_node, later, nodes_of

HOUR = timedelta(hours=1)


class Asked:
    """Patience for the gangs of these pods, on one machine of eight GPUs if not said."""

    def __init__(self, *pods: Pod, unbought: Any = None, pauses: Any = (), nodes: Any = None, **waiting: Any) -> None:
        nodes = [an_on_prem_node()] if nodes is None else nodes
        cluster = a_cluster(pods=pods, nodes=nodes, groups=(a_group(joined=1),), pauses=pauses)
        policy = a_policy().model_copy(update={"waiting": WaitingPolicy(**{"patience": HOUR} | waiting)})
        fleet = survey(cluster, policy, {})
        self.gangs = {gang.name.removeprefix("team/"): gang for gang in gangs_of(pods)}
        self.snapshot = Snapshot(fleet.places, pods, [pod for gang in self.gangs.values() for pod in gang.waiting])
        self.patience = Patience(cluster, policy, fleet, self.snapshot, unbought=unbought or {})

    def gang(self, name: str = "gang") -> Gang:
        """That waits."""
        return self.gangs[name]

    def wait(self, name: str = "gang", usd: float = 10.0, **changes: Any) -> Wait | None:
        """What is decided, where buying costs so much an hour."""
        gang = self.gang(name)
        demand = replace(demand_of(gang, self.snapshot), **changes)
        return self.patience.wait(gang, demand, usd_per_hour=usd)


def busy(minutes: float | None = 10, gpus: int = 8, **given: Any) -> Pod:
    """A pod on our machine that says that it ends so soon, or not."""
    ends = None if minutes is None else timedelta(minutes=minutes)
    return a_pod(
        given.pop("name", "busy"),
        **{"gpus": gpus, "node": "dgx-01", "phase": "Running", "started": NOW, "duration": ends} | given,
    )


def gang(name: str = "gang", pods: int = 1, **given: Any) -> tuple[Pod, ...]:
    """One pod of eight GPUs that has come now."""
    return a_gang(name, pods, **{"gpus": 8, "created": NOW} | given)


def test_a_gang_may_wait_as_long_as_its_most_patient_pod_says_else_as_the_policy_does() -> None:
    """One that runs and lacks a pod never waits."""
    own = [replace(pod, patience=span) for pod, span in zip(gang(pods=3), (HOUR / 2, 2 * HOUR, None), strict=True)]
    assert Asked(*own).patience.of(Asked(*own).gang()) == 2 * HOUR
    plain = Asked(*gang())
    assert (plain.patience.of(plain.gang()), plain.patience.now) == (HOUR, NOW)
    first, second = gang(pods=2)
    runs = Asked(replace(first, node="dgx-01", phase="Running", gates=()), second)
    assert runs.patience.of(runs.gang()) == timedelta(0)


def test_nothing_is_bought_for_a_gang_that_may_not_be_bought_for_or_whose_namespace_has_spent_its_budget() -> None:
    """By which name that is; others may be bought for."""
    budget = Pause(f"{BUDGET}.namespace/team", because="spent")
    assert budget.namespace == "team"
    named = Asked(*gang(), unbought={"team/gang": "not now"}, pauses=(budget,))
    assert named.patience.ban(named.gang()) == "team/gang"
    assert named.wait() == Wait("not now", cause=BUSY)
    spent = Asked(*gang(), pauses=(budget,))
    assert spent.patience.ban(spent.gang()) == budget.scope
    said = spent.wait(usd=12.345)
    assert said is not None
    assert (said.because, said.cause) == (f"buying for it would cost 12.35 $/h, but {budget}", PAUSED)
    assert [(one.kind, one.other, one.note) for one in said.changes] == [("other", TIME_COMES, budget.ends_if)]
    for_ever = Asked(*gang(patience=FOREVER))
    assert for_ever.patience.ban(for_ever.gang()) == "team/gang"
    told = for_ever.wait()
    assert told is not None
    assert (told.because.partition(",")[0], told.cause) == ("waits until there is room for all of it", PATIENCE)
    free = Asked(*gang(), pauses=(Pause(f"{BUDGET}.namespace/other"), Pause(BUDGET)))
    assert free.patience.ban(free.gang()) == ""


def test_a_gang_waits_for_what_is_expected_to_end_in_time() -> None:
    """It is looked at again then, and when its patience ends."""
    said = Asked(busy(), *gang()).wait()
    assert said is not None
    assert said.looks == (later(minutes=10), later(hours=1))
    assert "expected at 2026-11-21 09:10:00 UTC (its patience ends at 2026-11-21 10:00:00 UTC)" in said.because
    assert said.because.endswith("; buying for it would cost 10.00 $/h")
    assert Asked(busy(60), *gang()).wait() is not None
    assert Asked(busy(61), *gang()).wait() is None
    assert Asked(busy(None), *gang()).wait() is None
    assert Asked(busy(started=None), *gang()).wait() is not None


@pytest.mark.parametrize(
    ("pods", "given", "asked"),
    [
        ((busy(), *gang(created=later(hours=-1))), {}, {}),
        ((busy(), *gang()), {}, {"topology": "zone"}),
        ((busy(), *gang()), {"nodes": nodes_of(a_group(joined=1))}, {}),
        ((busy(gpus=0), *gang()), {}, {}),
        ((busy(), *gang()), {"least_usd": 10.1}, {}),
        ((busy(), *gang()), {"usd_per_hour": 60.0}, {}),
    ],
    ids=["no patience left", "a topology", "no machine", "fits now", "little to save", "as dear to wait"],
)
def test_nothing_is_waited_for_where_that_helps_little(
    pods: tuple[Pod, ...], given: dict[str, Any], asked: dict[str, Any]
) -> None:
    """A gang that would fit now is held by a rule that no forecast knows."""
    assert Asked(*pods, **given).wait(**asked) is None


def test_what_one_gang_waits_for_no_other_does_until_they_are_asked_anew() -> None:
    """Unless the first says when it ends."""
    asked = Asked(busy(), *gang(), *gang("other"))
    assert asked.wait() is not None
    assert asked.wait("other") is None
    asked.patience.forget()
    assert asked.wait("other") is not None
    short = Asked(busy(), *gang(duration=timedelta(minutes=20)), *gang("other"))
    assert short.wait(usd=30.0) is not None
    said = short.wait("other", usd=10.0)
    assert said is not None
    assert said.looks[0] == later(minutes=30)
    half = [replace(pod, duration=span) for pod, span in zip(gang(pods=2, gpus=4), (HOUR / 3, None), strict=True)]
    unsaid = Asked(busy(), *half, *gang("other"))
    assert unsaid.wait() is not None
    assert unsaid.wait("other") is None


def test_only_machines_that_let_a_pod_in_are_waited_for() -> None:
    """By their labels, among others."""
    nodes = [an_on_prem_node(labels={"disk": "hdd"}), an_on_prem_node("dgx-02", labels={"disk": "ssd"})]
    pods = [busy(), busy(20, name="later", node="dgx-02"), *gang(selector={"disk": "ssd"})]
    said = Asked(*pods, nodes=nodes).wait()
    assert said is not None
    assert said.looks[0] == later(minutes=20)
