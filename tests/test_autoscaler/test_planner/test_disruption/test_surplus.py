"""A limit that was lowered below what runs is told, and honoured as nodes become idle."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.config.policy import Policy
from autoscaler.model.actions import Cordon, Grow, Memory, Plan, Remove
from autoscaler.model.cluster import Group, Node, Notice, Pod
from autoscaler.model.pauses import Pause
from autoscaler.planner.disruption.surplus import surplus
from autoscaler.planner.plan import plan
from autoscaler.planner.supply.fleet import survey
from tests.builders import a_cluster, a_group, a_pod, a_policy, an_entry, later, nodes_of
from tests.test_autoscaler.test_planner.test_disruption.test_scale_down import OURS


def three(**cordon: Any) -> tuple[Group, tuple[Node, ...]]:
    """A group of three nodes, and a pod's worth of time after them."""
    group = a_group(joined=3)
    return group, nodes_of(group, **cordon)


def running(node: Node, name: str = "pod") -> Pod:
    """A pod there."""
    return a_pod(name, gpus=1, node=node.name, phase="Running")


def decide(policy: Policy, group: Group, nodes: tuple[Node, ...], *pods: Pod) -> Plan:
    """The plan."""
    return plan(a_cluster(pods=pods, nodes=nodes, groups=[group], seen_at=later(seconds=1)), policy, Memory())


LOWERED = [
    {"limits": {"nodes": 1}},
    {"limits": {"gpus": 8}},
    {"limits": {"usd_per_hour": a_group().usd_per_hour}},
]


@pytest.mark.parametrize("lowered", LOWERED, ids=["nodes", "gpus", "dollars"])
def test_idle_nodes_above_a_lowered_limit_go_at_once_and_one_stays(lowered: dict[str, Any]) -> None:
    """They are cordoned in one look and terminated in the next, whatever their idle time; it is told."""
    policy = a_policy(**lowered)
    group, nodes = three()
    first = decide(policy, group, nodes)
    above = [step.node for step in first.steps if isinstance(step, Cordon) and "goes at once" in step.because]
    assert len(above) == 2
    assert "are terminated as soon as no pod is on them" in first.warnings[0]
    group, nodes = three(**OURS)
    gone = [step for step in decide(policy, group, nodes).steps if isinstance(step, Remove)]
    assert len(gone) == 2
    assert all("above a limit" in step.because for step in gone)


@pytest.mark.parametrize("kind", ["interruption", "rebalance"])
@pytest.mark.parametrize(
    ("given", "gone"),
    [({}, [0]), ({"busy": True}, [1, 2]), ({"paused": True}, []), ({"minimum": 2}, [0]), ({"closed": True}, [1])],
    ids=["empty", "a pod is on it", "paused", "at the minimum", "closed by another"],
)
def test_an_empty_node_that_ec2_takes_back_is_one_of_those_above_the_limit(
    kind: Any, given: dict[str, Any], gone: list[int]
) -> None:
    """No other goes in its place; while a pod is on it, others go."""
    group = a_group(joined=3, minimum=given.get("minimum", 0))
    nodes = list(nodes_of(group, **OURS))
    nodes[0] = replace(nodes[0], cordoned_by="ada") if given.get("closed") else nodes[0]
    ends = later(hours=1) if kind == "interruption" else None
    look = a_cluster(
        pods=[running(nodes[0])] if given.get("busy") else [],
        nodes=nodes,
        groups=[group],
        notices=(Notice(group.instances[0].id, kind, later(), ends),),
        pauses=(Pause("group.gpu-a100"),) if given.get("paused") else (),
        seen_at=later(seconds=1),
    )
    limit = 2 if not given.get("busy") else 1
    steps = plan(look, a_policy(limits={"nodes": limit}), Memory()).steps
    assert [step.node for step in steps if isinstance(step, Remove)] == [nodes[number].name for number in gone]


def test_nodes_without_a_price_do_not_go_for_a_limit_in_dollars() -> None:
    """It would not bring it nearer: those that cost money go."""
    free, paid = a_group("cpu", joined=2, usd_per_hour=0.0), a_group(joined=2)
    nodes = (*nodes_of(free), *nodes_of(paid))
    policy = a_policy(an_entry("cpu"), an_entry(), limits={"usd_per_hour": 0.1})
    decided = plan(a_cluster(nodes=nodes, groups=[free, paid], seen_at=later(seconds=1)), policy, Memory())
    gone = {step.node for step in decided.steps if isinstance(step, Cordon) and "goes at once" in step.because}
    assert gone == {node.name for node in nodes_of(paid)}


def test_a_lowered_maximum_of_an_entry_counts_too() -> None:
    """It is the entry's, over its zones."""
    group, nodes = three()
    decided = decide(a_policy(an_entry(max=1)), group, nodes)
    assert "max of group gpu-a100 is 1" in decided.warnings[0]
    assert sum("goes at once" in step.because for step in decided.steps) == 2


def test_what_runs_is_not_ended_and_nothing_is_bought() -> None:
    """All three are busy; a pod that waits is told, and gets no node."""
    group, nodes = three()
    pods = [running(node, f"p{number}") for number, node in enumerate(nodes)]
    decided = decide(a_policy(limits={"nodes": 1}), group, nodes, *pods, a_pod("more", gpus=8))
    assert not [step for step in decided.steps if isinstance(step, (Grow, Remove, Cordon))]
    assert decided.warnings


def test_a_surplus_node_is_not_filled_again() -> None:
    """Else a busy cluster would never come down to its limit."""
    group, nodes = three()
    decided = decide(a_policy(limits={"nodes": 1}), group, nodes, a_pod("a", gpus=8), a_pod("b", gpus=8))
    assert len([step for step in decided.steps if isinstance(step, Cordon)]) == 2
    assert [one.pod for one in decided.waiting] != []


@given(
    busy=st.lists(st.booleans(), min_size=1, max_size=6),
    limit=st.integers(0, 6),
    minimum=st.integers(0, 2),
)
def test_no_more_goes_than_brings_the_limit_back(busy: list[bool], limit: int, minimum: int) -> None:
    """Never a busy node, never below the group's minimum, never one too many; enough where there are idle ones."""
    group = a_group(joined=len(busy), minimum=minimum)
    nodes = nodes_of(group)
    pods = [
        running(node, f"p{number}") for number, (node, is_busy) in enumerate(zip(nodes, busy, strict=True)) if is_busy
    ]
    cluster, policy = a_cluster(pods=pods, nodes=nodes, groups=[group]), a_policy(limits={"nodes": limit})
    found = surplus(cluster, policy, survey(cluster, policy, {}))
    idle = {node.name for node, is_busy in zip(nodes, busy, strict=True) if not is_busy}
    assert found.nodes <= idle
    wanted = max(0, len(busy) - limit)
    assert len(found.nodes) == min(wanted, len(idle), max(0, len(busy) - minimum))
    assert bool(found.warnings) == (wanted > 0)


@pytest.mark.parametrize(
    ("given", "limit"),
    [
        ({"limits": {"nodes": 3}}, ""),
        ({"limits": {"gpus": 24}}, ""),
        ({"limits": {"usd_per_hour": 3 * a_group().usd_per_hour}}, ""),
        ({"limits": {"nodes": 2}}, "limits.nodes is 2, and 3 nodes run"),
        ({"limits": {"gpus": 20}}, "limits.gpus is 20, and 24 GPUs run"),
        ({"limits": {"usd_per_hour": 60}}, "limits.usd_per_hour is 60 $/h, and 65.8729 $/h run"),
    ],
)
@pytest.mark.parametrize(("most", "of_entry"), [(3, ""), (2, "max of group gpu-a100 is 2, and 3 nodes run")])
def test_a_limit_is_told_where_more_runs_and_not_where_it_is_reached(
    given: dict[str, Any], limit: str, most: int, of_entry: str
) -> None:
    """Each of its own."""
    group, nodes = three()
    policy = a_policy(an_entry("gpu-a100", max=most), **given)
    cluster = a_cluster(nodes=nodes, groups=[group])
    told = surplus(cluster, policy, survey(cluster, policy, {})).warnings
    assert [one.partition(" or were")[0] for one in told] == [one for one in (limit, of_entry) if one]
