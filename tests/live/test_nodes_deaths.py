"""The controller of a rolling change as a process that is killed; many more of them: `python -m tests.bench deaths`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.live.conftest import Plane
from tests.live.deaths import MAX_DOWN, campaign
from tests.live.machines import Bench

pytestmark = pytest.mark.live


def test_controllers_that_are_killed_harm_nobody(plane: Plane, bench: Bench, tmp_path: Path) -> None:
    """The budget holds, pods that must stay do, a person's cordon too, and the last one finishes what all began."""
    found = campaign(plane, bench, tmp_path, deaths=5)
    assert found.deaths == 5
    assert found.harm == ()
    assert 1 < found.worst <= MAX_DOWN
