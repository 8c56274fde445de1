"""The model: what a taint, a pod or a node says of itself."""

from __future__ import annotations

import pytest

from autoscaler.model.constraints import Taint
from tests.builders import a_pod, an_on_prem_node


def test_a_taint_reads_as_kubectl_writes_it() -> None:
    """With and without a value."""
    assert [str(Taint("a")), str(Taint("a", "b", "NoExecute"))] == ["a:NoSchedule", "a=b:NoExecute"]


@pytest.mark.parametrize(
    ("provider_id", "instance"),
    [
        ("aws:///us-east-1a/i-0abc", "i-0abc"),
        ("aws:///us-east-1a/fargate-1", None),
        ("gce://p/z/i-1", None),
        ("", None),
    ],
)
def test_only_ec2_s_nodes_have_an_instance(provider_id: str, instance: str | None) -> None:
    """Nodes of other providers, or of none, are no error."""
    assert an_on_prem_node(provider_id=provider_id).instance_id == instance


def test_a_pod_knows_its_key_and_when_it_holds_nothing() -> None:
    """``namespace/name``, as everywhere."""
    assert a_pod("x", namespace="n").key == "n/x"
    assert [a_pod(phase=phase).is_finished for phase in ("Pending", "Running", "Succeeded", "Failed")] == [
        False,
        False,
        True,
        True,
    ]
