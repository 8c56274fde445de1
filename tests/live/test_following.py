"""A researcher who submits a job and watches it: the real command beside the real autoscaler."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stacks.local.process.supervisor import free_ports
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
