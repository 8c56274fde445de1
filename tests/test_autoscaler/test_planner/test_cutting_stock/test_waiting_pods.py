"""Pods for which nodes are wanted: in order, those that want the same together, until they have a place."""

from __future__ import annotations

from autoscaler.planner.cutting_stock.cutting_plan import Want
from autoscaler.planner.cutting_stock.waiting_pods import WaitingPods
from tests.builders import a_pod
from tests.test_autoscaler.test_planner.test_placement.test_gang_packing import a_market

POD = a_pod()


def test_pods_wait_in_order_until_they_have_a_place() -> None:
    """Any of them may get one."""
    shape = a_market([POD], []).snapshot.shape(POD)
    here, there = Want(shape, "a"), Want(shape, "b")
    pods = WaitingPods()
    assert (bool(pods), pods.counts, pods.first(here, 1), pods.all(here)) == (False, {}, [], [])
    for want, key in ((here, "1"), (there, "2"), (here, "3"), (here, "4")):
        pods.add(want, key)
    assert (bool(pods), pods.counts) == (True, {here: 3, there: 1})
    assert pods.pods == [(here, "1"), (here, "3"), (here, "4"), (there, "2")]
    assert (pods.first(here, 2), pods.first(here, 9)) == (["1", "3"], ["1", "3", "4"])
    pods.remove(here, ["3"])
    assert (pods.all(here), pods.counts) == (["1", "4"], {here: 2, there: 1})
    pods.remove(here, ["4", "1"])
    assert pods.counts == {there: 1}
    pods.remove(there, ["2"])
    assert not pods
