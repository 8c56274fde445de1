"""Texts of annotations as values, and one copy of values that are equal."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final, TypeVar, cast

from autoscaler.config.documents import parse_span

EPOCH: Final = datetime.fromtimestamp(0, UTC)
T = TypeVar("T")


@lru_cache(maxsize=2048)
def _kept(value: Any) -> Any:
    return value


def same(value: T) -> T:
    """One copy of equal values: ten thousand pods share a few dozen shapes."""
    return cast("T", _kept(value))


def span_of(text: str | None, *, forever: timedelta | None = None) -> timedelta | None:
    """A span such as ``90s``; ``None``: it is none. ``forever``: what that word means, if anything."""
    if text == "forever":
        return forever
    try:
        return parse_span(text) if text else None
    except ValueError:
        return None


def time_of(text: str | None) -> datetime | None:
    """An instant of ISO 8601, in UTC where it names no zone; ``None``: it is none."""
    try:
        found = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
