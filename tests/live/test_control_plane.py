"""The real control plane of the local ground, with KWOK for its kubelets."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from stacks.local.ground.control_plane import AUTOSCALER_USER
from stacks.local.kubeapi.client import KubeHttp, KubeRefusedError
from tests.live.conftest import Plane

pytestmark = pytest.mark.live
PODS = "/api/v1/namespaces/default/pods"


def submit(plane: Plane, name: str, **changes: Any) -> None:
    """Make a pod of one CPU; annotations by ``annotations``, the rest goes into its spec."""
    annotations = changes.pop("annotations", {})
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"containers": [container], **changes},
    }
    plane.kube.send("POST", PODS, pod)


def phase(plane: Plane, pod: str) -> str:
    """What the API server says of the pod."""
    return str(plane.kube.get(f"{PODS}/{pod}")["status"].get("phase"))


def wait_until(holds: Callable[[], bool]) -> None:
    """Give it a moment."""
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_pod_is_bound_runs_as_long_as_it_says_and_succeeds(plane: Plane) -> None:
    """The real scheduler binds it; KWOK's stages end it. One that says nothing runs on; a deleted one goes."""
    plane.fake_node("m1")
    submit(plane, "short", annotations={"local.spillway.dev/runs-for": "1s"})
    submit(plane, "endless")
    submit(plane, "doomed", annotations={"local.spillway.dev/fails-after": "1s"})
    wait_until(lambda: phase(plane, "short") == "Succeeded")
    wait_until(lambda: phase(plane, "doomed") == "Failed")
    assert plane.kube.get(f"{PODS}/short")["spec"]["nodeName"] == "m1"
    assert phase(plane, "endless") == "Running"
    plane.kube.send("DELETE", f"{PODS}/endless")
    wait_until(lambda: len(plane.kube.get(PODS)["items"]) == 2)


def test_a_gated_pod_waits_until_its_gate_is_lifted(plane: Plane) -> None:
    """What holds a gang together: no pod of it takes a place before all have one."""
    plane.fake_node("m2")
    submit(plane, "gated", schedulingGates=[{"name": "example.org/wait"}])
    submit(plane, "free")
    wait_until(lambda: phase(plane, "free") == "Running")
    assert "nodeName" not in plane.kube.get(f"{PODS}/gated")["spec"]
    lift = {"spec": {"schedulingGates": [], "nodeSelector": {"kubernetes.io/hostname": "m2"}}}
    plane.kube.send("PATCH", f"{PODS}/gated", lift, content="application/merge-patch+json")
    wait_until(lambda: phase(plane, "gated") == "Running")


def test_a_job_whose_pods_succeed_is_complete(plane: Plane) -> None:
    """The real Job controller sees what KWOK reports."""
    plane.fake_node("m3")
    template = {
        "metadata": {"annotations": {"local.spillway.dev/runs-for": "1s"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
    }
    spec = {"completions": 3, "parallelism": 3, "template": template}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "three"}, "spec": spec}
    jobs = "/apis/batch/v1/namespaces/default/jobs"
    plane.kube.send("POST", jobs, job)

    def complete() -> bool:
        conditions = plane.kube.get(f"{jobs}/three")["status"].get("conditions", [])
        return any(one["type"] == "Complete" and one["status"] == "True" for one in conditions)

    wait_until(complete)


def test_the_autoscaler_may_do_what_its_role_says_and_no_more(plane: Plane) -> None:
    """What it lacks in `autoscaler/rbac.yaml` it lacks here too: the demo would fail as a real cluster does."""
    mine = KubeHttp(plane.autoscaler_kubeconfig)
    plane.fake_node("m4")
    assert mine.get("/api/v1/nodes")["items"]
    with pytest.raises(KubeRefusedError, match=f'User "{AUTOSCALER_USER}" cannot list resource "secrets"') as refused:
        mine.get("/api/v1/secrets")
    assert refused.value.status == 403
