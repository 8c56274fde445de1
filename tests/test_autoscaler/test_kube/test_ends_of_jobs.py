"""What waits for the end of Jobs: steps of workflows, that begin as soon as the programs before them have ended."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal

import msgspec
import pytest

from autoscaler.kube.cache import Store
from autoscaler.kube.schema.convert import pod_from
from autoscaler.kube.schema.core import JobJson, PodJson
from autoscaler.kube.schema.jobs import Job, job_from
from autoscaler.kube.watched_kinds import JOBS, PODS
from autoscaler.model import labels as words
from autoscaler.model.jobs import EarlyStep, WaitingStep
from tests.builders import NOW


@pytest.mark.parametrize(
    ("prepare", "check", "left", "failed"),
    [
        ("succeeded", "succeeded", (), ""),
        ("succeeded", "", ("check",), ""),
        ("succeeded", None, ("check",), ""),
        ("", "failed", ("prepare", "check"), "check"),
        (None, "failed", ("prepare", "check"), "check"),
        ("", "", ("prepare", "check"), ""),
    ],
)
def test_a_step_waits_for_those_before_it_until_they_have_succeeded_or_one_has_failed(
    prepare: Literal["", "succeeded", "failed"] | None,
    check: Literal["", "succeeded", "failed"] | None,
    left: tuple[str, ...],
    failed: str,
) -> None:
    """One that is not there yet, or any more, has not."""
    store, after = Store(), ("prepare", "check")
    ordinary: dict[str, Any] = {"namespace": "d", "ended": False, "ends_with": ""}
    store.put(JOBS, ("d", "train"), 1, Job(**ordinary, name="train", of="flow", depends_on=after, waits=True))
    store.put(JOBS, ("d", "other"), 1, Job(**ordinary, name="other"))
    store.put(JOBS, ("e", "check"), 1, Job(**ordinary | {"namespace": "e"}, name="check", result="succeeded"))
    for name, result in (("prepare", prepare), ("check", check)):
        if result is not None:
            store.put(JOBS, ("d", name), 1, Job(**ordinary | {"ended": bool(result)}, name=name, result=result))
    assert store.cluster(NOW).workflow_steps == (WaitingStep("d", "train", "flow", after, left, failed),)


def test_a_step_that_is_being_deleted_waits_no_longer() -> None:
    """Nor is it begun."""
    store = Store()
    ordinary: dict[str, Any] = {"namespace": "d", "ended": True, "ends_with": ""}
    store.put(JOBS, ("d", "train"), 1, Job(**ordinary, name="train", depends_on=("prepare",), waits=True))
    store.put(JOBS, ("d", "prepare"), 1, Job(**ordinary, name="prepare", result="succeeded"))
    assert store.cluster(NOW).workflow_steps == ()


ENDED, FAILED, RUNS = ({"terminated": {"exitCode": 0}}, {"terminated": {"exitCode": 1}}, {"running": {}})


class Flow:
    """A store with a step of two tasks, and one that depends on it."""

    def __init__(self, *, prepare: Any = (), began: str = "") -> None:
        self.store, self.version = Store(), 0
        spec = {"completionMode": "Indexed", "completions": 2, "parallelism": 2}
        conditions = [{"type": one, "status": "True"} for one in prepare]
        self.job({"name": "prepare", "uid": "u1"}, spec, {"conditions": conditions})
        notes = {words.DEPENDS_ON: "prepare"} | ({words.STEP_BEGAN: began} if began else {})
        self.job({"name": "train", "uid": "u2", "annotations": notes}, {"suspend": not began}, {})

    def job(self, meta: dict[str, Any], spec: dict[str, Any], status: dict[str, Any]) -> None:
        """It is seen."""
        raw = {"metadata": {"namespace": "d"} | meta, "spec": spec, "status": status}
        self.store.put(JOBS, ("d", meta["name"]), 1, job_from(msgspec.convert(raw, JobJson)))

    def pod(
        self,
        name: str,
        index: int,
        *states: dict[str, Any],
        phase: str = "Running",
        uid: str = "u1",
        containers: int = 1,
    ) -> None:
        """It is seen, once more."""
        labels = {words.CONTROLLER_UID: uid, words.COMPLETION_INDEX: str(index)}
        raw = {
            "metadata": {"namespace": "d", "name": name, "labels": labels},
            "spec": {"containers": [{"name": str(number)} for number in range(containers)], "nodeName": "n"},
            "status": {"phase": phase, "containerStatuses": [{"name": "c", "state": state} for state in states]},
        }
        self.version += 1
        self.store.put(PODS, ("d", name), self.version, pod_from(msgspec.convert(raw, PodJson)))

    @property
    def left(self) -> tuple[str, ...]:
        """What the step waits for."""
        (step,) = self.store.cluster(NOW).workflow_steps
        return step.left


def test_a_step_begins_when_each_task_before_it_has_ended_well() -> None:
    """The kubelet reports the end of their pods only seconds later."""
    flow = Flow()
    assert flow.left == ("prepare",)
    flow.pod("p0", 0, RUNS)
    flow.pod("p1", 1, ENDED)
    assert flow.left == ("prepare",)
    flow.pod("p0", 0, ENDED)
    assert flow.left == ()
    flow.pod("p0", 0, phase="Succeeded")
    assert flow.left == ()
    flow.pod("p0", 0, ENDED, phase="Pending")  # it ended before it was seen to run
    assert flow.left == ()


@pytest.mark.parametrize(
    ("states", "more"),
    [
        ((FAILED,), {}),
        ((ENDED, RUNS), {"containers": 2}),
        ((ENDED,), {"containers": 2}),
        ((), {}),
        ((), {"containers": 0}),
        ((ENDED,), {"phase": "Failed"}),
        ((ENDED,), {"uid": "of a Job of that name before"}),
    ],
)
def test_a_task_has_not_ended_well(states: tuple[dict[str, Any], ...], more: dict[str, Any]) -> None:
    """Nor does a second pod of a task that has stand for another."""
    flow = Flow()
    flow.pod("p0", 0, ENDED)
    flow.pod("again", 0, ENDED)
    flow.pod("p1", 1, *states, **more)
    assert flow.left == ("prepare",)


def test_a_task_whose_pod_is_deleted_has_not_ended_before_its_job_says_so() -> None:
    """Its other pod is made, and runs."""
    flow = Flow()
    for index in (0, 1):
        flow.pod(f"p{index}", index, ENDED)
    flow.store.drop(PODS, ("d", "p1"))
    assert flow.left == ("prepare",)
    assert Flow(prepare=["SuccessCriteriaMet"]).left == ()


def test_a_step_is_early_until_the_job_before_it_has_its_result() -> None:
    """Its pods may have to wait for the room of those."""
    began = NOW - timedelta(seconds=1)
    flow = Flow(began=began.isoformat())
    until = began + timedelta(seconds=10)
    assert flow.store.cluster(NOW).early_steps == (EarlyStep("d", "train", ("prepare",), until),)
    assert flow.store.cluster(NOW).workflow_steps == ()
    assert Flow(began=began.isoformat(), prepare=["SuccessCriteriaMet"]).store.cluster(NOW).early_steps == ()
    assert Flow().store.cluster(NOW).early_steps == ()
