"""GPUs that are held and not used: told, then freed where the policy says so, and never what is protected."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from autoscaler.config.policy import IdleGpus, Policy
from autoscaler.kube.memory_configmap import as_memory, as_text
from autoscaler.model.actions import FreeGpus, Memory, Plan
from autoscaler.model.cluster import GangRef, GpuUse, Pod
from autoscaler.model.pauses import ALL, Pause
from autoscaler.planner.plan import plan
from tests.builders import NOW, a_cluster, a_pod, a_policy, an_on_prem_node, later

NODE = an_on_prem_node()
GANG = GangRef("team", "g", size=2)


def policy(**rules: Any) -> Policy:
    """One that reads the exporter, tells after 30 minutes and frees an hour later."""
    usual = {"enabled": True, "freed_after": timedelta(hours=1)}
    return a_policy(idle_gpus=IdleGpus.model_validate(usual | rules))


def notebook(name: str = "notebook", **given: Any) -> Pod:
    """A pod with a GPU of the machine."""
    return a_pod(name, **{"gpus": 1, "node": NODE.name, "phase": "Running", "started": NOW} | given)


def look(*pods: Pod, uses: dict[str, float], minutes: float, rules: Policy, memory: Memory, **given: Any) -> Plan:
    """The plan at so many minutes after noon; what is remembered went through the ConfigMap."""
    measured = tuple(GpuUse(f"team/{name}", NODE.name, share) for name, share in uses.items())
    cluster = a_cluster(pods=pods, nodes=[NODE], gpu_use=measured, seen_at=later(minutes=minutes), **given)
    return plan(cluster, rules, as_memory(as_text(memory)))


def after(*pods: Pod, minutes: float, rules: Policy | None = None, uses: dict[str, float] | None = None) -> Plan:
    """The plan after looks each two minutes from noon on, all of which measured the same."""
    share = uses if uses is not None else {pod.name: 0.0 for pod in pods}
    done = Plan()
    for at in range(0, int(minutes) + 1, 2):
        done = look(*pods, uses=share, minutes=at, rules=rules or policy(), memory=done.memory)
    return done


def freed(done: Plan) -> list[tuple[str, ...]]:
    """Pods that are evicted."""
    return [step.pods for step in done.steps if isinstance(step, FreeGpus)]


def test_an_owner_is_told_and_later_the_gpus_are_freed() -> None:
    """Not before; and the plan says when to look again."""
    assert after(notebook(), minutes=28).idle_gpus == {}
    assert after(notebook(), minutes=28).wake_at == later(minutes=30)
    told = after(notebook(), minutes=30)
    assert told.idle_gpus == {
        "team/notebook": "1 GPU held and used less than 5% since 2026-11-21 09:00:00 UTC: it is evicted at "
        "2026-11-21 10:30:00 UTC unless it uses them"
    }
    assert (freed(told), told.wake_at) == ([], later(minutes=90))
    assert freed(after(notebook(), minutes=88)) == []
    assert freed(after(notebook(), minutes=90)) == [("team/notebook",)]


def test_it_is_written_down_every_five_minutes_that_it_is_idle_still() -> None:
    """Not at each look, which would be a write of the ConfigMap each time."""
    memory = after(notebook(), minutes=4).memory
    assert memory.unused["team/notebook"].seen == NOW
    for minutes, seen in ((4.9, 0), (5, 5)):
        noted = look(notebook(), uses={"notebook": 0}, minutes=minutes, rules=policy(), memory=memory).memory
        assert (noted.unused["team/notebook"].since, noted.unused["team/notebook"].seen) == (NOW, later(minutes=seen))


def test_a_pod_that_uses_its_gpus_once_begins_anew() -> None:
    """Whatever was remembered."""
    told = after(notebook(), minutes=60)
    busy = look(notebook(), uses={"notebook": 0.4}, minutes=61, rules=policy(), memory=told.memory)
    assert (busy.idle_gpus, busy.memory.unused) == ({}, {})


def test_what_is_not_measured_for_some_minutes_is_remembered_and_then_forgotten() -> None:
    """An exporter that restarts costs nothing; hours without one prove nothing."""
    told = after(notebook(), minutes=60)
    gap = look(notebook(), uses={}, minutes=70, rules=policy(), memory=told.memory)
    assert (gap.idle_gpus, freed(gap)) == ({}, [])
    assert look(notebook(), uses={"notebook": 0}, minutes=72, rules=policy(), memory=gap.memory).idle_gpus
    late = look(notebook(), uses={}, minutes=80, rules=policy(), memory=told.memory)
    assert late.memory.unused == {}


@pytest.mark.parametrize(
    "given",
    [{"started": later(minutes=1)}, {"deleting": True}, {"phase": "Succeeded"}, {"node": "dgx-02"}, {"gpus": 0}],
    ids=["started anew", "being deleted", "finished", "elsewhere by now", "without GPUs"],
)
def test_what_was_measured_of_another_pod_does_not_count(given: dict[str, Any]) -> None:
    """A pod made anew has the name of the one before."""
    told = after(notebook(), minutes=60)
    new = look(notebook(**given), uses={"notebook": 0}, minutes=61, rules=policy(), memory=told.memory)
    assert new.idle_gpus == {}


@pytest.mark.parametrize(
    ("given", "rules", "why"),
    [
        ({"do_not_disrupt": True}, {"gangs": True}, "it is marked do-not-disrupt"),
        ({"gang": GANG}, {}, "it is of a gang"),
        ({}, {"freed_after": None}, "the policy frees none"),
    ],
    ids=["marked", "of a gang", "tells only"],
)
def test_what_is_protected_is_told_and_never_freed(given: dict[str, Any], rules: dict[str, Any], why: str) -> None:
    """Its owner is told why it stays."""
    done = after(notebook(**given), minutes=200, rules=policy(**rules))
    assert freed(done) == []
    assert f"it stays, for {why}" in done.idle_gpus["team/notebook"]


def test_a_gang_goes_as_a_whole_where_the_policy_says_so() -> None:
    """Not while one of it uses its GPUs: the others may wait for that one."""
    gang = [notebook(name, gang=GANG) for name in ("a", "b")]
    rules = policy(gangs=True)
    assert freed(after(*gang, minutes=90, rules=rules)) == [("team/a", "team/b")]
    assert freed(after(*gang, minutes=200, rules=rules, uses={"a": 0.0, "b": 0.9})) == []
    assert freed(after(*gang, minutes=200, rules=rules, uses={"a": 0.0})) == []
    told = after(*gang, minutes=30, rules=rules, uses={"a": 0.0, "b": 0.9}).idle_gpus
    assert told == {
        "team/a": "1 GPU held and used less than 5% since 2026-11-21 09:00:00 UTC: its gang is evicted from "
        "2026-11-21 10:30:00 UTC on, unless a pod of it uses its GPUs"
    }


def test_nothing_is_freed_where_terminating_is_paused_nor_told_where_it_is_off() -> None:
    """A pause leaves all as it is."""
    told = after(notebook(), minutes=88)
    given: dict[str, Any] = {"minutes": 90, "uses": {"notebook": 0.0}, "memory": told.memory}
    paused = look(notebook(), rules=policy(), pauses=(Pause(ALL, "why", "me", NOW, None),), **given)
    assert (freed(paused), bool(paused.idle_gpus)) == ([], True)
    assert look(notebook(), rules=policy(enabled=False), **given).memory.unused == {}


def test_what_is_used_just_enough_is_used() -> None:
    """Five of a hundred by the policy: less is idle."""
    assert after(notebook(), minutes=60, uses={"notebook": 0.05}).idle_gpus == {}
    assert after(notebook(), minutes=60, uses={"notebook": 0.049}).idle_gpus


def test_pods_without_gpus_go_with_their_gang_and_do_not_hold_it_up() -> None:
    """Nor does one of another gang: a master without workers would hold its node for nothing."""
    gang = [notebook(name, gang=GANG) for name in ("a", "b")]
    more = [notebook("master", gang=GANG, gpus=0), notebook("else", gang=GangRef("team", "h", size=1))]
    done = after(*gang, *more, minutes=90, rules=policy(gangs=True), uses={"a": 0.0, "b": 0.0, "else": 0.9})
    assert freed(done) == [("team/a", "team/b", "team/master")]
    [step] = [step for step in done.steps if isinstance(step, FreeGpus)]
    assert step.because == "no GPU of the 3 pods of the gang was used since 2026-11-21 09:00:00 UTC, as was told"


def test_gpus_are_counted_in_words() -> None:
    """Of one pod, by its name where it goes."""
    done = after(notebook(gpus=2), minutes=90)
    assert done.idle_gpus["team/notebook"].startswith("2 GPUs held and used less than 5% since")
    [step] = [step for step in done.steps if isinstance(step, FreeGpus)]
    assert step.because.startswith("no GPU of team/notebook was used since 2026-11-21 09:00:00 UTC")


def test_one_that_became_idle_later_holds_up_its_gang() -> None:
    """Until its own time is over."""
    gang = [notebook(name, gang=GANG) for name in ("a", "b")]
    rules, done = policy(gangs=True), Plan()
    for at in range(0, 132, 2):
        uses = {"a": 0.0, "b": 0.9 if at < 40 else 0.0}
        done = look(*gang, uses=uses, minutes=at, rules=rules, memory=done.memory)
        assert freed(done) == ([("team/a", "team/b")] if at >= 130 else [])


def test_one_that_became_idle_later_holds_up_no_other_pod() -> None:
    """Each has its own time, whatever they are called."""
    pods, done = [notebook(name) for name in ("a", "b")], Plan()
    for at in range(0, 92, 2):
        uses = {"a": 0.9 if at < 70 else 0.0, "b": 0.0}
        done = look(*pods, uses=uses, minutes=at, rules=policy(), memory=done.memory)
    assert (list(done.idle_gpus), freed(done)) == (["team/b"], [("team/b",)])


def test_a_pause_of_another_group_holds_up_nothing() -> None:
    """Machines that we own are of none."""
    told = after(notebook(), minutes=88)
    given: dict[str, Any] = {"minutes": 90, "uses": {"notebook": 0.0}, "memory": told.memory}
    paused = look(notebook(), rules=policy(), pauses=(Pause("group.cpu", "why"),), **given)
    assert freed(paused) == [("team/notebook",)]


@pytest.mark.parametrize("gpus", [1, 0], ids=["that is idle too", "without GPUs"])
def test_a_gang_stays_for_one_pod_that_is_marked(gpus: int) -> None:
    """The others cannot go without it, and their owner is told which one it is."""
    gang = [notebook("a", gang=GANG), notebook("b", gang=GANG, gpus=gpus, do_not_disrupt=True)]
    done = after(*gang, minutes=200, rules=policy(gangs=True))
    assert freed(done) == []
    assert done.idle_gpus["team/a"].endswith("it stays, for team/b of its gang is marked do-not-disrupt")


def test_what_was_not_told_before_is_told_first() -> None:
    """An autoscaler that did not run when the owner was to be told: no pod is evicted without a word."""
    rules = policy(freed_after=timedelta(minutes=5))
    before = after(notebook(), minutes=28, rules=rules)
    late = look(notebook(), uses={"notebook": 0}, minutes=38, rules=rules, memory=before.memory)
    assert freed(late) == []
    assert "it is evicted at 2026-11-21 09:43:00 UTC" in late.idle_gpus["team/notebook"]
    assert late.wake_at == later(minutes=43)
    given: dict[str, Any] = {"uses": {"notebook": 0}, "rules": rules, "memory": late.memory}
    assert freed(look(notebook(), minutes=42.9, **given)) == []
    assert freed(look(notebook(), minutes=43, **given)) == [("team/notebook",)]


def test_an_owner_who_was_told_has_the_time_of_a_policy_that_tells_later() -> None:
    """What was told under the old one is not held against it."""
    told = after(notebook(), minutes=60)
    rules = policy(told_after=timedelta(hours=2))
    assert look(notebook(), uses={"notebook": 0}, minutes=61, rules=rules, memory=told.memory).idle_gpus == {}
    done = look(notebook(), uses={"notebook": 0}, minutes=61, rules=rules, memory=told.memory)
    for at in range(62, 182, 2):
        done = look(notebook(), uses={"notebook": 0}, minutes=at, rules=rules, memory=done.memory)
        assert freed(done) == ([("team/notebook",)] if at >= 180 else [])
