"""What Slurm itself makes of our batch scripts: Debian's, on Debian machines, programs of a few lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from images.renderers.slurm import render
from tests.live.debian import why_not
from tests.live.hybrid import until
from tests.live.machines import Bench
from tests.live.slurm import SlurmCluster, slurm_cluster
from tests.test_images.test_jobs import job

pytestmark = pytest.mark.live
PROGRAM: Final = """\
import os, signal, sys, time
task = f"{os.environ['TASK_ROLE']} {os.environ['TASK_INDEX']}"
def end(*_):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(2)
    print(task, "has written its state", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
seen = [os.environ.get(key, "none") for key in ("CUDA_VISIBLE_DEVICES", "SLURM_CPUS_PER_TASK")]
print(task, "runs on GPU {} with {} CPUs".format(*seen), flush=True)
time.sleep(float(sys.argv[1]))
"""
"""A program that needs two seconds for its end."""
JOB: Final = """\
name: tells
roles:
  worker: {{count: 2, cpus: 3, memory: 1Gi, gpus: 1, entry: [python3, {program}, "{seconds}"]}}
  ps: {{cpus: 1, memory: 1Gi, entry: [python3, {program}, "600"]}}
"""
ALL: Final = {"worker 0", "worker 1", "ps 0"}


@dataclass(frozen=True)
class Site:
    """A cluster and its file server."""

    cluster: SlurmCluster
    home: Path

    def submit(self, *, seconds: float) -> tuple[str, Path]:
        """A job whose workers end by themselves after so long; returns its id, and the file of what it says."""
        program, script = self.home / "program.py", self.home / "job.sh"
        program.write_text(PROGRAM)
        script.write_text(render(job(JOB.format(program=program, seconds=seconds))).text)
        return self.cluster.submit(script), script.with_suffix(".out")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A node for each of two roles."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    home = tmp_path_factory.mktemp("home")
    home.chmod(0o777)
    with Bench(tmp_path_factory.mktemp("bench"), shared=(home,)) as bench:
        yield Site(cluster=slurm_cluster(bench, ("a", "b")), home=home)


def running(said: Path) -> dict[str, list[str]]:
    """GPU and CPUs of each task that runs."""
    text = said.read_text() if said.exists() else ""
    return {
        task: told for task, *told in re.findall(r"^(\w+ \d) runs on GPU (\S+) with (\S+) CPUs$", text, re.MULTILINE)
    }


def wrote(said: Path) -> set[str]:
    """Tasks that had the time that they needed for their end."""
    return set(re.findall(r"^(\w+ \d) has written its state$", said.read_text(), re.MULTILINE))


def test_each_task_has_its_own_gpu_and_cpus_and_the_server_ends_in_peace(site: Site) -> None:
    """Two workers on one machine see different devices; the server is told when they are done, and may finish."""
    number, said = site.submit(seconds=1)
    assert site.cluster.ended(number, within=60) == {"COMPLETED"}, said.read_text()
    tasks = running(said)
    assert sorted([tasks["worker 0"], tasks["worker 1"]]) == [["0", "3"], ["1", "3"]]
    assert tasks["ps 0"] == ["none", "1"]
    assert wrote(said) == {"ps 0"}


@pytest.mark.parametrize(
    ("options", "end"), [("", "CANCELLED"), ("--batch --signal=TERM", "FAILED")], ids=["all of it", "the script alone"]
)
def test_a_cancelled_job_has_time_to_write_its_state(site: Site, options: str, end: str) -> None:
    """Whether Slurm tells the tasks, or the batch script does because it was told."""
    number, said = site.submit(seconds=600)
    until(lambda: running(said).keys() == ALL, within=60, told=site.cluster.queue)
    site.cluster.typed(f"scancel {options} {number}")
    assert site.cluster.ended(number, within=60) == {end}, said.read_text()
    assert wrote(said) == ALL
