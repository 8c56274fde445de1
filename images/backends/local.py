"""Jobs as plain processes of this machine: submit, list, read their logs, stop, delete.

A job is a directory: ``plan.json`` (what the local renderer made of it), ``status.json`` (how it goes, written by its
supervisor), ``state/`` (what its launchers write). Whether anything of it lives is told by the lock that they hold.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from autoscaler.model.enumeration import counted
from autoscaler.model.errors import BadInput
from images.backends.devices import devices, given_to
from images.backends.kept import in_turn, stripped
from images.backends.states import Outcome, RoleState, Stage, State, TaskState, tasks_in_words
from images.endpoints import endpoints
from images.jobs import Job
from images.renderers.local import render

_POLL: Final = 0.1
_START_WITHIN: Final = 30.0
_MORE: Final = 5.0
"""Seconds that a supervisor has beyond what its tasks take to end."""
_PORTS: Final = 20_000
"""How far from a job's own ports free ones are looked for."""
Json = dict[str, Any]


def home() -> Path:
    """Where this user's jobs are: ``$XDG_STATE_HOME/spillway/jobs``."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "spillway" / "jobs"


def submit(job: Job) -> list[str]:
    """Start the job's supervisor, which starts its tasks. Returns the tasks.

    Raises ``BadInput`` where it is there, or too few of the machine's GPUs are free.
    """
    folder = home() / job.name
    with _one_at_a_time():
        if (folder / "status.json").exists() or is_alive(folder):
            raise BadInput(
                f"job {job.name!r} is there already in {folder}: choose another name, or "
                f"`spillway jobs delete {job.name} --to local`"
            )
        shift = _free_shift(job)
        run = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
        plan = render(
            job,
            run=run,
            shift=shift,
            state=str(folder / "state"),
            directory=str(Path.cwd()),
            gpus=given_to(job, _free_gpus(), of=len(devices())),
        )
        shutil.rmtree(folder, ignore_errors=True)  # left by one whose start was killed halfway
        folder.mkdir(parents=True)
        (folder / "plan.json").write_text(plan.text)
        _start(folder, job.name)
    return [f"{task['role']}-{task['index']}" for task in plan.documents[0]["tasks"]]


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    home().mkdir(parents=True, exist_ok=True)
    with (home() / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _start(folder: Path, name: str) -> None:
    """The supervisor, in a session of its own; returns when it holds its lock and has written how it goes."""
    with (folder / "supervisor.log").open("wb") as log:
        supervisor = subprocess.Popen(
            [sys.executable, "-m", "images.backends.supervisor", str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    end = time.monotonic() + _START_WITHIN
    while not (folder / "status.json").exists():
        status = supervisor.poll()
        if status is not None or time.monotonic() > end:
            said = (folder / "supervisor.log").read_text(errors="replace").strip()
            why = said or ("it took too long" if status is None else f"it ended with exit status {status}")
            raise BadInput(f"the supervisor of job {name!r} did not start: {why}")
        time.sleep(_POLL)


def _free_shift(job: Job) -> int:
    """How far all of the job's ports are moved so that nothing listens there and no running job means to."""
    taken = {port for folder in _folders() if is_alive(folder) for port in _plan(folder)["ports"]}
    for shift in range(0, _PORTS, job.size):
        addresses = endpoints(job, "local", shift=shift).values()
        ports = {int(address.rpartition(":")[2]) for one in addresses for address in one}
        if not ports & taken and all(map(_is_free, ports)):
            return shift
    raise BadInput(f"job {job.name!r}: no {job.size} ports next to each other are free on this machine: end some job")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_gpus() -> list[str]:
    """Those of this machine that no running job of it holds."""
    with _one_at_a_time():
        return _free_gpus()


def _free_gpus() -> list[str]:
    held = {gpu for folder in _folders() if is_alive(folder) for task in _plan(folder)["tasks"] for gpu in _gpus(task)}
    return [gpu for gpu in devices() if gpu not in held]


def _gpus(task: Json) -> list[str]:
    found: list[str] = task.get("gpus", [])  # not in plans of a machine without any
    return found


def states() -> list[RoleState]:
    """Returns the roles of every job of this machine."""
    return [state for folder in _folders() for state in _states(folder)]


def outcome(*, name: str) -> Outcome:
    """Says how the job stands."""
    folder = home() / name
    try:
        if is_alive(folder):  # before the look: its last word is written before it ends
            return "running"
        return "done" if _status(folder)["state"] == "done" else "failed"
    except FileNotFoundError:
        return "gone"


def follow(*, name: str) -> Iterator[Stage]:
    """Each stage of the job as it changes; the last has a status. Raises ``BadInput`` where it is not there."""
    folder, last = _folder(name), None
    while True:
        stage = _stage(list(_states(folder)))
        if stage != last:
            yield stage
        if stage.status is not None:
            return
        last = stage
        time.sleep(_POLL)


def show(*, name: str) -> tuple[Stage, list[TaskState]]:
    """How far the job has come, and each of its tasks. Raises ``BadInput`` where it is not there."""
    folder = _folder(name)
    roles, plan, status = list(_states(folder)), _plan(folder), _status(folder)
    ended = {role.role: role.state for role in roles if role.state in ("failed", "stopped")}
    return _stage(roles), [_task(task, status, ended.get(task["role"])) for task in plan["tasks"]]


def _task(task: Json, status: Json, ended: State | None) -> TaskState:
    """``ended``: how its role has."""
    said = status["tasks"][f"{task['role']}-{task['index']}"]
    state, failures = said["state"], said["failures"]
    if ended is not None and state != "done":
        state = ended
    devices = tuple(_gpus(task)) if state == "running" else ()
    return TaskState(
        role=task["role"],
        index=task["index"],
        state=state,
        since=datetime.fromisoformat(said["since"]),
        where=f"process {said['pid']}" if state == "running" else "",
        starts=failures + (said["state"] not in ("waiting", "failed")),
        gpus=len(devices),
        devices=devices,
        why=f"failed {counted(failures, 'time')}" if failures else "",
    )


def _stage(roles: list[RoleState]) -> Stage:
    waiting, running = sum(one.waiting for one in roles), sum(one.running for one in roles)
    if waiting or running:
        return Stage("starting" if waiting else "running", f"{running} of {waiting + running} tasks run")
    failed = next((one for one in roles if one.state != "done"), None)
    return Stage("ended", failed.state if failed else "succeeded", 1 if failed else 0)


def _states(folder: Path) -> Iterator[RoleState]:
    plan, status = _plan(folder), _status(folder)
    ended = status["state"] if status["state"] != "running" else None
    if ended is None and not is_alive(folder):
        ended = "failed"  # its supervisor was killed, and its tasks with it
    for role in dict.fromkeys(task["role"] for task in plan["tasks"]):
        tasks = [task for name, task in status["tasks"].items() if name.rpartition("-")[0] == role]
        counts = {state: sum(task["state"] == state for task in tasks) for state in ("waiting", "running", "done")}
        waiting, running = (0, 0) if ended else (counts["waiting"], counts["running"])
        yield RoleState(
            job=plan["job"],
            namespace="local",
            role=role,
            waiting=waiting,
            running=running,
            succeeded=counts["done"],
            failed=sum(task["failures"] for task in tasks),
            gpus=0 if ended else sum(len(_gpus(task)) for task in plan["tasks"] if task["role"] == role),
            state=ended or ("waiting" if waiting else "running" if running else "done"),
            since=datetime.fromisoformat(status["since"]),
        )


def logs(*, name: str, role: str, index: int, follow: bool) -> Iterator[str]:
    """Lines of one task, all attempts. Raises ``BadInput`` where there is no such task."""
    folder = _folder(name)
    plan = _plan(folder)
    tasks = [(task["role"], task["index"]) for task in plan["tasks"]]
    if (role, index) not in tasks:
        raise BadInput(f"job {name!r} has no task {role} {index}: it has {tasks_in_words(tasks)}")
    kept = 0
    while True:
        was_alive = is_alive(folder)  # before the look: what is written until its end is seen
        lines = list(in_turn(f"{role} {index}", _attempts(Path(plan["state"]) / "logs", f"{role}-{index}")))
        yield from lines[kept:]
        kept = len(lines)
        if not follow or not was_alive:
            return
        time.sleep(_POLL)


def _attempts(folder: Path, task: str) -> Iterator[Iterator[str]]:
    files = sorted(folder.glob(f"{task}.*.log"), key=lambda path: int(path.suffixes[-2][1:]))
    return (stripped(path.read_bytes()) for path in files)


def stop(*, name: str) -> bool:
    """End the job's tasks, with grace; returns whether it was running. Raises ``BadInput`` where it is not there."""
    folder = _folder(name)
    if not ask_to_stop(name=name):
        return False
    end = time.monotonic() + json.loads((folder / "plan.json").read_text())["ends_within"] + _MORE
    while is_alive(folder):
        if time.monotonic() > end:
            raise BadInput(f"job {name!r} does not end: see {folder / 'supervisor.log'}")
        time.sleep(_POLL)
    return True


def ask_to_stop(*, name: str) -> bool:
    """Asks the job to end, as :func:`stop`, but does not wait for the end."""
    folder = _folder(name)
    if not is_alive(folder):
        return False
    pid = _status(folder)["pid"]
    with contextlib.suppress(ProcessLookupError, FileNotFoundError):
        if str(folder).encode() in Path(f"/proc/{pid}/cmdline").read_bytes():  # else its number is another's by now
            os.kill(pid, signal.SIGTERM)
    return True


def delete(*, name: str) -> None:
    """Stop the job and remove what it wrote, but for logs in a directory of the user's own."""
    stop(name=name)
    with _one_at_a_time():  # nothing reads it halfway
        shutil.rmtree(_folder(name))


def is_alive(folder: Path) -> bool:
    """Whether the job's lock is held: by its supervisor, or a launcher that has not ended yet."""
    try:
        lock = (folder / "lock").open("rb")
    except FileNotFoundError:
        return False
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _folders() -> list[Path]:
    return sorted(path.parent for path in home().glob("*/status.json"))


def _folder(name: str) -> Path:
    folder = home() / name
    if folder not in _folders():
        raise BadInput(f"there is no job {name!r} in {home()}: `spillway jobs list --to local` shows them")
    return folder


def _plan(folder: Path) -> Json:
    plan: Json = json.loads((folder / "plan.json").read_text())
    return plan


def _status(folder: Path) -> Json:
    status: Json = json.loads((folder / "status.json").read_text())
    return status
