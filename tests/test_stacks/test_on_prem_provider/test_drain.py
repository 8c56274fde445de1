"""How a machine is emptied: what is evicted, what stops it, and what is told; at an API server that a test moves on."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from autoscaler.model import labels as words
from autoscaler.model.errors import Unavailable
from stacks.on_prem_provider.drain import ROUND_SECONDS, Drain, abandon
from stacks.on_prem_provider.kube import RefusedError

JOB = [{"kind": "Job", "name": "j", "controller": True}]


class Cluster:
    """Thin: pods on one node, each eviction answered as the test says; time passes in pauses alone."""

    def __init__(self, *pods: dict[str, Any]) -> None:
        self.pods = list(pods)
        self.answers: Callable[[str], Exception | None] = lambda _name: None
        self.asked: list[tuple[str, Any]] = []
        self.now = 0.0

    def get(self, path: str, **query: str) -> dict[str, Any]:
        """The pods of the node."""
        assert (path, query) == ("/api/v1/pods", {"fieldSelector": "spec.nodeName=dgx-01"})
        return {"items": list(self.pods)}

    def send(self, method: str, path: str, body: Any) -> None:
        """An eviction."""
        name = path.split("/")[-2]
        self.asked.append((f"{method} {path}", body))
        refused = self.answers(name)
        if refused:
            raise refused
        self.pods = [one for one in self.pods if one["metadata"]["name"] != name]

    def delete(self, path: str, **options: Any) -> None:
        """A deletion."""
        self.asked.append((f"DELETE {path}", options))

    def pause(self, seconds: float) -> None:
        """Time passes."""
        self.now += seconds

    def drain(self, seconds: float = 10) -> None:
        """Of this node."""
        kube: Any = self
        Drain(kube, "dgx-01", timedelta(seconds=seconds), pause=self.pause, clock=lambda: self.now).run()


def pod(name: str, **meta: Any) -> dict[str, Any]:
    """One of a Job."""
    meta = {"name": name, "namespace": "ml", "uid": f"uid-{name}", "ownerReferences": JOB, **meta}
    return {"metadata": meta, "status": {"phase": "Running"}}


def test_pods_are_evicted_by_their_uid_until_none_is_left() -> None:
    """One whose budget does not allow it now is asked again; daemons and static pods stay."""
    daemon = pod("d", ownerReferences=[{"kind": "DaemonSet", "controller": True}])
    cluster = Cluster(pod("a"), pod("b"), daemon)
    cluster.answers = lambda name: RefusedError(429, "the budget") if name == "b" and cluster.now < 3 else None
    cluster.drain()
    assert [one["metadata"]["name"] for one in cluster.pods] == ["d"]
    path, body = cluster.asked[0]
    assert path == "POST /api/v1/namespaces/ml/pods/a/eviction"
    assert body["deleteOptions"] == {"preconditions": {"uid": "uid-a"}}
    assert cluster.now == pytest.approx(3 + ROUND_SECONDS)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (RefusedError(429, "web needs 1 healthy pod"), "ml/a: web needs 1 healthy pod"),
        (RefusedError(403, "no rights"), "ml/a: the API server refuses (403): no rights"),
        (RefusedError(404, "not found"), "ml/a: was evicted, and is still there"),
    ],
)
def test_a_node_that_does_not_become_empty_says_what_blocks(answer: Exception, told: str) -> None:
    """After its time, and not before; nothing is unregistered."""
    cluster = Cluster(pod("a"))
    cluster.answers = lambda _name: answer
    with pytest.raises(Unavailable, match="not empty after 10 s") as blocked:
        cluster.drain()
    assert told in str(blocked.value)
    assert "Nothing was unregistered" in str(blocked.value)
    assert cluster.now == pytest.approx(10)


def test_a_pod_that_ends_is_waited_for_and_not_asked_twice() -> None:
    """Its kubelet may be down: that is told with since when."""
    cluster = Cluster(pod("a", deletionTimestamp="2026-01-01T00:00:00Z"))
    with pytest.raises(Unavailable, match="ml/a: is ending since 2026-01-01T00:00:00Z"):
        cluster.drain()
    assert cluster.asked == []


def test_a_pod_that_nobody_may_evict_stops_it_at_once() -> None:
    """None of the others is evicted either: the machine stays what it is."""
    cluster = Cluster(pod("a"), pod("kept", annotations={words.DO_NOT_DISRUPT: "true"}))
    with pytest.raises(Unavailable, match="ml/kept: it asks not to be disrupted"):
        cluster.drain()
    assert (cluster.asked, cluster.now) == ([], 0.0)


@pytest.mark.parametrize(("pods", "more"), [(6, ""), (7, "and 1 more")])
def test_six_pods_are_named_and_the_others_counted(pods: int, more: str) -> None:
    """A node may have a hundred."""
    cluster = Cluster(*(pod(f"p{number}", ownerReferences=[]) for number in range(pods)))
    with pytest.raises(Unavailable) as blocked:
        cluster.drain()
    assert str(blocked.value).count("\n  - ml/p") == 6
    assert ("more" in str(blocked.value)) is bool(more)
    assert more in str(blocked.value)


def test_pods_of_a_machine_that_is_down_for_good_are_deleted_at_once() -> None:
    """Each as it was seen: a successor of that name is another one's."""
    cluster = Cluster(pod("a"), pod("b"))
    kube: Any = cluster
    abandon(kube, "dgx-01")
    assert cluster.asked == [
        (
            f"DELETE /api/v1/namespaces/ml/pods/{name}",
            {"gracePeriodSeconds": 0, "preconditions": {"uid": f"uid-{name}"}},
        )
        for name in "ab"
    ]
