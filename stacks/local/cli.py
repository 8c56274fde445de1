"""`spillway local` and `spillway demo`: the ground on one machine, from the command line."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import click

from stacks.local.process.paths import written_in_cache

HERE = Path(__file__).parent
POLICY = HERE.parents[1] / "autoscaler" / "policies" / "local.yaml"
EXAMPLES = HERE.parents[1] / "images" / "examples"
INVENTORY = HERE / "inventory.yaml"

_policy = click.option(
    "--policy", type=click.Path(path_type=Path), default=POLICY, help="Scaling policy; default: the local one."
)
_inventory = click.option(
    "--inventory", type=click.Path(path_type=Path), default=INVENTORY, help="On-prem machines; default: four of 8 GPUs."
)
_boot_delay = click.option("--boot-delay", default="3s", show_default=True, help="How long a fake instance boots.")
_name = click.option("--name", default="default", show_default=True, help="Which local ground.")


@click.command()
@_policy
@_inventory
@_boot_delay
def demo(policy: Path, inventory: Path, boot_delay: str) -> None:
    """The main job on this machine: on-prem fills first, the rest spills over to EC2 and drains back."""
    _check_packages()
    from stacks.local.demo.run import run  # noqa: PLC0415 - only this command needs it

    with written_in_cache():
        raise SystemExit(run(policy=policy, inventory=inventory, boot_delay=_seconds(boot_delay)))


@click.group()
def local() -> None:
    """A hybrid cluster on this machine, for trying things: real control plane, fake machines, stand-in for AWS."""


@local.command()
@_name
@_policy
@_inventory
@_boot_delay
@click.option("--faults", type=click.Path(path_type=Path), help="A script of faults for the AWS stand-in.")
def up(name: str, policy: Path, inventory: Path, boot_delay: str, faults: Path | None) -> None:
    """Stand it up and leave it running."""
    _check_packages()
    from stacks.local.ground.lifecycle import stand_up  # noqa: PLC0415

    with written_in_cache():
        ground = stand_up(
            name=name,
            policy=policy,
            inventory=inventory,
            boot_delay=_seconds(boot_delay),
            faults=faults,
            progress=click.echo,
        )
    which = "" if name == "default" else f" --name {name}"
    click.echo(
        f"\nThe ground {name!r} stands at {ground.directory}. Next:\n"
        f'  eval "$(spillway local env{which})"                      # kubectl, aws and spillway talk to it\n'
        f"  spillway autoscale run --policy {policy}\n"
        f"  spillway jobs submit {EXAMPLES / 'small.yaml'}\n"
        f"  spillway gpus\n"
        f"  spillway local down{which}"
    )


@local.command()
@_name
def down(name: str) -> None:
    """End all of its processes and remove its files."""
    from stacks.local.ground.lifecycle import take_down  # noqa: PLC0415

    click.echo(f"the ground {name!r} is taken down" if take_down(name) else f"no ground named {name!r} was up")


@local.command()
@_name
def env(name: str) -> None:
    """Print what a shell needs to talk to it."""
    from stacks.local.ground.lifecycle import find  # noqa: PLC0415

    click.echo((find(name).directory / "env").read_text(encoding="utf-8"), nl=False)


@local.command()
@_name
def status(name: str) -> None:
    """Its processes, machines and groups at a glance."""
    from stacks.local.ground.status import show  # noqa: PLC0415

    show(name)


def _check_packages() -> None:
    from autoscaler.model.errors import BadInput  # noqa: PLC0415

    missing = [name for name in ("cryptography", "moto") if importlib.util.find_spec(name) is None]
    if missing:
        raise BadInput(
            f"the local ground needs {' and '.join(missing)}, which a cluster does not: "
            "pip install 'spillway[local]', or in a checkout pip install -e '.[local]'"
        )


def _seconds(text: str) -> float:
    from autoscaler.config.documents import parse_span  # noqa: PLC0415

    try:
        return parse_span(text).total_seconds()
    except ValueError as error:
        raise click.BadParameter(f"{text!r} {error}", param_hint="--boot-delay") from None
