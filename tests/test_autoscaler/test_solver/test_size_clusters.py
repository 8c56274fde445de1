"""Pods of about the same size taken together: everyone is in one crowd, and crowds waste little."""

from __future__ import annotations

import random
import time
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.inputs.offline_plan import plan_offline
from autoscaler.inputs.tables import read_asked, read_catalog
from autoscaler.solver.size_clusters import MANY, clustered, middles
from tests import examples
from tests.checker import faults, read_table
from tests.test_autoscaler.test_inputs.test_offline_plan import CATALOG, PODS


@settings(deadline=None, max_examples=examples(50))
@given(rows=st.lists(st.tuples(st.integers(1, 99), st.integers(1, 99), st.integers(0, 1)), min_size=1, max_size=30))
def test_everyone_is_in_one_crowd_of_his_like(rows: list[tuple[int, int, int]]) -> None:
    """At most as many crowds as asked for, unless there are more likes than that."""
    sizes = np.array([row[:2] for row in rows])
    crowds = clustered(sizes, np.ones(len(rows), dtype=np.int64), np.array([row[2:] for row in rows]), many=5)
    assert sorted(row for crowd in crowds for row in crowd.tolist()) == list(range(len(rows)))
    assert all(len({rows[row][2] for row in crowd}) == 1 for crowd in crowds)
    assert len(crowds) <= 5


def test_equal_rows_are_not_parted_and_unequal_ones_are_while_there_is_leave() -> None:
    """No more crowds than different sizes."""
    sizes = np.array([[1, 1], [5, 5], [1, 1], [9, 9]])
    found = clustered(sizes, np.ones(4, dtype=np.int64), np.zeros((4, 1), dtype=np.int64), many=9)
    assert [crowd.tolist() for crowd in found] == [[0, 2], [1], [3]]


@pytest.mark.parametrize("largest", [200, 2_000, 200_000])
def test_a_few_very_large_pods_do_not_change_what_the_small_ones_are_planned_for(largest: int) -> None:
    """Rounded to a part of the largest, a thousand small ones would be planned for many times what they ask for."""
    sizes = np.array([[number % 97 + 1, number % 89 + 1, 0, 1] for number in range(1000)] + [[largest, largest, 0, 1]])
    once = np.ones(len(sizes), dtype=np.int64)
    crowds = clustered(sizes, once, np.zeros((len(sizes), 1), dtype=np.int64), many=80)
    planned = sum(len(crowd) * middle[:2] for crowd, middle in zip(crowds, middles(sizes, once, crowds), strict=True))
    asked = sizes[:, :2].sum(axis=0)
    assert (planned >= 0.9 * asked).all()
    assert (planned <= 1.2 * asked).all()


def test_pods_that_all_ask_for_something_else_are_planned(tmp_path: Path) -> None:
    """More sizes than the solver takes: the plan holds, and the bound is below it."""
    dice = random.Random(3)  # noqa: S311 - a workload, not a secret
    rows = "".join(f"p{number},{dice.randint(50, 4000)},{dice.randint(50, 9000)},0,,,,\n" for number in range(2 * MANY))
    (tmp_path / "pods.csv").write_text(PODS + rows, encoding="utf-8")
    (tmp_path / "catalog.csv").write_text(CATALOG, encoding="utf-8")
    pods, catalog = tmp_path / "pods.csv", tmp_path / "catalog.csv"
    plan = plan_offline(
        read_asked(str(pods)), read_catalog(catalog), deadline=timedelta(seconds=1), clock=time.process_time
    )
    assert faults(plan.as_json(), pods=read_table(pods), catalog=read_table(catalog)) == []
    assert plan.waiting == ()
    assert 0 < plan.lower_bound_usd_per_hour <= plan.usd_per_hour < 1.25 * plan.lower_bound_usd_per_hour
