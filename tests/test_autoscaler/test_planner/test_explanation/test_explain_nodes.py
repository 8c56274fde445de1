"""A node's own story: what is about to be done with it, whether the step names the node or its instance."""

from __future__ import annotations

import pytest

from autoscaler.model.actions import DeleteNode, Memory, Plan, Remove, Step
from autoscaler.model.errors import BadInput
from autoscaler.planner.explanation.explain_nodes import explain_node
from tests.builders import a_cluster, a_group, a_policy, an_on_prem_node, nodes_of

GROUP = a_group(joined=2)
OURS, OTHER = nodes_of(GROUP)
FIRST, SECOND = (one.id for one in GROUP.instances)


def next_steps(name: str, *steps: Step) -> list[str]:
    """What is told that will be done."""
    look = a_cluster(nodes=[OURS, OTHER, an_on_prem_node()], groups=[GROUP])
    told = explain_node(name, look, a_policy(), Plan(steps=steps, memory=Memory()))
    return [line.rpartition(": ")[2] for line in told if line.startswith("next step: ")]


def test_steps_that_name_a_node_or_its_instance_are_told() -> None:
    """By either name of it, and of no other."""
    by_instance = Remove(GROUP.name, FIRST, None, because="it never joined")
    by_node = DeleteNode(OURS.name, "i-before", because="its instance is gone")
    for name in (OURS.name, FIRST):
        assert next_steps(name, by_instance, by_node) == ["it never joined", "its instance is gone"]
    assert next_steps(OTHER.name, by_instance, by_node) == next_steps("dgx-01", by_instance) == []


def test_a_name_that_is_no_node_s_is_a_mistake() -> None:
    """The empty one too: machines of ours have no instance."""
    for name in ("nowhere", ""):
        with pytest.raises(BadInput, match="there is no node"):
            next_steps(name)
