"""What a node says of itself, on EC2 and on-prem; what happens with it is in ``tests/live/test_boot.py``."""

from __future__ import annotations

from dataclasses import replace

from autoscaler.model import labels as words
from autoscaler.model.constraints import Taint
from autoscaler.model.instance_types import GIB, InstanceType
from autoscaler.model.resources import Resources
from stacks.local.fake_aws.boot import Booted, record_of
from stacks.local.ground.on_prem_nodes import on_prem_node
from stacks.nodes.user_data import NodeSpec
from stacks.settings.inventory import Gpus, Machine

A10G = InstanceType(
    name="g5.12xlarge", arch="amd64", vcpus=48, memory_mib=196608, gpus=4, max_pods=737, gpu_memory_mib=22888
)
BOOTED = Booted(
    id="i-0123456789",
    type=A10G,
    zone="us-east-1a",
    region="us-east-1",
    name="ip-10-0-1-23.ec2.internal",
    address="10.0.1.23",
    user_data="",
    disk=100 * GIB,
    joins_at=0,
    devices_at=0,
)
SPEC = NodeSpec(
    cluster="local", labels={words.GROUP: "gpu-a10g", words.ZONE: "wrong"}, taints=(Taint("nvidia.com/gpu"),)
)


def test_a_node_offers_what_the_plan_reckons_with() -> None:
    """Its allocatable is the instance type's, so that what was planned for it fits."""
    status = record_of(BOOTED, SPEC, with_devices=True)["status"]
    assert Resources.parse(status["allocatable"]) == A10G.allocatable(disk=100 * GIB)
    assert Resources.parse(status["allocatable"]).fits_in(Resources.parse(status["capacity"]))


def test_a_node_is_named_and_labelled_as_the_cloud_would() -> None:
    """What the instance knows of itself wins over what it was told."""
    node = record_of(BOOTED, SPEC, with_devices=True)
    assert node["metadata"]["name"] == "ip-10-0-1-23.ec2.internal"
    assert node["spec"]["providerID"] == "aws:///us-east-1a/i-0123456789"
    assert node["spec"]["taints"] == [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]
    assert node["metadata"]["labels"] == {
        words.GROUP: "gpu-a10g",
        words.HOSTNAME: "ip-10-0-1-23.ec2.internal",
        words.ARCH: "amd64",
        words.OS: "linux",
        words.OLD_ARCH: "amd64",
        words.OLD_OS: "linux",
        words.INSTANCE_TYPE: "g5.12xlarge",
        words.ZONE: "us-east-1a",
        words.REGION: "us-east-1",
        words.GPU_PRESENT: "true",
        words.GPU_COUNT: "4",
        words.GPU_MEMORY: "22888",
    }


def test_gpus_that_are_not_registered_yet_are_not_there() -> None:
    """Neither as a resource nor as what discovery labels; its kubelet says already that there are some."""
    node = record_of(BOOTED, SPEC, with_devices=False)
    assert node["metadata"]["labels"][words.GPU_PRESENT] == "true"
    assert words.GPU not in node["status"]["allocatable"]
    assert words.GPU not in node["status"]["capacity"]
    assert words.GPU_COUNT not in node["metadata"]["labels"]


def test_what_the_policy_says_of_a_size_is_so() -> None:
    """Here no machine boots that could tell otherwise."""
    told = replace(BOOTED, differing={"ephemeral-storage": "7Ti"})
    status = record_of(told, SPEC, with_devices=True)["status"]
    assert status["allocatable"]["ephemeral-storage"] == status["capacity"]["ephemeral-storage"] == str(7 * 2**40)


def test_an_on_prem_machine_is_no_instance() -> None:
    """It has a provider of its own, its inventory's labels and taints, and all its memory but the kubelet's."""
    machine = Machine(
        name="dgx-01",
        address="10.20.0.11",
        cpus=128,
        memory="1Ti",
        gpus=Gpus(product="NVIDIA-A100-SXM4-40GB", count=8, memory="40Gi"),
        rack="r1",
    )
    node = on_prem_node(machine)
    allocatable = Resources.parse(node["status"]["allocatable"])
    assert node["spec"]["providerID"] == "onprem://dgx-01"
    assert (node["metadata"]["labels"][words.ORIGIN], node["metadata"]["labels"][words.RACK]) == ("on-prem", "r1")
    assert allocatable[words.GPU] == 8
    assert allocatable["memory"] == 2**40 - (11 * 110 + 255 + 100) * 2**20
    assert Resources.parse(node["status"]["capacity"]) == machine.capacity()
