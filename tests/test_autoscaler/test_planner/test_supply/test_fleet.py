"""What is there and what is on its way: nodes, their groups, and instances that no node stands for."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from autoscaler.model import labels as words
from autoscaler.model.cluster import Group, Node, Notice, Refusal
from autoscaler.model.constraints import Taint
from autoscaler.model.resources import CPU, PODS, Resources
from autoscaler.planner.supply import candidate_nodes, fleet, node_places
from autoscaler.planner.supply.candidate_nodes import Place
from tests.builders import NOW, a_cluster, a_daemon_set, a_group, a_pod, a_policy, an_on_prem_node, nodes_of

POLICY = a_policy()
BOOT = POLICY.scale_up.boot_timeout
REFUSAL = POLICY.scale_up.refusal_backoff
REFUSED = Refusal(NOW, "InsufficientInstanceCapacity")
SECOND = timedelta(seconds=1)
OURS = {"cordoned": True, "cordoned_by": words.AUTOSCALER}


def seen(group: Group, nodes: Any = None, **look: Any) -> fleet.Fleet:
    """Of one group; its nodes are those of its instances."""
    return fleet.survey(
        a_cluster(groups=[group], nodes=nodes_of(group) if nodes is None else nodes, **look), POLICY, {}
    )


def place(node: Node, group: Group | None = None, **look: Any) -> Place:
    """The only one."""
    (found,) = fleet.survey(a_cluster(groups=[group] if group else [], nodes=[node], **look), POLICY, {}).places
    return found


def sizes(group: Group, **look: Any) -> tuple[int, int, int, int]:
    """Nodes that it has or may get, its desired capacity then, nodes being ended, and nodes on their way."""
    found = seen(group, nodes_of(group)[: look.pop("joined", None)], **look)
    return found.size_of(group), found.desired_of(group), found.ending_of(group), found.outstanding[group.name]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"joined": 2}, (2, 2, 0, 0)),
        ({"joined": 2, "desired": 5}, (5, 5, 0, 3)),
        ({"joined": 3, "desired": 1}, (3, 1, 0, 0)),
        ({"joined": 1, "desired": 1, "launching": 2}, (3, 1, 0, 0)),
        ({"joined": 1, "desired": 4, "refusals": (REFUSED,)}, (1, 1, 0, 0)),
        ({"joined": 1, "desired": 4, "minimum": 2, "refusals": (REFUSED,)}, (2, 2, 0, 1)),
    ],
)
def test_how_many_nodes_a_group_has_or_may_get(given: dict[str, Any], expected: tuple[int, ...]) -> None:
    """By what lives, what is tried and what was asked for; what EC2 refused of late does not count."""
    assert sizes(a_group("cpu", **given)) == expected


@pytest.mark.parametrize(("past", "size"), [(-SECOND, 1), (timedelta(), 4), (SECOND, 4)])
def test_a_refusal_is_forgotten_when_its_time_is_over(past: timedelta, size: int) -> None:
    """At that very moment."""
    group = a_group("cpu", joined=1, desired=4, refusals=(REFUSED,))
    assert sizes(group, seen_at=NOW + REFUSAL + past)[0] == size


@pytest.mark.parametrize(("past", "lost"), [(-SECOND, 0), (timedelta(), 1)])
def test_an_instance_that_no_node_stands_for_in_time_is_lost(past: timedelta, lost: int) -> None:
    """From that moment on; it is billed until it is ended."""
    group = a_group("cpu", joined=2)
    found = sizes(group, joined=1, seen_at=NOW + BOOT + past)
    assert found == (2 - lost, 2 - lost, lost, 1 - lost)


@pytest.mark.parametrize(
    ("state", "is_down", "ending"), [("in-service", False, 0), ("terminating", False, 1), ("terminating", True, 0)]
)
def test_what_is_being_ended_is_billed_until_it_is_down(state: str, is_down: bool, ending: int) -> None:  # noqa: FBT001
    """And counts among the nodes no more."""
    group = a_group("cpu", joined=2)
    gone = replace(group.instances[0], state=state, is_down=is_down)
    group = replace(group, instances=(gone, *group.instances[1:]), desired=1)
    found = seen(group)
    assert found.ending_of(group) == ending
    assert found.size_of(group) == (1 if state == "terminating" else 2)
    assert bool(found.unusable) == (state == "terminating")


@pytest.mark.parametrize(
    ("node", "why"),
    [
        ({}, ""),
        ({"deleting": True}, "being deleted"),
        ({"cordoned": True, "cordoned_by": "ada"}, "cordoned by someone else"),
        (OURS, ""),
        ({"ready": False, "created": NOW - BOOT}, "not ready"),
        ({"ready": False, "created": NOW - BOOT + SECOND}, ""),
    ],
)
def test_why_a_node_cannot_be_used(node: dict[str, Any], why: str) -> None:
    """A node that is still starting can; a machine of the lab that is not ready cannot, however new."""
    group = a_group("cpu", joined=1)
    assert "".join(seen(group, nodes_of(group, **node)).unusable.values()) == why
    machine = an_on_prem_node("m", **node | {"created": NOW})
    assert "".join(seen(a_group("cpu"), [machine]).unusable.values()) == (
        "not ready" if node.get("ready") is False else why
    )


@pytest.mark.parametrize(
    ("node", "tier"),
    [
        ({}, candidate_nodes.EC2_TIER),
        (OURS, candidate_nodes.CORDONED_TIER),
        ({"ready": False}, candidate_nodes.COMING_TIER),
        ({"allocatable": Resources({CPU: 4000})}, candidate_nodes.COMING_TIER),
        ({"allocatable": Resources({CPU: 4000}), "created": NOW - BOOT}, candidate_nodes.EC2_TIER),
    ],
)
def test_in_which_order_nodes_are_filled(node: dict[str, Any], tier: int) -> None:
    """One whose devices have not registered yet is still to come, until its time is over."""
    group = a_group("gpu-a10g", joined=1)
    assert place(nodes_of(group, **node)[0], group).tier == tier


def test_machines_of_the_lab_come_first_and_strays_of_ec2_with_their_kind() -> None:
    """By where they say that they are from, or by their provider's id."""
    assert place(an_on_prem_node("m")).tier == candidate_nodes.ON_PREM_TIER
    group = a_group("cpu", joined=1)
    (node,) = nodes_of(group)
    assert place(node).tier == candidate_nodes.EC2_TIER
    unmarked = replace(node, labels={words.HOSTNAME: node.name})
    assert place(unmarked).tier == candidate_nodes.EC2_TIER
    assert place(replace(unmarked, provider_id="")).tier == candidate_nodes.ON_PREM_TIER


@pytest.mark.parametrize(("labels", "hostname"), [({words.HOSTNAME: "rack-7"}, "rack-7"), ({}, "m")])
def test_a_node_is_the_host_that_its_label_says_else_its_name(labels: dict[str, str], hostname: str) -> None:
    """Rules between pods by host count by the label; a kubelet may be told another than the node's name."""
    assert place(replace(an_on_prem_node("m"), labels=labels)).labels[words.HOSTNAME] == hostname


def test_a_node_that_is_still_to_come_has_what_its_group_promises() -> None:
    """Of each resource what it has registered, else the promise; its labels too."""
    group = a_group("gpu-a10g", joined=1, labels={"team": "vision"})
    (node,) = nodes_of(group, allocatable=Resources({CPU: 40000}), labels={words.HOSTNAME: "other"})
    found = place(node, group)
    assert found.free[CPU] == 40000
    assert found.free[words.GPU] == group.allocatable[words.GPU]
    assert (found.labels[words.HOSTNAME], found.labels["team"]) == ("other", "vision")
    assert not found.standing


def test_a_new_node_has_the_labels_that_its_kubelet_and_the_roles_add() -> None:
    """The kubelet its processor under two names, the roles that there are GPUs; what the group says goes first."""
    made = node_places.new_place(a_group("gpu-a10g", labels={words.ARCH: "arm64"}), "new", {CPU: 1})
    assert (made.labels[words.OLD_ARCH], made.labels[words.OLD_OS], made.labels[words.GPU_PRESENT]) == (
        "arm64",
        "linux",
        "true",
    )
    other = node_places.new_place(a_group("gpu-a10g", labels={words.GPU_PRESENT: "no"}), "new", {CPU: 1})
    assert other.labels[words.GPU_PRESENT] == "no"


def test_a_mixed_group_says_no_type_of_its_new_nodes() -> None:
    """Whichever comes; all else is known."""
    group = a_group("cpu", labels={"team": "vision"})
    made = node_places.new_place(group, "new", {CPU: 1})
    assert made.labels == {
        words.ZONE: "us-east-1a",
        words.INSTANCE_TYPE: "m5.4xlarge",
        words.CAPACITY_TYPE: group.capacity_type,
        words.ORIGIN: words.EC2,
        words.GROUP: "cpu",
        words.OLD_ARCH: "amd64",
        words.OLD_OS: "linux",
        words.ARCH: "amd64",
        words.OS: "linux",
        "team": "vision",
        words.HOSTNAME: "new",
    }
    assert (made.tier, made.standing, made.free) == (candidate_nodes.COMING_TIER, False, {CPU: 1})
    mixed = replace(group, mixed=True)
    assert words.INSTANCE_TYPE not in node_places.labels_of(mixed, "new")


def test_room_is_kept_for_daemons_that_have_not_come_yet() -> None:
    """Of those that run on such nodes; one that is there has its room already."""
    group = a_group("cpu", joined=1)
    (node,) = nodes_of(group)
    daemons = [a_daemon_set("a", cpu="100m"), a_daemon_set("b", cpu="300m")]
    elsewhere = replace(a_daemon_set("c", cpu="500m"), affinity=(a_pod(selector={"team": "x"}).affinity[0],))
    bare = place(node, group).free
    found = place(node, group, daemon_sets=[*daemons, elsewhere]).free
    assert bare[CPU] - found[CPU] == 400
    assert bare["pods"] - found["pods"] == 2
    there = a_pod(
        "a-1", node=node.name, phase="Running", owner="DaemonSet/a", namespace="kube-system", cpu="100m", is_daemon=True
    )
    assert bare[CPU] - place(node, group, daemon_sets=daemons, pods=[there]).free[CPU] == 400
    room = seen(group, daemon_sets=[*daemons, elsewhere]).room_of(group)
    assert (room[CPU], room[PODS]) == (group.allocatable[CPU] - 400, group.allocatable[PODS] - 2)


def test_only_reserved_nodes_are_told_as_reserved() -> None:
    """And a reservation is no taint to those that it is for."""
    group = a_group("cpu", joined=2)
    mine, other = nodes_of(group)
    mine = replace(mine, taints=(Taint(words.RESERVED, "team/p", "NoSchedule"), Taint("own", "", "NoSchedule")))
    found = seen(group, [mine, other])
    assert [one.name for one in found.reserved] == [mine.name]
    assert [taint.key for taint in found.reserved[0].taints] == ["own"]


@pytest.mark.parametrize(("past", "is_of_it"), [(-SECOND, True), (timedelta(), False)])
def test_a_new_node_belongs_to_its_group_before_aws_lists_its_instance(past: timedelta, is_of_it: bool) -> None:  # noqa: FBT001
    """By its labels, for a while: an old one's instance was detached, or is gone."""
    group = a_group("cpu", joined=1)
    (node,) = nodes_of(group)
    found = seen(replace(group, instances=(), desired=1), [node], seen_at=NOW + fleet._LISTED_WITHIN + past)
    assert (node.name in found.group_of) == is_of_it
    assert not found.is_listed(node)
    other = replace(node, labels={**node.labels, words.ZONE: "us-east-1b"})
    assert seen(replace(group, instances=(), desired=1), [other]).group_of == {}


@pytest.mark.parametrize(
    ("joined", "node", "ready", "has"),
    [
        (1, {}, True, True),
        (1, {"ready": False, "created": NOW}, False, False),
        (1, {"allocatable": Resources({CPU: 4000})}, True, False),
    ],
)
def test_pods_can_be_bound_to_what_has_joined(joined: int, node: dict[str, Any], ready: bool, has: bool) -> None:  # noqa: FBT001
    """Its kubelet is ready, it is not closed, and its devices have registered."""
    group = a_group("gpu-a10g", joined=joined)
    found = place(nodes_of(group, **node)[0], group)
    assert (node_places.is_ready(found), node_places.has_joined(found)) == (ready, has)
    ours = place(nodes_of(group, **OURS)[0], group)
    assert not node_places.is_ready(ours)
    assert not node_places.is_ready(node_places.new_place(group, "new", {}))


@pytest.mark.parametrize(("past", "holds"), [(-SECOND, True), (timedelta(), False)])
@pytest.mark.parametrize("ends", [None, NOW + timedelta(minutes=2)])
def test_a_notice_holds_for_a_while_after_it_should_have_come_true(
    ends: datetime | None,
    past: timedelta,
    holds: bool,  # noqa: FBT001
) -> None:
    """An hour after its time, or after it was told; of nodes of a group that are not being ended anyway."""
    group = a_group("cpu", joined=2)
    first, second = nodes_of(group)
    notice = Notice(group.instances[0].id, "interruption", NOW, ends)
    until = (ends or NOW) + timedelta(hours=1)
    found = seen(group, seen_at=until + past, notices=(notice,))
    assert list(found.noticed) == ([first.name] if holds else [])
    assert (first.name in found.unusable, second.name in found.unusable) == (holds, False)
    ending = replace(group, instances=(replace(group.instances[0], state="terminating"), group.instances[1]))
    assert seen(ending, seen_at=until - SECOND, notices=(notice,)).noticed == {}
    assert seen(replace(group, instances=()), nodes_of(group), seen_at=until - SECOND, notices=(notice,)).noticed == {}


def test_a_node_whose_instance_is_gone_is_a_ghost() -> None:
    """One of ours that is not ready, and whose instance no group has; not one that serves, or that is not ours."""
    group = a_group("cpu", joined=1)
    (node,) = nodes_of(group, created=NOW - timedelta(days=1), ready=False)
    none = replace(group, instances=(), desired=0)
    assert seen(none, [node]).ghosts == {node.name}
    assert seen(none, [node]).unusable[node.name] == "its instance is gone"
    assert seen(group, [node]).ghosts == frozenset()
    assert seen(none, [replace(node, ready=True)]).ghosts == frozenset()
    unmarked = {key: value for key, value in node.labels.items() if key != words.GROUP}
    assert seen(none, [replace(node, labels=unmarked)]).ghosts == frozenset()
    assert seen(group, [node]).joined == {group.instances[0].id}
