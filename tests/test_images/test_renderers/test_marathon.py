"""Marathon groups against the types that Marathon publishes of its API."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from jsonschema import Draft202012Validator

from images.job_files import read_job
from images.jobs import Job
from images.renderers import marathon
from tests import examples
from tests.fakes.marathon import GROUP, faults
from tests.test_images.test_job_files import FILES, given_for
from tests.test_images.test_renderers.test_all import REFUSED, jobs


def test_the_schema_is_one() -> None:
    """By its own."""
    Draft202012Validator.check_schema(GROUP)


@pytest.mark.parametrize(
    "path", [path for path in FILES if (path.stem, "marathon") not in REFUSED], ids=lambda p: p.stem
)
def test_marathon_takes_the_group_of_every_template(path: Path) -> None:
    """As it is published."""
    (group,) = marathon.render(read_job(path, given_for(path))).documents
    assert faults(group) == []


@given(one=jobs)
@settings(max_examples=examples(20), deadline=None)
def test_marathon_takes_the_group_of_any_job(one: Job) -> None:
    """Whatever its arguments hold."""
    (group,) = marathon.render(one).documents
    assert faults(group) == []


def _longer(app: Any) -> None:
    app["portDefinitions"][0]["port"] = 65_536


@pytest.mark.parametrize(
    "break_it",
    [
        lambda app: app.update(restart="never"),
        lambda app: app.update(cmd="x", args=[]),
        lambda app: app.update(gpus=0.5),
        lambda app: app.update(env={"A": 1}),
        lambda app: app.update(id="/mnist/Worker_0"),
        lambda app: app["container"].update(type="DOCKER") or app.update(gpus=1),
        lambda app: app.update(constraints=[["rack", "NEAR", "b"]]),
        _longer,
    ],
)
def test_what_marathon_refuses_is_seen(break_it: Callable[[Any], None]) -> None:
    """Each of these would come back from its API with status 422."""
    path = next(path for path in FILES if path.stem == "parameter-server")
    group = copy.deepcopy(marathon.render(read_job(path, given_for(path))).documents[0])
    break_it(group["apps"][0])
    assert faults(group)
