"""Nodes that do not answer: ghosts, and nodes of live instances that are not ready."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from autoscaler.model import labels as words
from autoscaler.model.actions import Cordon, DeleteNode, Grow, Memory, Plan, Remove
from autoscaler.model.cluster import Group, Instance, Node, Pod
from autoscaler.planner.plan import plan
from tests.builders import NOW, a_cluster, a_group, a_pod, a_policy, an_on_prem_node, later, nodes_of
from tests.test_autoscaler.test_loop import bench

OURS = {"cordoned": True, "cordoned_by": words.AUTOSCALER, "cordoned_at": NOW}


def ghost(**given: Any) -> tuple[Group, Node]:
    """A group without instances, and a node of it whose instance is gone."""
    there = a_group(joined=1)
    (node,) = nodes_of(there, **{"ready": False, "created": NOW} | given)
    return replace(there, instances=(), desired=0), node


def decide(group: Group, *nodes: Node, pods: tuple[Pod, ...] = (), **given: Any) -> Plan:
    """The plan for them, an hour after the nodes have joined."""
    look = a_cluster(pods=pods, nodes=nodes, groups=[group], **{"seen_at": later(hours=1)} | given)
    return plan(look, a_policy(), Memory())


def test_a_ghost_is_no_machine_on_its_way() -> None:
    """One pod is bought for once, whatever node is left of an instance that is gone."""
    group, node = ghost()
    (grow,) = [step for step in decide(group, node, pods=(a_pod(gpus=8),)).steps if isinstance(step, Grow)]
    assert grow.to == 1
    again = decide(replace(group, desired=1), node, pods=(a_pod(gpus=8),))
    assert [step for step in again.steps if isinstance(step, Grow)] == []


def test_a_ghost_is_deleted() -> None:
    """No cloud-controller-manager does it where none runs."""
    group, node = ghost()
    assert [step.node for step in decide(group, node).steps if isinstance(step, DeleteNode)] == [node.name]


@pytest.mark.parametrize(
    ("given", "since"),
    [({"ready": True}, {"hours": 1}), ({"labels": {}}, {"hours": 1}), ({}, {"minutes": 1})],
    ids=["it answers", "it is not ours", "it has just joined"],
)
def test_what_is_no_ghost_is_not_deleted(given: dict[str, Any], since: dict[str, float]) -> None:
    """A detached instance's node, another's node, and one that EC2's list may not have yet."""
    group, node = ghost(**given)
    steps = decide(group, node, seen_at=later(**since)).steps
    assert not [step for step in steps if isinstance(step, DeleteNode)]


@pytest.mark.parametrize(
    ("ready", "ended", "deleted"), [(False, True, True), (True, True, False), (False, False, False)]
)
def test_a_ghost_is_looked_at_once_more_on_both_sides(*, ready: bool, ended: bool, deleted: bool) -> None:
    """Its node must not answer, and EC2 must have ended its instance."""
    made = bench(DeleteNode("n", "i-1", "r"))
    made.fakes.ready, made.fakes.ended = ready, ended
    loop = made.loop()
    made.knows_aws()
    loop.once()
    assert ("delete_node" in made.did()) == deleted


def silent(**given: Any) -> tuple[Group, Node]:
    """A node of a live instance that has not been ready for 20 minutes."""
    group = a_group(joined=1)
    unready = {"ready": False, "created": NOW, "unready_since": later(minutes=40)}
    return group, nodes_of(group, **unready | given)[0]


def on(node: Node, name: str = "pod") -> Pod:
    """A pod that runs there."""
    return a_pod(name, gpus=1, node=node.name, phase="Running")


def test_a_node_that_does_not_answer_is_told_with_its_pods_and_its_end() -> None:
    """And the plan says when it is to be looked at again."""
    group, node = silent(unready_since=later(minutes=55))
    decided = decide(group, node, pods=(on(node),))
    assert decided.steps == ()
    assert decided.wake_at == later(minutes=65)
    (line,) = decided.warnings
    assert line.startswith(f"node {node.name} has not been ready since")
    assert "team/pod on it" in line
    assert "terminated at" in line


@pytest.mark.parametrize("other", [0, 1])
def test_a_node_that_answers_hides_no_silent_one(other: int) -> None:
    """Whichever of the two comes first."""
    group = a_group(joined=2)
    nodes = list(nodes_of(group, ready=False, created=NOW, unready_since=NOW))
    nodes[other] = replace(nodes[other], ready=True)
    decided = decide(group, *nodes, pods=tuple(replace(on(node), name=node.name) for node in nodes))
    assert [step.node for step in decided.steps if isinstance(step, Cordon)] == [nodes[1 - other].name]


@pytest.mark.parametrize(
    "first", [{}, {"do_not_disrupt": True}, {"deleting": True}, {"unready_since": later(minutes=55)}]
)
def test_a_silent_node_that_nothing_is_done_about_hides_no_other(first: dict[str, Any]) -> None:
    """One without pods, one that is left to another, one that goes, and one whose time has not come."""
    group = a_group(joined=2)
    nodes = list(nodes_of(group, ready=False, created=NOW, unready_since=NOW))
    nodes[0] = replace(nodes[0], **first)
    pods = tuple(replace(on(node), name=node.name) for node in (nodes if first else nodes[1:]))
    steps = [step.node for step in decide(group, *nodes, pods=pods).steps if isinstance(step, Cordon)]
    assert nodes[1].name in steps
    assert not first or nodes[0].name not in steps


@pytest.mark.parametrize(
    ("pods", "told"), [(3, "team/p-0, team/p-1, team/p-2 on it"), (5, "team/p-2 and 2 more on it")]
)
def test_of_the_pods_on_a_silent_node_three_are_named(pods: int, told: str) -> None:
    """The others are counted."""
    group, node = silent(unready_since=later(minutes=55))
    (line,) = decide(group, node, pods=tuple(replace(on(node), name=f"p-{n}") for n in range(pods))).warnings
    assert told in line


def test_a_node_that_has_not_answered_for_too_long_is_cordoned_and_then_terminated() -> None:
    """Its pods' controllers make them anew elsewhere; its cordon is not lifted because pods are on it."""
    group, node = silent()
    assert [type(step) for step in decide(group, node, pods=(on(node),)).steps] == [Cordon]
    (step,) = decide(group, replace(node, **OURS), pods=(on(node),)).steps
    assert isinstance(step, Remove)
    assert (step.node, step.instance, step.is_dead) == (node.name, node.instance_id, True)


def test_the_last_moment_of_a_silent_node_counts() -> None:
    """At its end it is cordoned; a second before that the next look is at its end, of several at the first."""
    group = a_group(joined=2)
    policy = a_policy()
    nodes = [
        replace(node, ready=False, unready_since=later(minutes=number), created=later(hours=-2))
        for number, node in enumerate(nodes_of(group))
    ]
    pods = [on(node) for node in nodes]
    end = NOW + policy.scale_down.unready_after
    before = plan(
        a_cluster(pods=pods, nodes=nodes, groups=[group], seen_at=end - timedelta(seconds=1)), policy, Memory()
    )
    assert (before.steps, before.wake_at) == ((), end)
    assert f"its instance is terminated at {end:%Y-%m-%d %H:%M:%S} UTC" in before.warnings[0]
    at = plan(a_cluster(pods=pods, nodes=nodes, groups=[group], seen_at=end), policy, Memory())
    assert [(type(step), step.node) for step in at.steps if isinstance(step, Cordon)] == [(Cordon, nodes[0].name)]


def test_a_node_that_has_never_been_ready_is_silent_since_it_was_made() -> None:
    """And only when its time to join is over."""
    policy = a_policy()
    group = a_group(joined=1)
    (node,) = nodes_of(group, ready=False)
    for since, told in (
        (policy.scale_up.boot_timeout, True),
        (policy.scale_up.boot_timeout - timedelta(seconds=1), False),
    ):
        look = a_cluster(pods=[on(node)], nodes=[node], groups=[group], seen_at=NOW + since)
        assert any(f"since {NOW:%Y-%m-%d %H:%M:%S} UTC" in one for one in plan(look, policy, Memory()).warnings) is told


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"do_not_disrupt": True}, "do-not-disrupt"),
        ({"cordoned": True, "cordoned_by": "kubectl"}, "cordoned by someone else"),
    ],
)
def test_a_silent_node_that_others_see_to_is_only_told(given: dict[str, Any], told: str) -> None:
    """Never against somebody's mark."""
    group, node = silent(**given)
    decided = decide(group, node, pods=(on(node),))
    assert decided.steps == ()
    assert told in decided.warnings[0]


def test_a_machine_that_we_own_is_only_told() -> None:
    """It is not Spillway's to terminate."""
    node = an_on_prem_node(ready=False, unready_since=NOW)
    decided = decide(a_group(), node, pods=(on(node),))
    assert decided.steps == ()
    assert "look at the machine" in decided.warnings[0]


def test_a_node_that_boots_is_not_silent() -> None:
    """It has its time to join."""
    group, node = silent(created=later(minutes=55), unready_since=later(minutes=55))
    assert decide(group, node, pods=(on(node),)).warnings == ()


@pytest.mark.parametrize(("ready", "closed", "ends"), [(False, True, True), (True, True, False), (False, False, False)])
def test_a_silent_node_is_looked_at_once_more(*, ready: bool, closed: bool, ends: bool) -> None:
    """It ends though pods are on it, but not once it answers, or was opened."""
    made = bench(Remove(a_group().name, "i-1", "n", "r", is_dead=True))
    made.fakes.ready, made.fakes.closed = ready, closed
    loop = made.loop()
    made.knows_aws()
    loop.once()
    assert ("terminate" in made.did()) == ends
    assert ("delete_node" in made.did()) == ends


def test_an_instance_that_is_detached_lends_its_node_and_counts_in_no_group() -> None:
    """What is asked for in its group is still to come."""
    group, node = ghost(ready=True)
    asked = replace(group, desired=1, instances=(Instance("i-new", group.zone),))
    pods = (a_pod("a", gpus=8), a_pod("b", gpus=8))
    assert [step for step in decide(asked, node, pods=pods).steps if isinstance(step, Grow)] == []
