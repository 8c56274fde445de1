"""Jobs of other operators on a real API server: the size of a gang is what its owner says."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.live.conftest import Plane
from tests.live.custom_kinds import provisioning_request, served
from tests.live.hybrid import autoscaler, bound, gpu_pod, make_pod, stand_in_aws, until, write_policy

pytestmark = pytest.mark.live


@dataclass(frozen=True, slots=True)
class Job:
    """A job of three pods in some dialect."""

    group: str
    version: str
    kind: str
    spec: dict[str, Any]
    mark: str
    """Label of its pods, whose value is the job's name."""


TF_JOB = Job(
    group="kubeflow.org",
    version="v1",
    kind="TFJob",
    spec={"tfReplicaSpecs": {"Chief": {"replicas": 1}, "Worker": {"replicas": 2}}},
    mark="training.kubeflow.org/job-name",
)
JOB_SET = Job(
    group="jobset.x-k8s.io",
    version="v1alpha2",
    kind="JobSet",
    spec={"replicatedJobs": [{"name": "w", "replicas": 1, "template": {"spec": {"parallelism": 3}}}]},
    mark="jobset.sigs.k8s.io/jobset-name",
)


@pytest.mark.parametrize("job", [TF_JOB, JOB_SET], ids=lambda job: str(job.kind))
def test_nothing_is_bought_for_a_job_before_all_of_its_pods_are_there(plane: Plane, tmp_path: Path, job: Job) -> None:
    """Two of three: it is told who is missing. With the third, the whole is bought by one request."""
    file, policy = write_policy(tmp_path)
    labels = {job.mark: "mnist"}
    with (
        served(plane.kube, group=job.group, version=job.version, kind=job.kind) as path,
        stand_in_aws(tmp_path / "aws", kubeconfig=plane.kubeconfig, boot_delay="500ms") as aws,
    ):
        aws.make_groups(policy)
        plane.kube.send(
            "POST",
            path,
            {
                "apiVersion": f"{job.group}/{job.version}",
                "kind": job.kind,
                "metadata": {"name": "mnist"},
                "spec": job.spec,
            },
        )
        make_pod(plane.kube, gpu_pod("mnist-0", labels=labels))
        make_pod(plane.kube, gpu_pod("mnist-1", labels=labels))
        log = tmp_path / "autoscaler.log"
        with autoscaler(policy=file, env=aws.env, kubeconfig=plane.autoscaler_kubeconfig, log=log) as brain:
            until(lambda: "is not complete: 2 of 3 pods have been created" in brain.texts(), told=brain.texts)
            time.sleep(1)
            assert aws.asked() == []
            make_pod(plane.kube, gpu_pod("mnist-2", labels=labels))
            for name in ("mnist-0", "mnist-1", "mnist-2"):
                until(partial(bound, plane.kube, name), told=brain.texts)
            assert brain.stop() == 0
        assert [one["parameters"]["RequestedCapacity"] for one in aws.asked()] == ["3"]


def test_room_is_bought_for_a_provisioning_request_before_there_are_pods(plane: Plane, tmp_path: Path) -> None:
    """As Kueue asks for it: whole, once, told when it is there; its pods take it. What does not fit is told why."""
    file, policy = write_policy(tmp_path)
    default, template = "/api/v1/namespaces/default", gpu_pod("worker")
    with (
        served(plane.kube, group="autoscaling.x-k8s.io", version="v1", kind="ProvisioningRequest") as path,
        stand_in_aws(tmp_path / "aws", kubeconfig=plane.kubeconfig, boot_delay="500ms") as aws,
    ):
        aws.make_groups(policy)
        body = {"metadata": {"name": "worker"}, "template": {"spec": template["spec"]}}
        plane.kube.send("POST", f"{default}/podtemplates", body)
        log = tmp_path / "autoscaler.log"
        with autoscaler(policy=file, env=aws.env, kubeconfig=plane.autoscaler_kubeconfig, log=log) as brain:
            plane.kube.send("POST", path, provisioning_request("three", template="worker", count=3))
            until(partial(_told, plane, f"{path}/three", "Provisioned", "True"), told=brain.texts)
            plane.kube.send("POST", path, provisioning_request("five", template="worker", count=5))
            why = until(partial(_told, plane, f"{path}/five", "Provisioned", "False"), told=brain.texts)
            assert "max 4 of group gpu" in why
            mark = {"autoscaling.x-k8s.io/consume-provisioning-request": "three"}
            names = [f"worker-{number}" for number in range(3)]
            for name in names:
                make_pod(plane.kube, gpu_pod(name, annotations=mark))
            for name in names:
                until(partial(bound, plane.kube, name), told=brain.texts)
            assert brain.stop() == 0
        assert [one["parameters"]["RequestedCapacity"] for one in aws.asked()] == ["3"]
        plane.kube.send("DELETE", f"{default}/podtemplates/worker")


def _told(plane: Plane, path: str, condition: str, status: str) -> str:
    """The words of that condition, once it is so."""
    conditions = plane.kube.get(path).get("status", {}).get("conditions", [])
    found = [one["message"] for one in conditions if (one["type"], one["status"]) == (condition, status)]
    return found[0] if found else ""
