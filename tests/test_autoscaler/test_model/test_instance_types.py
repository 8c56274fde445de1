"""The size of a node by its instance type, against published figures."""

from __future__ import annotations

from typing import Any

import pytest

from autoscaler.model.instance_types import (
    GIB,
    MIB,
    InstanceType,
    allocatable_of,
    max_pods_of,
    one_quota,
    quota_of,
    read_instance_type,
)
from autoscaler.model.labels import GPU
from autoscaler.model.resources import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, Resources

# name, arch, vCPUs, memory (MiB), max pods, allocatable millicores, allocatable memory (MiB): a price list's figures
PUBLISHED = [
    ("a1.medium", "arm64", 1, 2048, 8, 940, 1392),
    ("m5.large", "amd64", 2, 8192, 29, 1930, 6903),
    ("m5.4xlarge", "amd64", 16, 65536, 234, 15890, 57691),
    ("c6g.12xlarge", "arm64", 48, 98304, 234, 47810, 87943),
    ("g5.12xlarge", "amd64", 48, 196608, 737, 47810, 173400),
    ("p4d.24xlarge", "amd64", 96, 1179648, 737, 95690, 1082712),
]


@pytest.mark.parametrize("published", PUBLISHED, ids=lambda published: published[0])
def test_allocatable_matches_published_figures(published: tuple[str, str, int, int, int, int, int]) -> None:
    """CPU and memory that pods may use come out as published lists of instance types have them."""
    name, arch, vcpus, memory, pods, cpu, left = published
    room = allocatable_of(vcpus=vcpus, memory_mib=memory, gpus=0, max_pods=pods, disk=100 * GIB, arch=arch)
    assert (room[CPU], room[MEMORY] // MIB) == (cpu, left), name


def test_disk_keeps_a_gibibyte_and_a_tenth() -> None:
    """The kubelet's reservation and its eviction threshold both come off the root volume."""
    room = allocatable_of(vcpus=2, memory_mib=8192, gpus=0, max_pods=29, disk=100 * GIB)
    assert room[EPHEMERAL_STORAGE] == 89 * GIB


def test_a_machine_of_ones_own_has_no_hypervisor() -> None:
    """On-prem memory loses the kubelet's share only."""
    room = allocatable_of(vcpus=2, memory_mib=8192, gpus=0, max_pods=110, disk=100 * GIB, virtual=False)
    assert room[MEMORY] // MIB == 8192 - 11 * 110 - 255 - 100


def test_a_tiny_machine_has_nothing_left_rather_than_less() -> None:
    """Reservations larger than the machine leave zero, not a negative amount."""
    room = allocatable_of(vcpus=1, memory_mib=256, gpus=0, max_pods=4, disk=GIB)
    assert (room[MEMORY], room[EPHEMERAL_STORAGE]) == (0, 0)


def test_max_pods_leaves_one_address_of_each_interface() -> None:
    """m5.large: 3 interfaces of 10 addresses make 29."""
    assert max_pods_of(interfaces=3, addresses=10) == 29


def test_read_from_what_ec2_describes() -> None:
    """Only NVIDIA GPUs count, and only the default network card's interfaces."""
    assert read_instance_type(_described()) == InstanceType(
        name="p4d.24xlarge", arch="amd64", vcpus=96, memory_mib=1179648, gpus=8, max_pods=737, gpu_memory_mib=40960
    )


def test_gpus_that_the_device_plugin_does_not_offer_do_not_count() -> None:
    """An AMD GPU is not an ``nvidia.com/gpu``."""
    described = _described()
    described["GpuInfo"]["Gpus"][0]["Manufacturer"] = "AMD"
    assert read_instance_type(described).gpus == 0


def test_capacity_is_before_reservations_and_allocatable_within_it() -> None:
    """Whatever is allocatable fits in the capacity, and the GPUs are all there."""
    one = read_instance_type(_described())
    capacity, room = one.capacity(disk=100 * GIB), one.allocatable(disk=100 * GIB)
    assert room.fits_in(capacity)
    assert capacity[GPU] == room[GPU] == 8
    assert capacity[PODS] == 737
    assert capacity != Resources()


def _described() -> dict[str, Any]:
    return {
        "InstanceType": "p4d.24xlarge",
        "VCpuInfo": {"DefaultVCpus": 96},
        "MemoryInfo": {"SizeInMiB": 1179648},
        "ProcessorInfo": {"SupportedArchitectures": ["x86_64"]},
        "GpuInfo": {"Gpus": [{"Count": 8, "Manufacturer": "NVIDIA", "MemoryInfo": {"SizeInMiB": 40960}}]},
        "NetworkInfo": {
            "DefaultNetworkCardIndex": 0,
            "Ipv4AddressesPerInterface": 50,
            "MaximumNetworkInterfaces": 60,
            "NetworkCards": [{"NetworkCardIndex": n, "MaximumNetworkInterfaces": 15} for n in range(4)],
        },
    }


@pytest.mark.parametrize(
    ("kind", "on_demand", "spot"),
    [
        ("p4d.24xlarge", "L-417A185B", "L-7212CCBC"),
        ("g5.12xlarge", "L-DB2E81BA", "L-3819A6DF"),
        ("gr6.4xlarge", "L-DB2E81BA", "L-3819A6DF"),
        ("trn1.32xlarge", "L-2C3B7624", "L-6B0D517C"),
        ("m5.4xlarge", "L-1216C47A", "L-34B43A08"),
        ("hpc7g.16xlarge", "L-F7808C92", ""),
        ("u-6tb1.metal", "", ""),
    ],
)
def test_a_type_draws_on_the_quota_of_its_family(kind: str, on_demand: str, spot: str) -> None:
    """As AWS counts vCPUs; of a set of types one that all share."""
    assert (quota_of(kind, spot=False), quota_of(kind, spot=True)) == (on_demand, spot)
    assert one_quota([kind, kind], spot=False) == on_demand
    assert one_quota(["p4d.24xlarge", "g5.12xlarge"], spot=False) == ""
