"""Auto Scaling groups that the policy names and AWS does not have yet, and one that would have to be added."""

from __future__ import annotations

from dataclasses import replace

from autoscaler.config.labels_and_taints import TaintEntry
from autoscaler.model.constraints import Requirement, Taint
from autoscaler.model.labels import GPU, REGION, ZONE
from autoscaler.planner.obstacles.unbuilt_groups import NO_PRICE, added, added_for, unbuilt_groups
from autoscaler.planner.placement.snapshot import Snapshot
from tests.builders import a_cluster, a_group, a_pod, a_policy, an_entry

A, B = "us-east-1a", "us-east-1b"


def missing(*groups: object, policy: object = None) -> list[tuple[str, str]]:
    """Entries and zones without a group."""
    found = unbuilt_groups(a_cluster(groups=groups), policy or a_policy(an_entry("cpu"), an_entry("gpu-a100")))  # type: ignore[arg-type]
    return [(group.entry, group.zone) for group in found]


def test_each_zone_of_an_entry_without_a_group_has_one_to_come() -> None:
    """By entry and zone, not by the one or the other."""
    assert missing() == [("cpu", A), ("cpu", B), ("gpu-a100", A), ("gpu-a100", B)]
    assert missing(a_group("cpu", A), a_group("gpu-a100", B)) == [("cpu", B), ("gpu-a100", A)]
    assert missing(*(a_group(entry, zone) for entry in ("cpu", "gpu-a100") for zone in (A, B))) == []


def test_an_entry_that_was_called_otherwise_has_the_groups_of_that_name() -> None:
    """Where they stand: a zone in which neither stands is missing."""
    renamed = a_policy(an_entry("cpu", formerly=("old",)))
    assert missing(a_group("old", A), policy=renamed) == [("cpu", B)]
    assert missing(a_group("gpu-a100", A), policy=renamed) == [("cpu", A), ("cpu", B)]


def test_a_node_to_come_is_like_one_of_the_same_type_with_what_the_entry_says() -> None:
    """Room, price, vCPUs and labels of the group that stands; its own labels, taints, resources and maximum."""
    known = a_group("cpu", A, labels={"known": "yes", "tier": "old"}, vcpus=16)
    entry = an_entry(
        "batch",
        instance_type="m5.4xlarge",
        zones=(B,),
        max=3,
        labels={"tier": "new"},
        taints=(TaintEntry(key="batch", value="x"),),
        resources={"example.com/fpga": 2},
        capacity_type="spot",
    )
    [group] = unbuilt_groups(a_cluster(groups=[known]), a_policy(entry))
    assert (group.name, group.entry, group.zone) == ("local-batch-us-east-1b", "batch", B)
    assert (group.instance_type, group.maximum, group.vcpus, group.usd_per_hour) == ("m5.4xlarge", 3, 16, 0.768)
    assert dict(group.allocatable) == dict(known.allocatable) | {"example.com/fpga": 2}
    assert group.labels == {"known": "yes", "tier": "new", REGION: "us-east-1"}
    assert (group.taints, group.capacity_type, group.mixed) == ((Taint("batch", "x"),), "spot", False)
    assert (group.reservation, bool(group.quota)) == ("", True)
    [own] = unbuilt_groups(a_cluster(groups=[known]), a_policy(entry.model_copy(update={"usd_per_hour": 0.5})))
    assert own.usd_per_hour == 0.5


def test_of_a_type_that_nobody_has_the_name_tells_the_room_and_nothing_the_price() -> None:
    """It costs more than nothing, and no cent."""
    [group] = unbuilt_groups(a_cluster(groups=[]), a_policy(an_entry("cpu", zones=(A,))))
    assert (group.usd_per_hour, group.vcpus, group.labels) == (NO_PRICE, 16, {REGION: "us-east-1"})
    assert 14_000 <= group.allocatable["cpu"] <= 16_000
    assert 0 < NO_PRICE < 0.01
    several = an_entry("cpu", zones=(A,), instance_type=None, instance_types=("m5.4xlarge", "m5a.4xlarge"))
    [mixed] = unbuilt_groups(a_cluster(groups=[]), a_policy(several))
    assert (mixed.instance_type, mixed.mixed) == ("m5.4xlarge or m5a.4xlarge", True)


def test_a_capacity_reservation_stands_for_the_quota() -> None:
    """Its nodes draw on nothing else."""
    entry = an_entry("cpu", zones=(A,), capacity_reservation="cr-0123456789abcdef0")
    [group] = unbuilt_groups(a_cluster(groups=[]), a_policy(entry))
    assert (group.quota, group.reservation) == ("cr-0123456789abcdef0",) * 2


def test_an_added_node_holds_the_largest_of_each_and_has_the_labels_that_are_selected() -> None:
    """Those of the first way that each selects: a value that is asked for, or any."""
    first = (Requirement("site", "In", ("x", "y")), Requirement("disk", "Exists"), Requirement("old", "NotIn", ("z",)))
    pods = [
        a_pod("a", cpu=4, memory="1Gi", affinity=(first, (Requirement("other", "Exists"),))),
        a_pod("b", cpu=1, memory="8Gi", gpus=2, affinity=((Requirement("site", "Exists"),),)),
        a_pod("c", cpu=2),
    ]
    snapshot = Snapshot((), (), pods)
    offering = added_for([snapshot.shape(pod) for pod in pods], a_policy())
    group = offering.group
    assert dict(group.allocatable) == {"cpu": 4000, "memory": 8 * 2**30, GPU: 2, "pods": 1}
    assert group.labels == {"site": "x", "disk": "true"}
    assert (offering.buyable, group.zone, group.usd_per_hour) == (0, A, NO_PRICE)
    place = offering.new_place("new")
    assert place.labels[ZONE] == A
    assert place.free == dict(group.allocatable)


def test_an_added_node_is_in_the_first_zone_of_the_policy_else_of_its_region() -> None:
    """A policy may name no entry yet."""
    assert added({}, {}, a_policy(an_entry("cpu", zones=(B,)))).group.zone == B
    none = replace_groups(a_policy())
    assert added({}, {}, none).group.zone == f"{none.region}a"


def replace_groups(policy: object) -> object:
    """Without entries."""
    return policy.model_copy(update={"groups": ()})  # type: ignore[attr-defined]


def test_a_group_alike_is_of_the_same_type_only() -> None:
    """Labels of another type's nodes are not taken over."""
    other = replace(a_group("gpu-a100", A), labels={"gpu": "yes"})
    found = unbuilt_groups(a_cluster(groups=[other]), a_policy(an_entry("cpu", zones=(A,))))
    assert found[0].labels == {REGION: "us-east-1"}
