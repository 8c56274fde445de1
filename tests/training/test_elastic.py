"""A real between-graph job whose workers come and go, each task under the launcher, as an elastic Job has them.

The tasks are processes here; what the Job's controller does on Kubernetes, the test does: it makes those of the next
indexes, and ends the highest ones with SIGTERM.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import images
from images import launcher
from stacks.local.process.ports import free_ports
from tests.live.hybrid import until
from tests.training.frameworks import activate, environment

pytestmark = pytest.mark.training
PROGRAM = Path(str(images.__path__[0])) / "containers" / "tensorflow" / "train.py"
MOST = 4
STEPS = 30_000
EVERY = 100
"""Steps between two checkpoints."""
SLOWLY = f"""\
import runpy, random, sys, time
draw = random.gauss
def drawn(*given):
    time.sleep(0.012)
    return draw(*given)
random.gauss = drawn
sys.argv = sys.argv[1:]
runpy.run_path({str(PROGRAM)!r}, run_name="__main__")
"""
"""The program, a little slower, so that there is something to resize."""


@dataclass
class Job:
    """One server and at most four workers."""

    place: Path
    cluster: dict[str, list[str]]
    tasks: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, role: str, index: int) -> None:
        """As the pod of that index starts."""
        told = {
            "SPILLWAY_ROLE": role,
            "SPILLWAY_INDEX": str(index),
            "SPILLWAY_CLUSTER": json.dumps(self.cluster),
            "SPILLWAY_NEEDS": json.dumps({"worker": 1, "ps": 1}),
            "SPILLWAY_SPARSE": "1",
            "SPILLWAY_STATE": str(self.place / "state"),
            "SPILLWAY_GRACE": "4",
            "TRAIN_DIR": str(self.place / "train"),
            "STEPS": str(STEPS),
            "CUDA_VISIBLE_DEVICES": "",
        }
        if role == "ps":
            told["SPILLWAY_ESSENTIAL"] = json.dumps({"worker": 1})
        command = [sys.executable, str(launcher.__file__), str(environment("tensorflow") / "bin" / "python")]
        with (self.place / f"{role}-{index}.log").open("ab") as log:
            self.tasks[f"{role}-{index}"] = subprocess.Popen(
                [*command, "-c", SLOWLY, str(PROGRAM)], env=os.environ | told, stdout=log, stderr=log
            )

    def shrink(self, index: int) -> None:
        """As its pod is deleted; by then it has ended."""
        task = self.tasks.pop(f"worker-{index}")
        task.send_signal(signal.SIGTERM)
        assert task.wait(timeout=30) == 128 + signal.SIGTERM

    def said(self, index: int) -> list[int]:
        """Steps that a worker has told of."""
        text = (self.place / f"worker-{index}.log").read_text(errors="replace")
        return [int(step) for step in re.findall(rf"^worker {index}: step (\d+), loss", text, re.MULTILINE)]

    def saved(self) -> int:
        """Step of the last whole checkpoint: TensorFlow names it in a file of its own once it is written."""
        state = (self.place / "train" / "checkpoint").read_text()
        named = re.search(r'^model_checkpoint_path: ".*-(\d+)"$', state, re.MULTILINE)
        assert named, state
        return int(named[1])

    def group(self, index: int) -> int:
        """The program of a worker, as its launcher wrote it down."""
        note = json.loads((self.place / "state" / "groups" / f"worker-{index}").read_text())
        return int(note["group"])

    def goes_on(self) -> None:
        """It tells of another four hundred steps."""
        now = self.said(0)[-1]
        self.until(lambda: self.said(0)[-1] >= now + 400)

    def until(self, holds: Callable[[], object]) -> None:
        """With all that was said, where it does not."""
        logs = lambda: "".join(one.read_text(errors="replace")[-2000:] for one in self.place.glob("*.log"))  # noqa: E731
        until(holds, told=logs)


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    """Nothing of it lives afterwards."""
    activate(monkeypatch, environment("tensorflow"))
    ports = [f"127.0.0.1:{port}" for port in free_ports(MOST + 1)]
    made = Job(tmp_path, {"worker": ports[:MOST], "ps": ports[MOST:]})
    yield made
    for task in made.tasks.values():
        task.kill()
        task.wait()


def test_workers_come_and_go_and_the_training_goes_on(job: Job) -> None:
    """2, 4, 2, 1 workers: those that stay keep their processes; all killed, it resumes within a checkpoint interval."""
    job.start("ps", 0)
    for index in (0, 1):
        job.start("worker", index)
    job.until(lambda: job.said(0) and job.said(1))
    stays = job.group(0), job.group(1)
    for index in (2, 3):
        job.start("worker", index)
    job.until(lambda: job.said(2) and job.said(3))
    job.goes_on()
    for index in (3, 2):
        job.shrink(index)
    job.goes_on()
    assert (job.group(0), job.group(1)) == stays
    job.shrink(1)
    job.goes_on()
    assert (job.group(0), job.tasks["worker-0"].poll()) == (stays[0], None)

    before = job.said(0)[-1]
    assert before < STEPS / 2, "there is nothing left to resume"
    job.tasks["worker-0"].kill()  # and its program with it
    job.tasks["worker-0"].wait()
    kept = job.saved()
    assert kept >= before - EVERY
    told = len(job.said(0))
    job.start("worker", 0)
    job.until(lambda: len(job.said(0)) > told)
    assert job.said(0)[told] >= kept
    job.goes_on()
