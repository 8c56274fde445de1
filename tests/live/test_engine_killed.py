"""An engine killed in the middle of its work, at several points: mended by the command, it converges, and owns all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from stacks.local.engine import EngineSettings, environment, prepare, pulumi_destroy, pulumi_preview, pulumi_up
from stacks.local.leash import leashed
from tests.live.stacks import GROUPS, asked_since, calls_so_far, everything_in, settings_for
from tests.live.test_control_planes import all_that_stands

pytestmark = pytest.mark.live

AT = (3, 22, 38)
"""Calls to AWS that change something, after which the engine is killed: early, in the network, in the groups."""
CLUSTERS = count()
QUIET = ("--non-interactive", "--color", "never")


@pytest.fixture
def settings(aws_url: str, engine: dict[str, Path], tmp_path: Path) -> EngineSettings:
    """A stack that does not stand yet, of a name of its own: what one test leaves is not in the way of the next."""
    made = settings_for(tmp_path, aws_url=aws_url, tools=engine, cluster=f"cut-{next(CLUSTERS)}", groups=GROUPS)
    prepare(made)
    run(made, "stack", "select", "--create", "--stack", "local")
    return made


def run(settings: EngineSettings, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`pulumi` as a user calls it."""
    return subprocess.run(
        [str(settings.tools["pulumi"]), *arguments, *QUIET],
        cwd=settings.directory / "project",
        env=environment(settings),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def recover(settings: EngineSettings) -> str:
    """`spillway recover` as a user calls it; what it said."""
    done = subprocess.run(
        [sys.executable, "-m", "spillway", "recover", "--stack", "local", "--yes"],
        cwd=settings.directory / "project",
        env=environment(settings),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def kill_in_the_middle(settings: EngineSettings, verb: str, *, after: int) -> bool:
    """Start the engine and kill it once it has asked AWS for so many changes; whether it was still at work."""
    before = calls_so_far(settings.aws_url)
    command = [str(settings.tools["pulumi"]), verb, "--stack", "local", "--yes", "--skip-preview", *QUIET]
    with subprocess.Popen(
        leashed(command),
        cwd=settings.directory / "project",
        env=environment(settings),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as leash:
        while leash.poll() is None and len(asked_since(settings.aws_url, before)) < after:
            time.sleep(0.01)
        at_work = leash.poll() is None
        if at_work:
            children = Path(f"/proc/{leash.pid}/task/{leash.pid}/children").read_text(encoding="utf-8").split()
            os.kill(int(children[0]), signal.SIGKILL)
    return at_work


def pending(settings: EngineSettings) -> list[str]:
    """What the state holds as begun."""
    state = json.loads(run(settings, "stack", "export", "--stack", "local").stdout)["deployment"]
    return [one["resource"]["urn"] for one in state.get("pending_operations") or ()]


def test_an_engine_killed_while_it_makes_things_leaves_none_unowned(settings: EngineSettings) -> None:
    """Killed three times on its way up, mended each time: then `up` ends, changes nothing more, and destroys all."""
    before = everything_in(settings.aws_url)
    cut_off = 0
    for after in AT:
        if kill_in_the_middle(settings, "up", after=after):
            refused = run(settings, "up", "--stack", "local", "--yes", "--skip-preview").stderr
            assert "locked" in refused or "failed to load checkpoint" in refused
        cut_off += recover(settings).count("taken away")
        assert pending(settings) == []
    assert cut_off, "the engine was never killed between AWS's answer and its own note of it"

    pulumi_up(settings, refresh=True)
    assert pulumi_preview(settings), "it has converged"
    pulumi_destroy(settings)
    assert everything_in(settings.aws_url) == before, "nothing was made twice"


def test_an_engine_killed_while_it_wrote_its_state_can_read_it_again(settings: EngineSettings) -> None:
    """Between the making of a file of attributes and the writing of it."""
    (attributes,) = settings.directory.glob("state/.pulumi/stacks/*/local.json.attrs")
    attributes.write_bytes(b"")
    assert "failed to load checkpoint: EOF" in run(settings, "stack", "export", "--stack", "local").stderr
    said = recover(settings)
    assert f"taken away: {attributes}" in said
    assert "no creation was cut off" in said
    assert pending(settings) == []


def test_an_engine_killed_while_it_changes_and_removes_things_goes_on(settings: EngineSettings) -> None:
    """In an update that renames a group, removes one and adds one; and in a destroy."""
    before = everything_in(settings.aws_url)
    pulumi_up(settings)
    changed = [
        {**GROUPS[0], "name": "gpus", "formerly": ["gpu"], "max": 6},
        {"name": "more", "instance_type": "m5.large", "zones": ["us-east-1a"], "max": 1},
    ]
    policy = json.loads(settings.policy.read_text(encoding="utf-8"))
    settings.policy.write_text(json.dumps(policy | {"groups": changed}), encoding="utf-8")
    kill_in_the_middle(settings, "up", after=2)
    recover(settings)
    outputs = pulumi_up(settings, refresh=True)
    assert {group.entry for group in outputs.groups} == {"gpus", "more"}
    assert pulumi_preview(settings)
    kill_in_the_middle(settings, "destroy", after=4)
    recover(settings)
    pulumi_destroy(settings)
    assert everything_in(settings.aws_url) == before


@pytest.mark.parametrize("kind", ["kubeadm", "eks"])
def test_an_engine_killed_while_it_makes_a_control_plane_leaves_none_unowned(
    settings: EngineSettings, kind: str
) -> None:
    """Cut off at keys, groups, instances and gates, or at a cluster, its entries and add-ons: all of it is found."""
    settings = replace(settings, overrides={"spillway:control_plane": CONTROL_PLANES[kind]})
    prepare(settings)
    before = all_that_stands(settings.aws_url)
    for after in IN_THE_CONTROL_PLANE:
        kill_in_the_middle(settings, "up", after=after)
        recover(settings)
        assert pending(settings) == []
    pulumi_up(settings, refresh=True)
    assert pulumi_preview(settings), "it has converged"
    pulumi_destroy(settings)
    assert all_that_stands(settings.aws_url) == before, "nothing was made twice"


CONTROL_PLANES: dict[str, dict[str, object]] = {
    "kubeadm": {"kind": "kubeadm", "ami": "ami-12c6146b", "instances": 1},
    "eks": {"kind": "eks", "admins": ["arn:aws:iam::123456789012:role/platform"]},
}
IN_THE_CONTROL_PLANE = (30, 12, 9)
"""As ``AT``: each counts from where the one before was cut off."""
