"""Nodes whose hardware is at fault: closed, avoided, on EC2 replaced, opened again when they are well; never many."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from autoscaler.config.policy import Faults
from autoscaler.model.actions import Cordon, Grow, Memory, Plan, Remove, Step, Uncordon
from autoscaler.model.cluster import Node, NodeCondition
from autoscaler.model.labels import HOSTNAME
from autoscaler.model.pauses import ALL, Pause
from autoscaler.planner.explanation.node_states import standings
from autoscaler.planner.plan import plan
from tests.builders import (
    NOW,
    a_cluster,
    a_gang,
    a_group,
    a_pod,
    a_policy,
    an_on_prem_node,
    later,
    nodes_of,
)

KIND = "AcceleratedHardwareReady"
LONG_AGO = NOW - timedelta(hours=1)
OURS: dict[str, Any] = {"cordoned": True, "cordoned_by": "spillway-autoscaler", "cordoned_at": LONG_AGO}


def condition(status: str = "False", *, since: datetime = LONG_AGO, kind: str = KIND) -> tuple[NodeCondition, ...]:
    """As a node monitoring agent writes it."""
    return (NodeCondition(kind, status, "NvidiaXID79Error", since),)


def dgx(name: str = "dgx-01", *, status: str = "False", since: datetime = LONG_AGO, **given: Any) -> Node:
    """A machine that we own."""
    return an_on_prem_node(name, conditions=condition(status, since=since), **given)


def decided(*nodes: Node, faults: dict[str, Any] | None = None, **look: Any) -> Plan:
    """What is done about them."""
    policy = a_policy().model_copy(update={"faults": Faults.model_validate(faults or {})})
    return plan(a_cluster(**{"nodes": nodes, "groups": (a_group(),)} | look), policy, Memory())


def kinds(steps: tuple[Step, ...]) -> list[str]:
    """Of steps."""
    return [type(step).__name__ for step in steps]


def test_a_machine_at_fault_is_closed_told_and_left_to_its_pods() -> None:
    """With the reason that the agent gives; what runs on it goes on."""
    pods = [a_pod("p", node="dgx-01", phase="Running", gpus=8)]
    done = decided(dgx(), pods=pods)
    why = f"{KIND} is False (NvidiaXID79Error) since 2026-11-21 08:00:00 UTC"
    assert done.steps == (Cordon("dgx-01", why),)
    assert done.warnings == (f"node dgx-01: {why}: nothing is started on it; team/p runs on it",)


@pytest.mark.parametrize("pods", [[a_pod("p", gpus=8)], a_gang(pods=2, gpus=8)], ids=["pod", "gang"])
def test_nothing_is_started_there_and_nodes_are_bought_in_its_place(pods: Any) -> None:
    """A gang that the fault broke does not go back to it."""
    done = decided(dgx(), pods=pods)
    assert [step.by for step in done.steps if isinstance(step, Grow)] == [len(pods)]
    well = decided(dgx(status="True"), pods=pods)
    assert sum(step.by for step in well.steps if isinstance(step, Grow)) == len(pods) - 1


@pytest.mark.parametrize(
    ("node", "faults", "steps"),
    [
        (dgx(status="True"), {}, []),
        (dgx(status="Unknown"), {}, []),
        (dgx(since=NOW - timedelta(seconds=59)), {}, []),
        (dgx(since=NOW - timedelta(seconds=60)), {}, ["Cordon"]),
        (dgx(), {"conditions": {}}, []),
        (dgx(), {"after": "2h"}, []),
        (dgx(status="True"), {"conditions": {KIND: True}}, ["Cordon"]),
        (dgx(cordoned=True, cordoned_by="admin"), {}, []),
        (dgx(**OURS), {}, []),
        (dgx(status="True", **OURS), {}, ["Uncordon"]),
        (dgx(status="True", since=NOW - timedelta(seconds=59), **OURS), {}, []),
        (dgx(**OURS), {"conditions": {}}, ["Uncordon"]),
    ],
    ids=[
        *("well", "unknown", "not for long", "for long", "no fault by the policy", "too soon by the policy"),
        *("another sense", "closed by another", "closed already", "well again", "well too shortly", "policy edited"),
    ],
)
def test_a_machine_is_closed_and_opened_by_its_condition(node: Node, faults: dict[str, Any], steps: list[str]) -> None:
    """Whatever runs on it, or does not."""
    assert kinds(decided(node, faults=faults).steps) == steps
    busy = [a_pod("p", node="dgx-01", phase="Running", gpus=8)]
    assert kinds(decided(node, faults=faults, pods=busy).steps) == steps


def test_time_alone_asks_for_a_look() -> None:
    """When a condition has stood for long enough."""
    assert decided(dgx(since=NOW - timedelta(seconds=20))).wake_at == later(seconds=40)


def test_a_node_of_ec2_is_ended_when_it_is_empty_and_not_at_the_minimum() -> None:
    """First it is closed; with pods it stays, though nothing else would keep a cordon of ours."""
    group = a_group(joined=1)
    (node,) = nodes_of(group, conditions=condition())
    assert kinds(decided(node, groups=(group,)).steps) == ["Cordon"]
    closed = replace(node, **OURS | {"cordoned_at": NOW})
    done = decided(closed, groups=(group,))
    assert kinds(done.steps) == ["Remove"], "at once: it does not wait out its idle time"
    shortly = replace(closed, conditions=condition("True", since=NOW - timedelta(seconds=9)))
    assert decided(shortly, groups=(group,)).steps == (), "it is idle like any other"
    busy = [a_pod("p", node=node.name, phase="Running", gpus=8)]
    assert decided(closed, groups=(group,), pods=busy).steps == ()
    assert decided(closed, groups=(group,), pods=busy, pauses=(Pause(ALL),)).steps == ()
    assert decided(closed, groups=(replace(group, minimum=1),)).steps == ()
    assert decided(closed, groups=(group,), pauses=(Pause(ALL),)).steps == ()
    assert decided(node, groups=(group,), pauses=(Pause(ALL),)).steps == ()


def test_a_service_on_it_is_left_alone_too() -> None:
    """It is not emptied to save its price, though its pod may be moved and has room elsewhere."""
    group = a_group(joined=1)
    (node,) = nodes_of(group, conditions=condition(), created=LONG_AGO, **OURS)
    web = a_pod("web", node=node.name, phase="Running", owner="ReplicaSet/web", started=LONG_AGO)
    assert decided(node, an_on_prem_node(), groups=(group,), pods=[web]).steps == ()
    assert kinds(decided(replace(node, cordoned=False), an_on_prem_node(), groups=(group,), pods=[web]).steps) == [
        "Cordon"
    ]


def test_a_pod_that_waits_for_it_is_told() -> None:
    """What is at fault, and that its repair would help."""
    (waits,) = decided(dgx(), pods=[a_pod("p", gpus=8, selector={HOSTNAME: "dgx-01"})]).waiting
    assert waits.because.startswith(f"is bound for node dgx-01: {KIND} is False (NvidiaXID79Error) since")
    assert "the hardware of node dgx-01 is well again" in waits.would_fit_if


def test_one_that_does_not_answer_either_is_left_to_the_rule_for_that() -> None:
    """It is terminated with what is on it."""
    group = a_group(joined=1)
    (node,) = nodes_of(group, conditions=condition(), ready=False, unready_since=LONG_AGO, created=LONG_AGO, **OURS)
    busy = [a_pod("p", node=node.name, phase="Running", gpus=8)]
    (step,) = decided(node, groups=(group,), pods=busy).steps
    assert isinstance(step, Remove)
    assert step.is_dead
    (silent,) = nodes_of(group, conditions=condition(), ready=False, unready_since=LONG_AGO, created=LONG_AGO)
    assert kinds(decided(silent, groups=(group,)).steps) == ["Cordon"], "as an idle one is, once"


def test_where_many_are_at_fault_a_share_is_closed_and_the_others_are_told() -> None:
    """It is rather the agent that is: one of five by default, those that are closed already first."""
    nodes = [dgx(f"dgx-{number:02}") for number in range(10)]
    nodes[9] = dgx("dgx-09", **OURS)
    done = decided(*nodes)
    assert [step.node for step in done.steps if isinstance(step, Cordon)] == ["dgx-00"]
    assert sum("stays open, for faults.share" in line for line in done.warnings) == 8
    assert not [step for step in done.steps if isinstance(step, Uncordon)]
    closed = [dgx(f"dgx-{number:02}", **OURS) for number in range(4)]
    assert decided(*closed, *nodes[4:9]).steps == (), "those that are closed already stay so, though they are more"
    assert kinds(decided(dgx("a"), dgx("b")).steps) == ["Cordon"], "one always may be"
    assert len([s for s in decided(*nodes, faults={"share": 1.0}).steps if isinstance(s, Cordon)]) == 9


def test_its_state_is_repairing_with_the_reason() -> None:
    """On `spillway gpus`, `top` and `explain node`."""
    look, policy = a_cluster(nodes=(dgx(),), groups=()), a_policy()
    (state,) = standings(look, policy, plan(look, policy, Memory())).nodes
    assert (state.state, state.why.partition(" since")[0]) == ("repairing", f"{KIND} is False (NvidiaXID79Error)")
