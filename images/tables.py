"""Jobs and their tasks as tables: as wide as the terminal is, whole where a program reads."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from rich.console import Console
from rich.table import Table

from images.backends.states import RoleState, TaskState

_WORDS: Final = ("NAMESPACE", "JOB", "ROLE", "STATE")
_COUNTS: Final = ("WAIT", "RUN", "DONE", "FAIL", "GPUS")
"""So short that a terminal of 80 columns has room for the words."""
_WIDE: Final = 1000
"""Columns, where a program reads: no name is cut."""


def print_roles(roles: Iterable[RoleState], *, now: datetime) -> None:
    """A row for each role of each job."""
    table = Table(box=None, pad_edge=False)
    for column in _WORDS:
        table.add_column(column, overflow="fold", no_wrap=column == "STATE")
    for column in _COUNTS:
        table.add_column(column, justify="right", no_wrap=True)
    for one in roles:
        counts = (one.waiting, one.running, one.succeeded, one.failed, one.gpus)
        table.add_row(one.namespace, one.job, one.role, f"{one.state} for {age(now - one.since)}", *map(str, counts))
    _print(table)


def print_tasks(tasks: Iterable[TaskState], *, now: datetime) -> None:
    """A row for each task of a job."""
    table = Table(box=None, pad_edge=False)
    for column in ("TASK", "STATE", "ON", "STARTS", "GPUS", "WHY"):
        table.add_column(column, overflow="fold", no_wrap=column in ("TASK", "STATE"))
    for one in tasks:
        state = f"{one.state} for {age(now - one.since)}" if one.since else one.state
        gpus = ", ".join(one.devices) or (str(one.gpus) if one.gpus else "")
        table.add_row(f"{one.role} {one.index}", state, one.where, str(one.starts), gpus, one.why)
    _print(table)


def age(span: timedelta) -> str:
    """Writes a span in the biggest unit that leaves at least two of it: 90 s, 15 min, 3 h, 2 d."""
    seconds = max(0, int(span.total_seconds()))
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


def _print(table: Table) -> None:
    console = Console()
    (console if console.is_terminal else Console(width=_WIDE)).print(table)
