"""The regression of the founding documents, y = 2x + 10, by TensorFlow's own distributed modes as local jobs.

Through the templates, the command line, the supervisor and the launcher, in an environment that a researcher would have
activated. Each job has to end by itself, with servers that wait for ever.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import images
from images.backends import local
from images.cli import TEMPLATES
from tests.training.frameworks import activate, environment
from tests.training.local_jobs import delete_all, typed

pytestmark = pytest.mark.training
PROGRAMS = Path(str(images.__path__[0])) / "containers" / "tensorflow"
WITH_CHIEF = f"""\
name: line
roles:
  chief: {{cpus: 1, memory: 1Gi, entry: [python, {PROGRAMS}/train.py]}}
  worker: {{cpus: 1, memory: 1Gi, entry: [python, {PROGRAMS}/train.py]}}
  ps: {{cpus: 1, memory: 1Gi, entry: [python, {PROGRAMS}/train.py]}}
"""


@pytest.fixture(autouse=True)
def researcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A user with TensorFlow first on the path and no jobs; what is left of them ends at last."""
    activate(monkeypatch, environment("tensorflow"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.chdir(tmp_path)
    yield
    delete_all()


def fitted(role: str, index: int = 0) -> str:
    """Wait for a task of the job to end and check the line that it says it found; returns that line."""
    said = typed("logs", "line", "--role", role, "--index", str(index), "--follow")
    found = re.search(r".*w = (\S+), b = (\S+)", said)
    assert found, said
    assert abs(float(found[1]) - 2) < 0.15
    assert abs(float(found[2]) - 10) < 0.15
    return found[0]


def ended() -> dict[str, tuple[str, int, int]]:
    """State, tasks that succeeded and failures of each role, of a job of which nothing lives."""
    assert not local.is_alive(local.home() / "line")
    return {state.role: (state.state, state.succeeded, state.failed) for state in local.states()}


ALL_DONE = {"chief": ("done", 1, 0), "worker": ("done", 2, 0), "ps": ("done", 1, 0)}


@pytest.mark.parametrize("program", ["in_graph", "strategy"])
def test_one_client_trains_on_servers_that_only_wait(program: str) -> None:
    """In-graph replication, and ParameterServerStrategy: the client's end is the job's."""
    given = (f"program={PROGRAMS}/{program}.py", f"server={PROGRAMS}/server.py", "name=line")
    typed("submit", str(TEMPLATES / "in-graph.yaml"), *(word for one in given for word in ("-p", one)))
    fitted("chief")
    assert ended() == ALL_DONE


def test_every_worker_builds_the_graph() -> None:
    """Between-graph replication: two workers, variables on a parameter server that never ends by itself."""
    typed("submit", str(TEMPLATES / "parameter-server.yaml"), "-p", "name=line", "-p", f"program={PROGRAMS}/train.py")
    fitted("worker", 0)
    fitted("worker", 1)
    assert ended() == {role: ALL_DONE[role] for role in ("worker", "ps")}


def test_a_chief_leads_between_graph_training() -> None:
    """It is essential, the worker beside it is not waited for."""
    Path("job.yaml").write_text(WITH_CHIEF)
    typed("submit", "job.yaml")
    fitted("chief")
    assert {role: state for role, (state, _, _) in ended().items()} == dict.fromkeys(ALL_DONE, "done")


def test_gradients_are_reduced_among_all_workers() -> None:
    """MultiWorkerMirroredStrategy: both see two replicas and end with the very same line."""
    typed("submit", str(TEMPLATES / "all-reduce.yaml"), "-p", "name=line", "-p", f"program={PROGRAMS}/mirrored.py")
    lines = [fitted("worker", index) for index in (0, 1)]
    assert [line.partition(":")[0] for line in lines] == ["worker 0 of 2", "worker 1 of 2"]
    assert lines[0].partition(":")[2] == lines[1].partition(":")[2]
    assert ended() == {"worker": ("done", 2, 0)}
