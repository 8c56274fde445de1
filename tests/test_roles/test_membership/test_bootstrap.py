"""The controller's part of a join, at an API server that says what a real one says only for a moment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autoscaler.kube.client import Kube, Refused
from autoscaler.model.errors import Unavailable
from roles.membership import bootstrap
from roles.membership.csr_policy import SERVING
from tests.test_autoscaler.fake_api import Answer, Asked, FakeApi, fake_api

NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
REQUEST: dict[str, Any] = {
    "metadata": {"name": "csr-1", "uid": "old"},
    "spec": {"signerName": SERVING, "username": "system:node:dgx-01"},
    "status": {"certificate": "x", "conditions": [{"type": "Approved"}]},
}


@pytest.fixture
def api() -> Iterator[FakeApi]:
    """A server of scripted answers."""
    with fake_api() as made:
        yield made


def node(*taints: dict[str, str]) -> dict[str, Any]:
    """A node that its kubelet calls Ready."""
    return {
        "metadata": {"name": "dgx-01", "uid": "u", "resourceVersion": "7"},
        "spec": {"taints": list(taints)},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }


def test_a_node_is_a_member_once_pods_may_go_there(api: FakeApi, tmp_path: Path) -> None:
    """Its condition says Ready some moments before the controller manager takes the taint away."""
    seen = iter([node(NOT_READY), node(NOT_READY), node()])

    def answer(asked: Asked) -> Answer:
        if asked.path.startswith("/api/v1/nodes/"):
            return Answer(next(seen))
        return Answer({"items": [REQUEST] if "certificatesigningrequests" in asked.path else []})

    api.answer = answer
    kube = Kube.connect(api.kubeconfig(tmp_path))
    bootstrap.admit(kube, "dgx-01", "10.20.0.11", has_served=True, sleep=lambda _seconds: None)
    assert next(seen, None) is None


def test_a_certificate_of_the_machine_before_does_not_count(api: FakeApi, tmp_path: Path) -> None:
    """It was installed anew within the hour in which the API server keeps granted requests."""
    asked_for = iter([1, 1, 1, 1, 1])
    new = {**REQUEST, "metadata": {**REQUEST["metadata"], "uid": "new"}}

    def answer(asked: Asked) -> Answer:
        if asked.path.startswith("/api/v1/nodes/"):
            return Answer(node())
        if "certificatesigningrequests" in asked.path:
            return Answer({"items": [REQUEST] if next(asked_for, None) else [REQUEST, new]})
        return Answer({"items": []})

    api.answer = answer
    bootstrap.admit(Kube.connect(api.kubeconfig(tmp_path)), "dgx-01", "10.20.0.11", sleep=lambda _seconds: None)
    assert next(asked_for, None) is None


def test_what_is_missing_at_the_end_is_said(api: FakeApi, tmp_path: Path) -> None:
    """The taint that stays has another cause than a kubelet that is silent."""
    api.answer = lambda asked: Answer(node(NOT_READY) if "/nodes/" in asked.path else {"items": []})
    with pytest.raises(Unavailable, match="not-ready taint"):
        bootstrap.admit(Kube.connect(api.kubeconfig(tmp_path)), "dgx-01", "10.20.0.11", patience=0.2)


def test_marks_are_made_to_what_the_node_is_now(api: FakeApi, tmp_path: Path) -> None:
    """Its kubelet wrote it in between: read again, with what that added. Somebody who always does is told of."""
    patches: list[Asked] = []

    def answer(asked: Asked) -> Answer:
        if asked.method == "GET":
            return Answer(node(*([NOT_READY] if not patches else [])))
        patches.append(asked)
        return Answer({"message": "the object has been modified"}, status=409 if len(patches) < conflicts else 200)

    api.answer = answer
    kube, conflicts = Kube.connect(api.kubeconfig(tmp_path)), 3
    bootstrap.mark(kube, "dgx-01", labels={"a": "b"}, taints=[])
    assert [one.body["spec"]["taints"] for one in patches] == [[NOT_READY], [], []]
    assert patches[-1].body["metadata"]["resourceVersion"] == "7"
    conflicts = 99
    with pytest.raises(Refused):
        bootstrap.mark(kube, "dgx-01", labels={}, taints=[])
