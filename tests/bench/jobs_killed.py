"""Jobs of which anything is killed at any moment: what is left of them, and which of their lines can be read.

    python -m tests.bench jobs-killed --jobs 200 --on-slurm 50 --on-kubernetes 20 --seed S [--in-bucket]

Jobs of two workers and a parameter server, as local processes, on a real Slurm of three machines, on two real nodes of
Kubernetes, in containers of a compose file, as services of a real YARN. Each is struck one to three times. SIGKILL ends
programs of workers or servers, what these have started, launchers, the supervisor, srun, slurmd, kubelets, containerd,
a pod's sandbox, the engine of containers, a service's master, a node manager; a machine is cut off until the job has
ended elsewhere, or started again at once; a bucket does not answer for some seconds. Not the process alone by which a
launcher keeps lines, with which those in its pipe would be lost.

A program writes each line to its output first, then to a file that nothing else touches: what stands there has to be
among what `spillway jobs logs` reads when the job is gone. Where a machine was cut off, the last ones that a program
wrote may not have been numbered yet, or not have come to a bucket, where they go after a second: these are counted
by themselves, and none may be missing before one that is there.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final

from autoscaler.model.errors import BadInput
from tests.bench.figure import Figure
from tests.bench.jobs_killed_compose import Compose, compose_program
from tests.bench.jobs_killed_kubernetes import cluster
from tests.bench.jobs_killed_places import BACK, CUT_OFF, DEAD, Local, Place, Slurm, typed
from tests.bench.jobs_killed_yarn import YarnServices
from tests.live.bucket import KEPT, Bucket, bucket
from tests.live.machines import Bench
from tests.live.slurm import slurm_cluster
from tests.training.yarn import mini_yarn

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
logs: {logs}
roles:
  worker:
    count: 2
    entry: [{python}, {folder}/program.py, "{truth}", "{seconds}"]
    <<: &same {{cpus: 0.2, memory: 256Mi, env: {env}, {more}}}
  ps: {{entry: [{python}, {folder}/program.py, "{truth}", "600"], <<: *same}}
"""
NOWHERE: Final[Mapping[str, int]] = MappingProxyType({})
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
    """The last ones that programs wrote on machines that were cut off, not numbered or not yet in a bucket."""
    longest: int = 0
    """The most of them of one run of a program, which writes a thousand in a second."""
    runs: Counter[int] = field(default_factory=Counter)
    """Of programs of a task, by how many."""


def jobs_killed(many: int, *, seed: int, on: Mapping[str, int] = NOWHERE, in_bucket: bool = False) -> Iterator[Figure]:
    """Figures of so many jobs, of which so many run ``on`` each of the ``PLACES``, and the others as local processes.

    0 lines and 0 tasks are the bound. ``in_bucket``: lines go to a bucket, not to a directory that all tasks see.
    """
    dice = random.Random(seed)  # noqa: S311 - the same kills every time
    for name, count in {"local": many - sum(on.values()), **on}.items():
        if count > 0:
            with (
                tempfile.TemporaryDirectory(prefix="spillway-bench-") as folder,
                PLACES[name](folder, in_bucket) as made,
            ):
                yield from _figures(f"{name}, a bucket" if in_bucket else name, campaign(*made, count, dice))


Made = tuple[Path, Place]
"""A folder that all tasks see, and what runs them."""


@contextlib.contextmanager
def _local(folder: str, in_bucket: bool) -> Iterator[Made]:  # noqa: FBT001 - as all places
    with bucket() if in_bucket else contextlib.nullcontext() as kept:
        yield _open(Path(folder)), Local(kept)


@contextlib.contextmanager
def _slurm(folder: str, in_bucket: bool) -> Iterator[Made]:  # noqa: FBT001
    with _machines(folder, in_bucket=in_bucket) as (bench, home, kept):
        yield home, Slurm(bench, slurm_cluster(bench, ("a", "b", "c")), kept)


@contextlib.contextmanager
def _kubernetes(folder: str, in_bucket: bool) -> Iterator[Made]:  # noqa: FBT001
    with (
        _machines(folder, in_bucket=in_bucket) as (bench, home, kept),
        cluster(bench, home=home, directory=Path(folder) / "cluster", kept=kept) as made,
    ):
        yield home, made


@contextlib.contextmanager
def _compose(folder: str, in_bucket: bool) -> Iterator[Made]:  # noqa: FBT001
    _refuse_bucket("compose", in_bucket=in_bucket)
    program = compose_program()
    with _machines(folder, installed=(program.parent,)) as (bench, home, _):
        yield home, Compose.on(bench, home=home, program=program)


@contextlib.contextmanager
def _yarn(folder: str, in_bucket: bool) -> Iterator[Made]:  # noqa: FBT001
    _refuse_bucket("yarn", in_bucket=in_bucket)
    place = Path(folder) / "yarn"
    place.mkdir()
    with mini_yarn(place, hosts=()) as made:
        yield _open(Path(folder)), YarnServices(made)


PLACES: Final[Mapping[str, Callable[[str, bool], contextlib.AbstractContextManager[Made]]]] = {
    "local": _local,
    "slurm": _slurm,
    "kubernetes": _kubernetes,
    "compose": _compose,
    "yarn": _yarn,
}


def _refuse_bucket(place: str, *, in_bucket: bool) -> None:
    if in_bucket:
        raise SystemExit(f"{place}: only a directory that all tasks see ends a job's servers there")


@contextlib.contextmanager
def _machines(
    folder: str, *, in_bucket: bool = False, installed: Sequence[Path] = ()
) -> Iterator[tuple[Bench, Path, Bucket | None]]:
    """A bench of machines, a folder that all of them see, and a bucket where one is asked for."""
    Path(folder).chmod(0o755)
    home = _open(Path(folder) / "home")
    with (
        Bench(Path(folder) / "bench", shared=(home,), installed=installed) as bench,
        bucket(bench.gateway) if in_bucket else contextlib.nullcontext() as kept,
    ):
        yield bench, home, kept


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
    print(f"  {where}: tasks by how often their program ran: {runs}")
    print(f"  {where}: lines of what was cut off, not kept yet: {found.unnumbered}, of one run at most {found.longest}")
    what = f"{where}, {found.ended.total()} jobs, {found.killed.total()} killed ({ends})"
    yield Figure(f"{what}: tasks and allocations left after 5 s", len(found.left), "", 0)
    yield Figure(f"{where}, of {found.lines} lines, not to be read", found.lost.total(), "", 0)


def campaign(folder: Path, place: Place, many: int, dice: random.Random) -> Found:
    """One job after the other."""
    found = Found()
    os.environ.update(place.bucket.environment if place.bucket else {})  # local tasks, and who reads
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
    logs = KEPT if place.bucket else str(folder / "logs")
    told = {"name": name, "folder": folder, "python": place.python, "seconds": dice.choice(place.seconds)}
    told |= {"logs": logs, "more": place.more, "env": json.dumps({"KILLED": mark, **place.told})}
    text = JOB.format(**told, truth=truth)
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
    found.ended_elsewhere[end] += bool({CUT_OFF, DEAD, BACK}.intersection(killed))
    print(f"  {name}: {end}; killed: {', '.join(killed) or 'nothing'}", flush=True)
    found.left += [f"{name}: {one}" for one in left]
    place.forget(name)
    if place.bucket:
        place.bucket.wait()
    _read(logs, name, truth, found, killed=killed, cuts=place.cuts)
    so_far = f"{len(found.left)} left, {found.lost.total()} of {found.lines} lines lost, {found.unnumbered} unnumbered"
    print(f"  {name}: so far {so_far}", flush=True)


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


def _read(logs: str, name: str, truth: Path, found: Found, *, killed: list[str], cuts: frozenset[str]) -> None:
    """Compare what programs wrote with what can be read."""
    by = "a " + " and a ".join(sorted(killed))
    for task in sorted({path.name.rpartition(".")[0] for path in truth.iterdir()}):
        role, _, index = task.rpartition("-")
        said = set[str]()
        with contextlib.suppress(BadInput):  # none was kept of a task that was cut off as it began
            said.update(typed("logs", name, "--role", role, "--index", index, "--from", logs).splitlines())
        runs = [path.read_text().splitlines() for path in truth.glob(f"{task}.*")]
        found.runs[len(runs)] += 1
        for wrote in runs:
            kept = [line in said for line in wrote]
            last = len(kept) - kept[::-1].index(True) if any(kept) else 0
            tail = len(kept) - last if cuts.intersection(killed) else 0
            found.lines += len(kept)
            found.unnumbered += tail
            found.longest = max(found.longest, tail)
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
    if place.bucket:
        strikes["the bucket"] = [partial(place.bucket.away, dice.uniform(0.5, 4.0))]
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
