"""The commands, as a user types them: help, wrong input, nobody there. What they do for real: ``tests/live``."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import spillway
from autoscaler.model.actions import Plan
from stacks.local.process.ports import free_ports
from tests import ROOT
from tests.live.hybrid import write_policy
from tests.test_autoscaler.fake_api import Answer, FakeApi, fake_api
from tests.test_autoscaler.test_record.test_replay import decided
from tests.test_autoscaler.test_record.test_writer import recorded


def typed(*line: str, kubeconfig: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    """Run `spillway` with these words."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("AWS_", "KUBE"))}
    more = {"KUBECONFIG": str(kubeconfig)} if kubeconfig else {}
    return subprocess.run(
        [sys.executable, "-m", "spillway", *line],
        cwd=ROOT,
        env=clean | more | env,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def silent(directory: Path) -> Path:
    """A kubeconfig of an API server that is not there."""
    (port,) = free_ports(1)
    return FakeApi(url=f"http://127.0.0.1:{port}").kubeconfig(directory)


@pytest.mark.parametrize("line", [["run"], ["explain"], ["explain", "pod"]])
def test_every_command_has_help(line: list[str]) -> None:
    """In sentences."""
    done = CliRunner().invoke(spillway.cli, ["autoscale", *line, "--help"])
    assert done.exit_code == 0
    assert "Usage: " in done.output


@pytest.mark.parametrize("line", [("run", "--once"), ("explain", "pod", "p"), ("run",)])
def test_an_api_server_that_is_not_there_is_told(tmp_path: Path, line: tuple[str, ...]) -> None:
    """Status 1, one line, no stack trace."""
    policy, _ = write_policy(tmp_path)
    done = typed("autoscale", *line, "--policy", str(policy), kubeconfig=silent(tmp_path))
    assert done.returncode == 1
    assert done.stderr.startswith("spillway: the API server at http://127.0.0.1:")
    assert len(done.stderr.splitlines()) == 1


def test_a_record_that_is_decided_otherwise_ends_with_one(tmp_path: Path) -> None:
    """Also where the command is run as a program, and not by a test's runner."""
    recorded(tmp_path / "record", decided(), replace(decided(60), plan=Plan()))
    done = typed("autoscale", "replay", str(tmp_path / "record"))
    assert (done.returncode, done.stderr) == (1, "")
    assert "1 decided the same again, 1 otherwise" in done.stdout


def test_a_policy_that_is_wrong_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    """Status 2, with file, entry, key and value."""
    policy, _ = write_policy(tmp_path)
    policy.write_text(policy.read_text().replace("max: 4", "max: -1"))
    done = typed("autoscale", "run", "--policy", str(policy), kubeconfig=silent(tmp_path))
    assert done.returncode == 2
    assert "groups[0] (gpu).max = -1" in done.stderr


def test_aws_that_is_not_there_is_told_where_one_look_needs_it(tmp_path: Path) -> None:
    """Nothing was changed in the cluster, not even the lease."""
    policy, _ = write_policy(tmp_path)
    (port,) = free_ports(1)
    aws = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}
    with fake_api() as api:
        api.answer = lambda _asked: Answer({"metadata": {"resourceVersion": "1"}, "items": [], "groups": []})
        config = api.kubeconfig(tmp_path)
        done = typed("autoscale", "run", "--once", "--policy", str(policy), kubeconfig=config, **aws)
        assert done.returncode == 1, done.stderr
        assert done.stderr.startswith("spillway: AWS in us-east-1 does not answer")
        assert len(done.stderr.splitlines()) == 1
        assert {asked.method for asked in api.asked} == {"GET"}


def test_gpus_says_when_there_are_none(tmp_path: Path) -> None:
    """And `--json` gives an empty list."""
    with fake_api() as api:
        api.answer = lambda _asked: Answer({"metadata": {"resourceVersion": "1"}, "items": []})
        config = api.kubeconfig(tmp_path)
        assert "no node of this cluster offers GPUs" in typed("gpus", kubeconfig=config).stdout
        assert typed("gpus", "--json", kubeconfig=config).stdout.strip() == "[]"


def test_gpus_without_the_right_to_look_is_told(tmp_path: Path) -> None:
    """By the API server's own sentence."""
    with fake_api() as api:
        api.answer = lambda asked: Answer({"message": "forbidden: no"}, 200 if asked.path == "/version" else 403)
        done = typed("gpus", kubeconfig=api.kubeconfig(tmp_path))
    assert done.returncode == 1
    assert done.stderr.startswith("spillway: the API server refuses: forbidden: no")
