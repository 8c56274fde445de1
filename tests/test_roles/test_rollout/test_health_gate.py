"""The health gate, the preflight and adoption, judged on what machines say."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from autoscaler.model.errors import BadInput
from roles.adopt import entry_of
from roles.checks import findings
from roles.checks.findings import Finding
from roles.checks.preflight import blocked, parse_ignored
from roles.deploys.pod_network import bridge
from roles.inventory.instance_settings import NOBODY
from roles.rollout.health_gate import SCRIPT, why_unhealthy
from roles.settings.machine import MachineSettings

MARK = "==spillway=="
KEYS = (
    "AAAAC3NzaC1lZDI1NTE5AAAAIGPKSUTyz1HwHReFVvD5obVsALAgJRNarH4TRpNePnAS",
    "AAAAC3NzaC1lZDI1NTE5AAAAIOkVFQMBm3KdfHdED88KlspCObjlgpANiOmFnnt0vaZm",
)
SOUND = """\
version = 2
[plugins."io.containerd.grpc.v1.cri".containerd]
default_runtime_name = "runc"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = true
"""


def said(containerd: str = SOUND, *, driver: str = "systemd", units: str = "active", more: str = "") -> str:
    """What a node's script prints."""
    kubelet = f'{MARK} kubelet\n{{"cgroupDriver": "{driver}"}}\n{MARK} kubelet-unit\n{units}\n'
    return f"{MARK} containerd\n{containerd}\n{MARK} units\nactive\n{kubelet}{more}"


def test_a_sound_node_passes() -> None:
    """And so does a machine that has none of it yet."""
    assert why_unhealthy(said()) == ""
    assert why_unhealthy("") == ""


def test_each_ill_is_named() -> None:
    """A runtime that a drop-in erased, a cgroup driver that differs, a kubelet that fails, GPUs that are gone."""
    erased = SOUND.replace("runtimes.runc", "runtimes.nvidia")
    assert "the runtime runc is not there" in why_unhealthy(said(erased))
    assert "SystemdCgroup = true" in why_unhealthy(said(driver="cgroupfs"))
    assert "the kubelet is failed" in why_unhealthy(said(units="failed"))
    assert "lists no GPU" in why_unhealthy(said(more=f"{MARK} nvidia\nFailed to initialize NVML\n"))
    assert "does not parse" in why_unhealthy(said("a = = 1"))
    assert "containerd cannot read its configuration" in why_unhealthy(said(""))


@pytest.mark.parametrize("kubelet", ["", "a: [", "- a list"])
def test_of_a_machine_in_no_cluster_containerd_need_serve_no_kubelet(kubelet: str) -> None:
    """Nothing is there that a kubelet would be configured by."""
    off = 'version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]'
    assert why_unhealthy(f"{MARK} containerd\n{off}\n{MARK} units\nactive\n{MARK} kubelet\n{kubelet}\n") == ""
    assert why_unhealthy(said(off)) != ""


def test_the_scripts_are_shell() -> None:
    """A syntax error would pass for silence."""
    for script in (SCRIPT, findings.script()):
        subprocess.run(["sh", "-n"], input=script, text=True, check=True)


def test_a_module_that_outlives_its_packages_is_asked_nothing(tmp_path: Path) -> None:
    """As on a machine that was bare before: its last good state has no nvidia-smi."""
    loaded = tmp_path / "version"
    loaded.write_text("NVRM version: ...", encoding="ascii")
    program = tmp_path / "nvidia-smi"
    script = SCRIPT.replace("/proc/driver/nvidia/version", str(loaded)).replace("PATH=", f"PATH={tmp_path}:")
    run = ["env", "-i", "sh"]
    assert "nvidia" not in subprocess.run(run, input=script, text=True, check=True, capture_output=True).stdout
    program.write_text("#!/bin/sh\necho GPU 0: one\n", encoding="ascii")
    program.chmod(0o755)
    told = subprocess.run(run, input=script, text=True, check=True, capture_output=True).stdout
    assert "GPU 0: one" in told


def test_no_program_answers_that_was_put_before_the_system_s(tmp_path: Path) -> None:
    """A false containerd in /usr/local/bin failed a machine's gate, and halted the fleet."""
    false = tmp_path / "containerd"
    false.write_text("#!/bin/sh\necho planted\n", encoding="ascii")
    false.chmod(0o755)
    run = ["env", f"PATH={tmp_path}:/usr/bin:/bin", "sh"]
    assert "planted" not in subprocess.run(run, input=SCRIPT, text=True, check=False, capture_output=True).stdout


def test_a_finding_has_what_was_found_and_a_remedy() -> None:
    """What prints nothing holds."""
    text = "==spillway-check== disk\n/var has 12 MiB free\n==spillway-check== root\n\n"
    (found,) = findings.findings("n0", text)
    assert (found.check, found.severity, found.found) == ("disk", "error", "/var has 12 MiB free")
    assert "apt-get clean" in found.remedy
    assert findings.clock_finding("n0", 3.0) == []
    assert findings.clock_finding("n0", -400.0)[0].found == "400 s behind this controller"
    assert findings.clock_finding("n0", 40.0)[0].severity == "warning"


def test_an_error_blocks_its_machine_unless_the_operator_answers_for_it() -> None:
    """Warnings do not, and silence is told elsewhere."""
    disk = Finding("n0", "disk", "error", "/ has 3 MiB free", "free some")
    found = [disk, replace(disk, host="n1", severity="warning"), findings.unreachable("n2", "no route")]
    assert blocked(found) == {
        "n0": "the preflight found an error: disk: / has 3 MiB free (free some; or --ignore disk)"
    }
    assert blocked(found, ignored=parse_ignored(["disk"])) == {}
    with pytest.raises(BadInput, match="'disks' is no check of the preflight; there are distribution, root"):
        parse_ignored(["disks"])


def test_a_machine_is_adopted_as_it_is() -> None:
    """Sizes, GPUs, and settings where they are not the defaults; the settings are ones that the roles take."""
    probes = {
        "name": "dgx-01.lab",
        "cpus": "128",
        "memory": "1031000",
        "disk": "900000",
        "gpus": "NVIDIA A100-SXM4-80GB, 81920\nNVIDIA A100-SXM4-80GB, 81920",
        "swap": "/dev/sda2 partition 1 0 -2",
        "chrony": "",
        "packages": "containerd 1.6.20~ds1-1+b1 ii \nrunc 1.1.5+ds1-1 hi \nkubelet 1.35.4-1.1 rc ",
        "containerd": '[plugins."io.containerd.grpc.v1.cri"]\nsandbox_image = "lab/pause:3.9"\n',
        "kubelet": "cgroupDriver: cgroupfs",
        "kubeconfig": "clusters: [{cluster: {server: https://10.0.0.1:6443}}]",
        "kubelet_file": "Kubernetes v1.35.4\n" + "a" * 64 + "  /usr/local/bin/kubelet\namd64",
        "authority": NOBODY,
        "network": json.dumps(bridge("10.244.7.0/24")),
        "passwords": "passwordauthentication no",
        "users": f"ada /bin/bash ssh-ed25519 {KEYS[0]} ada\nada /bin/bash ssh-ed25519 {KEYS[1]} ada@home\n"
        f"backup /usr/sbin/nologin ssh-ed25519 {KEYS[0]} pulls",
    }
    entry = entry_of(probes, address="10.20.0.11", ssh={"user": "root"})
    assert entry["name"] == "dgx-01"
    assert entry["gpus"] == {"product": "NVIDIA-A100-SXM4-80GB", "count": 2, "memory": "81920Mi"}
    settings = MachineSettings.model_validate(entry["settings"] | {"name": "dgx-01", "address": "10.20.0.11"})
    assert settings.container_runtime.package == "containerd"
    assert settings.container_runtime.cgroup_driver == "cgroupfs"
    assert settings.container_runtime.sandbox_image == "lab/pause:3.9"
    assert (settings.kernel.swap, settings.time.service, settings.ssh_passwords) == ("keep", "none", "refused")
    assert settings.pod_network.pods == "10.244.7.0/24"
    assert settings.versions == {"containerd": "1.6.20", "runc": "1.1.5"}
    assert [user.name for user in settings.users] == ["ada"]
    assert settings.users[0].keys == (f"ssh-ed25519 {KEYS[0]} ada", f"ssh-ed25519 {KEYS[1]} ada@home")
    assert settings.kubelet
    assert settings.kubelet.server == "https://10.0.0.1:6443"
    assert settings.kubelet.download
    assert settings.kubelet.download.url == "https://dl.k8s.io/release/v1.35.4/bin/linux/amd64/kubelet"
