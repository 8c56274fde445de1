"""TrainJobs of Kubeflow Trainer as the pods that their runtimes make."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from autoscaler.inputs.asked import Asked
from autoscaler.model.errors import BadInput
from autoscaler.model.labels import GPU
from autoscaler.model.resources import CPU
from tests.test_autoscaler.test_inputs.test_workload_objects import asked, manifest

TRAINER = "trainer.kubeflow.org/v1alpha1"
TRAINS = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}


def train_job(name: str = "x", runtime: str = "torch", kind: str = "ClusterTrainingRuntime", **trainer: Any) -> Any:
    """Of so many nodes."""
    spec = {"runtimeRef": {"name": runtime, "kind": kind}, "trainer": trainer}
    return manifest("TrainJob", TRAINER, spec, name, namespace="team")


def job(name: str, cpu: str, *, container: str = "node", trains: bool = False, **more: Any) -> dict[str, Any]:
    """A job of a runtime, of one container that has a request and a limit."""
    amounts = {"requests": {"cpu": cpu, "memory": "1Gi"}, "limits": {"memory": "1Gi"}}
    pods = {"template": {"spec": {"containers": [{"name": container, "resources": amounts}]}}}
    return {"name": name, "template": {"metadata": {"labels": TRAINS if trains else {}}, "spec": pods}} | more


def runtime(*jobs: Any, kind: str = "ClusterTrainingRuntime", namespace: str = "", **policy: Any) -> dict[str, Any]:
    """The runtime ``torch``."""
    spec = {"mlPolicy": policy, "template": {"spec": {"replicatedJobs": list(jobs)}}}
    return manifest(kind, TRAINER, spec, "torch", **({"namespace": namespace} if namespace else {}))


def found(told: Asked) -> Counter[tuple[str, int, int]]:
    """Gang, CPUs in thousandths and GPUs of each pod."""
    return Counter((pod.gang.name if pod.gang else "-", pod.requests[CPU], pod.requests[GPU]) for pod in told.pods)


def test_nodes_ask_for_what_the_train_job_says_in_place_of_the_runtime_s() -> None:
    """Resource by resource; as many as it says, or as the runtime does."""
    torch = runtime(job("node", "2", trains=True, replicas=4), numNodes=2)
    needs = {"limits": {GPU: "1"}}
    assert found(asked(train_job(numNodes=3, resourcesPerNode=needs), torch)) == {("x", 2000, 1): 3}
    assert found(asked(torch, train_job(resourcesPerNode={"requests": {"cpu": "500m"}}))) == {("x", 500, 0): 2}
    assert found(asked(torch, train_job())) == {("x", 2000, 0): 2}
    assert asked(torch, train_job()).notes == ()


def test_jobs_that_prepare_are_as_the_runtime_says() -> None:
    """They have no nodes, whatever their containers are called."""
    torch = runtime(job("dataset-initializer", "1", container="dataset-initializer"), job("node", "2", trains=True))
    told = asked(torch, train_job(numNodes=2, resourcesPerNode={"requests": {"cpu": "8"}}))
    assert found(told) == {("x", 1000, 0): 1, ("x", 8000, 0): 2}
    besides = runtime(job("node", "2", trains=True), job("other", "1"))
    assert found(asked(besides, train_job(resourcesPerNode={"requests": {"cpu": "8"}})))["x", 1000, 0] == 1
    sidecar = job("node", "2", trains=True, container="proxy")
    assert found(asked(runtime(sidecar), train_job(resourcesPerNode={"requests": {"cpu": "8"}}))) == {("x", 2000, 0): 1}


@pytest.mark.parametrize(
    ("as_node", "many", "expected"),
    [
        (True, 4, {("x", 8000, 0): 4}),
        (True, 1, {("x", 8000, 0): 2}),
        (False, 4, {("x", 8000, 0): 1, ("x", 2000, 0): 4}),
    ],
    ids=["the launcher is one of them", "with one node there are two", "the launcher starts them"],
)
def test_an_mpi_launcher_is_one_of_the_nodes_or_starts_them(
    *, as_node: bool, many: int, expected: dict[tuple[str, int, int], int]
) -> None:
    """Trainer gives its nodes what the TrainJob asks for only where the launcher is one of them."""
    mpi = {"mpi": {"runLauncherAsNode": as_node}}
    torch = runtime(job("node", "2"), job("launcher", "1", trains=True), **mpi)
    needs = {"requests": {"cpu": "8"}}
    assert found(asked(torch, train_job(numNodes=many, resourcesPerNode=needs))) == expected


def test_without_its_runtime_a_train_job_is_nodes_of_what_it_asks_for() -> None:
    """And that is said; a runtime of a namespace is for jobs in it alone."""
    needs = {"limits": {"cpu": "4", GPU: "8"}}
    told = asked(train_job(numNodes=3, resourcesPerNode=needs))
    assert found(told) == {("x", 4000, 8): 3}
    (note,) = told.notes
    taken = "taken for 3 nodes, each with what resourcesPerNode says"
    assert note == f"TrainJob x: its ClusterTrainingRuntime torch is not in the file: {taken}"
    own = runtime(job("node", "2", trains=True), kind="TrainingRuntime", namespace="team")
    assert found(asked(own, train_job(kind="TrainingRuntime"))) == {("x", 2000, 0): 1}
    elsewhere = runtime(job("node", "2", trains=True), kind="TrainingRuntime", namespace="other")
    (note,) = asked(elsewhere, train_job(kind="TrainingRuntime")).notes
    assert note == "TrainJob x: its TrainingRuntime torch is not in the file: taken for 1 node, asking for nothing"


@pytest.mark.parametrize(
    ("objects", "said"),
    [
        ([train_job(numNodes="many")], r"^f: TrainJob x: .*\$\.spec\.trainer\.numNodes"),
        ([runtime("node"), train_job()], r"^f: JobSet x: .*replicatedJobs\[0\]"),
        ([runtime({"name": "node", "template": 5}), train_job()], r"^f: JobSet x: .*template"),
        ([runtime({"template": {"metadata": {"labels": TRAINS}, "spec": 5}}), train_job()], r"^f: JobSet x: .*spec"),
        ([runtime(job("node", "2", trains=True) | {"replicas": 2}), train_job() | {"spec": 5}], r"^f: TrainJob x: "),
    ],
)
def test_fields_of_other_types_are_told_with_the_object(objects: list[dict[str, Any]], said: str) -> None:
    """As those of any other kind."""
    with pytest.raises(BadInput, match=said):
        asked(*objects)
