"""What a node of an EC2 instance type offers to pods, before the node exists.

Pure. The autoscaler plans with it for groups at zero, and the stand-in for EC2 makes its nodes by it, so that what was
planned is what arrives.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from autoscaler.model.labels import GPU
from autoscaler.model.resources import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, Resources

GIB: Final = 2**30
MIB: Final = 2**20

_CPU_BANDS: Final = ((1000, 600), (2000, 100), (4000, 50))
"""(up to this many millicores, reserved in 1/10000)"""
_CPU_ABOVE: Final = 25
_EVICTION_MIB: Final = 100
_ARM64_CMA_MIB: Final = 64
_HYPERVISOR_PER_MILLE: Final = 75
_QUOTAS: Final = (
    # families by their letters -> codes of the quotas of vCPUs: on demand, spot
    (("dl",), "L-6E869C2A", "L-85EED4F7"),
    (("hpc",), "L-F7808C92", ""),
    (("inf",), "L-1945791B", "L-B5D1601B"),
    (("trn",), "L-2C3B7624", "L-6B0D517C"),
    (("f",), "L-74FC7D96", "L-88CF9481"),
    (("g", "gr", "vt"), "L-DB2E81BA", "L-3819A6DF"),
    (("p",), "L-417A185B", "L-7212CCBC"),
    (("x",), "L-7295265B", "L-E3A00192"),
    (("a", "c", "d", "h", "i", "im", "is", "m", "r", "t", "z"), "L-1216C47A", "L-34B43A08"),
)
"""https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas.html"""
_SIZE: Final = re.compile(r"(\d*)xlarge$")
_GIB_PER_VCPU: Final = ((("c",), 2), (("m", "t", "g"), 4), (("r", "gr"), 8), (("p",), 12))
_GPUS: Final = ((("p",), ((16, 8), (8, 4), (0, 1))), (("g", "gr"), ((48, 8), (24, 4), (16, 1), (12, 4), (0, 1))))
"""Families by their letters -> from so many times ``xlarge`` on so many NVIDIA GPUs, the largest size first."""
_MANY_PODS: Final = 58
"""Of the smallest types that clusters are made of; larger ones take more."""
_LETTERS: Final = re.compile(r"[a-z]+")


def quota_of(instance_type: str, *, spot: bool) -> str:
    """Code of the quota of vCPUs that instances of the type draw on; empty for a family that is not known."""
    letters = _LETTERS.match(instance_type)
    family = letters.group() if letters else ""
    return next((codes[spot] for families, *codes in _QUOTAS if family in families), "")


def one_quota(instance_types: Iterable[str], *, spot: bool) -> str:
    """Returns the quota that all of a set of types draw on; empty where they draw on several."""
    found = {quota_of(one, spot=spot) for one in instance_types}
    return found.pop() if len(found) == 1 else ""


def is_reservation(code: str) -> bool:
    """Whether what a group's nodes draw on is a Capacity Reservation, and no quota of the account."""
    return code.startswith("cr-")


def quota_in_words(code: str) -> str:
    """What a group's nodes draw on: a Capacity Reservation by its id, or a quota of the account by its code."""
    return f"Capacity Reservation {code}" if is_reservation(code) else f"quota {code} of the AWS account"


@dataclass(frozen=True, slots=True)
class InstanceType:
    """One EC2 instance type, reduced to what a node's size depends on."""

    name: str
    arch: str
    """As Kubernetes spells it: ``amd64`` or ``arm64``."""
    vcpus: int
    memory_mib: int
    gpus: int
    """NVIDIA GPUs: those that the device plugin offers as ``nvidia.com/gpu``."""
    max_pods: int
    gpu_memory_mib: int = 0
    """Of one GPU."""
    gpu_model: str = ""
    """As EC2 calls it: ``A10G``."""
    efas: int = 0
    """Elastic Fabric Adapters: one on each network card."""

    def allocatable(self, *, disk: int) -> Resources:
        """What pods may use on a new node with a root volume of ``disk`` bytes."""
        return allocatable_of(
            vcpus=self.vcpus,
            memory_mib=self.memory_mib,
            gpus=self.gpus,
            max_pods=self.max_pods,
            disk=disk,
            arch=self.arch,
        )

    def capacity(self, *, disk: int) -> Resources:
        """What the kubelet reports as the node's capacity: before its reservations, after the hypervisor's share."""
        memory = usable_memory_mib(self.memory_mib, arch=self.arch) * MIB
        amounts = {CPU: self.vcpus * 1000, MEMORY: memory, GPU: self.gpus, PODS: self.max_pods, EPHEMERAL_STORAGE: disk}
        return Resources(amounts)


def by_name(name: str) -> InstanceType:
    """What the name of a type says of it, as far as names do: four vCPUs for each ``xlarge``, the GPUs of its family.

    For a type that EC2 has not been asked about: most families keep to it, not all of them.
    https://docs.aws.amazon.com/ec2/latest/instancetypes/instance-type-names.html
    """
    family, _, size = name.partition(".")
    number = _SIZE.match(size)
    times = int(number.group(1) or 1) if number else 0
    vcpus = 4 * times if times else 2
    letters = _LETTERS.match(family)
    kind = letters.group() if letters else ""
    memory = next((gib for kinds, gib in _GIB_PER_VCPU if kind in kinds), 4) * vcpus * 1024
    gpus = next((gpus for kinds, sizes in _GPUS for least, gpus in sizes if kind in kinds and times >= least), 0)
    return InstanceType(name, "amd64", vcpus, memory, gpus, max_pods=_MANY_PODS)


def read_instance_type(described: Mapping[str, Any]) -> InstanceType:
    """Reads one entry of EC2's ``DescribeInstanceTypes``."""
    gpus = [gpu for gpu in described.get("GpuInfo", {}).get("Gpus", []) if gpu.get("Manufacturer") == "NVIDIA"]
    network = described["NetworkInfo"]
    architectures = described.get("ProcessorInfo", {}).get("SupportedArchitectures", [])
    return InstanceType(
        name=described["InstanceType"],
        arch="arm64" if "arm64" in architectures else "amd64",
        vcpus=described["VCpuInfo"]["DefaultVCpus"],
        memory_mib=described["MemoryInfo"]["SizeInMiB"],
        gpus=sum(gpu["Count"] for gpu in gpus),
        max_pods=max_pods_of(
            interfaces=_interfaces_of_default_card(network), addresses=network["Ipv4AddressesPerInterface"]
        ),
        gpu_memory_mib=gpus[0].get("MemoryInfo", {}).get("SizeInMiB", 0) if gpus else 0,
        gpu_model=gpus[0].get("Name", "") if gpus else "",
        efas=min(network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0), network.get("MaximumNetworkCards", 1)),
    )


def allocatable_of(
    *,
    vcpus: int,
    memory_mib: int,
    gpus: int,
    max_pods: int,
    disk: int,
    arch: str = "amd64",
    virtual: bool = True,
) -> Resources:
    """Capacity minus what the machine and its kubelet keep. ``memory_mib`` as advertised, ``disk`` in bytes.

    - CPU: 6 % of the first core, 1 % of the second, 0.5 % of the next two, 0.25 % of the rest.
    - Memory: the hypervisor and firmware keep 7.5 % (``virtual``; Graviton 64 MiB before that for its contiguous memory
      area), the kubelet 11 MiB per pod + 255 MiB, and evicts when less than 100 MiB are left.
    - Ephemeral storage: :func:`ephemeral_storage_of`.

    These are the numbers of the EKS node image, https://github.com/awslabs/amazon-eks-ami (nodeadm, ``kubelet``
    package: ``getCPUMillicoresToReserve``, ``getMemoryMebibytesToReserve``), see
    https://docs.aws.amazon.com/eks/latest/userguide/choosing-instance-type.html; the 7.5 % is Karpenter's default
    ``vm-memory-overhead-percent``, https://karpenter.sh/docs/reference/settings/ .
    """
    usable = usable_memory_mib(memory_mib, arch=arch) if virtual else memory_mib
    amounts = {
        CPU: vcpus * 1000 - _cpu_reserved(vcpus * 1000),
        MEMORY: (usable - (11 * max_pods + 255) - _EVICTION_MIB) * MIB,
        GPU: gpus,
        PODS: max_pods,
        EPHEMERAL_STORAGE: ephemeral_storage_of(disk),
    }
    return Resources({name: max(amount, 0) for name, amount in amounts.items()})


def ephemeral_storage_of(disk: int) -> int:
    """Bytes that pods may use of a root volume of so many: the kubelet keeps 1 GiB, and evicts below 10 %."""
    return disk - GIB - disk // 10


def root_volume_with(storage: int) -> int:
    """Bytes of the smallest root volume, in whole GiB, of which pods may use so many."""
    return -(-(storage + GIB) * 10 // (9 * GIB)) * GIB


def usable_memory_mib(memory_mib: int, *, arch: str) -> int:
    """What is left of an instance's advertised memory once the hypervisor and the firmware have taken theirs."""
    seen = memory_mib - (_ARM64_CMA_MIB if arch == "arm64" else 0)
    return seen - -(-seen * _HYPERVISOR_PER_MILLE // 1000)


def max_pods_of(*, interfaces: int, addresses: int) -> int:
    """Pods that get an address from the VPC CNI: one address of each interface is its own, two pods use the host's.

    https://docs.aws.amazon.com/eks/latest/userguide/choosing-instance-type.html
    """
    return interfaces * (addresses - 1) + 2


def _cpu_reserved(millicores: int) -> int:
    reserved = below = 0
    for up_to, share in _CPU_BANDS:
        reserved += max(min(millicores, up_to) - below, 0) * share
        below = up_to
    reserved += max(millicores - below, 0) * _CPU_ABOVE
    return -(-reserved // 10000)


def _interfaces_of_default_card(network: Mapping[str, Any]) -> int:
    """The VPC CNI attaches interfaces to the default network card only."""
    default = network.get("DefaultNetworkCardIndex", 0)
    for card in network.get("NetworkCards", []):
        if card.get("NetworkCardIndex") == default:
            return int(card["MaximumNetworkInterfaces"])
    return int(network["MaximumNetworkInterfaces"])


@dataclass(frozen=True, slots=True)
class Price:
    """One row of the catalogue."""

    instance_type: str
    arch: str
    room: Resources
    usd: float
    zone: str = ""
    capacity_type: str = "on-demand"
    gpu_model: str = ""
    gpu_memory_mib: int = 0
    """Of one GPU; 0: not said."""
    vcpus: int = 0
    memory_mib: int = 0
    """Of the machine, as EC2 says; 0: not said."""
