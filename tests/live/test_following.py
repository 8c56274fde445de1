"""A researcher who submits a job and watches it: the real command beside the real autoscaler."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from autoscaler.model import labels as words
from stacks.local.process.ports import free_ports
from tests.live.conftest import Plane
from tests.live.hybrid import autoscaler, stand_in_aws, until, write_policy
from tests.live.test_job_controllers import JOB

pytestmark = pytest.mark.live
LIFE = ["queued", "bought", "booting", "starting", "running", "ended"]


@contextmanager
def command(plane: Plane, *arguments: str, said: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`spillway jobs ...`, its words in a file."""
    with said.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "spillway", "jobs", *arguments],
            env=os.environ | {"KUBECONFIG": str(plane.kubeconfig), "PYTHONUNBUFFERED": "1"},
            stdout=out,
            stderr=out,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_job_is_followed_from_the_queue_to_its_end(plane: Plane, tmp_path: Path) -> None:
    """It waits, its nodes are bought and boot, it runs and ends. Ctrl-C in between leaves it alone."""
    (tmp_path / "job.yaml").write_text(JOB)
    first, second = tmp_path / "first", tmp_path / "second"
    with command(plane, "submit", str(tmp_path / "job.yaml"), "--follow", said=first) as submit:
        until(lambda: "queued: no autoscaler acts" in first.read_text(), told=first.read_text)
        submit.send_signal(signal.SIGINT)
        assert submit.wait(timeout=40) == 130
    assert "mnist goes on; `spillway jobs follow mnist` follows it again" in first.read_text()

    file, policy = write_policy(tmp_path)
    env = tmp_path / "aws"
    port = str(free_ports(1)[0])
    with (
        command(plane, "follow", "mnist", said=second) as follow,
        stand_in_aws(env, kubeconfig=plane.kubeconfig, boot_delay="8s") as aws,
    ):
        until(lambda: "queued" in second.read_text(), told=second.read_text)
        aws.make_groups(policy)
        log = tmp_path / "autoscaler.log"
        with autoscaler(
            "--metrics-port", port, policy=file, env=aws.env, kubeconfig=plane.autoscaler_kubeconfig, log=log
        ) as brain:
            assert follow.wait(timeout=90) == 0, second.read_text()
            assert brain.stop() == 0
    lines = second.read_text().splitlines()
    seen = [line.split(" UTC ")[1].partition(":")[0] for line in lines]
    assert [word for word in LIFE if word in seen] == list(dict.fromkeys(seen)), lines
    assert {"queued", "booting", "running", "ended"} <= {*seen}, lines
    assert any("2 x g5.12xlarge in us-east-1a, $11.34 per hour" in line for line in lines), lines
    assert lines[-1].endswith("ended: succeeded")


FLOW = """\
name: flow
gang: false
depends_on: {train: [prepare], serve: [train]}
failure: {restarts: 0}
roles:
  prepare: {image: i, cpus: 1, memory: 1Gi, count: 2, annotations: {local.spillway.dev/runs-for: 1s}}
  train: {image: i, cpus: 8, memory: 32Gi, gpus: 4, annotations: {local.spillway.dev/runs-for: 1s}}
  serve: {image: i, cpus: 1, memory: 1Gi, annotations: {local.spillway.dev/runs-for: 1s}}
"""


def test_a_workflow_goes_step_by_step_and_stops_at_one_that_fails(plane: Plane, tmp_path: Path) -> None:
    """Nothing is bought for a step before its time, nor for one that never comes."""
    plane.fake_node("home", cpu="4")
    (tmp_path / "good.yaml").write_text(FLOW)
    (tmp_path / "bad.yaml").write_text(FLOW.replace("flow", "bad").replace("runs-for: 1s", "fails-after: 1s", 1))
    good, bad = tmp_path / "good", tmp_path / "bad"
    file, policy = write_policy(tmp_path)
    with stand_in_aws(tmp_path / "aws", kubeconfig=plane.kubeconfig, boot_delay="1s") as aws:
        aws.make_groups(policy)
        log, port = tmp_path / "autoscaler.log", str(free_ports(1)[0])
        words_ = ("--metrics-port", port)
        with autoscaler(*words_, policy=file, env=aws.env, kubeconfig=plane.autoscaler_kubeconfig, log=log) as brain:
            with command(plane, "submit", str(tmp_path / "bad.yaml"), "--follow", said=bad) as failing:
                assert failing.wait(timeout=90) != 0, bad.read_text()
            until(lambda: {one for *_, one in steps(plane, "bad")} == {"Failed"}, told=lambda: steps(plane, "bad"))
            assert "grow" not in log.read_text()
            with command(plane, "submit", str(tmp_path / "good.yaml"), "--follow", said=good) as running:
                assert running.wait(timeout=90) == 0, good.read_text()
            assert brain.stop() == 0
    told = bad.read_text().splitlines()[-1]
    assert "ended: bad-prepare has failed: " in told, told
    assert {began for began, _ in steps(plane, "bad")} == {""}
    assert not [pod for pod in pods_of(plane, "bad") if pod["metadata"]["labels"][words.ROLE] != "prepare"]
    began, results = zip(*steps(plane, "flow"), strict=True)
    assert (began[0], {*results}) == ("", {"Complete"})
    ended = [programs_end(plane, role) for role in ("prepare", "train")]
    assert ended[0] <= began[1] <= ended[1] <= began[2], (ended, began)
    lines = good.read_text()
    assert lines.index("step prepare: ") < lines.index("step train: ") < lines.index("ended: succeeded"), lines
    assert log.read_text().count("begin step default/flow-") == 2
    assert "stop step default/bad-serve, which was not begun: bad-train" in log.read_text()


def steps(plane: Plane, name: str) -> list[tuple[str, str]]:
    """When each step began, and how it ended."""
    found = []
    for role in ("prepare", "train", "serve"):
        job = plane.kube.get(f"/apis/batch/v1/namespaces/default/jobs/{name}-{role}")
        ends = [one["type"] for one in job["status"]["conditions"] if one["type"] in ("Complete", "Failed")]
        found.append((job["metadata"].get("annotations", {}).get(words.STEP_BEGAN, ""), "".join(ends)))
    return found


def programs_end(plane: Plane, role: str) -> str:
    """When the last container of that step did: some time before the Job controller has counted its pod."""
    pods = [pod for pod in pods_of(plane, "flow") if pod["metadata"]["labels"][words.ROLE] == role]
    return max(one["state"]["terminated"]["finishedAt"] for pod in pods for one in pod["status"]["containerStatuses"])


def pods_of(plane: Plane, name: str) -> list[dict[str, Any]]:
    """All that there are."""
    selector = f"labelSelector={words.JOB}%3D{name}"
    return list(plane.kube.get(f"/api/v1/namespaces/default/pods?{selector}")["items"])
