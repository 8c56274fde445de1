"""How far a job has come, from what is seen of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from autoscaler.model import labels as words
from autoscaler.planner.explanation.explain import Coming
from images.backends.stages import JOB_NAME, Look, stage_of, tasks_of
from images.backends.states import Stage, TaskState

TWO = Coming(instance_type="g5.12xlarge", zone="us-east-1a", nodes=2, launched=0, usd_per_hour=11.344)


def job(name: str = "mnist-worker", *, tasks: int = 2, end: str = "", ends_with: str = "") -> dict[str, Any]:
    """A batch/v1 Job."""
    conditions = [{"type": end, "status": "True", "reason": "BackoffLimitExceeded", "message": "too often"}]
    marks = {words.ENDS_WITH: ends_with} if ends_with else {}
    return {
        "metadata": {"name": name, "annotations": marks},
        "spec": {"completions": tasks},
        "status": {"conditions": conditions if end else []},
    }


def pod(index: int, phase: str = "Pending", node: str = "", **more: Any) -> dict[str, Any]:
    """A worker."""
    marks = {"batch.kubernetes.io/job-completion-index": str(index)} | more.pop("annotations", {})
    labels = {words.ROLE: "worker", words.GANG: "mnist"}
    metadata = {"name": f"w-{index}", "uid": f"u{index}", "annotations": marks, "labels": labels}
    going = {"deletionTimestamp": "2026-11-21T09:00:00Z"} if more.pop("going", False) else {}
    return {
        "metadata": metadata | going,
        "spec": {"nodeName": node} if node else {},
        "status": {"phase": phase} | more,
    }


def exited(code: int, at: str) -> dict[str, Any]:
    """The status of a container that has ended."""
    return {"containerStatuses": [{"state": {"terminated": {"exitCode": code, "finishedAt": at}}}]}


PULLING = {"involvedObject": {"uid": "u1"}, "message": 'Pulling image "team/mnist:1"'}
STUCK = {"containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}]}
GATED = {"conditions": [{"type": "PodScheduled", "status": "False", "message": "Scheduling is blocked"}]}


@pytest.mark.parametrize(
    ("look", "stage"),
    [
        (Look([job()]), Stage("queued", "0 of 2 tasks have been created")),
        (
            Look([job()], [pod(0, "Failed", "n"), pod(1, "Failed", "n")]),
            Stage("queued", "2 tasks have failed, and its Job decides whether to try again"),
        ),
        (
            Look([job(tasks=1)], [pod(0, "Failed", "n")]),
            Stage("queued", "1 task has failed, and its Job decides whether to try again"),
        ),
        (
            Look([job()], [pod(0), pod(1)]),
            Stage("queued", "its tasks wait for the autoscaler to find a place for all of them"),
        ),
        (Look([job()], [pod(0, **GATED), pod(1, **GATED)]), Stage("queued", "worker 0: Scheduling is blocked")),
        (Look([job()], [pod(0), pod(1)], why="limits.gpus is reached"), Stage("queued", "limits.gpus is reached")),
        (
            Look([job()], [pod(0), pod(1)], nodes=[TWO], why="x"),
            Stage("bought", "2 x g5.12xlarge in us-east-1a, $11.34 per hour: EC2 has not launched yet"),
        ),
        (
            Look([job()], [pod(0), pod(1)], nodes=[Coming("g5.12xlarge", "us-east-1a", 2, 1, 11.344)]),
            Stage("booting", "2 x g5.12xlarge in us-east-1a, $11.34 per hour: 1 launched, not ready yet"),
        ),
        (
            Look([job()], [pod(0, "Running", "n"), pod(1, node="n")], events=[PULLING]),
            Stage("starting", '1 of 2 tasks run; worker 1: Pulling image "team/mnist:1"'),
        ),
        (
            Look([job()], [pod(0, "Running", "n"), pod(1, node="n", **STUCK)], events=[PULLING]),
            Stage("starting", "1 of 2 tasks run; worker 1: ImagePullBackOff: no such image"),
        ),
        (
            Look([job()], [pod(0, "Running", "n"), pod(1, "Failed", "n"), pod(1, "Running", "m", going=True)]),
            Stage("starting", "1 of 2 tasks run"),
        ),
        (Look([job()], [pod(0, "Running", "n"), pod(1, "Running", "n")]), Stage("running", "2 tasks on n (2)")),
        (Look([job()], [pod(0, "Running", "n"), pod(1, "Succeeded", "m")]), Stage("running", "1 task on n")),
        (
            Look([job()], [pod(0, "Succeeded", "n"), pod(1, "Succeeded", "m")]),
            Stage("running", "all of its tasks have ended"),
        ),
        (
            Look([job(tasks=4)], [pod(n, "Running", f"n{n}", annotations={words.GANG_MIN: "2"}) for n in (0, 1)]),
            Stage("running", "2 tasks on n0, n1"),
        ),
        (
            Look([job(end="Complete"), job("mnist-ps", ends_with="mnist-worker")], [pod(0, "Running", "n")]),
            Stage("ended", "succeeded", 0),
        ),
        (
            Look([job(end="Complete"), job("mnist-mine")], [pod(0, "Running", "n")]),
            Stage("starting", "1 of 4 tasks run"),
        ),
        *(
            (Look([job(end=told)], [pod(0, "Running", "n")]), Stage("starting", "1 of 2 tasks run"))
            for told in ("Suspended", "FailureTarget", "SuccessCriteriaMet")  # of a Job that has not ended yet
        ),
        (
            Look(
                [job(end="Failed")],
                [
                    pod(0, "Failed", "n", **exited(3, "2026-11-21T09:00:02Z")),
                    pod(1, "Failed", "n", **exited(143, "2026-11-21T09:00:01Z")),
                    pod(2, "Succeeded", "n", **exited(0, "2026-11-21T09:00:09Z")),
                ],
            ),
            Stage("ended", "mnist-worker has failed: BackoffLimitExceeded: too often", 3),
        ),
        (Look([job(end="Failed")]), Stage("ended", "mnist-worker has failed: BackoffLimitExceeded: too often", 1)),
    ],
)
def test_a_job_is_as_far_as_its_slowest_task(look: Look, stage: Stage) -> None:
    """And says what that one waits for."""
    assert stage_of(look) == stage


def step(name: str, *, after: str = "", later: bool = False, **more: Any) -> dict[str, Any]:
    """One of a workflow, of one task."""
    made = job(f"flow-{name}", tasks=1, **more)
    made["metadata"]["labels"] = {words.ROLE: name}
    made["metadata"]["annotations"] |= {words.DEPENDS_ON: after} if after else {}
    return made | {"spec": {"completions": 1, "suspend": later}}


def of(name: str, *args: Any) -> dict[str, Any]:
    """A pod of such a step."""
    made = pod(0, *args)
    made["metadata"]["labels"] = {words.ROLE: name, "batch.kubernetes.io/job-name": f"flow-{name}"}
    return made


PREPARED = step("prepare", end="Complete")
LATER = step("train", after="flow-prepare", later=True), step("serve", after="flow-train", later=True)


@pytest.mark.parametrize(
    ("look", "stage"),
    [
        (Look([step("prepare"), *LATER]), Stage("queued", "step prepare: 0 of 1 tasks have been created")),
        (
            Look([step("prepare"), *LATER], [of("prepare", "Running", "n")]),
            Stage("running", "step prepare: 1 task on n"),
        ),
        (
            Look([PREPARED, *LATER], [of("prepare", "Succeeded", "n")], why="no autoscaler acts"),
            Stage("queued", "step train: no autoscaler acts"),
        ),
        (
            Look([PREPARED, *LATER], [of("prepare", "Succeeded", "n")]),
            Stage("queued", "step train: the autoscaler begins it now"),
        ),
        (
            Look(
                [PREPARED, step("train", after="flow-prepare"), LATER[1]],
                [of("prepare", "Succeeded", "n"), of("train", "Pending")],
            ),
            Stage("queued", "step train: its tasks wait for the autoscaler to find a place for all of them"),
        ),
        (
            Look([PREPARED, step("train", after="flow-prepare", end="Complete"), LATER[1]], why="x"),
            Stage("queued", "step serve: x"),
        ),
    ],
)
def test_a_workflow_is_as_far_as_its_present_step(look: Look, stage: Stage) -> None:
    """What has ended, or comes later, is not waited for."""
    assert stage_of(look) == stage


def test_of_a_workflow_the_step_that_failed_is_named() -> None:
    """And those that were not begun for it."""
    stopped = [step(name, after="x", end="Failed") for name in ("train", "serve")]
    for one in stopped:
        one["metadata"]["annotations"][words.STEP_STOPPED] = "flow-prepare, which it depends on, has failed"
    told = "flow-prepare has failed: BackoffLimitExceeded: too often"
    failed = step("prepare", end="Failed")
    for steps in ([*stopped, failed], [stopped[0], LATER[1], failed], [failed, *LATER]):
        assert stage_of(Look(steps)) == Stage("ended", f"{told}; not begun: train, serve", 1)


def test_many_nodes_and_many_reasons_are_told_in_short() -> None:
    """A line stays a line."""
    running = [pod(n, "Running", f"n{n}") for n in range(6)]
    assert stage_of(Look([job(tasks=6)], running)).detail == "6 tasks on n0, n1, n2, n3, 2 more nodes"
    events = [{"involvedObject": {"uid": f"u{n}"}, "message": f"reason {n}"} for n in range(6)]
    detail = stage_of(Look([job(tasks=6)], [pod(n, node="n") for n in range(6)], events)).detail
    assert detail.startswith("0 of 6 tasks run; worker 0: reason 0; ")
    assert detail.endswith("worker 3: reason 3")


# --- Each task --------------------------------------------------------------------------------------------------------

MADE, BEGAN, OVER = (datetime(2026, 11, 21, 9, minute, tzinfo=UTC) for minute in (0, 5, 9))


def task_pod(
    name: str, index: int, phase: str = "Pending", node: str = "", *, made: datetime = MADE, **more: Any
) -> Any:
    """A pod of that Job with a container of two GPUs."""
    one = pod(index, phase, node, **more)
    one["metadata"] |= {"creationTimestamp": made.isoformat()}
    one["metadata"]["labels"][JOB_NAME] = name
    one["spec"]["containers"] = [{"resources": {"limits": {words.GPU: "2"}}}]
    return one


def task(index: int, **given: Any) -> TaskState:
    """Of mnist-worker, which has no label that says its role; it waits since its pod was made."""
    ordinary: dict[str, Any] = {"state": "waiting", "since": MADE, "gpus": 2}
    return TaskState(role="mnist-worker", index=index, **ordinary | given)


RAN = {"startTime": BEGAN.isoformat()}


@pytest.mark.parametrize(
    ("one", "shown"),
    [
        (task_pod("mnist-worker", 0, **GATED), task(0, why="Scheduling is blocked")),
        (task_pod("mnist-worker", 0), task(0, why="limits.gpus is reached")),
        (task_pod("mnist-worker", 0, node="n", **STUCK), task(0, where="n", why="ImagePullBackOff: no such image")),
        (
            task_pod("mnist-worker", 0, "Running", "n", **RAN),
            task(0, state="running", since=BEGAN, where="n", starts=1),
        ),
        (
            task_pod("mnist-worker", 0, "Succeeded", "n", **RAN, **exited(0, OVER.isoformat())),
            task(0, state="done", since=OVER, where="n", starts=1),
        ),
        (
            task_pod("mnist-worker", 0, "Failed", "n", **RAN, **exited(3, OVER.isoformat())),
            task(0, state="failed", since=OVER, where="n", starts=1, why="exit status 3"),
        ),
        (
            task_pod("mnist-worker", 0, "Failed", "n", **RAN, reason="Evicted", message="low on memory"),
            task(0, state="failed", since=BEGAN, where="n", starts=1, why="low on memory"),
        ),
        (
            task_pod("mnist-worker", 0, "Running", "n", **RAN, going=True),
            task(0, state="stopped", since=BEGAN, where="n", starts=1, why="its pod is being deleted"),
        ),
    ],
)
def test_a_task_is_shown_by_its_pod(one: dict[str, Any], shown: TaskState) -> None:
    """Where it is and since when, and what keeps it or how it ended; not by pods of other Jobs."""
    other = task_pod("mnist-ps", 0, "Running", "m", made=OVER)
    assert tasks_of(Look([job(tasks=1)], [one, other], why="limits.gpus is reached")) == [shown]


def test_a_task_that_was_started_again_is_shown_by_its_newest_pod() -> None:
    """And counts all starts: pods, and containers that a kubelet started again."""
    again = {"containerStatuses": [{"restartCount": 3, "state": {}}]}
    second = task_pod("mnist-worker", 0, "Running", "m", made=OVER, **again)
    first = task_pod("mnist-worker", 0, "Failed", "n")
    (shown,) = tasks_of(Look([job(tasks=1)], [second, first]))
    assert shown == task(0, state="running", since=OVER, where="m", starts=5)


def test_tasks_without_a_pod_are_shown_by_their_job() -> None:
    """Not made yet, ended, waiting for the step before, or never begun."""
    nothing = replace(task(0), since=None, gpus=0)
    assert tasks_of(Look([job(tasks=2)])) == [replace(nothing, index=n, why="has no pod yet") for n in (0, 1)]
    for end, state in (("Complete", "done"), ("Failed", "failed")):
        over = job(tasks=1, end=end)
        over["status"]["conditions"][0]["lastTransitionTime"] = OVER.isoformat()
        assert tasks_of(Look([over])) == [replace(nothing, state=state, since=OVER)]
    stopped = job(tasks=1, end="Failed")
    stopped["status"]["conditions"][0]["lastTransitionTime"] = OVER.isoformat()
    stopped["metadata"]["annotations"] = {words.STOPPED: "2026-11-21T09:00:00Z"}
    assert [(one.state, one.why) for one in tasks_of(Look([stopped]))] == [("stopped", "its job was stopped")]
    assert stage_of(Look([job("mnist-ps", end="Complete"), stopped])) == Stage("ended", "stopped", 1)
    stopped["status"]["conditions"][0]["type"] = "Complete"  # it was quicker
    assert [one.state for one in tasks_of(Look([stopped]))] == ["done"]
    later = job(tasks=1)
    later["metadata"]["annotations"] = {words.DEPENDS_ON: "prepare"}
    later["spec"]["suspend"] = True
    assert tasks_of(Look([later])) == [replace(nothing, why="begins after prepare")]
    later["metadata"]["annotations"][words.STEP_STOPPED] = "prepare has failed"
    assert tasks_of(Look([later])) == [replace(nothing, state="stopped", why="prepare has failed")]
