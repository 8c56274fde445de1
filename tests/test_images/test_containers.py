"""The programs that go into container images, run as the real processes that they would be."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import images
from stacks.local.process.supervisor import free_ports

TRAIN = Path(str(images.__path__[0])) / "containers" / "tensorflow" / "train.py"
PYTHON = os.environ.get("SPILLWAY_TENSORFLOW_PYTHON", sys.executable)
"""A Python that has TensorFlow: it is too big to be a dependency of the tests."""
Task = tuple[str, int]


def has_tensorflow() -> bool:
    """Whether the real thing can be tried here."""
    return sys.executable != PYTHON or importlib.util.find_spec("tensorflow") is not None


@pytest.mark.live
@pytest.mark.skipif(
    not has_tensorflow(), reason="no TensorFlow: set SPILLWAY_TENSORFLOW_PYTHON to a Python that has it"
)
@pytest.mark.parametrize(
    "training", [[("worker", 0), ("worker", 1)], [("chief", 0), ("worker", 0)]], ids=["workers", "chief"]
)
def test_the_line_is_fitted_and_only_the_parameter_server_goes_on(training: list[Task]) -> None:
    """The founding documents' regression: w = 2, b = 10; a parameter server waits for ever."""
    tasks = [*training, ("ps", 0)]
    cluster: dict[str, list[str]] = {}
    for (role, _), port in zip(tasks, free_ports(len(tasks)), strict=True):
        cluster.setdefault(role, []).append(f"127.0.0.1:{port}")
    running = [started(task, cluster) for task in tasks]
    *trainers, server = running
    try:
        said = [trainer.communicate(timeout=240)[0] for trainer in trainers]
        assert [trainer.returncode for trainer in trainers] == [0, 0], said
        assert "b = 10" in said[0] or "b = 9.9" in said[0]
        assert server.poll() is None
    finally:
        for process in running:
            process.kill()
            process.communicate()


def started(task: Task, cluster: dict[str, list[str]]) -> subprocess.Popen[str]:
    """The program as one task of the cluster."""
    config = json.dumps({"cluster": cluster, "task": {"type": task[0], "index": task[1]}})
    return subprocess.Popen(
        [PYTHON, str(TRAIN)],
        env=os.environ | {"TF_CONFIG": config, "CUDA_VISIBLE_DEVICES": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def test_the_image_holds_the_program_that_the_examples_run() -> None:
    """At the path that they give, as a user that is not root."""
    lines = (TRAIN.parent / "Dockerfile").read_text().splitlines()
    assert "COPY train.py /opt/train.py" in lines
    assert "USER 10001" in lines
    for example in (TRAIN.parents[2] / "examples").glob("*.yaml"):
        assert "entry: [python, /opt/train.py]" in example.read_text(), example
