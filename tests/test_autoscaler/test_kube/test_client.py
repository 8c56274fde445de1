"""The door to the Kubernetes API, against a stand-in that can misbehave. The real one: ``tests/live``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autoscaler.kube.client import Change, Expired, Kube, Refused
from autoscaler.model.errors import BadInput, Unavailable
from stacks.local.process.ports import free_ports
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


def plugin(command: str, *arguments: str) -> dict[str, Any]:
    """A user of a kubeconfig whose credentials a program gives, as `aws eks update-kubeconfig` writes one."""
    version = "client.authentication.k8s.io/v1"
    return {"exec": {"apiVersion": version, "command": command, "args": list(arguments), "interactiveMode": "Never"}}


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (("sh", "-c", "echo the session has expired >&2; exit 255"), "process returned 255. the session has expired"),
        (("/no/such/program",), "No such file or directory: '/no/such/program'"),
        (("echo", "hello"), "failed to decode process output"),
        (("echo", "{}"), "malformed response"),
    ],
)
def test_a_program_that_gives_no_credentials_is_told(
    api: FakeApi, tmp_path: Path, command: tuple[str, ...], why: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """The stock loader would log it and go on without any: the server would seem to refuse us."""
    with pytest.raises(Unavailable) as outage:
        Kube.connect(api.kubeconfig(tmp_path, user=plugin(*command)))
    assert str(outage.value).startswith(f"{tmp_path}/kubeconfig: the program that it names for credentials gave none (")
    assert why in str(outage.value)
    assert api.asked == []
    assert capfd.readouterr().err == ""


def test_a_token_that_expires_and_cannot_be_renewed_is_told(api: FakeApi, tmp_path: Path) -> None:
    """At the request that needs it; and once the program gives one again, requests go on."""
    answer = tmp_path / "answer.json"
    status = {"token": "t1", "expirationTimestamp": "2020-01-01T00:00:00Z"}
    credentials = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
    answer.write_text(json.dumps(credentials))
    kube = Kube.connect(api.kubeconfig(tmp_path, user=plugin("cat", str(answer))))
    answer.rename(tmp_path / "gone")
    with pytest.raises(Unavailable, match=r"gave none \(exec: process returned 1\..*answer.json"):
        kube.get("/version")
    (tmp_path / "gone").rename(answer)
    kube.get("/version")
    assert api.asked[-1].headers["Authorization"] == "Bearer t1"


def test_an_exec_plugin_is_asked_again_when_its_token_is_refused(api: FakeApi, tmp_path: Path) -> None:
    """EKS tokens live for minutes: a 401 means a new one, and the request is made again."""
    count = tmp_path / "count"
    program = (
        f"import json, pathlib; p = pathlib.Path({str(count)!r}); n = int(p.read_text()) + 1 if p.exists() else 1; "
        "p.write_text(str(n)); print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1', "
        "'kind': 'ExecCredential', 'status': {'token': f't{n}'}}))"
    )
    kube = Kube.connect(api.kubeconfig(tmp_path, user=plugin(sys.executable, "-c", program)))
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
