"""Parameters of job files, the schema for editors, and the templates that ship."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from autoscaler.model.errors import BadInput
from images.cli import TEMPLATES
from images.job_files import params_of, parse_job, read_job, schema
from tests.test_images.test_jobs import EXAMPLES

FILES = sorted(TEMPLATES.glob("*.yaml"))
OPEN = """\
params:
  workers: {type: int, default: 2, help: how many}
  lr: {type: float, default: 0.01}
  image: {help: your image}
  mode: {choices: [sync, async], default: sync}
  fast: {type: bool, default: false}
name: mnist-${workers}
roles:
  worker:
    count: ${workers}
    cpus: 1
    memory: 1Gi
    image: ${image}
    args: ["--lr=${lr}", "${workers}", "$${HOME}", "--mode=${mode}", "--fast=${fast}"]
"""


def given_for(path: Path) -> dict[str, str]:
    """Something for each parameter that must be given."""
    params = params_of(path.read_text(), source=str(path))
    return {name: "team/image:1" for name, param in params.items() if param.default is None}


def test_parameters_are_filled_in_with_their_types() -> None:
    """A value of its own keeps the parameter's type; within text, and where text belongs, it is text."""
    job = parse_job(OPEN, {"workers": "8", "image": "a/b:1", "fast": "true"}, source="job.yaml")
    assert (job.name, job.roles["worker"].count) == ("mnist-8", "8")
    assert job.roles["worker"].args == ("--lr=0.01", "8", "${HOME}", "--mode=sync", "--fast=true")


@pytest.mark.parametrize(
    ("given", "change", "told"),
    [
        ({}, None, "job.yaml: params.image has no default (your image): give -p image=..."),
        ({"workres": "8"}, None, "-p workres: there is no such parameter; the parameters here are: workers, lr"),
        ({"workers": "many"}, None, "-p workers: 'many' is not a whole number, e.g. 8"),
        ({"lr": "fast"}, None, "-p lr: 'fast' is not a number, e.g. 0.01"),
        ({"fast": "yes"}, None, "-p fast: 'yes' is not true or false"),
        ({"mode": "both"}, None, "-p mode: 'both' is none of: sync, async"),
        ({"workers": "0"}, None, "job.yaml:10: roles.worker.count = 0: must be a number of tasks from 1 to 10000"),
        (
            {"lr": "1"},
            ("${lr}", "${rate}"),
            "roles.worker.args[0] = '--lr=${rate}': there is no parameter rate: declare it under params",
        ),
        ({}, ("default: 2", "default: two"), "job.yaml:2: params.workers: 'two' is not a whole number"),
        ({}, ("type: int", "type: integer"), "job.yaml:2: params.workers.type = 'integer': input should be 'str'"),
        ({}, ("help: how", "hepl: how"), "params.workers.hepl is not a key here; did you mean help?"),
        ({}, ("  lr:", "  LR:"), "params has the name 'LR': write lower-case letters"),
    ],
)
def test_a_mistake_is_told_with_file_key_and_remedy(
    given: dict[str, str], change: tuple[str, str] | None, told: str
) -> None:
    """Of a parameter as of any key."""
    with pytest.raises(BadInput) as refusal:
        parse_job(OPEN.replace(*change, 1) if change else OPEN, given | _image(given), source="job.yaml")
    assert told in str(refusal.value)


def _image(given: dict[str, str]) -> dict[str, str]:
    return {"image": "a/b:1"} if given else {}


def test_a_file_without_parameters_takes_none() -> None:
    """It says so."""
    with pytest.raises(BadInput, match="-p workers: there is no such parameter; this file has none"):
        read_job(EXAMPLES[0], {"workers": "2"})


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_a_task_of_a_template_takes_is_a_parameter(path: Path) -> None:
    """CPUs, memory and GPUs, of each role: nobody has to edit a file for a machine of another size."""
    roles = yaml.safe_load(path.read_text())["roles"]
    taken = [role[key] for role in roles.values() for key in ("cpus", "memory", "gpus") if key in role]
    assert taken
    assert all(str(one).startswith("${") for one in taken), taken
    params = params_of(path.read_text(), source=str(path))
    job = read_job(path, given_for(path) | {name: "3" for name in params if name.endswith("cpus")})
    assert {role.cpus for role in job.roles.values()} == {"3"}


@pytest.mark.parametrize("path", [*FILES, *EXAMPLES], ids=lambda path: path.stem)
def test_what_ships_is_good_and_names_its_schema(path: Path) -> None:
    """The schema is there, is the present one, and takes the file; an editor finds it by the first line."""
    assert read_job(path, given_for(path))
    first = path.read_text().splitlines()[0]
    named = path.parent / first.removeprefix("# yaml-language-server: $schema=")
    assert json.loads(named.read_text()) == schema(), (
        "make it anew: spillway jobs schema > images/templates/job.schema.json"
    )
    jsonschema.Draft202012Validator(schema()).validate(yaml.safe_load(path.read_text()))


@pytest.mark.parametrize(
    ("key", "value"),
    [("name", 3), ("gang", "maybe"), ("roles", {"worker": {"cpus": 1}}), ("rolse", {}), ("network", "both")],
)
def test_the_schema_refuses_what_the_program_would(key: str, value: Any) -> None:
    """An editor underlines it."""
    good: dict[str, Any] = yaml.safe_load(EXAMPLES[0].read_text())
    assert not list(jsonschema.Draft202012Validator(schema()).iter_errors(good))
    assert list(jsonschema.Draft202012Validator(schema()).iter_errors(good | {key: value}))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_parameter_has_help_and_is_used(path: Path) -> None:
    """What cannot be seen to do anything is left out."""
    text = path.read_text()
    for name, param in params_of(text, source=str(path)).items():
        assert param.help, name
        assert f"${{{name}}}" in text, name
