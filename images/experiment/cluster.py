"""Experiments as pods of a Kubernetes cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from autoscaler.kube.client import Kube
from autoscaler.model.errors import BadInput, Unavailable
from images.backends import kubernetes, local
from images.backends.states import Outcome
from images.experiment import calls
from images.experiment.places import kept_lines
from images.jobs import Job


@dataclass(frozen=True)
class Cluster:
    """Pods of a Kubernetes cluster, behind the gate as any job.

    ``shared``: a directory that this prompt and all tasks see at the same path (each role needs a volume there);
    without one a call travels in variables, 96 kB packed, and comes back in log lines, 1 MB packed.
    """

    shared: Path | None = None
    kubeconfig: Path | None = None
    autoscaler: str = "spillway"
    """Namespace of the autoscaler, which is asked what can never start."""
    every: float = 1.0
    patience: float = 30.0
    door: Kube | None = field(default=None, repr=False)

    @cached_property
    def kube(self) -> Kube:
        """The door to the cluster, opened on first use."""
        return self.door or Kube.connect(self.kubeconfig)

    @property
    def root(self) -> Path:
        """The shared directory; else one of this user's own, into which results are fetched."""
        return self.shared or local.home().parent / "experiments"

    @property
    def path(self) -> list[str]:
        """Nowhere: what is not in the image has to travel by value."""
        return []

    @property
    def is_seen(self) -> bool:
        """Where there is a shared directory."""
        return self.shared is not None

    def python(self, job_python: str | None) -> str:  # noqa: ARG002 - containers bring their own
        """Returns the image's own Python."""
        return "python3"

    def check(self, job: Job) -> None:
        """Ask the autoscaler; where none answers, nothing is known."""
        from images.spending import refuse_hopeless  # noqa: PLC0415 - slow, and once

        refuse_hopeless(job, self.kube, namespace=self.autoscaler)

    def start(self, job: Job) -> None:
        """Creates the job's objects."""
        kubernetes.submit(self.kube, job)

    def outcome(self, job: Job) -> Outcome:
        """Says how the job stands."""
        return kubernetes.outcome(self.kube, namespace=job.namespace, name=job.name)

    def collect(self, job: Job, folder: Path) -> None:
        """Read logs, where there is no shared directory."""
        if self.is_seen:
            return
        for role in job.essential:
            for index in range(job.roles[role].most):
                with contextlib.suppress(BadInput, Unavailable):  # it has not started, or is gone
                    _fetch(list(self._log(job, role, index)), folder, f"{role}-{index}")

    def _log(self, job: Job, role: str, index: int) -> Iterator[str]:
        return kubernetes.logs(self.kube, namespace=job.namespace, name=job.name, role=role, index=index)

    def stop(self, job: Job) -> None:
        """Delete it: its pods have their grace."""
        self.remove(job)

    def remove(self, job: Job) -> None:
        """Delete it, and leave the rest to the cluster's garbage collector."""
        with contextlib.suppress(BadInput):
            kubernetes.delete(self.kube, namespace=job.namespace, name=job.name, patience=0)

    def room(self, job: Job) -> int | None:  # noqa: ARG002
        """The autoscaler finds it: what has no place waits behind the gate."""
        return None

    def lines(self, job: Job, folder: Path, role: str, index: int) -> list[str]:
        """Returns the lines from the files of its launcher, or of its pod."""
        if self.is_seen:
            return kept_lines(job, folder, role, index)
        return list(self._log(job, role, index))


def _fetch(lines: list[str], folder: Path, task: str) -> None:
    """Write what stands in a log as the task would have written it."""
    for name, content in (("results", calls.result_in(lines)), ("reports", calls.reports_in(lines).encode())):
        if content:
            (folder / name).mkdir(parents=True, exist_ok=True)
            calls.write_whole(folder / name / task, content)
