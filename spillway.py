"""The one command. It gathers the rooms' sub-commands and holds nothing else."""

from __future__ import annotations

import importlib
import sys
from typing import Final, NoReturn

import click

from autoscaler.model.errors import BadInput, Unavailable

COMMANDS: Final = {
    # name: (where the click command lives, what `spillway --help` says of it without importing it)
    "autoscale": ("autoscaler.cli.autoscale:autoscale", "Run the autoscaler, or ask what it would do and why."),
    "demo": (
        "stacks.local.cli:demo",
        "The main job on this machine: on-prem fills first, the rest spills over to EC2.",
    ),
    "gpus": ("autoscaler.cli.autoscale:gpus", "Which GPUs exist, who holds them, how long they have idled."),
    "jobs": ("images.cli:jobs", "Render and submit training jobs from templates."),
    "nodes": ("roles.cli:nodes", "Check, plan, apply and reconcile what the machines are."),
    "local": ("stacks.local.cli:local", "A hybrid cluster on this machine: up, status, down."),
    "slurm": ("autoscaler.cli.slurm:slurm", "EC2 machines for Slurm's cloud nodes, within the policy's limits."),
    "top": ("autoscaler.cli.autoscale:top", "Watch nodes by group, what is on its way, what waits and why."),
    "policy": ("autoscaler.cli.policy:policy", "Check a scaling policy, compare two, show the acting one."),
    "recover": ("stacks.recovery.cli:recover", "Mend a stack whose `pulumi up` or `destroy` was killed."),
}


class _Rooms(click.Group):
    """Imports a room only when one of its commands is called: `--help` stays instant."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in sorted(COMMANDS)])


@click.group(cls=_Rooms, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="spillway")
def cli() -> None:
    """Spillway: GPU machines that you own fill first; what does not fit spills over to EC2 and drains back."""


def main() -> NoReturn:
    """Run the command line; what a person can mend is told in words, without a stack trace."""
    try:
        status = cli.main(prog_name="spillway", standalone_mode=False)
    except BadInput as mistake:
        print(f"spillway: {mistake}", file=sys.stderr)
        sys.exit(2)
    except Unavailable as outage:
        print(f"spillway: {outage}", file=sys.stderr)
        sys.exit(1)
    except click.ClickException as usage:
        usage.show()
        sys.exit(usage.exit_code)
    except (click.Abort, KeyboardInterrupt):
        print("spillway: interrupted", file=sys.stderr)
        sys.exit(130)
    sys.exit(status if isinstance(status, int) else 0)  # of `click.exceptions.Exit`, which is returned here


if __name__ == "__main__":
    main()
