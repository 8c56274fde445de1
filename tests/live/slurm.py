"""Slurm from Debian on the bench's machines: a controller, nodes that run jobs, and a user who submits them.

As on a cluster of one's own, all machines have the same users and the same munge key, know each other's names, and see
the folders of a file server at the same paths.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.live.debian import (
    IN_ROOT,
    SUITE,
    System,
    as_here_resolved,
    bootstrap,
    built_once,
    debian_archive,
    root_folder,
    run,
)
from tests.live.hybrid import until
from tests.live.machines import Bench, Host

PACKAGES: Final = ("slurmctld", "slurmd", "slurm-client", "munge", "python3")
USER: Final = "researcher"
_ADD_USER: Final = ("useradd", "--create-home", "--shell", "/bin/bash", USER)
CONTROLLER: Final = "head"
_CPUS, _MEGABYTES = 12, 49_152
"""What each node claims to have, whatever this machine has: room for one worker of the templates, not for two."""
_GPUS: Final = "Name=gpu File=/dev/nvidia[0-1]\n"
_MAKE_GPUS: Final = "for i in 0 1; do mknod -m 666 /dev/nvidia$i c 195 $i; done"
"""Two device nodes without a device: Slurm counts them and gives each task its own."""
_CONFIG: Final = f"""\
ClusterName=bench
SlurmctldHost={CONTROLLER}
SlurmUser=slurm
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
# These machines have no control groups that Slurm 22.05 can use.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SlurmdParameters=config_overrides
# Components of a job start together only by backfill: look each second.
SchedulerParameters=bf_interval=1
SlurmdTimeout=10
# So long a command waits for a controller that has no time for it: 10 s of its own are too few on a busy machine.
MessageTimeout=60
# So long a job that is put into the queue again waits.
AuthInfo=cred_expire=10
ReturnToService=2
MpiDefault=none
GresTypes=gpu
NodeName={{nodes}} CPUs={_CPUS} RealMemory={_MEGABYTES} Gres=gpu:2
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def slurm_system() -> System:
    """Debian with Slurm installed; nothing of it is configured, so nothing of it runs. The first time a minute."""
    return System(built_once(_root(), _build), lambda upper, _: as_here_resolved(upper))


@dataclass(slots=True)
class SlurmCluster:
    """A controller, where jobs are submitted, and the nodes that run them."""

    head: Host
    nodes: list[Host]

    def typed(self, command: str) -> str:
        """What a command of the user says, on the controller. Raises ``BenchError`` where it fails."""
        return self.head.run(f"runuser -u {USER} -- bash -c {shlex.quote(command)}").stdout

    def submit(self, script: Path, *, activated: Path | None = None) -> str:
        """``sbatch``, in a virtual environment where one is ``activated``; returns the job's id.

        ``script`` lies in a shared folder, and so does what the job says: ``NAME.out`` beside it.
        """
        path = f"PATH={activated}/bin:$PATH " if activated else ""
        script.with_suffix(".out").unlink(missing_ok=True)
        return self.typed(f"{path}sbatch --parsable --output={script.with_suffix('.out')} {script}").strip()

    def ended(self, job: str, *, within: float) -> set[str]:
        """Wait until all components of a job have ended, and nothing of it completes any more; returns their states."""
        states: set[str] = until(lambda: self._end_of(job), within=within, told=self.queue)
        return states

    def queue(self) -> str:
        """All jobs and nodes, as a user sees them, for messages."""
        return self.typed("squeue --all; sinfo --Node --long")

    def until_idle(self) -> None:
        """Wait until all nodes are."""
        states = ["idle"] * len(self.nodes)
        until(lambda: self.typed("sinfo --noheader --Node --format=%T").split() == states, told=self.queue)

    def until_missed(self, node: Host) -> None:
        """Wait until the controller knows that its slurmd does not answer."""
        until(lambda: "down" in self.typed(f"sinfo --noheader --nodes={node.name} --format=%T"), told=self.queue)

    def restart(self, node: Host, *, bench: Bench) -> None:
        """Start a machine of it that was cut off, once that is known; all are idle when this comes back."""
        self.until_missed(node)
        again = bench.restart(node)
        again.run(f"{_MAKE_GPUS} && systemctl start munge && systemctl restart slurmd")
        self.nodes[self.nodes.index(node)] = again
        self.until_idle()

    def _end_of(self, job: str) -> set[str]:
        """Their states once that is so; before, none."""
        if self.typed("squeue --noheader").strip():
            return set()
        said = self.typed(f"scontrol --oneliner show job {job}")
        return {word.partition("=")[2] for word in said.split() if word.startswith("JobState=")}


def slurm_cluster(bench: Bench, names: Sequence[str]) -> SlurmCluster:
    """Boot and configure it; all nodes are idle when this comes back."""
    hosts = bench.machines(CONTROLLER, *names, system=slurm_system())
    known = "".join(f"{host.address} {host.name}\\n" for host in hosts)
    for host in hosts:
        config = shlex.quote(_CONFIG.format(nodes=",".join(names)))
        unit, other = ("slurmctld", "slurmd") if host.name == CONTROLLER else ("slurmd", "slurmctld")
        host.run(
            f"printf '{known}' >> /etc/hosts && printf %s {config} > /etc/slurm/slurm.conf "
            f"&& printf %s {shlex.quote(_GPUS)} > /etc/slurm/gres.conf && {_MAKE_GPUS} "
            f"&& systemctl disable --quiet {other} && systemctl start munge {unit} "
            "&& chmod a+x /root"  # shared folders may lie below it
        )
    made = SlurmCluster(head=hosts[0], nodes=hosts[1:])
    made.until_idle()
    return made


def _root() -> Path:
    return root_folder(SUITE, *IN_ROOT, *PACKAGES, "|", *_ADD_USER)


def _build(root: Path) -> None:
    """Packages make the munge key as they are set up: all machines of this root have the same."""
    bootstrap(SUITE, root, debian_archive(), include=(*IN_ROOT, *PACKAGES))
    run("chroot", str(root), *_ADD_USER)
