"""Ranges of versions as the version matrix writes them: ``>=1.7.28, <2 | 2.1``, and whether a version lies in one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

Term = tuple[str, str]
"""A comparison and what is compared with: ``(">=", "1.7.28")``."""
_SKEW: Final = "same-minor-or-older"
_TERM: Final = re.compile(r"(>=|<|=)?\s*([0-9][\w.+~-]*|[a-z][\w.-]*|\*)(?:\s+(\d+))?")


def parse(text: str) -> list[list[Term]]:
    """Alternatives, each of comparisons that must all hold. Raises ``ValueError`` naming what cannot be read."""
    return [[_term(part.strip()) for part in choice.split(",")] for choice in text.split("|")]


def check(text: str) -> None:
    """Raise ``ValueError`` for what cannot be read, and for an alternative that no version is."""
    for choice, written in zip(parse(text), text.split("|"), strict=True):
        if _is_empty(choice):
            raise ValueError(f"holds {written.strip()!r}, and no version is all of that")


def fits(version: str, text: str, *, other: str = "") -> bool:
    """Whether the version lies in the range; ``other`` is what ``same`` means."""
    return any(all(_holds(version, term, other) for term in choice) for choice in parse(text))


def in_words(text: str, *, other: str = "") -> str:
    """The range as a message says it."""
    if text == "same":
        return other
    if text.startswith(_SKEW):
        return f"at most {text.split()[1]} minors older than {other} and not newer"
    return " or ".join(part.strip().replace(",", " and") for part in text.split("|"))


def numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: ``6.1.0-40-amd64`` is 6, 1, 0. A word has none."""
    leading = re.match(r"v?(\d+(?:\.\d+)*)", version)
    return tuple(int(part) for part in leading[1].split(".")) if leading else ()


def _term(text: str) -> Term:
    found = _TERM.fullmatch(text)
    if found is None:
        raise ValueError(f"holds {text!r}: write a range such as >=1.7.28, <2, or 1.6 | 1.7")
    comparison, value, count = found.groups()
    if (value == _SKEW) != bool(count):
        raise ValueError(f"holds {text!r}: write {_SKEW} N, N minors at most, and a number nowhere else")
    return comparison or "=", f"{value} {count}" if count else value


def _is_empty(choice: Sequence[Term]) -> bool:
    """Whether the comparisons shut each other out. What one version is depends on another's is not judged."""
    words = {value for _, value in choice if not numbers(value)} - {"*"}
    if words:
        return len(words) > 1 and not any(word == "same" or word.startswith(_SKEW) for word in words)
    terms = [(comparison, numbers(value)) for comparison, value in choice if value != "*"]
    least = max((value for comparison, value in terms if comparison != "<"), key=_without_zeros, default=())
    ends = [
        value if comparison == "<" else (*value[:-1], value[-1] + 1)
        for comparison, value in terms
        if comparison != ">="
    ]
    return any(_without_zeros(end) <= _without_zeros(least) for end in ends)


def _without_zeros(version: Sequence[int]) -> tuple[int, ...]:
    """2.0 as 2: they are one version, and the first of all 2.0.x."""
    plain = list(version)
    while plain and not plain[-1]:
        plain.pop()
    return tuple(plain)


def _holds(version: str, term: Term, other: str) -> bool:
    comparison, value = term
    if value.startswith(_SKEW):
        return _is_within_skew(version, other, minors=int(value.split()[1]))
    if not numbers(value):
        return value == "*" or version == (other if value == "same" else value)
    mine, theirs = _padded(numbers(version), numbers(value))
    if comparison == "=":
        return numbers(version)[: len(numbers(value))] == numbers(value)
    return mine >= theirs if comparison == ">=" else mine < theirs


def _is_within_skew(version: str, other: str, *, minors: int) -> bool:
    mine, theirs = numbers(version)[:2], numbers(other)[:2]
    return mine[:1] == theirs[:1] and theirs[1] - minors <= mine[1] <= theirs[1]


def _padded(one: Sequence[int], two: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Both as long as the longer: 2 and 2.0 are the same version."""
    length = max(len(one), len(two))
    return tuple(one) + (0,) * (length - len(one)), tuple(two) + (0,) * (length - len(two))
