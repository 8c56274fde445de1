"""Instances that EC2 is ending: what the termination hook holds, and when it is let go."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from autoscaler.model import labels as words
from autoscaler.model.actions import Admit, Cordon, Grow, Memory, Release, Step
from autoscaler.model.cluster import Group, Instance, Node
from autoscaler.planner.plan import plan
from tests.builders import NOW, a_cluster, a_gang, a_group, a_pod, a_policy, nodes_of

OURS = {"cordoned": True, "cordoned_by": words.AUTOSCALER, "cordoned_at": NOW}


def held(**given: Any) -> tuple[Group, Node]:
    """A group whose one instance is held by the hook, with a replacement not asked for, and its node."""
    group = a_group(joined=1, desired=0)
    leaving = replace(group.instances[0], state="terminating", held=True)
    group = replace(group, instances=(leaving,))
    return group, nodes_of(group, **given)[0]


def decide(*groups: Group, nodes: tuple[Node, ...] = (), pods: tuple[Any, ...] = ()) -> tuple[Step, ...]:
    """The steps of the plan for it."""
    return plan(a_cluster(nodes=nodes, groups=groups, pods=pods), a_policy(), Memory()).steps


def test_an_instance_without_a_node_is_let_go_at_once() -> None:
    """As after a removal of our own, which takes the node away first."""
    group, _ = held()
    [step] = decide(group)
    assert isinstance(step, Release)
    assert (step.group, step.instance, step.node) == (group.name, group.instances[0].id, None)


def test_a_node_that_ec2_ends_is_closed_first() -> None:
    """So that no pod comes while it is being looked at."""
    group, node = held()
    [step] = decide(group, nodes=(node,))
    assert isinstance(step, Cordon)
    assert "EC2 is ending" in step.because


def test_a_job_there_is_left_to_end() -> None:
    """The cordon is not lifted for it either: the machine goes in any case."""
    group, node = held(**OURS)
    assert decide(group, nodes=(node,), pods=(a_pod("p", node=node.name, phase="Running"),)) == ()


def test_an_empty_closed_node_is_released_whoever_closed_it() -> None:
    """Its instance is being ended already."""
    for marks in (OURS, {"cordoned": True, "cordoned_by": ""}):
        group, node = held(**marks)
        [step] = decide(group, nodes=(node,))
        assert isinstance(step, Release)
        assert step.node == node.name


def test_an_instance_that_no_hook_holds_needs_no_word() -> None:
    """It ends by itself."""
    group, _ = held()
    assert decide(replace(group, instances=(replace(group.instances[0], held=False),))) == ()


def test_no_gang_is_placed_on_a_machine_that_goes() -> None:
    """A new one is bought."""
    group, node = held()
    steps = decide(group, nodes=(node,), pods=a_gang("g", 1, gpus=8))
    assert not [step for step in steps if isinstance(step, Admit)]
    assert [step.to for step in steps if isinstance(step, Grow)] == [1]


def test_the_replacement_of_a_machine_that_goes_is_counted_as_coming() -> None:
    """What EC2 took away it makes up for: nothing is bought twice."""
    group, node = held()
    coming = Instance(id="i-new", zone=group.zone, launched=NOW, state="pending")
    group = replace(group, desired=1, instances=(*group.instances, coming))
    assert not [step for step in decide(group, nodes=(node,), pods=a_gang("g", 1, gpus=8)) if isinstance(step, Grow)]
