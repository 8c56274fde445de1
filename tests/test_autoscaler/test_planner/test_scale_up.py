"""Waiting pods -> on-prem, what is there, what is coming, what is bought; and words for the others."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

import pytest

from autoscaler.config.policy import Policy
from autoscaler.model import labels as words
from autoscaler.model.actions import (
    IMPOSSIBLE,
    Admit,
    Assignment,
    Backoff,
    Cancel,
    Cordon,
    Grow,
    Memory,
    Nominate,
    Plan,
    Recreate,
    Remove,
    Uncordon,
    Waiting,
)
from autoscaler.model.cluster import Cluster, Instance, Node, Pod, Refusal
from autoscaler.model.constraints import PodTerm, Requirement, Spread, Taint
from autoscaler.model.needed_changes import NeededChange
from autoscaler.model.resources import Resources
from autoscaler.planner.plan import plan
from tests.builders import (
    NOW,
    a_cluster,
    a_daemon_set,
    a_gang,
    a_group,
    a_pod,
    a_policy,
    an_entry,
    an_on_prem_node,
    later,
    nodes_of,
    selects,
)

S = TypeVar("S")


def decide(cluster: Cluster, policy: Policy | None = None, memory: Memory | None = None) -> Plan:
    """The plan for it."""
    return plan(cluster, policy or a_policy(), memory or Memory())


def steps(decided: Plan, kind: type[S]) -> list[S]:
    """Its steps of one kind."""
    return [step for step in decided.steps if isinstance(step, kind)]


def grown(decided: Plan) -> dict[str, int]:
    """Auto Scaling group -> nodes more."""
    return {step.group: step.by for step in steps(decided, Grow)}


def words_for(decided: Plan, pod: str = "team/pod") -> Waiting:
    """What is said of the pod."""
    (found,) = (one for one in decided.waiting if one.pod == pod)
    return found


def busy(node: Node, gpus: int, name: str = "") -> Pod:
    """A pod that runs there."""
    return a_pod(name or f"on-{node.name}", gpus=gpus, node=node.name, phase="Running")


# --- On-prem first ----------------------------------------------------------------------------------------------------


def test_a_gang_that_fits_on_prem_is_admitted_and_nothing_is_bought() -> None:
    """Each pod is given the node that was found for it."""
    decided = decide(a_cluster(pods=a_gang(pods=2, gpus=8), nodes=[an_on_prem_node("dgx-1"), an_on_prem_node("dgx-2")]))
    assert [step.placements for step in steps(decided, Admit)] == [
        (("team/mnist-worker-0", "dgx-1"), ("team/mnist-worker-1", "dgx-2"))
    ]
    assert (grown(decided), decided.waiting) == ({}, ())


def test_what_does_not_fit_on_prem_spills_over_and_the_gang_waits_as_a_whole() -> None:
    """One worker has a machine on-prem, one does not: neither is admitted until both have."""
    decided = decide(a_cluster(pods=a_gang(pods=2, gpus=8), nodes=[an_on_prem_node("dgx-1")]))
    assert grown(decided) == {"local-gpu-a100-us-east-1a": 1}
    assert steps(decided, Admit) == []
    assert "1 of 2 pods have a node" in words_for(decided, "team/mnist-worker-0").because
    assert "p4d.24xlarge in us-east-1a" in words_for(decided, "team/mnist-worker-1").because


def test_a_small_job_fills_the_machine_that_is_broken_into_already() -> None:
    """The other one stays whole for those that need all of it."""
    nodes = [an_on_prem_node("dgx-1"), an_on_prem_node("dgx-2")]
    decided = decide(a_cluster(pods=[busy(nodes[1], 4), *a_gang(pods=1, gpus=4)], nodes=nodes))
    assert steps(decided, Admit)[0].placements == (("team/mnist-worker-0", "dgx-2"),)


@pytest.mark.parametrize(
    "unusable",
    [{"ready": False}, {"cordoned": True, "cordoned_by": "somebody"}, {"deleting": True}, {"taints": (Taint("down"),)}],
)
def test_a_machine_that_takes_no_pods_is_not_counted_on(unusable: dict[str, Any]) -> None:
    """Neither one that is down, nor one that somebody else has cordoned."""
    decided = decide(a_cluster(pods=a_gang(pods=1, gpus=8), nodes=[an_on_prem_node(**unusable)]))
    assert grown(decided) == {"local-gpu-a100-us-east-1a": 1}


# --- The cheapest whole fit -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gpus", "pods", "bought"),
    [
        (1, 1, {"local-gpu-a10g-us-east-1a": 1}),
        (4, 3, {"local-gpu-a10g-us-east-1a": 3}),
        (1, 9, {"local-gpu-a10g-us-east-1a": 3}),
        (8, 2, {"local-gpu-a100-us-east-1a": 2}),
        (0, 1, {"local-cpu-us-east-1a": 1}),
    ],
)
def test_the_cheapest_whole_fit_is_bought(gpus: int, pods: int, bought: dict[str, int]) -> None:
    """Of all groups and zones together."""
    assert grown(decide(a_cluster(pods=a_gang(pods=pods, gpus=gpus)))) == bought


def test_workers_and_their_parameter_server_may_be_bought_in_different_groups() -> None:
    """The server tolerates no GPU machine."""
    workers = a_gang(pods=3, gpus=8)
    server = replace(a_pod("mnist-ps-0", cpu=4), gang=workers[0].gang, gates=(words.GATE,))
    decided = decide(a_cluster(pods=[*workers[:2], server]))
    assert grown(decided) == {"local-gpu-a100-us-east-1a": 2, "local-cpu-us-east-1a": 1}


def test_a_server_that_may_share_a_worker_s_machine_does() -> None:
    """What is bought for the workers has room for it."""
    workers = a_gang(pods=3, gpus=8)
    server = replace(workers[2], requests=a_pod(cpu=4).requests)
    assert grown(decide(a_cluster(pods=[*workers[:2], server]))) == {"local-gpu-a100-us-east-1a": 2}


def test_one_step_says_which_pods_need_it_and_why() -> None:
    """In words that a person understands, with absolute size and price."""
    decided = decide(a_cluster(pods=a_gang(pods=4, gpus=8), nodes=[an_on_prem_node("dgx-1")]))
    (step,) = steps(decided, Grow)
    assert (step.to, step.by, step.usd_per_hour) == (3, 3, 65.872926)
    assert step.demand == ("team/mnist-worker-1", "team/mnist-worker-2", "team/mnist-worker-3")
    assert step.because == (
        "gang team/mnist (4 pods) does not fit on-prem (32 nvidia.com/gpu asked, 8 free): "
        "3 x p4d.24xlarge in us-east-1a is the cheapest whole fit at 65.87 $/h"
    )
    assert decided.usd_per_hour == 65.872926


def test_what_an_earlier_gang_of_the_plan_takes_of_our_machines_is_free_for_no_later_one() -> None:
    """In the reason either: the first takes the machine of eight, and buys for the rest."""
    first, later_one = a_gang(pods=3, gpus=8), a_gang("small", 2, gpus=4, created=later(seconds=1))
    groups = [a_group("gpu-a100", maximum=2), a_group("gpu-a10g")]
    decided = decide(a_cluster(pods=[*first, *later_one], nodes=[an_on_prem_node("dgx-1")], groups=groups))
    assert [step.because.partition(":")[0] for step in steps(decided, Grow)] == [
        "gang team/mnist (3 pods) does not fit on-prem (24 nvidia.com/gpu asked, 8 free)",
        "gang team/small (2 pods) does not fit on-prem (8 nvidia.com/gpu asked, 0 free)",
    ]


def test_a_full_zone_makes_the_next_one_carry_the_rest() -> None:
    """An Auto Scaling group's own maximum ends a zone, not the gang."""
    groups = [a_group(zone="us-east-1a", maximum=1), a_group(zone="us-east-1b", maximum=5)]
    decided = decide(a_cluster(pods=a_gang(pods=3, gpus=8), groups=groups))
    assert grown(decided) == {"local-gpu-a100-us-east-1a": 1, "local-gpu-a100-us-east-1b": 2}


def test_a_gang_that_asks_for_one_zone_gets_one() -> None:
    """Though the first zone has room for one of its pods."""
    groups = [a_group(zone="us-east-1a", maximum=1), a_group(zone="us-east-1b", maximum=5)]
    decided = decide(a_cluster(pods=a_gang(pods=3, gpus=8, topology=words.ZONE), groups=groups))
    assert grown(decided) == {"local-gpu-a100-us-east-1b": 3}


def test_a_member_made_anew_joins_its_gang_s_zone() -> None:
    """The zone is settled by those that run."""
    there = a_group(zone="us-east-1b", joined=1)
    (node,) = nodes_of(there)
    first, second = a_gang(pods=2, gpus=8, topology=words.ZONE)
    running = replace(first, node=node.name, phase="Running", gates=())
    decided = decide(a_cluster(pods=[running, second], nodes=[node], groups=[a_group(), there]))
    assert grown(decided) == {"local-gpu-a100-us-east-1b": 1}


def test_a_gang_that_asks_for_one_host_gets_one() -> None:
    """Two halves of a machine, though two other machines have a half each."""
    nodes = [an_on_prem_node("dgx-1"), an_on_prem_node("dgx-2")]
    pods = [busy(nodes[0], 4), busy(nodes[1], 4), *a_gang(pods=2, gpus=4, topology=words.HOSTNAME)]
    assert grown(decide(a_cluster(pods=pods, nodes=nodes))) == {"local-gpu-a100-us-east-1a": 1}


def test_new_nodes_leave_room_for_daemons() -> None:
    """What every node will carry is not offered to pods; a DaemonSet that does not go there takes nothing."""
    pods = a_gang(pods=1, cpu=15)
    assert grown(decide(a_cluster(pods=pods))) == {"local-cpu-us-east-1a": 1}
    elsewhere = a_daemon_set("gpu-exporter", affinity=(selects(gpu="yes"),))
    assert grown(decide(a_cluster(pods=pods, daemon_sets=(elsewhere,)))) == {"local-cpu-us-east-1a": 1}
    decided = decide(a_cluster(pods=pods, daemon_sets=(a_daemon_set(),)))
    assert grown(decided) == {}
    assert words_for(decided, "team/mnist-worker-0").hopeless


def test_a_group_that_the_policy_no_longer_names_is_not_bought_in() -> None:
    """The policy is what may be bought."""
    assert grown(decide(a_cluster(pods=a_gang(pods=1, gpus=8)), a_policy(an_entry("cpu")))) == {}


# --- On its way: counted once -----------------------------------------------------------------------------------------


def test_what_was_asked_for_already_is_not_asked_for_again() -> None:
    """Desired capacity is the only record of it: no memory is needed."""
    cluster = a_cluster(pods=a_gang(pods=2, gpus=8), groups=[a_group(desired=2)])
    decided = decide(cluster)
    assert grown(decided) == {}
    assert "on its way" in words_for(decided, "team/mnist-worker-0").because


@pytest.mark.parametrize(
    "half_there",
    [
        {"ready": False, "taints": (Taint("node.kubernetes.io/not-ready", effect="NoExecute"),)},
        {"allocatable": Resources.parse({"cpu": 95, "memory": "1100Gi", "pods": 110})},
        {"ready": False, "allocatable": Resources()},
    ],
)
def test_a_node_that_is_not_quite_there_is_still_on_its_way(half_there: dict[str, Any]) -> None:
    """Registered and not Ready, or its GPUs not offered yet: nothing more is bought, and no pod is admitted."""
    group = a_group(joined=1)
    cluster = a_cluster(pods=a_gang(pods=1, gpus=8), nodes=nodes_of(group, **half_there), groups=[group])
    decided = decide(cluster)
    assert (grown(decided), steps(decided, Admit)) == ({}, [])
    assert len(decided.waiting) == 1


def test_a_node_that_never_becomes_ready_is_given_up() -> None:
    """After the boot time-out it counts for nothing, and another is bought."""
    group = a_group(joined=1)
    nodes = nodes_of(group, ready=False)
    decided = decide(a_cluster(pods=a_gang(pods=1, gpus=8), nodes=nodes, groups=[group], seen_at=later(minutes=15)))
    assert grown(decided) == {group.name: 1}


def test_no_pod_counts_on_what_comes_for_another() -> None:
    """Two gangs, one machine on its way: the older one has it."""
    pods = [*a_gang("old", 1, gpus=8), *a_gang("new", 1, gpus=8, created=later(seconds=1))]
    decided = decide(a_cluster(pods=pods, groups=[a_group(desired=1)]))
    assert [step.demand for step in steps(decided, Grow)] == [("team/new-worker-0",)]


def test_a_node_of_ours_that_is_cordoned_is_cheaper_than_a_new_one() -> None:
    """It is uncordoned, and the gang admitted once that is seen."""
    group = a_group(joined=1)
    nodes = nodes_of(group, cordoned=True, cordoned_by=words.AUTOSCALER, cordoned_at=NOW)
    decided = decide(a_cluster(pods=a_gang(pods=1, gpus=8), nodes=nodes, groups=[group]))
    assert [step.node for step in steps(decided, Uncordon)] == [nodes[0].name]
    assert (grown(decided), steps(decided, Admit)) == ({}, [])


def test_an_admitted_pod_holds_its_node_until_it_is_bound() -> None:
    """Nothing more urgent is planned onto it in between."""
    admitted = replace(a_gang("first", 1, gpus=8)[0], gates=(), affinity=(selects(host="dgx-1"),))
    urgent = a_gang("urgent", 1, gpus=8, priority=100)
    decided = decide(a_cluster(pods=[admitted, *urgent], nodes=[an_on_prem_node("dgx-1")]))
    assert grown(decided) == {"local-gpu-a100-us-east-1a": 1}


def test_an_admitted_pod_whose_node_is_gone_is_told_how_to_go_on() -> None:
    """It is pinned to a name that will not come back."""
    admitted = replace(a_gang("first", 1, gpus=8)[0], gates=(), affinity=(selects(host="dgx-9"),))
    ours = replace(admitted, admitted_to="dgx-9", owner="Job/first")
    for pod, change in (
        (ours, "the pod is deleted"),
        (admitted, "asks for kubernetes.io/hostname dgx-1 in place of dgx-9"),
    ):
        said = words_for(decide(a_cluster(pods=[pod], nodes=[an_on_prem_node("dgx-1")])), "team/first-worker-0")
        assert said.because == "is bound for node dgx-9: not there"
        assert change in said.would_fit_if


def test_a_pod_that_we_pinned_where_it_cannot_start_is_made_anew() -> None:
    """Its owner makes it again, gated: a new place is sought for it."""
    ours = {"gates": (), "affinity": (selects(host="dgx-9"),), "admitted_to": "dgx-9", "owner": "Job/first"}
    admitted = replace(a_gang("first", 1, gpus=8)[0], **ours)
    decided = decide(a_cluster(pods=[admitted], nodes=[an_on_prem_node("dgx-1")]))
    assert steps(decided, Recreate) == [Recreate("team/first-worker-0", "it is bound for node dgx-9: not there")]


@pytest.mark.parametrize(
    ("pod", "node"),
    [
        ({"admitted_to": ""}, {"name": "dgx-1"}),  # somebody else pinned it
        ({"owner": ""}, {"name": "dgx-1"}),  # nobody would make it again
        ({}, {"name": "dgx-9", "ready": False}),  # may become ready
        ({}, {"name": "n", "ready": False, "labels": {words.HOSTNAME: "dgx-9"}}),  # as above, by another name
        ({}, {"name": "dgx-9"}),  # it is about to be bound
    ],
)
def test_no_other_pinned_pod_is_deleted(pod: dict[str, Any], node: dict[str, Any]) -> None:
    """Only what is ours, would come back, and waits in vain."""
    ours = {"gates": (), "affinity": (selects(host="dgx-9"),), "admitted_to": "dgx-9", "owner": "Job/first"} | pod
    admitted = replace(a_gang("first", 1, gpus=8)[0], **ours)
    assert steps(decide(a_cluster(pods=[admitted], nodes=[an_on_prem_node(**node)])), Recreate) == []


# --- Whole or not at all ----------------------------------------------------------------------------------------------


def test_a_gang_half_created_buys_nothing() -> None:
    """It is not known yet what the others will ask for."""
    decided = decide(a_cluster(pods=a_gang(pods=4, gpus=8)[:3]))
    assert grown(decided) == {}
    assert words_for(decided, "team/mnist-worker-0").because == (
        "gang team/mnist is not complete: 3 of 4 pods have been created"
    )


def test_a_gang_that_cannot_be_met_as_a_whole_leaves_its_share_to_others() -> None:
    """The large one is older; it waits, and the small one has the machine."""
    large, small = a_gang("large", 3, gpus=8), a_gang("small", 1, gpus=8, created=later(seconds=1))
    decided = decide(a_cluster(pods=[*large, *small], nodes=[an_on_prem_node("dgx-1")]), a_policy(limits={"nodes": 1}))
    assert [step.gang for step in steps(decided, Admit)] == ["team/small"]
    assert grown(decided) == {}


def test_the_more_urgent_gang_has_the_money() -> None:
    """Priority before age."""
    old, urgent = a_gang("old", 1, gpus=8), a_gang("urgent", 1, gpus=8, priority=5, created=later(seconds=9))
    decided = decide(a_cluster(pods=[*old, *urgent]), a_policy(limits={"gpus": 8}))
    assert [step.demand for step in steps(decided, Grow)] == [("team/urgent-worker-0",)]


def test_an_elastic_gang_starts_with_what_it_needs() -> None:
    """Four are wanted, two are enough, three fit: one waits alone."""
    nodes = [an_on_prem_node(f"dgx-{n}") for n in range(3)]
    decided = decide(a_cluster(pods=a_gang(pods=4, gpus=8, minimum=2), nodes=nodes, groups=[]))
    assert [len(step.placements) for step in steps(decided, Admit)] == [3]
    assert words_for(decided, "team/mnist-worker-3").because


def test_a_pod_made_anew_is_placed_beside_its_running_gang() -> None:
    """Alone: the others hold their places already."""
    nodes = [an_on_prem_node("dgx-1"), an_on_prem_node("dgx-2")]
    first, second = a_gang(pods=2, gpus=8)
    running = replace(first, node="dgx-1", phase="Running", gates=(), admitted_to="dgx-1")
    (step,) = steps(decide(a_cluster(pods=[running, second], nodes=nodes)), Admit)
    assert step.placements == (("team/mnist-worker-1", "dgx-2"),)


def test_where_pods_without_our_gate_have_just_come_room_is_kept_for_a_gang_before_it_starts() -> None:
    """The scheduler may bind more of them before the gang's pods, which can go nowhere else then."""
    gang, nodes = a_gang(pods=2, gpus=4), [an_on_prem_node("dgx-1"), an_on_prem_node("dgx-2")]
    service = a_pod("service", gpus=4, node="dgx-2", phase="Running", created=NOW)
    first = decide(a_cluster(pods=[service, *gang], nodes=nodes))
    assert steps(first, Admit) == []
    (nominate,) = steps(first, Nominate)
    homes = dict(nominate.placements)
    assert homes.keys() == {pod.key for pod in gang}
    kept = [replace(pod, nominated=homes[pod.key]) for pod in gang]
    then = decide(a_cluster(pods=[service, *kept], nodes=nodes))
    assert [dict(step.placements) for step in steps(then, Admit)] == [homes]
    earlier = replace(service, created=NOW - timedelta(minutes=5))
    assert [dict(step.placements) for step in steps(decide(a_cluster(pods=[earlier, *gang], nodes=nodes)), Admit)] == [
        homes
    ]


# --- Refusals and the lost --------------------------------------------------------------------------------------------


def test_after_a_refusal_the_request_is_cancelled_and_another_zone_is_tried() -> None:
    """At once, not after a quarter of an hour; and what is cancelled cannot arrive as well."""
    refused = a_group(desired=2, refusals=(Refusal(later(seconds=-5), "InsufficientInstanceCapacity"),))
    other = a_group(zone="us-east-1b")
    decided = decide(a_cluster(pods=a_gang(pods=2, gpus=8), groups=[refused, other]))
    assert [(step.group, step.to) for step in steps(decided, Cancel)] == [(refused.name, 0)]
    assert grown(decided) == {other.name: 2}


def test_what_a_refused_group_has_is_kept() -> None:
    """Only the machines that were not launched are cancelled."""
    refusal = Refusal(later(seconds=-5), "InsufficientInstanceCapacity")
    refused = replace(a_group(joined=1, refusals=(refusal,)), desired=3)
    decided = decide(a_cluster(pods=a_gang(pods=3, gpus=8), nodes=nodes_of(refused), groups=[refused]))
    assert [(step.was, step.to, step.by) for step in steps(decided, Cancel)] == [(3, 1, 2)]


def test_a_refused_group_is_tried_again_after_its_time() -> None:
    """Then it may be bought in, and until then the plan says when to look again."""
    refused = a_group(refusals=(Refusal(NOW, "InsufficientInstanceCapacity"),))
    policy = a_policy(an_entry("gpu-a100", zones=("us-east-1a",)))
    waiting = decide(a_cluster(pods=a_gang(pods=1, gpus=8), groups=[refused]), policy)
    assert grown(waiting) == {}
    assert "InsufficientInstanceCapacity" in words_for(waiting, "team/mnist-worker-0").because
    assert waiting.wake_at == later(minutes=3)
    again = decide(a_cluster(pods=a_gang(pods=1, gpus=8), groups=[refused], seen_at=later(minutes=3)))
    assert grown(again) == {refused.name: 1}


def test_an_instance_that_never_joins_is_given_back_and_its_group_left_alone() -> None:
    """The next zone is bought in at the same time."""
    lost = Instance("i-lost", "us-east-1a", launched=later(minutes=-15))
    group, other = a_group(desired=1, instances=(lost,)), a_group(zone="us-east-1b")
    decided = decide(a_cluster(pods=a_gang(pods=1, gpus=8), groups=[group, other]))
    assert [(step.instance, step.node) for step in steps(decided, Remove)] == [("i-lost", None)]
    assert grown(decided) == {other.name: 1}
    assert decided.memory.backoffs == {group.name: Backoff(later(minutes=3), 1, NOW, "an instance did not join")}


def test_an_instance_has_its_time_to_join() -> None:
    """Until then it is counted on, and the plan says when to look again."""
    young = Instance("i-young", "us-east-1a", launched=later(minutes=-5))
    decided = decide(a_cluster(pods=a_gang(pods=1, gpus=8), groups=[a_group(desired=1, instances=(young,))]))
    assert decided.steps == ()
    assert decided.wake_at == later(minutes=10)


@pytest.mark.parametrize(
    ("node", "wakes"),
    [
        (replace(nodes_of(a_group("cpu", joined=1))[0], created=NOW, ready=False), later(minutes=15)),
        (replace(nodes_of(a_group("cpu", joined=1))[0], created=NOW, cordoned=True), None),
        (an_on_prem_node("dgx-01", created=NOW, ready=False), None),
    ],
)
def test_a_node_that_is_not_ready_has_its_time_where_it_may_be_ended(node: Node, wakes: datetime | None) -> None:
    """A machine of the lab's own is never given up, and a node that is ready has nothing to wait for."""
    look = a_cluster(nodes=[node], groups=[a_group("cpu", joined=int(bool(node.provider_id)))])
    decided = decide(look, a_policy(an_entry("cpu"), scale_down={"enabled": False}))
    assert decided.wake_at == wakes


@pytest.mark.parametrize(
    ("ending", "bought"),
    [
        ({"state": "terminating", "held": True}, 0),
        ({"state": "terminating"}, 0),
        ({"state": "terminating", "is_down": True}, 1),
        ({"launched": later(minutes=-16)}, 0),
    ],
    ids=["held by a hook", "just told to end", "shut down", "given up by this very plan"],
)
@pytest.mark.parametrize("limits", [{"usd_per_hour": 30.0}, {"nodes": 1}, {"gpus": 8}], ids=repr)
def test_what_is_being_ended_is_paid_for_until_it_is_shut_down(
    ending: dict[str, Any], bought: int, limits: dict[str, Any]
) -> None:
    """AWS bills an instance while it runs, also in the wait of a hook: its money buys the next one after that."""
    desired = 0 if "state" in ending else 1
    group = replace(a_group(), desired=desired, instances=(Instance("i-1", "us-east-1a", **ending),))
    decided = decide(
        a_cluster(pods=a_gang(pods=1, gpus=8), groups=[group, a_group(zone="us-east-1b")]), a_policy(limits=limits)
    )
    assert sum(grown(decided).values()) == bought


@pytest.mark.parametrize(("left", "bought"), [(95, 0), (96, 0), (191, 0), (192, 2), (None, 2)])
def test_nothing_is_bought_beyond_a_quota_that_several_groups_draw_on(left: int | None, bought: int) -> None:
    """A gang of two nodes, of which each zone has one: it is bought whole or not at all, and told why not."""
    groups = [
        replace(a_group(zone=zone, maximum=1), vcpus=96, quota="L-417A185B", quota_left=left)
        for zone in ("us-east-1a", "us-east-1b")
    ]
    decided = decide(a_cluster(pods=a_gang(pods=2, gpus=8), groups=groups))
    assert sum(grown(decided).values()) == bought
    if left is not None and not bought:
        [said] = {one.because for one in decided.waiting}
        assert said.startswith("needs 2 more gpu-a100 nodes (43.92 $/h) with 192 vCPUs, ")
        assert said.endswith(f"but quota L-417A185B of the AWS account leaves {left}")
        assert {one.would_fit_if for one in decided.waiting} == {
            f"AWS raises quota L-417A185B by {192 - left} vCPUs or more"
        }


@pytest.mark.parametrize(("left", "bought"), [(96, 0), (191, 0), (192, 1)])
def test_what_a_minimum_launches_in_place_of_a_node_that_never_joined_draws_on_the_quota(
    left: int, bought: int
) -> None:
    """Beside the instance that is ended, which draws on it until it is gone."""
    terms = {"vcpus": 96, "quota": "L-417A185B", "quota_left": left}
    dead = a_group(joined=1, minimum=1, maximum=1, **terms)
    groups = [dead, a_group(zone="us-east-1b", **terms)]
    decided = decide(a_cluster(pods=a_gang(pods=2, gpus=8), groups=groups, seen_at=later(minutes=16)))
    assert [step.group for step in decided.steps if isinstance(step, Remove)] == [dead.name]
    assert grown(decided) == ({groups[1].name: 1} if bought else {})


def test_a_remembered_back_off_holds_and_ends() -> None:
    """What was remembered is kept until its time."""
    memory = Memory(backoffs={"local-gpu-a100-us-east-1a": Backoff(later(minutes=1), 1, NOW, "Refused")})
    cluster = a_cluster(pods=a_gang(pods=1, gpus=8), groups=[a_group()])
    held = decide(cluster, memory=memory)
    assert (grown(held), held.memory) == ({}, memory)
    assert grown(decide(replace(cluster, seen_at=later(minutes=1)), memory=memory)) == {"local-gpu-a100-us-east-1a": 1}


# --- Words ------------------------------------------------------------------------------------------------------------


def test_a_pod_larger_than_any_machine_is_hopeless_and_told_what_to_do() -> None:
    """No machine and no group could ever hold it."""
    said = words_for(decide(a_cluster(pods=[a_pod(gpus=16)], nodes=[an_on_prem_node()])))
    assert said == Waiting(
        pod="team/pod",
        because="asks 16 nvidia.com/gpu on one node; the largest machine has 8 (gpu-a100)",
        changes=(NeededChange("pod", pod="split", to=2, pods=("team/pod",)),),
        cause=IMPOSSIBLE,
    )
    assert said.would_fit_if == "the task is split: 2 pods, each asking for a part, in place of one"


def test_a_pod_that_selects_what_does_not_exist_is_hopeless() -> None:
    """The words name what it selects."""
    said = words_for(decide(a_cluster(pods=[a_pod(gpus=1, selector={"product": "NVIDIA-H100"})])))
    assert said.hopeless
    assert "nvidia.com/gpu.product is NVIDIA-H100" in said.because


def test_a_pod_that_tolerates_no_gpu_machine_is_told_of_the_taint() -> None:
    """Asking for a GPU is not enough where nothing adds the toleration."""
    said = words_for(decide(a_cluster(pods=[a_pod(gpus=1, tolerations=())])))
    assert said.hopeless
    assert "taint nvidia.com/gpu:NoSchedule not tolerated" in said.because
    assert said.would_fit_if == "the pod tolerates the taint nvidia.com/gpu:NoSchedule"


@pytest.mark.parametrize(
    ("limits", "because"),
    [
        ({"usd_per_hour": 30.0}, "needs 2 more gpu-a100 nodes (43.92 $/h), but limits.usd_per_hour 30 leaves 30.00"),
        ({"gpus": 8}, "needs 2 more gpu-a100 nodes (43.92 $/h) with 16 GPUs, but limits.gpus 8 leaves 8"),
        ({"nodes": 1}, "needs 2 more gpu-a100 nodes (43.92 $/h), but limits.nodes 1 leaves 1"),
    ],
)
def test_a_limit_in_the_way_is_named_with_what_it_leaves(limits: dict[str, Any], because: str) -> None:
    """And nothing is bought, not even the half that the limit would allow."""
    decided = decide(a_cluster(pods=a_gang(pods=2, gpus=8)), a_policy(limits=limits))
    assert grown(decided) == {}
    said = words_for(decided, "team/mnist-worker-0")
    assert (said.because, said.hopeless) == (because, False)
    assert said.would_fit_if


def test_running_nodes_count_against_the_limits() -> None:
    """The limit is on what runs, not on what is bought in one step."""
    there = a_group(joined=1)
    pods = [busy(nodes_of(there)[0], 8), *a_gang(pods=1, gpus=8)]
    decided = decide(a_cluster(pods=pods, nodes=nodes_of(there), groups=[there]), a_policy(limits={"usd_per_hour": 30}))
    assert grown(decided) == {}
    assert "leaves 8.04" in words_for(decided, "team/mnist-worker-0").because


def test_an_entry_that_is_switched_off_buys_nothing_and_gives_back_what_runs() -> None:
    """By ``max: 0``: another one serves what it can, of what needs this one that is told, and its idle nodes go."""
    policy = a_policy(an_entry("gpu-a10g"), an_entry("gpu-a100", max=0))
    off, other = a_group("gpu-a100", maximum=0), a_group("gpu-a10g")
    decided = decide(a_cluster(pods=[a_pod("pod", gpus=4), a_pod("large", gpus=8)], groups=[off, other]), policy)
    assert grown(decided) == {other.name: 1}
    assert "max of group gpu-a100 is 1 or more" in words_for(decided, "team/large").would_fit_if
    running = a_group("gpu-a100", maximum=0, joined=2, desired=0)
    idle = decide(a_cluster(nodes=nodes_of(running), groups=[running, other]), policy)
    assert [step.node for step in steps(idle, Cordon)] == [node.name for node in nodes_of(running)]


def test_an_entry_s_maximum_is_shared_by_its_zones() -> None:
    """Three in all, whatever the zones' own maxima say."""
    decided = decide(a_cluster(pods=a_gang(pods=4, gpus=8)), a_policy(an_entry(max=3)))
    assert grown(decided) == {}
    assert "max 3 of group gpu-a100 leaves 3" in words_for(decided, "team/mnist-worker-0").because


def test_another_s_gate_is_respected() -> None:
    """Nothing is planned for the pod, or its gang, until the other lifts it."""
    first, second = a_gang(pods=2, gpus=8)
    held = replace(first, gates=(*first.gates, "kueue.x-k8s.io/admission"))
    decided = decide(a_cluster(pods=[held, second]))
    assert decided.steps == ()
    assert {one.because for one in decided.waiting} == {"held by scheduling gate kueue.x-k8s.io/admission"}


def test_yunikorn_says_itself_for_which_pods_a_node_is_missing() -> None:
    """Nothing is bought for what waits for a quota, or takes a placeholder's place; the placeholders are a gang."""
    holders = [
        replace(pod, scheduler="yunikorn", gates=(), unschedulable_because="no node") for pod in a_gang(pods=2, gpus=8)
    ]
    executors = [a_pod(f"executor-{number}", gpus=8, scheduler="yunikorn") for number in range(2)]
    decided = decide(a_cluster(pods=[*holders, *executors]))
    assert grown(decided) == {a_group().name: 2}
    assert "takes the place of a placeholder" in words_for(decided, "team/executor-1").because
    silent = replace(holders[1], unschedulable_because="")
    decided = decide(a_cluster(pods=[holders[0], silent]))
    assert grown(decided) == {}
    assert f"YuniKorn does not ask for a node for {silent.key} so far" in words_for(decided, holders[0].key).because


def test_what_is_not_understood_is_said_and_never_a_reason_to_buy() -> None:
    """It is named, per pod."""
    decided = decide(a_cluster(pods=[a_pod(gpus=1, not_understood=("resource claim gpu",))]))
    assert decided.steps == ()
    assert "resource claim gpu" in words_for(decided).because


def test_the_scheduler_s_word_is_passed_on_where_we_see_no_reason() -> None:
    """The pod fits by our rules: nothing is bought, and the difference is said."""
    pod = a_pod(gpus=1, unschedulable_because="0/1 nodes are available: 1 node(s) had volume node affinity conflict.")
    decided = decide(a_cluster(pods=[pod], nodes=[an_on_prem_node()]))
    assert grown(decided) == {}
    assert "volume node affinity conflict" in words_for(decided).because


def test_a_pod_that_the_scheduler_will_bind_needs_no_word() -> None:
    """Ungated, and a free machine: it is the scheduler's turn."""
    decided = decide(a_cluster(pods=[a_pod(gpus=1)], nodes=[an_on_prem_node()]))
    assert (decided.steps, decided.waiting) == ((), ())


def test_daemon_pods_are_no_reason_to_buy() -> None:
    """They come with their node."""
    assert decide(a_cluster(pods=[a_pod(gpus=1, is_daemon=True)])).steps == ()


def test_a_gang_that_fits_nowhere_now_and_cannot_be_bought_for_is_told_what_is_in_the_way() -> None:
    """Its kind of machine is on-prem only, and full."""
    nodes = [
        an_on_prem_node("dgx-1", labels={"lab": "yes"}),
        an_on_prem_node("dgx-2", labels={"lab": "yes"}, ready=False),
    ]
    decided = decide(a_cluster(pods=[busy(nodes[0], 6), a_pod(gpus=4, selector={"lab": "yes"})], nodes=nodes))
    said = words_for(decided)
    assert not said.hopeless
    assert "1 node: not enough nvidia.com/gpu (asks 4, 2 free); 1 node: not ready" in said.because


def test_a_pause_of_no_length_closes_nothing() -> None:
    """A policy may have no back-off at all."""
    refused = a_group(refusals=(Refusal(NOW, "InsufficientInstanceCapacity"),))
    policy = a_policy(scale_up={"refusal_backoff": timedelta(0)})
    assert grown(decide(a_cluster(pods=a_gang(pods=1, gpus=8), groups=[refused]), policy)) == {refused.name: 1}


# --- Where it was bought for ------------------------------------------------------------------------------------------


def test_a_gang_goes_to_the_node_that_was_bought_for_it_though_another_has_joined_first() -> None:
    """Its own is on its way; the free half of another gang's node was not meant for it."""
    small = a_gang("small", 1, gpus=4)
    first = decide(a_cluster(pods=small))
    assert grown(first) == {"local-gpu-a10g-us-east-1a": 1}
    bought = a_group("gpu-a10g", desired=1)
    half = a_group("gpu-a100", joined=1)
    busy_half = busy(nodes_of(half)[0], 4)
    cluster = a_cluster(pods=[*small, busy_half], nodes=nodes_of(half), groups=[bought, half])
    assert [step.placements for step in steps(decide(cluster), Admit)] == [
        (("team/small-worker-0", nodes_of(half)[0].name),)
    ]
    again = decide(cluster, memory=first.memory)
    assert steps(again, Admit) == []
    assert [home.group for home in again.memory.assignments.values()] == [bought.name]


def test_a_pod_that_loses_its_place_moves_and_its_gang_stays_where_it_was_bought_for() -> None:
    """All three would fit on the machine and one node: the other would then stand empty."""
    gang = a_gang("g", 3, gpus=4)
    coming, full = a_group("gpu-a10g", desired=2), a_group("gpu-a100", joined=1)
    (node,) = nodes_of(full)
    homes = {
        gang[0].key: Assignment(f"{coming.name}~1", coming.name),
        gang[1].key: Assignment(f"{coming.name}~2", coming.name),
        gang[2].key: Assignment(node.name, full.name),
    }
    cluster = a_cluster(pods=[*gang, busy(node, 8)], nodes=[node, an_on_prem_node()], groups=[coming, full])
    again = decide(cluster, memory=Memory(assignments=homes))
    assert grown(again) == {}
    assert [again.memory.assignments[pod.key].group for pod in gang] == [coming.name, coming.name, ""]


def test_what_was_meant_and_is_gone_is_forgotten() -> None:
    """A refused purchase binds no pod."""
    gang = a_gang("g", 1, gpus=4)
    first = decide(a_cluster(pods=gang))
    decided = decide(a_cluster(pods=gang, nodes=[an_on_prem_node()]), memory=replace(first.memory, orders={}))
    assert [step.placements[0][1] for step in steps(decided, Admit)] == ["dgx-01"]


def test_what_an_elastic_gang_lacks_is_bought_in_the_plan_that_finds_the_others_a_place() -> None:
    """After a restart without memory, on a node that is on its way; the next plan buys nothing more then."""
    elastic = a_gang("elastic", 3, gpus=2, minimum=1)
    coming = a_group("gpu-a10g", desired=1, maximum=3)
    first = decide(a_cluster(pods=elastic, groups=[coming]))
    assert grown(first) == {coming.name: 1}
    again = decide(a_cluster(pods=elastic, groups=[replace(coming, desired=2)]), memory=first.memory)
    assert grown(again) == {}


def test_what_is_more_than_an_elastic_gang_needs_takes_no_node_of_another() -> None:
    """Its further pods have what is free at no price; a node that was bought for a later gang is not."""
    elastic = a_gang("elastic", 3, gpus=8, minimum=1)
    (small,) = a_gang("small", 1, gpus=8, created=later(seconds=3))
    policy = a_policy(an_entry("gpu-a100", max=2))
    group = a_group("gpu-a100", maximum=2)
    first = decide(a_cluster(pods=[*elastic, small], groups=[group]), policy)
    assert grown(first) == {"local-gpu-a100-us-east-1a": 2}
    group = a_group("gpu-a100", maximum=2, desired=2, joined=1)
    (node,) = nodes_of(group)
    runs = replace(elastic[0], node=node.name, phase="Running", gates=())
    again = decide(
        a_cluster(pods=[runs, *elastic[1:], small], nodes=[node], groups=[group]), policy, memory=first.memory
    )
    assert [key for key, home in again.memory.assignments.items() if home.group] == [small.key]


def test_what_has_no_node_yet_buys_one_rather_than_take_a_dearer_one_of_another() -> None:
    """As after a purchase that failed, or a restart between two: the other would have to buy the dearer one again."""
    large, small = a_group("gpu-a100", desired=1), a_group("gpu-a10g")
    first, other = a_pod("first", gpus=4), a_pod("other", gpus=8, created=later(minutes=1))
    memory = Memory(assignments={other.key: Assignment(f"{large.name}+1", large.name)})
    decided = decide(a_cluster(pods=[first, other], groups=[large, small]), memory=memory)
    assert grown(decided) == {small.name: 1}


def test_room_that_is_there_in_sum_is_no_contradiction() -> None:
    """A taint, a selector or the size of each machine keeps the pod from it: the words say so."""
    decided = decide(a_cluster(pods=[a_pod(cpu=1)], nodes=[an_on_prem_node()], groups=[a_group("cpu")]))
    (step,) = steps(decided, Grow)
    assert "1Gi memory asked, 1Ti free in sum, but not where it may run, or not in one piece): " in step.because


# --- Pods that the scheduler decides about by itself ------------------------------------------------------------------


NO_PLACE = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."


def test_pods_without_our_gate_are_nominated_for_the_node_that_was_bought_for_them() -> None:
    """As soon as it has joined: the scheduler keeps its room for them, and spreads no other there."""
    group = a_group("gpu-a10g", joined=1)
    (node,) = nodes_of(group, ready=False)
    pods = [a_pod(name, gpus=2, unschedulable_because=NO_PLACE) for name in ("a", "b")]
    decided = decide(a_cluster(pods=pods, nodes=[node], groups=[group]))
    assert [step.placements for step in steps(decided, Nominate)] == [(("team/a", node.name), ("team/b", node.name))]
    told = [replace(pod, nominated=node.name) for pod in pods]
    assert steps(decide(a_cluster(pods=told, nodes=[node], groups=[group])), Nominate) == []


def test_a_nomination_that_the_plan_has_left_is_taken_back() -> None:
    """It would keep room from others; but not where the scheduler sends another away for the pod."""
    left = a_pod(gpus=8, nominated="dgx-1", unschedulable_because=NO_PLACE)
    nodes = [an_on_prem_node("dgx-1"), an_on_prem_node("dgx-2", gpus=0)]
    full = a_pod("full", gpus=4, node="dgx-1", phase="Running")
    decided = decide(a_cluster(pods=[left, full], nodes=nodes))
    assert [step.placements for step in steps(decided, Nominate)] == [((left.key, ""),)]
    decided = decide(a_cluster(pods=[left, replace(full, deleting=True)], nodes=nodes))
    assert steps(decided, Nominate) == []


def test_a_pod_that_the_scheduler_has_not_tried_is_not_nominated() -> None:
    """It is bound at this moment, or refused; nor is there need to where all are behind our gate."""
    nodes = [an_on_prem_node()]
    assert steps(decide(a_cluster(pods=[a_pod(gpus=1)], nodes=nodes)), Nominate) == []
    assert steps(decide(a_cluster(pods=a_gang(pods=2, gpus=1), nodes=nodes)), Nominate) == []


def test_where_others_may_take_its_room_a_gang_behind_our_gate_is_nominated_too() -> None:
    """From when its node has joined until its gates are lifted it would else be anybody's."""
    group = a_group("gpu-a10g", joined=1)
    (node,) = nodes_of(group, ready=False)
    gang = a_gang(pods=2, gpus=2)
    loose = a_pod("loose", gpus=4, unschedulable_because=NO_PLACE, created=later(minutes=1))
    decided = decide(a_cluster(pods=[*gang, loose], nodes=[node], groups=[group]))
    [told] = steps(decided, Nominate)
    assert told.placements == tuple((pod.key, node.name) for pod in gang)
    assert "pods without the scheduling gate spillway.dev/gang where most is free" in told.because


def test_where_others_may_take_its_room_a_gang_is_let_go_after_it_is_kept() -> None:
    """A pod that is pinned to a node where its room is gone could never start; gated, it is planned anew."""
    gang = a_gang(pods=2, gpus=2)
    loose = a_pod("loose", gpus=8, created=later(minutes=1))
    nodes = [an_on_prem_node()]
    decided = decide(a_cluster(pods=[*gang, loose], nodes=nodes, groups=[]))
    assert (steps(decided, Admit), len(steps(decided, Nominate))) == ([], 1)
    (step,) = steps(decide(a_cluster(pods=[*gang, loose], nodes=nodes, groups=[], may_nominate=False)), Admit)
    assert len(step.placements) == 2, "with the rights of an older release it goes on as before"
    told = [replace(pod, nominated="dgx-01") for pod in gang]
    (step,) = steps(decide(a_cluster(pods=[*told, loose], nodes=nodes, groups=[])), Admit)
    assert len(step.placements) == 2


def test_a_gang_is_admitted_when_no_other_is_expected_on_its_node_any_more() -> None:
    """The scheduler keeps room for a nomination that the plan has left, and tries a pod that it refused once no more.

    It looks again when something on a node changes, or after five minutes; a nomination that goes is no such thing.
    """
    gang = [replace(pod, nominated="dgx-01") for pod in a_gang(pods=2, gpus=4)]
    gone = a_pod("gone", gpus=8, nominated="dgx-01", unschedulable_because=NO_PLACE, created=later(minutes=1))
    decided = decide(a_cluster(pods=[*gang, gone], nodes=[an_on_prem_node()], groups=[]))
    assert steps(decided, Admit) == []
    [back] = steps(decided, Nominate)
    assert back.placements == ((gone.key, ""),)
    assert back.because == "planned there no more, and a nomination keeps room"
    (step,) = steps(
        decide(a_cluster(pods=[*gang, replace(gone, nominated="")], nodes=[an_on_prem_node()], groups=[])), Admit
    )
    assert len(step.placements) == 2


def test_nominations_are_moved_also_when_only_gangs_behind_our_gate_are_left() -> None:
    """What was kept for them while others waited is in the way of those that are admitted now."""
    group = a_group("gpu-a10g", joined=1)
    (coming,) = nodes_of(group, ready=False)
    moved = replace(a_gang("moved", 1, gpus=4, selector={"zone": "us-east-1a"})[0], nominated="dgx-01")
    gang = a_gang(pods=1, gpus=8)
    nodes = [an_on_prem_node(), coming]
    decided = decide(a_cluster(pods=[moved, *gang], nodes=nodes, groups=[group]))
    assert steps(decided, Admit) == []
    assert [step.placements for step in steps(decided, Nominate)] == [((moved.key, coming.name),)]
    moved = replace(moved, nominated=coming.name)
    assert steps(decide(a_cluster(pods=[moved, *gang], nodes=nodes, groups=[group])), Admit) != []


def test_a_pinned_pod_that_is_still_expected_elsewhere_keeps_others_from_there() -> None:
    """Until it is bound, a moment later."""
    pinned = a_pod("pinned", gpus=4, selector={"host": "dgx-02"}, nominated="dgx-01")
    gang = a_gang(pods=1, gpus=8)
    nodes = [an_on_prem_node(), an_on_prem_node("dgx-02")]
    assert steps(decide(a_cluster(pods=[pinned, *gang], nodes=nodes)), Admit) == []
    assert steps(decide(a_cluster(pods=[replace(pinned, nominated="dgx-02"), *gang], nodes=nodes)), Admit) != []


# --- Spread over zones ------------------------------------------------------------------------------------------------


def spread_gang(pods: int, **given: Any) -> tuple[Pod, ...]:
    """Evenly over zones, one more in one than in another at most."""
    even = Spread(words.ZONE, 1, (Requirement("app", "In", ("e",)),))
    return a_gang(pods=pods, gpus=8, labels={"app": "e"}, spread=(even,), **given)


def test_what_was_planned_evenly_is_found_again_in_any_order() -> None:
    """Two for each zone: taken in the order of their names, the second would be one too many in the first zone."""
    groups = [a_group("gpu-a100", zone) for zone in ("us-east-1a", "us-east-1b")]
    gang = spread_gang(4)
    first = decide(a_cluster(pods=gang, groups=groups))
    assert grown(first) == {group.name: 2 for group in groups}
    homes = {
        gang[number].key: Assignment(f"{groups[number // 2].name}~{number % 2 + 1}", groups[number // 2].name)
        for number in range(4)
    }
    coming = [replace(group, desired=2) for group in groups]
    again = decide(a_cluster(pods=gang, groups=coming), memory=Memory(assignments=homes))
    assert grown(again) == {}
    assert {key: home.group for key, home in again.memory.assignments.items()} == {
        key: home.group for key, home in homes.items()
    }


def test_pods_are_spread_over_the_zones_that_others_will_open() -> None:
    """All in one zone would do now; but when they are bound, nodes of another gang stand in the other."""
    groups = [a_group("gpu-a100", zone) for zone in ("us-east-1a", "us-east-1b")]
    other = a_gang("other", pods=1, gpus=8, selector={"zone": "us-east-1b"}, created=later(minutes=1))
    decided = decide(a_cluster(pods=[*spread_gang(2), *other], groups=groups))
    assert grown(decided) == {groups[0].name: 1, groups[1].name: 2}


# --- Pods on nodes that nothing is planned on -------------------------------------------------------------------------


CLOSED: tuple[dict[str, Any], ...] = ({"cordoned": True}, {"ready": False})
DB = (Requirement("app", "In", ("db",)),)
IN_ZONE = PodTerm(words.ZONE, DB, frozenset({"team"}))


def beside_a_closed_node(closed: dict[str, Any], zone: str, waiting: Pod, **there: Any) -> dict[str, int]:
    """What is bought for a pod beside a pod on a machine of that zone that is cordoned, or not ready."""
    machine = replace(an_on_prem_node("dgx-1", labels={words.ZONE: zone}), **closed)
    db = a_pod("db", node="dgx-1", phase="Running", labels={"app": "db"}, **there)
    groups = [a_group("gpu-a100", zone) for zone in ("us-east-1a", "us-east-1b")]
    return grown(decide(a_cluster(pods=[db, waiting], nodes=[machine], groups=groups)))


@pytest.mark.parametrize("closed", CLOSED)
def test_pods_on_closed_nodes_count_in_the_rules_between_pods(closed: dict[str, Any]) -> None:
    """As the scheduler counts them: apart from one, or kept out by one, is elsewhere; near one is there."""
    apart, near = a_pod(gpus=8, apart_from=(IN_ZONE,)), a_pod(gpus=8, near_to=(IN_ZONE,))
    web = PodTerm(words.ZONE, (Requirement("app", "In", ("web",)),), frozenset({"team"}))
    kept_out = a_pod(gpus=8, labels={"app": "web"})
    for zone, other in (("us-east-1a", "us-east-1b"), ("us-east-1b", "us-east-1a")):
        assert beside_a_closed_node(closed, zone, apart) == {f"local-gpu-a100-{other}": 1}
        assert beside_a_closed_node(closed, zone, kept_out, apart_from=(web,)) == {f"local-gpu-a100-{other}": 1}
        assert beside_a_closed_node(closed, zone, near) == {f"local-gpu-a100-{zone}": 1}


@pytest.mark.parametrize("closed", CLOSED)
def test_a_zone_of_closed_nodes_is_one_to_spread_over(closed: dict[str, Any]) -> None:
    """``nodeTaintsPolicy`` is ``Ignore``: none of the pods is there, so of three one is too many elsewhere."""
    groups = [a_group("gpu-a100", zone) for zone in ("us-east-1a", "us-east-1b")]
    gang, machine = spread_gang(3), an_on_prem_node("dgx-1", labels={words.ZONE: "lab"})
    assert sum(grown(decide(a_cluster(pods=gang, groups=groups))).values()) == 3
    assert grown(decide(a_cluster(pods=gang, groups=groups, nodes=[replace(machine, **closed)]))) == {}
