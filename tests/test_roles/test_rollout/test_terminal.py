"""A plan in a terminal: what an operator reads of it before anything is changed."""

from __future__ import annotations

import pytest

from roles.engine.disruption import Disruption
from roles.engine.host_plan import Change, HostPlan, Refusal
from roles.rollout.terminal import plan_lines

DIFF = "\n".join(f"+line {number}" for number in range(60))


def machine(name: str, changes: int, diff: str = DIFF) -> HostPlan:
    """With so many changes in three roles, each of which writes a file (of sixty lines)."""
    wanted = tuple(
        Change(
            resource=f"{('system', 'containerd', 'kubelet')[number % 3]} | File {number}",
            commands=("write",),
            diff=diff,
            disruption=Disruption.CONTAINERD_RESTART if number % 3 == 1 else Disruption.NONE,
        )
        for number in range(changes)
    )
    return HostPlan(host=name, changes=wanted, refused=(Refusal("gpus | Driver", "it is held"),))


def test_bare_machines_are_counted_role_by_role() -> None:
    """Two of them were 1,064 lines, without a number in any."""
    lines = list(plan_lines([machine("a", 90), machine("b", 90), HostPlan(host="c")]))
    assert lines == [
        *(line for name in "ab" for line in (
            f"{name}: drifted: 90 changes, 1 refused, needs: containerd-restart",
            "  system: 30 changes",
            "  containerd: 30 changes  [containerd-restart]",
            "  kubelet: 30 changes",
            "  gpus | Driver: refused: it is held",
        )),
        "3 machines: 180 changes on 2, 2 refused; each change with its diff: --full, or --html FILE",
    ]  # fmt: skip


def test_few_changes_are_shown_with_the_beginning_of_each_diff() -> None:
    """As on any morning after."""
    lines = list(plan_lines([machine("a", 1)]))
    assert lines[:2] == ["a: drifted: 1 change, 1 refused", "  system | File 0"]
    assert lines[2] == "      +line 0"
    assert "      ... 40 more lines" in lines
    assert lines[-1].startswith("1 machine: 1 change on 1, 1 refused")


@pytest.mark.parametrize(("lines", "more"), [(20, []), (21, ["      ... 1 more line"])])
def test_a_diff_of_twenty_lines_is_shown_whole(lines: int, more: list[str]) -> None:
    """What is left out is counted."""
    shown = list(plan_lines([machine("a", 1, "\n".join(DIFF.splitlines()[:lines]))]))
    assert [line for line in shown if line.startswith("      ")] == [f"      +line {one}" for one in range(20)] + more


def test_everything_is_shown_where_that_is_asked_for() -> None:
    """Each change with its whole diff."""
    lines = list(plan_lines([machine("a", 30)], full=True))
    assert sum(line == "      +line 59" for line in lines) == 30
    assert "--full" not in lines[-1]


def test_a_machine_that_was_not_seen_says_why() -> None:
    """And of a fleet that is clean there is nothing to show."""
    away, _ = plan_lines([HostPlan(host="a", unreachable="no route")])
    assert away == "a: unreachable: no route"
    assert list(plan_lines([HostPlan(host="a")])) == []
    assert "--full" not in list(plan_lines([machine("a", 30)], full=None))[-1]


def test_twelve_changes_are_shown_and_more_are_counted() -> None:
    """Role by role."""
    shown, counted = ([*plan_lines([machine("a", number)])] for number in (12, 13))
    assert sum("| File" in line for line in shown) == 12
    assert sum("| File" in line for line in counted) == 0
    assert "  system: 5 changes" in counted
