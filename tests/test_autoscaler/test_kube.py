"""The door to the Kubernetes API, against a stand-in that can misbehave. The real one: ``tests/live``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from autoscaler import labels as words
from autoscaler.failures import BadInput, Unavailable
from autoscaler.kube import Change, Expired, Kube, Refused
from autoscaler.objects import PodJson
from stacks.local.keeper import free_ports
from tests.builders import a_pod
from tests.test_autoscaler.fake_api import Answer, Asked, FakeApi, fake_api


@pytest.fixture
def api() -> Iterator[FakeApi]:
    """A server that knows /version and nothing else until a test says more."""
    with fake_api() as server:
        server.answer = lambda asked: Answer({"major": "1"} if asked.path == "/version" else {}, 200)
        yield server


@pytest.fixture
def kube(api: FakeApi, tmp_path: Path) -> Kube:
    """A connection to it."""
    return Kube.connect(api.kubeconfig(tmp_path))


def event(kind: str, name: str, version: int) -> dict[str, Any]:
    """A line of a watch."""
    return {"type": kind, "object": {"metadata": {"name": name, "resourceVersion": str(version)}}}


def test_a_token_goes_with_every_request(api: FakeApi, kube: Kube) -> None:
    """As the kubeconfig says."""
    kube.get("/api/v1/nodes", limit=1)
    assert api.asked[-1].headers["Authorization"] == "Bearer secret"
    assert api.asked[-1].query == {"limit": "1"}


def test_an_exec_plugin_is_asked_again_when_its_token_is_refused(api: FakeApi, tmp_path: Path) -> None:
    """EKS tokens live for minutes: a 401 means a new one, and the request is made again."""
    count = tmp_path / "count"
    program = tmp_path / "plugin.py"
    program.write_text(
        f"import json, pathlib; p = pathlib.Path({str(count)!r}); n = int(p.read_text()) + 1 if p.exists() else 1; "
        "p.write_text(str(n)); print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1', "
        "'kind': 'ExecCredential', 'status': {'token': f't{n}'}}))"
    )
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": sys.executable, "args": [str(program)]}
    kube = Kube.connect(api.kubeconfig(tmp_path, user={"exec": plugin}))
    api.answer = lambda asked: Answer({}, 200 if asked.headers["Authorization"] == "Bearer t2" else 401)
    kube.get("/api/v1/nodes")
    assert [asked.headers["Authorization"] for asked in api.asked[-2:]] == ["Bearer t1", "Bearer t2"]


def test_credentials_that_stay_wrong_are_told(api: FakeApi, kube: Kube) -> None:
    """Once more, then in words."""
    api.answer = lambda _asked: Answer({"message": "Unauthorized"}, 401)
    with pytest.raises(Unavailable, match=r"does not know us .*Unauthorized.*credentials valid"):
        kube.get("/api/v1/nodes")


def test_a_missing_right_names_what_to_apply(api: FakeApi, kube: Kube) -> None:
    """403 is the server's own sentence, and where the rights are written down."""
    api.answer = lambda _asked: Answer({"message": 'nodes is forbidden: User "x" cannot list'}, 403)
    with pytest.raises(Refused, match=r"cannot list.*apply autoscaler/rbac.yaml"):
        kube.get("/api/v1/nodes")


def test_a_quota_that_is_used_up_is_no_matter_of_rights(api: FakeApi, kube: Kube) -> None:
    """The same status, another cause: no role would change it."""
    api.answer = lambda _asked: Answer({"message": 'pods "p" is forbidden: exceeded quota: compute'}, 403)
    with pytest.raises(Refused, match=r"exceeded quota: compute$"):
        kube.get("/api/v1/pods")


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_server_in_trouble_is_tried_again_later(api: FakeApi, kube: Kube, status: int) -> None:
    """It is an outage, not a refusal."""
    api.answer = lambda _asked: Answer({"message": "etcdserver: leader changed"}, status)
    with pytest.raises(Unavailable, match="leader changed"):
        kube.get("/api/v1/nodes")


def test_nobody_there_is_told_with_the_address(tmp_path: Path) -> None:
    """And what to check."""
    (port,) = free_ports(1)
    config = FakeApi(url=f"http://127.0.0.1:{port}").kubeconfig(tmp_path)
    with pytest.raises(Unavailable, match=rf"127.0.0.1:{port} does not answer \(connection refused\).*kubeconfig"):
        Kube.connect(config)


@pytest.mark.parametrize("text", [None, "{", "current-context: x\ncontexts: []\nclusters: []\nusers: []\n"])
def test_a_kubeconfig_that_is_none_is_bad_input(tmp_path: Path, text: str | None) -> None:
    """Missing, broken, or without its context: the file is named, and the ways to name another."""
    path = tmp_path / "kubeconfig"
    if text is not None:
        path.write_text(text)
    with pytest.raises(BadInput, match=r"kubeconfig: no usable configuration .*--kubeconfig"):
        Kube.connect(path)


def test_a_list_is_read_page_by_page(api: FakeApi, kube: Kube) -> None:
    """With the version that a watch goes on from."""

    def answer(asked: Asked) -> Answer:
        first = "continue" not in asked.query
        metadata = {"resourceVersion": "7"} | ({"continue": "more"} if first else {})
        return Answer({"metadata": metadata, "items": [{"metadata": {"name": "a" if first else "b"}}]})

    api.answer = answer
    pages = list(kube.pages("/api/v1/nodes"))
    assert [json.loads(bytes(raw))["metadata"]["name"] for raws, _ in pages for raw in raws] == ["a", "b"]
    assert pages[-1][1] == "7"
    assert api.asked[-2].query == {"limit": "500"}


def test_a_watch_gives_each_change_as_it_comes(api: FakeApi, kube: Kube) -> None:
    """With bookmarks, from the version asked for, and with an end that the server knows."""
    api.answer = lambda _asked: Answer(stream=(event("ADDED", "a", 8), event("BOOKMARK", "", 9)))
    with kube.watch("/api/v1/nodes", "7") as changes:
        assert [change.type for change in changes] == ["ADDED", "BOOKMARK"]
    query = api.asked[-1].query
    assert (query["watch"], query["resourceVersion"], query["allowWatchBookmarks"]) == ("1", "7", "true")
    assert 240 <= int(query["timeoutSeconds"]) <= 300


@pytest.mark.parametrize(
    "answer",
    [
        Answer({"message": "too old resource version"}, 410),
        Answer(stream=({"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old"}},)),
    ],
    ids=["as a status", "as an event"],
)
def test_a_version_that_is_compacted_away_is_expired(api: FakeApi, kube: Kube, answer: Answer) -> None:
    """Both ways in which a server says so."""
    api.answer = lambda _asked: answer
    with pytest.raises(Expired, match="too old"), kube.watch("/api/v1/nodes", "1") as changes:
        list(changes)


def test_another_error_in_a_watch_is_an_outage(api: FakeApi, kube: Kube) -> None:
    """The connection is of no use any more; the version still is."""
    status = {"kind": "Status", "code": 500, "message": "storage is (re)initializing"}
    api.answer = lambda _asked: Answer(stream=({"type": "ERROR", "object": status},))
    with pytest.raises(Unavailable, match=r"re.initializing"), kube.watch("/api/v1/nodes", "1") as changes:
        list(changes)


def test_a_watch_that_is_cut_is_an_outage(api: FakeApi, kube: Kube) -> None:
    """What came before the cut was delivered."""
    api.answer = lambda _asked: Answer(stream=(event("ADDED", "a", 8),), cut=True)
    seen: list[Change] = []
    with pytest.raises(Unavailable, match=r"the watch .* broke"), kube.watch("/api/v1/nodes", "7") as changes:
        seen.extend(changes)
    assert len(seen) == 1


NODE = {"metadata": {"name": "n", "uid": "u", "resourceVersion": "5"}}


def node(annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """A node as the server tells it."""
    return {"metadata": {**NODE["metadata"], "annotations": annotations or {}}, "spec": spec}


def test_a_cordon_is_marked_as_ours_and_bound_to_what_was_seen(api: FakeApi, kube: Kube) -> None:
    """A node that changed in between refuses it."""
    api.answer = lambda _asked: Answer(node())
    kube.cordon("n", at=datetime(2026, 11, 21, 10, tzinfo=UTC))
    assert api.asked[-1].method == "PATCH"
    assert api.asked[-1].body == {
        "metadata": {
            "uid": "u",
            "resourceVersion": "5",
            "annotations": {words.CORDONED_BY: words.AUTOSCALER, words.CORDONED_AT: "2026-11-21T10:00:00Z"},
        },
        "spec": {"unschedulable": True},
    }


def test_a_cordon_of_somebody_else_is_neither_taken_over_nor_lifted(api: FakeApi, kube: Kube) -> None:
    """Whoever set it lifts it."""
    api.answer = lambda _asked: Answer(node(unschedulable=True))
    with pytest.raises(Refused, match="cordoned already"):
        kube.cordon("n", at=datetime.now(UTC))
    with pytest.raises(Refused, match="not Spillway's"):
        kube.uncordon("n")
    assert {asked.method for asked in api.asked} == {"GET"}


def test_a_cordon_of_ours_is_lifted_with_its_marks(api: FakeApi, kube: Kube) -> None:
    """Nothing of it stays."""
    api.answer = lambda _asked: Answer(node({words.CORDONED_BY: words.AUTOSCALER}, unschedulable=True))
    kube.uncordon("n")
    body = api.asked[-1].body
    assert body["spec"] == {"unschedulable": None}
    assert body["metadata"]["annotations"] == {words.CORDONED_BY: None, words.CORDONED_AT: None}


def test_a_gang_is_admitted_pod_by_pod_and_one_failure_stays_alone(api: FakeApi, kube: Kube) -> None:
    """Each in one patch that pins it, lifts our gate and no other, and is bound to its uid."""

    def answer(asked: Asked) -> Answer:
        if asked.path.endswith("/gone"):
            return Answer({"message": 'pods "gone" not found'}, 404)
        return Answer({"metadata": {"name": asked.path.rsplit("/", 1)[-1]}})

    api.answer = answer
    came = kube.admit({("ns", "a", "ua"): "host-1", ("ns", "gone", "ug"): "host-2"})
    assert isinstance(came["ns", "a", "ua"], PodJson)
    assert isinstance(came["ns", "gone", "ug"], Refused)
    patch = next(asked for asked in api.asked if asked.path.endswith("/pods/a"))
    assert patch.headers["Content-Type"] == "application/strategic-merge-patch+json"
    assert patch.body == {
        "metadata": {"uid": "ua", "annotations": {words.ADMITTED_TO: "host-1"}},
        "spec": {
            "nodeSelector": {words.HOSTNAME: "host-1"},
            "schedulingGates": [{"$patch": "delete", "name": words.GATE}],
        },
    }


def test_a_pod_is_nominated_as_it_was_seen_and_one_failure_stays_alone(api: FakeApi, kube: Kube) -> None:
    """In its status, and only while it has not changed: it may be bound by now."""

    def answer(asked: Asked) -> Answer:
        if asked.path.endswith("/changed/status"):
            return Answer({"message": "the object has been modified"}, 409)
        return Answer({"metadata": {"name": "a"}, "status": {"nominatedNodeName": "n1"}})

    api.answer = answer
    failures = kube.nominate([((a_pod("a"), 7), "n1"), ((a_pod("changed"), 8), "n2")])
    assert failures.keys() == {"team/changed"}
    assert isinstance(failures["team/changed"], Refused)
    patch = next(asked for asked in api.asked if asked.path.endswith("/pods/a/status"))
    meta = {"uid": "uid-team-a", "resourceVersion": "7"}
    assert patch.body == {"metadata": meta, "status": {"nominatedNodeName": "n1"}}


def test_a_pod_is_told_once_by_whatever_autoscaler(api: FakeApi, kube: Kube) -> None:
    """The Event's name is made of the pod and the reason: a second one is refused by the server itself."""
    api.answer = lambda _asked: Answer({}, 201)
    assert kube.tell_pod(namespace="ns", name="p", uid="u", reason="R", message="m" * 2000)
    first = api.asked[-1].body
    assert first["involvedObject"]["uid"] == "u"
    assert first["reportingComponent"] == words.AUTOSCALER
    assert len(first["message"]) == 1024
    api.answer = lambda _asked: Answer({"message": "already exists"}, 409)
    assert not kube.tell_pod(namespace="ns", name="p", uid="u", reason="R", message="m")
    assert api.asked[-1].body["metadata"]["name"] == first["metadata"]["name"]


@pytest.mark.parametrize(("condition", "status"), [("Complete", "True"), ("Failed", "True"), ("Complete", "False")])
def test_a_job_is_ended_only_after_its_partner_has(api: FakeApi, kube: Kube, condition: str, status: str) -> None:
    """One more look just before the act that cannot be undone."""
    ps = {"metadata": {"name": "ps", "uid": "u", "annotations": {words.ENDS_WITH: "w"}}}
    worker = {"metadata": {"name": "w"}, "status": {"conditions": [{"type": condition, "status": status}]}}
    api.answer = lambda asked: Answer(worker if asked.path.endswith("/w") else ps)
    if status == "True":
        kube.end_job("ns", "ps")
        assert api.asked[-1].method == "DELETE"
        assert api.asked[-1].body["propagationPolicy"] == "Background"
        assert api.asked[-1].body["preconditions"] == {"uid": "u"}
    else:
        with pytest.raises(Refused, match="w that ns/ps ends with goes on"):
            kube.end_job("ns", "ps")
        assert {asked.method for asked in api.asked} == {"GET"}


def test_deleting_a_node_that_is_gone_is_no_failure(api: FakeApi, kube: Kube) -> None:
    """The cloud's own controller may have been faster."""
    api.answer = lambda _asked: Answer({"message": "not found"}, 404)
    kube.delete_node("n", uid="u")
