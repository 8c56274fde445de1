"""A maximum that is lowered below what runs: told, with what becomes of the nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stacks.preflight.shrinking_groups import tell_shrinking
from stacks.programs import build
from tests.test_stacks.declared import Recorder, group, plans, policy
from tests.test_stacks.graph import graph


@pytest.mark.parametrize(
    ("protected", "fate"), [(True, "autoscaler gives them back"), (False, "AWS ends as many at once")]
)
def test_a_group_that_has_more_than_it_may_is_told(protected: bool, fate: str) -> None:  # noqa: FBT001 - a table
    """By file, entry, key and group; one that fits is not."""
    entries = policy(group(max=2, zones=["us-east-1a", "us-east-1b"]), group(name="cpu"))
    sizes = {"lab-gpu-us-east-1a": 3, "lab-gpu-us-east-1b": 2, "lab-cpu-us-east-1a": 1}
    [line] = tell_shrinking(entries, sizes, protected=protected, source="policy.yaml")
    assert line.startswith("policy.yaml: groups[0] (gpu).max = 2, and lab-gpu-us-east-1a has 3 nodes: ")
    assert fate in line


def test_a_preview_tells_it(tmp_path: Path) -> None:
    """Asked of AWS, and only of groups that stand."""
    answers: dict[str, Any] = {
        "getAmiIds": {"names": ["lab-gpu-us-east-1a", "lab-other-us-east-1a"]},
        "getGroup": {"desiredCapacity": 9},
    }
    made = graph(lambda: build(plans(tmp_path)), preview=True, mocks=Recorder(**answers))
    assert [line for line in made.said if "lab-gpu-us-east-1a has 9 nodes" in line]
    assert not [line for line in graph(lambda: build(plans(tmp_path)), preview=True).said if "nodes: they stay" in line]
