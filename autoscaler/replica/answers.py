"""What the replica that acts answers at its door about its last decision, or about one of its record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from autoscaler.model.cluster import Cluster, Namespaces, Pod
from autoscaler.model.errors import BadInput, Unavailable
from autoscaler.model.gpu_devices import GpuDevice
from autoscaler.model.volumes import Storage
from autoscaler.planner.explanation.explain import KINDS, changes_for, coming, explain
from autoscaler.planner.explanation.overview import overview
from autoscaler.planner.explanation.what_if import impossible, what_if
from autoscaler.record.decisions import Decision, from_json
from autoscaler.record.reader import decision_at
from autoscaler.replica.door import Answer, Question

Last = Callable[[], Decision | None]
"""The last decision; ``None`` before the first."""
KnownFor = Callable[[Sequence[Pod]], tuple[Storage | None, Namespaces | None]]
"""What there is of that which pods ask about that are not there yet. Raises ``Unavailable``."""


def answers_of(
    last: Last, record: Path | None, *, known_for: KnownFor, devices: Callable[[], tuple[GpuDevice, ...] | None]
) -> Mapping[str, Answer]:
    """Returns the answers by name. They raise ``BadInput``; ``Unavailable`` before the first decision.

    ``record``: the folder in which earlier decisions are found, where one is kept. ``devices``: what exporters tell of
    GPUs; ``None`` where none is asked.
    """
    return {
        "explain": lambda question: _explained(last, record, question),
        "top": lambda _question: _overview(_decided(last)),
        "gpus": lambda _question: msgspec.to_builtins(devices()),
        "whatif": lambda question: _what_if(_decided(last), question, known_for),
        "impossible": lambda question: _impossible(_decided(last), question, known_for),
    }


def _decided(last: Last) -> Decision:
    decision = last()
    if decision is None:
        raise Unavailable("nothing was decided yet by this replica")
    return decision


def _explained(last: Last, record: Path | None, question: Question) -> dict[str, Any]:
    """``/explain/KIND/NAME``: lines, changes that would help, nodes on their way to a job, its time.

    With ``?at=`` and a time: of the decision that held then.
    """
    path, query = question.path, question.query
    if len(path) < 2 or path[0] not in KINDS:  # noqa: PLR2004 - its kind, and its name
        raise BadInput(f"/explain/KIND/NAME: KIND is one of {', '.join(KINDS)}")
    found = _decided_at(query["at"], record) if "at" in query else _decided(last)
    name = "/".join(path[1:])
    lines = explain(path[0], name, found.cluster, found.policy, found.plan)
    nodes = coming(name, found.cluster, found.plan) if path[0] == "job" else ()
    return {
        "lines": lines,
        "changes": [one.as_json() for one in changes_for(path[0], name, found.cluster, found.plan)],
        "coming": msgspec.to_builtins(nodes),
        "decided": found.cluster.seen_at.isoformat(),
    }


def _decided_at(at: str, record: Path | None) -> Decision:
    if record is None:
        raise BadInput("the acting autoscaler keeps no record: start it with --record FOLDER")
    found = decision_at(record, datetime.fromisoformat(at))
    if found is None:
        raise Unavailable("the record begins later")
    return found


def _overview(found: Decision) -> Any:
    return msgspec.to_builtins(overview(found.cluster, found.policy, found.plan))


def _what_if(found: Decision, question: Question, known_for: KnownFor) -> Any:
    cluster, pods = _asked(found, question, known_for)
    return msgspec.to_builtins(what_if(cluster, found.policy, found.plan.memory, pods))


def _impossible(found: Decision, question: Question, known_for: KnownFor) -> Any:
    cluster, pods = _asked(found, question, known_for)
    return msgspec.to_builtins(impossible(cluster, found.policy, pods))


def _asked(found: Decision, question: Question, known_for: KnownFor) -> tuple[Cluster, tuple[Pod, ...]]:
    """The pods, and what was seen: with what they ask about, which no pod may have asked about before them."""
    pods = _pods(question)
    storage, namespaces = known_for(pods)
    return replace(found.cluster, storage=storage, namespaces=namespaces), pods


def _pods(question: Question) -> tuple[Pod, ...]:
    try:
        pods: tuple[Pod, ...] = from_json(tuple[Pod, ...], question.body)
    except msgspec.DecodeError as mistake:
        raise BadInput(f"these are no pods of this version of Spillway: {mistake}") from None
    return pods
