"""Why nodes of a group are not bought: each thing that alone stands in the way, in words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autoscaler.model.actions import Backoff, Memory
from autoscaler.model.cluster import Group, Refusal
from autoscaler.model.errors import BadInput
from autoscaler.model.pauses import BUYING, Pause
from autoscaler.planner.explanation.explain_groups import explain_group
from autoscaler.planner.plan import plan
from tests.builders import NOW, ZONES, a_cluster, a_group, a_pod, a_policy, an_entry, later, nodes_of

GROUP = a_group("gpu-a10g", vcpus=48, quota="L-1")
NAME = GROUP.name
FREE = "nothing stands in the way: a node is bought when a pod needs it and no cheaper group has room"


def told(
    *groups: Group, name: str = "gpu-a10g", memory: Any = None, limits: Any = None, most: int = 9, **look: Any
) -> list[str]:
    """The lines about the entry."""
    cluster = a_cluster(groups=groups or (GROUP,), nodes=look.pop("nodes", ()), **look)
    policy = a_policy(an_entry("gpu-a10g", max=most), an_entry("cpu"), limits=limits or {})
    decided = plan(cluster, policy, memory or Memory())
    return list(explain_group(name, cluster, policy, decided))


def whys(*groups: Group, **given: Any) -> list[str]:
    """What stands in the way of the first of them."""
    found = told(*groups, **given)
    assert found[0].startswith(NAME)
    return [line.removeprefix("  nothing is bought: ") for line in found[1:] if line.startswith("  nothing is")]


def test_a_group_in_whose_way_nothing_stands_says_so() -> None:
    """With its type, its price and what it has; a spot group says that it is one."""
    assert told() == [f"{NAME} (g5.12xlarge, 5.67 $/h a node): no node", f"  {FREE}"]
    spot = replace(GROUP, capacity_type="spot")
    assert told(spot)[0] == f"{NAME} (g5.12xlarge, spot, 5.67 $/h a node): no node"


def test_nodes_of_the_group_are_counted_by_their_state() -> None:
    """Not those of others."""
    group, other = a_group("gpu-a10g", joined=2), a_group("cpu", joined=1)
    nodes = [*nodes_of(group), *nodes_of(other)]
    pods = [a_pod("p", node=nodes[0].name, gpus=1, phase="Running")]
    first = told(group, other, nodes=nodes, pods=pods)[0]
    assert first.count(" 1 ") == 2
    assert "no node" not in first


def test_each_zone_is_told_in_order_and_one_group_by_its_own_name() -> None:
    """What the policy does not know is refused, with what it has."""
    other = a_group("gpu-a10g", ZONES[1])
    assert [line.split(" ")[0] for line in told(other, GROUP) if not line.startswith(" ")] == [NAME, other.name]
    assert [line.split(" ")[0] for line in told(other, GROUP, name=other.name) if not line.startswith(" ")] == [
        other.name
    ]
    assert told(name="cpu") == ["cpu is in the policy, and AWS has no Auto Scaling group of it: run `pulumi up`"]
    with pytest.raises(BadInput, match="there is no group 'gpu-x': the policy has gpu-a10g, cpu"):
        told(name="gpu-x")


def test_what_is_bought_next_is_told_with_its_reason() -> None:
    """Of that group alone."""
    lines = told(GROUP, a_group("cpu"), pods=[a_pod("p", gpus=1)])
    (step,) = [line for line in lines if line.startswith("  next step: ")]
    assert NAME in step
    assert not [
        line for line in told(GROUP, a_group("cpu"), name="cpu", pods=[a_pod("p", gpus=1)]) if "next step" in line
    ]


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ({"usd_per_hour": 5.6}, "limits.usd_per_hour is 5.6, which leaves 5.6000 $/h"),
        ({"usd_per_hour": 5.68}, None),
        ({"nodes": 0}, "limits.nodes is 0, which leaves none"),
        ({"nodes": 1}, None),
        ({"gpus": 3}, "limits.gpus is 3, which leaves 3 of the 4 of a node"),
        ({"gpus": 4}, None),
    ],
)
def test_a_limit_that_one_more_node_would_break_is_told(limits: dict[str, Any], why: str | None) -> None:
    """With what it leaves."""
    assert whys(limits=limits) == ([why] if why else [])


def test_what_runs_counts_towards_limits_and_maxima() -> None:
    """Nothing is left of what is overspent."""
    group = a_group("gpu-a10g", joined=2, vcpus=48, quota="L-1")
    nodes = nodes_of(group)
    pods = [a_pod(f"p{number}", node=node.name, gpus=1, phase="Running") for number, node in enumerate(nodes)]

    def of(**given: Any) -> list[str]:
        return whys(given.pop("group", group), nodes=nodes, pods=pods, **given)

    assert of(limits={"usd_per_hour": 6}) == ["limits.usd_per_hour is 6, which leaves 0.0000 $/h"]
    assert of(limits={"gpus": 10}) == ["limits.gpus is 10, which leaves 2 of the 4 of a node"]
    assert of(limits={"gpus": 6}) == ["limits.gpus is 6, which leaves 0 of the 4 of a node"]
    used_up = "max of group gpu-a10g is 2, and as many run or were asked for"
    assert of(most=2) == [used_up]
    assert of(most=3) == []
    full = "the MaxSize of the Auto Scaling group is 2: `pulumi up` brings that of the policy"
    assert of(group=replace(group, maximum=2)) == [full]
    assert of(group=replace(group, maximum=3)) == []
    assert of(group=replace(group, maximum=2, max_size=2)) == [full]
    assert of(group=replace(group, maximum=2), most=2) == [used_up]
    unpriced = "the price of its nodes is not known: write usd_per_hour into its policy entry"
    assert of(group=replace(group, maximum=2, max_size=3)) == [unpriced]


@pytest.mark.parametrize(
    ("maximum", "given", "here", "there"),
    [
        (9, {"most": 1}, *["max of group gpu-a10g is 1, and as many run or were asked for"] * 2),
        (9, {"limits": {"usd_per_hour": 6}}, *["limits.usd_per_hour is 6, which leaves 0.3280 $/h"] * 2),
        (1, {}, "the MaxSize of the Auto Scaling group is 1: `pulumi up` brings that of the policy", ""),
        (9, {}, "", ""),
    ],
)
def test_what_the_plan_buys_is_counted(maximum: int, given: dict[str, Any], here: str, there: str) -> None:
    """What stands in the way of more is said of its own group, and of the other zone's where it is in its way too."""
    groups = [a_group("gpu-a10g", zone, maximum=maximum) for zone in ZONES]
    lines = told(*groups, pods=[a_pod("p", gpus=4)], **given)
    assert [line.startswith("  next step: grow") for line in lines] == [False, True, False, False, False]
    assert lines[2] == (f"  nothing more is bought: {here}" if here else f"  {FREE}")
    assert lines[4] == (f"  nothing is bought: {there}" if there else f"  {FREE}")


def test_a_pause_and_an_entry_that_is_gone_are_told() -> None:
    """Each alone keeps nodes from being bought."""
    pause = Pause(BUYING, because="month's end")
    assert whys(pauses=(pause,)) == [str(pause)]
    gone = replace(GROUP, entry="gpu-old")
    assert "the policy has no entry gpu-old any more" in whys(gone, name="gpu-old")


@pytest.mark.parametrize(("tries", "again"), [(1, "failed at"), (3, "failed 3 times, last at")])
def test_a_group_that_ec2_refused_is_told_with_what_it_said(tries: int, again: str) -> None:
    """For that code alone."""
    code = "InsufficientInstanceCapacity"
    memory = Memory(backoffs={NAME: Backoff(later(minutes=3), tries, NOW, code)})
    words = f"it {again} 2026-11-21 09:00:00 UTC ({code}), and is left alone until 2026-11-21 09:03:00 UTC"
    refusals = (
        Refusal(at=later(hours=-2), code="Other", message="no"),
        Refusal(at=later(hours=-2), code=code, message=""),
    )
    assert whys(memory=memory) == [words]
    assert whys(replace(GROUP, refusals=refusals), memory=memory) == [words]
    said = (*refusals, Refusal(at=later(hours=-2), code=code, message="there is none"))
    assert whys(replace(GROUP, refusals=said), memory=memory) == [f"{words}: there is none"]
