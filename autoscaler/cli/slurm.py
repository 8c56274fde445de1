"""`spillway slurm`: EC2 machines for Slurm's cloud nodes. Imports are late, so that help is instant."""

from __future__ import annotations

from pathlib import Path

import click

_FILE = click.Path(path_type=Path, dir_okay=False, exists=True)
_policy = click.option("--policy", required=True, type=_FILE, help="The scaling policy: its groups are the nodes.")


@click.group()
def slurm() -> None:
    """Slurm's power saving: machines for the cloud nodes that jobs want, within the policy's limits."""


@slurm.command()
@_policy
@click.option("--own", default="", metavar="gpu[0-3]", help="Machines of your own: they are never suspended.")
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    default=Path("/etc/slurm"),
    show_default=True,
    help="Where to write spillway.conf, which slurm.conf is to include, and the program that Slurm calls.",
)
def config(*, policy: Path, own: str, folder: Path) -> None:
    """Write what Slurm has to be told: nodes by the policy's groups, and when they are started and suspended."""
    import sys  # noqa: PLC0415 - see the module's docstring

    from autoscaler.cloud.autoscaling_groups import Ec2  # noqa: PLC0415 - boto3 is slow to import
    from autoscaler.cloud.clients import connect  # noqa: PLC0415
    from autoscaler.config.policy import read_policy  # noqa: PLC0415
    from autoscaler.slurm import config as texts  # noqa: PLC0415

    asked = read_policy(policy)
    texts.check(asked)
    groups = Ec2(asked, connect(asked.region), warn=_tell).groups()
    (folder / texts.CONF).write_text(texts.slurm_conf(asked, groups, own=own, folder=folder), encoding="utf-8")
    called = folder / texts.PROGRAM
    command = (sys.executable, "-m", "spillway")
    called.write_text(texts.program(command, policy=policy.resolve(), folder=folder), encoding="utf-8")
    (folder / texts.SLURMD).write_text(texts.BOOT, encoding="utf-8")
    called.chmod(0o755)
    (folder / texts.SLURMD).chmod(0o755)
    click.echo(f"{folder / texts.CONF} and {called} are written: put `include {folder / texts.CONF}` into slurm.conf,")
    click.echo(f"on all machines, credentials of AWS into {folder / texts.ENVIRONMENT} where this host has no role,")
    click.echo(
        f"and let {called} run each minute as SlurmUser, for machines that EC2 takes away: then restart slurmctld"
    )


@slurm.command()
@_policy
def nodes(*, policy: Path) -> None:
    """Buy machines for the nodes that Slurm wakes, and terminate those of nodes that it has suspended."""
    import fcntl  # noqa: PLC0415 - see the module's docstring

    from autoscaler.cloud.autoscaling_groups import Ec2  # noqa: PLC0415 - boto3 is slow to import
    from autoscaler.cloud.clients import connect  # noqa: PLC0415
    from autoscaler.config.policy import read_policy  # noqa: PLC0415
    from autoscaler.slurm.config import check  # noqa: PLC0415
    from autoscaler.slurm.controller import Controller  # noqa: PLC0415
    from autoscaler.slurm.reconcile import Reconciler  # noqa: PLC0415

    with policy.open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # Slurm does not wait for one call before it makes the next
        asked = read_policy(policy)
        check(asked)
        ec2 = Ec2(asked, connect(asked.region), warn=_tell)
        Reconciler(policy=asked, slurm=Controller(), ec2=ec2, tell=_tell).turn()


def _tell(line: str) -> None:
    click.echo(line, err=True)
