"""Steps of workflows: which begin now, which are given up, and for which nothing is bought yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from autoscaler.model.actions import BeginStep, StopStep
from autoscaler.model.cluster import Cluster
from autoscaler.model.jobs import succeeded
from autoscaler.planner.demand.gangs import Gang

_BECAUSE: Final = "nothing is bought for it while {after} only just ended: their pods still hold their room"


def steps_due(cluster: Cluster) -> list[BeginStep | StopStep]:
    """What goes on in workflows, and what is given up there."""
    made: list[BeginStep | StopStep] = []
    for step in sorted(cluster.workflow_steps, key=lambda step: (step.namespace, step.name)):
        if step.failed:
            made.append(StopStep(step.namespace, step.name, f"{step.failed}, which it depends on, has failed"))
        elif not step.left:
            made.append(BeginStep(step.namespace, step.name, succeeded(step.after)))
    return made


def early(cluster: Cluster, gangs: Iterable[Gang]) -> tuple[Mapping[str, str], tuple[datetime, ...]]:
    """Name of a gang that waits for the room of the steps before its own -> why, and when to look again."""
    steps = {(one.namespace, f"Job/{one.name}"): one for one in cluster.early_steps if cluster.seen_at < one.until}
    if not steps:
        return {}, ()
    found = {}
    for gang in gangs:
        of = [steps[pod.namespace, pod.owner] for pod in gang.waiting if (pod.namespace, pod.owner) in steps]
        if of:
            found[gang.name] = _BECAUSE.format(after=", ".join(sorted({name for one in of for name in one.after})))
    return found, tuple(one.until for one in steps.values())
