"""Volume claims of a file: what it says of them is honoured, and what it leaves out is taken for granted and told."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from autoscaler.inputs.asked import Asked
from autoscaler.inputs.kube_lists import objects_in
from autoscaler.inputs.listed_pods import asked_in
from autoscaler.inputs.offline_plan import OfflinePlan, plan_offline
from autoscaler.model.errors import BadInput
from autoscaler.model.instance_types import Price
from autoscaler.model.labels import ZONE
from autoscaler.model.resources import Resources

CATALOG = (Price("c.large", "amd64", Resources.parse({"cpu": "8", "memory": "16Gi", "pods": "30"}), 0.4),)
THERE = "to make its volumes where their pods run"
EBS = f"ebs.csi.aws.com is taken {THERE}"
DEFAULT = "the cluster's default StorageClass is not in the file"


def pod(name: str, *claims: str, **requests: str) -> dict[str, Any]:
    """A pod with these claims."""
    volumes = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
    containers = [{"name": "c", "resources": {"requests": {"cpu": "1", **requests}}}]
    return manifest("Pod", name, {"containers": containers, "volumes": volumes})


def manifest(kind: str, name: str, spec: dict[str, Any], version: str = "v1") -> dict[str, Any]:
    """An object of a file."""
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def claim(name: str, mode: str = "ReadWriteOnce", **spec: Any) -> dict[str, Any]:
    """A claim that nothing has bound yet."""
    wanted = {"accessModes": [mode], "resources": {"requests": {"storage": "5Gi"}}, **spec}
    return manifest("PersistentVolumeClaim", name, wanted)


def scratch_volume(**spec: Any) -> dict[str, Any]:
    """A volume that is made with its pod."""
    return {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}


def volume(name: str, zone: str = "", **spec: Any) -> dict[str, Any]:
    """A volume, which may be used in one zone."""
    here = {"key": ZONE, "operator": "In", "values": [zone]}
    place = {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}}} if zone else {}
    made = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "5Gi"}, "csi": {"driver": "ebs.csi.aws.com"}}
    return manifest("PersistentVolume", name, {**made, **place, **spec})


def storage_class(name: str, mode: str, *, is_default: bool = False) -> dict[str, Any]:
    """A class of EBS."""
    marks = {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}} if is_default else {}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name, **marks},
        "provisioner": "ebs.csi.aws.com",
        "volumeBindingMode": mode,
    }


def asked(*objects: dict[str, Any]) -> Asked:
    """What a stream of documents asks for."""
    return asked_in(objects_in(yaml.safe_dump_all(objects), "f"), "f")


def planned(*objects: dict[str, Any], zones: tuple[str, ...] = ()) -> OfflinePlan:
    """What is bought for it."""
    return plan_offline(asked(*objects), CATALOG, zones=zones)


def test_pods_of_a_stateful_set_have_claims_of_their_own() -> None:
    """Named as its controller and that of ephemeral volumes name them; the class of neither is in the file."""
    template = {"spec": {"containers": [{"name": "c"}], "volumes": [scratch_volume(storageClassName="fast")]}}
    spec = {"replicas": 2, "template": template, "volumeClaimTemplates": [claim("data")]}
    found = asked(manifest("StatefulSet", "db", spec, "apps/v1"))
    assert [one.claims for one in found.pods] == [
        ("data-db-0", "db-0-scratch"),
        ("data-db-1", "db-1-scratch"),
    ]
    assert found.storage is not None
    assert {name: one.storage_class for (_, name), one in found.storage.claims.items()} == {
        "data-db-0": "the cluster's default",
        "data-db-1": "the cluster's default",
        "db-0-scratch": "fast",
        "db-1-scratch": "fast",
    }
    assert found.notes == (
        f"{DEFAULT}: {EBS}",
        f"StorageClass fast is not in the file: {EBS}",
    )


def test_a_pod_has_claims_for_its_ephemeral_volumes() -> None:
    """Made by the controller of such volumes, of what the pod itself says; the file's own claim goes before."""
    web = pod("web")
    web["spec"]["volumes"] = [scratch_volume(storageClassName="fast")]
    found = asked(web)
    assert found.storage is not None
    assert found.storage.claims["default", "web-scratch"].storage_class == "fast"
    assert found.notes == (f"StorageClass fast is not in the file: {EBS}",)
    there = claim("web-scratch", storageClassName="slow")
    for objects in (web, there), (there, web):
        storage = asked(*objects).storage
        assert storage is not None
        assert storage.claims["default", "web-scratch"].storage_class == "slow"


_WRONG = {"resources": {"requests": {"storage": "5Gx"}}}


@pytest.mark.parametrize(
    "wrong",
    [
        volume("v", capacity={"storage": "5Gx"}),
        claim("v", **_WRONG),
        manifest("Pod", "v", {"containers": [], "volumes": [scratch_volume(**_WRONG)]}),
        manifest("StatefulSet", "v", {"volumeClaimTemplates": [claim("data", **_WRONG)]}, "apps/v1"),
    ],
    ids=lambda wrong: str(wrong["kind"]),
)
def test_an_amount_of_a_volume_that_is_none_is_told_with_its_object(wrong: dict[str, Any]) -> None:
    """Also where no pod uses it."""
    with pytest.raises(BadInput, match=f"^f: {wrong['kind']} v: '5Gx' is not a quantity"):
        asked(wrong)


@pytest.mark.parametrize(
    ("objects", "note"),
    [
        ((claim("data", storageClassName="fast"),), f"StorageClass fast is not in the file: {EBS}"),
        ((), "volume claim data is not in the file: volumes are taken to be made where their pods run"),
        (
            (claim("data", mode="ReadWriteMany"),),
            f"{DEFAULT}: a driver of volumes that several nodes use is taken {THERE}",
        ),
        (
            (claim("data", storageClassName="now"), storage_class("now", "Immediate")),
            "StorageClass now binds at once: its volumes are taken to be where their pods run",
        ),
        ((claim("data"), storage_class("usual", "WaitForFirstConsumer", is_default=True)), None),
        ((claim("data", storageClassName="manual"), volume("v", storageClassName="manual")), None),
        ((claim("data", storageClassName="", volumeName="v"), volume("v")), None),
        ((claim("data", storageClassName=""), volume("v", claimRef={"name": "data"})), None),
    ],
)
def test_a_pod_with_a_claim_is_placed(objects: tuple[dict[str, Any], ...], note: str | None) -> None:
    """As a cluster on EC2 would have it; what was taken for granted is told."""
    read = asked(pod("web", "data"), *objects)
    assert read.notes == ((note,) if note else ())
    assert list(plan_offline(read, CATALOG).placements) == ["web"]


def test_a_claim_that_no_volume_of_its_class_suits_waits() -> None:
    """The class gives out the volumes of the file, and makes none."""
    found = planned(
        pod("web", "data"),
        claim("data", storageClassName="manual"),
        volume("v", storageClassName="manual", capacity={"storage": "1Gi"}),
    )
    assert [one.reason for one in found.waiting] == ["no free volume of class manual suits claim data"]


def test_a_volume_that_is_kept_for_a_claim_of_another_namespace_is_not_given_out() -> None:
    """Two namespaces have a claim of that name; the volume is for one of them."""
    kept = volume("v", storageClassName="manual", claimRef={"namespace": "other", "name": "data"})
    found = planned(pod("web", "data"), claim("data", storageClassName="manual"), kept)
    assert [one.reason for one in found.waiting] == ["no free volume of class manual suits claim data"]


def test_a_pod_goes_where_its_volume_is() -> None:
    """The zone of the volume is bought in where none is named; where others are, that is what has to change."""
    objects = (pod("web", "data"), claim("data", storageClassName="", volumeName="v"), volume("v", "us-east-1c"))
    assert [node.zone for node in planned(*objects).nodes] == ["us-east-1c"]
    [waits] = planned(*objects, zones=("us-east-1a",)).waiting
    assert (
        "no match for the node affinity of the pod's volume (topology.kubernetes.io/zone is us-east-1c)" in waits.reason
    )
    assert waits.would_fit_if == (
        "a group of instances with 1 cpu, with label topology.kubernetes.io/zone=us-east-1c is added to the policy"
    )


def test_a_node_takes_so_many_volumes_of_ebs() -> None:
    """25: a node more is bought for those above."""
    pods = [pod(f"p-{number}", *(f"c-{number}-{one}" for one in range(13)), cpu="100m") for number in range(4)]
    assert len(planned(*pods).nodes) == 4


def test_what_pods_write_goes_on_the_root_volume() -> None:
    """100 GiB, as of a group that does not say, or what a pod needs; beyond what EBS makes it is told what lacks."""
    assert len(planned(pod("web", **{"ephemeral-storage": "80Gi"})).placements) == 1
    assert len(planned(pod("web", **{"ephemeral-storage": "200Gi"})).placements) == 1
    [waits] = planned(pod("web", **{"ephemeral-storage": "70Ti"})).waiting
    assert waits.reason.startswith("asks 70Ti ephemeral-storage on one node; the largest machine has 89Gi (c-large-on")


def test_the_amount_that_every_machine_lacks_is_the_reason() -> None:
    """And not one that only some lack; where each amount is had somewhere, the machine that comes nearest is named."""
    tiny = Price("t.tiny", "amd64", Resources.parse({"cpu": "900m", "memory": "64Gi", "pods": "30"}), 0.1)
    catalog = (*CATALOG, tiny)
    tpu = plan_offline(asked(pod("web", **{"google.com/tpu": "4"})), catalog)
    assert [one.reason for one in tpu.waiting] == ["asks 4 google.com/tpu; no machine has any"]
    [both] = plan_offline(asked(pod("web", cpu="2", memory="32Gi")), catalog).waiting
    assert both.reason.startswith("asks 2 cpu and 32Gi memory on one node; no machine has all of it: c-large-on-demand")
    assert "comes nearest, with 16Gi memory" in both.reason
