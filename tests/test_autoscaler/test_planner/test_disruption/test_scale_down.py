"""Idle EC2 nodes -> cordon, wait, remove; and what is never touched."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autoscaler.config.policy import Policy
from autoscaler.model import labels as words
from autoscaler.model.actions import Cordon, Memory, Plan, Remove, Uncordon
from autoscaler.model.cluster import Cluster, Group, Node
from autoscaler.planner.plan import plan
from tests.builders import NOW, a_cluster, a_gang, a_group, a_pod, a_policy, an_on_prem_node, later, nodes_of

OURS = {"cordoned": True, "cordoned_by": words.AUTOSCALER, "cordoned_at": NOW}


def decide(cluster: Cluster, policy: Policy | None = None) -> Plan:
    """The plan for it."""
    return plan(cluster, policy or a_policy(), Memory())


def one_node(**given: Any) -> tuple[Group, Node]:
    """A group of one node."""
    group = a_group(joined=1)
    return group, nodes_of(group, **given)[0]


def test_an_idle_node_is_cordoned_at_once() -> None:
    """Marked as ours, with words."""
    group, node = one_node()
    (step,) = decide(a_cluster(nodes=[node], groups=[group])).steps
    assert isinstance(step, Cordon)
    assert step.node == node.name
    assert "600 s idle" in step.because


def test_a_cordoned_node_waits_out_its_time() -> None:
    """And the plan says when that is."""
    group, node = one_node(**OURS)
    decided = decide(a_cluster(nodes=[node], groups=[group], seen_at=later(minutes=9)))
    assert (decided.steps, decided.wake_at) == ((), later(minutes=10))


def test_a_node_idle_for_long_enough_is_removed() -> None:
    """With its instance, in its group; the bill is lower by it."""
    group, node = one_node(**OURS)
    decided = decide(a_cluster(nodes=[node], groups=[group], seen_at=later(minutes=10)))
    (step,) = decided.steps
    assert isinstance(step, Remove)
    assert (step.group, step.instance, step.node) == (group.name, node.instance_id, node.name)
    assert decided.usd_per_hour == 0


@pytest.mark.parametrize("other", [0, 1])
@pytest.mark.parametrize(
    "beside",
    [
        {"pods": True},
        {"cordoned": True, "cordoned_by": "ada"},
        {"do_not_disrupt": True},
        {"cordoned": True, "cordoned_by": words.AUTOSCALER, "cordoned_at": later(minutes=5)},
    ],
    ids=["a job", "another's cordon", "not to be disrupted", "not idle for long enough"],
)
def test_what_stays_beside_it_keeps_no_idle_node(beside: dict[str, Any], other: int) -> None:
    """Whichever of the two is looked at first."""
    group = a_group(joined=2)
    nodes = list(nodes_of(group, **OURS))
    nodes[other] = replace(nodes[other], **{key: value for key, value in beside.items() if key != "pods"})
    pods = [a_pod(gpus=1, node=nodes[other].name, phase="Running")] if "pods" in beside else []
    decided = decide(a_cluster(pods=pods, nodes=nodes, groups=[group], seen_at=later(minutes=10)))
    assert [step.node for step in decided.steps if isinstance(step, Remove)] == [nodes[1 - other].name]


@pytest.mark.parametrize("full", [0, 1])
def test_a_group_at_its_minimum_keeps_no_node_of_another(full: int) -> None:
    """Whichever of the two is looked at first."""
    zones = ("us-east-1a", "us-east-1b")
    groups = [a_group(zone=zone, joined=1, minimum=int(number == full)) for number, zone in enumerate(zones)]
    nodes = [nodes_of(group, **OURS)[0] for group in groups]
    decided = decide(a_cluster(nodes=nodes, groups=groups, seen_at=later(minutes=10)))
    assert [step.node for step in decided.steps if isinstance(step, Remove)] == [nodes[1 - full].name]


def test_a_cordon_without_its_time_is_marked_again() -> None:
    """The idle time counts from a mark, not from a guess."""
    group, node = one_node(cordoned=True, cordoned_by=words.AUTOSCALER)
    assert [type(step) for step in decide(a_cluster(nodes=[node], groups=[group], seen_at=later(days=1))).steps] == [
        Cordon
    ]


@pytest.mark.parametrize("age", [0, 100])
@pytest.mark.parametrize(("names", "said"), [(["a"], "team/a runs on it"), (["a", "b"], "2 pods run on it")])
def test_a_node_with_a_running_job_is_never_touched(names: list[str], said: str, age: int) -> None:
    """However long ago it was cordoned; its cordon is lifted, in the same words whatever pod is listed first."""
    group, node = one_node(**OURS)
    pods = [a_pod(name, gpus=1, node=node.name, phase="Running") for name in names]
    decided = decide(a_cluster(pods=pods, nodes=[node], groups=[group], seen_at=later(minutes=age)))
    assert decided.steps == (Uncordon(node=node.name, because=said),)


def test_daemons_and_finished_pods_do_not_keep_a_node() -> None:
    """They run nothing that would be missed."""
    group, node = one_node()
    pods = [
        a_pod("agent", node=node.name, is_daemon=True, phase="Running"),
        a_pod("done", node=node.name, phase="Succeeded"),
    ]
    assert [type(step) for step in decide(a_cluster(pods=pods, nodes=[node], groups=[group])).steps] == [Cordon]


def test_a_node_that_is_not_to_be_disrupted_is_opened_again() -> None:
    """The mark came after our cordon: nothing else would ever lift that."""
    group, node = one_node(**OURS, do_not_disrupt=True)
    decided = decide(a_cluster(nodes=[node], groups=[group], seen_at=later(days=1)))
    assert decided.steps == (Uncordon(node=node.name, because="it is marked do-not-disrupt"),)


@pytest.mark.parametrize(
    "untouched",
    [{"cordoned": True, "cordoned_by": "kubectl"}, {"cordoned": True}, {"do_not_disrupt": True}, {"deleting": True}],
)
def test_other_people_s_nodes_are_left_alone(untouched: dict[str, Any]) -> None:
    """A cordon of someone else's, a wish not to be disturbed, a node on its way out."""
    group, node = one_node(**untouched)
    assert decide(a_cluster(nodes=[node], groups=[group], seen_at=later(days=1))).steps == ()


def test_on_prem_machines_are_never_cordoned() -> None:
    """They cost nothing more by standing idle."""
    assert decide(a_cluster(nodes=[an_on_prem_node()])).steps == ()


def test_an_ec2_node_of_no_group_is_left_alone() -> None:
    """A control plane, or somebody's own."""
    _, node = one_node()
    assert decide(a_cluster(nodes=[node], groups=[])).steps == ()


def test_a_group_keeps_its_minimum() -> None:
    """Of three idle nodes with a minimum of two one may go: the youngest."""
    group = a_group(joined=3, minimum=2)
    nodes = [replace(node, created=later(minutes=n)) for n, node in enumerate(nodes_of(group))]
    decided = decide(a_cluster(nodes=nodes, groups=[group]))
    assert [step.node for step in decided.steps if isinstance(step, Cordon)] == [nodes[2].name]


def test_a_minimum_that_was_raised_calls_nodes_back() -> None:
    """A cordon of ours is lifted where the group has no node to spare."""
    group, node = one_node(**OURS)
    decided = decide(a_cluster(nodes=[node], groups=[replace(group, minimum=1)], seen_at=later(days=1)))
    assert [type(step) for step in decided.steps] == [Uncordon]


def test_a_node_that_a_waiting_gang_counts_on_stays() -> None:
    """Its other half is still booting."""
    group = replace(a_group(joined=1), desired=2)
    (node,) = nodes_of(group)
    decided = decide(a_cluster(pods=a_gang(pods=2, gpus=8), nodes=[node], groups=[group], seen_at=later(minutes=1)))
    assert decided.steps == ()


def test_nothing_is_given_back_when_the_policy_says_so() -> None:
    """``scale_down.enabled: false``."""
    group, node = one_node(**OURS)
    cluster = a_cluster(nodes=[node], groups=[group], seen_at=later(days=1))
    assert decide(cluster, a_policy(scale_down={"enabled": False})).steps == ()


def test_an_instance_that_ends_already_is_not_ended_again() -> None:
    """EC2 takes its time."""
    group, node = one_node(**OURS)
    ending = replace(group, instances=(replace(group.instances[0], state="terminating"),), desired=0)
    assert decide(a_cluster(nodes=[node], groups=[ending], seen_at=later(days=1))).steps == ()
