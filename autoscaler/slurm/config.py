"""What slurm.conf has to say of the cloud, and the program that Slurm calls, made of the policy and its groups."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from autoscaler.config.policy import Policy
from autoscaler.model import labels as words
from autoscaler.model.cluster import Group
from autoscaler.model.errors import BadInput
from autoscaler.model.resources import CPU, MEMORY
from autoscaler.slurm.demand import stem_of

CONF: Final = "spillway.conf"
PROGRAM: Final = "spillway-nodes"
SLURMD: Final = "spillway-slurmd"
BOOT: Final = """\
#!/bin/sh
# On machines in EC2 in place of slurmd: it has the name of the node that Slurm says this instance is.
id=$(cat /var/lib/cloud/data/instance-id)
while name=$(scontrol --all --oneliner show nodes | sed -n "s/^NodeName=\\([^ ]*\\) .* Extra=$id\\( .*\\)*$/\\1/p")
      [ -z "$name" ]; do sleep 1; done
exec slurmd -D -b -N "$name"  # -b: for Slurm it has just booted, whenever EC2 launched it
"""
ENVIRONMENT: Final = "spillway.env"
_OWN_FIRST: Final = 1000
"""Slurm takes nodes of less weight first, and gives its own 1."""


def check(policy: Policy) -> None:
    """Raises ``BadInput`` for what a policy says that nothing would obey here."""
    headroom = [entry.name for entry in policy.groups if entry.headroom]
    headroom += [name for one in policy.schedules for name, group in one.groups.items() if group.headroom]
    budget = any(one.usd_per_day or one.usd_per_month for one in (policy.budget, *(e.budget for e in policy.groups)))
    for is_said, key, instead in (
        (budget or policy.budget.namespaces, "budget", "nothing counts dollars of a day here: use limits.usd_per_hour"),
        (headroom, "headroom", "Slurm gives back what no job wants: use SuspendExcNodes"),
        (policy.notifications, "notifications", "read the log of slurmctld's host"),
    ):
        if is_said:
            raise BadInput(f"the policy has {key}, which Slurm's nodes do not obey: {instead}")


def slurm_conf(policy: Policy, groups: Iterable[Group], *, own: str, folder: Path) -> str:
    """Returns what slurm.conf is to include on all machines. ``own``: machines never suspended, as Slurm lists them."""
    lines = [
        "# Written by `spillway slurm config`: make it anew when the policy's groups change.",
        *(_node_line(group, most=entry.max) for group in groups if (entry := policy.entry(group.entry)) and entry.max),
        *(f"{key}Program={folder / PROGRAM}" for key in ("Resume", "Suspend", "ResumeFail")),
        f"SuspendTime={int(policy.scale_down.idle_after.total_seconds())}",
        f"ResumeTimeout={int(policy.scale_up.boot_timeout.total_seconds())}",
        "SuspendTimeout=30",
        "ResumeRate=0",
        "SuspendRate=0",
        *([f"SuspendExcNodes={own}"] if own else []),
        "# What else stands under these two keys in slurm.conf goes here, too: each is read once.",
        "SlurmctldParameters=cloud_reg_addrs,idle_on_node_suspend,power_save_interval=2,power_save_min_interval=0",
        "PrivateData=cloud",
        "TreeWidth=65533",
    ]
    return "\n".join(lines) + "\n"


def program(command: Sequence[str], *, policy: Path, folder: Path) -> str:
    """One for resuming, suspending, and what did not resume: Slurm says by the nodes' states what it wants."""
    return (
        f"#!/bin/sh\nset -a; [ ! -r {folder / ENVIRONMENT} ] || . {folder / ENVIRONMENT}; set +a\n"
        f"exec {shlex.join(command)} slurm nodes --policy {shlex.quote(str(policy))} 2>&1 | logger -t {PROGRAM}\n"
    )


def _node_line(group: Group, *, most: int) -> str:
    features = ["ec2", group.zone, group.capacity_type, *([] if group.mixed else [group.instance_type])]
    gpus = group.allocatable[words.GPU]
    said = {
        "NodeName": f"{stem_of(group)}-[1-{most}]",
        "State": "CLOUD",
        "CPUs": group.vcpus or group.allocatable[CPU] // 1000,
        "RealMemory": group.allocatable[MEMORY] // 2**20,
        **({"Gres": f"gpu:{gpus}"} if gpus else {}),
        "Feature": ",".join(features),
        "Weight": _OWN_FIRST + round(group.usd_per_hour * 1000),
    }
    return " ".join(f"{key}={value}" for key, value in said.items())
