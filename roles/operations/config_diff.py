"""Whether two texts of a configuration file mean the same: compared parsed, not as written."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from typing import Any, Final

import yaml


def same(current: str, wanted: str, meaning: str) -> bool:
    """Whether ``current`` means what ``wanted`` says. A current text that does not parse means something else.

    Raises ``ValueError`` where ``wanted`` itself does not parse: that is a mistake in the role.
    """
    read = _READERS[meaning]
    target = read(wanted)
    try:
        return bool(read(current) == target)
    except ValueError:
        return False


def _yaml(text: str) -> Any:
    try:
        return list(yaml.safe_load_all(text))
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None


def _sysctl(text: str) -> list[tuple[str, str]]:
    """Every assignment, so that a line written twice is seen. A later one wins: order counts per key."""
    pairs = [line.partition("=")[::2] for line in _text(text)]
    named = [(key.strip().lstrip("-").strip().replace("/", "."), " ".join(value.split())) for key, value in pairs]
    return sorted(named, key=lambda pair: pair[0])


def _ini(text: str) -> list[tuple[str, str]]:
    """Sections and assignments in order: systemd lets a key stand more than once, and an empty one resets."""
    section, found = "", []
    for line in _text(text.replace("\\\n", " ")):
        if line.startswith("[") and line.endswith("]"):
            section = line
            continue
        key, equals, value = line.partition("=")
        if not equals:
            raise ValueError(f"no assignment: {line!r}")
        found.append((f"{section}{key.strip()}", value.strip()))
    return found


def _text(text: str) -> list[str]:
    """The lines that say something."""
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith(("#", ";"))]


_READERS: Final[dict[str, Callable[[str], Any]]] = {
    "toml": tomllib.loads,
    "json": json.loads,
    "yaml": _yaml,
    "sysctl": _sysctl,
    "ini": _ini,
    "text": _text,
}
