"""The real `nvidia-ctk` as an oracle: what the roles write into the runtimes' configurations is what it would add."""

from __future__ import annotations

import json
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from roles.deploys.container_runtime import containerd_config
from roles.deploys.containerd_check import CRI
from roles.deploys.docker import docker_config
from roles.settings.cluster import ContainerRuntime
from stacks.local.toolchain.tools import ensure_tools

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not shutil.which("gcc"), reason="building nvidia-ctk needs a C compiler (gcc)"),
]


@pytest.fixture(scope="module")
def ctk() -> Path:
    """The program, built from its Go module."""
    return ensure_tools(["nvidia-ctk"], progress=print)["nvidia-ctk"]


def configured(ctk: Path, config: Path, *words: str) -> str:
    """What it makes of a configuration file, without writing it."""
    command = [str(ctk), "runtime", "configure", f"--config={config}", "--cdi.enabled", "--dry-run", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("systemd", [True, False])
def test_docker_gets_what_nvidia_ctk_would_add_and_nothing_is_left_to_add(
    ctk: Path,
    tmp_path: Path,
    systemd: bool,  # noqa: FBT001 - a table
) -> None:
    """Run over our file, it changes nothing; run over an empty one, it adds what ours has.

    It is told where the runtime is: without a whole path dockerd takes the first one that its PATH has.
    """
    words = ("--runtime=docker", "--nvidia-runtime-path=/usr/bin/nvidia-container-runtime")
    ours = docker_config(systemd_cgroup=systemd)
    file = tmp_path / "daemon.json"
    file.write_text(json.dumps(ours), encoding="utf-8")
    assert json.loads(configured(ctk, file, *words)) == ours
    file.write_text("{}", encoding="utf-8")
    added = json.loads(configured(ctk, file, *words))
    assert added.items() <= ours.items()


@pytest.mark.parametrize(("version", "plugin"), [("1.7.28", CRI[2]), ("2.1.9", CRI[3])])
def test_containerd_gets_the_runtime_that_nvidia_ctk_would_add(
    ctk: Path, tmp_path: Path, version: str, plugin: str
) -> None:
    """Type, program and cgroup driver; in our case in the main file, where runc stays beside it."""
    config = containerd_config(ContainerRuntime(cgroup_driver="cgroupfs"), version=version, gpus=True)
    file = tmp_path / "config.toml"
    file.write_text(f"version = {config['version']}\n", encoding="utf-8")
    words = ("--runtime=containerd", "--config-source=file", f"--drop-in-config={tmp_path / 'drop-in.toml'}")
    said = tomllib.loads(configured(ctk, file, *words).partition("---")[0] or "")
    theirs = said["plugins"][plugin]["containerd"]["runtimes"]["nvidia"]
    ours = config["plugins"][plugin]["containerd"]["runtimes"]
    assert ours["nvidia"]["runtime_type"] == theirs["runtime_type"]
    assert ours["nvidia"]["options"]["BinaryName"] == theirs["options"]["BinaryName"]
    assert "runc" in ours
