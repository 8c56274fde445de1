"""Elastic jobs between the real autoscaler, the real Job controller and the real scheduler; nodes are KWOK's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autoscaler.kube.client import Kube
from autoscaler.model import labels as words
from images.backends.kubernetes import submit
from tests.live.conftest import Plane
from tests.live.hybrid import Autoscaler, autoscaler, make_pod, stand_in_aws, until, write_policy
from tests.test_images.test_jobs import job

pytestmark = pytest.mark.live
POLICY = """
cluster: test
groups:
  - {name: cpu, instance_type: m5.large, zones: [us-east-1a], max: 3, usd_per_hour: 0.096}
elastic: {interval: 2s}
"""
JOB = """\
name: grows
roles:
  worker: {count: 2..6, cpus: 1, memory: 1Gi, image: "team/mnist:1"}
  ps: {count: 1..2, cpus: 1, memory: 1Gi, image: "team/mnist:1"}
"""
PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
def brain(plane: Plane, tmp_path: Path) -> Iterator[Autoscaler]:
    """The command, beside a machine of eight CPUs and a group that could be bought."""
    file, policy = write_policy(tmp_path, POLICY)
    plane.fake_node("own", cpu="8", memory="64Gi")
    with stand_in_aws(tmp_path / "aws", kubeconfig=plane.kubeconfig, boot_delay="500ms") as aws:
        aws.make_groups(policy)
        kubeconfig, log = plane.autoscaler_kubeconfig, tmp_path / "autoscaler.log"
        with autoscaler(policy=file, env=aws.env, kubeconfig=kubeconfig, log=log) as running:
            yield running
        assert not aws.asked(), "nothing was to be bought"


def running(plane: Plane, role: str) -> dict[int, str]:
    """Tasks of a role that are bound and not ending: index -> uid."""
    pods: list[dict[str, Any]] = plane.kube.get(f"{PODS}?labelSelector={words.ROLE}={role}")["items"]
    return {
        int(pod["metadata"]["labels"][words.COMPLETION_INDEX]): pod["metadata"]["uid"]
        for pod in pods
        if pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]
    }


def sizes(plane: Plane) -> tuple[int, int]:
    """Workers and parameter servers that have a node."""
    return len(running(plane, "worker")), len(running(plane, "ps"))


def test_a_job_grows_gives_its_room_to_others_and_takes_it_back(plane: Plane, brain: Autoscaler) -> None:
    """Nothing is bought for those that get its room; tasks that stay keep their pods; all is told."""
    made = submit(Kube.connect(plane.kubeconfig), job(JOB))
    assert made[0] == "job/grows-worker"
    until(lambda: sizes(plane) == (6, 2), told=brain.texts)
    survivors = {index: uid for index, uid in running(plane, "worker").items() if index < 3}

    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "3"}}}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
    meta = {"name": "other", "namespace": "default"}
    make_pod(plane.kube, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    until(lambda: plane.kube.get(f"{PODS}/other")["spec"].get("nodeName") == "own", told=brain.texts)
    until(lambda: sum(sizes(plane)) == 5, told=brain.texts)
    assert running(plane, "worker").items() >= {k: v for k, v in survivors.items() if k < sizes(plane)[0]}.items()

    plane.kube.send("DELETE", f"{PODS}/other?gracePeriodSeconds=0")
    until(lambda: sizes(plane) == (6, 2), told=brain.texts)
    texts = brain.texts()
    assert "grow job default/grows-worker from 2 to" in texts
    assert "shrink job default/grows-worker from 6 to" in texts
    assert "Traceback" not in texts
