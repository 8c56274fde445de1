"""A rolling change against a real API server: the controller dies at every write, and nobody is harmed."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from autoscaler.kube.client import Kube
from autoscaler.model import labels as words
from roles.rollout.model import Phase, Resident, Rules
from roles.rollout.node_state import NODES, OUTCOME, PHASE, Marks
from tests.live.conftest import Plane
from tests.test_roles.rolling import Killed, Killer, Machine, MemoryHosts, roll

pytestmark = pytest.mark.live

SIZE = 10
MAX_DOWN = 2
DEATHS = 100
MERGE = "application/merge-patch+json"


class DyingMarks(Marks):
    """The real door, whose process ends before or after a write; each write is followed by a look at the budget."""

    killer = Killer()
    evicted: list[str]
    worst = 0

    def __init__(self, kube: Kube) -> None:
        super().__init__(kube)
        self.evicted = []

    def begin(self, name: str, phase: Phase, *, cordon: bool) -> None:
        """As it is, or death."""
        self._die_around(lambda: Marks.begin(self, name, phase, cordon=cordon))

    def mark(self, name: str, phase: Phase, outcome: str = "") -> None:
        """As it is, or death."""
        self._die_around(lambda: Marks.mark(self, name, phase, outcome))

    def finish(self, name: str, outcome: str | None = None) -> None:
        """As it is, or death."""
        self._die_around(lambda: Marks.finish(self, name, outcome))

    def evict(self, pod: Resident) -> str:
        """As it is, or death."""

        def leave() -> str:
            self.evicted.append(pod.key)
            return Marks.evict(self, pod)

        return str(self.killer.around(leave))

    def _die_around(self, effect: Any) -> None:
        def checked() -> None:
            effect()
            down = [node for node in self.look().values() if node.is_cordoned or not node.is_ready]
            self.worst = max(self.worst, len(down))
            assert len(down) <= MAX_DOWN, f"{[node.name for node in down]} are down"

        self.killer.around(checked)


def pod(name: str, node: str, **metadata: Any) -> dict[str, Any]:
    """A pod that holds a GPU of a node."""
    container = {"name": "main", "image": "none", "resources": {"limits": {words.GPU: "1"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", **metadata},
        "spec": {"nodeName": node, "containers": [container], "terminationGracePeriodSeconds": 0},
    }


def furnish(plane: Plane) -> None:
    """Racks of five: most nodes empty, one with a notebook, one with a running gang, one that an admin has closed."""
    for number in range(SIZE):
        plane.fake_node(f"n{number:02}", gpu="8")
        labels = {"metadata": {"labels": {words.RACK: f"r{number // 5}"}}}
        plane.kube.send("PATCH", f"/api/v1/nodes/n{number:02}", labels, content=MERGE)
    plane.kube.send("PATCH", "/api/v1/nodes/n09", {"spec": {"unschedulable": True}}, content=MERGE)
    pods = "/api/v1/namespaces/default/pods"
    plane.kube.send("POST", pods, pod("notebook", "n03"))
    plane.kube.send("POST", pods, pod("worker-0", "n04", labels={words.GANG: "train"}))
    plane.kube.send("POST", pods, pod("kept", "n06", annotations={words.DO_NOT_DISRUPT: "true"}))


def wait_until_ready(kube: Kube, marks: Marks) -> None:
    """KWOK has brought up nodes and pods."""
    for _ in range(300):
        seen = marks.look()
        pods = json.loads(kube.get("/api/v1/namespaces/default/pods"))["items"]
        if all(node.is_ready for node in seen.values()) and all(one["status"]["phase"] == "Running" for one in pods):
            return
        time.sleep(0.1)
    raise AssertionError("the nodes did not become ready")


def test_a_controller_that_dies_at_every_write_harms_nobody(plane: Plane, tmp_path: Path) -> None:
    """A hundred deaths, each right before or right after the first, second, third or fourth write of its life."""
    furnish(plane)
    kube = Kube.connect(plane.kubeconfig)
    marks = DyingMarks(kube)
    wait_until_ready(kube, marks)
    machines = {f"n{number:02}": Machine() for number in range(SIZE)}
    domains = dict.fromkeys(machines, "")
    rules = Rules(batch=2, max_down=MAX_DOWN)
    deaths = version = 0
    while deaths < DEATHS:
        version += 1
        rolled = None
        while rolled is None:
            marks.killer = Killer(at=1 + deaths // 2 % 4, before=deaths % 2 == 1)
            try:
                rolled = roll(MemoryHosts(machines, marks.killer, f"v{version}"), marks, tmp_path, rules, domains)
            except Killed:
                deaths += 1
                assert deaths < 4 * DEATHS, "it does not get on"
    left = [name for name, machine in machines.items() if machine.installed != f"v{version}" or machine.owed]
    assert left == ["n04", "n06"]
    assert "is part of the running gang train" in rolled.held["n04"]
    assert "is not to be disrupted" in rolled.held["n06"]
    assert set(marks.evicted) == {"default/notebook"}
    assert marks.worst <= MAX_DOWN
    nodes = json.loads(kube.get("/api/v1/nodes"))["items"]
    assert [one["metadata"]["name"] for one in nodes if one["spec"].get("unschedulable")] == ["n09"]
    assert not any({PHASE, OUTCOME, words.CORDONED_BY} & one["metadata"]["annotations"].keys() for one in nodes)


def test_a_disruption_budget_is_waited_for(plane: Plane, tmp_path: Path) -> None:
    """The eviction API says no: the node is opened again after a while, and the pod has never left."""
    plane.fake_node("n00", gpu="8")
    body = pod("serving", "n00", labels={"app": "serving"})
    plane.kube.send("POST", "/api/v1/namespaces/default/pods", body)
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "serving"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "serving"}}},
    }
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    plane.kube.send("POST", budgets, budget)
    try:
        kube = Kube.connect(plane.kubeconfig)
        marks = Marks(kube)
        wait_until_ready(kube, marks)
        machines = {"n00": Machine()}
        rolled = roll(MemoryHosts(machines, Killer()), marks, tmp_path, Rules(), {"n00": ""})
        assert machines["n00"].installed == "old"
        assert rolled.held == {"n00": "it could not be emptied in 10 s"}
        node = json.loads(kube.get("/api/v1/nodes/n00"))
        assert not node["spec"].get("unschedulable")
        assert json.loads(kube.get("/api/v1/namespaces/default/pods/serving"))["status"]["phase"] == "Running"
    finally:
        plane.kube.send("DELETE", f"{budgets}/serving")


def test_the_cordon_of_a_run_has_its_name(plane: Plane) -> None:
    """So that an autoscaler, and an admin, know whose it is; a cordon of others is neither renamed nor lifted."""
    for name in ("n00", "n01"):
        plane.fake_node(name)
    plane.kube.send("PATCH", "/api/v1/nodes/n01", {"spec": {"unschedulable": True}}, content=MERGE)
    kube = Kube.connect(plane.kubeconfig)
    marks = Marks(kube)
    for name in ("n00", "n01"):
        marks.begin(name, Phase.DRAINING, cordon=True)
    by = {
        name: json.loads(kube.get(f"/api/v1/nodes/{name}"))["metadata"]["annotations"].get(words.CORDONED_BY)
        for name in ("n00", "n01")
    }
    assert by == {"n00": NODES, "n01": None}
    for name in ("n00", "n01"):
        marks.finish(name)
    assert {name: seen.is_cordoned for name, seen in marks.look().items()} == {"n00": False, "n01": True}
