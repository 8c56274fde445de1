"""`spillway policy`: check a policy file, and tell what its keys mean. Imports are late, so that help is instant."""

from __future__ import annotations

import click


@click.group()
def policy() -> None:
    """The scaling policy: is a file right, what do its keys mean."""


@policy.command()
@click.option("--markdown", is_flag=True, help="The table of keys of the documentation in place of JSON Schema.")
def schema(*, markdown: bool) -> None:
    """Print the JSON Schema that an editor completes the policy file from."""
    from autoscaler.config.policy_page import json_schema, key_table  # noqa: PLC0415 - see the module's docstring

    click.echo(key_table() if markdown else json_schema(), nl=False)
