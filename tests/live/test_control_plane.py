"""The real control plane of the local ground, and the keeper that holds it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from autoscaler.failures import Unavailable
from stacks.local.keeper import Process, is_running, read_status, start_keeper, stop_keeper
from tests.live.conftest import Plane

pytestmark = pytest.mark.live


def sleeper(directory: Path, name: str, **changes: object) -> Process:
    """A process that does nothing for a minute."""
    ordinary = {"argv": ("/bin/sleep", "60"), "log": str(directory / f"{name}.log")}
    return Process(name=name, **ordinary | changes)  # type: ignore[arg-type]


def phase(plane: Plane, pod: str) -> str:
    """What the API server says of the pod."""
    return str(plane.kube.get(f"/api/v1/namespaces/default/pods/{pod}")["status"].get("phase"))


def test_a_pod_is_bound_runs_as_long_as_it_says_and_succeeds(plane: Plane) -> None:
    """The real scheduler binds it; KWOK's stages end it."""
    plane.fake_node("m1")
    plane.kube.send(
        "POST",
        "/api/v1/namespaces/default/pods",
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p", "annotations": {"local.spillway.dev/runs-for": "1s"}},
            "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]},
        },
    )
    end = time.monotonic() + 30
    while phase(plane, "p") != "Succeeded":
        assert time.monotonic() < end, phase(plane, "p")
        time.sleep(0.1)
    assert plane.kube.get("/api/v1/namespaces/default/pods/p")["spec"]["nodeName"] == "m1"


def wait_until_ended(directory: Path) -> None:
    """Until every process that the keeper held is gone."""
    status = read_status(directory)
    assert status is not None
    end = time.monotonic() + 20
    while any(is_running(one.pid, one.started) for one in status.held):
        assert time.monotonic() < end, status
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_outlives_the_keeper(tmp_path: Path, number: signal.Signals) -> None:
    """Asked to stop, or killed: its processes end with it."""
    keeper = start_keeper([sleeper(tmp_path, "a"), sleeper(tmp_path, "b")], directory=tmp_path, tie=False)
    os.kill(keeper.pid, number)
    keeper.wait(timeout=20)
    wait_until_ended(tmp_path)


def test_a_tied_keeper_ends_when_its_starter_is_killed(tmp_path: Path) -> None:
    """As after a crash halfway: no handler of ours runs in the process that dies."""
    program = (
        "import sys, time; from pathlib import Path; from stacks.local.keeper import Process, start_keeper;"
        "d = Path(sys.argv[1]); start_keeper([Process(name='a', argv=('/bin/sleep', '60'), log=str(d / 'a.log'))],"
        " directory=d, tie=True); print('up', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        assert starter.stdout.readline() == b"up\n"
        starter.kill()
    wait_until_ended(tmp_path)


def test_a_process_that_fails_is_named_with_the_end_of_its_log(tmp_path: Path) -> None:
    """And the others are taken down."""
    broken = sleeper(tmp_path, "broken", argv=("/bin/sh", "-c", "echo address already in use >&2; exit 3"))
    late = sleeper(tmp_path, "late", after=("never",))
    with pytest.raises(Unavailable, match=r"broken ended by itself \(with status 3\).*\n.*address already in use"):
        start_keeper([sleeper(tmp_path, "good"), broken, late], directory=tmp_path, tie=True)
    wait_until_ended(tmp_path)


def test_a_process_that_is_never_ready_is_given_up(tmp_path: Path) -> None:
    """In words that name it."""
    deaf = sleeper(tmp_path, "deaf", ready_url="http://127.0.0.1:9/", patience=0.3)
    with pytest.raises(Unavailable, match="deaf was not ready after 0 s"):
        start_keeper([deaf], directory=tmp_path, tie=True)
    wait_until_ended(tmp_path)


def test_a_program_that_is_not_there_is_told(tmp_path: Path) -> None:
    """Not a stack trace in a log that nobody reads."""
    with pytest.raises(Unavailable, match=r"ghost could not be started: .*No such file"):
        start_keeper([sleeper(tmp_path, "ghost", argv=("/nowhere/ghost",))], directory=tmp_path, tie=True)


def test_stopping_twice_is_harmless(tmp_path: Path) -> None:
    """The second time there is nothing to stop, and a later process of the same pid would be left alone."""
    keeper = start_keeper([sleeper(tmp_path, "a")], directory=tmp_path, tie=False)
    assert stop_keeper(tmp_path)
    keeper.wait(timeout=20)
    assert not stop_keeper(tmp_path)
