"""The house: what lies where, and what a reader is promised."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from stacks.local.ground.control_plane import BINARIES
from stacks.local.ground.lifecycle import ENGINE_BINARIES
from stacks.local.toolchain.tools import TOOLS
from tests import NIGHTLY, ROOT
from tests.live.__main__ import tools_for
from tests.mutants import DECIDE, sites_of

ROOMS = ("autoscaler", "images", "roles", "stacks")
FOLDERS = {*ROOMS, "tests"}


def tracked() -> list[str]:
    """Every path under version control."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for path in listed.split("\0") if path and (ROOT / path).is_file()]


def modules() -> list[Path]:
    """Every Python module of the product."""
    return sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))


def test_the_top_level_has_the_agreed_folders_and_no_others() -> None:
    """A stranger finds four rooms, and the tests."""
    assert {path.split("/")[0] for path in tracked() if "/" in path and not path.startswith(".")} <= FOLDERS


def test_mutants_are_drawn_from_every_module_that_is_named() -> None:
    """A module that has moved would end the run, or leave its place empty."""
    for name in DECIDE:
        modules = (ROOT / name).rglob("*.py") if (ROOT / name).is_dir() else [ROOT / name]
        assert any(sites_of(str(one), one.read_text("utf-8")) for one in modules), name


@pytest.mark.parametrize("ci", ["", "true"], ids=["by hand", "in CI"])
def test_a_nightly_run_draws_new_examples_and_more_of_them(ci: str) -> None:
    """Of every property that has a number of its own; an ordinary run draws the same ones each time."""
    program = (
        "from tests import conftest, examples; from hypothesis import settings; "
        "print(settings.default.derandomize, settings.default.database is None, examples(7))"
    )
    said = {}
    for profile in ("the same each time", NIGHTLY):
        with_it = {key: value for key, value in os.environ.items() if key != "CI"}
        with_it |= {"HYPOTHESIS_PROFILE": profile} | ({"CI": ci} if ci else {})
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, env=with_it, capture_output=True, text=True, check=True
        )
        said[profile] = done.stdout.split()
    assert said == {"the same each time": ["True", "True", "7"], NIGHTLY: ["False", "False", "140"]}
    tests = [path for path in (ROOT / "tests").rglob("test_*.py") if path != Path(__file__)]
    assert [path for path in tests if re.search(r"max_examples=\d", path.read_text("utf-8"))] == []


def test_no_room_is_a_drawer_for_everything() -> None:
    """A module is named for what it does."""
    banned = {"utils", "helpers", "common", "manager", "base", "misc"}
    assert [path for path in modules() if path.stem in banned] == []


def test_every_module_says_what_it_is() -> None:
    """Its first statement is a docstring."""
    silent = [p for p in modules() if not ast.get_docstring(ast.parse(p.read_text(encoding="utf-8")))]
    assert silent == []


def test_the_lock_names_no_registry_and_pins_by_hash() -> None:
    """Each package has a version and hashes; where it is fetched from is the user's setting."""
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    assert "://" not in text
    assert text.count("==") <= text.count("--hash=sha256:")


def test_help_lists_every_command_without_importing_a_room() -> None:
    """`spillway --help` must be instant."""
    program = (
        "import sys, spillway; from click.testing import CliRunner;"
        "done = CliRunner().invoke(spillway.cli, ['--help']); print(done.output);"
        "print([m for m in sys.modules if m.split('.')[0] in ('boto3', 'kubernetes', 'pulumi', 'pydantic', 'rich')])"
    )
    said = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for command in ("autoscale", "demo", "gpus", "jobs", "local"):
        assert f"\n  {command} " in said
    assert said.strip().endswith("[]")


@pytest.mark.parametrize("path", [path for path in tracked() if path.endswith((".yaml", ".yml"))])
def test_every_yaml_file_is_yaml(path: str) -> None:
    """Tools of others read them too."""
    list(yaml.compose_all((ROOT / path).read_text(encoding="utf-8")))


def test_everything_that_the_tests_build_is_built_before_they_start() -> None:
    """In one go and in sight; without root, or without a C compiler, only what such a user can use."""
    everything = tools_for(is_root=True, compiles_c=True)
    assert everything == list(TOOLS)
    assert {"kubelet", "kubeadm"} & set(tools_for(is_root=False, compiles_c=True)) == set()
    assert set(everything) - set(tools_for(is_root=True, compiles_c=False)) == {"nvidia-ctk"}
    assert {*BINARIES, *ENGINE_BINARIES} <= set(tools_for(is_root=False, compiles_c=False))


def test_every_fact_about_aws_names_a_test_that_there_is() -> None:
    """In the table of what the stand-in holds to be true."""
    facts = (ROOT / "tests" / "fakes" / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(test_\w+)`", facts))
    there = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert len(named) > 15
    assert named <= there
