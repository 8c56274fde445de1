"""A Job of the API server as far as decisions depend on it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from autoscaler.kube.schema.core import (
    JobJson,
)
from autoscaler.kube.schema.gang_detection import count
from autoscaler.kube.schema.gang_kinds import GangSizes, indexed_job_size
from autoscaler.kube.schema.values import EPOCH, span_of, time_of
from autoscaler.model import labels as words
from autoscaler.model.jobs import ElasticRole


@dataclass(frozen=True, slots=True)
class Job:
    """A batch/v1 Job, reduced to how it has ended, whose end it waits for, its gang, and its size."""

    namespace: str
    name: str
    ended: bool
    """Complete, failed, or being deleted."""
    ends_with: str
    gang_sizes: GangSizes = ()
    elastic: ElasticRole | None = None
    result: Literal["", "succeeded", "failed"] = ""
    """How it has ended, or is about to: certain some seconds before it has ``ended``."""
    of: str = ""
    """The training job that it is a part of."""
    depends_on: tuple[str, ...] = ()
    """Jobs of its namespace after which it begins; empty where it was stopped."""
    waits: bool = False
    """It is suspended, and was never begun."""
    began: datetime | None = None
    """When Spillway resumed it."""
    uid: str = ""
    completions: int | None = None
    """Number of its tasks, where it is an Indexed Job."""


_SUCCEEDED: Final = {"SuccessCriteriaMet", "Complete"}
_FAILED: Final = {"FailureTarget", "Failed"}
"""Conditions of a Job: the first of each says what the second will, from Kubernetes 1.31 on.

https://kubernetes.io/docs/concepts/workloads/controllers/job/#terminal-job-conditions
"""


def job_from(raw: JobJson) -> Job:
    """Returns the Job as the planner knows it."""
    true = {condition.type for condition in raw.status.conditions if condition.status == "True"}
    return Job(
        namespace=raw.metadata.namespace,
        name=raw.metadata.name,
        ended=bool(true & {"Complete", "Failed"}) or raw.metadata.deletion_timestamp is not None,
        ends_with=raw.metadata.annotations.get(words.ENDS_WITH, ""),
        gang_sizes=indexed_job_size(
            raw.metadata.name,
            mode=raw.spec.completion_mode,
            parallelism=raw.spec.parallelism,
            completions=raw.spec.completions,
        ),
        elastic=_elastic(raw),
        result="succeeded" if true & _SUCCEEDED else "failed" if true & _FAILED else "",
        of=raw.metadata.labels.get(words.JOB, ""),
        depends_on=_depends_on(raw),
        waits=raw.spec.suspend and words.STEP_BEGAN not in raw.metadata.annotations,
        began=time_of(raw.metadata.annotations.get(words.STEP_BEGAN)),
        uid=raw.metadata.uid,
        completions=raw.spec.completions if raw.spec.completion_mode == "Indexed" else None,
    )


def _depends_on(raw: JobJson) -> tuple[str, ...]:
    notes = raw.metadata.annotations
    if words.STEP_STOPPED in notes:
        return ()
    return tuple(name for one in notes.get(words.DEPENDS_ON, "").split(",") if (name := one.strip()))


def _elastic(raw: JobJson) -> ElasticRole | None:
    """What is said of its size, where all of it makes sense: a Job that is not all at once is none of ours."""
    meta, spec, notes = raw.metadata, raw.spec, raw.metadata.annotations
    least, _, most = notes.get(words.ELASTIC, "").partition("..")
    minimum, maximum = count(least), count(most)
    if minimum is None or maximum is None or not minimum <= spec.parallelism <= maximum:
        return None
    if spec.completion_mode != "Indexed" or spec.completions != spec.parallelism:
        return None
    return ElasticRole(
        namespace=meta.namespace,
        name=meta.name,
        size=spec.parallelism,
        minimum=minimum,
        maximum=maximum,
        created=meta.creation_timestamp or EPOCH,
        changed=time_of(notes.get(words.RESIZED_AT)),
        follows=notes.get(words.FOLLOWS, ""),
        stays=bool(raw.status.succeeded) or spec.suspend,
        restart=span_of(notes.get(words.ELASTIC_RESTART)),
        warm_up=span_of(notes.get(words.ELASTIC_WARM_UP)),
        usd_per_hour=_usd(notes.get(words.ELASTIC_USD)),
    )


def _usd(text: str | None) -> float | None:
    try:
        usd = float(text or "")
    except ValueError:
        return None
    return usd if 0 <= usd < math.inf else None
