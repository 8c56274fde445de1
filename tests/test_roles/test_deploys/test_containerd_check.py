"""Whether a containerd configuration can run every pod."""

from __future__ import annotations

from typing import Any

import pytest

from roles.deploys.containerd_check import unsound

RUNC = {"runtime_type": "io.containerd.runc.v2", "options": {"SystemdCgroup": True}}
NVIDIA = {"runtime_type": "io.containerd.runc.v2", "options": {"SystemdCgroup": True, "BinaryName": "/usr/bin/n"}}


def dump(*, version: int = 2, default: str = "runc", **runtimes: Any) -> dict[str, Any]:
    """What `containerd config dump` says of these runtimes."""
    plugin = {2: "io.containerd.grpc.v1.cri", 3: "io.containerd.cri.v1.runtime"}[version]
    containerd = {"default_runtime_name": default, "runtimes": runtimes}
    return {"version": version, "disabled_plugins": [], "plugins": {plugin: {"containerd": containerd}}}


@pytest.mark.parametrize("version", [2, 3])
def test_runc_and_nvidia_beside_each_other_are_sound(version: int) -> None:
    """In both formats of the file."""
    assert unsound(dump(version=version, runc=RUNC, nvidia=NVIDIA), nvidia=True, systemd_cgroup=True) == []


@pytest.mark.parametrize("version", [2, 3])
def test_a_drop_in_that_took_runc_away_is_seen(version: int) -> None:
    """Containerd itself exits with success on it."""
    assert unsound(dump(version=version, nvidia=NVIDIA), nvidia=True, systemd_cgroup=True) == [
        "the runtime runc is not there",
        "default_runtime_name is runc, and there is no such runtime",
    ]


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        (dump(runc=RUNC), "the runtime nvidia is not there"),
        (dump(runc=RUNC, nvidia=NVIDIA, default="kata"), "default_runtime_name is kata, and there is no such runtime"),
        (
            dump(runc=RUNC, nvidia={**NVIDIA, "options": {}}),
            "the runtime nvidia has SystemdCgroup = false, the kubelet not",
        ),
        (
            {"disabled_plugins": ["io.containerd.grpc.v1.cri"], "plugins": {}},
            "the CRI plugin is disabled: the kubelet finds no runtime",
        ),
        (
            {
                "plugins": {
                    "io.containerd.grpc.v1.cri": {"enable_cdi": False, "containerd": {"runtimes": {"runc": RUNC}}}
                }
            },
            "enable_cdi is false: devices asked for by name reach no container",
        ),
    ],
)
def test_what_would_take_a_node_away_has_a_name(found: dict[str, Any], wrong: str) -> None:
    """One sentence for each way to lose pods."""
    assert wrong in unsound(found, nvidia=True, systemd_cgroup=True)


def test_a_machine_without_gpus_needs_no_nvidia_runtime() -> None:
    """And may run with cgroupfs."""
    plain = {"runtime_type": "io.containerd.runc.v2"}
    assert unsound(dump(runc=plain), nvidia=False, systemd_cgroup=False) == []
