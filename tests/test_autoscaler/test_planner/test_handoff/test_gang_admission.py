"""Of a gang that has its places: which of its pods do not go there now, why, and by which cause they are counted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autoscaler.model import labels as words
from autoscaler.model.actions import BUSY, STARTING, Admit, Memory
from autoscaler.planner.plan import plan
from tests.builders import NOW, a_cluster, a_gang, a_group, a_policy, an_on_prem_node, nodes_of


def test_a_pod_without_a_place_is_counted_as_waiting_for_work_to_end() -> None:
    """Its gang runs with fewer: nothing may be bought for it, and no node of it is on its way."""
    gang = a_gang(pods=2, gpus=8, size=2, minimum=1)
    look = a_cluster(pods=gang, nodes=[an_on_prem_node()], groups=[])
    told = {one.pod: (one.because, one.cause) for one in plan(look, a_policy(), Memory()).waiting}
    assert list(told.values()) == [("gang team/mnist runs with fewer pods; nothing is free for this one", BUSY)]


def test_a_pod_whose_node_is_on_its_way_is_counted_as_starting() -> None:
    """It is bought for it."""
    told = plan(a_cluster(pods=a_gang(pods=2, gpus=8)), a_policy(), Memory()).waiting
    assert {one.cause for one in told} == {STARTING}
    assert all("is asked of EC2 for it" in one.because for one in told)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"ready": False}, "its node {node} has joined and is not ready yet"),
        (
            {"cordoned": True, "cordoned_by": words.AUTOSCALER, "cordoned_at": NOW},
            "its node {node} is about to be uncordoned",
        ),
        (None, "its node is on its way: p4d.24xlarge in us-east-1a (group gpu-a100)"),
    ],
)
def test_how_far_the_node_of_a_pod_is_on_its_way_is_told(given: dict[str, Any] | None, said: str) -> None:
    """Of a group of EC2: launched, joined, or closed by us and wanted again."""
    group = a_group(joined=1)
    (node,) = nodes_of(group, **given or {})
    look = a_cluster(pods=a_gang(pods=1, gpus=8), nodes=[node] if given else [], groups=[group])
    (told,) = plan(look, a_policy(), Memory()).waiting
    assert (told.because, told.cause) == (said.format(node=node.name), STARTING)


@pytest.mark.parametrize(("machines", "said"), [(4, "m0, m1, m2, m3"), (6, "m0, m1, m2, m3 and 2 more")])
def test_of_the_nodes_of_a_gang_that_starts_four_are_named(machines: int, said: str) -> None:
    """And the others counted: a line holds no hundred names."""
    nodes = [an_on_prem_node(f"m{number}") for number in range(machines)]
    decided = plan(a_cluster(pods=a_gang(pods=machines, gpus=8), nodes=nodes, groups=[]), a_policy(), Memory())
    [start] = [step for step in decided.steps if isinstance(step, Admit)]
    assert start.because == f"all of {machines} waiting pods of gang team/mnist have a place on {said}"


def test_of_the_pods_of_a_gang_those_behind_our_gate_are_started() -> None:
    """Another one is the scheduler's already, which puts it where it likes."""
    first, second = a_gang(pods=2, gpus=2)
    decided = plan(
        a_cluster(
            pods=[replace(first, nominated="m0"), replace(second, gates=())], nodes=[an_on_prem_node("m0")], groups=[]
        ),
        a_policy(),
        Memory(),
    )
    [start] = [step for step in decided.steps if isinstance(step, Admit)]
    assert start.placements == ((first.key, "m0"),)
