"""The wheel: what users install holds every file that the commands read, and the commands run from it."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests import ROOT

pytestmark = pytest.mark.live
ROOMS = ("autoscaler", "images", "roles", "stacks")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of what git tracks, so that nothing else slips in."""
    place = tmp_path_factory.mktemp("wheel")
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, tracked.split("\0")):
        target = place / "source" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / name).read_bytes())
    build = [sys.executable, "-m", "uv", "build", "--quiet", "--wheel", "--out-dir", str(place), str(place / "source")]
    subprocess.run(build, check=True, timeout=300)
    (found,) = place.glob("spillway-*.whl")
    return found


def test_every_file_of_the_rooms_is_in_the_wheel(wheel: Path) -> None:
    """Policies, templates, manifests: a wheel of Python files only would fail at the first command."""
    tracked = subprocess.run(["git", "ls-files", *ROOMS], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    assert set(tracked.splitlines()) <= packed
    assert not [name for name in packed if name.startswith("tests/")]


def test_the_command_runs_from_the_wheel(wheel: Path, tmp_path: Path) -> None:
    """In an environment of its own, away from the checkout: help, a job rendered, nodes planned."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    install = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--no-deps", "--python", str(python)]
    subprocess.run([*install, str(wheel)], check=True)
    site = next((tmp_path / "venv" / "lib").glob("python3*/site-packages"))
    # Its dependencies, without the checkout that stands beside them: a path file in such a folder is not followed.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    (tmp_path / "pods.csv").write_text("name,cpu_milli,memory_mib,num_gpu\na,1000,1024,1\n", encoding="utf-8")
    (tmp_path / "catalog.csv").write_text(
        "instance_type,allocatable_cpu_milli,allocatable_memory_mib,gpu_count,usd_per_hour\ng4,3900,15000,1,0.5\n",
        encoding="utf-8",
    )

    def spillway(*words: str) -> str:
        command = [str(tmp_path / "venv" / "bin" / "spillway"), *words]
        done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = subprocess.run(
        [python, "-c", "import autoscaler, sys; sys.stdout.write(autoscaler.__file__)"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert Path(where).is_relative_to(tmp_path)
    for room in ("autoscale", "jobs", "gpus", "local"):
        assert room in spillway("--help")
        assert "Usage" in spillway(room, "--help")
    example = site / "images" / "examples" / "small.yaml"
    assert "kind: Job" in spillway("jobs", "render", str(example))
    assert '"usd_per_hour": 0.5' in spillway(
        "autoscale", "plan", "--pods", "pods.csv", "--catalog", "catalog.csv", "--json"
    )
