"""Names and numbers of things in a line of text."""

from __future__ import annotations

from collections.abc import Iterable


def few(names: Iterable[str], most: int = 3) -> str:
    """``a, b, c and 2 more``: so many of them, and how many others there are."""
    listed = list(names)
    return ", ".join(listed[:most]) + (f" and {len(listed) - most} more" if len(listed) > most else "")


def counted(number: int, noun: str) -> str:
    """Returns ``1 node``, ``2 nodes``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
