"""The door to slurmctld, by Slurm's own commands: which nodes it wants, for which jobs; and what it is told of them.

A node's ``Extra`` holds the id of its instance: slurmctld keeps it over restarts, and a machine that boots finds its
name by it. https://slurm.schedmd.com/power_save.html
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from autoscaler.model.errors import Unavailable

Run = Callable[[Sequence[str]], str]
_FIELDS: Final = re.compile(r"(?:^| )(NodeName|State|Extra)=(\S*)")
_SLEEPING: Final = frozenset({"POWERED_DOWN", "POWERING_DOWN"})
_WAKING: Final = frozenset({"POWERING_UP", "POWER_UP"})
_PATIENCE: Final = 30.0
"""Seconds that a command of Slurm may take: it asks again by itself for a while."""


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """A node in the cloud, as Slurm has it."""

    name: str
    states: frozenset[str]
    """``IDLE``, ``DOWN``, ``CLOUD``, ``POWERING_UP``, ..."""
    instance: str = ""
    """EC2's id of its machine."""

    @property
    def is_waking(self) -> bool:
        """It is to be started, or starts."""
        return bool(self.states & _WAKING) and not self.sleeps

    @property
    def sleeps(self) -> bool:
        """It is to have no machine."""
        return bool(self.states & _SLEEPING)

    @property
    def has_failed(self) -> bool:
        """Slurm has given up waiting for it, and would not start it again by itself."""
        return "DOWN" in self.states and self.sleeps


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """A job that holds nodes, or a component of one."""

    number: str
    whole: str
    """The job that it is a component of, or itself: all of it starts, or nothing."""
    nodes: frozenset[str]


class Controller:
    """What may be asked of slurmctld, and told to it, as the user that it runs as."""

    def __init__(self, run: Run | None = None) -> None:
        self._run = run or _run

    def nodes(self) -> tuple[SlurmNode, ...]:
        """All in the cloud. Raises ``Unavailable``."""
        said = self._run(("scontrol", "--all", "--oneliner", "show", "nodes"))
        return tuple(node for line in said.splitlines() if (node := _node(line)) and "CLOUD" in node.states)

    def jobs(self) -> tuple[SlurmJob, ...]:
        """Those that hold nodes, wherever. Raises ``Unavailable``."""
        said = self._run(("squeue", "--all", "--noheader", "--format=%i %A %N"))
        rows = [row for line in said.splitlines() if len(row := line.split()) == 3]  # noqa: PLR2004 - holds nodes
        return tuple(SlurmJob(number, one.partition("+")[0], self._names(nodes)) for one, number, nodes in rows)

    def has_machine(self, node: str, instance: str) -> None:
        """Write down which instance a node is; empty: none."""
        self._run(("scontrol", "update", f"nodename={node}", f"extra={instance}"))

    def put_back(self, job: SlurmJob, why: str, *, until: timedelta) -> None:
        """Queue a job again and say why; what is no batch job ends with its nodes, and is told on its terminal."""
        after = f"starttime=now+{int(until.total_seconds())}"
        self._try("scontrol", "update", f"jobid={job.number}", f"admincomment={why}")
        self._try("scontrol", "notify", job.number, why)
        self._try("scontrol", "requeue", job.number)
        self._try("scontrol", "update", f"jobid={job.number}", after)

    def power_down(self, node: str, why: str) -> None:
        """Powers the node down at once; a job on it is queued again, or ends. Raises ``Unavailable``."""
        self._run(("scontrol", "update", f"nodename={node}", "state=power_down_force", f"reason={why}"))

    def _try(self, *words: str) -> None:
        """One failure alone: the job has gone, or cannot be queued again."""
        try:
            self._run(words)
        except Unavailable:
            return

    def _names(self, listed: str) -> frozenset[str]:
        """``gpu-[1-3,7]`` in single names, which Slurm itself knows best."""
        if "[" not in listed:
            return frozenset(listed.split(","))
        return frozenset(self._run(("scontrol", "show", "hostnames", listed)).split())


def gangs_of(jobs: Iterable[SlurmJob], wanted: frozenset[str]) -> Iterator[tuple[frozenset[str], tuple[SlurmJob, ...]]]:
    """Nodes that are wanted together, with the jobs that want them: jobs that share one are one gang."""
    found: list[tuple[frozenset[str], list[SlurmJob]]] = []
    wholes: dict[str, list[SlurmJob]] = {}
    for job in jobs:
        wholes.setdefault(job.whole, []).append(job)
    for parts in wholes.values():
        names = wanted & frozenset().union(*(part.nodes for part in parts))
        if not names:
            continue
        shared = [one for one in found if one[0] & names]
        found = [one for one in found if one not in shared]
        together = names.union(*(one[0] for one in shared))
        found.append((together, [*parts, *(job for one in shared for job in one[1])]))
    for name in sorted(wanted.difference(*(names for names, _ in found))):
        yield frozenset({name}), ()
    for names, members in found:
        yield names, tuple(members)


def _node(line: str) -> SlurmNode | None:
    said: dict[str, str] = {}
    for key, value in _FIELDS.findall(line):
        said.setdefault(key, value)
    if "NodeName" not in said:
        return None
    states = frozenset(one.rstrip("*$~#%!@^-") for one in said.get("State", "").split("+"))
    return SlurmNode(said["NodeName"], states, said.get("Extra", "").replace("(null)", ""))


def _run(words: Sequence[str]) -> str:
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"Slurm: {' '.join(words[:3])}: {error}") from None
    if done.returncode:
        raise Unavailable(f"Slurm: {' '.join(words[:3])}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout
