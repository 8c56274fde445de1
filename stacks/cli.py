"""`spillway recover`: what the engine cannot mend by itself."""

from __future__ import annotations

from pathlib import Path

import click

from stacks.orphans import Orphan


@click.command()
@click.option("--stack", required=True, help="The stack whose `pulumi up` was killed.")
@click.option(
    "--cwd",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    default=Path(),
    help="Folder of Pulumi.yaml; default: here.",
)
@click.option("--yes", is_flag=True, help="Do not ask before something is taken away.")
def recover(stack: str, cwd: Path, *, yes: bool) -> None:
    """Mend a stack whose `pulumi up` was killed: cancel it, take away what it began and never recorded."""
    from stacks.recover import recover as mend  # noqa: PLC0415 - only this command needs it

    def confirm(orphans: list[Orphan]) -> bool:
        return yes or click.confirm(f"Take away {len(orphans)} of them?")

    if not mend(stack=stack, project=cwd, confirm=confirm, say=click.echo):
        raise click.Abort
