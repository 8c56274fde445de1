"""Reading a foreign document: what is understood is taken out of it, what is left is told."""

from __future__ import annotations

import copy
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from autoscaler.config.documents import parse_data
from autoscaler.model.errors import BadInput
from images.jobs import Job

_NOTHING: Final[tuple[Any, ...]] = (None, "", [], {})


@dataclass(frozen=True, slots=True)
class Imported:
    """A job, and what of the file is not in it."""

    job: Job
    losses: tuple[str, ...]


class Foreign:
    """A document of another system, from which keys are taken."""

    def __init__(self, data: Mapping[str, Any], *, what: str) -> None:
        self._data: Any = copy.deepcopy(dict(data))
        self._what = what
        self._told: list[str] = []

    def take(self, *path: str | int, default: Any = None) -> Any:
        """The value at the path, which is then no longer left."""
        here = self._data
        for key in path[:-1]:
            here = _below(here, key)
        value = _below(here, path[-1])
        if value is None:
            return default
        here[path[-1]] = None
        return value

    def skip(self, *path: str | int, as_in: Container[Any]) -> None:
        """Take the value at the path if it is one of these: a job says it anyway."""
        if self.peek(*path) in as_in:
            self.take(*path)

    def need(self, *path: str | int) -> Any:
        """As :meth:`take`. Raises ``BadInput`` where there is none."""
        value = self.take(*path)
        if value is None:
            raise BadInput(f"this {self._what} has no {'.'.join(map(str, path))}: is it one?")
        return value

    def peek(self, *path: str | int) -> Any:
        """The value at the path, which is left there."""
        here = self._data
        for key in path:
            here = _below(here, key)
        return here

    def tell(self, loss: str) -> None:
        """Name something that the job says otherwise."""
        self._told.append(loss)

    def imported(self, data: Mapping[str, Any]) -> Imported:
        """The job of these values. Raises ``BadInput`` where they make none."""
        job = parse_data(dict(data), Job, source=f"imported from this {self._what}")
        left = (f"{path}: no job of ours says it; it is left out" for path in _paths(self._data))
        return Imported(job, (*self._told, *left))


def asked_amounts(source: Foreign, resources: tuple[str | int, ...], *, whose: str) -> dict[str, Any]:
    """``cpus`` and ``memory`` of what a container asks for; told where one is assumed, or limited otherwise."""
    found: dict[str, Any] = {}
    for key, name, assumed in (("cpus", "cpu", 1), ("memory", "memory", "1Gi")):
        asked, most = (source.take(*resources, part, name) for part in ("requests", "limits"))
        if asked is None and most is None:
            source.tell(f"{whose}: it asks for no {name}: {assumed} is assumed")
        if None not in (asked, most) and asked != most:
            source.tell(f"{whose}: it asks for {asked} {name} and may have {most}: {asked} is taken")
        found[key] = asked or most or assumed
    return found


def _below(here: Any, key: str | int) -> Any:
    if isinstance(here, dict):
        return here.get(key)
    if isinstance(here, list) and isinstance(key, int) and key < len(here):
        return here[key]
    return None


def _paths(data: Any, path: str = "") -> Iterator[str]:
    """Of every value that is left."""
    if isinstance(data, dict):
        for key, value in data.items():
            yield from _paths(value, f"{path}.{key}" if path else str(key))
    elif isinstance(data, list):
        for number, value in enumerate(data):
            yield from _paths(value, f"{path}[{number}]")
    elif data not in _NOTHING:
        yield path
