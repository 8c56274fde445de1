"""The state that each node is in, and why it is still there; why a group is not bought from."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from autoscaler.config.policy import Consolidation, Policy
from autoscaler.model import labels as words
from autoscaler.model import node_states as states
from autoscaler.model.actions import Assignment, Backoff, Grow, Memory, Plan
from autoscaler.model.cluster import Cluster, Instance, Refusal
from autoscaler.model.constraints import Taint
from autoscaler.model.errors import BadInput
from autoscaler.model.pauses import Pause
from autoscaler.planner.explanation.explain import explain
from autoscaler.planner.explanation.node_states import Standing, standings
from autoscaler.planner.plan import plan
from tests.builders import (
    NOW,
    a_cluster,
    a_gang,
    a_group,
    a_pod,
    a_policy,
    an_entry,
    an_on_prem_node,
    later,
    nodes_of,
)

GROUP = a_group("cpu", joined=1)
[NODE] = nodes_of(GROUP)
OLD = NOW - timedelta(days=1)
CLOSED = {"cordoned": True, "cordoned_by": words.AUTOSCALER, "cordoned_at": NOW}
SERVICE = {"owner": "ReplicaSet/web", "phase": "Running", "started": OLD}


def seen(node: dict[str, Any] | None = None, *, group: dict[str, Any] | None = None, pods: Any = ()) -> Cluster:
    """One EC2 node of one group; ``node`` and ``group`` differ so from the ordinary."""
    one = replace(NODE, **{"created": OLD} | (node or {}))
    return a_cluster(nodes=[one], groups=[replace(GROUP, **group or {})], pods=pods)


def on(node: str = NODE.name, **given: Any) -> Any:
    """A pod that runs there."""
    return a_pod(node=node, **{"phase": "Running", "started": OLD} | given)


def state(cluster: Cluster, policy: Policy | None = None, memory: Memory | None = None) -> Standing:
    """Of the first node."""
    policy, memory = policy or a_policy(), memory or Memory()
    return standings(cluster, policy, plan(cluster, policy, memory)).nodes[0]


def said(kind: str, name: str, cluster: Cluster, policy: Policy | None = None, memory: Memory | None = None) -> str:
    """What is explained, as one text."""
    policy, memory = policy or a_policy(), memory or Memory()
    return "\n".join(explain(kind, name, cluster, policy, plan(cluster, policy, memory)))


@pytest.mark.parametrize(
    ("cluster", "expected", "why"),
    [
        (seen({"ready": False, "created": NOW}), states.JOINING, "its kubelet is not ready"),
        (seen({"ready": False}), states.DEAD, "not ready since 2026-11-20 09:00:00 UTC"),
        (seen(pods=[on()]), states.BUSY, "team/pod is on it"),
        (seen(pods=[on(**SERVICE)]), states.UNDER_USED, "team/pod is on it, which may be moved"),
        (
            seen(CLOSED),
            states.IDLE,
            "it has stood idle since 2026-11-21 09:00:00 UTC, and goes at 2026-11-21 09:10:00 UTC",
        ),
        (seen(), states.IDLE, "no pod is on it, and none is to come"),
        (seen(CLOSED, pods=[on(**SERVICE)]), states.DRAINING, "team/pod is on it"),
        (
            seen(CLOSED, group={"instances": (replace(GROUP.instances[0], state="terminating"),)}, pods=[on()]),
            states.INTERRUPTED,
            "AWS ends its instance",
        ),
        (
            seen(group={"instances": (replace(GROUP.instances[0], state="terminating"),)}),
            states.INTERRUPTED,
            "AWS ends its instance",
        ),
        (
            a_cluster(groups=[a_group(instances=(Instance("i-1", "z", OLD, state="terminating"),))]),
            states.GONE,
            "the instance is being terminated",
        ),
        (seen({"cordoned": True}), states.REPAIRING, "closed by another than the autoscaler"),
        (seen({"cordoned": True, "cordoned_by": "ada"}), states.REPAIRING, "closed by ada"),
        (seen(group={"minimum": 1}), states.MINIMUM, "local-cpu-us-east-1a has no more nodes than its minimum, 1"),
        (
            seen({"taints": (Taint(words.RESERVED),)}, pods=[a_pod(cpu=4, created=OLD)]),
            states.RESERVED,
            "wanted for team/pod",
        ),
        (seen(pods=[a_pod()]), states.READY, "wanted for team/pod"),
        (
            seen(group={"instances": (replace(GROUP.instances[0], state="terminating"),)}, pods=[on()]),
            states.INTERRUPTED,
            "AWS ends its instance",
        ),
        (
            seen(CLOSED, group={"instances": (replace(GROUP.instances[0], state="terminating"),)}),
            states.GONE,
            "its instance is being terminated",
        ),
        (seen(group={"instances": (), "desired": 0}), states.DETACHED, "no Auto Scaling group has its instance"),
        (seen({"ready": False}, group={"instances": (), "desired": 0}), states.GONE, "no group has its instance"),
        (a_cluster(nodes=[an_on_prem_node()]), states.READY, "no pod is on it"),
        (a_cluster(nodes=[an_on_prem_node(ready=False)]), states.DEAD, "not ready since 2026-11-21 09:00:00 UTC"),
        (a_cluster(groups=[a_group(joined=1)]), states.JOINING, "launched, and not a node yet"),
        (a_cluster(groups=[a_group(desired=1)]), states.JOINING, "asked for: AWS has launched no instance yet"),
        (
            a_cluster(groups=[a_group(desired=1, instances=(Instance("i-1", "z", OLD),))]),
            states.DEAD,
            "the instance has not joined in time",
        ),
    ],
)
def test_each_node_is_in_one_state(cluster: Cluster, expected: str, why: str) -> None:
    """By what the look shows and what the plan does; every state has a row in the table."""
    found = state(cluster)
    assert (found.state, found.why) == (expected, why)


def test_every_state_can_be_told() -> None:
    """The table has a row for each name, and nothing else."""
    named = {value for name, value in vars(states).items() if name[0].isupper() and isinstance(value, str)}
    assert named == set(states.STATES)


def test_devices_that_are_not_there_yet_keep_a_node_joining() -> None:
    """The device plugin has not registered them."""
    group = a_group("gpu-a100", joined=1)
    [node] = nodes_of(group)
    bare = replace(node, allocatable=replace_gpus(node))
    assert state(a_cluster(nodes=[bare], groups=[group])).why == "devices that its group promises are not there yet"


def replace_gpus(node: Any) -> Any:
    """Its amounts without GPUs."""
    return type(node.allocatable)({name: many for name, many in node.allocatable.items() if name != words.GPU})


def test_a_busy_node_names_its_pods_and_when_they_end() -> None:
    """And why it is not emptied: each pod that may not be moved."""
    pods = [
        on(name="a", gpus=1, owner="Job/a", duration=timedelta(hours=30)),
        on(name="b", duration=timedelta(hours=25)),
    ]
    text = said("node", NODE.name, seen(pods=pods))
    assert "ip-i-local-cpu-us-east-1a-0 is busy: 2 pods are on it" in text
    assert "of group cpu (local-cpu-us-east-1a, m5.4xlarge): 0.77 $/h" in text
    assert "on it: team/a, team/b, expected to end at 2026-11-21 15:00:00 UTC" in text
    assert (
        "it is not emptied to save its price: team/a: it holds a GPU; team/b: no controller would make it anew" in text
    )


@pytest.mark.parametrize(
    ("cluster", "given", "memory", "why"),
    [
        (
            seen(pods=[on(**SERVICE)], group={"minimum": 1}),
            {},
            Memory(),
            "local-cpu-us-east-1a has no more nodes than its minimum, 1",
        ),
        (seen({"do_not_disrupt": True}, pods=[on(**SERVICE)]), {}, Memory(), "it is marked do-not-disrupt"),
        (seen(pods=[on(**SERVICE)]), {"enabled": False}, Memory(), "scale_down.enabled is false"),
        (
            seen(pods=[on(**SERVICE)]),
            {"consolidation": Consolidation(enabled=False)},
            Memory(),
            "scale_down.consolidation.enabled is false",
        ),
        (
            seen(pods=[on(**SERVICE)]),
            {"consolidation": Consolidation(saving_usd_per_hour=1)},
            Memory(),
            "its price is not above scale_down.consolidation.saving_usd_per_hour, 1 $/h",
        ),
        (
            seen(pods=[on(**SERVICE | {"started": NOW})]),
            {},
            Memory(),
            "its pods have run for less than scale_down.consolidation.after: until 2026-11-21 09:10:00 UTC",
        ),
        (
            seen(pods=[on(**SERVICE, duration=timedelta(days=1, minutes=5))]),
            {},
            Memory(),
            "a pod on it is expected to end by 2026-11-21 09:05:00 UTC",
        ),
        (
            seen(pods=[on(**SERVICE)]),
            {},
            Memory(resting={NODE.name: NOW}),
            "it was begun with at 2026-11-21 09:00:00 UTC, and could not be emptied",
        ),
        (seen(pods=[on(**SERVICE)]), {}, Memory(draining={"other": NOW}), "other was begun with: 1 in each window of"),
        (
            seen(pods=[on(**SERVICE)]),
            {"consolidation": Consolidation(nodes=1, every=timedelta(minutes=10))},
            Memory(draining={"other": NOW - timedelta(minutes=10)}),
            "its pods have room nowhere else",
        ),
        (seen(pods=[on(**SERVICE)]), {}, Memory(), "its pods have room nowhere else"),
    ],
)
def test_why_a_node_is_not_emptied(cluster: Cluster, given: dict[str, Any], memory: Memory, why: str) -> None:
    """The first thing in the way, which is what consolidation itself asks."""
    assert f"it is not emptied to save its price: {why}" in said(
        "node", NODE.name, cluster, a_policy(scale_down=given), memory
    )


@pytest.mark.parametrize(
    ("cluster", "policy", "why"),
    [
        (seen(CLOSED | {"do_not_disrupt": True}), a_policy(), "it is marked do-not-disrupt"),
        (seen(), a_policy(scale_down={"enabled": False}), "it is ready: scale_down.enabled is false"),
        (
            replace(seen(), pauses=(Pause("group.cpu", "audit"),)),
            a_policy(),
            "it is ready: terminating in group cpu is paused".removeprefix("it "),
        ),
        (seen(), a_policy(an_entry("cpu", headroom=1)), "wanted for the headroom of group cpu"),
        (seen(pods=[a_pod()]), a_policy(), "planned on it: team/pod"),
        (seen(CLOSED), a_policy(), "until 2026-11-21 09:10:00 UTC at the latest"),
    ],
)
def test_why_a_node_without_pods_stays(cluster: Cluster, policy: Policy, why: str) -> None:
    """By the words of what decides it."""
    assert why.removeprefix("it ") in said("node", NODE.name, cluster, policy)


def test_an_idle_node_says_its_next_step() -> None:
    """And its end."""
    text = said("node", NODE.name, seen())
    assert f"next step: cordon node {NODE.name}" in text


def test_a_machine_of_ours_is_never_terminated() -> None:
    """Which is said; an instance is found by its id, too."""
    assert "a machine that you own: it is never terminated" in said(
        "node", "dgx-01", a_cluster(nodes=[an_on_prem_node()])
    )
    assert said("node", GROUP.instances[0].id, seen()).startswith(f"{NODE.name} is idle")
    with pytest.raises(BadInput, match="there is no node 'x', nor an instance of that id"):
        said("node", "x", seen())


PRICED = a_group("cpu", maximum=10, max_size=10, vcpus=16, quota="L-1", quota_left=8)


@pytest.mark.parametrize(
    ("group", "given", "more", "whys"),
    [
        ({}, {}, {}, []),
        ({"quota_left": 64}, {"limits": {"nodes": 0}}, {}, ["limits.nodes is 0, which leaves none"]),
        (
            {"quota_left": 8},
            {"limits": {"usd_per_hour": 0.5, "nodes": 0}},
            {"pauses": (Pause("buying", "audit", "ada"),)},
            [
                "buying is paused until it is resumed by ada: audit",
                "limits.usd_per_hour is 0.5, which leaves 0.5000 $/h",
                "limits.nodes is 0, which leaves none",
                "quota L-1 of the AWS account leaves 8 of the 16 vCPUs of a node",
            ],
        ),
        (
            {"quota_left": 64, "maximum": 0},
            {},
            {},
            ["the price of its nodes is not known: write usd_per_hour into its policy entry"],
        ),
        ({"quota_left": 16}, {"limits": {"usd_per_hour": PRICED.usd_per_hour, "nodes": 1}}, {}, []),
        (
            {"quota_left": -8},
            {},
            {},
            ["quota L-1 of the AWS account leaves 0 of the 16 vCPUs of a node"],
        ),
        (
            {"quota_left": 64, "maximum": 0, "max_size": 0},
            {},
            {},
            ["the MaxSize of the Auto Scaling group is 0: `pulumi up` brings that of the policy"],
        ),
    ],
)
def test_why_nothing_is_bought_in_a_group(
    group: dict[str, Any], given: dict[str, Any], more: dict[str, Any], whys: list[str]
) -> None:
    """Everything that stands in the way; each by its policy key, or what AWS says."""
    cluster = a_cluster(groups=[replace(PRICED, **{"quota_left": 64} | group)], **more)
    text = said("group", "cpu", cluster, a_policy(**given))
    assert [
        line.removeprefix("  nothing is bought: ") for line in text.splitlines() if "nothing is bought" in line
    ] == whys
    assert ("nothing stands in the way" in text) == (not whys)


def test_a_refusal_is_told_with_its_code_its_words_and_its_end() -> None:
    """And how often it has failed."""
    refused = replace(
        PRICED, quota_left=64, desired=1, refusals=(Refusal(NOW, "InsufficientInstanceCapacity", "sold out"),)
    )
    memory = Memory(backoffs={refused.name: Backoff(later(minutes=6), 2, NOW, "InsufficientInstanceCapacity")})
    text = said("group", refused.name, a_cluster(groups=[refused]), a_policy(), memory)
    assert (
        "it failed 2 times, last at 2026-11-21 09:00:00 UTC (InsufficientInstanceCapacity), "
        "and is left alone until 2026-11-21 09:06:00 UTC: sold out" in text
    )


def test_an_entry_at_its_maximum_and_gpus_that_are_used_up_are_told() -> None:
    """Of every Auto Scaling group of the entry."""
    full = a_group("gpu-a100", joined=1)
    cluster = a_cluster(groups=[full], nodes=nodes_of(full), pods=[on(nodes_of(full)[0].name, gpus=8)])
    text = said("group", "gpu-a100", cluster, a_policy(an_entry("gpu-a100", max=1), limits={"gpus": 8}))
    assert "max of group gpu-a100 is 1, and as many run or were asked for" in text
    assert "limits.gpus is 8, which leaves 0 of the 8 of a node" in text
    text = said("group", "gpu-a100", cluster, a_policy(an_entry("gpu-a100", max=2)))
    assert "nothing stands in the way" in text
    full = replace(full, maximum=1)
    text = said("group", "gpu-a100", replace(cluster, groups=(full,)), a_policy(an_entry("gpu-a100", max=2)))
    assert "the MaxSize of the Auto Scaling group is 1: `pulumi up` brings that of the policy" in text


def test_a_group_that_aws_does_not_have_or_the_policy_does_not_name() -> None:
    """Each with what to do."""
    assert "run `pulumi up`" in said("group", "gpu-a10g", a_cluster(groups=[PRICED]))
    with pytest.raises(BadInput, match="there is no group 'x': the policy has gpu-a10g, gpu-a100, cpu"):
        said("group", "x", a_cluster())


def test_a_group_says_what_is_bought_next() -> None:
    """With its reason."""
    group = replace(PRICED, quota_left=64)
    plan_ = Plan(steps=(Grow(group.name, 0, 1, 0.768, ("team/pod",), "team/pod needs it"),))
    lines = explain("group", "cpu", a_cluster(groups=[group]), a_policy(), plan_)
    assert "  next step: grow local-cpu-us-east-1a to 1 node (+1, $0.77 per hour): team/pod needs it" in lines


def test_a_job_is_told_by_what_is_to_be_said_of_its_pods() -> None:
    """Those that are alike in one line, the most first."""
    ready, *rest = a_gang(pods=4, gpus=8)
    pods = [replace(ready, node="dgx-01"), *rest[:-1]]
    lines = said("job", "team/mnist", a_cluster(pods=pods, nodes=[an_on_prem_node()])).splitlines()
    assert lines[0] == "team/mnist has 3 pods, of 4 that it is to have"
    assert lines[1].startswith("mnist-worker-1, mnist-worker-2: waits; the next step is for it: grow ")
    assert lines[2] == "mnist-worker-0: is on node dgx-01"
    with pytest.raises(BadInput, match="no pod in namespace 'team' is of a job or gang 'x'"):
        said("job", "team/x", a_cluster(pods=pods))


def test_the_end_of_a_state_is_told_where_time_ends_it() -> None:
    """And nothing of an end where none is known."""
    group = a_group(joined=1)
    marks = {"cordoned": True, "cordoned_by": "spillway-autoscaler", "cordoned_at": NOW}
    idle = a_cluster(nodes=nodes_of(group, **marks), groups=(group,))
    first, *_ = said("node", nodes_of(group)[0].name, idle).splitlines()
    assert first.endswith(" (until 2026-11-21 09:10:00 UTC at the latest)")
    own = a_cluster(nodes=(an_on_prem_node(),), groups=())
    assert said("node", "dgx-01", own).splitlines()[0] == "dgx-01 is ready: no pod is on it"


def test_why_an_idle_node_stays_is_said_once() -> None:
    """By its state where that tells it already; of one that goes there is nothing to say."""
    kept = a_policy(an_entry("cpu", headroom=1, max=6))
    assert said("node", NODE.name, seen(), kept).count("the headroom of group cpu") == 1
    assert "it stays" not in said("node", NODE.name, seen(), a_policy())
    assert "the headroom" not in said("node", NODE.name, seen(), a_policy())


@pytest.mark.parametrize(
    ("kind", "of_group", "of_node"),
    [
        ("spot", "(m5.4xlarge, spot, 0.77 $/h a node): 1 idle", "(local-cpu-us-east-1a, m5.4xlarge, spot): 0.77 $/h"),
        ("on-demand", "(m5.4xlarge, 0.77 $/h a node): 1 idle", "(local-cpu-us-east-1a, m5.4xlarge): 0.77 $/h"),
    ],
)
def test_a_group_and_its_nodes_say_their_price_and_whether_it_is_of_spot(
    kind: str, of_group: str, of_node: str
) -> None:
    """The two may cost the same and last unlike long."""
    cluster = seen(group={"capacity_type": kind})
    assert of_group in said("group", "cpu", cluster)
    assert of_node in said("node", NODE.name, cluster)


def test_a_node_tells_no_step_for_another() -> None:
    """Of two nodes the idle one is closed, of which the busy one says nothing."""
    group = a_group("cpu", joined=2)
    busy, idle = (replace(node, created=OLD) for node in nodes_of(group))
    cluster = a_cluster(nodes=[busy, idle], groups=[group], pods=[on(busy.name)])
    assert "next step: cordon" in said("node", idle.name, cluster)
    assert "next step" not in said("node", busy.name, cluster)


@pytest.mark.parametrize(
    ("many", "end"), [(3, "team/2: it holds a GPU"), (5, "team/2: it holds a GPU; and 2 more pods")]
)
def test_of_many_pods_that_keep_a_node_three_are_named(many: int, end: str) -> None:
    """And the others counted."""
    pods = [on(name=str(number), gpus=1, owner="Job/a") for number in range(many)]
    [line] = [line for line in said("node", NODE.name, seen(pods=pods)).splitlines() if "not emptied" in line]
    assert line.endswith(end)


@pytest.mark.parametrize("is_marked", [True, False])
def test_only_a_node_that_is_marked_says_that_it_is_not_drained(is_marked: bool) -> None:  # noqa: FBT001
    """By the mark's own name, which its owner can take away."""
    text = said("node", NODE.name, seen({"do_not_disrupt": is_marked}, pods=[on()]))
    assert (f"it is marked {words.DO_NOT_DISRUPT}: it is not drained" in text) is is_marked


@pytest.mark.parametrize("more", [{}, {"pauses": (Pause("group.cpu", "audit"),)}])
def test_an_idle_node_goes_at_a_time_unless_nothing_is_terminated_in_its_group(more: dict[str, Any]) -> None:
    """A pause keeps it, and so does a machine's owner: no end is told."""
    found = state(replace(seen(CLOSED), **more))
    assert (found.state, found.until) == (states.IDLE, None if more else later(minutes=10))
    own = state(a_cluster(nodes=[an_on_prem_node(**CLOSED)]))
    assert (own.state, own.until) == (states.IDLE, None)
    off = state(seen(CLOSED), a_policy(scale_down={"enabled": False}))
    assert (off.state, off.until) == (states.IDLE, None)


def test_a_state_ends_when_its_patience_does() -> None:
    """Of a node that joins, one that is dead, and an instance that is none yet; a machine of ours has no end."""
    policy = a_policy()
    boot, unready = policy.scale_up.boot_timeout, policy.scale_down.unready_after
    assert state(seen({"ready": False, "created": NOW})).until == NOW + boot
    assert state(seen({"ready": False, "unready_since": later(minutes=-1)})).until == later(minutes=-1) + unready
    assert state(seen({"ready": False, "created": NOW - boot})).state == states.DEAD
    assert state(a_cluster(nodes=[an_on_prem_node(ready=False)])).until is None
    assert state(a_cluster(groups=[a_group(joined=1)])).until == NOW + boot
    since = later(minutes=-3)
    timeout = policy.scale_down.consolidation.timeout
    draining = seen(CLOSED, pods=[on(**SERVICE)])
    assert (
        standings(draining, policy, Plan(memory=Memory(draining={NODE.name: since}))).nodes[0].until == since + timeout
    )
    assert standings(draining, policy, Plan()).nodes[0].until == NOW + timeout


def test_what_was_asked_for_is_told_once_for_each_node_that_has_no_instance() -> None:
    """Of five that a group is to have one has joined and one is terminating; one instance is no node yet."""
    ready, ending, new = (Instance(f"i-{name}", "us-east-1a", NOW) for name in ("ready", "ending", "new"))
    group = a_group("cpu", desired=4, instances=(ready, replace(ending, state="terminating"), new))
    [node, *_] = nodes_of(replace(group, instances=(ready,)))
    found = standings(a_cluster(nodes=[node], groups=[group]), a_policy(), Plan()).nodes
    assert [(one.name, one.state) for one in found] == [
        ("i-ending", states.GONE),
        ("i-new", states.JOINING),
        ("ip-i-ready", states.READY),
        ("", states.JOINING),
        ("", states.JOINING),
    ]


def test_a_node_that_is_kept_says_why_where_its_state_does_not() -> None:
    """By the plan's own words; a machine of ours says no more."""
    kept = Plan(kept={NODE.name: "wanted for team/later"})
    planned = Memory(assignments={"team/later": Assignment(NODE.name, ""), "team/else": Assignment("other", "")})
    lines = list(explain("node", NODE.name, seen(pods=[on()]), a_policy(), replace(kept, memory=planned)))
    assert "it stays: wanted for team/later" in lines
    assert "planned on it: team/later" in lines
    own = a_cluster(nodes=[an_on_prem_node(do_not_disrupt=True)], pods=[on("dgx-01")])
    lines = list(explain("node", "dgx-01", own, a_policy(), Plan(kept={"dgx-01": "x"})))
    assert lines[-1] == "it stays: x"
    foreign = replace(NODE, name="foreign", provider_id="", labels={words.ORIGIN: words.EC2})
    text = said("node", "foreign", a_cluster(nodes=[foreign], groups=[]))
    assert "on EC2, and of no Auto Scaling group of this cluster" in text
    instance = a_cluster(groups=[a_group("cpu", joined=1)])
    assert said("node", "i-local-cpu-us-east-1a-0", instance).splitlines()[-1].startswith("of group cpu")


def test_of_a_group_only_its_own_purchases_and_nodes_are_told() -> None:
    """Not those of another."""
    other = a_group("gpu-a100", joined=2)
    cluster = a_cluster(groups=[PRICED, other])
    steps = (Grow(other.name, 2, 3, 21.9, (), "other"), Grow(PRICED.name, 0, 1, 0.8, (), "ours"))
    text = "\n".join(explain("group", PRICED.name, cluster, a_policy(), Plan(steps=steps)))
    assert "ours" in text
    assert "other" not in text
    assert text.splitlines()[0].endswith("no node")
    gone = "\n".join(explain("group", PRICED.name, cluster, a_policy(an_entry("gpu-a100")), Plan()))
    assert "nothing is bought: the policy has no entry cpu any more" in gone
    assert "MaxSize" not in gone


def test_a_group_that_failed_once_says_so() -> None:
    """And no words of AWS where it said none, or said them of something else."""
    for refusals in ((), (Refusal(NOW, "Other", "sold out"),)):
        refused = replace(PRICED, quota_left=64, desired=1, refusals=refusals)
        plan_ = Plan(memory=Memory(backoffs={refused.name: Backoff(later(minutes=6), 1, NOW, "Capacity")}))
        text = "\n".join(explain("group", refused.name, a_cluster(groups=[refused]), a_policy(), plan_))
        assert "it failed at 2026-11-21 09:00:00 UTC (Capacity), and is left alone until" in text
        assert "sold out" not in text


@pytest.mark.parametrize(
    ("taken", "lines"),
    [
        (0, []),
        (
            1,
            [
                "limits.gpus is 8, which leaves 0 of the 8 of a node",
                "limits.usd_per_hour is 22, which leaves 0.0424 $/h",
            ],
        ),
    ],
)
def test_what_limits_leave_is_told_of_a_group_that_would_break_them(taken: int, lines: list[str]) -> None:
    """What is just enough keeps nothing from being bought."""
    group = a_group("gpu-a100", joined=taken)
    policy = a_policy(limits={"usd_per_hour": 22, "gpus": 8, "nodes": 2})
    cluster = a_cluster(groups=[group], nodes=nodes_of(group), pods=[on(one.name) for one in nodes_of(group)])
    text = said("group", group.name, cluster, policy)
    found = [line.partition("nothing is bought: ")[2] for line in text.splitlines() if "nothing is bought" in line]
    assert sorted(found) == lines
