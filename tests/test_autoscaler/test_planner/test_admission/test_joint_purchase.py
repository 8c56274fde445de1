"""What is bought for gangs together costs the least that there is: beside machines that stand, by zone and apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from autoscaler.config.policy import Limits
from autoscaler.model.actions import Memory
from autoscaler.model.cluster import Node, Pod
from autoscaler.model.constraints import PodTerm, Requirement
from autoscaler.model.labels import GPU, HOSTNAME, ZONE
from autoscaler.model.resources import CPU, Resources
from autoscaler.planner.cutting_stock.cutting_plan import PartialPurchase
from autoscaler.planner.cutting_stock.cutting_problem import CuttingProblem
from autoscaler.planner.plan import plan
from tests import examples
from tests.builders import TOLERATES_GPU, ZONES, a_cluster, a_gang, a_group, a_pod, a_policy, an_entry, an_on_prem_node

KINDS = (("cpu", 16, 0, 0.5), ("one", 8, 1, 0.8), ("four", 32, 4, 2.9), ("eight", 64, 8, 5.0))
"""(name, CPUs, GPUs, dollars per hour)"""
GROUPS = [
    replace(
        a_group(name, zone, taints=(), maximum=100),
        allocatable=Resources.parse({"cpu": cpus, "memory": "1Ti", "pods": 110, GPU: gpus}),
        usd_per_hour=usd * dearer,
    )
    for zone, dearer in zip(ZONES, (1.0, 1.02), strict=True)
    for name, cpus, gpus, usd in KINDS
]
POLICY = a_policy(*(an_entry(name, max=100) for name, *_ in KINDS))
APART = (Requirement("app", "In", ("apart",)),)
RULES: tuple[dict[str, Any], ...] = (
    {},
    {"affinity": ((Requirement(ZONE, "In", (ZONES[1],)),),)},
    {"labels": {"app": "apart"}, "apart_from": (PodTerm(HOSTNAME, APART, frozenset({"team"})),)},
)
"""Whether pods go anywhere, to the second zone, or not beside others that keep apart."""


@st.composite
def pending(draw: st.DrawFn) -> list[Pod]:
    """At most six pods of at most four gangs."""
    pods: list[Pod] = []
    for number in range(draw(st.integers(1, 4))):
        pods += a_gang(
            f"g{number}",
            draw(st.integers(1, 3)),
            gpus=draw(st.sampled_from((0, 0, 1, 2, 4))),
            cpu=draw(st.sampled_from((1, 5, 9, 14))),
            tolerations=(TOLERATES_GPU,),
            **draw(st.sampled_from(RULES)),
        )
        if len(pods) >= 4:
            break
    return pods[:6]


@st.composite
def standing(draw: st.DrawFn) -> list[tuple[Node, Pod | None]]:
    """At most two machines, on some of which a pod runs that keeps apart."""
    found: list[tuple[Node, Pod | None]] = []
    for number in range(draw(st.integers(0, 2))):
        cpu, gpus = draw(st.sampled_from([(9, 0), (16, 2), (14, 4)]))
        node = an_on_prem_node(f"dgx-{number}", cpu=cpu, gpus=gpus)
        runs = a_pod(f"runs-{number}", node=node.name, phase="Running", **RULES[2]) if draw(st.booleans()) else None
        found.append((node, runs))
    return found


def least(pods: Sequence[Pod], machines: Sequence[tuple[Node, Pod | None]]) -> float:
    """Dollars per hour of the cheapest nodes for what machines of ours leave, by trying all ways."""

    @cache
    def usd(group: frozenset[int]) -> float:
        """On nodes that are bought."""
        if not group:
            return 0.0
        first, *others = sorted(group)
        best = float("inf")
        for flags in product((False, True), repeat=len(others)):
            beside = [pods[first], *(pods[one] for one, taken in zip(others, flags, strict=True) if taken)]
            price = min((one.usd_per_hour for one in GROUPS if _holds(beside, one.allocatable, one.zone)), default=None)
            if price is not None:
                rest = frozenset(one for one, taken in zip(others, flags, strict=True) if not taken)
                best = min(best, price + usd(rest))
        return best

    found = float("inf")
    for homes in product(range(len(machines) + 1), repeat=len(pods)):
        on = [[pods[n] for n, home in enumerate(homes) if home == number] for number in range(len(machines))]
        on = [[*some, *([runs] if runs else [])] for some, (_, runs) in zip(on, machines, strict=True)]
        if all(_holds(some, node.allocatable, "") for some, (node, _) in zip(on, machines, strict=True)):
            found = min(found, usd(frozenset(n for n, home in enumerate(homes) if home == len(machines))))
    return found


def _holds(pods: Sequence[Pod], room: Resources, zone: str) -> bool:
    asked = [sum(pod.requests.get(name, 0) for pod in pods) for name in (CPU, GPU)]
    if any(amount > room.get(name, 0) for name, amount in zip((CPU, GPU), asked, strict=True)):
        return False
    return sum(bool(pod.apart_from) for pod in pods) <= 1 and not any(pod.affinity and zone != ZONES[1] for pod in pods)


@settings(deadline=None, max_examples=examples(150))
@given(pods=pending(), machines=standing())
def test_a_plan_for_few_pods_costs_the_least_that_there_is(
    pods: list[Pod], machines: list[tuple[Node, Pod | None]]
) -> None:
    """Compared with all ways to share out what stands and what may be bought; those that keep apart do."""
    running = [runs for _, runs in machines if runs is not None]
    cluster = a_cluster(pods=[*pods, *running], nodes=[node for node, _ in machines], groups=GROUPS)
    decided, fewest = plan(cluster, POLICY, Memory()), least(pods, machines)
    homes = [decided.memory.assignments[pod.key].node for pod in pods if pod.apart_from]
    homes += [runs.node or "" for runs in running]
    assert len(set(homes)) == len(homes)
    assert decided.lower_bound_usd_per_hour <= fewest + 1e-6
    assert decided.usd_per_hour == pytest.approx(fewest, abs=1e-6)


@settings(deadline=None, max_examples=examples(150))
@given(pods=pending(), machines=standing())
@example(
    pods=[*a_gang("a", 1, cpu=14, tolerations=(TOLERATES_GPU,)), *a_gang("b", 1, cpu=1, gpus=4)],
    machines=[(an_on_prem_node("dgx-0", cpu=14, gpus=4), None)],
)
@example(
    pods=[*a_gang("a", 1, cpu=1, tolerations=(TOLERATES_GPU,)), *a_gang("b", 2, cpu=9, tolerations=(TOLERATES_GPU,))],
    machines=[(an_on_prem_node("dgx-0", cpu=9, gpus=0), None), (an_on_prem_node("dgx-1", cpu=16, gpus=2), None)],
)
def test_few_pods_are_served_where_a_limit_leaves_just_enough_dollars_for_all(
    pods: list[Pod], machines: list[tuple[Node, Pod | None]]
) -> None:
    """The first in line do not strand a machine for those behind them, for which too little is left then."""
    limits = Limits(usd_per_hour=round(least(pods, machines) + 0.001, 3))
    running = [runs for _, runs in machines if runs is not None]
    cluster = a_cluster(pods=[*pods, *running], nodes=[node for node, _ in machines], groups=GROUPS)
    decided = plan(cluster, POLICY.model_copy(update={"limits": limits}), Memory())
    assert {pod.key for pod in pods} == decided.memory.assignments.keys()


def test_within_limits_machines_are_filled_first_where_one_problem_with_the_purchase_finds_less(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One node may be bought: a large one has room for all that a machine leaves, and that is found without it."""

    def searched(self: CuttingProblem, *args: Any, **kwargs: Any) -> PartialPurchase | None:
        return None if self.free else solved(self, *args, **kwargs)

    solved = CuttingProblem.solved
    monkeypatch.setattr(CuttingProblem, "solved", searched)
    pods = [pod for number in range(10) for pod in a_gang(f"g{number}", 1, gpus=1, tolerations=(TOLERATES_GPU,))]
    cluster = a_cluster(pods=pods, nodes=[an_on_prem_node("dgx-0", gpus=1)], groups=GROUPS)
    decided = plan(cluster, POLICY.model_copy(update={"limits": Limits(nodes=1)}), Memory())
    assert len(decided.memory.assignments) == 9
    assert decided.usd_per_hour == pytest.approx(5.0)
