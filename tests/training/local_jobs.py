"""Jobs of this machine, by the command line."""

from __future__ import annotations

from click.testing import CliRunner

from images.backends import local
from images.cli import jobs


def typed(*words: str) -> str:
    """What `spillway jobs WORDS --to local` said."""
    done = CliRunner().invoke(jobs, [*words, "--to", "local"])
    assert done.exit_code == 0, done.output
    return done.output


def delete_all() -> None:
    """End what is left of any."""
    for name in {state.job for state in local.states()}:
        local.delete(name=name)
