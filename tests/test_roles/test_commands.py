"""The commands, from what is typed to what the rollout is given."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from roles import commands
from roles.cli import _MARK, nodes


def given(monkeypatch: pytest.MonkeyPatch, line: str) -> dict[str, Any]:
    """What the command of this line is called with."""
    found: dict[str, Any] = {}

    def run(**options: Any) -> int:
        found.update(options)
        return 0

    words = shlex.split(line)
    monkeypatch.setattr(commands, words[0], run)
    done = CliRunner(env={_MARK: "1"}).invoke(nodes, words)
    assert done.exit_code == 0, done.output
    return found


@pytest.mark.parametrize("command", ["apply", "reconcile"])
def test_three_machines_may_refuse_a_change_unless_it_is_said_otherwise(
    monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """By day as at night: one full disk stopped the whole rollout by day."""
    assert given(monkeypatch, f"{command} -i inventory.yaml")["tolerate"] == 3
    assert given(monkeypatch, f"{command} -i inventory.yaml --tolerate 0")["tolerate"] == 0


def test_a_halted_rollout_names_the_command_of_the_run_that_it_is_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same machines of the same cluster, with the same record; the nightly run's own options are none of it."""
    line = "reconcile -i 'my lab.yaml' --limit 'dgx-*' --state /srv/state --kubeconfig k --drain --batch 3"
    options = given(monkeypatch, line)
    typed = commands.how_to_go_on(options, state=options["state"])
    assert shlex.split(typed)[:3] == ["spillway", "nodes", "apply"]
    again = given(monkeypatch, typed.partition("nodes ")[2])
    kept = ("inventory", "limit", "state", "kubeconfig", "role", "outputs", "no_cluster")
    assert {key: again[key] for key in kept} == {key: options[key] for key in kept}
    assert again["retry"]
    assert commands.how_to_go_on(given(monkeypatch, "apply -i a.yaml --no-cluster"), state=None) == (
        "spillway nodes apply --inventory a.yaml --no-cluster --retry"
    )
    assert options["state"] == Path("/srv/state")
