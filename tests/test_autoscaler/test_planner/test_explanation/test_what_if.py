"""What would be done for pods that are not there yet, and which of them could never have a place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autoscaler.config.policy import Policy
from autoscaler.model.actions import Memory
from autoscaler.model.cluster import Cluster, Pod, Refusal
from autoscaler.model.constraints import Taint
from autoscaler.model.errors import BadInput
from autoscaler.model.pauses import Pause
from autoscaler.model.volumes import Storage, VolumeClaim, VolumeClass
from autoscaler.planner.explanation.what_if import Bought, Reason, WhatIf, impossible, what_if
from autoscaler.planner.plan import plan
from tests.builders import NOW, a_cluster, a_gang, a_group, a_pod, a_policy, an_entry, an_on_prem_node, nodes_of

A100 = a_group()


def asked(*pods: Pod, limits: Any = None, most: int = 4, **look: Any) -> WhatIf:
    """Beside a machine with eight GPUs and a group of p4d, of which the policy allows so many."""
    seen, policy = beside(limits, most, look)
    return what_if(seen, policy, plan(seen, policy, Memory()).memory, pods)


def never(*pods: Pod, limits: Any = None, most: int = 4, **look: Any) -> tuple[Reason, ...]:
    """Of these pods, beside the same."""
    return impossible(*beside(limits, most, look), pods)


def beside(limits: Any, most: int, look: dict[str, Any]) -> tuple[Cluster, Policy]:
    """What is there and what may be bought."""
    ordinary = {"nodes": (an_on_prem_node(),), "groups": [A100], "pods": ()}
    policy = a_policy(an_entry("gpu-a100", max=most), **({"limits": limits} if limits else {}))
    return a_cluster(**ordinary | look), policy


def running(*, gpus: int = 8) -> Pod:
    """What is on the machine."""
    return a_pod("busy", node="dgx-01", phase="Running", started=NOW, gpus=gpus)


def test_own_machines_first_and_the_rest_is_bought() -> None:
    """Beside what runs there; nothing else of the plan is counted."""
    found = asked(*a_gang(pods=3, gpus=4), a_pod("own", gpus=2), pods=(running(gpus=2),))
    assert found.on_nodes == {"dgx-01": 2}
    assert found.bought == (Bought(A100.name, "p4d.24xlarge", "on-demand", A100.usd_per_hour, 1),)
    assert found.waiting == ()
    assert never(*a_gang(pods=3, gpus=4), a_pod("own", gpus=2), pods=(running(gpus=2),)) == ()


def test_the_scheduler_is_taken_to_have_tried_them() -> None:
    """Else nothing would be bought for one of two pods alike while the other may be bound to a machine."""
    found = asked(a_pod("one", gpus=4), a_pod("two", gpus=4), pods=(running(gpus=4),))
    assert (found.on_nodes, [one.nodes for one in found.bought]) == ({"dgx-01": 1}, [1])


def test_what_others_wait_for_is_not_counted() -> None:
    """They are bought for all the same."""
    found = asked(a_pod("own", gpus=8), pods=(running(), a_pod("other", gpus=8)))
    assert [one.nodes for one in found.bought] == [1]
    found = asked(a_pod("own", gpus=8), pods=(a_pod("other", gpus=8),))
    assert (found.on_nodes, [one.nodes for one in found.bought]) == ({}, [1])


def test_pods_go_to_nodes_that_are_on_their_way_and_those_are_not_counted_as_bought() -> None:
    """A node that was asked for and has not joined, or that is bought for others in any case."""
    coming = [a_group(desired=1)]
    found = asked(a_pod("own", gpus=8), nodes=(), groups=coming)
    assert (found.on_the_way, found.bought) == ({A100.name: 1}, ())
    found = asked(*a_gang(pods=3, gpus=4), nodes=(), groups=coming)
    assert (found.on_the_way, [one.nodes for one in found.bought]) == ({A100.name: 2}, [1])
    found = asked(a_pod("own", gpus=4), nodes=(), pods=(a_pod("other", gpus=4),))
    assert (found.on_the_way, found.bought) == ({A100.name: 1}, ())
    found = asked(*a_gang(pods=2, gpus=4), nodes=(), pods=(a_pod("other", gpus=4),))
    assert (found.on_the_way, [one.nodes for one in found.bought]) == ({}, [1])  # both on the new one
    found = asked(a_pod("own", gpus=8), nodes=(), pods=(a_pod("other", gpus=8),))
    assert (found.on_the_way, [one.nodes for one in found.bought]) == ({}, [1])


def test_a_job_that_waits_for_others_to_end_is_not_hopeless() -> None:
    """It waits now, and would not if it were alone."""
    found = asked(a_pod("own", gpus=8), pods=(running(),), most=0)
    assert [one.pods for one in found.waiting] == [1]
    assert never(a_pod("own", gpus=8), pods=(running(),), most=0) == ()


@pytest.mark.parametrize(
    ("look", "limits"),
    [
        ({"pauses": (Pause("all"),)}, None),
        ({"groups": [replace(A100, refusals=(Refusal(NOW, "InsufficientInstanceCapacity"),))]}, None),
        ({"nodes": (an_on_prem_node(cordoned=True, cordoned_by="admin", ready=False),), "groups": []}, None),
        ({"nodes": (an_on_prem_node(taints=(Taint("node.kubernetes.io/disk-pressure"),)),), "groups": []}, None),
    ],
    ids=["paused", "refused", "closed", "under pressure"],
)
def test_what_passes_is_no_reason_to_refuse(look: dict[str, Any], limits: Any) -> None:
    """A pause ends, capacity comes back, a machine is repaired."""
    assert never(*a_gang(pods=1, gpus=8), limits=limits, **{"pods": ()} | look) == ()


@pytest.mark.parametrize(
    ("pods", "given", "said"),
    [
        ((a_pod("own", gpus=16),), {}, "16"),
        (a_gang(pods=6, gpus=8), {}, "max"),
        (a_gang(pods=3, gpus=8), {"limits": {"usd_per_hour": 30}}, "usd_per_hour"),
        ((a_pod("own", selector={"product": "NVIDIA-H100"}),), {"groups": [], "nodes": ()}, "H100"),
    ],
    ids=["a pod larger than any machine", "a gang larger than the policy", "a gang dearer than the limit", "nothing"],
)
def test_what_has_no_place_even_alone_is_hopeless(pods: tuple[Pod, ...], given: dict[str, Any], said: str) -> None:
    """With the reason, and what would change it."""
    found = never(*pods, **{"pods": (running(),)} | given)
    assert sum(one.pods for one in found) == len(pods)
    assert said in " ".join(f"{one.because} {one.would_fit_if}" for one in found)


@pytest.mark.parametrize(
    ("claim", "said"),
    [
        (VolumeClaim("team", "data"), ""),
        (VolumeClaim("team", "data", storage_class="at-once"), ""),
        (VolumeClaim("team", "data", storage_class="later"), "no free volume of class later suits claim data"),
        (VolumeClaim("team", "data", storage_class="lost"), "its StorageClass lost is not there"),
        (VolumeClaim("team", "other"), "volume claim data is not there"),
    ],
)
def test_a_claim_that_is_bound_a_moment_later_is_no_reason_to_refuse(claim: VolumeClaim, said: str) -> None:
    """It was made a moment before the job is submitted; one that nothing will ever bind is."""
    classes = [VolumeClass("at-once", provisioner="p"), VolumeClass("later", waits=True)]
    storage = Storage({("team", claim.name): claim}, classes={one.name: one for one in classes})
    found = never(*a_gang(pods=2, gpus=8, claims=("data",)), storage=storage)
    assert [said in one.because for one in found] == ([True] if said else [])


QUOTA: dict[str, Any] = {"quota": "L-DB2E81BA", "vcpus": 48, "quota_left": 0}


@pytest.mark.parametrize(
    ("limits", "group"),
    [
        ({"nodes": 2}, {}),
        ({"gpus": 16}, {}),
        ({"usd_per_hour": 50}, {}),
        (None, QUOTA),
        (None, {"launching": 1, "desired": 2, "maximum": 2}),
    ],
    ids=["nodes", "GPUs", "dollars", "quota", "launches"],
)
def test_nodes_that_others_use_now_are_no_reason_to_refuse(limits: Any, group: dict[str, Any]) -> None:
    """Limits and quotas are free again once their jobs have ended; also of machines that are being ended."""
    used = {key: value for key, value in group.items() if key in QUOTA}
    busy = replace(a_group("gpu-a10g", joined=2), **used)
    ending = replace(busy.instances[0], state="terminating", held=True)
    policy = a_policy(an_entry("gpu-a10g", max=2), an_entry("gpu-a100", max=2), limits=limits or {})
    job = a_gang(pods=2, gpus=8)
    for there in (busy, replace(busy, instances=(ending, busy.instances[1]), desired=1)):
        nodes = nodes_of(there)
        residents = [a_pod(f"busy-{node.name}", node=node.name, phase="Running", gpus=4) for node in nodes[1:]]
        groups = [there, a_group(**{"joined": 0} | group)]
        assert impossible(a_cluster(nodes=nodes, groups=groups, pods=residents), policy, job) == ()
        [found] = impossible(a_cluster(nodes=nodes, groups=groups, pods=residents), policy, a_gang(pods=3, gpus=8))
        assert found.because.startswith("needs 3 more gpu-a100 nodes")
        assert "max 2 of group gpu-a100 leaves 2" in found.because


def test_what_a_node_of_a_group_could_hold_as_it_is_now_is_not_refused() -> None:
    """By a label that nothing says of a new one."""
    group = a_group("gpu-a10g", joined=1)
    [node] = nodes_of(group)
    nodes = [replace(node, labels={**node.labels, "nvidia.com/gpu.product": "NVIDIA-A10G"})]
    job = a_gang(pods=1, gpus=4, selector={"product": "NVIDIA-A10G"})
    policy = a_policy(an_entry("gpu-a10g"))
    assert impossible(a_cluster(nodes=nodes, groups=[group]), policy, job) == ()
    [found] = impossible(a_cluster(groups=[a_group("gpu-a10g")]), policy, job)
    assert "product" in found.because


def test_pods_that_stand_alone_may_take_turns() -> None:
    """Two that the policy has one node for: the second runs after the first."""
    pair = (a_pod("a", gpus=8), a_pod("b", gpus=8))
    assert [one.pods for one in asked(*pair, most=1, nodes=()).waiting] == [1]
    assert never(*pair, most=1, nodes=()) == ()


def test_a_name_that_is_taken_is_a_mistake() -> None:
    """Of the one that asks."""
    with pytest.raises(BadInput, match="pod team/busy is there already"):
        asked(a_pod("busy"), pods=(running(),))
    with pytest.raises(BadInput, match="pod team/busy is there already"):
        never(a_pod("busy"), pods=(running(),))
