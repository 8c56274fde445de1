"""What a machine is to run of NVIDIA's software: its settings, what they imply, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from autoscaler.config.documents import parse_data
from autoscaler.model.errors import BadInput
from roles.checks.versions import machine_mistakes, version_findings
from roles.deploys.apt_sources import needed, signed_places
from roles.facts.containers import RuncInUse
from roles.facts.gpu import CdiState, Driver, DriverState, MigState, Specification
from roles.facts.packages import AlteredFiles, AptSettings, Package, Packages
from roles.gpu.driver import why_unsigned_modules_would_not_load
from roles.manifests import chosen_for, gpu_manifests
from roles.settings.gpu import GpuSoftware, gpu_labels, has_nvswitch
from roles.settings.machine import MachineSettings
from roles.settings.version_matrix import choose, read_matrix


def machine(**settings: Any) -> MachineSettings:
    """A machine with eight H100s, unless the test says otherwise."""
    ordinary = {"name": "gpu-01", "address": "10.0.0.1", "gpu_product": "NVIDIA-H100-80GB-HBM3", "gpu_count": 8}
    return MachineSettings.model_validate({**ordinary, **settings})


@pytest.mark.parametrize(
    ("product", "count", "needed"),
    [
        ("NVIDIA-A100-SXM4-80GB", 8, True),
        ("NVIDIA-A100-SXM4-40GB", 4, False),
        ("NVIDIA-A100-PCIE-40GB", 8, False),
        ("NVIDIA H100 80GB HBM3", 8, True),
        ("NVIDIA-L4", 8, False),
    ],
)
def test_the_fabric_manager_is_for_boards_with_switches(product: str, count: int, needed: bool) -> None:  # noqa: FBT001 - a table
    """Eight GPUs on SXM hang on NVSwitches; four do not, and PCIe cards never."""
    assert has_nvswitch(product, count) is needed


@pytest.mark.parametrize(
    ("entry", "wrong"),
    [
        ({"mig": {"0": ["3g20gb"]}}, "write a profile such as 1g.10gb"),
        ({"mig": {"first": []}}, "write its index"),
        ({"drivers": True}, "did you mean driver"),
    ],
)
def test_a_mistake_in_the_settings_is_told_with_what_would_be_right(entry: dict[str, Any], wrong: str) -> None:
    """Before any machine is asked."""
    with pytest.raises(BadInput, match=wrong):
        parse_data(entry, GpuSoftware, source="inventory")


def test_versions_are_judged_only_for_what_the_machine_gets() -> None:
    """CUDA is no matter where the host has no toolkit, the driver none where the image brings it."""
    old = {"driver": "570.211.01"}
    assert [one.pair for one in machine_mistakes(machine(gpu={"cuda": True}, versions=old))] == [("cuda", "driver")]
    assert machine_mistakes(machine(gpu={}, versions=old)) == []
    mixed = {"fabric_manager": "570.211.01"}
    assert machine_mistakes(machine(versions=mixed)) == []
    assert [one.pair for one in machine_mistakes(machine(gpu={}, versions=mixed))] == [("driver", "fabric_manager")]


def test_a_machine_uses_the_repositories_that_it_installs_from() -> None:
    """Its distribution's own are written where a mirror stands for them."""
    assert needed(machine(gpu={}), mirrored=False) == ["nvidia-cuda", "nvidia-container-toolkit", "docker"]
    assert needed(machine(gpu={"driver": False}), mirrored=False) == ["nvidia-container-toolkit", "docker"]
    assert needed(machine(), mirrored=True) == ["debian", "debian-security", "ubuntu", "docker"]


def test_labels_vouch_only_for_a_driver_that_the_roles_lay() -> None:
    """The device plugin runs in both cases."""
    assert gpu_labels(None, "580.126.09", "open") == {"nvidia.com/gpu.present": "true"}
    laid = gpu_labels(GpuSoftware(mig={"0": ("1g.10gb",)}), "580.126.09", "open")
    assert laid["nvidia.com/cuda.driver-version.full"] == "580.126.09"
    assert laid["nvidia.com/mig.strategy"] == "mixed"


def test_the_manifests_carry_the_versions_of_the_matrix() -> None:
    """No brace is left, and each is an object that names itself."""
    chosen = choose(read_matrix(), {"device_plugin": "0.17.4"}, machine="m")
    objects = list(yaml.safe_load_all(gpu_manifests(chosen)))
    assert {one["kind"] for one in objects} == {"DaemonSet", "RuntimeClass", "Service"}
    images = [
        one["spec"]["template"]["spec"]["containers"][0]["image"] for one in objects if one["kind"] == "DaemonSet"
    ]
    assert "nvcr.io/nvidia/k8s-device-plugin:v0.17.4" in images
    assert not any("{" in image for image in images)


def test_a_daemon_set_has_one_version_for_all_machines() -> None:
    """Those without GPUs are not asked."""
    machines = [machine(name=f"gpu-{one}", versions={"device_plugin": one}) for one in ("0.17.4", "0.18.1")]
    without = machine(gpu_count=0, versions={"device_plugin": "0.16.0"})
    assert chosen_for([machines[0], without]).device_plugin == "0.17.4"
    with pytest.raises(BadInput, match=r"0\.17\.4 on .*, 0\.18\.1 on .*: one DaemonSet runs on all machines"):
        chosen_for(machines)


@pytest.mark.parametrize(
    ("state", "refused"),
    [
        (Driver(secure_boot="1"), "Secure Boot is on"),
        (Driver(lockdown="integrity"), "the kernel is locked down"),
        (Driver(secure_boot="1", signer="the lab"), ""),
        (Driver(secure_boot="0", lockdown="none"), ""),
        (Driver(), ""),
    ],
)
def test_an_unsigned_module_is_refused_where_it_would_not_load(state: Driver, refused: str) -> None:
    """The remedy is in the reason; with a key of one's own there is nothing to refuse."""
    said = why_unsigned_modules_would_not_load(state, signs_modules=False)
    assert said.startswith(refused)
    assert ("mokutil --import" in said) is bool(refused)
    assert why_unsigned_modules_would_not_load(state, signs_modules=True) == ""


def test_the_driver_is_read_at_each_of_its_places() -> None:
    """What no probe answered is empty."""
    lines = [
        "kernel 6.1.0-40-amd64",
        "running 580.126.09",
        "library 580.126.09",
        "library 555.42.02",
        "license MIT/GPL",
    ]
    state = DriverState().process(lines)
    assert (state.kernel, state.running, state.on_disk) == ("6.1.0-40-amd64", "580.126.09", "")
    assert state.library == ("555.42.02", "580.126.09")
    assert state.is_open


def test_a_specification_and_mig_devices_are_read() -> None:
    """As nvidia-ctk writes the one and nvidia-smi lists the others."""
    assert CdiState().process([]) == Specification()
    assert CdiState().process(["exists", "driver 580.126.09", "missing /usr/bin/x"]) == Specification(
        exists=True, drivers=("580.126.09",), missing=("/usr/bin/x",)
    )
    listed = [
        "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-1)",
        "  MIG 3g.20gb     Device  0: (UUID: MIG-1)",
        "  MIG 1g.5gb      Device  1: (UUID: MIG-2)",
        "GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-2)",
    ]
    assert MigState().process(listed) == {"0": ("1g.5gb", "3g.20gb"), "1": ()}


def test_dpkg_says_what_is_installed_held_and_cut_off() -> None:
    """A package whose configuration alone is left does not count."""
    have = Packages().process(["a\t1-1\tii ", "b\t2-1\thi ", "c\t3-1\tiU ", "d\t4-1\trc ", "e\t\tun "])
    assert have == {
        "a": Package("1-1"),
        "b": Package("2-1", held=True),
        "c": Package("3-1", installed=False, broken=True),
    }
    assert have["b"].fits("2-*")
    assert not have["b"].fits("2.1-*")
    excluded = ["missing     /usr/share/man/man8/runc.8.gz", "missing     /usr/share/doc/runc/copyright"]
    lines = ["missing     /usr/bin/x", "??5?????? c /etc/x.conf", "??5??????   /usr/bin/y", *excluded]
    assert AlteredFiles().process(lines) == {
        "/usr/bin/x": "missing",
        "/usr/bin/y": "altered",
    }
    assert AptSettings().process(['A::B:: "x";', 'A::B:: "y";', 'C "1";']) == {"A::B": ["x", "y"], "C": ["1"]}


def test_the_kernel_that_a_machine_has_is_judged_in_its_preflight() -> None:
    """As a warning where it was not validated, as an error where the driver cannot work on it."""
    validated = version_findings(machine(gpu={}), kernel="6.1.0-40-amd64", os="debian-12")
    assert validated == []
    (finding,) = version_findings(machine(gpu={}), kernel="6.18.0", os="debian-12")
    assert (finding.severity, finding.check) == ("warning", "versions")
    (old, _) = version_findings(machine(gpu={}), kernel="4.9.0", os="debian-12")
    assert old.severity == "error"
    assert old.found.startswith("driver 580.126.09 with kernel 4.9.0: ")


def test_the_runc_that_containerd_brought_is_judged_as_well() -> None:
    """Docker's package has one of its own, whatever the matrix chose: told, with the versions that are whole."""
    have = {"kernel": "6.1.0-40-amd64", "os": "debian-12"}
    assert version_findings(machine(), **have, runc="1.3.3") == []
    (finding,) = version_findings(machine(), **have, runc="1.2.5+ds1")
    assert finding.severity == "warning"
    assert finding.found.startswith("containerd 1.7.28 with runc 1.2.5+ds1: older ones let a container write")
    assert RuncInUse().process(["1.3.3"]) == "1.3.3"


def test_repositories_are_asked_where_the_mirror_has_them() -> None:
    """Each with its own name; the distribution's own have keys of the machine, and are not asked."""
    sources = {"mirror": "http://mirror.lab:8081"}
    assert [(name, uri) for name, _, uri in signed_places(machine(gpu={}, sources=sources))] == [
        ("nvidia-cuda", "http://mirror.lab:8081/nvidia-cuda"),
        ("nvidia-container-toolkit", "http://mirror.lab:8081/nvidia-container-toolkit"),
    ]
    assert [name for name, *_ in signed_places(machine(gpu={}))] == ["nvidia-container-toolkit"]
