"""What a machine believes, broken by hand: each is found by its own operation, and mended or refused."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import Any, Final

import pytest
import yaml

from roles.facts.gpu import CDI
from roles.inventory.instance_settings import NOBODY
from roles.operations.nodes import KUBECONFIG
from roles.operations.trust import kubeconfig
from tests.test_roles.sandbox import Sandbox

SERVER: Final = "https://192.0.2.1:6443"
NVIDIAS: Final = """\
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- name: "0"
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
    - path: /dev/dri/card0
containerEdits:
  hooks:
  - hookName: createContainer
    path: /usr/bin/nvidia-cdi-hook
  mounts:
  - containerPath: /usr/lib/x86_64-linux-gnu/libcuda.so.580.126.09
    hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.580.126.09
  - containerPath: /usr/share/glvnd/egl_vendor.d/10_nvidia.json
    hostPath: /usr/share/glvnd/egl_vendor.d/10_nvidia.json
  - containerPath: /usr/lib/x86_64-linux-gnu/libnvidia-egl-gbm.so.1.1.2
    hostPath: /usr/lib/x86_64-linux-gnu/libnvidia-egl-gbm.so.1.1.2
"""
"""Among what a real one has."""
HOSTS: Final = "/etc/containerd/certs.d/registry.lab/hosts.toml"


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """One for all tests here. Its stand-in of systemctl makes the specification anew."""
    with Sandbox(tmp_path_factory.mktemp("sandbox")) as made:
        made.plant(
            f"mkdir -p /var/run/cdi /root; printf %s {shlex.quote(NVIDIAS)} > /root/cdi\n"
            f"printf '#!/bin/sh\\n[ \"$1\" != start ] || cp /root/cdi {CDI}\\n' > /usr/bin/systemctl\n"
            "chmod 755 /usr/bin/systemctl\n"
            "mkdir -p /usr/lib/x86_64-linux-gnu /usr/share/glvnd/egl_vendor.d; cd /usr/lib/x86_64-linux-gnu\n"
            "touch libcuda.so.580.126.09 libnvidia-egl-gbm.so.1.1.2 /usr/share/glvnd/egl_vendor.d/10_nvidia.json"
        )
        yield made


def found(sandbox: Sandbox, inject: str, *watch: str) -> dict[str, Any]:
    """What the roles find after this on a machine where all was right, and what they leave."""
    right = yaml.safe_dump(kubeconfig(server=SERVER, authority=NOBODY))
    plant = (
        f"rm -rf /etc/containerd/certs.d /etc/apt/apt.conf.d/99* {HOSTS}; mkdir -p {HOSTS.rpartition('/')[0]}\n"
        f"cp /root/cdi {CDI}; mkdir -p /var/lib/kubelet; printf %s {shlex.quote(right)} > {KUBECONFIG}\n"
        f"chmod 600 {KUBECONFIG}\n"
    )
    sandbox.run({"plant": plant, "trust": True})
    return sandbox.run({"plant": inject, "trust": True, "watch": [*watch]})


def test_what_is_right_is_left_alone(sandbox: Sandbox) -> None:
    """Also a library of another version that is no driver's, and files of NVIDIA's that are no libraries."""
    nothing = found(sandbox, ":")
    assert (nothing["changes"], nothing["refused"], nothing["unknown"]) == ([], {}, "")


@pytest.mark.parametrize(
    "change",
    [
        {"cluster": {"insecure-skip-tls-verify": True}},
        {"cluster": {"server": "https://192.0.2.66:6443"}},
        {"cluster": {"proxy-url": "http://192.0.2.66"}},
        {"cluster": {"certificate-authority-data": "YWJj"}},
        {"user": {"token": "of somebody else"}},
    ],
    ids=str,
)
def test_a_kubelet_believes_its_cluster_alone(sandbox: Sandbox, change: dict[str, dict[str, Any]]) -> None:
    """By its own kubeconfig, which it wrote once and never looks at again."""
    wrong = kubeconfig(server=SERVER, authority=NOBODY)
    for kind, keys in change.items():
        wrong[f"{kind}s"][0][kind] |= keys
    done = found(sandbox, f"printf %s {shlex.quote(json.dumps(wrong))} > {KUBECONFIG}", KUBECONFIG)
    assert len(done["changes"]) == 1
    assert (done["again"], done["failed"]) == ([], "")
    assert SERVER in done["after"][KUBECONFIG]
    assert "of somebody else" not in done["after"][KUBECONFIG]


@pytest.mark.parametrize(
    "line",
    [
        "  - {hostPath: /etc/shadow, containerPath: /mnt}",
        "  - hostPath: /",
        "  - hostPath: /usr/share/nvidia/../../../etc",
    ],
)
def test_a_specification_gives_containers_what_is_nvidias_alone(sandbox: Sandbox, line: str) -> None:
    """By CDI every container with a GPU would get it."""
    done = found(sandbox, f"printf '%s\\n' {shlex.quote(line)} >> {CDI}", CDI)
    assert len(done["changes"]) == 1
    assert "which is not NVIDIA's" in done["diffs"][0]
    assert line.strip() not in done["after"][CDI]
    assert done["again"] == []


@pytest.mark.parametrize(
    ("inject", "said"),
    [
        (f"echo 'skip_verify = true' > {HOSTS}", "decides what runs here"),
        (f"echo '[host.\"https://a\"] # x' > {HOSTS}; echo '  skip_verify=true' >> {HOSTS}", "decides what runs here"),
        ("echo 'APT::Default-Release \"testing\";' > /etc/apt/apt.conf.d/99a", "prefer that release"),
        (
            "echo 'Unattended-Upgrade::Automatic-Reboot \"true\";' > /etc/apt/apt.conf.d/99zzz",
            "reboot under running jobs",
        ),
        ("echo 'APT { Broken' > /etc/apt/apt.conf.d/99a", "apt cannot read its configuration"),
    ],
)
def test_what_a_person_must_decide_is_refused_with_the_reason(sandbox: Sandbox, inject: str, said: str) -> None:
    """Nothing is changed for it."""
    done = found(sandbox, inject)
    assert done["unknown"] == ""
    assert any(said in reason for reason in done["refused"].values()), done["refused"]


def test_a_reboot_at_night_that_an_earlier_file_wants_is_overruled(sandbox: Sandbox) -> None:
    """By the roles' own file, which comes late."""
    done = found(sandbox, "echo 'Unattended-Upgrade::Automatic-Reboot \"true\";' > /etc/apt/apt.conf.d/50x")
    assert done["refused"] == {}
    assert done["again"] == []


def test_needrestart_where_it_is_there_restarts_none_of_ours(sandbox: Sandbox) -> None:
    """It would restart containerd under running pods after any upgrade of a library."""
    rest = "Version: 3.6-4\nMaintainer: x\nArchitecture: all\nDescription: x\n\n"
    there = f"Package: needrestart\nStatus: install ok installed\n{rest}"
    file = "/etc/needrestart/conf.d/zz-spillway.conf"
    later = "/etc/needrestart/conf.d/zzz.conf"
    done = found(
        sandbox, f"mkdir -p /etc/needrestart/conf.d; printf %s {shlex.quote(there)} >> /var/lib/dpkg/status", file
    )
    assert "$nrconf{override_rc}{qr(^containerd)} = 0;" in done["after"][file]
    assert done["again"] == []
    done = sandbox.run({"plant": f"echo '$nrconf{{override_rc}} = {{}};' > {later}", "trust": True})
    assert any(later in reason for reason in done["refused"].values())
