"""What the README of `stacks/` promises, held to the code."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, get_args

import pytest
import yaml
from pydantic import BaseModel

from stacks.guardrails.__main__ import CEILING
from stacks.settings.stack import Settings, read_settings
from tests import ROOT

README = (ROOT / "stacks" / "README.md").read_text(encoding="utf-8")


def models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Every model in an annotation: those of an optional section, or of a choice by kind."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from models(inner)


def keys(model: type[BaseModel], above: str = "") -> Iterator[str]:
    """Every key that a stack file may have, in dots."""
    for name, field in model.model_fields.items():
        sections = list(models(field.annotation))
        for section in sections:
            yield from keys(section, f"{above}{name}.")
        if not sections:
            yield f"{above}{name}"


def test_every_key_of_a_stack_file_is_told() -> None:
    """A key that nobody hears of is not there."""
    assert [key for key in sorted(set(keys(Settings))) if f"`{key}`" not in README] == []


def test_no_key_is_told_that_there_is_not() -> None:
    """A reader who writes it is refused."""
    known = set(keys(Settings))
    told = {
        key
        for line in README.splitlines()
        if line.startswith("| `")
        for key in re.findall(r"`([\w.]+)`", line.split("|")[1])
    }
    rules = {"no-world-open-port"}
    assert {key for key in told if "." in key and key not in known} - rules == set()


@pytest.mark.parametrize("block", re.findall(r"```yaml\n(config:\n.*?)```", README, re.DOTALL))
def test_an_example_of_a_stack_file_is_one(block: str) -> None:
    """As it stands, to be copied."""
    configuration = yaml.safe_load(block)["config"]
    assert read_settings(configuration, stack="example").policy_path.is_relative_to(ROOT)


def test_the_ceiling_is_the_one_that_is_told() -> None:
    """And the packs's file is JSON."""
    assert f"{CEILING:g} $/h" in README
    [example] = re.findall(r"```json\n(.*?)```", README, re.DOTALL)
    assert set(json.loads(example)) == {"ceiling-of-group-maxima", "required-tags"}


def test_the_engine_finds_the_python_of_the_on_prem_provider() -> None:
    """It takes none but a virtual environment, and looks for that from the plugin's own folder."""
    folder = ROOT / "stacks" / "on_prem_provider"
    options = yaml.safe_load((folder / "PulumiPlugin.yaml").read_text(encoding="utf-8"))["runtime"]["options"]
    [made] = re.findall(r"^    python3 -m venv (\w+)", README, re.MULTILINE)
    assert (folder / options["virtualenv"]).resolve() == ROOT / made
    project = yaml.safe_load((ROOT / "Pulumi.yaml").read_text(encoding="utf-8"))
    assert ROOT / project["plugins"]["providers"][0]["path"] == folder
