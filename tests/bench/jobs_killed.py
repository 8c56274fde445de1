"""Jobs of which anything is killed at any moment: what is left of them, and which of their lines can be read.

    python -m tests.bench jobs-killed --jobs 200 --on-slurm 50 --seed S

Jobs of two workers and a parameter server, as local processes or on a real Slurm of three machines. Each is struck one
to three times. SIGKILL ends programs of workers or servers, what these have started, launchers, the supervisor, srun,
slurmd; a machine is cut off, and stays so until the job has ended elsewhere. Not the process alone by which a launcher
keeps lines, with which those in its pipe would be lost.

A program writes each line to its output first, then to a file that nothing else touches: what stands there has to be
among what `spillway jobs logs` reads when the job is gone. Where a machine was cut off, the last ones that a program
wrote may not have been numbered yet: these are counted by themselves, and none may be missing before one that is there.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from tests.bench.figure import Figure
from tests.bench.jobs_killed_kubernetes import cluster
from tests.bench.jobs_killed_places import CUT_OFF, Local, Place, Slurm, typed
from tests.live.machines import Bench
from tests.live.slurm import slurm_cluster

PROGRAM: Final = """\
import os, pathlib, subprocess, sys, time, uuid
run = uuid.uuid4().hex[:12]
truth = open(pathlib.Path(sys.argv[1]) / f"{os.environ['TASK_ROLE']}-{os.environ['TASK_INDEX']}.{run}", "ab", 0)
ends = time.monotonic() + float(sys.argv[2])
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
number = 0
while time.monotonic() < ends:
    line = b"%s line %d\\n" % (run.encode(), number)
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
    count: 2
    entry: [{python}, {folder}/program.py, "{truth}", "{seconds}"]
    <<: &same {{cpus: 0.2, memory: 256Mi, env: {{{mark}}}, {more}}}
  ps: {{entry: [{python}, {folder}/program.py, "{truth}", "600"], <<: *same}}
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
    ended_elsewhere: Counter[str] = field(default_factory=Counter)
    """Of jobs under which a machine was cut off."""
    left: list[str] = field(default_factory=list)
    """Processes that live 5 s after their job's end."""
    lines: int = 0
    lost: Counter[str] = field(default_factory=Counter)
    """Lines, by what was killed of their job."""
    unnumbered: int = 0
    """The last ones that programs wrote on machines that were cut off."""
    runs: Counter[int] = field(default_factory=Counter)
    """Of programs of a task, by how many."""


def jobs_killed(many: int, *, seed: int, on_slurm: int = 0, on_kubernetes: int = 0) -> Iterator[Figure]:
    """Figures of so many jobs, some of them on Slurm and in Kubernetes; 0 lines and 0 tasks are the bound."""
    dice = random.Random(seed)  # noqa: S311 - the same kills every time
    if (here := many - on_slurm - on_kubernetes) > 0:
        with tempfile.TemporaryDirectory(prefix="spillway-bench-") as place:
            yield from _figures("local", campaign(_open(Path(place)), here, dice, Local()))
    if on_slurm:
        with _machines() as (bench, home):
            slurm = Slurm(bench, slurm_cluster(bench, ("a", "b", "c")))
            yield from _figures("Slurm", campaign(home, on_slurm, dice, slurm))
    if on_kubernetes:
        with _machines() as (bench, home), cluster(bench, home=home, directory=home.parent / "cluster") as made:
            yield from _figures("Kubernetes", campaign(home, on_kubernetes, dice, made))


@contextlib.contextmanager
def _machines() -> Iterator[tuple[Bench, Path]]:
    """A bench of machines, and a folder that all of them see."""
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as place:
        Path(place).chmod(0o755)
        home = _open(Path(place) / "home")
        with Bench(Path(place) / "bench", shared=(home,)) as bench:
            yield bench, home


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
    runs = ", ".join(f"{count} {many}" for many, count in sorted(found.runs.items()))
    cut = ", ".join(f"{count} {end}" for end, count in found.ended_elsewhere.most_common() if count) or "none"
    print(f"  {where}: jobs under which a machine was cut off: {cut}")
    print(f"  {where}: tasks by how often their program ran: {runs}; {found.unnumbered} lines of machines not numbered")
    what = f"{where}, {found.ended.total()} jobs, {found.killed.total()} killed ({ends})"
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
    told = {"name": name, "folder": folder, "python": place.python, "seconds": dice.choice(place.seconds)}
    told["more"] = place.more
    text = JOB.format(**told, truth=truth, mark=f'KILLED: "{mark}"')
    file.write_text(text)
    place.submit(file)
    killed = []
    for _ in range(dice.randint(1, 3)):
        if dice.random() < _WORKS:
            _until_all_write(truth, name, place)
        time.sleep(dice.uniform(0.0, 0.6))
        if (victim := _kill_one(mark, name, dice, place)) is not None:
            killed.append(victim)
    end, left = _end_of(name, mark, place)
    found.killed.update(killed)
    found.ended[end] += 1
    found.ended_elsewhere[end] += CUT_OFF in killed
    found.left += [f"{name}: {one}" for one in left]
    place.forget(name)
    _read(folder, name, truth, found, killed=killed, cuts=place.cuts)
    so_far = f"{len(found.left)} left, {found.lost.total()} of {found.lines} lines lost, {found.unnumbered} unnumbered"
    print(f"  {name}: {end}; killed: {', '.join(killed) or 'nothing'}; so far {so_far}", flush=True)


def _end_of(name: str, mark: str, place: Place) -> tuple[str, list[str]]:
    """How it ends, and what is left of it after five seconds. Slurm may put it into its queue again meanwhile."""
    while True:
        while (end := place.outcome(name)) == "running":
            time.sleep(0.05)
        by = time.monotonic() + LEFT_WITHIN
        while left := [*(f"{kind} {pid}" for pid, kind in _processes(mark)), *place.held()]:
            if time.monotonic() > by:
                break
            time.sleep(0.05)
        if place.outcome(name) != "running":
            return end, left


def _read(folder: Path, name: str, truth: Path, found: Found, *, killed: list[str], cuts: frozenset[str]) -> None:
    """Compare what programs wrote with what can be read."""
    by = "a " + " and a ".join(sorted(killed))
    for task in sorted({path.name.rpartition(".")[0] for path in truth.iterdir()}):
        role, _, index = task.rpartition("-")
        said = set(typed("logs", name, "--role", role, "--index", index, "--from", str(folder / "logs")).splitlines())
        runs = [path.read_text().splitlines() for path in truth.glob(f"{task}.*")]
        found.runs[len(runs)] += 1
        for wrote in runs:
            kept = [line in said for line in wrote]
            last = len(kept) - kept[::-1].index(True) if any(kept) else 0
            tail = len(kept) - last if cuts.intersection(killed) else 0
            found.lines += len(kept)
            found.unnumbered += tail
            found.lost += Counter({by: kept.count(False) - tail})


def _until_all_write(truth: Path, name: str, place: Place) -> None:
    """Or the job has ended."""
    while len({path.name.rpartition(".")[0] for path in truth.iterdir()}) < _TASKS:
        if place.outcome(name) != "running":
            return
        time.sleep(0.02)


def _kill_one(mark: str, name: str, dice: random.Random, place: Place) -> str | None:
    """Strike once: first what it is to be, then which."""
    strikes = {what: found for what, found in place.strikes(name).items() if found}
    for pid, kind in _processes(mark):
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            if not (kind.endswith("launcher") and _keeps(pid)):
                strikes.setdefault(kind, []).append(partial(os.kill, pid, signal.SIGKILL))
    if not strikes:
        return None
    kind = dice.choice(sorted(strikes))
    with contextlib.suppress(ProcessLookupError):
        dice.choice(strikes[kind])()
        return kind
    return None


def _keeps(pid: int) -> bool:
    """Whether it is no launcher but keeps lines: in a session of its own, and first in no container."""
    inside = Path(f"/proc/{pid}/status").read_text().partition("NSpid:")[2].split("\n")[0].split()[-1]
    return os.getsid(pid) == pid and inside != "1"


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
    if any(word.endswith("launcher.py") or "def main(command" in word for word in words):  # by file, or as Slurm has it
        return f"{role}'s launcher"
    if words[0] == "srun":
        return "srun"
    return f"{role}'s child" if words[1] == "-c" else role
