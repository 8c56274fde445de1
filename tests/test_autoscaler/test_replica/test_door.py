"""The door of a running autoscaler: health, metrics, and answers as JSON; and how the replica that acts is found."""

from __future__ import annotations

import io
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from autoscaler.kube.client import Kube
from autoscaler.kube.watched_kinds import PODS
from autoscaler.model import labels as words
from autoscaler.model.cluster import Group, Pod
from autoscaler.model.errors import BadInput, Unavailable
from autoscaler.model.volumes import Storage, Volume, VolumeClaim
from autoscaler.record.decisions import to_json
from autoscaler.replica import answers
from autoscaler.replica.acting_replica import Replica, ask_acting, asked, door_of
from autoscaler.replica.door import Door, Question
from autoscaler.reporting.metrics import Metrics
from autoscaler.reporting.report import Log, Report
from autoscaler.views.explain import explained, explained_by_record
from stacks.local.process.ports import free_ports
from tests.builders import a_gang, a_policy, later
from tests.test_autoscaler.fake_api import Answer, Asked, FakeApi, fake_api
from tests.test_autoscaler.test_loop import bench
from tests.test_autoscaler.test_record.test_replay import decided
from tests.test_autoscaler.test_record.test_writer import recorded


def opened(**given: Any) -> str:
    """A door; gives its address."""
    door = Door()
    door.open(**{"metrics": Metrics(CollectorRegistry()).app(), "why_not_alive": lambda: ""} | given)
    return f"http://127.0.0.1:{door.port}"


def test_a_metrics_port_that_is_taken_is_bad_input() -> None:
    """Named with the option."""
    (port,) = free_ports(1)
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", port))  # noqa: S104 - where the metrics would be served
        taken.listen()
        with pytest.raises(BadInput, match=rf"--metrics-port {port}: .* choose another"):
            Door(port)


def test_health_is_that_of_the_loop() -> None:
    """A loop that hangs is not alive, however well another thread answers; one that turns again is."""
    time = iter([0.0, 0.0, 299.0, 301.0, 301.0, 302.0])
    report = Report(Log("text", io.StringIO()), clock=lambda: next(time))
    report.turned()
    url = opened(why_not_alive=report.why_not_alive)
    assert _asked(f"{url}/healthz") == (200, "ok\n")
    assert _asked(f"{url}/healthz") == (503, "the loop has stood still for 301 s\n")
    report.turned()
    assert _asked(f"{url}/healthz")[0] == 200
    assert "# HELP" in _asked(f"{url}/metrics")[1]


def test_the_status_is_asked_for_as_json() -> None:
    """Each time anew."""
    refused = iter(["", "line 7"])
    url = opened(answers={"status": lambda _question: {"policy": {"refused": next(refused)}}})
    assert _asked(f"{url}/status") == (200, '{"policy": {"refused": ""}}')
    assert "line 7" in _asked(f"{url}/status")[1]


def lease(door: str, *, renewed: datetime | None = None, name: str = "one") -> Callable[[], Answer]:
    """As its holder writes it: renewed whenever it is asked for, however long the test takes, or once, at that time."""

    def found() -> Answer:
        spec = {"holderIdentity": name, "renewTime": (renewed or datetime.now(UTC)).isoformat()}
        return Answer({"metadata": {"name": words.LEASE, "annotations": {words.DOOR: door}}, "spec": spec})

    return found


def serving(api: FakeApi, found: Callable[[], Answer] | Answer, **proxied: Any) -> None:
    """The lease, and what a pod answers through the proxy."""

    def answer(asked: Asked) -> Answer:
        if asked.path.endswith(f"/leases/{words.LEASE}"):
            return found if isinstance(found, Answer) else found()
        if asked.path == "/version":
            return Answer({})
        return Answer(proxied[asked.path]) if asked.path in proxied else Answer({"message": "no"}, status=404)

    api.answer = answer


def deciding(*groups: Group, **given: Any) -> Any:
    """A loop that has decided once, with a job that waits; ``groups``: of AWS."""
    made = bench()
    loop = made.loop(planner=lambda *_: decided().plan, **given)
    made.knows_aws(*groups)
    for pod in decided().cluster.pods:
        made.store.put(PODS, (pod.namespace, pod.name), 1, pod)
    loop.once()
    return loop


def answering(loop: Any, record: Path | None = None) -> Mapping[str, answers.Answer]:
    """What a replica with that loop answers."""
    return answers.answers_of(lambda: loop.last, record, known_for=lambda _pods: (None, None), devices=lambda: None)


def test_the_acting_replica_says_why(tmp_path: Path) -> None:
    """From what it decided last, without asking the cluster anything but who acts."""
    loop = deciding()
    url = opened(answers={"key/explain": answering(loop)["explain"]})
    assert _asked(f"{url}/explain/job/team/mnist")[0] == 404, "without the right to read the lease no name is learnt"
    with fake_api() as api:
        serving(api, lease(f"{url}/key"))
        lines = list(explained("job", "team/mnist", kubeconfig=api.kubeconfig(tmp_path), namespace="spillway"))
        assert lines[0] == "team/mnist has 3 pods"
        assert any("the next step is for it: grow" in line for line in lines)
        assert [one.path.rpartition("/")[2] for one in api.asked] == ["version", words.LEASE]
        with pytest.raises(BadInput, match="there is no node 'x'"):
            list(explained("node", "x", kubeconfig=api.kubeconfig(tmp_path), namespace="spillway"))


@pytest.mark.parametrize(
    ("found", "first"),
    [
        (lease(""), "one acts by its own policy; by the one that was named:"),
        (Answer({"message": "no"}, status=404), "no autoscaler acts: the lease is not held"),
    ],
    ids=["acts", "none"],
)
def test_an_answer_by_another_policy_says_so_first(
    tmp_path: Path, found: Callable[[], Answer] | Answer, first: str
) -> None:
    """Or that nothing of it is done, since no autoscaler acts."""
    with fake_api() as api:
        serving(api, found)
        config = api.kubeconfig(tmp_path)
        lines = explained("pod", "team/p", kubeconfig=config, namespace="spillway", policy=a_policy())
        assert next(lines) == first


def test_what_it_cannot_say_yet_is_no_mistake_of_the_question(tmp_path: Path) -> None:
    """After a fail-over: a job is let in, and GPUs are shown without states."""
    loop = deciding()
    loop._forget()
    url = opened(answers={f"key/{name}": answer for name, answer in answering(loop).items()})
    with fake_api() as api:
        serving(api, lease(f"{url}/key"))
        kube = Kube.connect(api.kubeconfig(tmp_path))
        for path, body in ((("explain", "pod", "team", "p"), None), (("top",), None), (("impossible",), b"[]")):
            with pytest.raises(Unavailable, match="nothing was decided yet"):
                ask_acting(kube, *path, namespace="spillway", body=body)
        with pytest.raises(BadInput, match="KIND is one of"):
            ask_acting(kube, "explain", "cat", "tom", namespace="spillway")


def test_volumes_that_no_pod_has_asked_about_so_far_are_looked_up_for_a_job_that_is_to_come() -> None:
    """What was decided last knows nothing of them, and a first job with a claim is no hopeless one."""
    loop, asks, asked_for = deciding(), a_gang("new", 2, claims=("data",), cpu=1), []
    assert loop.last is not None
    assert loop.last.cluster.storage is None
    there = Storage({("team", "data"): VolumeClaim("team", "data", volume="pv")}, {"pv": Volume("pv")})

    def told(name: str, storage: Storage) -> list[Any]:
        def known_for(pods: Sequence[Pod]) -> tuple[Storage, None]:
            asked_for.append([pod.name for pod in pods])
            return storage, None

        found = answers.answers_of(lambda: loop.last, None, known_for=known_for, devices=lambda: None)[name](
            Question(body=to_json(asks))
        )
        return [one["because"] for one in (found["waiting"] if name == "whatif" else found)]

    for name in ("whatif", "impossible"):
        assert not any("data" in why for why in told(name, there))
        assert any("data" in why for why in told(name, Storage()))
    assert asked_for == [[pod.name for pod in asks]] * 4


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (Answer({"message": "leases is forbidden"}, status=403), "the API server refuses: .*forbidden"),
        (Answer({"message": "no"}, status=404), "no autoscaler acts: the lease is not held"),
    ],
    ids=["not shown", "not held"],
)
def test_a_lease_that_names_no_acting_replica_is_an_outage(tmp_path: Path, found: Answer, said: str) -> None:
    """Of which one command says so and goes on, and another ends."""
    with fake_api() as api:
        serving(api, found)
        with pytest.raises(Unavailable, match=said):
            ask_acting(Kube.connect(api.kubeconfig(tmp_path)), "top", namespace="spillway")


def test_a_replica_in_a_pod_is_asked_through_the_api_server(tmp_path: Path) -> None:
    """Its address is the cluster's own."""
    path = "/api/v1/namespaces/spillway/pods/brain-0:9090/proxy/key/explain/pod/team/p"
    with fake_api() as api:
        serving(api, lease("pod:brain-0:9090/key"), **{path: {"lines": ["team/p is on node n"]}})
        found = explained("pod", "team/p", kubeconfig=api.kubeconfig(tmp_path), namespace="spillway")
        assert list(found) == ["team/p is on node n"]


def test_it_answers_of_another_time_by_its_record(tmp_path: Path) -> None:
    """And says so where it keeps none."""
    recorded(tmp_path / "record", decided(), decided(60))
    answer = answering(deciding(), tmp_path / "record")["explain"]
    at = {"at": later(seconds=30).isoformat()}
    assert answer(Question(("job", "team", "mnist"), at))["decided"] == later().isoformat()
    with pytest.raises(Unavailable, match="the record begins later"):
        answer(Question(("job", "team", "mnist"), {"at": later(seconds=-30).isoformat()}))
    with pytest.raises(BadInput, match="keeps no record: start it with --record"):
        answering(deciding())["explain"](Question(("job", "team", "mnist"), at))
    with pytest.raises(BadInput, match="KIND is one of pod, job, node, group"):
        answer(Question(("cat", "tom")))


def test_a_replica_that_does_not_act_says_nothing_of_the_past() -> None:
    """What it decided before it lost the lease may be long ago."""
    loop = deciding()
    loop._forget()
    with pytest.raises(Unavailable, match="nothing was decided yet"):
        answering(loop)["explain"](Question(("pod", "team", "p")))


def test_a_record_answers_without_any_cluster(tmp_path: Path) -> None:
    """By the decision that held, which is named; by the last one else."""
    recorded(tmp_path, decided(), decided(60))
    lines = list(explained_by_record("job", "team/mnist", record=tmp_path, at=None))
    assert lines[:2] == ["decided at 2026-11-21 09:01:00 UTC:", "team/mnist has 3 pods"]
    with pytest.raises(BadInput, match="the record begins later"):
        list(explained_by_record("job", "team/mnist", record=tmp_path, at=later(hours=-1)))


def test_where_none_acts_that_is_said_first(tmp_path: Path) -> None:
    """With when the last one wrote."""
    with fake_api() as api:
        serving(api, lease("", renewed=datetime(2026, 11, 1, tzinfo=UTC)))
        found = explained("pod", "team/p", kubeconfig=api.kubeconfig(tmp_path), namespace="spillway")
        assert next(found).startswith("no autoscaler acts: one held the lease last, and renewed it ")


def test_a_door_that_does_not_open_is_told(tmp_path: Path) -> None:
    """By its address; so is a pod that the API server does not find."""
    (port,) = free_ports(1)
    with fake_api() as api:
        serving(api, lease(""))
        kube = Kube.connect(api.kubeconfig(tmp_path))
        for door, said in (
            (f"http://127.0.0.1:{port}/key", f"does not answer at http://127.0.0.1:{port}: "),
            ("pod:gone:9090/key", "does not answer at pod:gone:9090: "),
            ("", "answers nowhere: it was started without --metrics-port"),
        ):
            replica = Replica("one", datetime.now(UTC), door, acts=True)
            with pytest.raises(Unavailable, match=f"one {said}"):
                asked(kube, replica, "explain", "pod", "p", namespace="spillway")


def test_a_replica_writes_where_it_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host, a pod by its name; a pod without a port of its own nowhere."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("POD_NAME", "brain-0")
    found = partial(door_of, 9090, "key")
    assert found(is_reached_from_afar=False) == f"http://{socket.gethostname()}:9090/key"
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert found(is_reached_from_afar=True) == "pod:brain-0:9090/key"
    assert found(is_reached_from_afar=False) == "", "nothing outside the pod reaches its loopback"


def _asked(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - our own
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()
