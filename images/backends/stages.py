"""How far a job in a cluster has come, by what the API server and the autoscaler show of it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from autoscaler.model import labels as words
from autoscaler.model.enumeration import counted
from autoscaler.planner.explanation.explain import Coming
from images.backends.states import Stage, State, TaskState

Json = Mapping[str, Any]
JOB_NAME: Final = "batch.kubernetes.io/job-name"
"""https://kubernetes.io/docs/reference/labels-annotations-taints/#batch-kubernetes-io-job-name"""
_FEW: Final = 4
_STATES: Final[Mapping[str, State]] = {"Running": "running", "Succeeded": "done", "Failed": "failed"}
"""By the phase of a pod."""


@dataclass(frozen=True, slots=True)
class Look:
    """What is seen of a job at one moment."""

    jobs: Sequence[Json]
    """Its batch/v1 Jobs."""
    pods: Sequence[Json] = ()
    events: Sequence[Json] = ()
    """Of its pods, oldest first."""
    nodes: Sequence[Coming] = ()
    why: str = ""
    """In the autoscaler's words; empty where it was not asked or does not answer."""


def stage_of(look: Look) -> Stage:
    """The stage that the job as a whole is in: that of its slowest tasks."""
    ended = _end(look)
    if ended is not None:
        return ended
    if not any(map(depends_on_others, look.jobs)):
        return _stage(look)
    now = [job for job in look.jobs if not _is_later(job) and _condition(job) is None]
    if not now:
        return Stage("queued", f"step {_names(_due(look.jobs))}: {look.why or 'the autoscaler begins it now'}")
    theirs = {job["metadata"]["name"] for job in now}
    pods = [pod for pod in look.pods if pod["metadata"].get("labels", {}).get(JOB_NAME) in theirs]
    stage = _stage(replace(look, jobs=now, pods=pods))
    return replace(stage, detail=f"step {_names(now)}: {stage.detail}")


def tasks_of(look: Look) -> list[TaskState]:
    """Each task of the job, by its newest pod."""
    of: dict[tuple[str, str], list[Json]] = {}
    for pod in sorted(look.pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"])):
        of.setdefault((pod["metadata"].get("labels", {}).get(JOB_NAME, ""), _index(pod)), []).append(pod)
    return [
        _with_pods(job, index, pods, look)
        if (pods := of.get((job["metadata"]["name"], str(index))))
        else _without_pod(job, index)
        for job in sorted(look.jobs, key=_role)
        for index in range(_completions(job))
    ]


def _with_pods(job: Json, index: int, pods: Sequence[Json], look: Look) -> TaskState:
    pod = pods[-1]
    phase, spec, status = pod["status"]["phase"], pod["spec"], pod["status"]
    state: State = _STATES.get(phase, "waiting") if not _is_going(pod) else "stopped"
    ended = next(_ends(pod), None)
    why = ""
    if state == "waiting":
        why = _kept_by(pod, look.events) or look.why
    elif state == "stopped":
        why = "its pod is being deleted"
    elif state == "failed":
        why = f"exit status {ended['exitCode']}" if ended else str(status.get("message") or status.get("reason", ""))
    since = (ended or {}).get("finishedAt") if state in ("done", "failed") else None
    restarts = sum(one.get("restartCount", 0) for each in pods for one in each["status"].get("containerStatuses", ()))
    return TaskState(
        role=_role(job),
        index=index,
        state=state,
        since=datetime.fromisoformat(since or status.get("startTime") or pod["metadata"]["creationTimestamp"]),
        where=spec.get("nodeName", ""),
        starts=sum(each["status"]["phase"] in _STATES for each in pods) + restarts,
        gpus=gpus_of(pod),
        why=why,
    )


def _without_pod(job: Json, index: int) -> TaskState:
    end = _condition(job)
    since = datetime.fromisoformat(end["lastTransitionTime"]) if end else None
    if end is not None and end["type"] == "Failed" and _is_ended_by_owner(job):
        return TaskState(_role(job), index, "stopped", since, why="its job was stopped")
    if _is_stopped(job):
        return TaskState(_role(job), index, "stopped", since, why=job["metadata"]["annotations"][words.STEP_STOPPED])
    if end is not None:
        return TaskState(_role(job), index, "done" if end["type"] == "Complete" else "failed", since)
    after = job["metadata"].get("annotations", {}).get(words.DEPENDS_ON, "") if _is_later(job) else ""
    return TaskState(_role(job), index, "waiting", None, why=f"begins after {after}" if after else "has no pod yet")


def gpus_of(pod: Json) -> int:
    """How many the pod asks for."""
    containers = pod["spec"]["containers"]
    return sum(int(one.get("resources", {}).get("limits", {}).get(words.GPU, 0)) for one in containers)


def _ends(pod: Json) -> Iterator[Json]:
    """How those of its containers that have ended did."""
    states = (one.get("state", {}).get("terminated") for one in pod["status"].get("containerStatuses", ()))
    return filter(None, states)


def _index(pod: Json) -> str:
    return str(pod["metadata"].get("annotations", {}).get(words.COMPLETION_INDEX, ""))


def _role(job: Json) -> str:
    return str(job["metadata"].get("labels", {}).get(words.ROLE) or job["metadata"]["name"])


def _stage(look: Look) -> Stage:
    alive = [pod for pod in look.pods if pod["status"]["phase"] != "Failed" and not _is_going(pod)]
    late = [pod for pod in alive if not _has_started(pod)]
    wanted = sum(_completions(job) for job in look.jobs)
    if len(alive) - len(late) >= _needed(alive, wanted):
        return Stage("running", _tasks([pod for pod in alive if pod["status"]["phase"] == "Running"]))
    if any(pod["spec"].get("nodeName") for pod in alive):
        return Stage(
            "starting", "; ".join((f"{len(alive) - len(late)} of {wanted} tasks run", *_reasons(late, look.events)))
        )
    if look.nodes:
        launched = sum(one.launched for one in look.nodes)
        return Stage("booting" if launched else "bought", "; ".join(map(_on_its_way, look.nodes)))
    return Stage("queued", look.why or next(_reasons(alive, look.events), "") or _pods_made(look.pods, alive, wanted))


def _end(look: Look) -> Stage | None:
    """Failed as soon as one of its Jobs has; succeeded when all have that end by themselves."""
    deciding = [job for job in look.jobs if words.ENDS_WITH not in job["metadata"].get("annotations", {})]
    conditions = [_condition(job) for job in deciding]
    left = _names(job for job in look.jobs if _is_stopped(job) or _is_later(job))
    after = f"; not begun: {left}" if left else ""
    for job, one in zip(deciding, conditions, strict=True):
        if one is not None and one["type"] == "Failed" and _is_ended_by_owner(job):
            return Stage("ended", "stopped", 1)
        if one is not None and one["type"] == "Failed" and not _is_stopped(job):
            told = f"{one.get('reason', '')}: {one.get('message', '')}".strip(": ")
            return Stage("ended", f"{job['metadata']['name']} has failed: {told}{after}", _failure(look.pods))
    if deciding and all(conditions):
        return Stage("ended", "succeeded", 0)
    return None


def depends_on_others(job: Json) -> bool:
    """Whether it is a step of a workflow, and not the first."""
    return words.DEPENDS_ON in job["metadata"].get("annotations", {})


def _is_stopped(job: Json) -> bool:
    """A step that was given up as one before it had failed."""
    return words.STEP_STOPPED in job["metadata"].get("annotations", {})


def _is_ended_by_owner(job: Json) -> bool:
    return words.STOPPED in job["metadata"].get("annotations", {})


def _is_later(job: Json) -> bool:
    """A step that waits for others."""
    return depends_on_others(job) and bool(job["spec"].get("suspend"))


def _due(jobs: Sequence[Json]) -> Iterator[Json]:
    """Steps of which all before them have ended."""
    ended = {job["metadata"]["name"] for job in jobs if _condition(job)}
    later = filter(_is_later, jobs)
    return (job for job in later if {*job["metadata"]["annotations"][words.DEPENDS_ON].split(",")} <= ended)


def _names(jobs: Iterable[Json]) -> str:
    """Lists the roles of the jobs."""
    return ", ".join(map(_role, jobs))


def _condition(job: Json) -> Json | None:
    found = (one for one in job.get("status", {}).get("conditions", ()) if one["status"] == "True")
    return next((one for one in found if one["type"] in ("Complete", "Failed")), None)


def _failure(pods: Sequence[Json]) -> int:
    """The exit status of the task that failed last; 1 where none is known."""
    ends = [
        (str(end.get("finishedAt", "")), int(end["exitCode"]))
        for pod in pods
        for end in _ends(pod)
        if end.get("exitCode")
    ]
    return max(ends)[1] if ends else 1


def _has_started(pod: Json) -> bool:
    return pod["status"]["phase"] in ("Running", "Succeeded")


def _is_going(pod: Json) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _completions(job: Json) -> int:
    return int(job["spec"].get("completions", 1))


def _needed(pods: Sequence[Json], wanted: int) -> int:
    """Returns as many as an elastic job starts with."""
    gangs = [pod["metadata"] for pod in pods if words.GANG in pod["metadata"].get("labels", {})]
    least = [int(one["annotations"][words.GANG_MIN]) for one in gangs if words.GANG_MIN in one.get("annotations", {})]
    return min(least, default=wanted)


def _tasks(pods: Sequence[Json]) -> str:
    if not pods:
        return "all of its tasks have ended"
    homes = Counter(str(pod["spec"]["nodeName"]) for pod in pods)
    where = [f"{node} ({count})" if count > 1 else node for node, count in sorted(homes.items())]
    more = [f"{len(where) - _FEW} more nodes"] if len(where) > _FEW else []
    return f"{counted(len(pods), 'task')} on {', '.join([*where[:_FEW], *more])}"


def _reasons(pods: Sequence[Json], events: Sequence[Json]) -> Iterator[str]:
    """What keeps these pods, each reason once with the first task that it keeps."""
    told: dict[str, str] = {}
    for pod in pods:
        reason = _kept_by(pod, events)
        if reason:
            told.setdefault(reason, _task(pod))
    yield from (f"{task}: {reason}" for reason, task in list(told.items())[:_FEW])


def _kept_by(pod: Json, events: Sequence[Json]) -> str:
    """The container's own reason, else the last event about the pod, else what the scheduler says."""
    for one in pod["status"].get("containerStatuses", ()):
        waiting = one.get("state", {}).get("waiting", {})
        if waiting.get("message"):
            return f"{waiting['reason']}: {waiting['message']}"
    about = [one for one in events if one["involvedObject"].get("uid") == pod["metadata"]["uid"]]
    if about:
        return str(about[-1].get("message", ""))
    conditions = pod["status"].get("conditions", ())
    return next((str(one["message"]) for one in conditions if one.get("message") and one["status"] == "False"), "")


def _task(pod: Json) -> str:
    meta = pod["metadata"]
    role = meta.get("labels", {}).get(words.ROLE, "")
    return f"{role} {_index(pod)}".strip() or str(meta["name"])


def _on_its_way(one: Coming) -> str:
    many = f"{one.nodes} x {one.instance_type} in {one.zone}, ${one.usd_per_hour:.2f} per hour"
    return f"{many}: {one.launched} launched, not ready yet" if one.launched else f"{many}: EC2 has not launched yet"


def _pods_made(pods: Sequence[Json], alive: Sequence[Json], wanted: int) -> str:
    failed = sum(pod["status"]["phase"] == "Failed" for pod in pods)
    if len(alive) < wanted and failed:
        return f"{failed} task{' has' if failed == 1 else 's have'} failed, and its Job decides whether to try again"
    if len(alive) < wanted:
        return f"{len(alive)} of {wanted} tasks have been created"
    return "its tasks wait for the autoscaler to find a place for all of them"
