"""Where the jobs of ``jobs-killed`` run, and what can be struck there besides processes that carry their mark."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from click.testing import CliRunner

from images.backends import local
from images.cli import jobs
from tests.live.bucket import Bucket
from tests.live.machines import Bench, Host
from tests.live.slurm import SlurmCluster

Strikes = dict[str, list[Callable[[], object]]]
"""By what they hit."""
CUT_OFF: Final = "a machine"
BACK: Final = "a machine that comes back"
DEAD: Final = "a machine whose Node stays"
LAUNCHERS: Final = frozenset({"worker's launcher", "ps's launcher"})
"""Where they are the first process of a container, it ends with them, and what keeps lines does too."""


class Place(Protocol):
    """What runs the jobs, one after the other."""

    python: str
    """The interpreter that it has."""
    seconds: tuple[float, ...]
    """How long workers may work, undisturbed."""
    more: str
    """Keys of its roles."""
    told: Mapping[str, str]
    """Variables of its tasks."""
    bucket: Bucket | None
    """Where its tasks' lines go; none: to a directory that all see."""
    cuts: frozenset[str]
    """What takes the process along that keeps a task's lines."""

    def submit(self, file: Path) -> None:
        """Start the job."""

    def outcome(self, name: str) -> str:
        """``running``, or how it has ended."""

    def strikes(self, name: str) -> Strikes:
        """At what carries no mark of the job."""

    def held(self) -> list[str]:
        """Allocations of jobs."""

    def forget(self, name: str) -> None:
        """Delete the job, and bring back what does not come back by itself."""


@dataclass
class Local:
    """Processes of this machine, which know what the bench does."""

    bucket: Bucket | None = None
    python = sys.executable
    seconds: tuple[float, ...] = (1.0,)
    more = ""
    told: Mapping[str, str] = field(default_factory=dict)
    cuts: frozenset[str] = frozenset()

    def submit(self, file: Path) -> None:
        """By the command line."""
        typed("submit", str(file), "--to", "local")

    def outcome(self, name: str) -> str:
        """As its status says."""
        return local.outcome(name=name)

    def strikes(self, name: str) -> Strikes:
        """At the supervisor."""
        with contextlib.suppress(OSError, KeyError, ValueError):
            pid = json.loads((local.home() / name / "status.json").read_text())["pid"]
            return {"supervisor": [partial(os.kill, pid, signal.SIGKILL)]}
        return {}

    def held(self) -> list[str]:
        """Jobs whose lock is held."""
        return [path.name for path in local.home().glob("*/") if local.is_alive(path)]

    def forget(self, name: str) -> None:
        """With all that it wrote, but for its lines."""
        typed("delete", name, "--to", "local")


@dataclass
class Slurm:
    """Debian's, on machines of the bench."""

    bench: Bench
    cluster: SlurmCluster
    bucket: Bucket | None = None
    python = "python3"
    seconds: tuple[float, ...] = (1.0, 40.0)
    """Longer than it takes until a machine is missed, and shorter."""
    more = ""
    cuts = frozenset({CUT_OFF})
    told: Mapping[str, str] = field(init=False)
    _number: str = ""
    _lost: Host | None = None
    """The machine that is cut off, or whose slurmd is gone; one of three, so that there is room for the job."""

    def __post_init__(self) -> None:
        """Its tasks are told where the bucket is."""
        self.told = self.bucket.environment if self.bucket else {}

    def submit(self, file: Path) -> None:
        """Rendered, and by ``sbatch``."""
        script = file.with_suffix(".sh")
        script.write_text(typed("render", str(file), "--to", "slurm"))
        self._number = self.cluster.submit(script)

    def outcome(self, name: str) -> str:
        """As the controller has it, once no component is to run any more."""
        if self.cluster.typed("squeue --noheader --states=PENDING,CONFIGURING,RUNNING").strip():
            return "running"
        said = self.cluster.typed(f"scontrol --oneliner show job {self._number}")
        return next(word.partition("=")[2].lower() for word in said.split() if word.startswith("JobState="))

    def strikes(self, name: str) -> Strikes:
        """At one of its machines, which comes back when the job has ended; srun carries the mark."""
        used = re.findall(r"\w+", self.cluster.typed("squeue --noheader --format=%N"))
        hosts = [host for host in self.cluster.nodes if host.name in used and self._lost is None]
        return {
            CUT_OFF: [partial(self._cut, host) for host in hosts],
            "slurmd": [partial(self._end_slurmd, host) for host in hosts],
        }

    def _cut(self, host: Host) -> None:
        self._lost = host
        host.process.kill()

    def _end_slurmd(self, host: Host) -> None:
        self._lost = host
        host.run("kill -KILL $(cat /run/slurmd.pid)")

    def held(self) -> list[str]:
        """Jobs that hold nodes, also while they complete; on one without its slurmd there is nothing to be had."""
        held = self.cluster.typed("squeue --noheader --format='%N %i %T'").splitlines()
        return [one for one in held if self._lost is None or one.split(" ")[0] != self._lost.name]

    def forget(self, name: str) -> None:
        """It is gone from the queue; the machine is started again."""
        if self._lost is None:
            return
        if self._lost.process.poll() is None:
            self.cluster.until_missed(self._lost)
            self._lost.run("systemctl reset-failed slurmd; systemctl start slurmd")
            self.cluster.until_idle()
        else:
            self.cluster.restart(self._lost, bench=self.bench)
        self._lost = None


def typed(*words: str) -> str:
    """What `spillway jobs WORDS` says."""
    done = CliRunner().invoke(jobs, words, catch_exceptions=False)
    if done.exit_code:
        raise SystemExit(f"spillway jobs {' '.join(words)}: {done.output}")
    return done.stdout


def processes_below(top: int, command: Callable[[list[str]], bool]) -> list[int]:
    """Processes that ``top`` has started, or what these have, with such a command line."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if command((folder / "cmdline").read_text(errors="replace").split("\0")[:-1]) and _is_below(folder, top):
                found.append(int(folder.name))
    return found


def _is_below(folder: Path, top: int) -> bool:
    pid = int(folder.name)
    while pid not in (0, top):
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid == top
