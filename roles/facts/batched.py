"""A command about one subject that can be asked about many at once: one `stat` for forty files, not forty.

pyinfra runs the command of a fact as it is; the one look (:mod:`roles.engine.batched_facts`) gathers all of one kind
into a single command and hands each fact its own lines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyinfra.api.command import StringCommand

Lines = list[str]


@dataclass(frozen=True, slots=True)
class Kind:
    """A question: as shell for a list of subjects, and how the answer falls apart into one list of lines for each."""

    name: str
    shell: Callable[[Sequence[str]], str]
    split: Callable[[Lines, Sequence[str]], dict[str, Lines]]


class Plain(StringCommand):
    """Shell that the one look may run as it stands, without a process of its own around it.

    It parses, exits nothing, and uses no builtin whose failure ends a shell (``.``, ``exec``, ``set -e``, ``export``).
    """


class About(Plain):
    """The question asked about one subject."""

    def __init__(self, kind: Kind, subject: str) -> None:
        super().__init__(kind.shell([subject]))
        self.kind = kind
        self.subject = subject
