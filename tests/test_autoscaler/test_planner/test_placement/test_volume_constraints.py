"""Pods with volumes: where these can be used, how many a node takes, and what keeps a pod from every node."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from autoscaler.kube.schema.storage import (
    ClaimJson,
    ClassJson,
    DriversJson,
    VolumeJson,
    claim_from,
    class_from,
    drivers_from,
    volume_from,
)
from autoscaler.model import labels as words
from autoscaler.model.actions import Grow, Memory, Plan
from autoscaler.model.cluster import Cluster, Pod
from autoscaler.model.constraints import Requirement
from autoscaler.model.volumes import NodeDrivers, Storage, Volume, VolumeClaim, VolumeClass
from autoscaler.planner.placement.volume_constraints import Claims
from autoscaler.planner.plan import plan
from tests.builders import a_cluster, a_gang, a_group, a_pod, a_policy, an_on_prem_node, nodes_of

EBS = "ebs.csi.aws.com"
ZONE_B = ((Requirement(words.ZONE, "In", ("us-east-1b",)),),)
WAITS = VolumeClass("gp3", provisioner=EBS, waits=True)


def storage(*claims: VolumeClaim, **more: Any) -> Storage:
    """Everything about volumes, from lists."""
    return Storage(
        claims={(one.namespace, one.name): one for one in claims},
        volumes={one.name: one for one in more.get("volumes", ())},
        classes={one.name: one for one in more.get("classes", ())},
        drivers={one.node: one for one in more.get("drivers", ())},
    )


def claim(name: str = "data", **given: Any) -> VolumeClaim:
    """A claim in the namespace of the builders' pods."""
    return VolumeClaim("team", name, **given)


def decide(cluster: Cluster) -> Plan:
    """The plan for it."""
    return plan(cluster, a_policy(), Memory())


def grown(decided: Plan) -> dict[str, int]:
    """Auto Scaling group -> nodes more."""
    return {step.group: step.by for step in decided.steps if isinstance(step, Grow)}


def why(decided: Plan) -> str:
    """The one reason that is told."""
    (found,) = {one.because for one in decided.waiting}
    return found


def test_a_volume_in_a_zone_draws_its_pod_there() -> None:
    """Not to the machine of ours that is free, nor to the zone whose group comes first."""
    known = storage(claim(volume="pv"), volumes=[Volume("pv", affinity=ZONE_B)])
    decided = decide(a_cluster(pods=[a_pod(claims=("data",))], nodes=[an_on_prem_node(gpus=0)], storage=known))
    assert grown(decided) == {"local-cpu-us-east-1b": 1}


def test_a_volume_s_zone_on_its_labels_counts_too() -> None:
    """But a node that says nothing of zones takes it, as the scheduler has it."""
    volume = Volume("pv", labels={words.ZONE: "us-east-1b"})
    known = storage(claim(volume="pv"), volumes=[volume])
    assert grown(decide(a_cluster(pods=[a_pod(claims=("data",))], storage=known))) == {"local-cpu-us-east-1b": 1}
    at_home = a_cluster(pods=[a_pod(claims=("data",))], nodes=[an_on_prem_node(gpus=0)], storage=known)
    assert grown(decide(at_home)) == {}


def test_a_volume_on_one_machine_draws_its_pod_to_it() -> None:
    """And to no other that is free; where that one is full, nothing is bought."""
    here = ((Requirement(words.HOSTNAME, "In", ("dgx-2",)),),)
    known = storage(claim(volume="pv"), volumes=[Volume("pv", affinity=here)])
    nodes = [an_on_prem_node("dgx-1"), an_on_prem_node("dgx-2")]
    (pod,) = a_gang(pods=1, gpus=1, claims=("data",))
    decided = decide(a_cluster(pods=[pod], nodes=nodes, storage=known))
    assert [step.placements for step in decided.steps] == [((pod.key, "dgx-2"),)]  # type: ignore[union-attr]
    full = a_pod("x", gpus=8, node="dgx-2", phase="Running")
    assert grown(decide(a_cluster(pods=[pod, full], nodes=nodes, storage=known))) == {}


def test_a_claim_that_waits_for_its_pod_goes_where_its_class_makes_volumes() -> None:
    """Its allowed topologies; where there are none, anywhere."""
    there = replace(WAITS, topologies=ZONE_B)
    known = storage(claim(storage_class="gp3"), classes=[there])
    assert grown(decide(a_cluster(pods=[a_pod(claims=("data",))], storage=known))) == {"local-cpu-us-east-1b": 1}
    known = storage(claim(storage_class="gp3"), classes=[WAITS])
    assert grown(decide(a_cluster(pods=[a_pod(claims=("data",))], storage=known))) == {"local-cpu-us-east-1a": 1}


def test_volumes_at_hand_are_taken_where_nothing_makes_them() -> None:
    """A class of local disks: the machine that has a free one of the size, not the one whose disk is too small."""
    on = {name: ((Requirement(words.HOSTNAME, "In", (name,)),),) for name in ("dgx-1", "dgx-2")}
    disks = [
        Volume("small", affinity=on["dgx-1"], storage_class="disk", bytes=10, available=True),
        Volume("large", affinity=on["dgx-2"], storage_class="disk", bytes=100, available=True),
    ]
    local = VolumeClass("disk", provisioner="kubernetes.io/no-provisioner", waits=True)
    known = storage(claim(storage_class="disk", bytes=50), volumes=disks, classes=[local])
    (pod,) = a_gang(pods=1, gpus=1, claims=("data",))
    nodes = [an_on_prem_node("dgx-1"), an_on_prem_node("dgx-2")]
    decided = decide(a_cluster(pods=[pod], nodes=nodes, storage=known))
    assert [step.placements for step in decided.steps] == [((pod.key, "dgx-2"),)]  # type: ignore[union-attr]
    taken = storage(claim(storage_class="disk", bytes=500), volumes=disks, classes=[local])
    decided = decide(a_cluster(pods=[pod], nodes=nodes, storage=taken))
    assert (decided.steps, why(decided)) == ((), "no free volume of class disk suits claim data")


@pytest.mark.parametrize(
    ("known", "reason"),
    [
        (None, "waits until what there is of volumes is known"),
        (storage(), "volume claim data is not there"),
        (storage(claim(deleting=True)), "volume claim data is being deleted"),
        (storage(claim(volume="gone")), "volume gone, which claim data is bound to, is not there"),
        (
            storage(claim(storage_class="now"), classes=[VolumeClass("now", provisioner=EBS)]),
            "volume claim data is not bound, and not by waiting for a pod: its provisioner acts first",
        ),
        (
            storage(claim(storage_class="lost")),
            "volume claim data is not bound, and its StorageClass lost is not there",
        ),
    ],
)
def test_what_only_others_can_mend_is_told_and_never_bought_for(known: Storage | None, reason: str) -> None:
    """The pod waits, in words."""
    decided = decide(a_cluster(pods=[a_pod(claims=("data",))], storage=known))
    assert (decided.steps, why(decided)) == ((), reason)


def test_a_claim_for_one_pod_only_is_for_one_pod() -> None:
    """The one that runs has it; of two that wait the first."""
    once = storage(claim(volume="pv", modes=frozenset({"ReadWriteOncePod"})), volumes=[Volume("pv")])
    running = a_pod("a", claims=("data",), node="n", phase="Running")
    decided = decide(a_cluster(pods=[running, a_pod("b", claims=("data",))], storage=once))
    assert why(decided) == "volume claim data is ReadWriteOncePod, and pod team/a uses it"
    decided = decide(a_cluster(pods=[a_pod("a", claims=("data",)), a_pod("b", claims=("data",))], storage=once))
    assert grown(decided) == {"local-cpu-us-east-1a": 1}
    ended = replace(running, phase="Succeeded")
    assert grown(decide(a_cluster(pods=[ended, a_pod("b", claims=("data",))], storage=once)))


def with_volumes(pods: int, **given: Any) -> tuple[list[Pod], Storage]:
    """So many small pods with a volume each."""
    claims = [claim(f"c{number}", volume=f"v{number}") for number in range(pods)]
    volumes = [Volume(f"v{number}", driver=EBS) for number in range(pods)]
    found = [a_pod(f"p{number}", cpu="100m", memory="64Mi", claims=(f"c{number}",)) for number in range(pods)]
    return found, storage(*claims, volumes=volumes, **given)


def test_a_new_node_takes_as_many_volumes_as_is_known() -> None:
    """25 of EBS where nothing else is known; what a node of the same group says where there is one."""
    pods, known = with_volumes(30)
    assert grown(decide(a_cluster(pods=pods, storage=known))) == {"local-cpu-us-east-1a": 2}
    there = a_group("cpu", joined=1)
    (node,) = nodes_of(there)
    pods, known = with_volumes(30, drivers=[NodeDrivers(node.name, {EBS: 11})])
    full = a_pod("full", cpu=15, node=node.name, phase="Running")
    cluster = a_cluster(pods=[*pods, full], nodes=[node], groups=[there], storage=known)
    assert grown(decide(cluster)) == {there.name: 3}


def test_a_node_that_is_there_takes_what_its_driver_says_less_what_is_attached() -> None:
    """A machine of ours without the driver takes none where others have it."""
    there = a_group("cpu", joined=1)
    (node,) = nodes_of(there)
    pods, known = with_volumes(4, drivers=[NodeDrivers(node.name, {EBS: 3})])
    on_it = replace(pods[0], node=node.name, phase="Running")
    bare = an_on_prem_node(gpus=0)
    decided = decide(a_cluster(pods=[on_it, *pods[1:]], nodes=[node, bare], groups=[there], storage=known))
    assert grown(decided) == {there.name: 1}
    decided = decide(a_cluster(pods=[on_it, *pods[1:3]], nodes=[node, bare], groups=[there], storage=known))
    assert grown(decided) == {}


def test_a_gang_that_shares_a_volume_to_be_made_stays_in_one_zone() -> None:
    """It is made where the first of them starts; the others could not use it elsewhere."""
    known = storage(claim(storage_class="gp3"), classes=[WAITS])
    pods = a_gang(pods=2, cpu=14, claims=("data",))
    groups = [a_group("cpu", zone, maximum=most) for zone, most in (("us-east-1a", 1), ("us-east-1b", 2))]
    assert grown(decide(a_cluster(pods=pods, groups=groups, storage=known))) == {"local-cpu-us-east-1b": 2}


def test_objects_of_a_real_cluster_are_understood() -> None:
    """A claim counts as bound when the controller says that both sides are."""
    meta = {"name": "data", "namespace": "team"}
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "8Gi"}},
        "storageClassName": "gp3",
        "volumeName": "pv",
    }
    unbound = claim_from(msgspec.convert({"metadata": meta, "spec": spec}, ClaimJson))
    assert (unbound.volume, unbound.bytes, unbound.storage_class) == ("", 8 * 2**30, "gp3")
    notes = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
    assert claim_from(msgspec.convert({"metadata": meta | notes, "spec": spec}, ClaimJson)).volume == "pv"
    expression = {"key": words.ZONE, "operator": "In", "values": ["us-east-1b"]}
    raw = {
        "metadata": {"name": "pv"},
        "spec": {
            "capacity": {"storage": "10Gi"},
            "csi": {"driver": EBS},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}},
        },
        "status": {"phase": "Available"},
    }
    volume = volume_from(msgspec.convert(raw, VolumeJson))
    assert (volume.driver, volume.affinity, volume.available) == (EBS, ZONE_B, True)
    raw = {
        "metadata": {"name": "gp3"},
        "provisioner": EBS,
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": [{"matchLabelExpressions": [{"key": words.ZONE, "values": ["us-east-1b"]}]}],
    }
    assert class_from(msgspec.convert(raw, ClassJson)) == replace(WAITS, topologies=ZONE_B)
    raw = {"metadata": {"name": "n"}, "spec": {"drivers": [{"name": EBS, "allocatable": {"count": 26}}, {"name": "x"}]}}
    assert drivers_from(msgspec.convert(raw, DriversJson)) == NodeDrivers("n", {EBS: 26, "x": None})


def test_pods_that_share_a_volume_share_a_zone_only_where_it_is_still_to_be_made_in_one() -> None:
    """A volume that is there says itself where it can be used; a network file system has no zone."""
    pods = [a_pod(name, claims=("data",)) for name in ("a", "b")]
    there = storage(claim(volume="pv-1", storage_class="gp3"), classes=[WAITS], volumes=[Volume("pv-1", driver=EBS)])
    to_be_made = storage(claim(storage_class="gp3"), classes=[WAITS])
    shared = storage(claim(storage_class="nfs"), classes=[VolumeClass("nfs", provisioner="nfs.csi.k8s.io", waits=True)])
    found = [Claims(a_cluster(storage=known)).share_a_zone(pods) for known in (there, to_be_made, shared)]
    assert found == [False, True, False]
    assert not Claims(a_cluster(storage=to_be_made)).share_a_zone(pods[:1])
