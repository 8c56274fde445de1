"""An engine killed in the middle of its work, at several points: mended by the command, it converges, and owns all."""

from __future__ import annotations

import json
import subprocess
import time
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from stacks.local.toolchain.pulumi_engine import (
    EngineSettings,
    environment,
    prepare,
    pulumi_destroy,
    pulumi_preview,
    pulumi_up,
)
from tests.live.engine_deaths import RECOVER, kill, pending, recover, run, started
from tests.live.relay import Relay, relay
from tests.live.stacks import GROUPS, asked_since, calls_so_far, everything_in, settings_for
from tests.live.test_control_planes import all_that_stands

pytestmark = pytest.mark.live

CLUSTERS = count()


@pytest.fixture
def settings(aws_url: str, engine: dict[str, Path], tmp_path: Path) -> EngineSettings:
    """A stack that does not stand yet, of a name of its own: what one test leaves is not in the way of the next."""
    made = settings_for(tmp_path, aws_url=aws_url, tools=engine, cluster=f"cut-{next(CLUSTERS)}", groups=GROUPS)
    prepare(made)
    run(made, "stack", "select", "--create", "--stack", "local")
    return made


def kill_with_a_call_on_its_way(settings: EngineSettings, way: Relay) -> None:
    """Start the engine, and kill it while AWS has a call that it has not answered yet."""
    run(settings, "stack", "select", "--create", "--stack", "local")
    with started(replace(settings, aws_url=way.url), "up") as leash:
        while leash.poll() is None and not way.caught.wait(0.05):
            pass
        assert kill(leash)


def kill_in_the_middle(settings: EngineSettings, verb: str, *, after: int) -> bool:
    """Start the engine and kill it once it has asked AWS for so many changes; whether it was still at work."""
    before = calls_so_far(settings.aws_url)
    with started(settings, verb) as leash:
        while leash.poll() is None and len(asked_since(settings.aws_url, before)) < after:
            time.sleep(0.02)
        return leash.poll() is None and kill(leash)


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
    said = recover(settings)
    assert "`pulumi destroy` " in said, said
    pulumi_destroy(settings)
    assert everything_in(settings.aws_url) == before


def test_what_aws_makes_when_the_engine_is_dead_already_is_taken_away(settings: EngineSettings) -> None:
    """A VPC, whose making AWS had begun: it arrives when `recover` has looked once and seen nothing."""
    before, said = all_that_stands(settings.aws_url), ""
    with relay(settings.aws_url, holds=lambda _method, _path, body: b"Action=CreateVpc&" in body) as way:
        kill_with_a_call_on_its_way(settings, way)
        with subprocess.Popen(
            RECOVER,
            cwd=settings.directory / "project",
            env=environment(settings),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        ) as mending:
            for line in mending.stdout or ():
                said += line
                if line.startswith("not seen so far: "):
                    way.let_go()
    assert mending.returncode == 0, said
    assert "taken away: Vpc vpc-" in said, said
    assert pending(settings) == []
    pulumi_up(settings, refresh=True)
    pulumi_destroy(settings)
    assert all_that_stands(settings.aws_url) == before, "nothing was made twice"


def test_a_bucket_whose_tags_never_came_is_taken_away(settings: EngineSettings) -> None:
    """S3 may take them by a second call, and the engine was killed between the two."""
    settings = replace(settings, overrides={"spillway:network": {"flow_logs": {"to": "s3"}}})
    prepare(settings)
    before = all_that_stands(settings.aws_url)
    with relay(settings.aws_url, holds=lambda method, path, _: method == "PUT" and "tagging" in path) as way:
        kill_with_a_call_on_its_way(settings, way)
    said = recover(settings)
    assert f"taken away: Bucket {settings.cluster}-flow-logs-" in said, said
    pulumi_up(settings, refresh=True)
    pulumi_destroy(settings)
    assert all_that_stands(settings.aws_url) == before, "nothing was made twice"


def test_an_engine_killed_while_it_makes_an_eks_cluster_leaves_none_unowned(settings: EngineSettings) -> None:
    """Cut off at a cluster, its entries and add-ons: all of it is found."""
    eks = {"kind": "eks", "admins": ["arn:aws:iam::123456789012:role/platform"]}
    settings = replace(settings, overrides={"spillway:control_plane": eks})
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


IN_THE_CONTROL_PLANE = (30, 12, 9)
"""Calls to AWS that change something, after which the engine is killed: each counts from where the last one was."""
