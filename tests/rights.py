"""What IAM would answer: a small evaluator of policy documents, for tests that bound rights from above.

Only what the documents of this project use; anything else in a document is an error, not an allowance.
https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_evaluation-logic.html
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

ACCOUNT: Final = "123456789012"
Document = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One request: an action on one resource, and what is known of both."""

    action: str
    resource: str
    context: Mapping[str, str | list[str]] = field(default_factory=dict)


def is_allowed(documents: Iterable[Document], asked: Asked) -> bool:
    """Some statement allows it, and none denies it."""
    found = {one["Effect"] for document in documents for one in document["Statement"] if _is_of(one, asked)}
    return "Allow" in found and "Deny" not in found


def statements(documents: Iterable[Document]) -> Iterator[dict[str, Any]]:
    """All of them."""
    for document in documents:
        yield from document["Statement"]


def names(statement: Mapping[str, Any], action: str) -> bool:
    """Whether the statement is about the action, on whatever thing."""
    return any(_is_like(action.lower(), one.lower()) for one in listed(statement["Action"]))


def listed(value: Any) -> list[str]:
    """IAM takes one string for a list of one."""
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _is_of(statement: Mapping[str, Any], asked: Asked) -> bool:
    unknown = statement.keys() - {"Sid", "Effect", "Action", "Resource", "Condition"}
    assert not unknown, f"{statement.get('Sid')}: {unknown} would allow whatever is not named"
    return (
        names(statement, asked.action)
        and any(_is_like(asked.resource, _filled(one)) for one in listed(statement["Resource"]))
        and all(
            _holds(operator, key, values, asked.context)
            for operator, keys in statement.get("Condition", {}).items()
            for key, values in keys.items()
        )
    )


def _holds(operator: str, key: str, values: Any, context: Mapping[str, str | list[str]]) -> bool:
    wanted = [_filled(one) for one in listed(values)]
    has = context.get(key)
    if operator == "ForAllValues:StringNotEquals":
        return not set(listed(has or [])) & set(wanted)
    if operator.endswith("IfExists"):
        return has is None or _holds(operator.removesuffix("IfExists"), key, values, context)
    if has is None:
        return False
    if operator == "StringEquals":
        return has in wanted
    if operator in ("StringLike", "ArnLike"):
        return any(_is_like(str(has), one) for one in wanted)
    raise AssertionError(f"the evaluator does not know the operator {operator}")


def _filled(text: str) -> str:
    """With IAM's variables; one that it does not know matches nothing."""
    return text.replace("${aws:PrincipalAccount}", ACCOUNT)


@cache
def _is_like(text: str, pattern: str) -> bool:
    return _compiled(pattern).fullmatch(text) is not None


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile("".join({"*": ".*", "?": "."}.get(one, re.escape(one)) for one in pattern))
