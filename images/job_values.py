"""Single values of a job file: how each is written, and between what it lies."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from autoscaler.config.documents import Span, parse_span
from autoscaler.config.labels_and_taints import LABEL_KEY
from autoscaler.model.cluster import FOREVER
from autoscaler.model.resources import parse_quantity

BUCKET: Final = "s3://"
_IN_BUCKET: Final = re.compile(r"s3://[a-z0-9][-a-z0-9.]{1,61}[a-z0-9](/[-\w.]+)*", re.ASCII)
_CPUS_MAX: Final = 10_000
_MEMORY_MIN, _MEMORY_MAX = 2**20, 2**50
_COUNT_MAX: Final = 10_000
_LONGEST: Final = timedelta(days=3650)


def is_key(key: str) -> str:
    """The key. Raises ``ValueError`` where no label or taint has it."""
    if not re.fullmatch(LABEL_KEY, key):
        raise ValueError(f"{key!r} is not the key of a label or taint: write one such as example.com/tier")
    return key


def _count(given: object) -> str:
    least, _, most = str(given).partition("..")
    try:
        numbers = int(least), int(most or least)
    except ValueError:
        numbers = (0, 0)
    if not 1 <= numbers[0] <= numbers[1] <= _COUNT_MAX:
        raise ValueError(f"must be a number of tasks from 1 to {_COUNT_MAX}, or a range of them such as 2..8")
    return str(given)


def _cpus(amount: object) -> str:
    if not 0 < parse_quantity(str(amount)) <= _CPUS_MAX:
        raise ValueError("must be CPUs of one task, e.g. 8 or 500m")
    return str(amount)


def _memory(amount: object) -> str:
    size = parse_quantity(str(amount))
    if size < _MEMORY_MIN:
        raise ValueError("must be memory of one task with its unit, e.g. 32Gi; without a unit these are bytes")
    if size > _MEMORY_MAX:
        raise ValueError("must be memory of one task, e.g. 32Gi: no machine has more than 1024Ti")
    return str(amount)


def _span_or_forever(given: object) -> timedelta:
    span = FOREVER if given == "forever" else parse_span(given)
    if span > _LONGEST and span != FOREVER:
        raise ValueError("must be at most 3650d, or forever")
    return span


def _comes_to_an_end(span: timedelta) -> timedelta:
    if span > _LONGEST:
        raise ValueError("must be at most 3650d")
    return span


def _is_absolute(path: str) -> str:
    if not path.startswith("/") or ".." in path.split("/") or "\n" in path:
        raise ValueError("must be the absolute path of a directory, e.g. /data")
    return path


def _keeps_lines(place: str) -> str:
    if not place.startswith(BUCKET):
        return _is_absolute(place)
    if not _IN_BUCKET.fullmatch(place):
        raise ValueError("must be s3://BUCKET or s3://BUCKET/PREFIX, without a slash at its end, e.g. s3://team/logs")
    return place


_NUMBER_OR_TEXT: Final = WithJsonSchema({"type": ["number", "string"]})
_SPAN_SCHEMA: Final = WithJsonSchema({"type": "string", "examples": ["90s", "2h"]})
Count = Annotated[str, BeforeValidator(_count), _NUMBER_OR_TEXT]
Cpus = Annotated[str, BeforeValidator(_cpus), _NUMBER_OR_TEXT]
Memory = Annotated[str, BeforeValidator(_memory), WithJsonSchema({"type": "string", "examples": ["32Gi"]})]
SpanOrForever = Annotated[timedelta, BeforeValidator(_span_or_forever), _SPAN_SCHEMA]
Bounded = Annotated[Span, AfterValidator(_comes_to_an_end), _SPAN_SCHEMA]
Directory = Annotated[str, AfterValidator(_is_absolute)]
LogPlace = Annotated[str, AfterValidator(_keeps_lines)]


def seconds(span: timedelta) -> str:
    """``90s``, ``0.25s``, ``forever``: exact, as files and annotations have it."""
    return "forever" if span == FOREVER else f"{span.total_seconds():.6f}".rstrip("0").rstrip(".") + "s"
