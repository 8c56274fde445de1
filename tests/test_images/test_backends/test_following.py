"""A job is followed: one line for each change, by answers of an API server that a test scripts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import images.backends.following
from autoscaler.kube.client import Kube
from autoscaler.model import labels as words
from autoscaler.model.errors import BadInput
from images.backends.following import follow, look
from images.backends.stages import stage_of
from images.backends.states import Stage
from images.cli import jobs
from tests.test_autoscaler.fake_api import Answer, Asked, FakeApi, fake_api
from tests.test_images.test_backends.test_kubernetes import listed
from tests.test_images.test_backends.test_stages import LATER, PREPARED, job, of, pod

LEASE = f"/apis/coordination.k8s.io/v1/namespaces/spillway/leases/{words.LEASE}"
DOOR = "/api/v1/namespaces/spillway/pods/brain-0:9090/proxy/key/explain/job/default/mnist"
HELD = {
    "metadata": {"annotations": {words.DOOR: "pod:brain-0:9090/key"}},
    "spec": {"holderIdentity": "brain-0", "renewTime": "2999-01-01T00:00:00.000000Z"},
}
COMING = {"instance_type": "g5.12xlarge", "zone": "us-east-1a", "nodes": 1, "launched": 1, "usd_per_hour": 5.672}
RUNNING = (pod(0, "Running", "n"), pod(1, "Running", "n"))


@pytest.fixture
def api() -> Iterator[FakeApi]:
    """A scripted API server."""
    with fake_api() as server:
        yield server


def moments(api: FakeApi, *, pods: list[tuple[dict[str, Any], ...]], jobs: list[Answer], said: list[Any]) -> None:
    """What it answers at each look; the last answer holds on."""

    def next_of(answers: list[Any]) -> Any:
        return answers.pop(0) if len(answers) > 1 else answers[0]

    def say(asked: Asked) -> Answer:
        what = asked.path.rpartition("/")[2]
        if asked.path == "/version":
            return Answer(body={})
        if asked.path == LEASE:
            return Answer(body=HELD)
        if asked.path == DOOR:
            return Answer(body=next_of(said))
        if what == "jobs":
            return next_of(jobs)
        return listed(*next_of(pods)) if what == "pods" else listed()

    api.answer = say


def test_each_change_is_told_once_until_the_end(api: FakeApi, tmp_path: Path) -> None:
    """Two looks that show the same are one line; an API server that is away for a moment ends nothing."""
    waits = {"lines": ["default/mnist has 2 pods", "w-0, w-1: waits: limits.gpus is reached"], "coming": []}
    moments(
        api,
        pods=[(pod(0), pod(1)), (pod(0), pod(1)), (pod(0), pod(1)), RUNNING],
        jobs=[
            *(listed(job()), listed(job())),
            Answer(status=503, body={"kind": "Status", "message": "away"}),
            *(listed(job()), listed(job()), listed(job(end="Complete"))),
        ],
        said=[waits, waits, waits | {"coming": [COMING]}],
    )
    kube = Kube.connect(api.kubeconfig(tmp_path))
    stages = list(follow(kube, namespace="default", name="mnist", autoscaler="spillway", sleep=lambda _seconds: None))
    assert [(one.word, one.status) for one in stages] == [
        *(("queued", None), ("booting", None), ("running", None), ("ended", 0))
    ]
    assert stages[0].detail == "w-0, w-1: waits: limits.gpus is reached"
    assert stages[1].detail.startswith("1 x g5.12xlarge in us-east-1a, $5.67 per hour")


@pytest.mark.parametrize(("node", "asks"), [("n", True), ("", False)])
def test_events_are_asked_for_where_a_pod_has_a_node_also_where_others_wait(
    api: FakeApi, tmp_path: Path, *, node: str, asks: bool
) -> None:
    """They say what its image does; why the others wait the autoscaler has said."""
    moments(
        api,
        pods=[(pod(0), pod(1, node=node))],
        jobs=[listed(job())],
        said=[{"lines": ["", "w-0: waits: x"], "coming": []}],
    )
    look(Kube.connect(api.kubeconfig(tmp_path)), namespace="default", name="mnist", autoscaler="spillway")
    assert any(one.path.endswith("/events") for one in api.asked) is asks


@pytest.mark.parametrize(
    ("acts", "detail"),
    [
        (True, "step train: the autoscaler begins it now"),
        (False, "step train: no autoscaler acts, which would begin it"),
    ],
)
def test_between_two_steps_it_is_asked_whether_an_autoscaler_acts(
    api: FakeApi, tmp_path: Path, *, acts: bool, detail: str
) -> None:
    """Without one the next step is never begun."""
    moments(api, pods=[(of("prepare", "Succeeded", "n"),)], jobs=[listed(PREPARED, *LATER)], said=[{}])
    if not acts:
        answer, gone = api.answer, Answer({"message": "not found"}, 404)
        api.answer = lambda asked: gone if asked.path == LEASE else answer(asked)
    found = look(Kube.connect(api.kubeconfig(tmp_path)), namespace="default", name="flow", autoscaler="spillway")
    assert stage_of(found) == Stage("queued", detail)


def test_a_job_that_is_not_there_is_not_followed(api: FakeApi, tmp_path: Path) -> None:
    """Nor one that is deleted meanwhile."""
    moments(api, pods=[RUNNING], jobs=[listed(job()), listed()], said=[{}])
    kube = Kube.connect(api.kubeconfig(tmp_path))
    with pytest.raises(BadInput, match="there is no training job 'mnist' in namespace 'default'"):
        list(follow(kube, namespace="default", name="mnist", autoscaler="spillway", sleep=lambda _seconds: None))


def test_the_exit_status_is_that_of_the_job(api: FakeApi, tmp_path: Path) -> None:
    """Of the task that failed last."""
    moments(api, pods=[RUNNING], jobs=[listed(job(end="Failed"))], said=[{}])
    done = CliRunner().invoke(jobs, ["follow", "mnist", "--kubeconfig", str(api.kubeconfig(tmp_path))])
    assert done.exit_code == 1
    assert done.output.endswith("UTC ended: mnist-worker has failed: BackoffLimitExceeded: too often\n")


def test_ctrl_c_leaves_the_job_alone(api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And says how to follow it again."""

    def interrupted(_seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(images.backends.following.follow, "__kwdefaults__", {"sleep": interrupted})
    moments(api, pods=[RUNNING], jobs=[listed(job())], said=[{}])
    words_ = ["follow", "mnist", "-n", "team", "--kubeconfig", str(api.kubeconfig(tmp_path))]
    done = CliRunner().invoke(jobs, words_)
    assert done.exit_code == 130
    assert "mnist goes on; `spillway jobs follow mnist -n team` follows it again" in done.output
    assert {asked.method for asked in api.asked} == {"GET"}


@pytest.mark.parametrize(
    ("lease", "detail"),
    [
        (Answer({"message": "not found"}, 404), "no autoscaler acts, which would find a place for its tasks"),
        (Answer({"message": "no right"}, 403), "its tasks wait for the autoscaler to find a place for all of them"),
    ],
)
def test_a_job_that_waits_says_whether_an_autoscaler_acts(
    api: FakeApi, tmp_path: Path, lease: Answer, detail: str
) -> None:
    """Where that may not be asked, it is taken to."""
    moments(api, pods=[(pod(0), pod(1))], jobs=[listed(job())], said=[{}])
    answer = api.answer
    api.answer = lambda asked: lease if asked.path == LEASE else answer(asked)
    kube = Kube.connect(api.kubeconfig(tmp_path))
    found = look(kube, namespace="default", name="mnist", autoscaler="spillway")
    assert stage_of(found) == Stage("queued", detail)
