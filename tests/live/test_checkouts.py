"""Two checkouts and one environment, through the real engine: what is planned is of the project, or nothing is."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from stacks.local.toolchain.pulumi_engine import EngineSettings, environment, prepare, pulumi_destroy, pulumi_up
from stacks.project import CODE
from tests.live.engine_deaths import QUIET
from tests.live.stacks import GROUPS, calls_so_far, settings_for

pytestmark = pytest.mark.live

ROOT = CODE.parent
POLICY = "autoscaler/policies/local.yaml"


@pytest.fixture
def settings(aws_url: str, engine: dict[str, Path], tmp_path: Path) -> EngineSettings:
    """An engine with a project of the ground's own."""
    made = settings_for(tmp_path, aws_url=aws_url, tools=engine, cluster="own", groups=GROUPS)
    prepare(made)
    return made


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A second checkout, whose policy of the same name is of another cluster."""
    folder = tmp_path / "other"
    for room in ("autoscaler", "stacks"):
        shutil.copytree(ROOT / room, folder / room, ignore=shutil.ignore_patterns("__pycache__"))
    project = yaml.safe_load((ROOT / "Pulumi.yaml").read_text(encoding="utf-8"))
    project["plugins"] = {}  # the language host that the tests build starts none
    (folder / "Pulumi.yaml").write_text(yaml.safe_dump(project), encoding="utf-8")
    text = (ROOT / POLICY).read_text(encoding="utf-8")
    (folder / POLICY).write_text(text.replace("cluster: local", "cluster: elsewhere"), encoding="utf-8")
    return folder


def pulumi(settings: EngineSettings, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The engine in that folder, with the environment that has this checkout installed."""
    return subprocess.run(
        [str(settings.tools["pulumi"]), *arguments, *QUIET],
        cwd=folder,
        env=environment(settings),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_checkout_that_is_not_installed_is_refused_before_anything_is_made(
    settings: EngineSettings, other: Path
) -> None:
    """Else its stack would be planned by the policy, and by the code, of the one that is."""
    stack = yaml.safe_load((ROOT / "stacks/config/Pulumi.local.yaml").read_text(encoding="utf-8"))
    stack["config"] = {"spillway:policy": POLICY, "spillway:nodes": {"ami": "ami-12c6146b"}}
    assert pulumi(settings, other, "stack", "init", "two").returncode == 0
    kept = yaml.safe_load((other / "stacks/config/Pulumi.two.yaml").read_text(encoding="utf-8"))
    (other / "stacks/config/Pulumi.two.yaml").write_text(yaml.safe_dump({**kept, **stack}), encoding="utf-8")
    before = calls_so_far(settings.aws_url)
    for folder in (other, other / "stacks" / "config"):
        for verb in (["preview"], ["up", "--yes", "--skip-preview"]):
            done = pulumi(settings, folder, *verb, "--stack", "two")
            said = done.stdout + done.stderr
            assert done.returncode, said
            assert f"{other}/Pulumi.yaml: main names the code in {other}/stacks, and this Python" in said
            assert f"runs that in {CODE}" in said
            assert "Traceback" not in said
    assert calls_so_far(settings.aws_url) == before


def test_paths_start_at_the_folder_of_a_project_of_ones_own(settings: EngineSettings) -> None:
    """Not at that of the code."""
    own = settings.directory / "project" / "policies" / "own.yaml"
    own.parent.mkdir()
    shutil.copy(settings.policy, own)
    there = replace(settings, overrides={"spillway:policy": "policies/own.yaml"})
    assert pulumi_up(there).cluster == "own"
    pulumi_destroy(there)
