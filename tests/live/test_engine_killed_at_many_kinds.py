"""An engine killed at resources of many kinds, on its way up with the largest example, and down again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from stacks.local.toolchain.pulumi_engine import (
    EngineSettings,
    prepare,
    pulumi_destroy,
    pulumi_preview,
    pulumi_up,
)
from tests.live import largest
from tests.live.engine_deaths import Death, kill_at_a_new_kind, pending, recover, run
from tests.live.stacks import settings_for
from tests.live.test_control_planes import all_that_stands

pytestmark = [pytest.mark.live, pytest.mark.long]

DEATHS_UP, DEATHS_DOWN, KINDS_UP = 9, 3, 14
"""Engines that are killed at least, each at another kind of resource; and kinds that were in flight on the way up.

How many are in flight beside the one that an engine is killed at depends on the machine: more engines are killed until
there were so many kinds.
"""


def test_an_engine_killed_at_many_kinds_of_resources_leaves_none_unowned(
    aws_url: str, engine: dict[str, Path], tmp_path: Path
) -> None:
    """On its way up with the largest example, and down again; mended each time: nothing twice, nothing left."""
    settings = settings_for(tmp_path, aws_url=aws_url, tools=engine, cluster="cut", groups=largest.GROUPS)
    settings = replace(settings, overrides=largest.overrides(tmp_path))
    prepare(settings)
    run(settings, "stack", "select", "--create", "--stack", "local")
    before = all_that_stands(aws_url)
    deaths, taken_away = killed_again_and_again(settings, "up", deaths_at_least=DEATHS_UP, kinds_at_least=KINDS_UP)
    pulumi_up(settings, refresh=True)
    assert pulumi_preview(settings), f"it has converged, after\n{told(deaths)}"
    down, _ = killed_again_and_again(settings, "destroy", deaths_at_least=DEATHS_DOWN)
    pulumi_destroy(settings)
    told_of_all = told([*deaths, *down])
    print(told_of_all)
    assert all_that_stands(aws_url) == before, f"nothing was made twice, after\n{told_of_all}"
    assert taken_away, f"no engine was killed between AWS's answer and its own note of it:\n{told_of_all}"
    assert len({death.at for death in deaths}) >= DEATHS_UP, told_of_all
    assert len(kinds_in_flight(deaths)) >= KINDS_UP, told_of_all


def killed_again_and_again(
    settings: EngineSettings, verb: str, *, deaths_at_least: int, kinds_at_least: int = 0
) -> tuple[list[Death], int]:
    """Each at a kind of resource that none was killed at before; and how much `spillway recover` took away."""
    deaths: list[Death] = []
    taken_away = 0
    while len(deaths) < deaths_at_least or len(kinds_in_flight(deaths)) < kinds_at_least:
        known = {death.at for death in deaths}
        death = kill_at_a_new_kind(settings, verb, known=known, deaths=len(deaths))
        if death is None:
            break
        deaths.append(death)
        refused = run(settings, verb, "--stack", "local", "--yes", "--skip-preview").stderr if len(deaths) == 1 else ""
        assert not refused or "locked" in refused or "failed to load checkpoint" in refused, refused
        taken_away += recover(settings).count("taken away")
        assert pending(settings) == [], f"after {death}"
    return deaths, taken_away


def kinds_in_flight(deaths: list[Death]) -> set[str]:
    """When one of them fell."""
    return {kind for death in deaths for kind in death.in_flight}


def told(deaths: list[Death]) -> str:
    """Where each fell, a line each."""
    return "\n".join(f"{number + 1}. {death}" for number, death in enumerate(deaths))
