"""Why a gang found no place, in words: what no machine holds, which limits are in the way, what is full."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autoscaler.model.actions import BUSY, IMPOSSIBLE, LIMIT, MONEY, PAUSED, QUOTA, REFUSED, Backoff
from autoscaler.model.cluster import Group, Pod
from autoscaler.model.constraints import Requirement
from autoscaler.model.feasibility import NODE_NAME
from autoscaler.model.pauses import BUYING, Pause
from autoscaler.model.resources import ATTACHMENTS, Resources
from autoscaler.planner.obstacles.reasons import Reasons
from autoscaler.planner.obstacles.search import Found, Search, Work
from autoscaler.planner.obstacles.unbuilt_groups import ADDED
from autoscaler.planner.placement.available_offerings import offerings
from autoscaler.planner.placement.gang_packing import Demand, Placed
from autoscaler.planner.placement.offerings import Ceilings, Market
from autoscaler.planner.placement.snapshot import Snapshot
from autoscaler.planner.supply.fleet import survey
from autoscaler.planner.supply.node_places import new_place
from tests.builders import NOW, ZONES, a_cluster, a_group, a_pod, a_policy, an_entry, an_on_prem_node, later

A10G = tuple(a_group("gpu-a10g", zone, vcpus=48, quota="L-1", usd_per_hour=2.0, maximum=5) for zone in ZONES)
CPU = tuple(a_group("cpu", zone, vcpus=16, quota="L-2", usd_per_hour=0.5, maximum=5) for zone in ZONES)
GROUPS = (*A10G, *CPU)
POLICY = a_policy(
    an_entry("gpu-a10g", max=9), an_entry("cpu", max=9), limits={"usd_per_hour": 10, "gpus": 12, "nodes": 6}
)


def reasons(
    *pods: Pod, ceilings: Ceilings | None = None, closed: Any = None, policy: Any = POLICY, **look: Any
) -> Reasons:
    """Of a cluster with two groups in two zones each; ``ceilings``: what is left of the limits now."""
    cluster = a_cluster(**{"pods": pods, "groups": GROUPS} | look)
    fleet = survey(cluster, policy, closed or {})
    snapshot = Snapshot(fleet.places, cluster.pods, [pod for pod in cluster.pods if not pod.node])
    market = Market(snapshot, offerings(cluster, policy, fleet), ceilings or Ceilings())
    return Reasons(Search(cluster, policy, fleet, market, Work(1_000)))


def bought(*groups: Group) -> Found:
    """A gang for which these would be bought, a node each."""
    places = tuple(new_place(group, f"new-{number}", dict(group.allocatable)) for number, group in enumerate(groups))
    return Found((), Placed((), places), {}, (), frozenset())


def impossible(pod: Pod, **look: Any) -> str:
    """What is said of it; empty where some machine could hold it."""
    found = reasons(pod, **look)
    verdict = found.impossible(found.search.snapshot.shape(pod))
    assert verdict is None or verdict.cause == IMPOSSIBLE
    return verdict.because if verdict else ""


# --- What no machine holds --------------------------------------------------------------------------------------------


def test_a_pod_that_some_empty_machine_holds_is_not_impossible() -> None:
    """Of a group, of an entry without a group yet, or one of ours, whatever runs there now."""
    assert impossible(a_pod(gpus=4)) == ""
    assert impossible(a_pod(gpus=8)) != ""
    assert impossible(a_pod(gpus=8), policy=a_policy(an_entry("gpu-a100"))) == ""
    full = a_pod("full", node="dgx-01", gpus=8, phase="Running")
    assert impossible(a_pod(gpus=8), pods=[full, a_pod(gpus=8)], nodes=[an_on_prem_node()]) == ""


@pytest.mark.parametrize(
    ("asks", "because"),
    [
        ({"gpus": 5}, "asks 5 nvidia.com/gpu on one node; the largest machine has 4 (gpu-a10g)"),
        ({"cpu": 50}, "asks 50 cpu on one node; the largest machine has 47 (gpu-a10g)"),
        (
            {"gpus": 5, "cpu": 50},
            (
                "asks 5 nvidia.com/gpu on one node; the largest machine has 4 (gpu-a10g); "
                "asks 50 cpu on one node; the largest machine has 47 (gpu-a10g)"
            ),
        ),
    ],
)
def test_an_amount_that_no_machine_has_is_told_with_the_largest(asks: dict[str, int], because: str) -> None:
    """GPUs first."""
    assert impossible(a_pod(**asks)) == because


def test_an_amount_that_the_largest_machine_has_exactly_is_not_told() -> None:
    """Only what is more than that."""
    assert impossible(a_pod(gpus=5, cpu=47)).count(" on one node") == 1
    nodes = [
        an_on_prem_node("wide", gpus=0, cpu=90, memory="64Gi"),
        an_on_prem_node("deep", gpus=0, cpu=8, memory="1Ti"),
    ]
    said = impossible(a_pod(cpu=90, memory="1Ti"), nodes=nodes, groups=(), policy=a_policy(an_entry("cpu")))
    assert said.endswith("wide comes nearest, with 64Gi memory")


def test_a_pod_that_asks_for_a_node_by_its_name_is_shut_out_of_all_others() -> None:
    """Not of that one; volumes that are attached elsewhere make no machine too small."""
    named = a_pod(cpu=1, affinity=((Requirement(NODE_NAME, "In", ("b",)),),))
    nodes = [an_on_prem_node(name, gpus=0) for name in "ab"]
    assert impossible(named, nodes=nodes) == ""
    assert "cpu, gpu-a10g, a: no match" in impossible(named, nodes=[an_on_prem_node("a", gpus=0)])
    attached = a_pod(requests=Resources({"cpu": 1000, "pods": 1, f"{ATTACHMENTS}ebs.csi.aws.com": 99}))
    assert impossible(attached) == ""


def test_of_a_resource_that_nothing_has_that_is_said() -> None:
    """Not how much the largest has."""
    assert impossible(a_pod(gpus=1), groups=CPU, policy=a_policy(an_entry("cpu"))) == (
        "asks 1 nvidia.com/gpu; no machine has any"
    )


def test_where_each_amount_is_somewhere_the_machine_that_lacks_the_fewest_is_named() -> None:
    """With what it has of those; of two that lack as many the one with more CPUs."""
    nodes = [
        an_on_prem_node("wide", gpus=0, cpu=96, memory="64Gi"),
        an_on_prem_node("deep", gpus=0, cpu=8, memory="2Ti"),
    ]
    said = impossible(a_pod(cpu=90, memory="1Ti"), nodes=nodes, groups=(), policy=a_policy(an_entry("cpu")))
    assert (
        said == "asks 90 cpu and 1Ti memory on one node; no machine has all of it: wide comes nearest, with 64Gi memory"
    )


def test_what_shuts_a_pod_out_of_machines_that_are_large_enough_is_named() -> None:
    """Groups by their entry, then machines; three of them, and how many others."""
    strict = a_pod(gpus=1, tolerations=())
    assert impossible(strict) == (
        "no machine that is large enough, here or to be bought, takes it: "
        "gpu-a10g: taint nvidia.com/gpu:NoSchedule not tolerated"
    )
    nodes = [an_on_prem_node(f"dgx-{number}") for number in range(3)]
    assert "gpu-a10g, dgx-0, dgx-1 and 1 more: taint" in impossible(strict, nodes=nodes)
    assert "gpu-a10g, dgx-0, dgx-1 and 1 more: no match" in impossible(
        a_pod(gpus=1, selector={"host": "x"}), nodes=nodes
    )
    elsewhere = impossible(a_pod(gpus=1, selector={"zone": "us-east-1c"}))
    assert elsewhere.endswith(
        "takes it: gpu-a10g: "
        "no match for the pod's node selector or affinity (topology.kubernetes.io/zone is us-east-1c)"
    )


def test_without_any_machine_that_is_said() -> None:
    """And no more."""
    none = reasons(a_pod(), groups=())
    none.search.policy = a_policy().model_copy(update={"groups": ()})
    verdict = none.impossible(none.search.snapshot.shape(a_pod()))
    assert verdict is not None
    assert (verdict.because, verdict.cause) == ("there is no machine, and the policy names no group", IMPOSSIBLE)


# --- Limits -----------------------------------------------------------------------------------------------------------


def limited(found: Found, left: Ceilings | None = None, **given: Any) -> tuple[str, str]:
    """(cause, words); both empty where no limit is in the way."""
    verdict = reasons(**given).limited(found, left or Ceilings())
    return (verdict.cause, verdict.because) if verdict else ("", "")


FULL: dict[str, Any] = {"usd": 10.0, "nodes": 6, "gpus": 12, "entries": {"gpu-a10g": 9, "cpu": 9}}


def ceilings(**left: Any) -> Ceilings:
    """As the policy has them, but for these."""
    return Ceilings(**FULL | {"quotas": {}} | left)


@pytest.mark.parametrize(
    ("left", "cause", "but"),
    [
        ({"entries": {"gpu-a10g": 1, "cpu": 9}}, LIMIT, "max 9 of group gpu-a10g leaves 1"),
        ({"entries": {"gpu-a10g": -2, "cpu": 9}}, LIMIT, "max 9 of group gpu-a10g leaves 0"),
        ({"usd": 3.999}, MONEY, "limits.usd_per_hour 10 leaves 3.99"),
        ({"usd": -1.0}, MONEY, "limits.usd_per_hour 10 leaves 0.00"),
        ({"nodes": 1}, LIMIT, "limits.nodes 6 leaves 1"),
        ({"usd": 1.0, "nodes": 1}, MONEY, "limits.usd_per_hour 10 leaves 1.00, and limits.nodes 6 leaves 1"),
    ],
)
def test_each_limit_that_a_purchase_would_break_is_told_with_what_it_leaves(
    left: dict[str, Any], cause: str, but: str
) -> None:
    """Cents are rounded down, and nothing is left of what is overspent."""
    now = ceilings(**left)
    found = limited(bought(A10G[0], A10G[1]), now, ceilings=now)
    assert found == (cause, f"needs 2 more gpu-a10g nodes (4.00 $/h), but {but}")
    enough = ceilings(usd=4.0, nodes=2, gpus=8, entries={"gpu-a10g": 2}, quotas={"L-1": 96})
    assert limited(bought(*A10G), enough, ceilings=enough) == ("", "")


def test_limits_on_gpus_and_vcpus_say_how_many_would_be_bought() -> None:
    """A quota that is a Capacity Reservation is named so."""
    now = ceilings(gpus=7, quotas={"L-1": 95, "L-2": 0})
    assert limited(bought(*A10G), now, ceilings=now) == (
        LIMIT,
        (
            "needs 2 more gpu-a10g nodes (4.00 $/h) with 8 GPUs with 96 vCPUs, but limits.gpus 12 leaves 7, "
            "and quota L-1 of the AWS account leaves 95"
        ),
    )
    now = ceilings(gpus=0)
    assert limited(bought(CPU[0]), now, ceilings=now) == ("", "")
    reserved = replace(A10G[0], quota="cr-1")
    now = ceilings(quotas={"cr-1": 0})
    assert limited(bought(reserved), now, ceilings=now)[1].endswith("but Capacity Reservation cr-1 leaves 0")
    assert limited(bought(reserved), now, ceilings=now)[0] == QUOTA


def test_what_others_in_turn_wait_for_is_told_apart_from_what_is_left_now() -> None:
    """It would do for this gang alone."""
    others = ", which those before it in turn wait for"
    assert limited(bought(A10G[0]), ceilings(nodes=0), ceilings=ceilings(nodes=1))[1].endswith(f"leaves 1{others}")
    assert limited(bought(A10G[0]), ceilings(usd=1.0), ceilings=ceilings(usd=2.0))[1].endswith(f"leaves 2.00{others}")
    assert limited(bought(A10G[0]), ceilings(usd=1.0), ceilings=ceilings(usd=1.5))[1].endswith("leaves 1.50")
    entries = {"gpu-a10g": 0}
    assert limited(bought(A10G[0]), ceilings(entries=entries), ceilings=ceilings(entries={"gpu-a10g": 1}))[1].endswith(
        others
    )


def test_nodes_of_several_groups_are_told_with_their_sum() -> None:
    """In the order of their names; what is paid for, or has no price yet, is told so."""
    now = ceilings(nodes=0)
    mixed = limited(bought(A10G[0], CPU[0], CPU[1]), now, ceilings=now)[1]
    assert mixed.startswith("needs 2 more cpu nodes and 1 more gpu-a10g node (3.00 $/h), but")
    for usd, said in (
        (0.0, "paid for already"),
        (1e-8, "at a price that is not known yet"),
        (0.005, "0.01 $/h"),
        (0.0049, "at a price that is not known yet"),
    ):
        (first, *_) = (replace(CPU[0], usd_per_hour=usd),)
        assert f"({said})" in limited(bought(first), now, ceilings=now)[1]


def test_where_nothing_is_bought_no_limit_is_in_the_way() -> None:
    """Nor where only a group would have to be added."""
    now = ceilings(nodes=0)
    assert limited(bought(), now, ceilings=now) == ("", "")
    assert limited(bought(replace(CPU[0], name=ADDED)), now, ceilings=now) == ("", "")


def test_a_pause_a_refusal_and_a_maximum_are_told_of_each_group() -> None:
    """A pause once; a maximum only where that of the entry is not told."""
    pause = Pause(BUYING, because="month's end")
    found = limited(bought(*A10G), pauses=(pause,))
    assert found == (PAUSED, f"needs 2 more gpu-a10g nodes (4.00 $/h), but {pause}")
    closed = {A10G[0].name: Backoff(later(minutes=3), 1, NOW, "InsufficientInstanceCapacity")}
    cause, words = limited(bought(A10G[0]), closed=closed)
    assert cause == REFUSED
    assert words.endswith(
        f"but g5.12xlarge in {ZONES[0]} is left alone until 2026-11-21 09:03:00 UTC (InsufficientInstanceCapacity), "
        "and nothing else that may be bought holds it"
    )
    six = bought(*[A10G[0]] * 6)
    name = A10G[0].name
    assert limited(six) == (
        LIMIT,
        f"needs 6 more gpu-a10g nodes (12.00 $/h), but the MaxSize of Auto Scaling group {name} leaves 5",
    )
    assert limited(bought(*[A10G[0]] * 5)) == ("", "")
    small = a_policy(an_entry("gpu-a10g", max=5), an_entry("cpu", max=9))
    assert limited(six, policy=small) == ("", "")
    two = (a_group("gpu-a10g", maximum=5, joined=2), *CPU)
    assert limited(bought(*[A10G[0]] * 4), groups=two)[1].endswith(f"{name} leaves 3")
    above = (a_group("gpu-a10g", maximum=1, joined=2), *CPU)
    assert limited(bought(above[0]), groups=above)[1].endswith(f"{name} leaves 0")


def test_a_group_that_is_not_there_yet_is_told_as_that() -> None:
    """Whatever its maximum."""
    assert limited(bought(A10G[0]), groups=CPU) == (
        LIMIT,
        f"needs 1 more gpu-a10g node (2.00 $/h), but group gpu-a10g has no Auto Scaling group in {ZONES[0]} yet",
    )


# --- What is full -----------------------------------------------------------------------------------------------------


def busy(*pods: Pod, **look: Any) -> str:
    """What is said of them as one gang."""
    found = reasons(*pods, **look)
    shapes = tuple((pod.key, found.search.snapshot.shape(pod)) for pod in pods)
    verdict = found.busy(Demand("gang", shapes))
    assert verdict.cause == BUSY
    return verdict.because


def test_what_is_against_each_machine_that_is_there_is_told_of_the_largest_pod() -> None:
    """Then what is closed; without a machine what is against a new one, or that there is none."""
    nodes = [an_on_prem_node("a", gpus=2), an_on_prem_node("b", gpus=1)]
    one, two = a_pod("one", gpus=4), a_pod("two", gpus=1)
    assert busy(one, nodes=nodes) == (
        "it fits nowhere now, and what may be bought does not change that: "
        "2 nodes: not enough nvidia.com/gpu (asks 4, at most 2 free)"
    )
    assert busy(two, one, nodes=nodes).startswith("its 2 pods do not fit together, and")
    assert "asks 4" in busy(two, one, nodes=nodes)
    shut = [*nodes, an_on_prem_node("c", cordoned=True, cordoned_by="kubectl"), an_on_prem_node("d", ready=False)]
    assert busy(one, nodes=shut).count("; 1 node: ") == 2
    alike = [*nodes, *(an_on_prem_node(name, ready=False) for name in "cd")]
    assert busy(one, nodes=alike).count("; 2 nodes: ") == 1
    assert busy(a_pod(gpus=5)).endswith(": not enough nvidia.com/gpu (asks 5, at most 4 free)")
    assert busy(a_pod(), groups=()).endswith("does not change that: no node")
