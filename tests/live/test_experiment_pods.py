"""Functions of a live prompt as pods of the real control plane.

Its machines are KWOK's, which run no code: what a container would run is run here, by the command and the environment
of the pod that the API server has. That a kubelet mounts the launcher, and serves a pod's lines, is not tried.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from autoscaler.kube.client import Kube
from autoscaler.model import labels as words
from images import experiment, launcher
from images.experiment import Cluster, calls
from images.renderers.kubernetes import LAUNCHER
from tests.live.conftest import Plane
from tests.live.hybrid import until
from tests.test_images.test_renderers.test_kubernetes import expanded

pytestmark = pytest.mark.live

PODS = "/api/v1/namespaces/default/pods"


def pods(plane: Plane) -> list[dict[str, Any]]:
    """Every pod of a job."""
    items: list[dict[str, Any]] = plane.kube.get(f"{PODS}?labelSelector={words.JOB}")["items"]
    return items


def run(pod: dict[str, Any]) -> list[str]:
    """What the pod's container would print."""
    (container,) = pod["spec"]["containers"]
    here = {"python3": sys.executable, LAUNCHER: launcher.__file__}
    told = expanded(pod, 0) | {"SPILLWAY_NEEDS": "{}"}  # names of pods are not known here
    bare = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(sys.modules["cloudpickle"].__file__ or "").parents[1])}
    done = subprocess.run(
        [here.get(word, word) for word in [*container["command"], *container.get("args", ())]],
        env=bare | told,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.stdout.splitlines()


def admit(plane: Plane, pod: dict[str, Any]) -> None:
    """As the autoscaler does it once there is a place."""
    gate = {"spec": {"schedulingGates": [{"$patch": "delete", "name": words.GATE}]}}
    plane.kube.send(
        "PATCH", f"{PODS}/{pod['metadata']['name']}", gate, content="application/strategic-merge-patch+json"
    )


def test_trials_wait_behind_the_gate_in_so_many_slots_and_leave_nothing(plane: Plane, tmp_path: Path) -> None:
    """The least may be bought for, the rest wait for machines of one's own; the next one takes a free slot."""
    plane.fake_node("dgx", gpu="8")
    place = Cluster(shared=tmp_path, door=Kube.connect(plane.kubeconfig), every=0.1)
    task = {
        "annotations": {"local.spillway.dev/runs-for": "100ms"},
        "volumes": [{"mount": str(tmp_path), "host": str(tmp_path)}],
    }

    def square(number: int) -> int:
        if number == 2:
            raise ValueError(number)
        return number * number

    search = experiment.map(
        square, {"number": range(4)}, slots="1..2", roles={"worker": task}, gpus=1, image="team/a:1", place=place
    )
    first = until(lambda: found if len(found := pods(plane)) == 2 else None, told=lambda: search)
    marks = [pod["metadata"]["annotations"] for pod in sorted(first, key=lambda pod: str(pod["metadata"]["name"]))]
    assert [mark.get(words.PATIENCE) for mark in marks] == [None, "forever"]
    seen: set[str] = set()

    def carry_out() -> bool:
        there = pods(plane)
        assert len([pod for pod in there if pod["status"]["phase"] in ("Pending", "Running")]) <= 2
        for pod in there:
            if pod["metadata"]["name"] not in seen:
                seen.add(pod["metadata"]["name"])
                assert pod["spec"]["schedulingGates"] == [{"name": words.GATE}]
                run(pod)
                admit(plane, pod)
        return search.done()

    until(carry_out, told=lambda: search)
    assert search.results() == {0: 0, 1: 1, 3: 9}
    with pytest.raises(ValueError, match="2"):
        search[2].result()
    until(lambda: not pods(plane), told=lambda: pods(plane))
    assert plane.kube.get(f"/apis/batch/v1/namespaces/default/jobs?labelSelector={words.JOB}")["items"] == []


def test_without_a_shared_directory_a_call_is_in_the_pod_and_its_result_in_lines(
    plane: Plane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cancelled, all that was made of it is deleted."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    future = experiment.launch(
        lambda one: one + 1, args=(41,), roles={"worker": 1, "ps": 1}, image="team/a:1",
        place=Cluster(door=Kube.connect(plane.kubeconfig), every=0.1),
    )  # fmt: skip
    made = until(lambda: found if len(found := pods(plane)) == 2 else None, told=lambda: future)
    worker = next(pod for pod in made if pod["metadata"]["labels"][words.ROLE] == "worker")
    result = calls.result_in(run(worker))
    assert result is not None
    assert calls.parse_result(result).get() == 42
    assert future.state == "running"
    assert future.cancel()
    assert future.wait(120).cancelled()
    assert pods(plane) == []
