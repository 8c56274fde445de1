"""`spillway policy`: check a policy file, and tell what its keys mean. Imports are late, so that help is instant."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from autoscaler.cli.autoscale import kubeconfig_option

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.group()
def policy() -> None:
    """The scaling policy: is a file right, what do its keys mean."""


@policy.command()
@click.option("--markdown", is_flag=True, help="The table of keys of the documentation in place of JSON Schema.")
def schema(*, markdown: bool) -> None:
    """Print the JSON Schema that an editor completes the policy file from."""
    from autoscaler.config.policy_page import json_schema, key_table  # noqa: PLC0415 - see the module's docstring

    click.echo(key_table() if markdown else json_schema(), nl=False)


@policy.command()
@click.argument("file", type=_FILE)
def check(file: Path) -> None:
    """Say whether the policy FILE is right: exit status 2 with every mistake where it is not."""
    from autoscaler.config.policy import read_policy  # noqa: PLC0415
    from autoscaler.views.policy import in_short  # noqa: PLC0415

    click.echo(f"{file} is right: {in_short(read_policy(file))}")


@policy.command()
@click.argument("old", type=_FILE)
@click.argument("new", type=_FILE)
@click.option("--catalog", default=None, help="Prices that the policies do not say: CSV, or ec2:REGION.")
def diff(old: Path, new: Path, catalog: str | None) -> None:
    """Say in words and dollars what an edit from OLD to NEW changes, and what of it waits for `pulumi up`."""
    from autoscaler.config.policy import read_policy  # noqa: PLC0415
    from autoscaler.inputs.offline_plan import catalog_file  # noqa: PLC0415
    from autoscaler.inputs.tables import read_catalog  # noqa: PLC0415
    from autoscaler.views.policy import compared, prices_of  # noqa: PLC0415

    file = catalog_file(catalog, tell=partial(click.echo, err=True)) if catalog else None
    price_of = prices_of(read_catalog(file) if file else ())
    for line in compared(read_policy(old), read_policy(new), price_of=price_of):
        click.echo(line)


@policy.command()
@kubeconfig_option
@click.option("--namespace", default="spillway", show_default=True, help="Where the autoscaler's lease and memory are.")
@click.option("--json", "wants_json", is_flag=True, help="For programs.")
def show(*, kubeconfig: Path | None, namespace: str, wants_json: bool) -> None:
    """Print the policy that is obeyed now: since when, from where, by which autoscaler; then its text."""
    from autoscaler.views.acting_policy import acting_policy  # noqa: PLC0415

    for line in acting_policy(kubeconfig, namespace=namespace, wants_json=wants_json):
        click.echo(line)
