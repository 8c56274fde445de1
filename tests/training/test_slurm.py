"""The regression of the founding documents by jobs on a real Slurm: Debian's, on Debian machines.

A user with TensorFlow activated, on folders that all machines see, renders a template and submits it with ``sbatch``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import images
from images.cli import TEMPLATES
from tests.live.debian import why_not
from tests.live.machines import Bench
from tests.live.slurm import SlurmCluster, slurm_cluster
from tests.training.frameworks import environment
from tests.training.line import fitted, typed

pytestmark = pytest.mark.training
PROGRAMS = Path(str(images.__path__[0])) / "containers" / "tensorflow"


@dataclass(frozen=True)
class Site:
    """A cluster and its file server."""

    cluster: SlurmCluster
    home: Path
    """Where the user's files lie, on all machines."""
    frameworks: Path

    def run(self, job: Path, *params: str) -> str:
        """Render and submit a job that succeeds; returns what it said."""
        given = (word for param in params for word in ("-p", param))
        script = self.home / f"{job.stem}.sh"
        script.write_text(typed("render", str(job), "--to", "slurm", *given))
        number = self.cluster.submit(script, activated=self.frameworks)
        states = self.cluster.ended(number, within=150)
        said = script.with_suffix(".out").read_text()
        assert states == {"COMPLETED"}, said
        return said


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Three nodes with room for one worker each: so many roles a template has."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    frameworks, home = environment("tensorflow"), tmp_path_factory.mktemp("home")
    home.chmod(0o777)
    installed = (frameworks, Path(sys.base_prefix), PROGRAMS)
    with Bench(tmp_path_factory.mktemp("bench"), shared=(home,), installed=installed) as bench:
        yield Site(cluster=slurm_cluster(bench, ("a", "b", "c")), home=home, frameworks=frameworks)


def hosts(said: str, role: str) -> set[str]:
    """Machines that the tasks of a role say they serve at."""
    return set(re.findall(rf"^{role} \d+ serves at (?:grpc://)?(\w+):", said, re.MULTILINE))


def test_workers_train_with_a_server_that_ends_with_them(site: Site) -> None:
    """Between-graph replication, by the template as it is: only the batch script knows that the workers are done."""
    said = site.run(TEMPLATES / "parameter-server.yaml", "name=line", f"program={PROGRAMS}/train.py")
    fitted(said, "worker 0")
    fitted(said, "worker 1")
    assert hosts(said, "worker") | hosts(said, "ps") == {"a", "b", "c"}


def test_one_client_trains_on_servers_that_only_wait(site: Site) -> None:
    """In-graph replication: three components of one job."""
    said = site.run(TEMPLATES / "in-graph.yaml", f"program={PROGRAMS}/in_graph.py", f"server={PROGRAMS}/server.py")
    fitted(said, "client")


def test_gradients_are_reduced_and_each_line_is_kept(site: Site) -> None:
    """MultiWorkerMirroredStrategy on two machines; `spillway jobs logs` reads what each task said."""
    job = site.home / "mine.yaml"
    job.write_text(f"{(TEMPLATES / 'all-reduce.yaml').read_text()}logs: {site.home}/logs\n")
    site.run(job, "name=line", f"program={PROGRAMS}/mirrored.py")
    lines = [
        fitted(typed("logs", "line", "--index", str(index), "--from", f"{site.home}/logs"), f"worker {index}")
        for index in (0, 1)
    ]
    assert [line.partition(":")[0] for line in lines] == ["worker 0 of 2", "worker 1 of 2"]
    assert lines[0].partition(":")[2] == lines[1].partition(":")[2]
