"""Pods with volumes on a real control plane: what is planned for them is what the real scheduler then binds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from autoscaler.model import labels as words
from stacks.local.kubeapi.client import KubeHttp
from tests.live.conftest import Plane
from tests.live.hybrid import Aws, autoscaler, bound, gpu_pod, make_pod, stand_in_aws, until, write_policy

pytestmark = pytest.mark.live
POLICY = """
cluster: test
groups:
  - name: cpu
    instance_type: m5.4xlarge
    zones: [us-east-1a, us-east-1b]
    max: 4
    usd_per_hour: 0.768
scale_down: {idle_after: 60s}
"""
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
DRIVERS = "/apis/storage.k8s.io/v1/csinodes"
DRIVER = "disks.example.org"


@dataclass(frozen=True, slots=True)
class Ground:
    """A control plane with a group in two zones."""

    kube: KubeHttp
    plane: Plane
    aws: Aws
    policy: Path
    directory: Path

    def run(self) -> Any:
        """`spillway autoscale run`."""
        config, log = self.plane.autoscaler_kubeconfig, self.directory / "autoscaler.log"
        return autoscaler(policy=self.policy, env=self.aws.env, kubeconfig=config, log=log)

    def zone_of(self, pod: str) -> str:
        """Of the node that the pod is bound to."""
        node = self.kube.get(f"/api/v1/nodes/{bound(self.kube, pod)}")
        return str(node["metadata"]["labels"].get(words.ZONE, ""))


@pytest.fixture
def ground(plane: Plane, tmp_path: Path) -> Iterator[Ground]:
    """Emptied of its volumes in the end."""
    file, policy = write_policy(tmp_path, POLICY)
    with stand_in_aws(tmp_path / "aws", kubeconfig=plane.kubeconfig, boot_delay="500ms") as aws:
        aws.make_groups(policy)
        try:
            yield Ground(plane.kube, plane, aws, file, tmp_path)
        finally:
            plane.kube.send("DELETE", "/api/v1/namespaces/default/pods?gracePeriodSeconds=0")
            for path in (CLAIMS, VOLUMES, CLASSES, DRIVERS):
                plane.kube.send("DELETE", path)


def pod(name: str, *claims: str) -> dict[str, Any]:
    """A small pod with volumes."""
    made = gpu_pod(name)
    made["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1", "memory": "1Gi"}}
    made["spec"]["volumes"] = [{"name": one, "persistentVolumeClaim": {"claimName": one}} for one in claims]
    return made


def make_claim(kube: KubeHttp, name: str, *, storage_class: str, mode: str = "ReadWriteOnce") -> None:
    """Of one GiB."""
    resources = {"requests": {"storage": "1Gi"}}
    spec = {"accessModes": [mode], "resources": resources, "storageClassName": storage_class}
    body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}
    kube.send("POST", CLAIMS, body)


def make_volume(
    kube: KubeHttp, name: str, *, storage_class: str, key: str, value: str, mode: str = "ReadWriteOnce"
) -> None:
    """That can be used where the label says."""
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
    spec = {
        "accessModes": [mode],
        "capacity": {"storage": "1Gi"},
        "storageClassName": storage_class,
        "csi": {"driver": DRIVER, "volumeHandle": name},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        "claimRef": None,
    }
    kube.send(
        "POST", VOLUMES, {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}
    )


def make_class(kube: KubeHttp, name: str, **more: Any) -> None:
    """Whose volumes wait for their first pod."""
    body = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    kube.send("POST", CLASSES, body | more)


def make_drivers(kube: KubeHttp, node: str, *, count: int) -> None:
    """The CSINode that a kubelet writes: the scheduler waits for one after it has refused a pod for its volumes."""
    driver = {"name": DRIVER, "nodeID": node, "allocatable": {"count": count}}
    body = {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": node}}
    kube.send("POST", DRIVERS, body | {"spec": {"drivers": [driver]}})


def of_ec2(kube: KubeHttp) -> str:
    """The node that was bought; empty while there is none."""
    names = [one["metadata"]["name"] for one in kube.get("/api/v1/nodes")["items"]]
    return next((name for name in names if name != "there"), "")


def is_bound(kube: KubeHttp, claim: str) -> bool:
    """Whether the controller has given it a volume."""
    return bool(kube.get(f"{CLAIMS}/{claim}").get("status", {}).get("phase") == "Bound")


def test_a_node_is_bought_in_the_zone_of_the_volume(ground: Ground) -> None:
    """One that is bound already, one that waits for its pod, and one that is for one pod only."""
    once = "ReadWriteOncePod"
    make_volume(ground.kube, "there", storage_class="now", key=words.ZONE, value="us-east-1b", mode=once)
    make_class(ground.kube, "now", volumeBindingMode="Immediate")
    make_claim(ground.kube, "there", storage_class="now", mode=once)
    until(partial(is_bound, ground.kube, "there"))
    make_volume(ground.kube, "waits", storage_class="later", key=words.ZONE, value="us-east-1b")
    make_class(ground.kube, "later")
    make_claim(ground.kube, "waits", storage_class="later")
    with ground.run() as brain:
        make_pod(ground.kube, pod("a", "there"))
        until(partial(bound, ground.kube, "a"), told=brain.texts)
        make_pod(ground.kube, pod("b", "waits"))
        until(partial(bound, ground.kube, "b"), told=brain.texts)
        make_pod(ground.kube, pod("c", "there"))
        until(lambda: "ReadWriteOncePod, and pod default/a uses it" in brain.texts(), told=brain.texts)
        make_pod(ground.kube, pod("d", "nowhere"))
        until(lambda: "volume claim nowhere is not there" in brain.texts(), told=brain.texts)
        claims = pod("e")
        claims["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "one"}]
        make_pod(ground.kube, claims)
        until(lambda: "does not plan for: resource claims (gpu)" in brain.texts(), told=brain.texts)
        assert brain.stop() == 0
    assert {ground.zone_of("a"), ground.zone_of("b")} == {"us-east-1b"}
    assert is_bound(ground.kube, "waits")
    assert [one["parameters"]["AutoScalingGroupName"] for one in ground.aws.asked()] == ["test-cpu-us-east-1b"]


def test_a_node_that_takes_no_more_volumes_takes_no_more_pods(ground: Ground) -> None:
    """Its driver says two: for the third pod a node is bought, though there is room for it, as the scheduler has it."""
    ground.plane.fake_node("there")
    make_drivers(ground.kube, "there", count=2)
    make_class(ground.kube, "now", volumeBindingMode="Immediate")
    for number in range(3):
        make_volume(ground.kube, f"v{number}", storage_class="now", key=words.OS, value="linux")
        make_claim(ground.kube, f"c{number}", storage_class="now")
    ground.kube.send("PATCH", "/api/v1/nodes/there", {"metadata": {"labels": {words.OS: "linux"}}}, content=MERGE)
    for number in range(3):
        until(partial(is_bound, ground.kube, f"c{number}"))
    with ground.run() as brain:
        for number in range(3):
            make_pod(ground.kube, pod(f"p{number}", f"c{number}"))
        new = until(partial(of_ec2, ground.kube), told=brain.texts)
        make_drivers(ground.kube, new, count=2)
        for number in range(3):
            until(partial(bound, ground.kube, f"p{number}"), told=brain.texts)
        assert brain.stop() == 0
    homes = [bound(ground.kube, f"p{number}") for number in range(3)]
    assert homes.count("there") == 2
    assert [one["parameters"]["RequestedCapacity"] for one in ground.aws.asked()] == ["1"]


MERGE = "application/merge-patch+json"
