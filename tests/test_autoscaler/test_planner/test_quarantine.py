"""One object that planning breaks on is found, left out and told; the rest is planned."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autoscaler.config.policy import Policy
from autoscaler.model.actions import Grow, Memory, Plan, Remove
from autoscaler.model.cluster import Cluster, PodSet, ProvisioningRequest
from autoscaler.planner.plan import plan
from autoscaler.planner.quarantine import plan_around
from tests.builders import NOW, a_cluster, a_group, a_pod, a_policy, later, nodes_of
from tests.test_autoscaler.test_planner.test_disruption.test_scale_down import OURS

WHY = "planning breaks on it (ZeroDivisionError: of p{:02}): it is left out until it changes"


def breaks_on(*names: str) -> Any:
    """The planner, with a defect that these objects show."""

    def planner(cluster: Cluster, policy: Policy, memory: Memory) -> Plan:
        for name in names:
            if any(name in (pod.name, pod.key) for pod in cluster.pods):
                raise ZeroDivisionError(f"of {name}")
            if any(one.name == name for one in (*cluster.nodes, *cluster.groups, *cluster.provisioning_requests)):
                raise ZeroDivisionError(f"of {name}")
        return plan(cluster, policy, memory)

    return planner


@pytest.mark.parametrize("number", [0, 7, 19])
def test_a_poison_pod_is_told_and_the_others_are_bought_for(number: int) -> None:
    """Wherever it stands among them."""
    pods = [a_pod(f"p{index:02}", gpus=8) for index in range(20)]
    cluster, policy = a_cluster(pods=pods), a_policy()
    found = plan_around(breaks_on(f"p{number:02}"), cluster, policy, Memory())
    rest = plan(a_cluster(pods=[pod for index, pod in enumerate(pods) if index != number]), policy, Memory())
    assert found.steps == rest.steps
    assert found.warnings == (f"pod team/p{number:02}: {WHY.format(number)}",)
    (told,) = [one for one in found.waiting if one.pod == f"team/p{number:02}"]
    assert told.hopeless


def test_a_poison_request_for_room_is_told_and_the_others_are_served() -> None:
    """It is no pod: the warning alone tells of it."""
    asked = [
        ProvisioningRequest("team", name, uid=name, created=NOW, pod_sets=(PodSet(a_pod(gpus=8), 1),)) for name in "ab"
    ]
    found = plan_around(breaks_on("a"), a_cluster(provisioning_requests=tuple(asked)), a_policy(), Memory())
    (warning,) = found.warnings
    assert warning.startswith("ProvisioningRequest team/a: planning breaks on it")
    assert [(type(step), step.demand) for step in found.steps if isinstance(step, Grow)] == [(Grow, ("team/b/0",))]


def test_several_are_found_one_by_one() -> None:
    """As long as they are few."""
    pods = [a_pod(f"p{index}", gpus=8) for index in range(6)]
    found = plan_around(breaks_on("p1", "p4"), a_cluster(pods=pods), a_policy(), Memory())
    assert len(found.warnings) == 2
    assert [type(step) for step in found.steps] == [Grow]


@pytest.mark.parametrize("what", ["node", "group", "resident"])
def test_what_is_left_out_is_not_taken_for_idle(what: str) -> None:
    """A node whose pod is left out looks empty, and a node that is left out leaves an instance that never joined."""
    group = a_group(joined=2)
    nodes = nodes_of(group, **OURS)
    pods = [a_pod(f"r{number}", node=node.name, phase="Running", gpus=1) for number, node in enumerate(nodes)]
    name = {"node": nodes[0].name, "group": group.name, "resident": "r0"}[what]
    look = a_cluster(pods=pods, nodes=nodes, groups=[group], seen_at=later(hours=1))
    found = plan_around(breaks_on(name), look, a_policy(), Memory())
    assert len(found.warnings) == 1
    assert not [step for step in found.steps if isinstance(step, Remove)]
    idle = plan_around(breaks_on(name), replace(look, pods=tuple(pods[:1])), a_policy(), Memory())
    assert not [step for step in idle.steps if isinstance(step, Remove)]


def test_a_defect_that_no_object_shows_is_raised() -> None:
    """There is nothing to leave out."""

    def planner(_cluster: Cluster, _policy: Policy, _memory: Memory) -> Plan:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        plan_around(planner, a_cluster(pods=[a_pod()]), a_policy(), Memory())


def test_with_a_pod_only_its_own_node_and_group_are_left_out() -> None:
    """Others go on being planned: an idle node of another group is closed."""
    groups = [replace(a_group("cpu", joined=1)), replace(a_group("gpu-a10g", joined=1))]
    nodes = [node for group in groups for node in nodes_of(group)]
    pods = [a_pod("poison", node=nodes[0].name, phase="Running")]
    look = a_cluster(pods=pods, nodes=nodes, groups=groups, seen_at=later(hours=1))
    found = plan_around(breaks_on("poison"), look, a_policy(), Memory())
    assert {getattr(step, "node", "") for step in found.steps} == {nodes[1].name}
