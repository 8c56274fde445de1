"""The real containerd and Docker of three Debian releases: they read what the roles write, and all of it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from roles.deploys.container_runtime import containerd_config
from roles.deploys.containerd_check import unsound
from roles.deploys.docker import VALIDATE, docker_config
from roles.settings.cluster import ContainerRuntime
from tests.live.container_engines import container_engines

pytestmark = pytest.mark.live


@dataclass(frozen=True, slots=True)
class Engines:
    """Programs of one release. Nothing of it runs as a service: they only read files."""

    folder: Path
    containerd: str
    """Its version."""

    def says(self, config: Mapping[str, Any], file: Path, *words: str) -> dict[str, Any]:
        """What containerd makes of a configuration."""
        file.write_text(tomli_w.dumps(config), encoding="utf-8")
        command = [str(self.folder / "containerd"), f"--config={file}", "config", *words]
        return tomllib.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.fixture(scope="module", params=["bookworm", "trixie", "forky"])
def engines(request: pytest.FixtureRequest) -> Engines:
    """Unpacked from Debian's packages: containerd 1.6, 1.7 and 2.1, Docker 20.10, 26 and 28 as this is written."""
    folder = container_engines(request.param)
    asked = [str(folder / "containerd"), "--version"]
    said = subprocess.run(asked, capture_output=True, text=True, check=False)
    found = re.search(r"\b(\d+\.\d+\.\d+)", said.stdout)
    if not found:
        pytest.skip(f"the containerd of Debian {request.param} does not run here: {said.stderr[-200:]}")
    return Engines(folder=folder, containerd=found[1])


@pytest.mark.parametrize("driver", ["systemd", "cgroupfs"])
def test_containerd_reads_every_key_that_the_role_writes(engines: Engines, tmp_path: Path, driver: str) -> None:
    """None is passed over as unknown, both runtimes are there, and their cgroup driver is the kubelet's."""
    ours = containerd_config(ContainerRuntime(cgroup_driver=driver), version=engines.containerd, gpus=True)
    dump = engines.says(ours, tmp_path / "config.toml", "dump")
    assert [*_missing(ours, dump)] == []
    assert unsound(dump, nvidia=True, systemd_cgroup=driver == "systemd") == []
    other = unsound(dump, nvidia=True, systemd_cgroup=driver != "systemd")
    assert len(other) == 2, "the check sees a driver that is not the kubelet's, in each runtime"


def test_an_older_file_is_sound_after_containerd_has_migrated_it(engines: Engines, tmp_path: Path) -> None:
    """The machine's containerd may be newer than the format that it finds, until the role has written its own."""
    if int(engines.containerd.partition(".")[0]) < 2:
        pytest.skip("containerd 2 is the first that migrates")
    older = containerd_config(ContainerRuntime(cgroup_driver="systemd"), version="1.7.28", gpus=True)
    migrated = engines.says(older, tmp_path / "config.toml", "migrate")
    assert migrated["version"] >= 3
    assert unsound(migrated, nvidia=True, systemd_cgroup=True) == []


@pytest.mark.parametrize("systemd", [True, False])
def test_docker_takes_what_the_role_writes(
    engines: Engines,
    tmp_path: Path,
    systemd: bool,  # noqa: FBT001 - a table
) -> None:
    """By the command with which the role tries it; where Docker has such a command, a key that it lacks is refused."""
    ours = docker_config(systemd_cgroup=systemd)
    assert _tried(engines, ours, tmp_path / "daemon.json")
    said = subprocess.run(
        [str(engines.folder / "dockerd"), "--help"], capture_output=True, text=True, check=True
    ).stdout
    assert _tried(engines, ours | {"log-drivers": "none"}, tmp_path / "daemon.json") is ("--validate" not in said)


def _tried(engines: Engines, config: Mapping[str, Any], file: Path) -> bool:
    file.write_text(json.dumps(config), encoding="utf-8")
    path = f"{engines.folder}:{os.environ['PATH']}"
    shell = ["sh", "-c", VALIDATE.format(path=file)]
    return subprocess.run(shell, env=os.environ | {"PATH": path}, capture_output=True, check=False).returncode == 0


def _missing(ours: Mapping[str, Any], theirs: Mapping[str, Any], at: str = "") -> list[str]:
    """Keys of ours that are not there, or say something else."""
    found = []
    for key, value in ours.items():
        place = f"{at}.{key}"
        if isinstance(value, dict) and isinstance(theirs.get(key), dict):
            found += _missing(value, theirs[key], place)
        elif theirs.get(key) != value:
            found.append(f"{place} = {theirs.get(key)!r}")
    return found
