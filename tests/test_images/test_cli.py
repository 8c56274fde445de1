"""`spillway jobs` as a user types it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml
from click.shell_completion import BashComplete
from click.testing import CliRunner, Result

from autoscaler.model.errors import BadInput
from images.cli import TARGETS, TEMPLATES, jobs
from images.endpoints import BACKENDS
from images.job_files import read_job
from images.job_roles import Role
from images.jobs import Job
from images.renderers import RENDERERS
from spillway import cli
from tests.test_images.test_jobs import EXAMPLES, GOOD


def typed(*words: str, text: str | None = None) -> Result:
    """What `spillway jobs WORDS` did."""
    return CliRunner().invoke(jobs, words, input=text)


def test_render_prints_yaml_with_the_parameters_given() -> None:
    """In place of their defaults."""
    done = typed("render", str(TEMPLATES / "parameter-server.yaml"), "-p", "workers=5", "-p", "name=other")
    assert done.exit_code == 0, done.output
    main = next(yaml.safe_load_all(done.stdout))
    assert (main["metadata"]["name"], main["spec"]["completions"]) == ("other-worker", 5)


def test_what_a_target_cannot_say_is_told_beside_the_result() -> None:
    """On standard error, so that the result can be piped."""
    done = typed("render", str(EXAMPLES[0]), "--to", "marathon")
    assert "lost: gang: Marathon starts apps one by one\n" in done.stderr
    assert yaml.safe_load(done.stdout)["id"] == f"/{EXAMPLES[0].stem}"


def test_another_systems_file_becomes_a_job_file(tmp_path: Path) -> None:
    """That can be read again."""
    path = tmp_path / "tfjob.yaml"
    path.write_text(typed("render", str(EXAMPLES[-1]), "--to", "tfjob").stdout)
    done = typed("import", str(path), "--from", "tfjob")
    path.write_text(done.stdout)
    assert read_job(path).name == EXAMPLES[-1].stem
    assert done.stderr == ""


@pytest.mark.parametrize("param", ["workers", "=8"])
def test_a_parameter_without_a_value_is_told(param: str) -> None:
    """With what it should look like."""
    done = typed("render", str(EXAMPLES[0]), "-p", param)
    assert done.exit_code == 2
    assert f"{param!r} is not NAME=VALUE, e.g. workers=8" in done.output


@pytest.mark.parametrize(
    ("content", "told"),
    [(None, "cannot read this job file: No such file"), (b"\xff", "this job file is not UTF-8 text")],
)
def test_a_file_that_cannot_be_read_is_told(tmp_path: Path, content: bytes | None, told: str) -> None:
    """With its path."""
    path = tmp_path / "job.yaml"
    if content is not None:
        path.write_bytes(content)
    failure = typed("render", str(path)).exception
    assert isinstance(failure, BadInput)
    assert f"{path}: {told}" in str(failure)


def test_a_job_can_come_from_a_pipe() -> None:
    """Named as standard input in messages."""
    assert "mnist-worker" in typed("render", "-", text=GOOD).output
    failure = typed("render", "-", text=GOOD.replace("gpus", "gpu")).exception
    assert str(failure).startswith("standard input:3: roles.worker.gpu is not a key here; did you mean gpus?")


def test_an_unknown_target_is_refused() -> None:
    """With the ones there are, which are those that there is a renderer and an address for."""
    done = typed("render", str(EXAMPLES[0]), "--to", "mesos")
    assert done.exit_code == 2
    assert "'mesos' is not one of 'kubernetes'" in done.output
    assert {*TARGETS} == {*RENDERERS} == {*BACKENDS}


def test_init_writes_a_template_that_is_good_and_names_the_schema_that_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And never writes over a file."""
    monkeypatch.chdir(tmp_path)
    assert typed("init", "parameter-server").exit_code == 0
    assert read_job(Path("parameter-server.yaml")).name == "mnist"
    schema = Path("parameter-server.yaml").read_text().splitlines()[0].partition("$schema=")[2]
    assert os.path.isabs(schema)  # noqa: PTH117 - as an editor sees it
    assert Path(schema).is_file()
    again = typed("init", "parameter-server")
    assert "cannot write parameter-server.yaml: File exists" in again.output
    unknown = typed("init", "parameter")
    assert "'parameter' is none of: all-reduce, horovod" in unknown.output


def test_the_templates_are_listed_with_their_parameters() -> None:
    """What each is for, what must be given, what holds otherwise."""
    shown = typed("templates").output
    assert "parameter-server: Parameter servers, between-graph" in shown
    assert "    -p workers=  number of workers (default 2)" in shown
    assert "    -p image=  container image with your program (must be given)" in shown


def test_the_first_template_tells_of_every_key() -> None:
    """Nothing is kept back."""
    text = (TEMPLATES / "parameter-server.yaml").read_text()
    assert [key for key in {*Job.model_fields, *Role.model_fields} if f"{key}:" not in text] == []


@pytest.mark.parametrize(
    ("words", "way"),
    [
        (("list",), "without a cluster, --to local means this machine"),
        (("plan", str(EXAMPLES[0])), "without a cluster, --catalog prices.csv plans from files"),
    ],
)
def test_who_has_no_cluster_is_told_what_there_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: tuple[str, ...], way: str
) -> None:
    """The first thing that a researcher may meet; where a file is named, it is the file that is wrong."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(BadInput, match=f"{way}$"):
        CliRunner().invoke(jobs, words, catch_exceptions=False)
    with pytest.raises(BadInput, match=r"service account$"):
        CliRunner().invoke(jobs, [*words, "--kubeconfig", "nowhere"], catch_exceptions=False)


def test_each_template_is_told_in_a_whole_sentence() -> None:
    """The list shows the first line of a file's comment alone."""
    told = [line for line in typed("templates").stdout.splitlines() if not line.startswith(" ")]
    assert [line for line in told if not line.endswith(".")] == []


@pytest.mark.parametrize(
    ("words", "begun", "offered"),
    [
        (["jobs"], "sh", ["show"]),
        (["jobs", "init"], "parameter-server", ["parameter-server", "parameter-server-host-network"]),
        (["jobs", "render", "job.yaml", "--to"], "tf", ["tfjob"]),
    ],
)
def test_a_shell_completes_commands_templates_and_targets(words: list[str], begun: str, offered: list[str]) -> None:
    """By click's own protocol, as the page says."""
    shell = BashComplete(cli, {}, "spillway", "_SPILLWAY_COMPLETE")
    assert [one.value for one in shell.get_completions(words, begun)] == offered
