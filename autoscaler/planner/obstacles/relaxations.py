"""What may be left out of the question so that a gang finds a place: its own rules, limits, and what others hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from autoscaler.model.cluster import Pod
from autoscaler.model.constraints import PodTerm, Requirement, Taint, Toleration
from autoscaler.model.feasibility import tolerates
from autoscaler.model.resources import PODS, Resources

What = Literal[
    "group", "split", "select", "near", "apart", "spread", "topology",
    "work", "ready", "uncordon", "capacity", "quota", "partner", "resume",
    "usd", "nodes", "gpus", "max", "pulumi", "taint",
]  # fmt: skip
"""In the order in which it is tried to do without: what is done without first is asked of a person last.

Rules that the pod itself states come first, for some machine may keep them; a toleration comes last: it takes nothing
from what was asked.
"""
_AS_IT_IS: Final[frozenset[What]] = frozenset(
    {"taint", "pulumi", "max", "gpus", "nodes", "usd", "resume", "quota", "capacity", "partner"}
)
_WITH_OTHERS: Final[frozenset[What]] = _AS_IT_IS | {"uncordon", "ready", "work"}
_CHANGED: Final[frozenset[What]] = _WITH_OTHERS | {"select", "near", "apart", "spread", "topology"}
OF_OTHERS: Final[frozenset[What]] = _WITH_OTHERS - {"taint", "partner", "work"}
"""What is left out for all pods alike."""
STAGES: Final = (_AS_IT_IS, _WITH_OTHERS, _CHANGED, _CHANGED | {"split"}, _CHANGED | {"group"})
"""What may be left out, more from stage to stage."""
PARTS: Final = (2, 3, 4, 6, 8, 12, 16)
"""Into how many pods one that is too large is split."""


@dataclass(frozen=True, slots=True)
class Relaxation:
    """One thing that is left out."""

    what: What
    taint: Taint | None = None
    """That is tolerated."""
    requirement: Requirement | None = None
    """On a node's labels, that is not asked for."""
    term: PodTerm | None = None
    """The rule between pods."""
    key: str = ""
    """Of the topology."""
    parts: int = 1
    """Of a pod that is split."""


Relaxed = tuple[Relaxation, ...]


def relaxed_pod(pod: Pod, relaxed: Relaxed) -> Pod:
    """The pod without the rules that are left out."""
    taints = tuple(_toleration(one.taint) for one in relaxed if one.taint is not None)
    dropped = {one.requirement for one in relaxed if one.requirement is not None}
    between = {one.term for one in relaxed if one.term is not None}
    keys = {one.key for one in relaxed if one.what == "spread"}
    if not (taints or dropped or between or keys):
        return pod
    terms = tuple(tuple(one for one in term if one not in dropped) for term in pod.affinity)
    return replace(
        pod,
        tolerations=(*pod.tolerations, *taints),
        affinity=() if any(not term for term in terms) else terms,
        near_to=tuple(term for term in pod.near_to if term not in between),
        apart_from=tuple(term for term in pod.apart_from if term not in between),
        spread=tuple(one for one in pod.spread if one.topology_key not in keys),
    )


def part_of(pod: Pod, parts: int) -> Pod:
    """One of so many pods that take its place: of everything it asks its part, rounded up."""
    amounts = {name: amount if name == PODS else -(-amount // parts) for name, amount in pod.requests.items()}
    return replace(pod, requests=Resources(amounts))


def rules_of(pods: Iterable[Pod], taints: Iterable[Taint], topology: str | None) -> Iterator[Relaxation]:
    """What of the pods' own rules may be left out; ``taints``: of all nodes that there are or may be."""
    pods = list(pods)
    for taint in sorted(set(taints), key=str):
        if taint.effect != "PreferNoSchedule" and not all(tolerates(pod.tolerations, taint) for pod in pods):
            yield Relaxation("taint", taint=taint)
    for asked in dict.fromkeys(one for pod in pods for term in pod.affinity for one in term):
        yield Relaxation("select", requirement=asked)
    for term in dict.fromkeys(term for pod in pods for term in pod.apart_from):
        yield Relaxation("apart", term=term)
    for key in dict.fromkeys(one.topology_key for pod in pods for one in pod.spread):
        yield Relaxation("spread", key=key)
    if topology is not None:
        yield Relaxation("topology", key=topology)


def _toleration(taint: Taint) -> Toleration:
    operator: Literal["Equal", "Exists"] = "Equal" if taint.value else "Exists"
    return Toleration(taint.key, operator, taint.value, taint.effect)


def toleration_of(taint: Taint) -> Toleration:
    """The narrowest toleration that covers the taint."""
    return _toleration(taint)


def in_drop_order(found: Sequence[Relaxation]) -> list[Relaxation]:
    """Those that it is tried to do without first come first."""
    order: dict[str, int] = {what: number for number, what in enumerate(What.__args__)}  # type: ignore[attr-defined]
    return sorted(found, key=lambda one: order[one.what])
