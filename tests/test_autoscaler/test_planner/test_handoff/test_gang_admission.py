"""Of a gang that has its places: which of its pods do not go there now, why, and by which cause they are counted."""

from __future__ import annotations

import pytest

from autoscaler.model.actions import BUSY, STARTING, Admit, Memory
from autoscaler.planner.plan import plan
from tests.builders import a_cluster, a_gang, a_policy, an_on_prem_node


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


@pytest.mark.parametrize(("machines", "said"), [(4, "m0, m1, m2, m3"), (6, "m0, m1, m2, m3 and 2 more")])
def test_of_the_nodes_of_a_gang_that_starts_four_are_named(machines: int, said: str) -> None:
    """And the others counted: a line holds no hundred names."""
    nodes = [an_on_prem_node(f"m{number}") for number in range(machines)]
    decided = plan(a_cluster(pods=a_gang(pods=machines, gpus=8), nodes=nodes, groups=[]), a_policy(), Memory())
    [start] = [step for step in decided.steps if isinstance(step, Admit)]
    assert start.because == f"all of {machines} waiting pods of gang team/mnist have a place on {said}"
