"""The job that a function's tasks are made of."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from autoscaler.model.errors import BadInput
from images.experiment import Cluster, Local
from images.experiment.environment import Environment, job_of, name_for
from images.jobs import Job
from images.renderers.kubernetes import render


def made(roles: Mapping[str, object] | None = None, logs: str | None = None, **given: Any) -> Job:
    """A job from what ``launch`` is given."""
    environment: Environment = given  # type: ignore[assignment]
    return job_of(
        "mine", roles, environment, program=lambda python: [python or "py", "task.py"], env={"A": "1"}, logs=logs
    )


def test_without_a_template_a_role_is_small_and_gpus_go_to_those_that_work() -> None:
    """Parameter servers have none; what fails is not tried again."""
    job = made({"worker": 3, "ps": 1}, gpus=1, cpus=2, image="team/tf:2")
    assert {name: (role.count, role.gpus, role.cpus) for name, role in job.roles.items()} == {
        "worker": ("3", 1, "2"),
        "ps": ("1", 0, "2"),
    }
    assert job.roles["worker"].entry == ("py", "task.py")
    assert (job.main_role, job.failure.restarts, job.gang) == ("worker", 0, True)


def test_a_template_gives_what_the_call_does_not() -> None:
    """Its roles, unless others are named, which are like its main one; its program is the function's."""
    job = made(template="parameter-server", params={"workers": 2}, logs="/logs")
    assert {name: role.least for name, role in job.roles.items()} == {"worker": 2, "ps": 1}
    assert {role.entry for role in job.roles.values()} == {("py", "task.py")}
    assert job.logs == "/logs"
    other = made({"worker": 4, "evaluator": 1}, template="single", memory="64Gi", job={"patience": "30m"})
    assert other.roles["evaluator"].image == other.roles["worker"].image == "spillway/tensorflow-linear:1"
    assert (other.roles["worker"].most, other.roles["worker"].memory, other.roles["worker"].gpus) == (4, "64Gi", 1)
    assert other.patience is not None


def test_a_job_file_of_ones_own_is_a_template_too(tmp_path: Path) -> None:
    """By its path; its variables stay, and more can be added."""
    file = tmp_path / "mine.yaml"
    file.write_text(
        "name: x\nroles: {worker: {cpus: 1, memory: 1Gi, python: /opt/v, entry: [x], args: [y], env: {B: b}}}"
    )
    job = made(template=file, env={"C": "c"})
    assert job.roles["worker"].env == {"A": "1", "B": "b", "C": "c"}
    assert job.roles["worker"].entry == ("/opt/v", "task.py")
    assert job.roles["worker"].args == ()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"gpu": 1}, "there is no 'gpu' to be given: it is one of template, params"),
        ({"memory": "lots"}, "memory"),
        ({"roles": {"ps": 1}}, "none of ps ends by itself"),
        ({"template": "nothing.yaml"}, "nothing.yaml"),
    ],
)
def test_mistakes_are_told(given: dict[str, Any], told: str) -> None:
    """Before anything runs."""
    with pytest.raises(BadInput, match=told):
        made(**given)


def test_names_are_those_of_functions() -> None:
    """As host names have them."""
    assert name_for(test_names_are_those_of_functions) == "test-names-are-those-of-functions"
    assert name_for(lambda: 0) == "lambda"
    assert name_for(type("", (), {"__name__": "_1st"})()) == "f-1st"
    assert len(name_for(type("", (), {"__name__": "x" * 80})())) == 40


def test_a_directory_that_tasks_do_not_see_is_refused() -> None:
    """By the renderer, as for any job's lines; with a volume there it is taken."""
    volumes = [{"mount": "/shared", "claim": "shared"}]
    with pytest.raises(BadInput, match="lies on no volume"):
        render(made(image="a:1", logs="/shared/mine"))
    assert render(made({"worker": {"volumes": volumes}}, image="a:1", logs="/shared/mine")).documents


def test_places_say_where_experiments_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """This user's own directory, or the shared one."""
    monkeypatch.setenv("XDG_STATE_HOME", "/home/ada/state")
    assert Local().root == Path("/home/ada/state/spillway/experiments")
    assert (Cluster().root, Cluster().is_seen) == (Local().root, False)
    assert (Cluster(shared=Path("/shared")).root, Cluster(shared=Path("/shared")).is_seen) == (Path("/shared"), True)
