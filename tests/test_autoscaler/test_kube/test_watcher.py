"""The store and what fills it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from autoscaler.kube.cache import Store
from autoscaler.kube.client import Kube
from autoscaler.kube.retry_delay import RetryDelay
from autoscaler.kube.schema.core import PodJson
from autoscaler.kube.schema.jobs import Job
from autoscaler.kube.watched_kinds import (
    CLAIMS,
    DAEMON_SETS,
    JOBS,
    KINDS,
    LATE,
    NAMESPACES,
    NODES,
    POD_TEMPLATES,
    PODS,
    REQUESTS,
    SIZED,
    STORAGE,
)
from autoscaler.kube.watcher import Observer
from autoscaler.model import labels as words
from autoscaler.model.cluster import GangSize, Notice
from autoscaler.model.errors import Unavailable
from autoscaler.model.jobs import LingeringJob
from tests.builders import NOW, a_group, a_pod, an_on_prem_node, later
from tests.test_autoscaler.fake_api import Answer, Asked, FakeApi, fake_api

((COSCHEDULING,),) = SIZED["scheduling.x-k8s.io"]


def until(holds: Callable[[], object]) -> None:
    """Wait for another thread, but not for ever."""
    end = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_change_wakes_those_that_wait() -> None:
    """And what is the same as before does not: a node's heartbeat is no news."""
    store = Store()
    node = an_on_prem_node()
    store.put(NODES, ("", "n"), 1, node)
    seen = store.wait(0, seconds=0)
    assert seen == 1
    store.put(NODES, ("", "n"), 2, node)
    assert store.wait(seen, seconds=0.01) == seen
    threading.Timer(0.05, store.put, (NODES, ("", "n"), 3, replace(node, ready=False))).start()
    assert store.wait(seen, seconds=10) == seen + 1


def test_a_jobs_pods_are_waited_for_but_not_what_happens_to_them() -> None:
    """Ten pods in a row settle as one; a scheduler that is busy with a thousand others delays nothing."""
    store = Store()

    def come() -> None:
        for number in range(10):
            store.put(PODS, ("team", f"p{number}"), 1, a_pod(f"p{number}"))
            time.sleep(0.02)

    threading.Thread(target=come).start()
    store.settle(quiet=1.0, at_most=30.0)
    assert len(store.cluster(NOW).pods) == 10

    ended = threading.Event()

    def stir() -> None:
        version = 2
        while not ended.wait(0.005):
            store.put(PODS, ("team", "p0"), version, a_pod("p0", unschedulable_because=str(version)))
            version += 1

    stirring = threading.Thread(target=stir)
    stirring.start()
    began = time.monotonic()
    store.settle(quiet=0.05, at_most=60.0)
    waited = time.monotonic() - began
    ended.set()
    stirring.join()
    assert waited < 30


def test_an_older_version_does_not_undo_a_newer_one() -> None:
    """Our own write comes back before the watch tells of what was before it."""
    store = Store()
    store.put(NODES, ("", "n"), 9, an_on_prem_node(cordoned=True))
    store.put(NODES, ("", "n"), 8, an_on_prem_node())
    assert store.cluster(NOW).nodes[0].cordoned
    store.replace(NODES, {("", "n"): (7, an_on_prem_node())})
    assert store.cluster(NOW).nodes[0].cordoned


def test_a_list_takes_the_place_of_everything_before() -> None:
    """What it does not name is gone."""
    store = Store()
    store.put(PODS, ("team", "old"), 1, a_pod("old"))
    store.replace(PODS, {("team", "new"): (2, a_pod("new"))})
    assert [pod.name for pod in store.cluster(NOW).pods] == ["new"]


def test_it_is_synced_when_every_kind_was_listed() -> None:
    """A kind without objects was listed too."""
    store = Store()
    for kind in KINDS:
        assert not store.is_synced()
        store.replace(kind, {})
    assert store.is_synced()


def test_pod_groups_belong_to_half_a_cluster_where_they_are_served() -> None:
    """A gang whose size is not known yet would be mistaken for a small one."""
    store, kind = Store(), COSCHEDULING
    for one in KINDS:
        store.replace(one, {})
    store.expect(kind)
    assert not store.is_synced()
    store.expect(kind, served=False)
    assert store.is_synced()


def test_a_pod_that_is_gone_does_not_come_back_by_our_own_write() -> None:
    """The answer to a patch may arrive after the pod's end: a ghost would be bought for."""
    store = Store()
    raw = msgspec.convert({"metadata": {"namespace": "team", "name": "p", "resourceVersion": "5"}}, PodJson)
    store.saw_pod(raw)
    assert not store.cluster(NOW).pods


def test_what_was_asked_of_aws_before_our_write_does_not_undo_it() -> None:
    """A look at the groups that began before a purchase and ended after it would buy twice."""
    store = Store()
    asked_at = time.monotonic()
    store.saw_groups([a_group()], asked_at=asked_at)
    store.wrote_group(a_group(desired=2))
    store.saw_groups([a_group()], asked_at=asked_at)
    assert store.cluster(NOW).groups[0].desired == 2
    store.saw_groups([a_group(desired=3)], asked_at=time.monotonic())
    assert store.cluster(NOW).groups[0].desired == 3


@pytest.mark.parametrize(
    ("server", "worker", "lingers"),
    [
        ({}, {"ended": True}, True),
        ({}, {}, False),
        ({"ended": True}, {"ended": True}, False),
        ({"ends_with": ""}, {"ended": True}, False),
        ({"ends_with": "another"}, {"ended": True}, False),
    ],
)
def test_a_job_lingers_only_after_its_partner_has_ended(
    server: dict[str, Any],
    worker: dict[str, Any],
    lingers: bool,  # noqa: FBT001 - a table
) -> None:
    """However it ended: a server of failed workers would hold its node for ever. What has ended itself lingers not."""
    store = Store()
    ordinary: dict[str, Any] = {"namespace": "d", "ended": False}
    store.put(JOBS, ("d", "ps"), 1, Job(**ordinary | {"name": "ps", "ends_with": "w"} | server))
    store.put(JOBS, ("d", "w"), 1, Job(**ordinary | {"name": "w", "ends_with": ""} | worker))
    expected = (LingeringJob("d", "ps", "w"),) if lingers else ()
    assert store.cluster(NOW).lingering == expected


def test_a_pause_grows_and_is_never_the_same() -> None:
    """So that a hundred clients do not come back together."""
    pause = RetryDelay(least=1, most=4)
    seconds = [pause.longer() for _ in range(4)]
    for waited, most in zip(seconds, (1, 2, 4, 4), strict=True):
        assert most / 2 <= waited <= most
    pause.reset()
    assert pause.longer() <= 1


class Served:
    """A scripted API server's objects and its next watches, by path."""

    def __init__(self, api: FakeApi) -> None:
        self.items: dict[str, list[dict[str, Any]]] = {kind.path: [] for kind in KINDS}
        self.watches: dict[str, list[Answer]] = {}
        self.groups: list[str] = []
        self.ended = threading.Event()
        api.answer = self.answer

    def answer(self, asked: Asked) -> Answer:
        """Lists what is there; a watch that is not scripted stays silent."""
        if asked.path == "/apis":
            return Answer({"groups": [{"name": name} for name in self.groups]})
        if asked.path not in self.items:
            return Answer({"message": "the server could not find the requested resource"}, 404)
        if "watch" not in asked.query:
            return Answer({"metadata": {"resourceVersion": "10"}, "items": self.items[asked.path]})
        scripted = self.watches.get(asked.path)
        return scripted.pop(0) if scripted else Answer(stream=(), held=self.ended)


@pytest.fixture
def api() -> Iterator[FakeApi]:
    """A scripted server."""
    with fake_api() as server:
        server.answer = lambda _asked: Answer({})
        yield server


@pytest.fixture
def served(api: FakeApi) -> Iterator[Served]:
    """What it serves; watches end with the test."""
    made = Served(api)
    yield made
    made.ended.set()


@pytest.fixture
def kube(api: FakeApi, served: Served, tmp_path: Path) -> Kube:
    """A connection to it."""
    served.items["/version"] = []
    return Kube.connect(api.kubeconfig(tmp_path))


def pod(name: str, version: int, **metadata: Any) -> dict[str, Any]:
    """A pod as the server tells it."""
    return {"metadata": {"name": name, "namespace": "d", "resourceVersion": str(version), **metadata}, "spec": {}}


def names(store: Store) -> list[str]:
    """Of the pods that the store knows."""
    return sorted(one.name for one in store.cluster(NOW).pods)


def test_a_watch_goes_on_from_the_list_and_resumes_where_it_was_cut(api: FakeApi, served: Served, kube: Kube) -> None:
    """A cut connection costs no new list: the next watch starts at the last version seen."""
    served.items[PODS.path] = [pod("a", 9)]
    served.watches[PODS.path] = [
        Answer(stream=({"type": "ADDED", "object": pod("b", 11)},), cut=True),
        Answer(stream=({"type": "DELETED", "object": pod("a", 12)},), held=served.ended),
    ]
    store = Store()
    told: list[tuple[str, str]] = []
    observer = Observer(kube, store, tell=lambda party, why: told.append((party, why)))
    observer.start()
    until(lambda: names(store) == ["b"])
    observer.stop()
    asked = [one.query for one in api.asked if one.path == PODS.path]
    assert [query.get("resourceVersion") for query in asked] == [None, "10", "11"]
    assert any("broke" in why for _, why in told)
    assert observer.relists == 0


def test_a_version_that_is_gone_means_a_new_list(api: FakeApi, served: Served, kube: Kube) -> None:
    """410: nobody knows what happened in between, so everything is asked again."""
    gone = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old resource version"}}
    served.items[PODS.path] = [pod("a", 9)]
    served.watches[PODS.path] = [Answer(stream=(gone,))]
    store = Store()
    observer = Observer(kube, store)
    observer.start()
    until(lambda: observer.relists == 1 and [one.path for one in api.asked].count(PODS.path) >= 4)
    observer.stop()
    assert names(store) == ["a"]
    kinds = ["watch" in one.query for one in api.asked if one.path == PODS.path]
    assert kinds[:4] == [False, True, False, True]


def test_one_object_that_makes_no_sense_is_told_and_left_out(served: Served, kube: Kube) -> None:
    """The others count."""
    bad = pod("bad", 9) | {"spec": {"containers": [{"resources": {"requests": {"cpu": "much"}}}]}}
    served.items[PODS.path] = [bad, pod("good", 9)]
    store = Store()
    told: list[tuple[str, str]] = []
    Observer(kube, store, tell=lambda party, why: told.append((party, why))).look_once()
    assert names(store) == ["good"]
    assert told == [("pods d/bad", "it is left out: cpu: 'much' is not a quantity such as 500m, 4, 16Gi")]


def test_sizes_of_gangs_count_once_they_are_served(served: Served, kube: Kube) -> None:
    """Half a cluster is known without them; they go when nobody serves them any more."""
    served.groups = ["scheduling.x-k8s.io"]
    served.items[COSCHEDULING.path] = [{"metadata": {"name": "pg", "namespace": "d"}, "spec": {"minMember": 5}}]
    store = Store()
    observer = Observer(kube, store)
    observer.start()
    until(store.is_synced)
    observer.stop()
    key = ("d", "scheduling.x-k8s.io/podgroups/pg")
    assert store.cluster(NOW).gang_sizes == {key: GangSize(minimum=5)}
    store.replace(COSCHEDULING, {})
    assert store.cluster(NOW).gang_sizes == {}


def test_the_newest_version_that_is_served_is_asked(served: Served, kube: Kube) -> None:
    """An API that grows up is followed where it is now."""
    (new, *_, old), _ = SIZED["scheduling.k8s.io"]
    served.groups = ["scheduling.k8s.io"]
    served.items[old.path] = [
        {"metadata": {"name": "pg", "namespace": "d"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}
    ]
    store = Store()
    Observer(kube, store).look_once()
    assert new.path != old.path
    assert store.cluster(NOW).gang_sizes == {("d", "scheduling.k8s.io/podgroups/pg"): GangSize(minimum=2)}


def test_requests_for_room_are_followed_with_their_templates_where_they_are_served(served: Served, kube: Kube) -> None:
    """A request whose template is not there yet lacks it; one that asks another autoscaler is none."""
    store = Store()

    def request(name: str, kind: str) -> dict[str, Any]:
        sets = [{"podTemplateRef": {"name": template}, "count": 2} for template in ("worker", "ps")]
        spec = {"provisioningClassName": f"{kind}.autoscaling.x-k8s.io", "podSets": sets}
        return {"metadata": {"name": name, "namespace": "d", "uid": "u"}, "spec": spec}

    served.items[REQUESTS.path] = [request("ask", "best-effort-atomic-scale-up"), request("other", "queued")]
    served.items[POD_TEMPLATES.path] = [{"metadata": {"name": "worker", "namespace": "d"}, "template": {}}]
    Observer(kube, store).look_once()
    assert not store.has_listed(POD_TEMPLATES), "no ProvisioningRequests are served"
    served.groups = ["autoscaling.x-k8s.io"]
    Observer(kube, store).look_once()
    (found,) = store.cluster(NOW).provisioning_requests
    assert (found.namespace, found.name, found.may_buy) == ("d", "ask", True)
    assert [(one.pod and one.pod.key, one.count) for one in found.pod_sets] == [("d/worker", 2), (None, 2)]


def test_an_indexed_job_says_the_size_of_its_gang(served: Served, kube: Kube) -> None:
    """Jobs are followed anyway."""
    spec = {"completionMode": "Indexed", "parallelism": 3, "completions": 3}
    served.items[JOBS.path] = [{"metadata": {"name": "j", "namespace": "d"}, "spec": spec}]
    store = Store()
    Observer(kube, store).look_once()
    assert store.cluster(NOW).gang_sizes == {("d", "batch/jobs/j"): GangSize(size=3)}


def test_looking_once_fills_every_kind(served: Served, kube: Kube) -> None:
    """Nothing is followed."""
    daemon = {"metadata": {"name": "x", "namespace": "kube-system"}}
    served.items[DAEMON_SETS.path] = [daemon]
    served.items[JOBS.path] = [{"metadata": {"name": "ps", "annotations": {words.ENDS_WITH: "w"}}}]
    store = Store()
    Observer(kube, store).look_once()
    assert store.is_synced()
    assert [one.name for one in store.cluster(NOW).daemon_sets] == ["x"]


def asking(name: str, version: int = 1) -> dict[str, Any]:
    """A pod with a volume claim that waits."""
    found = pod(name, version)
    found["spec"] = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}
    return found


def test_volumes_are_followed_from_when_the_first_pod_asks(api: FakeApi, served: Served, kube: Kube) -> None:
    """Before that nobody lists them, and after it nothing is decided until they are known."""
    for kind in LATE:
        served.items[kind.path] = []
    served.items[CLAIMS.path] = [{"metadata": {"name": "data", "namespace": "d"}}]
    go_on = threading.Event()
    change = {"type": "ADDED", "object": asking("asks", 11)}
    served.watches[PODS.path] = [Answer(stream=(), held=go_on), Answer(stream=(change,), held=served.ended)]
    store = Store()
    observer = Observer(kube, store)
    observer.start()
    until(store.is_synced)
    assert store.cluster(NOW).storage is None
    assert not {kind.path for kind in LATE} & {asked.path for asked in api.asked}
    go_on.set()
    until(lambda: store.cluster(NOW).storage)
    observer.stop()
    storage = store.cluster(NOW).storage
    assert storage is not None
    assert list(storage.claims) == [("d", "data")]
    assert NAMESPACES.path not in {asked.path for asked in api.asked}


def test_volumes_are_followed_too_where_it_is_asked_about_pods_that_are_not_there(served: Served, kube: Kube) -> None:
    """As before a job is submitted. What was not listed in time is not known, and the answer says so."""
    for kind in LATE:
        served.items[kind.path] = []
    served.items[CLAIMS.path] = [{"metadata": {"name": "data", "namespace": "d"}}]
    store, asks = Store(), a_pod(claims=("data",))
    with pytest.raises(Unavailable, match=r"does not know which csinodes, persistentvolumeclaims, .* may list them"):
        store.known_for([asks], seconds=0.01)
    store = Store()
    observer = Observer(kube, store)
    observer.start()
    until(store.is_synced)
    assert store.known_for([a_pod()], seconds=0) == (None, None)
    storage, namespaces = store.known_for([asks], seconds=10)
    observer.stop()
    assert storage is not None
    assert list(storage.claims) == [("d", "data")]
    assert namespaces is None


def test_volumes_that_may_not_be_seen_are_told_and_hold_up_no_other_pod(served: Served, kube: Kube) -> None:
    """With the rights of an older release: what else there is to decide goes on."""
    served.items[PODS.path] = [asking("asks")]
    told: list[tuple[str, str]] = []
    store = Store()
    observer = Observer(kube, store, tell=lambda party, why: told.append((party, why)))
    observer.start()
    until(lambda: {party for party, why in told if why} >= {f"API server ({kind.name})" for kind in STORAGE})
    until(store.is_synced)
    observer.stop()
    assert store.cluster(NOW).storage is None
    assert names(store) == ["asks"]


def test_looking_once_sees_what_pods_ask_about(served: Served, kube: Kube) -> None:
    """As following does."""
    served.items[PODS.path] = [asking("asks")]
    for kind in STORAGE:
        served.items[kind.path] = []
    store = Store()
    Observer(kube, store).look_once()
    assert store.cluster(NOW).storage is not None


def test_of_what_a_node_and_the_queue_have_heard_the_graver_counts() -> None:
    """Once for each instance; a node that hears no more, or is gone, says nothing."""
    store = Store()
    risk, end = Notice("i-1", "rebalance", NOW), Notice("i-1", "interruption", NOW, later(minutes=2))
    node = an_on_prem_node("gpu-a", provider_id="aws:///us-east-1a/i-1")

    def heard() -> tuple[Notice, ...]:
        return store.cluster(NOW).notices

    store.put(NODES, ("", node.name), 1, replace(node, notice=end))
    assert heard() == (end,)
    store.saw_notices([risk])
    assert heard() == (end,)
    store.put(NODES, ("", node.name), 2, replace(node, notice=risk))
    store.saw_notices([end])
    assert heard() == (end,)
    store.saw_notices([])
    assert heard() == (risk,)
    store.put(NODES, ("", node.name), 3, node)
    assert heard() == ()
    store.put(NODES, ("", node.name), 4, replace(node, notice=risk))
    store.drop(NODES, ("", node.name))
    assert heard() == ()
