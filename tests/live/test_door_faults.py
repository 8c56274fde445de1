"""Two live replicas, killed before and after calls at their doors: the day ends as it does without."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final

import pytest

from tests.live.conftest import Plane
from tests.live.door_faults import Point, live
from tests.live.doors import AFTER, BEFORE

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]
DEATHS: Final[tuple[Point, ...]] = (
    ("list pods", BEFORE, 2),
    ("PUT leases", AFTER, 2),
    ("LaunchInstances", BEFORE, 1),
    ("LaunchInstances", AFTER, 1),
    ("PUT memory", BEFORE, 3),
    ("PUT memory", AFTER, 5),
    ("PATCH pods", AFTER, 1),
    ("PATCH nodes", AFTER, 2),
    ("TerminateInstanceInAutoScalingGroup", BEFORE, 1),
    ("TerminateInstanceInAutoScalingGroup", AFTER, 2),
)


def test_ten_deaths_at_the_doors_change_nothing_of_how_a_day_ends(plane: Plane, tmp_path: Path) -> None:
    """Nothing is bought twice, no limit is passed, what must stay stays: ``python -m tests.bench faults`` does 200."""
    chance = random.Random(1)  # noqa: S311 - reproducible
    day = live(plane, tmp_path / "day", deaths=DEATHS, chance=chance)
    assert not day.harm, [file.read_text()[-4000:] for file in (tmp_path / "day").glob("*.log")]
    assert {*day.died} == {*DEATHS}
