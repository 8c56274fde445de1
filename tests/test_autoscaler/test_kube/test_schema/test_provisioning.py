"""ProvisioningRequests as the API server has them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from autoscaler.kube.schema.convert import pod_from
from autoscaler.kube.schema.core import PodJson
from autoscaler.kube.schema.provisioning import PodTemplateJson, RequestJson, request_from, template_from
from autoscaler.model.cluster import PodSet
from tests.builders import NOW, later

BUY = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"


def request(*conditions: dict[str, Any], kind: str = BUY) -> Any:
    """What becomes of one for three pods."""
    raw = {
        "metadata": {"name": "ask", "namespace": "team", "uid": "u", "creationTimestamp": NOW.isoformat()},
        "spec": {"provisioningClassName": kind, "podSets": [{"podTemplateRef": {"name": "worker"}, "count": 3}]},
        "status": {"conditions": list(conditions)},
    }
    return request_from(msgspec.convert(raw, RequestJson, strict=False))


def condition(kind: str, status: str = "True") -> dict[str, Any]:
    """Since a minute after it was made."""
    return {"type": kind, "status": status, "lastTransitionTime": later(minutes=1).isoformat()}


def test_a_request_asks_for_the_pods_of_its_templates() -> None:
    """With nodes to be bought, or without, by its class; another's is another's."""
    found = request()
    assert (found.uid, found.created, found.pod_sets) == ("u", NOW, (PodSet(None, 3, "worker"),))
    assert (found.namespace, found.name) == ("team", "ask")
    assert (found.may_buy, found.provisioned, found.refused) == (True, None, False)
    assert not request(kind="check-capacity.autoscaling.x-k8s.io").may_buy
    assert request(kind="queued-provisioning.gke.io") is None


@pytest.mark.parametrize(
    ("conditions", "is_provisioned", "is_refused"),
    [
        ([condition("Accepted")], False, False),
        ([condition("Accepted"), condition("Provisioned", "False")], False, True),
        ([condition("Accepted"), condition("Provisioned"), condition("BookingExpired", "False")], True, False),
    ],
)
def test_what_it_was_told_is_read(conditions: list[dict[str, Any]], *, is_provisioned: bool, is_refused: bool) -> None:
    """The room is kept from then on."""
    found = request(*conditions)
    assert found.provisioned == (later(minutes=1) if is_provisioned else None)
    assert found.refused == is_refused


@pytest.mark.parametrize("kind", ["Failed", "BookingExpired", "CapacityRevoked"])
def test_what_is_over_asks_for_nothing(kind: str) -> None:
    """Whatever it was told before."""
    assert request(condition("Provisioned"), condition(kind)) is None


def test_a_template_is_a_pod_by_the_template_s_name() -> None:
    """In the template's namespace, with the labels of its pods."""
    raw = {
        "metadata": {"name": "worker", "namespace": "team"},
        "template": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"resources": {"requests": {"nvidia.com/gpu": 2}}}]},
        },
    }
    found = template_from(msgspec.convert(raw, PodTemplateJson))
    assert (found.key, found.labels, found.requests["nvidia.com/gpu"]) == ("team/worker", {"a": "b"}, 2)


@pytest.mark.parametrize("domain", ["autoscaling.x-k8s.io", "cluster-autoscaler.kubernetes.io"])
def test_a_pod_says_whose_room_it_takes(domain: str) -> None:
    """By the annotation that Kueue gives it."""
    raw = {"metadata": {"name": "p", "annotations": {f"{domain}/consume-provisioning-request": "ask"}}}
    assert pod_from(msgspec.convert(raw, PodJson)).consumes == "ask"
