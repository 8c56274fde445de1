"""The device plugin and the exporter, as the real API server and scheduler take them."""

from __future__ import annotations

import time

import pytest

from autoscaler.model import labels as words
from tests.live.conftest import Plane
from tests.live.lab import spillway

pytestmark = pytest.mark.live


def test_they_run_on_machines_with_gpus_and_on_no_others(plane: Plane) -> None:
    """A tainted GPU node gets both, a plain one neither."""
    done = spillway("nodes", "manifests", "--apply", "--kubeconfig", str(plane.kubeconfig))
    assert done.returncode == 0, done.stderr
    assert "applied: DaemonSet nvidia-device-plugin\n" in done.stdout
    plane.fake_node("with-gpus", gpu="8")
    plane.fake_node("without")
    mark = {
        "metadata": {"labels": {words.GPU_PRESENT: "true"}},
        "spec": {"taints": [{"key": words.GPU, "value": "x", "effect": "NoSchedule"}]},
    }
    plane.kube.send("PATCH", "/api/v1/nodes/with-gpus", mark, content="application/merge-patch+json")
    end = time.monotonic() + 60
    placed: set[tuple[str, str]] = set()
    while (len(placed) < 2 or not all(node for _, node in placed)) and time.monotonic() < end:
        pods = plane.kube.get("/api/v1/namespaces/kube-system/pods")["items"]
        placed = {(pod["metadata"]["generateName"], pod["spec"].get("nodeName", "")) for pod in pods}
        time.sleep(0.1)
    for name in ("nvidia-device-plugin", "dcgm-exporter"):
        plane.kube.send("DELETE", f"/apis/apps/v1/namespaces/kube-system/daemonsets/{name}")
    assert placed == {("dcgm-exporter-", "with-gpus"), ("nvidia-device-plugin-", "with-gpus")}
