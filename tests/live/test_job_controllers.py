"""Rendered jobs under the real controllers of JobSet and of Kubeflow's training operator, and the real autoscaler."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from autoscaler.model import labels as words
from images.job_files import parse_job
from images.renderers import RENDERERS
from stacks.local.kubeapi.client import KubeRefusedError
from tests.live.conftest import Plane
from tests.live.hybrid import Autoscaler, Aws, autoscaler, stand_in_aws, until, write_policy
from tests.live.job_controllers import JOBSETS, TFJOBS, jobset_controller, training_operator

pytestmark = pytest.mark.live

JOB: Final = """\
name: mnist
roles:
  worker:
    image: team/mnist:1
    count: 2
    gpus: 4
    cpus: 8
    memory: 32Gi
    annotations: {local.spillway.dev/runs-for: 1s}
  ps: {image: team/mnist:1, cpus: 2, memory: 4Gi}
"""
"""Two workers that fill a node each and end after a second, and a parameter server that runs until it is ended."""
PODS: Final = "/api/v1/namespaces/default/pods"
OURS: Final = (words.GANG, words.GANG_SIZE, words.GANG_MIN, words.JOB, words.ROLE)


@dataclass(frozen=True, slots=True)
class Dialect:
    """What the job becomes, and what makes pods of it."""

    target: str
    path: str
    runs: Callable[[Plane, Path], AbstractContextManager[None]]
    mark: str
    """Label of its pods, whose value is the job's name."""
    done: str
    """Type of the condition that says that it has succeeded."""
    spoil: Callable[[dict[str, Any]], None]
    """Makes a mistake in the spec that the types allow."""


def name_no_job(spec: dict[str, Any]) -> None:
    """It succeeds with jobs that it does not have."""
    spec["successPolicy"]["targetReplicatedJobs"] = ["nothing"]


def name_no_container(spec: dict[str, Any]) -> None:
    """The operator looks for a container of one name, and finds none."""
    spec["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["name"] = "worker"


DIALECTS: Final = (
    Dialect("jobset", JOBSETS, jobset_controller, "jobset.sigs.k8s.io/jobset-name", "Completed", name_no_job),
    Dialect("tfjob", TFJOBS, training_operator, "training.kubeflow.org/job-name", "Succeeded", name_no_container),
)


@pytest.fixture(scope="module", params=DIALECTS, ids=lambda dialect: str(dialect.target))
def dialect(
    request: pytest.FixtureRequest, control_plane_process: Plane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Dialect]:
    """One of the controllers, running."""
    found: Dialect = request.param
    if found.target == "tfjob" and os.geteuid() != 0:
        pytest.skip("the training operator reads its certificate from a fixed place, which only root can lend it")
    with found.runs(control_plane_process, tmp_path_factory.mktemp(found.target)):
        yield found


@pytest.fixture
def aws(plane: Plane, tmp_path: Path) -> Iterator[Aws]:
    """A stand-in for AWS whose instances join in half a second."""
    with stand_in_aws(tmp_path / "aws", kubeconfig=plane.kubeconfig, boot_delay="500ms") as made:
        yield made


@pytest.fixture
def brain(plane: Plane, aws: Aws, tmp_path: Path) -> Iterator[Autoscaler]:
    """The real autoscaler."""
    file, policy = write_policy(tmp_path)
    aws.make_groups(policy)
    log = tmp_path / "autoscaler.log"
    with autoscaler(policy=file, env=aws.env, kubeconfig=plane.autoscaler_kubeconfig, log=log) as running:
        yield running
        assert running.stop() == 0


def rendered(dialect: Dialect, name: str = "mnist") -> dict[str, Any]:
    """The job, as `spillway jobs render` prints it for the controller."""
    (document,) = RENDERERS[dialect.target](parse_job(JOB.replace("mnist", name), source="job.yaml")).documents
    return document


def foreign(document: dict[str, Any]) -> dict[str, Any]:
    """The same without a word of ours in its pods: what a user of the controller alone would write."""

    def stripped(found: Any) -> Any:
        if isinstance(found, list):
            return [stripped(one) for one in found]
        if not isinstance(found, dict):
            return found
        return {key: stripped(value) for key, value in found.items() if key not in (*OURS, "schedulingGates")}

    return {**stripped(document), "metadata": document["metadata"]}


def pods(plane: Plane, dialect: Dialect, job: str) -> list[dict[str, Any]]:
    """Those that the controller has made and not removed."""
    items: list[dict[str, Any]] = plane.kube.get(f"{PODS}?labelSelector={dialect.mark}={job}")["items"]
    return items


def is_done(plane: Plane, dialect: Dialect, job: str) -> bool:
    """The controller says that the job has succeeded."""
    conditions = plane.kube.get(f"{dialect.path}/{job}").get("status", {}).get("conditions", [])
    return any(one["type"] == dialect.done and one["status"] == "True" for one in conditions)


def test_rendered_jobs_are_bought_for_as_wholes_and_their_servers_end_with_their_workers(
    plane: Plane, dialect: Dialect, aws: Aws, brain: Autoscaler
) -> None:
    """Two nodes for each, never one; then both have succeeded, and of their parameter servers nothing is left.

    The pods of ``mnist`` wait behind our gate; ``foreign`` has no word of ours: its size is what its owner says.
    """
    plane.kube.send("POST", dialect.path, rendered(dialect))
    plane.kube.send("POST", dialect.path, foreign(rendered(dialect, "foreign")))
    for job in ("mnist", "foreign"):
        seen = partial(pods, plane, dialect, job)
        until(partial(is_done, plane, dialect, job), told=lambda: (brain.texts(), json.dumps(seen())[:4000]))  # noqa: B023
        until(lambda: {pod["status"]["phase"] for pod in seen()} <= {"Succeeded"}, told=seen)  # noqa: B023
    assert [one["parameters"]["RequestedCapacity"] for one in aws.asked()] in (["4"], ["2", "2"])
    for job in ("mnist", "foreign"):
        plane.kube.send("DELETE", f"{dialect.path}/{job}")
        until(lambda: not pods(plane, dialect, job), told=lambda: "its pods stay")  # noqa: B023


@pytest.mark.parametrize("dialect", DIALECTS[:1], indirect=True, ids=["jobset"])
def test_pods_that_come_once_others_run_are_planned_when_they_come(
    plane: Plane, dialect: Dialect, aws: Aws, brain: Autoscaler
) -> None:
    """The workers depend on the server: there are none before it is ready, and it does not wait for them.

    Its node has room for one of them. The training operator makes all pods of a job at once.
    """
    document = foreign(rendered(dialect, "in-turn"))
    server, worker = sorted(document["spec"]["replicatedJobs"], key=lambda job: str(job["name"]))
    worker["dependsOn"] = [{"name": server["name"], "status": "Ready"}]
    document["spec"]["replicatedJobs"] = [server, worker]
    plane.kube.send("POST", dialect.path, document)
    seen = partial(pods, plane, dialect, "in-turn")
    until(partial(is_done, plane, dialect, "in-turn"), told=lambda: (brain.texts(), json.dumps(seen())[:4000]))
    assert [one["parameters"]["RequestedCapacity"] for one in aws.asked()] == ["1", "1"]
    plane.kube.send("DELETE", f"{dialect.path}/in-turn")
    until(lambda: not seen(), told=lambda: "its pods stay")


def test_the_controller_refuses_what_is_wrong_as_it_would_in_a_cluster(plane: Plane, dialect: Dialect) -> None:
    """Its webhook is asked."""
    document = rendered(dialect)
    dialect.spoil(document["spec"])
    with pytest.raises(KubeRefusedError, match=r"admission webhook"):
        plane.kube.send("POST", dialect.path, document)
