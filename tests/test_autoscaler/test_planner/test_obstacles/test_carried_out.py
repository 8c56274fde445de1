"""Limits and maxima as they would be once changes were made."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from autoscaler.model.needed_changes import QUOTA_RAISED, NeededChange
from autoscaler.planner.obstacles.carried_out import _edited, _raised
from autoscaler.planner.placement.offerings import Ceilings
from tests.builders import a_group, a_policy, an_entry

POLICY = a_policy(
    an_entry("cpu", max=4), an_entry("gpu-a10g", max=2), limits={"usd_per_hour": 10, "nodes": 6, "gpus": 8}
)


def to(path: str, amount: float) -> NeededChange:
    """One limit is to be that."""
    return NeededChange("policy", path=path, to=amount)


@pytest.mark.parametrize(
    ("path", "amount", "expected"),
    [
        ("limits.usd_per_hour", 12.5, (12.5, 6, 8, [4, 2])),
        ("limits.usd_per_hour", 9.0, (10, 6, 8, [4, 2])),
        ("limits.nodes", 7, (10, 7, 8, [4, 2])),
        ("limits.gpus", 16, (10, 6, 16, [4, 2])),
        ("groups[cpu].max", 5, (10, 6, 8, [5, 2])),
        ("groups[gpu-a10g].max", 1, (10, 6, 8, [4, 2])),
        ("groups[other].max", 9, (10, 6, 8, [4, 2])),
    ],
)
def test_a_policy_is_edited_upwards_and_only_there(path: str, amount: float, expected: tuple[Any, ...]) -> None:
    """An answer that was found while less was asked for lowers nothing."""
    done = _edited([to(path, amount)], POLICY)
    limits = done.limits
    assert (limits.usd_per_hour, limits.nodes, limits.gpus, [entry.max for entry in done.groups]) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([], (3.0, 2, 1, 4, 100)),
        ([to("limits.usd_per_hour", 12.5)], (5.5, 2, 1, 4, 100)),
        ([to("limits.usd_per_hour", 9.0)], (3.0, 2, 1, 4, 100)),
        ([to("limits.nodes", 8)], (3.0, 4, 1, 4, 100)),
        ([to("limits.nodes", 5)], (3.0, 2, 1, 4, 100)),
        ([to("limits.gpus", 10), to("groups[cpu].max", 5)], (3.0, 2, 3, 5, 100)),
        ([to("groups[cpu].max", 3)], (3.0, 2, 1, 4, 100)),
        ([NeededChange("other", other=QUOTA_RAISED, groups=("L-1",), to=28)], (3.0, 2, 1, 4, 128)),
    ],
)
def test_what_is_left_grows_by_as_much(changes: list[NeededChange], expected: tuple[Any, ...]) -> None:
    """Of what may be bought as of now; the market's own stays as it is."""
    left = Ceilings(usd=3.0, nodes=2, gpus=1, entries={"cpu": 4}, quotas={"L-1": 100})
    search: Any = SimpleNamespace(market=SimpleNamespace(ceilings=left), policy=POLICY)
    found = _raised(changes, search)
    assert (found.usd, found.nodes, found.gpus, found.entries["cpu"], found.quotas["L-1"]) == expected
    assert (left.usd, left.nodes, left.gpus, left.entries, left.quotas) == (3.0, 2, 1, {"cpu": 4}, {"L-1": 100})


def test_what_has_no_limit_gets_none() -> None:
    """Nor does an entry that nothing is counted of."""
    search: Any = SimpleNamespace(market=SimpleNamespace(ceilings=Ceilings()), policy=a_policy())
    found = _raised([to("limits.nodes", 8), to("limits.usd_per_hour", 8.0), to("limits.gpus", 8)], search)
    assert (found.usd, found.nodes, found.gpus, found.entries) == (None, None, None, {})


A_NODE = a_group("gpu-a10g")


@pytest.mark.parametrize(
    ("left", "why"),
    [
        (Ceilings(), ""),
        (Ceilings(entries={"gpu-a10g": 0}), "max"),
        (Ceilings(entries={"gpu-a10g": 1, "cpu": 0}), ""),
        (Ceilings(usd=A_NODE.usd_per_hour), ""),
        (Ceilings(usd=A_NODE.usd_per_hour - 0.01), "usd_per_hour"),
        (Ceilings(nodes=0), "nodes"),
        (Ceilings(nodes=1), ""),
        (Ceilings(gpus=3), "gpus"),
        (Ceilings(gpus=4), ""),
    ],
)
def test_which_limit_one_more_node_would_break(left: Ceilings, why: str) -> None:
    """The entry's own first; what is just enough breaks none."""
    assert left.why_not(A_NODE) == why
