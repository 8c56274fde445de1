"""A look that shows much less than the one before is doubted."""

from __future__ import annotations

import pytest

from autoscaler.planner.sanity_check import Counts
from tests.builders import a_cluster, a_group, a_pod, an_on_prem_node, nodes_of

Seen = tuple[int, int, int]


@pytest.mark.parametrize(
    ("before", "now", "words"),
    [
        ((3, 3, 3), (0, 0, 0), ""),
        ((4, 0, 0), (2, 0, 0), "4 nodes before, 2 now"),
        ((4, 0, 0), (3, 0, 0), ""),
        ((5, 0, 0), (2, 0, 0), "5 nodes before, 2 now"),
        ((5, 0, 0), (3, 0, 0), ""),
        ((0, 4, 0), (0, 2, 0), "4 instances before, 2 now"),
        ((9, 3, 3), (9, 0, 0), ""),
        ((9, 0, 4), (9, 0, 2), "4 nodes with pods before, 2 now"),
        ((9, 0, 4), (9, 0, 3), ""),
        ((8, 6, 8), (4, 3, 0), "8 nodes before, 4 now; 6 instances before, 3 now; 8 nodes with pods before, 0 now"),
        ((4, 4, 4), (8, 8, 8), ""),
    ],
)
def test_half_of_a_cluster_is_not_gone_or_idle_at_once(before: Seen, now: Seen, words: str) -> None:
    """Of four or more; nodes, instances and nodes with pods each by themselves."""
    said = Counts(*now).why_doubted(Counts(*before))
    assert said == (f"half of the cluster or more seems gone or idle ({words})" if words else "")


@pytest.mark.parametrize(
    ("fresh", "is_confirmed"),
    [
        ((2, 2, 2), True),
        ((3, 3, 3), True),
        ((4, 2, 2), False),
        ((2, 4, 2), False),
        ((2, 2, 4), False),
        ((0, 0, 0), True),
    ],
)
def test_a_second_look_that_shows_as_little_confirms_it(fresh: Seen, is_confirmed: bool) -> None:  # noqa: FBT001
    """One more may have come meanwhile."""
    assert Counts(2, 2, 2).is_confirmed_by(Counts(*fresh)) == is_confirmed


def test_what_is_counted() -> None:
    """All nodes, the instances of all groups, and nodes with a pod that did not come with them and has not finished."""
    groups = [a_group("cpu", joined=2), a_group("gpu-a10g", joined=1)]
    nodes = [an_on_prem_node("m"), *nodes_of(groups[0])]
    pods = [
        a_pod("works", node="m", phase="Running"),
        a_pod("done", node=nodes[1].name, phase="Succeeded"),
        a_pod("daemon", node=nodes[2].name, phase="Running", is_daemon=True),
    ]
    assert Counts.of(a_cluster(nodes=nodes, groups=groups, pods=pods)) == Counts(nodes=3, instances=3, busy=1)
