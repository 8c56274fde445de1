"""Rules between pods that name namespaces by their labels (``namespaceSelector``), told in names. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Final

from autoscaler.model.cluster import Namespaces, Pod
from autoscaler.model.constraints import PodTerm
from autoscaler.model.feasibility import term_holds
from autoscaler.model.pod_index import PodIndex

_UNKNOWN: Final = "waits until the labels of namespaces, which its pod affinity asks about, are known"


def resolve(pod: Pod, labels: Namespaces | None) -> Pod:
    """The pod with names in place of selectors."""
    if labels is None or not _asks(pod):
        return pod
    near, apart = ([_named(term, labels) for term in terms] for terms in (pod.near_to, pod.apart_from))
    return replace(pod, near_to=tuple(near), apart_from=tuple(apart))


def why_held(pod: Pod, labels: Namespaces | None) -> str:
    """Why nothing can be said of it yet; empty where all is known."""
    return _UNKNOWN if labels is None and _asks(pod) else ""


def resolved(index: PodIndex, labels: Namespaces | None) -> PodIndex:
    """The same pods; of those that run, which others they keep away, in names.

    While nothing is known of namespaces, a selector means every one that a pod waits in: better late than wrong.
    """
    if not any(term.namespace_selector is not None for term in index.anti_affinity):
        return index
    known = labels if labels is not None else {}
    feared = frozenset(pod.namespace for pod in index.unbound) if labels is None else frozenset()
    anti_affinity: dict[PodTerm, Counter[str]] = {}
    for term, counts in index.anti_affinity.items():
        named = _named(term, known)
        if term.namespace_selector is not None:
            named = replace(named, namespaces=named.namespaces | feared)
        anti_affinity.setdefault(named, Counter()).update(counts)
    return replace(index, anti_affinity=anti_affinity)


def _asks(pod: Pod) -> bool:
    return any(term.namespace_selector is not None for term in (*pod.near_to, *pod.apart_from))


def _named(term: PodTerm, labels: Namespaces) -> PodTerm:
    if term.namespace_selector is None:
        return term
    selected = frozenset(name for name, own in labels.items() if term_holds(term.namespace_selector, own))
    return replace(term, namespaces=term.namespaces | selected, namespace_selector=None)
