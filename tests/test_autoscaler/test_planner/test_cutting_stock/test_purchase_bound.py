"""What a purchase must cost at least, beside machines that stand."""

from __future__ import annotations

import pytest

from autoscaler.model.actions import Memory
from autoscaler.model.labels import ZONE
from autoscaler.planner.plan import plan
from tests.builders import a_cluster, a_gang, a_policy, an_on_prem_node

A10G = 5.672
"""Dollars per hour of four GPUs."""


MACHINES = [an_on_prem_node(name, gpus=3) for name in ("a", "b")]
"""Three GPUs each, of which no pod of four has any use."""


@pytest.mark.parametrize(("gangs", "bound"), [(1, 0.0), (2, A10G / 2), (3, 1.5 * A10G)])
def test_what_is_free_counts_as_one_machine_that_pods_may_be_cut_in_pieces_for(gangs: int, bound: float) -> None:
    """Of gangs that are bought for in turn: six GPUs of all that are asked for."""
    pods = [pod for n in range(gangs) for pod in a_gang(f"g{n}", 1, gpus=4, topology=ZONE)]
    decided = plan(a_cluster(pods=pods, nodes=MACHINES), a_policy(), Memory())
    assert decided.usd_per_hour == pytest.approx(gangs * A10G)
    assert decided.lower_bound_usd_per_hour == pytest.approx(bound, abs=1e-3)


def test_what_a_joint_purchase_has_proven_holds_for_more_than_it() -> None:
    """Three gangs that are bought for together are proven to cost that; a fourth one in turn makes it no less."""
    pods = [pod for n in range(3) for pod in a_gang(f"g{n}", 1, gpus=4)]
    decided = plan(a_cluster(pods=pods, nodes=MACHINES), a_policy(), Memory())
    assert decided.usd_per_hour == decided.lower_bound_usd_per_hour == pytest.approx(3 * A10G)
    fourth = a_gang("fourth", 1, gpus=4, topology=ZONE)
    decided = plan(a_cluster(pods=[*pods, *fourth], nodes=MACHINES), a_policy(), Memory())
    assert decided.usd_per_hour == pytest.approx(4 * A10G)
    assert decided.lower_bound_usd_per_hour == pytest.approx(3 * A10G)
    others = [pod for n in range(4) for pod in a_gang(f"others-{n}", 1, gpus=4, topology=ZONE)]
    decided = plan(a_cluster(pods=[*pods[:1], *others], nodes=MACHINES), a_policy(), Memory())
    assert decided.lower_bound_usd_per_hour == pytest.approx(3.5 * A10G), "all of them, less six GPUs"
