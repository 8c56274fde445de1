"""A cluster at a glance: what is told of nodes, groups and what waits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoscaler.model import node_states as states
from autoscaler.model.actions import BUSY, IMPOSSIBLE, MONEY, Backoff, Cordon, Memory, Plan, Waiting
from autoscaler.model.cluster import Cluster, Refusal
from autoscaler.model.needed_changes import NeededChange
from autoscaler.model.pauses import Pause
from autoscaler.planner.explanation.overview import Overview, Use, overview
from autoscaler.planner.plan import plan
from tests.builders import NOW, a_cluster, a_group, a_pod, a_policy, an_on_prem_node, later, nodes_of

GIB = 2**30


def shown(cluster: Cluster, decided: Plan | None = None) -> Overview:
    """By the policy of the local ground."""
    return overview(cluster, a_policy(), decided or plan(cluster, a_policy(), Memory()))


def busy() -> Cluster:
    """A machine of ours with a pod, one of two that joined, two that are asked for, and a group without nodes."""
    group = a_group("cpu", joined=2, desired=4, capacity_type="spot")
    node = nodes_of(group)[0]
    pods = [
        a_pod("a", gpus=2, cpu=4, memory="8Gi", node="dgx-01", phase="Running"),
        a_pod("b", cpu=2, memory="1Gi", node=node.name, phase="Running"),
    ]
    return a_cluster(nodes=[an_on_prem_node(), node], groups=[group, a_group("gpu-a100")], pods=pods)


def test_a_node_has_a_line_and_those_that_are_asked_for_one_together() -> None:
    """With what pods hold of what there is, or will be, and what it costs."""
    own, joining, node, asked = shown(busy()).nodes
    assert (own.name, own.group, own.state, own.pods, own.usd_per_hour) == ("dgx-01", "on-prem", states.BUSY, 1, 0.0)
    assert (own.gpus, own.cpu, own.memory) == (Use(2, 8), Use(4_000, 128_000), Use(8 * GIB, 1024 * GIB))
    assert (node.group, node.cpu, node.usd_per_hour, node.many) == (
        "local-cpu-us-east-1a",
        Use(2_000, 15_000),
        0.768,
        1,
    )
    assert (joining.name, joining.state, joining.cpu, joining.pods) == (
        "i-local-cpu-us-east-1a-1",
        states.JOINING,
        Use(0, 15_000),
        0,
    )
    assert joining.until == NOW + a_policy().scale_up.boot_timeout
    assert (asked.name, asked.many, asked.cpu, asked.usd_per_hour) == ("+2", 2, Use(0, 30_000), 1.536)


def test_a_group_sums_up_its_nodes_and_stands_there_without_any() -> None:
    """Machines that you own first; states in their order."""
    own, cpu, gpu = shown(busy()).groups
    assert (own.name, own.kind, own.states, own.gpus, own.usd_per_hour) == (
        "on-prem",
        "",
        {states.BUSY: 1},
        Use(2, 8),
        0.0,
    )
    assert (cpu.name, cpu.kind, cpu.states) == (
        "local-cpu-us-east-1a",
        "m5.4xlarge spot",
        {states.JOINING: 3, states.BUSY: 1},
    )
    assert (cpu.cpu, cpu.memory, cpu.usd_per_hour) == (
        Use(2_000, 60_000),
        Use(GIB, 240 * GIB),
        pytest.approx(4 * 0.768),
    )
    assert (gpu.kind, gpu.states, gpu.gpus, gpu.closed) == ("p4d.24xlarge", {}, Use(), "")


def test_without_machines_of_ours_there_is_no_line_for_them() -> None:
    """Only groups."""
    assert [one.name for one in shown(a_cluster(groups=[a_group("cpu")])).groups] == ["local-cpu-us-east-1a"]


def test_why_nothing_is_bought_in_a_group_is_said_in_short() -> None:
    """What AWS refused, and until when; a pause by its reason, else by what is paused."""
    refused = a_group("gpu-a100", desired=1, refusals=(Refusal(NOW, "MaxSpotInstanceCountExceeded", "no"),))
    groups = [refused, a_group("cpu"), a_group("gpu-a10g")]
    pauses = (Pause("group.cpu", "audit"), Pause("group.gpu-a10g", ""))
    memory = Memory(backoffs={refused.name: Backoff(later(minutes=6), 1, NOW, "MaxSpotInstanceCountExceeded")})
    cluster = a_cluster(groups=groups, pauses=pauses)
    found = shown(cluster, plan(cluster, a_policy(), memory))
    closed = {one.name: one.closed for one in found.groups}
    assert closed == {
        "local-gpu-a100-us-east-1a": "MaxSpotInstanceCountExceeded until 2026-11-21 09:06:00 UTC",
        "local-cpu-us-east-1a": "paused: audit",
        "local-gpu-a10g-us-east-1a": f"paused: {pauses[1].what}",
    }
    assert found.pauses == tuple(map(str, pauses))


def waiting(pod: str, because: str, cause: str, *changes: NeededChange) -> Waiting:
    """One pod."""
    return Waiting(pod, because, changes, cause)


def test_pods_that_wait_for_the_same_are_one_line_what_can_be_changed_first() -> None:
    """By cause, then the most pods; with all that would have to change, and the first three names."""
    nodes, gpus = (NeededChange("policy", path=f"limits.{name}", to=4) for name in ("nodes", "gpus"))
    those = [
        *(waiting(f"team/{name}", "no room", BUSY) for name in "dbca"),
        waiting("team/x", "full", BUSY),
        waiting("team/y", "too big", IMPOSSIBLE),
        waiting("team/m", "dear", MONEY, nodes),
        waiting("team/n", "dear", MONEY, gpus),
    ]
    decided = Plan(waiting=tuple(those), warnings=("careful",), steps=(Cordon("n", "idle"),), usd_per_hour=2.5)
    found = shown(a_cluster(), decided)
    lines = [(one.cause, one.because, one.pods, one.names) for one in found.waiting]
    assert lines == [
        (IMPOSSIBLE, "too big", 1, ("team/y",)),
        (MONEY, "dear", 2, ("team/m", "team/n")),
        (BUSY, "no room", 4, ("team/a", "team/b", "team/c")),
        (BUSY, "full", 1, ("team/x",)),
    ]
    dear = next(one for one in found.waiting if one.because == "dear")
    assert "limits.nodes" in dear.would_fit_if
    assert "limits.gpus" in dear.would_fit_if
    assert (found.decided, found.usd_per_hour, found.warnings) == (NOW, 2.5, ("careful",))
    assert found.next_steps == ("cordon node n",)


def test_a_group_of_a_node_is_told_apart_by_its_zone() -> None:
    """Two that are asked for in either zone are two lines."""
    groups = [a_group("cpu", zone, desired=2) for zone in ("us-east-1b", "us-east-1a")]
    found = shown(a_cluster(groups=groups))
    assert [(one.group, one.many) for one in found.nodes] == [
        ("local-cpu-us-east-1a", 2),
        ("local-cpu-us-east-1b", 2),
    ]
    assert replace(found.nodes[0], group="") == replace(found.nodes[1], group="")
