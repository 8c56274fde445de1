"""A run that died holds up nobody on its own machine; one that lives does."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from autoscaler.kube.client import Refused
from autoscaler.model.errors import Unavailable
from autoscaler.model.labels import NAMESPACE
from roles.rollout import lock
from roles.rollout.lock import only_run


class Leases:
    """The API server's side: one lease, which was renewed just now."""

    def __init__(self, holder: str) -> None:
        self.lease: dict[str, Any] = {"metadata": {"name": lock.LEASE}, "spec": {"holderIdentity": holder}}
        self.holders = [holder]

    def get(self, path: str) -> bytes:
        """The namespace, or the lease."""
        return json.dumps(self.lease if path.endswith(lock.LEASE) else {}).encode()

    def send(self, _method: str, _path: str, body: dict[str, Any]) -> bytes:
        """A write."""
        self.lease = body
        self.holders.append(body["spec"]["holderIdentity"])
        return b""


def who(process: int) -> str:
    """As a run names itself."""
    return f"{socket.gethostname()}-{process}"


def test_the_lease_of_a_run_that_died_here_is_taken_over_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number stands in the lock file, and no process has it any more."""
    monkeypatch.setattr(lock.time, "sleep", lambda _seconds: pytest.fail("it waits for a run that is dead"))
    gone = subprocess.Popen(["true"])
    gone.wait()
    (tmp_path / "lock").write_text(f"{gone.pid}\n", encoding="ascii")
    leases = Leases(who(gone.pid))
    with only_run(tmp_path, leases) as lease:  # type: ignore[arg-type]
        assert lease
        assert lease.is_mine()
        assert leases.holders[-1] == who(os.getpid())
        assert (tmp_path / "lock").read_text(encoding="ascii") == f"{os.getpid()}\n"
    assert leases.holders[-1] == ""
    assert (tmp_path / "lock").read_text(encoding="ascii") == ""


@pytest.mark.parametrize("before", ["", "nonsense", "1", "of another machine"])
def test_whoever_may_be_alive_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str) -> None:
    """Another machine's run, and one whose number a process still has."""
    (tmp_path / "lock").write_text(before, encoding="ascii")
    leases = Leases(who(1) if before == "1" else "elsewhere-7")
    waited: list[float] = []
    now = [0.0]
    monkeypatch.setattr(lock.time, "sleep", lambda seconds: (waited.append(seconds), now.__setitem__(0, now[0] + 9)))
    monkeypatch.setattr(lock.time, "monotonic", lambda: now[0])
    with pytest.raises(Unavailable, match="another run is under way"), only_run(tmp_path, leases):  # type: ignore[arg-type]
        pass
    assert waited
    assert len(leases.holders) == 1


def test_a_second_run_on_the_same_machine_is_told_who_runs(tmp_path: Path) -> None:
    """By the number in the lock file; before that is written there is none."""
    told = rf"process {os.getpid()} is running already"
    with only_run(tmp_path, None), pytest.raises(Unavailable, match=told), only_run(tmp_path, None):
        pass
    with (tmp_path / "lock").open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(Unavailable, match="process another process is running already"), only_run(tmp_path, None):
            pass


def test_the_first_run_makes_its_state_folder(tmp_path: Path) -> None:
    """With all that lacks above it."""
    with only_run(tmp_path / "state" / "spillway", None) as lease:
        assert lease is None
        assert (tmp_path / "state" / "spillway" / "lock").read_text(encoding="ascii") == f"{os.getpid()}\n"


@pytest.mark.parametrize(("status", "made"), [(404, [{"metadata": {"name": NAMESPACE}}]), (403, [])])
def test_a_new_cluster_gets_the_namespace_of_the_lease(tmp_path: Path, status: int, made: list[Any]) -> None:
    """With no right to see namespaces the lease can still be held, and nothing is made."""
    leases, bodies = Leases(""), []

    def get(path: str) -> bytes:
        if path.endswith(f"/namespaces/{NAMESPACE}"):
            raise Refused(status, "no")
        return Leases.get(leases, path)

    def send(method: str, path: str, body: dict[str, Any]) -> bytes:
        if path == "/api/v1/namespaces":
            bodies.append(body)
            return b""
        return Leases.send(leases, method, path, body)

    leases.get, leases.send = get, send  # type: ignore[method-assign]
    with only_run(tmp_path, leases):  # type: ignore[arg-type]
        pass
    assert bodies == made


@pytest.mark.parametrize(("refuses", "alive"), [(None, True), (PermissionError, True), (ProcessLookupError, False)])
def test_a_process_of_another_user_is_alive(
    monkeypatch: pytest.MonkeyPatch, refuses: type[OSError] | None, *, alive: bool
) -> None:
    """Only one that is not there is dead."""

    def kill(_process: int, _signal: int) -> None:
        if refuses is not None:
            raise refuses

    monkeypatch.setattr(lock.os, "kill", kill)
    assert lock._is_alive(7) is alive


def test_a_lock_that_is_no_file_of_ours_is_named(tmp_path: Path) -> None:
    """With what to do about it."""
    (tmp_path / "elsewhere").touch()
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    told = r"/lock: cannot be locked: .*: remove it"
    with pytest.raises(Unavailable, match=told), only_run(tmp_path, None):
        pass


def test_a_lease_that_may_not_be_held_says_what_brings_the_right(tmp_path: Path) -> None:
    """The API server's own words, and the file to apply."""

    class No(Leases):
        def send(self, _method: str, _path: str, _body: dict[str, Any]) -> bytes:
            raise Refused(403, "forbidden")

        def get(self, path: str) -> bytes:
            if path.endswith(lock.LEASE):
                raise Refused(403, "forbidden")
            return b"{}"

    told = "is refused .*forbidden.*apply roles/nightly/cronjob.yaml"
    with pytest.raises(Unavailable, match=told), only_run(tmp_path, No("")):  # type: ignore[arg-type]
        pass


def test_a_controller_keeps_its_name(tmp_path: Path) -> None:
    """Another folder is another controller."""
    first = lock.own_name(tmp_path)
    assert first.startswith(f"{socket.gethostname()}-")
    assert lock.own_name(tmp_path) == first
    (tmp_path / "other").mkdir()
    assert lock.own_name(tmp_path / "other") != first
