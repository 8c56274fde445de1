"""Jobs of this machine, by the command line."""

from __future__ import annotations

from images.backends import local
from tests.training import line


def typed(*words: str) -> str:
    """What `spillway jobs WORDS --to local` said."""
    return line.typed(*words, "--to", "local")


def delete_all() -> None:
    """End what is left of any."""
    for name in {state.job for state in local.states()}:
        local.delete(name=name)
