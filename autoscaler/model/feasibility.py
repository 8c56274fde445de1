"""May this pod run there, and if not, why not: the scheduler's filters on one node, in plain values and in words."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from autoscaler.model.constraints import NOTHING, Requirement, Taint, Term, Toleration
from autoscaler.model.enumeration import counted, few
from autoscaler.model.labels import CAPACITY_BLOCK
from autoscaler.model.resources import Resources

NODE_NAME: Final = "metadata.name"
"""Key of a ``matchFields`` requirement: the node's name stands for a label."""

_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,63}")
"""A label's value has no more letters."""

Amounts = tuple[tuple[str, int], ...]


class Reason(NamedTuple):
    """Why a pod may not run somewhere. ``asks`` and ``free`` are set where it is an amount that lacks."""

    kind: str
    asks: int = 0
    free: int = 0


def requirement_holds(requirement: Requirement, value: str | None) -> bool:
    """One match expression on the value of its key (``None``: the label is absent)."""
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            bound = requirement.values[0] if len(requirement.values) == 1 else ""
            return _number_holds(requirement.operator, value or "", bound)


def _number_holds(operator: str, value: str, bound: str) -> bool:
    """Compares integers of 64 bits, and nothing else, as the scheduler does."""
    have, least = _whole(value), _whole(bound)
    if have is None or least is None:
        return False
    return have > least if operator == "Gt" else have < least


def _whole(text: str) -> int | None:
    """``None``: it is no such number."""
    if not _WHOLE.fullmatch(text):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


def term_holds(term: Term, labels: Mapping[str, str], name: str = "") -> bool:
    """All expressions hold on these labels; ``name`` answers for ``metadata.name``."""
    return all(requirement_holds(one, name if one.key == NODE_NAME and name else labels.get(one.key)) for one in term)


def tolerates(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    """Whether one of the tolerations covers the taint."""
    return any(_covers(one, taint) for one in tolerations)


def _covers(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if not toleration.key:
        return toleration.operator == "Exists"
    if toleration.key != taint.key:
        return False
    if toleration.operator in ("Gt", "Lt"):
        return _number_holds(toleration.operator, taint.value, toleration.value)
    return toleration.operator == "Exists" or toleration.value == taint.value


def why_not_on(
    *,
    affinity: tuple[Term, ...],
    tolerations: tuple[Toleration, ...],
    labels: Mapping[str, str],
    taints: tuple[Taint, ...],
    name: str = "",
) -> Reason | None:
    """What about the node itself (its labels, its taints) keeps a pod away; ``None`` where nothing does."""
    if affinity and not any(term_holds(term, labels, name) for term in affinity):
        return Reason(f"no match for the pod's node selector or affinity ({_asked(affinity, labels, name)})")
    for taint in taints:
        if taint.effect != "PreferNoSchedule" and not tolerates(tolerations, taint):
            if taint.key == CAPACITY_BLOCK:
                return Reason(f"the pod does not say that it ends before Capacity Block {taint.value} does")
            return Reason(f"taint {taint} not tolerated")
    return None


def why_not_tied(ties: Iterable[tuple[Term, ...]], labels: Mapping[str, str], name: str = "") -> Reason | None:
    """Whether volumes keep a pod away: of each of the ties one term must hold."""
    for terms in ties:
        if not any(term_holds(term, labels, name) for term in terms):
            return Reason(f"no match for the node affinity of the pod's volume ({_asked(terms, labels, name)})")
    return None


def _asked(affinity: tuple[Term, ...], labels: Mapping[str, str], name: str) -> str:
    """The first expression of each term that does not hold, in words."""
    failing = []
    for term in affinity:
        for one in term:
            if not requirement_holds(one, name if one.key == NODE_NAME and name else labels.get(one.key)):
                failing.append(in_words(one))
                break
    return " or ".join(dict.fromkeys(failing))


def in_words(requirement: Requirement) -> str:
    """Says the requirement in words: ``zone is us-east-1a``."""
    values = ", ".join(requirement.values)
    match requirement.operator:
        case "In":
            named = f"{requirement.key} is {values.replace(', ', ' or ')}"
            return "an empty term, which nothing matches" if requirement in NOTHING else named
        case "NotIn":
            return f"{requirement.key} is not {values.replace(', ', ' nor ')}"
        case "Exists":
            return f"{requirement.key} is there"
        case "DoesNotExist":
            return f"{requirement.key} is not there"
        case "Gt":
            return f"{requirement.key} is above {values}"
        case "Lt":
            return f"{requirement.key} is below {values}"


def sum_up(reasons: Iterable[Reason]) -> str:
    """``4 nodes: not enough nvidia.com/gpu (asks 8, at most 4 free); 2 nodes: taint x:NoSchedule not tolerated``."""
    return "; ".join(
        f"{counted(len(nodes), 'node')}: {words}" for nodes, words in _alike(("", reason) for reason in reasons)
    )


def sum_up_by_name(found: Iterable[tuple[str, Reason]]) -> str:
    """``cpu, gpu-a10g: not enough memory (asks 64Gi, at most 32Gi free)``: of machines or groups by name."""
    return "; ".join(f"{few(dict.fromkeys(names))}: {words}" for names, words in _alike(found))


def _alike(found: Iterable[tuple[str, Reason]]) -> Iterator[tuple[list[str], str]]:
    """Names of what a reason is about, and the reason in words; that of the most first."""
    about: dict[tuple[str, int], list[str]] = defaultdict(list)
    most_free: dict[tuple[str, int], int] = {}
    for name, (kind, asks, free) in found:
        about[kind, asks].append(name)
        most_free[kind, asks] = max(free, most_free.get((kind, asks), 0))
    for (kind, asks), names in sorted(about.items(), key=lambda item: (-len(item[1]), item[0])):
        yield names, _reason_in_words(kind, asks, most_free[kind, asks], len(names))


def _reason_in_words(kind: str, asks: int, free: int, count: int) -> str:
    if not asks:
        return kind
    resource = kind.rsplit(" ", 1)[-1]
    most = "at most " if count > 1 else ""
    return f"{kind} (asks {amount_in_words(resource, asks)}, {most}{amount_in_words(resource, free)} free)"


def amount_in_words(resource: str, amount: int) -> str:
    """``4``, ``1.5``, ``64Gi``: an amount without its resource's name."""
    return str(Resources({resource: amount})).rsplit(" ", 1)[0] if amount else "0"


def why_no_room(amounts: Amounts, free: Mapping[str, int]) -> Reason | None:
    """Returns the first resource of which too little is free."""
    for name, amount in amounts:
        if amount > free.get(name, 0):
            return Reason(f"not enough {name}", amount, max(0, free.get(name, 0)))
    return None
