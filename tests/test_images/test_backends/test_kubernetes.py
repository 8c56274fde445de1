"""Answers of an API server that a real one with fake machines cannot give: logs, refusals, a server that is gone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from autoscaler.kube.client import Kube
from autoscaler.model import labels as words
from autoscaler.model.errors import BadInput, Unavailable
from images.backends.kubernetes import delete, logs, states, stop, submit
from images.cli import jobs
from images.job_files import parse_job
from tests.test_autoscaler.fake_api import Answer, Asked, FakeApi, fake_api
from tests.test_images.test_jobs import GOOD

LOG = "/api/v1/namespaces/default/pods/mnist-worker-1-abcde/log"


@pytest.fixture
def api() -> Iterator[FakeApi]:
    """A scripted API server."""
    with fake_api() as server:
        yield server


def pod(*, made: str = "2026-11-21T09:00:00Z", name: str = "mnist-worker-1-abcde") -> dict[str, Any]:
    """A pod of worker 1 that runs."""
    marks = {"batch.kubernetes.io/job-completion-index": "1"}
    labels = {words.JOB: "mnist", words.ROLE: "worker"}
    metadata = {"name": name, "namespace": "default", "labels": labels, "annotations": marks, "creationTimestamp": made}
    return {"metadata": metadata, "spec": {"nodeName": "n", "containers": []}, "status": {"phase": "Running"}}


def listed(*items: dict[str, Any]) -> Answer:
    """A list of objects."""
    return Answer(body={"metadata": {"resourceVersion": "7"}, "items": list(items)})


def refused(status: int, message: str) -> Answer:
    """An error as the API server words it."""
    return Answer(status=status, body={"kind": "Status", "message": message})


def script(api: FakeApi, answers: dict[str, Answer], directory: Path) -> Kube:
    """An API server with an answer per path."""

    def say(asked: Asked) -> Answer:
        if asked.path == "/version":
            return Answer(body={})
        return answers.get(asked.path, refused(404, f"{asked.path} is not in the script"))

    api.answer = say
    return Kube.connect(api.kubeconfig(directory))


def test_a_log_is_that_of_all_pods_of_its_index_as_they_were_made(api: FakeApi, tmp_path: Path) -> None:
    """A task that was started again has several; to follow it, what was said before is not waited for."""
    old = pod(made="2026-11-21T08:00:00Z", name="mnist-worker-1-older")
    answers = {"/api/v1/namespaces/default/pods": listed(pod(), old), LOG: Answer(body="step 1")}
    kube = script(api, answers | {LOG.replace("abcde", "older"): Answer(body="step 0")}, tmp_path)
    said = list(logs(kube, namespace="default", name="mnist", role="worker", index=1))
    assert said == ['"step 0"', "spillway: here worker 1 was started again", '"step 1"']
    asked = [one.query["labelSelector"] for one in api.asked if one.path.endswith("/pods")]
    assert asked == ["spillway.dev/job=mnist,spillway.dev/role=worker"]


def test_a_task_that_waits_for_another_machine_has_said_something_before(api: FakeApi, tmp_path: Path) -> None:
    """Its lines come first, then why there are no more."""
    waits = pod(made="2026-11-21T10:00:00Z", name="mnist-worker-1-newer")
    waits["spec"] = {"containers": []}
    kube = script(api, {"/api/v1/namespaces/default/pods": listed(waits, pod()), LOG: Answer(body="step 0")}, tmp_path)
    said = logs(kube, namespace="default", name="mnist", role="worker", index=1)
    assert next(said) == '"step 0"'
    with pytest.raises(BadInput, match=r"waits for a machine and has no further log yet: .*mnist-worker-1-newer"):
        next(said)


def test_a_log_is_followed_line_by_line(api: FakeApi, tmp_path: Path) -> None:
    """Until the server ends it."""
    growing = Answer(stream=("step 1", "step 2"))
    kube = script(api, {"/api/v1/namespaces/default/pods": listed(pod()), LOG: growing}, tmp_path)
    lines = logs(kube, namespace="default", name="mnist", role="worker", index=1, follow=True)
    assert list(lines) == ['"step 1"', '"step 2"']
    assert api.asked[-1].query == {"follow": "true"}


def test_a_followed_log_that_breaks_off_is_told(api: FakeApi, tmp_path: Path) -> None:
    """It is no end of the task."""
    kube = script(
        api, {"/api/v1/namespaces/default/pods": listed(pod()), LOG: Answer(stream=("step 1",), cut=True)}, tmp_path
    )
    with pytest.raises(Unavailable, match=r"the answer of the API server at .* broke off"):
        list(logs(kube, namespace="default", name="mnist", role="worker", index=1, follow=True))


@pytest.mark.parametrize("lacks", ["labels", "annotations"])
def test_a_pod_without_a_role_or_an_index_is_no_task(api: FakeApi, tmp_path: Path, lacks: str) -> None:
    """One that was made by hand beside the job's own."""
    other = pod(name="by-hand")
    del other["metadata"][lacks]
    there = {
        "/api/v1/namespaces/default/pods": listed(other, pod()),
        "/apis/batch/v1/namespaces/default/jobs": listed(),
    }
    with pytest.raises(BadInput, match=r"it has worker 1$"):
        list(logs(script(api, there, tmp_path), namespace="default", name="mnist", role="worker", index=0))


@pytest.mark.parametrize("index", [0, 2])
def test_a_task_that_is_not_there_has_no_log(api: FakeApi, tmp_path: Path, index: int) -> None:
    """Nor is another one's given for it."""
    there = {"/api/v1/namespaces/default/pods": listed(pod()), "/apis/batch/v1/namespaces/default/jobs": listed()}
    kube = script(api, there, tmp_path)
    with pytest.raises(BadInput, match=f"job 'mnist' has no task worker {index}: it has worker 1$"):
        list(logs(kube, namespace="default", name="mnist", role="worker", index=index))


def test_a_container_that_is_not_up_yet_is_told(api: FakeApi, tmp_path: Path) -> None:
    """In the API server's words."""
    waits = refused(400, 'container "worker" in pod "mnist-worker-1-abcde" is waiting to start: ContainerCreating')
    kube = script(api, {"/api/v1/namespaces/default/pods": listed(pod()), LOG: waits}, tmp_path)
    with pytest.raises(BadInput, match=r"worker 1 of job 'mnist' has no log: container .* ContainerCreating"):
        list(logs(kube, namespace="default", name="mnist", role="worker", index=1))


def test_a_pod_of_a_fake_machine_is_told_to_have_no_log(api: FakeApi, tmp_path: Path) -> None:
    """The API server would speak of a certificate, or of a connection that nobody takes."""
    pods, away = listed(pod()), refused(500, "Get https://10.40.0.5:10250: connection refused")
    node = Answer(body={"metadata": {"name": "n", "annotations": {"kwok.x-k8s.io/node": "fake"}}})
    answers = {"/api/v1/namespaces/default/pods": pods, LOG: away}
    for told, more in (("not able to answer now", {}), ("is on n, a fake machine", {"/api/v1/nodes/n": node})):
        kube = script(api, answers | more, tmp_path)
        with pytest.raises((BadInput, Unavailable), match=told):
            list(logs(kube, namespace="default", name="mnist", role="worker", index=1))


def test_a_user_without_the_right_is_told_what_is_missing(api: FakeApi, tmp_path: Path) -> None:
    """Nobody sends a researcher to the autoscaler's own rights."""
    api.answer = lambda asked: (
        Answer(body={}) if asked.path == "/version" else refused(403, 'User "eve" cannot list resource "jobs"')
    )
    kube = Kube.connect(api.kubeconfig(tmp_path))
    for ask in (lambda: states(kube), lambda: delete(kube, namespace="default", name="mnist")):
        with pytest.raises(BadInput, match=r'^cannot look for training jobs: User "eve" cannot list resource "jobs"$'):
            ask()


def test_whoever_may_create_jobs_need_not_be_allowed_to_create_pods(api: FakeApi, tmp_path: Path) -> None:
    """The check of the pods is left out then; an owner is given to all but the main Job."""
    no_pods = refused(403, 'pods is forbidden: User "eve" cannot create resource "pods"')
    job = Answer(body={"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "mnist-worker", "uid": "u1"}})
    kube = script(
        api,
        {
            "/api/v1/namespaces/default/pods": no_pods,
            "/api/v1/namespaces/default/services": Answer(body={}),
            "/apis/batch/v1/namespaces/default/jobs": job,
        },
        tmp_path,
    )
    submit(kube, parse_job(GOOD, source="job.yaml"))
    made = [asked.body["metadata"] for asked in api.asked if asked.method == "POST" and not asked.query]
    assert [(meta["name"], [o["uid"] for o in meta.get("ownerReferences", [])]) for meta in made] == [
        ("mnist-worker", []),
        ("mnist", ["u1"]),
        ("mnist-ps", ["u1"]),
    ]
    owners = [owner for meta in made for owner in meta.get("ownerReferences", [])]
    assert not any(owner["controller"] or owner["blockOwnerDeletion"] for owner in owners)


@pytest.mark.parametrize("command", [["list"], ["delete", "mnist"], ["logs", "mnist"]])
def test_a_server_that_is_gone_is_told(tmp_path: Path, command: list[str]) -> None:
    """Which one, and what to look at."""
    with fake_api() as api:
        kubeconfig = api.kubeconfig(tmp_path)
    done = CliRunner().invoke(jobs, [*command, "--kubeconfig", str(kubeconfig)])
    assert isinstance(done.exception, Unavailable)
    assert "does not answer (connection refused): is it running" in str(done.exception)


def test_no_jobs_is_no_empty_table(api: FakeApi, tmp_path: Path) -> None:
    """It says what to do next."""
    script(api, dict.fromkeys(("/api/v1/pods", "/apis/batch/v1/jobs"), listed()), tmp_path)
    done = CliRunner().invoke(jobs, ["list", "--kubeconfig", str(tmp_path / "kubeconfig")])
    assert done.output == "no jobs; `spillway jobs templates` shows what there is to start from\n"


def test_names_of_jobs_are_never_cut(api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads on gets whole lines; a narrow terminal folds what has no room."""
    name = "resnet-imagenet-ablation-with-a-larger-batch"
    marks = {"spillway.dev/job": name, "spillway.dev/role": "worker"}
    made = {"name": f"{name}-worker", "namespace": "default", "uid": "u", "labels": marks}
    job = {"metadata": {**made, "creationTimestamp": "2026-11-21T09:00:00Z"}, "spec": {}, "status": {}}
    script(api, {"/api/v1/pods": listed(), "/apis/batch/v1/jobs": listed(job)}, tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    ask = ["list", "--kubeconfig", str(tmp_path / "kubeconfig")]
    piped = CliRunner().invoke(jobs, ask).output.splitlines()
    assert [line.split()[:4] for line in piped] == [
        ["NAMESPACE", "JOB", "ROLE", "STATE"],
        ["default", name, "worker", "waiting"],
    ]
    monkeypatch.setenv("FORCE_COLOR", "1")
    shown = re.sub(r"\x1b\[[0-9;]*m", "", CliRunner().invoke(jobs, ask).output).splitlines()
    assert max(map(len, shown)) == 80
    assert "".join(line[11:].split(maxsplit=1)[0] for line in shown[1:]) == name


def test_of_a_job_the_main_one_is_deleted_by_its_uid_and_its_name_is_waited_for(api: FakeApi, tmp_path: Path) -> None:
    """What it owns goes with it; a job of that name that nobody made is told."""
    main = {"metadata": {"name": "mnist-worker", "namespace": "default", "uid": "u1"}}
    owned = {"metadata": {"name": "mnist-ps", "namespace": "default", "uid": "u2", "ownerReferences": [{"uid": "u1"}]}}
    standing = [main, owned]

    def say(asked: Asked) -> Answer:
        if asked.method == "DELETE":
            standing.clear()
            return Answer(body={})
        return listed(*(standing if asked.path.endswith("/jobs") else ()))

    api.answer = say
    kube = Kube.connect(api.kubeconfig(tmp_path))
    assert delete(kube, namespace="default", name="mnist")
    (gone,) = [asked for asked in api.asked if asked.method == "DELETE"]
    assert gone.path == "/apis/batch/v1/namespaces/default/jobs/mnist-worker"
    assert gone.body == {"propagationPolicy": "Background", "preconditions": {"uid": "u1"}}
    with pytest.raises(BadInput, match="there is no training job 'mnist' in namespace 'default'"):
        delete(kube, namespace="default", name="mnist")


@pytest.mark.parametrize(("status", "told"), [(404, ""), (403, "cannot stop job 'mnist': .*no right")])
def test_a_job_that_is_cleared_away_while_it_is_stopped_is_no_failure(
    api: FakeApi, tmp_path: Path, status: int, told: str
) -> None:
    """A refusal is one. What has ended is left as it is; one that is suspended is resumed without a task."""
    ended = {"conditions": [{"type": "Complete", "status": "True", "lastTransitionTime": "2026-11-21T10:00:00Z"}]}
    standing = [
        {"metadata": {"name": f"mnist-{role}", "namespace": "default", "uid": role}, "spec": spec, "status": state}
        for role, spec, state in (("ps", {}, {}), ("later", {"suspend": True}, {}), ("done", {}, ended))
    ]

    def say(asked: Asked) -> Answer:
        if asked.method != "PATCH":
            return listed(*standing)
        return refused(status, "no right") if asked.path.endswith("/mnist-ps") else Answer(body={})

    api.answer = say
    kube = Kube.connect(api.kubeconfig(tmp_path))
    if told:
        with pytest.raises(BadInput, match=told):
            stop(kube, namespace="default", name="mnist")
        return
    assert stop(kube, namespace="default", name="mnist")
    patched = {asked.path.rpartition("/")[2]: asked.body for asked in api.asked if asked.method == "PATCH"}
    assert {name: (body["metadata"]["uid"], body["spec"]) for name, body in patched.items()} == {
        "mnist-ps": ("ps", {"activeDeadlineSeconds": 0}),
        "mnist-later": ("later", {"activeDeadlineSeconds": 0, "suspend": False, "parallelism": 0}),
    }
    standing[:] = standing[2:]
    assert not stop(kube, namespace="default", name="mnist")


JOBS, SERVICES = "/apis/batch/v1/namespaces/default/jobs", "/api/v1/namespaces/default/services"


def submitted(api: FakeApi, directory: Path, *, refuses: Answer, at: str, dry: bool) -> tuple[str, list[str]]:
    """Submit a job of which the API server refuses one object: in which words, and what was made or deleted."""

    def say(asked: Asked) -> Answer:
        if asked.path == at and asked.method == "POST" and bool(asked.query) is dry:
            return refuses
        named = asked.body["metadata"] if asked.method == "POST" else {}
        return Answer(body={"apiVersion": "batch/v1", "kind": "Job", "metadata": named | {"uid": "u1"}})

    api.answer = say
    with pytest.raises(BadInput) as told:
        submit(Kube.connect(api.kubeconfig(directory)), parse_job(GOOD, source="job.yaml"))
    changed = [asked for asked in api.asked if asked.method in {"POST", "DELETE"} and not asked.query]
    return str(told.value), [f"{asked.method} {asked.path}" for asked in changed]


@pytest.mark.parametrize("at", [JOBS, SERVICES, "/api/v1/namespaces/default/pods"])
def test_what_the_api_server_refuses_is_known_before_anything_is_made(api: FakeApi, tmp_path: Path, at: str) -> None:
    """Each object is tried, and the pods of each Job, which the Job's controller would fail to make unseen."""
    said, made = submitted(api, tmp_path, refuses=refused(422, "spec: wrong"), at=at, dry=True)
    assert "spec: wrong" in said
    assert made == []


def test_half_a_job_is_taken_away_again(api: FakeApi, tmp_path: Path) -> None:
    """The main Job goes, and with it what it owns."""
    said, made = submitted(api, tmp_path, refuses=refused(422, "no port is free"), at=SERVICES, dry=False)
    assert "no port is free" in said
    assert made == [f"POST {JOBS}", f"POST {SERVICES}", f"DELETE {JOBS}/mnist-worker"]


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (409, "Job 'mnist-worker' is there already in namespace 'default': choose another name, or `spillway jobs"),
        (404, "namespace 'default' is not there: create it, or choose another in the job file"),
        (422, "the API server refuses Job 'mnist-worker': no"),
    ],
)
def test_a_refusal_says_what_to_do(api: FakeApi, tmp_path: Path, status: int, said: str) -> None:
    """A name that is taken, a namespace that is not there, and whatever else, in the API server's words."""
    assert submitted(api, tmp_path, refuses=refused(status, "no"), at=JOBS, dry=True)[0].startswith(said)


@pytest.mark.parametrize(
    ("conditions", "state", "since"),
    [
        ([], "waiting", "2026-11-21T09:00:00+00:00"),
        ([("Suspended", "False"), ("Complete", "True")], "done", "2026-11-21T10:00:00+00:00"),
        ([("Failed", "True")], "failed", "2026-11-21T10:00:00+00:00"),
        ([("Complete", "False"), ("FailureTarget", "True")], "waiting", "2026-11-21T09:00:00+00:00"),
    ],
)
def test_a_job_has_ended_by_its_conditions(
    api: FakeApi, tmp_path: Path, conditions: list[tuple[str, str]], state: str, since: str
) -> None:
    """By those that are true, and that say an end; it shows since when."""
    marks = {"spillway.dev/job": "mnist", "spillway.dev/role": "worker"}
    made = {"name": "mnist-worker", "namespace": "default", "uid": "u", "labels": marks}
    told = [
        {"type": kind, "status": status, "lastTransitionTime": "2026-11-21T10:00:00Z"} for kind, status in conditions
    ]
    job = {
        "metadata": {**made, "creationTimestamp": "2026-11-21T09:00:00Z"},
        "spec": {},
        "status": {"conditions": told},
    }
    kube = script(api, {"/api/v1/pods": listed(), "/apis/batch/v1/jobs": listed(job)}, tmp_path)
    (found,) = states(kube)
    assert (found.state, found.since.isoformat()) == (state, since)


@pytest.mark.parametrize(("answer", "is_free"), [(404, True), (200, False)])
def test_a_job_that_goes_meanwhile_is_deleted_and_one_that_stays_is_told(
    api: FakeApi, tmp_path: Path, answer: int, *, is_free: bool
) -> None:
    """A finalizer, or a controller that is down: its name is taken still when the time is over."""
    standing = [{"metadata": {"name": "mnist-worker", "namespace": "default", "uid": "u1"}}]

    def say(asked: Asked) -> Answer:
        if asked.method == "DELETE":
            if answer == 404:
                standing.clear()
            return refused(answer, "is gone") if answer == 404 else Answer(body={})
        return listed(*(standing if asked.path.endswith("/jobs") else ()))

    api.answer = say
    kube = Kube.connect(api.kubeconfig(tmp_path))
    assert delete(kube, namespace="default", name="mnist", patience=0.3) is is_free


def test_a_job_that_may_not_be_deleted_is_told(api: FakeApi, tmp_path: Path) -> None:
    """In the API server's words."""
    job = {"metadata": {"name": "mnist-worker", "namespace": "default", "uid": "u1"}}
    api.answer = lambda asked: refused(403, "no right") if asked.method == "DELETE" else listed(job)
    with pytest.raises(BadInput, match=r"cannot delete job 'mnist': .*no right"):
        delete(Kube.connect(api.kubeconfig(tmp_path)), namespace="default", name="mnist")


def test_a_role_counts_the_pods_of_its_own_job_that_run_or_wait(api: FakeApi, tmp_path: Path) -> None:
    """A pod that has ended, one without a node and one of an older job of that name do not run."""
    marks = {words.JOB: "mnist", words.ROLE: "worker"}
    made = {"name": "mnist-worker", "namespace": "default", "uid": "u", "labels": marks}
    job: dict[str, Any] = {
        "metadata": {**made, "creationTimestamp": "2026-11-21T09:00:00Z"},
        "spec": {"completions": 5},
        "status": {"succeeded": 1, "failed": 2},
    }

    def of(uid: str, phase: str, *, node: str = "n", started: str = "", at: str = "2026-11-21T09:01:00Z") -> Any:
        one = pod(made=at) | {"spec": {"nodeName": node, "containers": []}, "status": {"phase": phase}}
        one["metadata"] = {**one["metadata"], "ownerReferences": [{"uid": uid}]}
        one["status"] |= {"startTime": started} if started else {}
        return one

    pods = [
        of("u", "Running", started="2026-11-21T09:02:00Z"),
        of("u", "Pending", at="2026-11-21T09:03:00Z"),
        of("u", "Succeeded"),
        of("older", "Running"),
        of("u", "Pending", node="", at="2026-11-21T09:05:00Z"),
        of("u", "Pending", node="", at="2026-11-21T09:04:00Z"),
    ]
    answers = {"/api/v1/pods": listed(*pods), "/apis/batch/v1/jobs": listed(job)}
    (found,) = states(script(api, answers, tmp_path))
    assert (found.running, found.waiting, found.succeeded, found.failed) == (2, 2, 1, 2)
    assert (found.state, found.since.isoformat()) == ("waiting", "2026-11-21T09:04:00+00:00")
    job["spec"]["completions"] = 3
    (found,) = states(script(api, answers, tmp_path))
    assert (found.state, found.since.isoformat()) == ("running", "2026-11-21T09:03:00+00:00")
    job["status"]["conditions"] = [{"type": "Failed", "status": "True", "lastTransitionTime": "2026-11-21T09:06:00Z"}]
    (found,) = states(script(api, {**answers, "/api/v1/pods": listed()}, tmp_path))
    assert (found.state, found.running, found.waiting) == ("failed", 0, 0)
