"""Pods of a step that begins while those of the one before it hold their room: nothing is bought for them so early."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from autoscaler.model import labels as words
from autoscaler.model.actions import Admit, Grow, Memory, Resize
from autoscaler.model.cluster import Cluster, GangRef
from autoscaler.model.jobs import EarlyStep, ElasticRole
from autoscaler.planner.plan import plan
from tests.builders import NOW, a_cluster, a_gang, a_group, a_pod, a_policy, an_on_prem_node

UNTIL = NOW + timedelta(seconds=8)
EARLY = (EarlyStep("team", "flow-train", ("flow-prepare",), UNTIL),)


def a_look(*, early: tuple[EarlyStep, ...] = EARLY, free: int = 0) -> Cluster:
    """A machine of 8 GPUs, most of them held by a pod that has ended, and a gang of two that needs 8."""
    ended = a_pod("before", gpus=8 - free, node="dgx-01", phase="Running", completed=True)
    gang = a_gang("flow", gpus=4, owner="Job/flow-train")
    return a_cluster(pods=[ended, *gang], nodes=[an_on_prem_node()], groups=[a_group()], early_steps=early)


def test_nothing_is_bought_while_the_room_of_the_step_before_is_about_to_be_free() -> None:
    """It says so, and looks again when that has taken too long."""
    told = plan(a_look(), a_policy(), Memory())
    assert not [step for step in told.steps if isinstance(step, Grow)]
    because = "nothing is bought for it while flow-prepare only just ended: their pods still hold their room"
    assert {because in one.because for one in told.waiting} == {True}
    assert told.wake_at == UNTIL
    late = plan(replace(a_look(), seen_at=UNTIL), a_policy(), Memory())
    assert [type(step) for step in late.steps] == [Grow]


def test_what_is_bought_for_others_is_bought() -> None:
    """Though the step has the first turn."""
    look = a_look()
    other = a_gang("other", gpus=4, owner="Job/other")
    told = plan(replace(look, pods=(*look.pods, *other)), a_policy(), Memory())
    (step,) = [step for step in told.steps if isinstance(step, Grow)]
    assert {key.split("-")[0] for key in step.demand} == {"team/other"}


def test_a_step_that_finds_room_takes_it_at_once() -> None:
    """Elsewhere than where the one before it ran."""
    look = a_look()
    nodes = (*look.nodes, an_on_prem_node("dgx-02"))
    (step,) = [step for step in plan(replace(look, nodes=nodes), a_policy(), Memory()).steps if isinstance(step, Admit)]
    assert {node for _, node in step.placements} == {"dgx-02"}


def test_no_elastic_job_shrinks_for_it() -> None:
    """Its tasks would end for a room that is free some seconds later."""
    role = ElasticRole("team", "elastic", size=4, minimum=1, maximum=4, created=NOW)
    ref = GangRef("team", "elastic", size=4, minimum=1)
    tasks = [
        a_pod(
            f"elastic-{number}",
            node="dgx-01",
            phase="Running",
            owner=role.owner,
            gang=ref,
            labels={words.COMPLETION_INDEX: str(number)},
        )
        for number in range(4)
    ]
    step = a_pod("train", cpu=2, priority=9, owner="Job/flow-train", gates=(words.GATE,))
    machine = an_on_prem_node(gpus=0, cpu=4)
    look = a_cluster(pods=[*tasks, step], nodes=[machine], elastic=(role,), early_steps=EARLY)
    assert not [one for one in plan(look, a_policy(), Memory()).steps if isinstance(one, Resize)]
    late = plan(replace(look, seen_at=UNTIL), a_policy(), Memory())
    assert [(one.was, one.to) for one in late.steps if isinstance(one, Resize)] == [(4, 2)]
