"""Which Jobs have ended, and what waits for that: servers that end with others, steps of workflows that begin.

The Job controller counts a pod when the kubelet has reported its phase, 2 to 3 s after its containers have ended, and
says a second later that the Job has succeeded. A step that waits for it begins before that, when each of its tasks has
ended with 0.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Final

from autoscaler.kube.schema.jobs import Job
from autoscaler.model.cluster import Pod
from autoscaler.model.jobs import EarlyStep, LingeringJob, WaitingStep
from autoscaler.model.labels import COMPLETION_INDEX, CONTROLLER_UID

Jobs = Mapping[tuple[str, str], tuple[int, Job]]
"""Namespace and name -> resource version, and the Job."""
_REPORTED_AFTER: Final = timedelta(seconds=10)
"""By then a kubelet has reported a pod whose containers have ended: it took 3 s on a busy machine of two CPUs."""


class CompletedTasks:
    """Which tasks of Indexed Jobs have ended with 0, by what their pods say. Not for several threads at once."""

    def __init__(self) -> None:
        self._indices: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        """Namespace, uid of a Job -> how many completed pods there are of each index."""

    def change(self, before: Pod | None, after: Pod | None) -> None:
        """A pod came, changed, or went (``None``: it is not there)."""
        for pod, by in ((before, -1), (after, 1)):
            if pod is None or not pod.completed or CONTROLLER_UID not in pod.labels:
                continue
            key = (pod.namespace, pod.labels[CONTROLLER_UID])
            self._indices[key][pod.labels.get(COMPLETION_INDEX, "")] += by
            self._indices[key] += Counter()  # those of which there is none are left out
            if not self._indices[key]:
                del self._indices[key]

    def are_all_of(self, job: Job) -> bool:
        """Whether each task of the Job is among them."""
        if not job.completions:
            return False
        indices = self._indices.get((job.namespace, job.uid), Counter())
        return all(str(index) in indices for index in range(job.completions))


def lingering(jobs: Jobs) -> tuple[LingeringJob, ...]:
    """Jobs that run though the one that they end with has ended."""
    return tuple(
        LingeringJob(namespace=job.namespace, name=job.name, ended_with=job.ends_with)
        for _, job in jobs.values()
        if job.ends_with and not job.ended and (job.namespace, job.ends_with) in jobs
        if jobs[job.namespace, job.ends_with][1].ended
    )


def waiting_steps(jobs: Jobs, completed: CompletedTasks) -> tuple[WaitingStep, ...]:
    """A predecessor that is not there, or is being deleted, is waited for."""
    found = []
    for job in _steps(jobs):
        if not job.waits:
            continue
        before = {name: jobs.get((job.namespace, name)) for name in job.depends_on}
        results = {name: _result(one[1], completed) if one else "" for name, one in before.items()}
        found.append(
            WaitingStep(
                namespace=job.namespace,
                name=job.name,
                of=job.of,
                after=job.depends_on,
                left=tuple(name for name, result in results.items() if result != "succeeded"),
                failed=next((name for name, result in results.items() if result == "failed"), ""),
            )
        )
    return tuple(found)


def early_steps(jobs: Jobs) -> tuple[EarlyStep, ...]:
    """Steps that began before the Job controller had counted all of those before them."""
    found = []
    for job in _steps(jobs):
        before = ((name, jobs.get((job.namespace, name))) for name in job.depends_on)
        after = tuple(name for name, one in before if one is not None and not one[1].result)
        if job.began is not None and after:
            found.append(EarlyStep(job.namespace, job.name, after, job.began + _REPORTED_AFTER))
    return tuple(found)


def _steps(jobs: Jobs) -> Iterator[Job]:
    return (job for _, job in jobs.values() if job.depends_on and not job.ended)


def _result(job: Job, completed: CompletedTasks) -> str:
    return job.result or ("succeeded" if not job.ended and completed.are_all_of(job) else "")
