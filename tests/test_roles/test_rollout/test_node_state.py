"""The rollout's door to the API server: what it reads of nodes and pods, what it writes, and what it never touches."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from autoscaler.kube.client import Refused
from autoscaler.model import labels as words
from autoscaler.model.errors import Unavailable
from roles.rollout.model import Outcome, Phase, Resident
from roles.rollout.node_state import NODES, OUTCOME, PHASE, Marks, Seen
from tests.api import _merged


class Server:
    """Thin: nodes and pods as JSON, a merge patch that must name uid and version, and answers that a test sets."""

    def __init__(self) -> None:
        self.nodes: dict[str, dict[str, Any]] = {}
        self.pods: list[dict[str, Any]] = []
        self.sent: list[tuple[str, str, Any]] = []
        self.fails: Exception | None = None

    def node(self, name: str = "a", *, closed: bool = False, **annotations: str) -> None:
        """One that is ready, in a rack."""
        self.nodes[name] = {
            "metadata": {
                "name": name,
                "uid": f"uid-{name}",
                "resourceVersion": "1",
                "labels": {words.RACK: "r1"},
                "annotations": {key.replace("__", "/").replace("_", "-"): said for key, said in annotations.items()},
            },
            "spec": {"unschedulable": True} if closed else {},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }

    def pod(self, name: str, *, owner: str = "ReplicaSet", phase: str = "Running", **changes: Any) -> None:
        """One on node `a`, of a controller."""
        meta = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
        meta["ownerReferences"] = [{"kind": owner, "name": "x", "controller": True}]  # type: ignore[assignment]
        containers = changes.pop("containers", [{"resources": {}}])
        self.pods.append(
            {
                "metadata": meta | changes,
                "spec": {"nodeName": "a", "containers": containers},
                "status": {"phase": phase},
            }
        )

    def marks(self) -> Marks:
        """The door to it."""
        return Marks(self)  # type: ignore[arg-type]

    def pages(self, path: str) -> Iterator[tuple[tuple[msgspec.Raw, ...], str]]:
        """All of a kind."""
        found = self.pods if path.endswith("pods") else [*self.nodes.values()]
        yield tuple(msgspec.Raw(json.dumps(one).encode()) for one in found), "1"

    def get(self, path: str) -> bytes:
        """One object."""
        if self.fails:
            raise self.fails
        name = path.rpartition("/")[2]
        found = self.nodes.get(name) or next((one for one in self.pods if one["metadata"]["name"] == name), None)
        if found is None:
            raise Refused(404, f'"{name}" not found')
        return json.dumps(found).encode()

    def send(self, method: str, path: str, body: Any = None, *, content: str = "") -> bytes:
        """One write."""
        self.sent.append((method, path, body))
        if self.fails:
            raise self.fails
        if method == "PATCH":
            assert content == "application/merge-patch+json"
            name = path.rpartition("/")[2]
            now = self.nodes[name]["metadata"]
            assert all(body["metadata"][key] == now[key] for key in ("uid", "resourceVersion"))
            self.nodes[name] = _merged(self.nodes[name], body, strategic=False)
        return b"{}"


@pytest.fixture
def server() -> Server:
    """With one open node."""
    made = Server()
    made.node()
    return made


def seen(server: Server) -> Seen:
    """What is read of node `a`."""
    return server.marks().look()["a"]


def test_a_node_is_read_with_its_rack_its_marks_and_its_cordon(server: Server) -> None:
    """Whose cordon it is, its annotation says; what a newer release wrote is no phase of ours."""
    assert seen(server) == Seen(name="a", rack="r1", is_ready=True)
    marks = {PHASE: "applying", OUTCOME: "failed:plan-1", words.CORDONED_BY: NODES}
    server.node(closed=True, **marks)
    assert seen(server) == Seen(
        name="a",
        rack="r1",
        is_ready=True,
        is_cordoned=True,
        is_ours=True,  # type: ignore[arg-type]
        phase=Phase("applying"),
        outcome=Outcome.FAILED,
        outcome_of="plan-1",  # type: ignore[arg-type]
    )
    server.node(closed=True, **{PHASE: "levitating", OUTCOME: "sublime:plan-2", words.CORDONED_BY: "ada"})
    assert (seen(server).phase, seen(server).outcome, seen(server).is_ours) == (Phase.IDLE, Outcome.NONE, False)


def test_pods_that_must_leave_before_a_node_is_changed_are_counted_and_no_others(server: Server) -> None:
    """Not what has ended, nor daemons, nor what the kubelet itself started."""
    server.pod("job")
    server.pod("daemon", owner="DaemonSet")
    server.pod("static", owner="Node")
    server.pod("mirror", annotations={"kubernetes.io/config.mirror": "x"})
    server.pod("done", phase="Succeeded")
    server.pod("broken", phase="Failed")
    assert seen(server).residents == (Resident(key="default/job", uid="uid-job", holds_gpu=False, stays=""),)


@pytest.mark.parametrize(
    ("containers", "holds"),
    [
        ([{"resources": {"limits": {"nvidia.com/gpu": "1"}}}], True),
        ([{"resources": {}}, {"resources": {"requests": {"nvidia.com/gpu": "1"}}}], True),
        ([{"resources": {"limits": {"nvidia.com/mig-1g.5gb": "1"}}}], True),
        ([{"resources": {"limits": {"cpu": "1"}}}], False),
    ],
)
def test_a_pod_holds_a_gpu_by_any_of_its_containers(server: Server, containers: list[Any], *, holds: bool) -> None:
    """Whole, or a part of one."""
    server.pod("job", containers=containers)
    assert [one.holds_gpu for one in seen(server).residents] == [holds]


def test_a_pod_that_is_not_to_be_disrupted_says_why_it_stays(server: Server) -> None:
    """By its own mark, or as one of a gang that runs: the rest of that would fail with it."""
    server.pod("marked", annotations={words.DO_NOT_DISRUPT: "true"})
    server.pod("unmarked", annotations={words.DO_NOT_DISRUPT: "false"})
    server.pod("kept", annotations={"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"})
    server.pod("gang", labels={words.GANG: "train"})
    server.pod("gang-pending", labels={words.GANG: "train"}, phase="Pending")
    assert [one.stays for one in seen(server).residents] == [
        f"is not to be disrupted ({words.DO_NOT_DISRUPT})",
        "",
        "is not to be disrupted (cluster-autoscaler.kubernetes.io/safe-to-evict)",
        "is part of the running gang train",
        "",
    ]


def test_a_change_closes_the_node_and_its_end_opens_it(server: Server) -> None:
    """Under our name; what an earlier plan left behind is forgotten."""
    server.node(**{OUTCOME: "failed:plan-1"})
    server.marks().begin("a", Phase.DRAINING, cordon=True)
    began = seen(server)
    assert (began.phase, began.is_cordoned, began.is_ours, began.outcome) == (
        Phase.DRAINING,
        True,
        True,
        Outcome.NONE,
    )
    server.marks().finish("a", "unsettled:plan-2")
    over = seen(server)
    assert (over.phase, over.is_cordoned, over.outcome, over.outcome_of) == (
        Phase.IDLE,
        False,
        Outcome.UNSETTLED,
        "plan-2",
    )
    assert words.CORDONED_AT not in server.nodes["a"]["metadata"]["annotations"]


def test_a_change_that_disrupts_nothing_closes_no_node(server: Server) -> None:
    """It is marked alone."""
    server.marks().begin("a", Phase.APPLYING, cordon=False)
    assert (seen(server).phase, seen(server).is_cordoned) == (Phase.APPLYING, False)


def test_a_cordon_of_somebody_else_is_neither_taken_over_nor_lifted(server: Server) -> None:
    """Not even where the change failed."""
    server.node(closed=True, **{words.CORDONED_BY: "ada"})
    server.marks().begin("a", Phase.DRAINING, cordon=True)
    server.marks().mark("a", Phase.FAILED, "failed:p")
    assert not seen(server).is_ours
    server.marks().finish("a")
    assert (seen(server).is_cordoned, seen(server).is_ours, seen(server).phase) == (True, False, Phase.IDLE)
    assert server.nodes["a"]["metadata"]["annotations"][words.CORDONED_BY] == "ada"


def test_a_node_that_failed_is_closed_and_says_of_which_plan(server: Server) -> None:
    """Also where its change had not closed it; a phase without an outcome keeps the one that there is."""
    server.marks().mark("a", Phase.VERIFYING)
    assert (seen(server).is_cordoned, seen(server).outcome) == (False, Outcome.NONE)
    server.marks().mark("a", Phase.FAILED, "failed:plan-1")
    assert (seen(server).is_cordoned, seen(server).is_ours, seen(server).outcome_of) == (True, True, "plan-1")
    server.marks().mark("a", Phase.VERIFYING)
    assert seen(server).outcome_of == "plan-1"


def test_an_operators_retry_looks_at_what_failed_and_touches_no_other(server: Server) -> None:
    """What failed is verified first, under its cordon; what did not settle is planned again; a name may be no node."""
    server.marks().mark("a", Phase.FAILED, "failed:plan-1")
    server.node("b", **{OUTCOME: "unsettled:plan-1"})
    server.node("c", **{PHASE: "applying"})
    server.node("d", **{PHASE: "draining", OUTCOME: "unsettled:plan-1"})
    server.sent.clear()
    server.marks().forget_outcomes(["a", "b", "c", "d", "no-such-node"])
    found = server.marks().look()
    assert [(found[name].phase, found[name].outcome) for name in "abcd"] == [
        (Phase.VERIFYING, Outcome.NONE),
        (Phase.IDLE, Outcome.NONE),
        (Phase.APPLYING, Outcome.NONE),
        (Phase.DRAINING, Outcome.NONE),
    ]
    assert found["a"].is_cordoned
    assert [path.rpartition("/")[2] for _, path, _ in server.sent] == ["a", "b", "d"]


@pytest.mark.parametrize(
    ("fails", "why"),
    [
        (None, ""),
        (Refused(404, "not found"), ""),
        (Refused(409, "another uid"), ""),
        (Refused(403, "no rights"), "default/p: no rights"),
        (Unavailable("429: disruption budget p"), "default/p: its disruption budget does not allow it now"),
    ],
)
def test_an_eviction_says_why_a_pod_may_not_leave(server: Server, fails: Exception | None, why: str) -> None:
    """Gone already is what was wanted; it names the pod that was seen, not its successor of that name."""
    server.fails = fails
    assert server.marks().evict(Resident(key="default/p", uid="u", holds_gpu=False)) == why
    method, path, body = server.sent[0]
    assert (method, path) == ("POST", "/api/v1/namespaces/default/pods/p/eviction")
    assert body["deleteOptions"]["preconditions"] == {"uid": "u"}


def test_an_api_server_that_is_busy_is_no_disruption_budget(server: Server) -> None:
    """Both are told by 429."""
    server.fails = Unavailable("429: too many requests")
    with pytest.raises(Unavailable):
        server.marks().evict(Resident(key="default/p", uid="u", holds_gpu=False))


def test_a_smoke_pod_is_made_watched_and_removed(server: Server) -> None:
    """One that is there already is as good, and one that is gone is gone; other refusals are told."""
    marks, pod = server.marks(), {"metadata": {"name": "smoke", "namespace": "default"}}
    assert marks.pod_phase("default", "smoke") == ""
    server.pod("smoke", phase="Pending")
    assert marks.pod_phase("default", "smoke") == "Pending"
    server.fails = Refused(409, "already exists")
    marks.run_pod(pod)
    server.fails = Refused(404, "not found")
    marks.remove_pod("default", "smoke")
    assert [(method, path) for method, path, _ in server.sent] == [
        ("POST", "/api/v1/namespaces/default/pods"),
        ("DELETE", "/api/v1/namespaces/default/pods/smoke?gracePeriodSeconds=0"),
    ]
    server.fails = Refused(403, "no rights")
    for call in (
        lambda: marks.run_pod(pod),
        lambda: marks.remove_pod("default", "smoke"),
        lambda: marks.pod_phase("default", "smoke"),
    ):
        with pytest.raises(Refused):
            call()
