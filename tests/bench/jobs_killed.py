"""Jobs whose processes are killed at any moment: what is left of them, and which of their lines can be read.

    python -m tests.bench jobs-killed --jobs 200 --seed S

Local jobs of two workers and a parameter server, by the command line. Of each one to three processes are killed with
SIGKILL: programs of workers or servers, what these have started, launchers, the supervisor; not the process by
which a launcher keeps lines, with which those in its pipe would be lost. A program writes each line to its output
first, then to a file that nothing else touches: what stands there has to be among what `spillway jobs logs` reads after
the job was deleted.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from click.testing import CliRunner

from images import launcher
from images.backends import local
from images.cli import jobs
from tests.bench.figure import Figure

PROGRAM: Final = """\
import os, pathlib, subprocess, sys, time
truth = open(pathlib.Path(sys.argv[1]) / f"{os.environ['TASK_ROLE']}-{os.environ['TASK_INDEX']}.{os.getpid()}", "ab", 0)
ends = time.monotonic() + float(sys.argv[2])
subprocess.Popen(["sleep", "300"])
number = 0
while time.monotonic() < ends:
    line = b"%d line %d\\n" % (os.getpid(), number)
    os.write(1, line)
    truth.write(line)
    number += 1
    time.sleep(0.001)
"""
JOB: Final = """\
name: {name}
failure: {{restarts: 4}}
logs: {folder}/logs
roles:
  worker:
    {{count: 2, cpus: 1, memory: 1Gi, entry: [{python}, {folder}/program.py, "{truth}", "1.0"], env: &env {{{mark}}}}}
  ps: {{cpus: 1, memory: 1Gi, entry: [{python}, {folder}/program.py, "{truth}", "600"], env: *env}}
"""
_TASKS: Final = 3
LEFT_WITHIN: Final = 5.0
"""Seconds from a job's end to when nothing of it may be left."""

_WORKS: Final = 0.8
"""So often a process is killed when all programs write; else at any time after the job was submitted."""


@dataclass
class Found:
    """What came of all jobs."""

    killed: Counter[str] = field(default_factory=Counter)
    """By what they were."""
    ended: Counter[str] = field(default_factory=Counter)
    left: list[str] = field(default_factory=list)
    """Processes that live 5 s after their job's end."""
    lines: int = 0
    lost: Counter[str] = field(default_factory=Counter)
    """Lines, by what was killed of their job."""


def jobs_killed(many: int, *, seed: int) -> Iterator[Figure]:
    """Figures of so many jobs; 0 lines and 0 processes are the bound."""
    found = Found()
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as place:
        campaign(Path(place), many, random.Random(seed), found)  # noqa: S311 - the same kills every time
    for what, count in found.killed.most_common():
        print(f"  {count:4} killed: {what}")
    for one in found.left:
        print(f"  LEFT: {one}")
    for what, count in found.lost.most_common():
        print(f"  LOST: {count} lines where {what} was killed")
    ends = ", ".join(f"{count} {end}" for end, count in found.ended.most_common())
    what = f"{many} jobs, {found.killed.total()} processes killed ({ends})"
    yield Figure(f"{what}: processes left after 5 s", len(found.left), "", 0)
    yield Figure(f"of {found.lines} lines, not to be read", found.lost.total(), "", 0)


def campaign(folder: Path, many: int, dice: random.Random, found: Found) -> None:
    """One job after the other."""
    (folder / "program.py").write_text(PROGRAM)
    os.environ["XDG_STATE_HOME"] = str(folder / "state")
    for number in range(many):
        _one(folder, f"job-{number}", dice, found)


def _one(folder: Path, name: str, dice: random.Random, found: Found) -> None:
    truth = folder / "truth" / name
    truth.mkdir(parents=True)
    mark = f"{folder.name}/{name}"
    file = folder / "job.yaml"
    file.write_text(JOB.format(name=name, folder=folder, python=sys.executable, truth=truth, mark=f'KILLED: "{mark}"'))
    _typed("submit", str(file), "--to", "local")
    killed = []
    for _ in range(dice.randint(1, 3)):
        if dice.random() < _WORKS:
            _until_all_write(truth, name)
        time.sleep(dice.uniform(0.0, 0.6))
        if (victim := _kill_one(mark, name, dice)) is not None:
            killed.append(victim)
    while _runs(name):
        time.sleep(0.05)
    found.killed.update(killed)
    found.ended[local.outcome(name=name)] += 1
    end = time.monotonic() + LEFT_WITHIN
    while (left := list(_processes(mark))) and time.monotonic() < end:
        time.sleep(0.05)
    found.left += [f"{name}: {kind} {pid}" for pid, kind in left]
    _typed("delete", name, "--to", "local")
    _read(folder, name, truth, found, "a " + " and a ".join(sorted(killed)))


def _read(folder: Path, name: str, truth: Path, found: Found, killed: str) -> None:
    for task in sorted({path.name.rpartition(".")[0] for path in truth.iterdir()}):
        role, _, index = task.rpartition("-")
        wrote = {line for path in truth.glob(f"{task}.*") for line in path.read_text().splitlines()}
        said = _typed("logs", name, "--role", role, "--index", index, "--from", str(folder / "logs"))
        found.lines += len(wrote)
        found.lost += Counter({killed: len(wrote - set(said.splitlines()))})


def _until_all_write(truth: Path, name: str) -> None:
    """Or the job has ended."""
    while len({path.name.rpartition(".")[0] for path in truth.iterdir()}) < _TASKS and _runs(name):
        time.sleep(0.02)


def _runs(name: str) -> bool:
    return local.outcome(name=name) == "running"


def _kill_one(mark: str, name: str, dice: random.Random) -> str | None:
    """SIGKILL to one process of the job: first what it is to be, then which."""
    kinds: dict[str, list[int]] = {}
    for pid, kind in _processes(mark):
        with contextlib.suppress(ProcessLookupError):
            if not (kind.endswith("launcher") and os.getsid(pid) == pid):  # the keeper leads a session of its own
                kinds.setdefault(kind, []).append(pid)
    with contextlib.suppress(OSError, KeyError, ValueError):
        kinds["supervisor"] = [json.loads((local.home() / name / "status.json").read_text())["pid"]]
    if not kinds:
        return None
    kind = dice.choice(sorted(kinds))
    with contextlib.suppress(ProcessLookupError):
        os.kill(dice.choice(sorted(kinds[kind])), signal.SIGKILL)
        return kind
    return None


def _processes(mark: str) -> Iterator[tuple[int, str]]:
    """All on this machine that carry the job's mark, and what they are."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            environment = dict(
                one.split("=", 1) for one in (folder / "environ").read_text(errors="replace").split("\0") if "=" in one
            )
            if environment.get("KILLED") == mark and (words := (folder / "cmdline").read_text().split("\0"))[0]:
                yield int(folder.name), _kind(words, environment.get("SPILLWAY_ROLE", ""))


def _kind(words: list[str], role: str) -> str:
    if launcher.__file__ in words:
        return f"{role}'s launcher"
    return f"{role}'s child" if words[0] == "sleep" else role


def _typed(*words: str) -> str:
    """What `spillway jobs WORDS` says."""
    done = CliRunner().invoke(jobs, words, catch_exceptions=False)
    if done.exit_code:
        raise SystemExit(f"spillway jobs {' '.join(words)}: {done.output}")
    return done.stdout
