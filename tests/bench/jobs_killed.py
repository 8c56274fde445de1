"""Jobs whose processes are killed at any moment: what is left of them, and which of their lines can be read.

    python -m tests.bench jobs-killed --jobs 200 --on-slurm 50 --seed S

Jobs of two workers and a parameter server, as local processes or on a real Slurm of three machines. Of each one to
three processes are killed with SIGKILL: programs of workers or servers, what these have started, launchers, the
supervisor or srun; not the process by which a launcher keeps lines, with which those in its pipe would be lost. A
program writes each line to its output first, then to a file that nothing else touches: what stands there has to be
among what `spillway jobs logs` reads when the job is gone.
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
from typing import Final, Protocol

from click.testing import CliRunner

from images import launcher
from images.backends import local
from images.cli import jobs
from tests.bench.figure import Figure
from tests.live.machines import Bench
from tests.live.slurm import SlurmCluster, slurm_cluster

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


class Place(Protocol):
    """What runs the jobs, one after the other."""

    python: str
    """The interpreter that it has."""

    def submit(self, file: Path) -> None:
        """Start the job."""

    def outcome(self, name: str) -> str:
        """``running``, or how it has ended."""

    def others(self, name: str) -> dict[str, list[int]]:
        """Processes that carry no mark of the job and may be killed, by what they are."""

    def held(self) -> list[str]:
        """Allocations of jobs."""

    def forget(self, name: str) -> None:
        """Delete the job."""


class Local:
    """Processes of this machine."""

    python = sys.executable

    def submit(self, file: Path) -> None:
        """By the command line."""
        _typed("submit", str(file), "--to", "local")

    def outcome(self, name: str) -> str:
        """As its status says."""
        return local.outcome(name=name)

    def others(self, name: str) -> dict[str, list[int]]:
        """The supervisor."""
        with contextlib.suppress(OSError, KeyError, ValueError):
            return {"supervisor": [json.loads((local.home() / name / "status.json").read_text())["pid"]]}
        return {}

    def held(self) -> list[str]:
        """Jobs whose lock is held."""
        return [path.name for path in local.home().glob("*/") if local.is_alive(path)]

    def forget(self, name: str) -> None:
        """With all that it wrote, but for its lines."""
        _typed("delete", name, "--to", "local")


@dataclass
class Slurm:
    """Debian's, on machines of the bench."""

    cluster: SlurmCluster
    python = "python3"
    _number: str = ""

    def submit(self, file: Path) -> None:
        """Rendered, and by ``sbatch``."""
        script = file.with_suffix(".sh")
        script.write_text(_typed("render", str(file), "--to", "slurm"))
        self._number = self.cluster.submit(script)

    def outcome(self, name: str) -> str:
        """As the controller has it, once no component is to run any more."""
        if self.cluster.typed("squeue --noheader --states=PENDING,CONFIGURING,RUNNING").strip():
            return "running"
        said = self.cluster.typed(f"scontrol --oneliner show job {self._number}")
        return next(word.partition("=")[2].lower() for word in said.split() if word.startswith("JobState="))

    def others(self, name: str) -> dict[str, list[int]]:
        """None: those of srun carry the mark."""
        return {}

    def held(self) -> list[str]:
        """Jobs that hold nodes, also while they complete."""
        return self.cluster.typed("squeue --noheader").splitlines()

    def forget(self, name: str) -> None:
        """Nothing is to be done: it is gone from the queue."""


def jobs_killed(many: int, *, seed: int, on_slurm: int = 0) -> Iterator[Figure]:
    """Figures of so many jobs, some of them on Slurm; 0 lines and 0 tasks are the bound."""
    dice = random.Random(seed)  # noqa: S311 - the same kills every time
    if many > on_slurm:
        with tempfile.TemporaryDirectory(prefix="spillway-bench-") as place:
            yield from _figures("local", campaign(_open(Path(place)), many - on_slurm, dice, Local()))
    if not on_slurm:
        return
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as place:
        Path(place).chmod(0o755)
        home = _open(Path(place) / "home")
        with Bench(Path(place) / "bench", shared=(home,)) as bench:
            slurm = Slurm(slurm_cluster(bench, ("a", "b", "c")))
            yield from _figures("Slurm", campaign(home, on_slurm, dice, slurm))


def _open(folder: Path) -> Path:
    """For all users: on Slurm's machines jobs are not root's."""
    for one in (folder, folder / "logs", folder / "truth"):
        one.mkdir(exist_ok=True)
        one.chmod(0o777)
    return folder


def _figures(where: str, found: Found) -> Iterator[Figure]:
    for what, count in found.killed.most_common():
        print(f"  {where}: {count:4} killed: {what}")
    for one in found.left:
        print(f"  {where}: LEFT: {one}")
    for what, count in found.lost.most_common():
        print(f"  {where}: LOST: {count} lines where {what} was killed")
    ends = ", ".join(f"{count} {end}" for end, count in found.ended.most_common())
    what = f"{where}, {found.ended.total()} jobs, {found.killed.total()} processes killed ({ends})"
    yield Figure(f"{what}: tasks and allocations left after 5 s", len(found.left), "", 0)
    yield Figure(f"{where}, of {found.lines} lines, not to be read", found.lost.total(), "", 0)


def campaign(folder: Path, many: int, dice: random.Random, place: Place) -> Found:
    """One job after the other."""
    found = Found()
    (folder / "program.py").write_text(PROGRAM)
    os.environ["XDG_STATE_HOME"] = str(folder / "state")
    for number in range(many):
        _one(folder, f"job-{number}", dice, place, found)
    return found


def _one(folder: Path, name: str, dice: random.Random, place: Place, found: Found) -> None:
    truth = folder / "truth" / name
    truth.mkdir()
    truth.chmod(0o777)
    mark = f"{folder.parent.name}/{folder.name}/{name}"
    file = folder / "job.yaml"
    text = JOB.format(name=name, folder=folder, python=place.python, truth=truth, mark=f'KILLED: "{mark}"')
    file.write_text(text)
    place.submit(file)
    killed = []
    for _ in range(dice.randint(1, 3)):
        if dice.random() < _WORKS:
            _until_all_write(truth, name, place)
        time.sleep(dice.uniform(0.0, 0.6))
        if (victim := _kill_one(mark, name, dice, place)) is not None:
            killed.append(victim)
    while (end := place.outcome(name)) == "running":
        time.sleep(0.05)
    found.killed.update(killed)
    found.ended[end] += 1
    by = time.monotonic() + LEFT_WITHIN
    while (left := [*(f"{kind} {pid}" for pid, kind in _processes(mark)), *place.held()]) and time.monotonic() < by:
        time.sleep(0.05)
    found.left += [f"{name}: {one}" for one in left]
    place.forget(name)
    _read(folder, name, truth, found, "a " + " and a ".join(sorted(killed)))


def _read(folder: Path, name: str, truth: Path, found: Found, killed: str) -> None:
    for task in sorted({path.name.rpartition(".")[0] for path in truth.iterdir()}):
        role, _, index = task.rpartition("-")
        wrote = {line for path in truth.glob(f"{task}.*") for line in path.read_text().splitlines()}
        said = _typed("logs", name, "--role", role, "--index", index, "--from", str(folder / "logs"))
        found.lines += len(wrote)
        found.lost += Counter({killed: len(wrote - set(said.splitlines()))})


def _until_all_write(truth: Path, name: str, place: Place) -> None:
    """Or the job has ended."""
    while len({path.name.rpartition(".")[0] for path in truth.iterdir()}) < _TASKS:
        if place.outcome(name) != "running":
            return
        time.sleep(0.02)


def _kill_one(mark: str, name: str, dice: random.Random, place: Place) -> str | None:
    """SIGKILL to one process of the job: first what it is to be, then which."""
    kinds = place.others(name)
    for pid, kind in _processes(mark):
        with contextlib.suppress(ProcessLookupError):
            if not (kind.endswith("launcher") and os.getsid(pid) == pid):  # the keeper leads a session of its own
                kinds.setdefault(kind, []).append(pid)
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
    if launcher.__file__ in words or any("def main(command" in word for word in words):  # by file, or as Slurm has it
        return f"{role}'s launcher"
    if words[0] == "srun":
        return "srun"
    return f"{role}'s child" if words[0] == "sleep" else role


def _typed(*words: str) -> str:
    """What `spillway jobs WORDS` says."""
    done = CliRunner().invoke(jobs, words, catch_exceptions=False)
    if done.exit_code:
        raise SystemExit(f"spillway jobs {' '.join(words)}: {done.output}")
    return done.stdout
