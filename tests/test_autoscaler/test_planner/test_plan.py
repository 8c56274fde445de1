"""The plan as a whole: what it ends, what it costs, when to look again, and whole stories."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta

from autoscaler.model.actions import Admit, Backoff, BeginStep, EndJob, Grow, Memory, Plan, StopStep
from autoscaler.model.jobs import LingeringJob, WaitingStep
from autoscaler.planner.plan import plan
from tests.builders import a_cluster, a_gang, a_group, a_pod, a_policy, an_on_prem_node, later, nodes_of
from tests.world import World


def test_nothing_to_do_is_an_empty_plan() -> None:
    """No steps, no words, no date."""
    assert plan(a_cluster(nodes=[an_on_prem_node()]), a_policy(), Memory()) == Plan()


def test_servers_that_outlive_their_workers_are_ended() -> None:
    """First of all: their room may be needed."""
    lingering = (LingeringJob("team", "mnist-ps", "mnist-worker"),)
    (step,) = plan(a_cluster(lingering=lingering), a_policy(), Memory()).steps
    assert step == EndJob("team", "mnist-ps", "mnist-worker, which it served, has ended")


def test_a_workflow_goes_on_when_its_steps_have_ended() -> None:
    """The next begins, or is given up with the reason."""
    before = ("a", "b")
    waiting = (
        WaitingStep("team", "serve", "flow", ("train",), ("train",), failed="train"),
        WaitingStep("team", "merge", "flow", before),
        WaitingStep("team", "later", "flow", before, ("b",)),
    )
    steps = plan(a_cluster(workflow_steps=waiting), a_policy(), Memory()).steps
    assert steps == (
        BeginStep("team", "merge", "a, b have succeeded"),
        StopStep("team", "serve", "train, which it depends on, has failed"),
    )


def test_the_bill_is_of_all_that_was_asked_for() -> None:
    """Running, on its way and bought now."""
    decided = plan(a_cluster(pods=a_gang(pods=1, gpus=8), groups=[a_group(desired=2)]), a_policy(), Memory())
    assert decided.usd_per_hour == 43.915284


def test_what_a_hook_holds_is_in_the_bill_until_it_is_let_go() -> None:
    """It runs. A job on it keeps it; without one this very plan ends the wait."""
    group = replace(a_group(joined=1), desired=0)
    group = replace(group, instances=tuple(replace(one, state="terminating", held=True) for one in group.instances))
    node = replace(nodes_of(a_group(joined=1))[0], cordoned=True, cordoned_by="kubectl")
    pod = replace(a_pod(gpus=8), node=node.name, phase="Running")
    for pods, usd in (((pod,), 21.957642), ((), 0.0)):
        assert plan(a_cluster(pods=pods, nodes=[node], groups=[group]), a_policy(), Memory()).usd_per_hour == usd


def test_what_is_remembered_ends_by_itself() -> None:
    """A back-off that has been over for long is forgotten."""
    here, there = "local-cpu-us-east-1a", "local-cpu-us-east-1b"
    old, young = (Backoff(later(minutes=-m), 2, later(minutes=-40), "UnfulfillableCapacity") for m in (30, 29))
    groups = [a_group("cpu", zone) for zone in ("us-east-1a", "us-east-1b")]
    decided = plan(a_cluster(groups=groups), a_policy(), Memory(backoffs={here: old, there: young}))
    assert decided.memory.backoffs == {there: young}


def test_a_job_that_spills_over_comes_and_goes() -> None:
    """Bought for, admitted once all is there, and everything given back when it is done."""
    policy = a_policy()
    pods = a_gang(pods=3, gpus=8)
    groups = a_cluster().groups
    world = World(
        policy=policy,
        pods={pod.key: pod for pod in pods},
        nodes={"dgx-1": an_on_prem_node("dgx-1")},
        offered=groups,
        chance=_Always(),
    )
    world.carry_out(plan(world.look(), policy, Memory()))
    assert world.bought == 2
    world.pass_time(timedelta(minutes=1))
    admitted = plan(world.look(), policy, Memory())
    assert [len(step.placements) for step in admitted.steps if isinstance(step, Admit)] == [3]
    world.carry_out(admitted)
    assert all(pod.node for pod in world.pods.values())
    world.pods.clear()
    for _ in range(3):
        world.carry_out(plan(world.look(), policy, Memory()))
        world.pass_time(policy.scale_down.idle_after)
    assert (world.usd_per_hour, world.bought, len(world.nodes)) == (0, 2, 1)


def test_a_new_look_at_a_later_time_keeps_the_plan() -> None:
    """Time alone changes nothing before ``wake_at``."""
    cluster = a_cluster(pods=a_gang(pods=1, gpus=8), groups=[a_group(desired=1)])
    assert plan(cluster, a_policy(), Memory()) == plan(replace(cluster, seen_at=later(hours=1)), a_policy(), Memory())


class _Always(random.Random):
    """Chance that never strikes: every node joins at once."""

    def random(self) -> float:
        return 0.5


def test_an_elastic_gang_stretches_onto_no_node_that_was_bought_for_another() -> None:
    """Not even after a restart, when it is not remembered for which pods: it can do without, and the other cannot."""
    policy = a_policy(limits={"nodes": 1})
    pods = (*a_gang("elastic", 3, gpus=8, minimum=1), *a_gang("other", 1, gpus=8, created=later(seconds=1)))
    first = plan(a_cluster(pods=pods, nodes=[an_on_prem_node()]), policy, Memory())
    (grow,) = [step for step in first.steps if isinstance(step, Grow)]
    assert grow.demand == (pods[-1].key,)
    groups = [replace(one, desired=grow.to) if one.name == grow.group else one for one in a_cluster().groups]
    again = plan(a_cluster(pods=pods, nodes=[an_on_prem_node()], groups=groups), policy, Memory())
    told = {said.pod: said.because for said in again.waiting}
    assert told[pods[-1].key].startswith("its node is on its way")
    assert "runs with fewer pods" in told[pods[1].key]
