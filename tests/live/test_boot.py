"""Instances of the stand-in become nodes of a real API server, and go with their instances."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from autoscaler.model import labels as words
from autoscaler.model.instance_types import GIB, InstanceType
from stacks.local.fake_aws.boot import Boot, Booted
from stacks.local.ground.on_prem_nodes import register_on_prem
from stacks.nodes.user_data import NodeSpec, render_user_data
from stacks.settings.inventory import Gpus, Inventory, Machine
from tests.live.conftest import Plane

pytestmark = pytest.mark.live

A10G = InstanceType(name="g5.12xlarge", arch="amd64", vcpus=48, memory_mib=196608, gpus=4, max_pods=737)
TOLD = render_user_data(NodeSpec(cluster="local", labels={words.ORIGIN: words.EC2, words.GROUP: "gpu-a10g"}))


@dataclass
class Cloud:
    """The instances that run, and a clock to move."""

    instances: dict[str, Booted] = field(default_factory=dict)
    now: float = 100.0

    def start(self, number: int, *, joins: float = 0.0, devices: float = 0.0, told: str = TOLD) -> Booted:
        """An instance that joins so many seconds from now."""
        booted = Booted(
            id=f"i-{number:04}",
            type=A10G,
            zone="us-east-1a",
            region="us-east-1",
            name=f"ip-10-0-{number // 256}-{number % 256}.ec2.internal",
            address=f"10.0.{number // 256}.{number % 256}",
            user_data=told,
            disk=100 * GIB,
            joins_at=self.now + joins,
            devices_at=self.now + joins + devices,
        )
        self.instances[booted.id] = booted
        return booted

    def boot(self, plane: Plane, kubeconfig: Path | None = None) -> Boot:
        """What turns them into nodes."""
        return Boot(kubeconfig or plane.kubeconfig, lambda: list(self.instances.values()), clock=lambda: self.now)


def nodes(plane: Plane) -> dict[str, dict[str, Any]]:
    """By name."""
    return {node["metadata"]["name"]: node for node in plane.kube.get("/api/v1/nodes")["items"]}


def is_ready(node: dict[str, Any]) -> bool:
    """As KWOK keeps it."""
    return any(one["type"] == "Ready" and one["status"] == "True" for one in node["status"].get("conditions", []))


def eventually(holds: Callable[[], object]) -> None:
    """Wait until it does."""
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end, "did not come about"
        time.sleep(0.05)


def test_an_instance_joins_when_it_has_booted(plane: Plane) -> None:
    """Not before; then KWOK makes it ready."""
    cloud = Cloud()
    one, boot = cloud.start(1, joins=3), cloud.boot(plane)
    assert boot.sync() == cloud.now + 3
    assert nodes(plane) == {}
    cloud.now += 3
    boot.sync()
    assert nodes(plane)[one.name]["spec"]["providerID"] == "aws:///us-east-1a/i-0001"
    eventually(lambda: is_ready(nodes(plane)[one.name]))


def test_its_devices_come_later(plane: Plane) -> None:
    """The node is there first, its GPUs when their plugin has registered them."""
    cloud = Cloud()
    one, boot = cloud.start(1, devices=10), cloud.boot(plane)
    boot.sync()
    eventually(lambda: is_ready(nodes(plane)[one.name]))
    assert words.GPU not in nodes(plane)[one.name]["status"]["allocatable"]
    cloud.now += 10
    boot.sync()
    node = nodes(plane)[one.name]
    assert (node["status"]["allocatable"][words.GPU], node["metadata"]["labels"][words.GPU_COUNT]) == ("4", "4")
    assert is_ready(node)


def test_a_node_goes_with_its_instance_and_its_pods_with_it(plane: Plane) -> None:
    """A pod on another node stays."""
    cloud = Cloud()
    one, two, boot = cloud.start(1), cloud.start(2), cloud.boot(plane)
    boot.sync()
    for node in (one, two):
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": node.id},
            "spec": {"nodeName": node.name, "containers": [{"name": "c", "image": "i"}]},
        }
        plane.kube.send("POST", "/api/v1/namespaces/default/pods", pod)
    del cloud.instances[one.id]
    boot.sync()
    assert set(nodes(plane)) == {two.name}
    pods = plane.kube.get("/api/v1/namespaces/default/pods")["items"]
    assert [pod["metadata"]["name"] for pod in pods] == [two.id]


def test_a_node_that_somebody_deleted_already(plane: Plane) -> None:
    """Is no obstacle when its instance ends, and does not come back before."""
    cloud = Cloud()
    one, boot = cloud.start(1), cloud.boot(plane)
    boot.sync()
    plane.kube.send("DELETE", f"/api/v1/nodes/{one.name}")
    boot.sync()
    assert nodes(plane) == {}
    cloud.instances.clear()
    boot.sync()
    assert nodes(plane) == {}


def test_an_instance_that_was_not_told_of_the_cluster_is_no_node(plane: Plane) -> None:
    """Its user data is none of ours; the others join."""
    cloud = Cloud()
    cloud.start(1, told="#!/bin/sh\n")
    two, boot = cloud.start(2), cloud.boot(plane)
    boot.sync()
    assert set(nodes(plane)) == {two.name}


def test_an_address_that_is_used_again(plane: Plane) -> None:
    """The new instance's node takes the place of the old one's."""
    cloud = Cloud()
    one, boot = cloud.start(1), cloud.boot(plane)
    boot.sync()
    cloud.instances.clear()
    cloud.instances["i-new"] = replace(one, id="i-new")
    fresh = cloud.boot(plane)
    fresh.sync()
    assert nodes(plane)[one.name]["spec"]["providerID"] == "aws:///us-east-1a/i-new"


def test_what_an_earlier_stand_in_left_is_cleared(plane: Plane) -> None:
    """Nodes of instances that are not there any more go; on-prem machines stay."""
    cloud = Cloud()
    cloud.start(1)
    cloud.boot(plane).sync()
    register_on_prem(plane.kube, lab())
    Cloud().boot(plane).sync()
    assert set(nodes(plane)) == {"dgx-01"}


def test_an_api_server_that_is_away_is_waited_for(plane: Plane, tmp_path: Path) -> None:
    """Nobody is lost: what should have joined meanwhile joins when it is back."""
    cloud, late = Cloud(), tmp_path / "kubeconfig"
    one = cloud.start(1)
    with running(cloud.boot(plane, late)):
        time.sleep(0.7)
        assert nodes(plane) == {}
        late.write_text(plane.kubeconfig.read_text(encoding="utf-8"), encoding="utf-8")
        eventually(lambda: one.name in nodes(plane))


def test_two_hundred_join_at_once(plane: Plane) -> None:
    """All of them in one round, and all of them go in another."""
    cloud = Cloud()
    for number in range(200):
        cloud.start(number)
    boot = cloud.boot(plane)
    boot.sync()
    assert len(nodes(plane)) == 200
    cloud.instances.clear()
    boot.sync()
    assert nodes(plane) == {}


def test_on_prem_machines_are_registered_once(plane: Plane) -> None:
    """A second time brings their labels up to date."""
    register_on_prem(plane.kube, lab())
    register_on_prem(plane.kube, lab(rack="r9"))
    (node,) = nodes(plane).values()
    assert node["metadata"]["labels"][words.RACK] == "r9"
    assert node["status"]["allocatable"][words.GPU] == "8"
    eventually(lambda: is_ready(nodes(plane)["dgx-01"]))


def lab(**changes: str) -> Inventory:
    """One on-prem machine."""
    gpus = Gpus(product="NVIDIA-A100-SXM4-40GB", count=8, memory="40Gi")
    return Inventory(
        machines=(Machine(name="dgx-01", address="10.20.0.11", cpus=128, memory="1Ti", gpus=gpus, **changes),)  # type: ignore[arg-type]
    )


@contextlib.contextmanager
def running(boot: Boot) -> Iterator[None]:
    """It works in a thread for the length of the block."""
    thread = threading.Thread(target=boot.run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        boot.stop()
        thread.join(timeout=10)
