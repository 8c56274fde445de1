"""What pods have said, by an API server that gives logs: a real one with fake machines cannot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autoscaler.kube.client import Kube
from autoscaler.model import labels as words
from images.backends.kubernetes import outcome
from images.experiment import Cluster, calls
from images.experiment.environment import job_of
from tests.test_autoscaler.fake_api import Answer, Asked, FakeApi, fake_api
from tests.test_images.test_backends.test_kubernetes import LOG, listed, pod
from tests.test_images.test_experiment.test_calls import carried

PODS = "/api/v1/namespaces/default/pods"
JOBS = "/apis/batch/v1/namespaces/default/jobs"


@pytest.fixture
def api() -> Iterator[FakeApi]:
    """A scripted API server."""
    with fake_api() as server:
        yield server


def one(end: str = "", **annotations: str) -> dict[str, Any]:
    """A Job that has ended so."""
    condition = {"type": end, "status": "True", "lastTransitionTime": "2026-11-21T09:00:00Z"}
    return {"metadata": {"annotations": annotations}, "status": {"conditions": [condition] if end else []}}


SERVER = one(**{words.ENDS_WITH: "mnist-worker"})


@pytest.mark.parametrize(
    ("there", "pods", "how"),
    [
        ([one("Complete"), SERVER], [pod()], "done"),
        ([one("Failed"), one(), SERVER], [pod()], "failed"),
        ([one("Complete"), one()], [], "running"),
        ([SERVER], [], "running"),  # it is being deleted
        ([], [pod()], "running"),  # in its grace it may hold a GPU
        ([], [], "gone"),
    ],
)
def test_a_job_stands_as_its_essential_roles_do(
    api: FakeApi, tmp_path: Path, there: list[dict[str, Any]], pods: list[dict[str, Any]], how: str
) -> None:
    """A server that has not ended yet keeps no result back."""
    api.answer = lambda asked: {"/version": Answer(body={}), JOBS: listed(*there), PODS: listed(*pods)}[asked.path]
    assert outcome(Kube.connect(api.kubeconfig(tmp_path)), namespace="default", name="mnist") == how


def test_results_are_fetched_from_the_lines_of_every_task(api: FakeApi, tmp_path: Path) -> None:
    """Into the folder, as a task that sees it would have written them; what has not started is left out."""

    def work() -> int:
        from images.experiment.task import report  # noqa: PLC0415

        report(loss=0.5)
        return 42

    _, lines = carried(work, path=(str(Path(__file__).parents[3]),))

    def say(asked: Asked) -> Answer:
        if asked.path == LOG:
            return Answer(body="".join(f"{line}\n" for line in lines).encode())
        return {"/version": Answer(body={}), PODS: listed(pod()), JOBS: listed()}[asked.path]

    api.answer = say
    job = job_of("mnist", {"worker": 2}, {"image": "a:1"}, program=lambda _python: ["x"], env={}, logs=None)
    place = Cluster(door=Kube.connect(api.kubeconfig(tmp_path)))
    folder = tmp_path / "folder"
    folder.mkdir()
    place.collect(job, folder)
    result = calls.read_result(folder, "worker-1")
    assert result is not None
    assert result.get() == 42
    assert [one.values for one in calls.read_reports(folder, "worker-1", number=3)] == [{"loss": 0.5}]
    assert calls.read_result(folder, "worker-0") is None
    assert place.lines(job, folder, "worker", 1) == lines
