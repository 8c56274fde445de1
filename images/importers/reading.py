"""Reading a foreign document: what is understood is taken out of it, what is left is told."""

from __future__ import annotations

import copy
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from autoscaler.config.documents import parse_data
from autoscaler.model.errors import BadInput
from images.jobs import Job

_NAMED: Final[Mapping[type, str]] = {dict: "a map", list: "a list", str: "text"}
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
        """Takes a value as :meth:`take`. Raises ``BadInput`` where there is none."""
        value = self.take(*path)
        if value in _NOTHING:
            raise BadInput(f"this {self._what} has no {_dotted(path)}: is it one?")
        return value

    def peek(self, *path: str | int) -> Any:
        """The value at the path, which is left there."""
        here = self._data
        for key in path:
            here = _below(here, key)
        return here

    def records(self, *path: str | int) -> list[dict[str, Any]]:
        """The maps that are listed at the path, and left there; none where it has nothing. Raises ``BadInput``."""
        self.expect(*path, kinds=(list,))
        found: list[dict[str, Any]] = self.peek(*path) or []
        for number in range(len(found)):
            self.expect(*path, number, kinds=(dict,), is_needed=True)
        return found

    def mapped(self, *path: str | int) -> dict[str, Any]:
        """The map at the path, which is left there; empty where there is none. Raises ``BadInput``."""
        self.expect(*path, kinds=(dict,))
        return self.peek(*path) or {}

    def expect(self, *path: str | int, kinds: tuple[type, ...], is_needed: bool = False) -> None:
        """Raises ``BadInput`` where the value at the path is of another kind, or ``is_needed`` and missing."""
        if not isinstance(self.peek(*path), kinds if is_needed else (*kinds, type(None))):
            names = " or ".join(_NAMED[kind] for kind in kinds)
            raise BadInput(f"{_dotted(path)} of this {self._what} must be {names}")

    def whole(self, number: object, *path: str | int) -> int:
        """The number, which was taken from the path. Raises ``BadInput`` where it is no whole one."""
        try:
            return int(str(number))
        except ValueError:
            raise BadInput(f"{_dotted(path)} of this {self._what} has {number!r} where a number goes") from None

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


def _dotted(path: Iterable[str | int]) -> str:
    return ".".join(map(str, path))


def _below(here: Any, key: str | int) -> Any:
    if isinstance(here, dict):
        return here.get(key)
    if isinstance(here, list) and isinstance(key, int) and key < len(here):
        return here[key]
    return None


def _paths(data: Any, path: str = "") -> Iterator[str]:
    """Yields the path of every value that is left."""
    if isinstance(data, dict):
        for key, value in data.items():
            yield from _paths(value, f"{path}.{key}" if path else str(key))
    elif isinstance(data, list):
        for number, value in enumerate(data):
            yield from _paths(value, f"{path}[{number}]")
    elif data not in _NOTHING:
        yield path
