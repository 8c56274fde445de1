"""The folder that a stack's paths start at, and the code that its project names."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pulumi.runtime
import pytest

from autoscaler.model.errors import BadInput
from stacks.project import CODE, check_code, find_project, project_folder
from stacks.settings.stack import read_settings
from tests import ROOT

ROOMS = ("autoscaler", "stacks")


def project(folder: Path, text: str) -> Path:
    """A folder with such a `Pulumi.yaml`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "Pulumi.yaml").write_text(f"name: spillway\nruntime: python\n{text}\n", encoding="utf-8")
    return folder


def copied(folder: Path) -> Path:
    """Another checkout, of the rooms that a stack's program imports."""
    for room in ROOMS:
        shutil.copytree(ROOT / room, folder / room, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "Pulumi.yaml", folder)
    return folder


def test_paths_start_where_the_engine_says_that_the_project_is(tmp_path: Path) -> None:
    """Not where the code lies."""
    pulumi.runtime.reset_options(root_directory=str(tmp_path))
    try:
        settings = read_settings(
            {"spillway:policy": "lab/policy.yaml", "spillway:inventory": "machines.yaml"}, stack="lab"
        )
        assert project_folder() == tmp_path
        assert settings.policy_path == tmp_path / "lab/policy.yaml"
        assert settings.inventory_path == tmp_path / "machines.yaml"
    finally:
        pulumi.runtime.reset_options()


def test_an_engine_that_does_not_say_has_started_the_program_below_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nearest `Pulumi.yaml`; without one it is refused."""
    inner = project(tmp_path / "outer" / "inner", "")
    project(tmp_path / "outer", "")
    (inner / "program").mkdir()
    monkeypatch.chdir(inner / "program")
    assert project_folder() == inner
    (tmp_path / "nowhere").mkdir()
    monkeypatch.chdir(tmp_path / "nowhere")
    assert find_project(Path.cwd()) is None
    with pytest.raises(BadInput, match=r"no Pulumi\.yaml is here or in a folder above"):
        project_folder()


def test_the_checkout_names_its_own_code() -> None:
    """So does a project elsewhere whose `main` leads to it."""
    check_code(ROOT)
    assert ROOT / "stacks" == CODE


@pytest.mark.parametrize("main", ["{code}/", "{code}/__main__.py", "program"])
def test_a_project_of_ones_own_names_the_code_that_runs(tmp_path: Path, main: str) -> None:
    """By its folder, by its file, or by a link to it."""
    (tmp_path / "program").mkdir()
    (tmp_path / "program" / "__main__.py").symlink_to(CODE / "__main__.py")
    check_code(project(tmp_path, f"main: {main.format(code=CODE)}"))


def test_code_of_another_checkout_is_refused_with_both_and_the_remedy(tmp_path: Path) -> None:
    """Which code, which project, and what to do."""
    other = copied(tmp_path / "other")
    with pytest.raises(BadInput) as refused:
        check_code(other)
    said = str(refused.value)
    assert said.startswith(f"{other}/Pulumi.yaml: main names the code in {other}/stacks, ")
    assert f"runs that in {CODE}, " in said
    assert "runtime.options.virtualenv" in said
    assert f"`pip install --no-deps -e {other}`" in said


def test_an_installed_wheel_is_not_the_checkouts_code(tmp_path: Path) -> None:
    """Refused in the same words, and taken where the project names it."""
    installed = tmp_path / "lib" / "site-packages" / "stacks"
    with pytest.raises(BadInput, match=f"runs that in {installed}"):
        check_code(ROOT, running=installed)
    check_code(project(tmp_path, "main: lib/site-packages/stacks"), running=installed)


def test_a_provider_from_another_checkout_is_refused(tmp_path: Path) -> None:
    """It is a process of its own, started from the path in `Pulumi.yaml`."""
    plugin = "plugins: {providers: [{name: spillway-onprem, path: other/stacks/on_prem_provider}]}"
    with pytest.raises(BadInput, match=rf"plugins.providers.path names the code in {tmp_path}/other/stacks"):
        check_code(project(tmp_path, f"main: {CODE}/\n{plugin}"))


def test_another_program_is_refused_by_what_works_on_this_ones_state(tmp_path: Path) -> None:
    """`spillway recover` in a project whose `main` is no code of this package."""
    with pytest.raises(BadInput, match=r"main names the code in .*/mine, .*name the code that runs there"):
        check_code(project(tmp_path, "main: mine/"))


@pytest.mark.parametrize("text", ["plugins: [", "plugins: {providers: [{}]}", "plugins: {providers: 1}"])
def test_a_project_file_that_is_none_is_told(tmp_path: Path, text: str) -> None:
    """With its path."""
    with pytest.raises(BadInput, match=r"Pulumi\.yaml: cannot be read as a project"):
        check_code(project(tmp_path, text))


@pytest.mark.parametrize("part", ["guardrails", "on_prem_provider"])
def test_a_process_started_from_a_path_runs_the_code_of_that_path(tmp_path: Path, part: str) -> None:
    """The policy pack and the provider of another checkout, with the Python of an environment that has this one."""
    folder = copied(tmp_path / "other") / "stacks" / part
    run = f"import runpy, sys; runpy.run_path({str(folder)!r}); import stacks; sys.stdout.write(stacks.__file__)"
    done = subprocess.run([sys.executable, "-c", run], cwd=folder, check=True, capture_output=True, text=True)
    assert Path(done.stdout) == tmp_path / "other" / "stacks" / "__init__.py"
