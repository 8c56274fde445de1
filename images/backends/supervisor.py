"""Keeps one job of plain processes: ``python -m images.backends.supervisor DIRECTORY``.

It starts each task's launcher when what it depends on is done, starts it again when it failed, ends the job when its
essential tasks have ended or the deadline has come, and passes SIGTERM on. What it starts ends with it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

from images import launcher

_POLL: Final = 0.05
Progress = Literal["waiting", "running", "done", "failed", "ended"]
Outcome = Literal["running", "done", "failed", "stopped"]


@dataclass
class _Task:
    """One task and its process."""

    role: str
    index: int
    plan: dict[str, Any]
    state: Progress = "waiting"
    failures: int = 0
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        return f"{self.role}-{self.index}"


class _Supervisor:
    """One job, from its plan to its end."""

    def __init__(self, folder: Path, *, lock: int) -> None:
        self._lock = lock
        self._folder = folder
        self._plan: dict[str, Any] = json.loads((folder / "plan.json").read_text())
        self._state = Path(self._plan["state"])
        self._tasks = [_Task(task["role"], task["index"], task) for task in self._plan["tasks"]]
        self._began = time.monotonic()
        self._written = ""
        self._told: dict[str, dict[str, Any]] = {}
        """Task -> what was written of it."""
        self._is_stopped = False

    def run(self) -> None:
        """Runs until the job has ended."""
        signal.signal(signal.SIGTERM, self._stop)
        while (outcome := self._step()) == "running":
            self._write(outcome)
            time.sleep(_POLL)
        self._end_all(outcome)
        self._write(outcome)

    def _stop(self, *_: object) -> None:
        self._is_stopped = True

    def _step(self) -> Outcome:
        """Look at every task once, and start what is to be started."""
        for task in self._tasks:
            self._look(task)
        if self._is_stopped:
            return "stopped"
        if any(task.state == "failed" for task in self._tasks) or self._is_late():
            return "failed"
        if self._has_succeeded():
            return "done"
        for task in self._tasks:
            if task.state == "waiting" and self._may_start(task):
                self._start(task)
        return "running"

    def _look(self, task: _Task) -> None:
        if task.process is None or task.process.poll() is None:
            return
        status, task.process = task.process.returncode, None
        self._kill_group(task)  # what a killed launcher could not end
        again = task.plan["restart"]
        if status == 0:
            task.state = "waiting" if again == "always" and task.role not in self._plan["essential"] else "done"
            return
        task.failures += 1
        may = again in ("on-failure", "always") and self._failures(task.role) <= self._plan["restarts"]
        task.state = "waiting" if may else "failed"

    def _failures(self, role: str) -> int:
        return sum(task.failures for task in self._tasks if task.role == role)

    def _is_late(self) -> bool:
        deadline = self._plan["deadline"]
        return deadline is not None and time.monotonic() - self._began > deadline

    def _has_succeeded(self) -> bool:
        main = self._plan["essential"]
        if self._plan["success"] == "first":
            return any((task.role, task.index) == (main[0], 0) and task.state == "done" for task in self._tasks)
        return all(task.state == "done" for task in self._tasks if task.role in main)

    def _may_start(self, task: _Task) -> bool:
        others = self._plan["depends_on"].get(task.role, ())
        return all(other.state == "done" for other in self._tasks if other.role in others)

    def _start(self, task: _Task) -> None:
        environment = os.environ | task.plan["environment"]
        if "path" in task.plan:
            environment["PATH"] = f"{task.plan['path']}:{environment.get('PATH', '')}"
        with (self._folder / "supervisor.log").open("ab") as log:
            task.process = subprocess.Popen(
                [sys.executable, launcher.__file__, *task.plan["command"]],
                env=environment,
                cwd=self._plan["directory"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # every line is in its log
                stderr=log,
                pass_fds=(self._lock,),  # while any launcher lives, the job does
                preexec_fn=launcher.die_with(os.getpid(), signal.SIGTERM),  # noqa: PLW1509 - there is one thread
            )
        task.state = "running"

    def _end_all(self, outcome: Outcome) -> None:
        """Tell every launcher, which has its grace, then kill what is left."""
        left = [task for task in self._tasks if task.process]
        for task in left:
            if task.process:
                task.process.send_signal(signal.SIGTERM)
        end = time.monotonic() + self._plan["ends_within"]
        for task in left:
            if task.process:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    task.process.wait(max(0.0, end - time.monotonic()))
                task.process.kill()
                task.process.wait()
            self._kill_group(task)
            task.process, task.state = None, "done" if outcome == "done" else "ended"

    def _kill_group(self, task: _Task) -> None:
        """What the task's program started, if its launcher did not live to end it."""
        mark = self._state / "groups" / task.name
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            os.killpg(json.loads(mark.read_text())["group"], signal.SIGKILL)
        mark.unlink(missing_ok=True)

    def _write(self, outcome: Outcome) -> None:
        tasks = {task.name: self._said_of(task) for task in self._tasks}
        said = json.dumps({"state": outcome, "pid": os.getpid(), "tasks": tasks})
        if said == self._written:
            return
        self._written = said
        half = self._folder / ".status.json"
        half.write_text(json.dumps(json.loads(said) | {"since": datetime.now(UTC).isoformat()}))
        half.rename(self._folder / "status.json")

    def _said_of(self, task: _Task) -> dict[str, Any]:
        """Returns the task's state with since when it is so."""
        now = {"state": task.state, "failures": task.failures, "pid": task.process.pid if task.process else None}
        before = self._told.get(task.name, {})
        if any(before.get(key) != value for key, value in now.items()):
            self._told[task.name] = now | {"since": datetime.now(UTC).isoformat()}
        return self._told[task.name]


def main(folder: Path) -> None:
    """Supervise the job in the directory, which no other process may do meanwhile."""
    with (folder / "lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _Supervisor(folder, lock=lock.fileno()).run()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
