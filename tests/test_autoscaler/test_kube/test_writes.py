"""What the autoscaler writes, against a stand-in for the API server. The real one: ``tests/live``."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from autoscaler.kube.client import Kube, Refused
from autoscaler.kube.credentials import Account
from autoscaler.kube.schema.core import PodJson
from autoscaler.kube.writes import Writes
from autoscaler.model import labels as words
from autoscaler.model.errors import Unavailable
from tests.builders import a_pod
from tests.test_autoscaler.fake_api import Answer, Asked, FakeApi, fake_api


@pytest.fixture
def api() -> Iterator[FakeApi]:
    """A server that each test gives its answers."""
    with fake_api() as server:
        yield server


@pytest.fixture
def writes(api: FakeApi, tmp_path: Path) -> Writes:
    """The writes, to it."""
    return Writes(Kube(Account(api.kubeconfig(tmp_path))))


NODE = {"metadata": {"name": "n", "uid": "u", "resourceVersion": "5"}}


def node(annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """A node as the server tells it."""
    return {"metadata": {**NODE["metadata"], "annotations": annotations or {}}, "spec": spec}


def test_a_cordon_is_marked_as_ours_and_bound_to_what_was_seen(api: FakeApi, writes: Writes) -> None:
    """A node that changed in between refuses it."""
    api.answer = lambda _asked: Answer(node())
    writes.cordon("n", at=datetime(2026, 11, 21, 10, tzinfo=UTC))
    assert api.asked[-1].method == "PATCH"
    assert api.asked[-1].body == {
        "metadata": {
            "uid": "u",
            "resourceVersion": "5",
            "annotations": {words.CORDONED_BY: words.AUTOSCALER, words.CORDONED_AT: "2026-11-21T10:00:00Z"},
        },
        "spec": {"unschedulable": True},
    }


def test_a_cordon_of_somebody_else_is_neither_taken_over_nor_lifted(api: FakeApi, writes: Writes) -> None:
    """Whoever set it lifts it."""
    api.answer = lambda _asked: Answer(node(unschedulable=True))
    with pytest.raises(Refused, match="cordoned already") as refused:
        writes.cordon("n", at=datetime.now(UTC))
    assert refused.value.status == 409
    with pytest.raises(Refused, match="not Spillway's"):
        writes.uncordon("n")
    assert {asked.method for asked in api.asked} == {"GET"}


def test_a_cordon_of_ours_is_lifted_with_its_marks(api: FakeApi, writes: Writes) -> None:
    """Nothing of it stays."""
    api.answer = lambda _asked: Answer(node({words.CORDONED_BY: words.AUTOSCALER}, unschedulable=True))
    writes.uncordon("n")
    body = api.asked[-1].body
    assert body["spec"] == {"unschedulable": None}
    assert body["metadata"]["annotations"] == {words.CORDONED_BY: None, words.CORDONED_AT: None}


def test_a_gang_is_admitted_pod_by_pod_and_one_failure_stays_alone(api: FakeApi, writes: Writes) -> None:
    """Each in one patch that pins it, lifts our gate and no other, and is bound to its uid."""

    def answer(asked: Asked) -> Answer:
        if asked.path.endswith("/gone"):
            return Answer({"message": 'pods "gone" not found'}, 404)
        return Answer({"metadata": {"name": asked.path.rsplit("/", 1)[-1]}})

    api.answer = answer
    came = writes.admit({("ns", "a", "ua"): "host-1", ("ns", "gone", "ug"): "host-2"})
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


def test_the_gates_of_a_gang_are_lifted_together(api: FakeApi, writes: Writes) -> None:
    """The scheduler binds the first pods as soon as they have no gate: the last must not wait for an answer to them."""
    all_there = Barrier(13, timeout=30)

    def answer(asked: Asked) -> Answer:
        all_there.wait()
        return Answer({"metadata": {"name": asked.path.rsplit("/", 1)[-1]}})

    api.answer = answer
    came = writes.admit({("ns", f"p{number}", "u"): "host" for number in range(13)})
    assert all(isinstance(one, PodJson) for one in came.values())


def test_a_pod_is_nominated_as_it_was_seen_and_one_failure_stays_alone(api: FakeApi, writes: Writes) -> None:
    """In its status, and only while it has not changed: it may be bound by now."""

    def answer(asked: Asked) -> Answer:
        if asked.path.endswith("/changed/status"):
            return Answer({"message": "the object has been modified"}, 409)
        return Answer({"metadata": {"name": "a"}, "status": {"nominatedNodeName": "n1"}})

    api.answer = answer
    came = writes.nominate([((a_pod("a"), 7), "n1"), ((a_pod("changed"), 8), "n2")])
    assert isinstance(came["team/a"], PodJson)
    assert isinstance(came["team/changed"], Refused)
    patch = next(asked for asked in api.asked if asked.path.endswith("/pods/a/status"))
    meta = {"uid": "uid-team-a", "resourceVersion": "7"}
    assert patch.body == {"metadata": meta, "status": {"nominatedNodeName": "n1"}}


def test_a_pod_is_told_once_by_whatever_autoscaler(api: FakeApi, writes: Writes) -> None:
    """The Event's name is made of the pod and the reason: a second one is refused by the server itself."""
    api.answer = lambda _asked: Answer({}, 201)
    assert writes.tell_pod(namespace="ns", name="p", uid="u", reason="R", message="m" * 2000)
    first = api.asked[-1].body
    assert first["involvedObject"]["uid"] == "u"
    assert first["reportingComponent"] == words.AUTOSCALER
    assert (len(first["message"]), first["count"]) == (1024, 1)
    api.answer = lambda _asked: Answer({"message": "already exists"}, 409)
    assert not writes.tell_pod(namespace="ns", name="p", uid="u", reason="R", message="m")
    assert api.asked[-1].body["metadata"]["name"] == first["metadata"]["name"]


@pytest.mark.parametrize(("condition", "status"), [("Complete", "True"), ("Failed", "True"), ("Complete", "False")])
def test_a_job_is_ended_only_after_its_partner_has(api: FakeApi, writes: Writes, condition: str, status: str) -> None:
    """One more look just before the act that cannot be undone."""
    ps = {"metadata": {"name": "ps", "uid": "u", "annotations": {words.ENDS_WITH: "w"}}}
    worker = {"metadata": {"name": "w"}, "status": {"conditions": [{"type": condition, "status": status}]}}
    api.answer = lambda asked: Answer(worker if asked.path.endswith("/w") else ps)
    if status == "True":
        writes.end_job("ns", "ps")
        assert api.asked[-1].method == "DELETE"
        assert api.asked[-1].body["propagationPolicy"] == "Background"
        assert api.asked[-1].body["preconditions"] == {"uid": "u"}
    else:
        with pytest.raises(Refused, match="w that ns/ps ends with goes on"):
            writes.end_job("ns", "ps")
        assert {asked.method for asked in api.asked} == {"GET"}


def test_deleting_a_node_that_is_gone_is_no_failure(api: FakeApi, writes: Writes) -> None:
    """The cloud's own controller may have been faster."""
    api.answer = lambda _asked: Answer({"message": "not found"}, 404)
    writes.delete_node("n", uid="u")
    (asked,) = api.asked
    assert (asked.method, asked.path) == ("DELETE", "/api/v1/nodes/n")
    assert asked.body["preconditions"] == {"uid": "u"}


def test_deleting_a_node_that_may_not_be_deleted_is_a_failure(api: FakeApi, writes: Writes) -> None:
    """So is another node of that name."""
    for status in (403, 409):
        api.answer = lambda _asked, status=status: Answer({"message": "no"}, status)  # type: ignore[misc]
        with pytest.raises(Refused):
            writes.delete_node("n", uid="u")


def test_a_pod_is_deleted_only_as_it_was_seen_without_a_node(api: FakeApi, writes: Writes) -> None:
    """Its uid, and the version that was read: a scheduler that binds it at this moment wins."""
    bound = {"metadata": {"name": "p", "uid": "u", "resourceVersion": "7"}, "spec": {"nodeName": "n"}}
    api.answer = lambda _asked: Answer(bound)
    with pytest.raises(Refused, match="pod ns/p is bound to n by now") as refused:
        writes.delete_unbound("ns", "p", uid="u")
    assert refused.value.status == 409
    assert [asked.method for asked in api.asked] == ["GET"]
    api.answer = lambda _asked: Answer(bound | {"spec": {}})
    writes.delete_unbound("ns", "p", uid="u")
    assert (api.asked[-1].method, api.asked[-1].path) == ("DELETE", "/api/v1/namespaces/ns/pods/p")
    assert api.asked[-1].body["preconditions"] == {"uid": "u", "resourceVersion": "7"}


def test_a_process_that_may_not_write_sends_nothing(api: FakeApi, writes: Writes) -> None:
    """It stood still, and another holds the lease: refused here, as the API server would refuse an older version."""
    idle = Writes(writes._kube, may_write=lambda: False)
    api.answer = lambda _asked: Answer({"metadata": {"name": "p", "uid": "u", "resourceVersion": "7"}})
    for write in (lambda: idle.delete_node("n", uid="u"), lambda: idle.delete_unbound("ns", "p", uid="u")):
        with pytest.raises(Refused) as refused:
            write()
        assert refused.value.status == 409
    assert "DELETE" not in [asked.method for asked in api.asked]


def test_the_last_look_at_a_node_sees_all_its_pods(api: FakeApi, writes: Writes) -> None:
    """Page after page: one that is overlooked would lose its node."""

    def answer(asked: Asked) -> Answer:
        assert asked.query["fieldSelector"] == "spec.nodeName=n"
        first = "continue" not in asked.query
        pod = {"metadata": {"name": "a" if first else "b"}}
        return Answer({"metadata": {"continue": "more"} if first else {}, "items": [pod]})

    api.answer = answer
    assert [pod.metadata.name for pod in writes.pods_on("n")] == ["a", "b"]


TAINTS = [{"key": "other", "effect": "NoSchedule"}, {"key": words.RESERVED, "effect": "NoSchedule"}]
TESTED = [
    {"op": "test", "path": "/metadata/uid", "value": "u"},
    {"op": "test", "path": "/spec/taints/1/key", "value": words.RESERVED},
]


def test_a_reservation_is_changed_in_its_own_place_and_refused_where_the_taints_have_moved(
    api: FakeApi, writes: Writes
) -> None:
    """No other taint is touched. A node that changes in between, as the server says, fails alone."""

    def answer(asked: Asked) -> Answer:
        if asked.method == "PATCH" and asked.path.endswith("/moved"):
            return Answer({"code": 422, "message": "testing path /spec/taints/1/key failed"}, status=422)
        return Answer(node(taints=TAINTS))

    api.answer = answer
    came = writes.reserve({"n": "i-1", "moved": "i-2"})
    assert str(came["moved"]).endswith("testing path /spec/taints/1/key failed")
    (patch,) = [asked for asked in api.asked if asked.method == "PATCH" and asked.path.endswith("/n")]
    assert patch.headers["Content-Type"] == "application/json-patch+json"
    assert patch.body == [*TESTED, {"op": "add", "path": "/spec/taints/1/value", "value": "i-1"}]
    writes.unreserve(["n"])
    assert api.asked[-1].body == [*TESTED, {"op": "remove", "path": "/spec/taints/1"}]


def test_a_node_that_is_not_reserved_is_left_as_it_is(api: FakeApi, writes: Writes) -> None:
    """Somebody has opened it already."""
    api.answer = lambda _asked: Answer(node(taints=TAINTS[:1]))
    assert not isinstance(writes.unreserve(["n"])["n"], Exception)
    assert [asked.method for asked in api.asked] == ["GET"]


def test_a_toleration_is_added_behind_those_that_a_pod_has(api: FakeApi, writes: Writes) -> None:
    """Nothing else of a pod may be changed. One pod's failure is its own."""

    def answer(asked: Asked) -> Answer:
        if asked.path.endswith("/gone"):
            return Answer({"code": 404, "message": "not found"}, status=404)
        return Answer({"metadata": {"name": "p"}})

    api.answer = answer
    some = a_pod("some", gpus=1)
    came = writes.let_in([(some, "i-1"), (a_pod("none"), "i-1"), (a_pod("gone"), "i-1")])
    assert isinstance(came["team/gone"], Refused)
    bodies = {asked.path.rpartition("/")[2]: asked.body for asked in api.asked}
    own = {"key": words.RESERVED, "operator": "Equal", "value": "i-1"}
    tested = {"op": "test", "path": "/metadata/uid", "value": "uid-team-some"}
    assert bodies["some"] == [tested, {"op": "add", "path": "/spec/tolerations/-", "value": own}]
    assert bodies["none"][1:] == [{"op": "add", "path": "/spec/tolerations", "value": [own]}]


def test_an_eviction_names_the_very_pod_and_one_that_is_gone_is_no_failure(api: FakeApi, writes: Writes) -> None:
    """A budget's refusal stays with its pod."""

    def answer(asked: Asked) -> Answer:
        assert asked.method == "POST"
        name = asked.path.split("/")[-2]
        cause = {"reason": "DisruptionBudget", "message": "The disruption budget web needs 1 healthy pods"}
        told = {"message": "Cannot evict pod", "details": {"causes": [cause]} if name == "kept" else {}}
        return Answer(told, status={"gone": 404, "kept": 429, "busy": 429}.get(name, 201))

    api.answer = answer
    came = writes.evict([a_pod("gone"), a_pod("kept"), a_pod("busy"), a_pod("free")])
    assert came["team/gone"] is None
    assert came["team/free"] is None
    kept = came["team/kept"]
    assert isinstance(kept, Refused)
    assert (kept.status, str(kept)) == (429, "The disruption budget web needs 1 healthy pods")
    assert isinstance(came["team/busy"], Unavailable)
    bodies = {asked.path: asked.body for asked in api.asked if asked.method == "POST"}
    assert bodies["/api/v1/namespaces/team/pods/free/eviction"] == {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "free", "namespace": "team"},
        "deleteOptions": {"preconditions": {"uid": "uid-team-free"}},
    }
    writes.evict([a_pod("free")], dry_run=True)
    assert api.asked[-1].body["deleteOptions"] == {"preconditions": {"uid": "uid-team-free"}, "dryRun": ["All"]}


@pytest.mark.parametrize(("parallelism", "completions"), [(4, 3), (3, 4), (5, 5)])
def test_a_job_of_another_size_by_now_is_left_as_it_is(
    api: FakeApi, writes: Writes, parallelism: int, completions: int
) -> None:
    """Someone else has changed it, or is about to; of the size that was seen it is changed as it was seen."""
    meta = {"namespace": "ns", "name": "j", "uid": "u", "resourceVersion": "7"}
    job = {"metadata": meta, "spec": {"parallelism": parallelism, "completions": completions}}
    api.answer = lambda _asked: Answer(job)
    at = datetime(2026, 11, 21, 10, tzinfo=UTC)
    with pytest.raises(Refused, match=f"job ns/j has {parallelism} tasks by now, not 3") as refused:
        writes.resize_job("ns", "j", was=3, to=6, at=at)
    assert refused.value.status == 409
    assert [asked.method for asked in api.asked] == ["GET"]
    api.answer = lambda _asked: Answer(job | {"spec": {"parallelism": 3, "completions": 3}})
    writes.resize_job("ns", "j", was=3, to=6, at=at)
    assert (api.asked[-1].method, api.asked[-1].path) == ("PATCH", "/apis/batch/v1/namespaces/ns/jobs/j")
    assert api.asked[-1].body == {
        "metadata": {"uid": "u", "resourceVersion": "7", "annotations": {words.RESIZED_AT: "2026-11-21T10:00:00Z"}},
        "spec": {"parallelism": 6, "completions": 6},
    }


def test_a_request_for_room_is_answered_once(api: FakeApi, writes: Writes) -> None:
    """What others have said of it stays; it is accepted with the first answer, and the second is no write."""
    at = datetime(2026, 11, 21, 10, tzinfo=UTC)
    meta = {"name": "ask", "uid": "u", "resourceVersion": "7"}
    other = {"type": "Checked", "status": "True", "lastTransitionTime": "2026-11-21T09:00:00Z"}
    api.answer = lambda _asked: Answer({"metadata": meta, "status": {"conditions": [other]}})
    writes.set_condition("ns", "ask", "Provisioned", status=False, because="no room", at=at)
    path = "/apis/autoscaling.x-k8s.io/v1/namespaces/ns/provisioningrequests/ask"
    assert [(asked.method, asked.path) for asked in api.asked] == [("GET", path), ("PATCH", f"{path}/status")]
    told = api.asked[-1].body
    assert told["metadata"] == {"uid": "u", "resourceVersion": "7"}
    since = {"lastTransitionTime": "2026-11-21T10:00:00Z"}
    assert told["status"]["conditions"] == [
        other,
        {"type": "Accepted", "status": "True", "reason": "Accepted", "message": "by spillway-autoscaler"} | since,
        {"type": "Provisioned", "status": "False", "reason": "CapacityIsNotFound", "message": "no room"} | since,
    ]
    api.answer = lambda _asked: Answer({"metadata": meta, "status": told["status"]})
    writes.set_condition("ns", "ask", "Provisioned", status=False, because="still none", at=at)
    assert api.asked[-1].method == "GET"
    writes.set_condition("ns", "ask", "Provisioned", status=True, because="room", at=at)
    changed = api.asked[-1].body["status"]["conditions"]
    assert [(one["type"], one["status"]) for one in changed] == [
        ("Checked", "True"),
        ("Accepted", "True"),
        ("Provisioned", "True"),
    ]
    assert (changed[2]["reason"], changed[2]["message"]) == ("Provisioned", "room")


def test_a_step_is_begun_or_stopped_only_while_it_is_suspended(api: FakeApi, writes: Writes) -> None:
    """As it was seen just before. What is stopped fails without a pod."""
    meta = {"namespace": "ns", "name": "j", "uid": "u", "resourceVersion": "7"}
    api.answer = lambda _asked: Answer({"metadata": meta, "spec": {"suspend": True}})
    seen = {"uid": "u", "resourceVersion": "7"}
    writes.begin_step("ns", "j", at=datetime(2026, 11, 21, 10, tzinfo=UTC))
    assert (api.asked[-1].method, api.asked[-1].path) == ("PATCH", "/apis/batch/v1/namespaces/ns/jobs/j")
    assert api.asked[-1].body == {
        "metadata": seen | {"annotations": {words.STEP_BEGAN: "2026-11-21T10:00:00Z"}},
        "spec": {"suspend": False},
    }
    writes.stop_step("ns", "j", because="prepare has failed")
    assert api.asked[-1].body == {
        "metadata": seen | {"annotations": {words.STEP_STOPPED: "prepare has failed"}},
        "spec": {"suspend": False, "parallelism": 0, "activeDeadlineSeconds": 0},
    }
    api.asked.clear()
    api.answer = lambda _asked: Answer({"metadata": meta, "spec": {}})
    with pytest.raises(Refused, match="job ns/j is not suspended any more"):
        writes.begin_step("ns", "j", at=datetime(2026, 11, 21, 10, tzinfo=UTC))
    with pytest.raises(Refused, match="job ns/j is not suspended any more"):
        writes.stop_step("ns", "j", because="prepare has failed")
    assert {asked.method for asked in api.asked} == {"GET"}


def test_a_job_that_ends_with_none_is_left_as_it_is(api: FakeApi, writes: Writes) -> None:
    """The conflict is one of states, like a version that has moved."""
    api.answer = lambda _asked: Answer({"metadata": {"name": "ps", "uid": "u"}})
    with pytest.raises(Refused, match=r"\(none named\) that ns/ps ends with goes on") as refused:
        writes.end_job("ns", "ps")
    assert refused.value.status == 409
    assert [asked.method for asked in api.asked] == ["GET"]


@pytest.mark.parametrize(("is_warning", "kind"), [(True, "Warning"), (False, "Normal")])
def test_a_configmap_is_told_of_what_went_wrong_with_it(
    api: FakeApi, writes: Writes, kind: str, *, is_warning: bool
) -> None:
    """As an Event about it."""
    api.answer = lambda _asked: Answer({})
    assert writes.tell_configmap(namespace="ns", name="c", reason="R", message="m", is_warning=is_warning)
    body = api.asked[-1].body
    assert (body["type"], body["reason"]) == (kind, "R")
    about = body.get("regarding") or body["involvedObject"]
    assert (about["kind"], about["name"], about["namespace"]) == ("ConfigMap", "c", "ns")
