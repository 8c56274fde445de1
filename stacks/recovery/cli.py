"""`spillway recover`: what the engine cannot mend by itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from autoscaler.config.documents import parse_span
from autoscaler.model.errors import BadInput
from stacks.recovery.orphans import Orphan
from stacks.recovery.settling import WAIT, Patience


@click.command()
@click.option("--stack", required=True, help="The stack whose engine was killed.")
@click.option(
    "--cwd",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    default=Path(),
    help="Folder of Pulumi.yaml; default: here.",
)
@click.option("--yes", is_flag=True, help="Do not ask before something is taken away.")
@click.option(
    "--wait",
    default=f"{WAIT.total_seconds():.0f}s",
    show_default=True,
    help="How long AWS may still be at work on what was begun, e.g. 30s.",
)
def recover(stack: str, cwd: Path, *, yes: bool, wait: str) -> None:
    """Mend a stack whose engine was killed: cancel it, take away what it began and never recorded."""
    from stacks.recovery.recover import recover as mend  # noqa: PLC0415 - only this command needs it

    try:
        patience = Patience(wait=parse_span(wait))
    except ValueError as mistake:
        raise BadInput(f"--wait {wait!r}: {mistake}") from None

    def confirm(orphans: Sequence[Orphan]) -> bool:
        return yes or click.confirm(f"Take away {len(orphans)} of them?")

    if not mend(stack=stack, project=cwd, confirm=confirm, say=click.echo, patience=patience):
        raise click.Abort
