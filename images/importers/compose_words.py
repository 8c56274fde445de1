"""Words of compose files: lists that are maps, ``$`` that are variables, and what differs from task to task."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from autoscaler.model.errors import BadInput
from images.importers.reading import Foreign
from images.launcher import VIEWS, expand

_VARIABLE = re.compile(r"\$(?:\$|(\{[^}]*\}|[A-Za-z_]\w*))")


def unescaped(data: Any, path: str = "") -> Any:
    """Replaces ``$$`` by ``$``. Raises ``BadInput`` where compose would fill in a variable of its own environment."""
    if isinstance(data, dict):
        return {key: unescaped(value, f"{path}.{key}" if path else str(key)) for key, value in data.items()}
    if isinstance(data, list):
        return [unescaped(value, f"{path}[{number}]") for number, value in enumerate(data)]
    if not isinstance(data, str):
        return data

    def one(found: re.Match[str]) -> str:
        if found[1]:
            raise BadInput(f"{path} of this compose file has {found[0]}, which compose fills in: write its value there")
        return "$"

    return _VARIABLE.sub(one, data)


def labels(source: Foreign, at: tuple[str | int, ...], key: str) -> str:
    """The value of a label, which is then no longer left; empty where there is none."""
    given = source.peek(*at)
    if isinstance(given, dict):
        return str(source.take(*at, key, default=""))
    for number, label in enumerate(given or ()):
        name, _, value = str(label).partition("=")
        if name == key:
            source.take(*at, number)
            return value
    return ""


def pairs(source: Foreign, at: tuple[str | int, ...]) -> dict[str, str]:
    """An environment, as a map or a list; a variable without a value is left."""
    given = source.peek(*at)
    if isinstance(given, dict):
        for name in [name for name, value in given.items() if value is None]:
            source.tell(f"{'.'.join(map(str, at))}.{name}: its value comes from a shell: it is left out")
        return {name: _text(source.take(*at, name)) for name in list(given) if given[name] is not None}
    written = {n: str(one) for n, one in enumerate(given or ()) if "=" in str(one)}
    for number in written:
        source.take(*at, number)
    return dict(one.split("=", 1) for one in written.values())


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def generalized(rows: Sequence[Sequence[str]], told: Sequence[Mapping[str, str]], *, what: str) -> list[str]:
    """The words of which each task's row is what it is told filled in.

    ``rows``: a task's words each. Raises ``BadInput`` where the tasks differ in another way.
    """
    if len({len(row) for row in rows}) > 1:
        raise BadInput(f"{what} of this compose file has another length in other tasks of the role: split them")
    return [_pattern([row[n] for row in rows], told, what=f"{what}[{n}]") for n in range(len(rows[0]))]


def _pattern(found: Sequence[str], told: Sequence[Mapping[str, str]], *, what: str) -> str:
    for pattern in _patterns(found[0], told[0]):
        if all(expand(pattern, one) == word for one, word in zip(told, found, strict=True)):
            return pattern
    raise BadInput(f"{what} of this compose file differs from task to task, and not by their index: split the role")


def _patterns(word: str, told: Mapping[str, str]) -> Iterator[str]:
    """First with every address that is told, then also with the index in one place."""
    escaped = word if expand(word, told) == word else word.replace("$", "$$")
    views = [(value, name) for name, value in told.items() if name in VIEWS and ":" in value]
    views.sort(key=lambda one: -len(one[0]))
    pattern, kept = escaped, escaped
    for value, name in views:
        pattern = "".join(
            part if part.startswith("$(") else part.replace(value, f"$({name})")
            for part in re.split(r"(\$\([A-Z_]+\))", pattern)
        )
    yield pattern
    yield kept
    index = told["TASK_INDEX"]
    for text in (pattern, kept):
        for place in re.finditer(rf"(?<!\d){index}(?!\d)", text):
            yield f"{text[: place.start()]}$(TASK_INDEX){text[place.end() :]}"
