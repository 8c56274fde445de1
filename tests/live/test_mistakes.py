"""Mistakes in the files of a stack, through the real engine: told without a stack trace, and nothing is made."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autoscaler.model.errors import BadInput
from stacks.local.toolchain.pulumi_engine import pulumi_up
from tests.live.stacks import GROUPS, calls_so_far, settings_for
from tests.test_stacks.test_mistakes import MISTAKES, written

pytestmark = pytest.mark.live

DRIVEN = [one for one in MISTAKES if one.get("engine")]


@pytest.mark.parametrize("mistake", DRIVEN, ids=[one["mistake"] for one in DRIVEN])
def test_a_mistake_is_refused_before_anything_is_made(
    mistake: dict[str, Any], aws_url: str, engine: dict[str, Path], tmp_path: Path
) -> None:
    """What AWS must answer to be asked is asked of the stand-in: an instance type, a VPC that is not there."""
    ordinary = settings_for(tmp_path, aws_url=aws_url, tools=engine, cluster="lab", groups=GROUPS)
    own = written(mistake, tmp_path)
    overrides = {key: value for key, value in own.items() if key not in ("spillway:policy", "spillway:inventory")}
    before = calls_so_far(aws_url)
    with pytest.raises(BadInput) as refused:
        pulumi_up(replace(ordinary, inventory=tmp_path / "inventory.yaml", overrides=overrides))
    told = str(refused.value).replace("Pulumi.local.yaml", "Pulumi.lab.yaml")
    assert not [words for words in mistake["says"] if str(words) not in told], told
    assert "Traceback" not in told
    assert calls_so_far(aws_url) == before
