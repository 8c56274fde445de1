"""What is generated from the policy's schema: no key without a mark, a meaning and a default; nothing stale."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import jsonschema
import pytest
import yaml
from click.testing import CliRunner
from pydantic import Field

import spillway
from autoscaler import policies
from autoscaler.config.document_keys import Key, keys_of, live
from autoscaler.config.documents import Document
from autoscaler.config.policy import Policy
from autoscaler.config.policy_page import json_schema, with_table

FOLDER = Path(str(policies.__path__[0]))
STALE = "is stale: write it anew from `spillway policy schema` (and --markdown)"
INFRASTRUCTURE = {
    *("cluster", "region", "groups", "scale_up.reserve"),
    *(f"groups[].{name}" for name in ("name", "formerly", "instance_type", "instance_types", "zones", "capacity_type")),
    *(f"groups[].{name}" for name in ("min", "labels", "taints", "resources", "disk", "efa", "placement")),
    "groups[].capacity_reservation",
    *(f"groups[].taints[].{name}" for name in ("key", "value", "effect")),
}


def test_every_key_says_whether_an_edit_is_live_and_what_it_means() -> None:
    """And what pulumi builds from is infrastructure, everything else live."""
    keys = list(keys_of(Policy))
    assert not [key.path for key in keys if key.effect is None or not key.meaning or not key.default]
    assert {key.path for key in keys if key.effect == "infrastructure"} == INFRASTRUCTURE


def test_a_key_without_a_mark_is_found() -> None:
    """Wherever it stands; below a marked key it is as that one."""

    class Inner(Document):
        """Within."""

        deep: int = Field(default=1, description="d")

    class Outer(Document):
        """Around."""

        bare: int
        marked: Annotated[Inner, live("nodes")] = Inner()
        inner: tuple[Inner, ...] = ()

    found = {key.path: key for key in keys_of(Outer)}
    assert found["bare"] == Key("bare", None, "", "must be given", "")
    assert found["marked.deep"].effect == "live"
    assert found["inner[].deep"].effect is None


def test_the_page_and_the_schema_beside_the_policies_are_those_of_the_code() -> None:
    """Both are generated."""
    page = FOLDER / "README.md"
    assert page.read_text(encoding="utf-8") == with_table(page.read_text(encoding="utf-8")), f"{page} {STALE}"
    schema = FOLDER / "schema.json"
    assert schema.read_text(encoding="utf-8") == json_schema(), f"{schema} {STALE}"


@pytest.mark.parametrize("name", ["lab.yaml", "local.yaml"])
def test_an_editor_finds_the_schema_and_accepts_the_shipped_policies(name: str) -> None:
    """By their first line."""
    text = (FOLDER / name).read_text(encoding="utf-8")
    assert text.splitlines()[0] == "# yaml-language-server: $schema=schema.json"
    jsonschema.validate(yaml.safe_load(text), json.loads(json_schema()))


@pytest.mark.parametrize(
    "change",
    [
        {"limits": {"usd_per_hour": 0}},
        {"limits": {"usd": 1}},
        {"scale_down": {"idle_after": "soon"}},
        {"cluster": "Lab_1"},
        {"groups": [{"name": "a", "zones": ["us-east-1a"], "max": -1}]},
    ],
)
def test_an_editor_underlines_what_the_reader_refuses(change: dict[str, object]) -> None:
    """As far as a schema can say it; a default is not underlined."""
    schema = json.loads(json_schema())
    good = {"cluster": "lab", "groups": [], "scale_down": {"idle_after": "10m"}}
    jsonschema.validate(good | {"groups": [{"name": "a", "zones": ["z"], "max": 1, "resources": {"cpu": 4}}]}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(good | change, schema)
    assert schema["$defs"]["ScaleDown"]["properties"]["idle_after"]["default"] == "10m"
    assert schema["$defs"]["GroupEntry"]["properties"]["max"]["x-takes-effect"] == "live"


def test_the_command_prints_both() -> None:
    """JSON Schema, or the table."""
    assert CliRunner().invoke(spillway.cli, ["policy", "schema"]).output == json_schema()
    table = CliRunner().invoke(spillway.cli, ["policy", "schema", "--markdown"]).output
    assert "| `limits.gpus` | live | GPUs | none | EC2 GPUs at most |\n" in table
