"""What a purchase must cost at least, beside machines that stand."""

from __future__ import annotations

import pytest

from autoscaler.model.actions import Memory
from autoscaler.planner.plan import plan
from tests.builders import a_cluster, a_pod, a_policy, an_on_prem_node

A10G = 5.672
"""Dollars per hour of four GPUs."""


@pytest.mark.parametrize(("pods", "bound"), [(1, 0.0), (2, A10G / 2), (3, 1.5 * A10G)])
def test_what_is_free_counts_as_one_machine_that_pods_may_be_cut_in_pieces_for(pods: int, bound: float) -> None:
    """Two machines have three GPUs each, of which no pod of four has any use: six, of all that are asked for."""
    machines = [an_on_prem_node(name, gpus=3) for name in ("a", "b")]
    decided = plan(a_cluster(pods=[a_pod(f"p{n}", gpus=4) for n in range(pods)], nodes=machines), a_policy(), Memory())
    assert decided.usd_per_hour == pytest.approx(pods * A10G)
    assert decided.lower_bound_usd_per_hour == pytest.approx(bound, abs=1e-3)
