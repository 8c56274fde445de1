"""The programs that go into container images, run as the real processes that they would be."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import images
from stacks.local.keeper import free_ports

TRAIN = Path(str(images.__path__[0])) / "containers" / "tensorflow" / "train.py"
PYTHON = os.environ.get("SPILLWAY_TENSORFLOW_PYTHON", sys.executable)
"""A Python that has TensorFlow: it is too big to be a dependency of the tests."""


def has_tensorflow() -> bool:
    """Whether the real thing can be tried here."""
    return sys.executable != PYTHON or importlib.util.find_spec("tensorflow") is not None


@pytest.mark.skipif(
    not has_tensorflow(), reason="no TensorFlow: set SPILLWAY_TENSORFLOW_PYTHON to a Python that has it"
)
def test_two_workers_and_a_server_fit_the_line_and_only_the_server_goes_on() -> None:
    """The founding documents' regression: w = 2, b = 10; a parameter server waits for ever."""
    ports = free_ports(3)
    cluster = {"worker": [f"127.0.0.1:{port}" for port in ports[:2]], "ps": [f"127.0.0.1:{ports[2]}"]}
    tasks = [("ps", 0), ("worker", 0), ("worker", 1)]
    running = [
        subprocess.Popen(
            [PYTHON, str(TRAIN)],
            env=os.environ
            | {
                "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": role, "index": index}}),
                "CUDA_VISIBLE_DEVICES": "",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for role, index in tasks
    ]
    server, *workers = running
    try:
        said = [worker.communicate(timeout=240)[0] for worker in workers]
        assert [worker.returncode for worker in workers] == [0, 0], said
        time.sleep(0.5)
        assert server.poll() is None
    finally:
        for process in running:
            process.kill()
            process.communicate()
