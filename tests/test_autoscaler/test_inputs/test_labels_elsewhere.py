"""Pods that choose machines by labels of other clusters are planned on the types of a catalogue that have them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from autoscaler.cli.autoscale import autoscale
from tests.builders import a_policy, an_entry

CATALOG = """\
instance_type,arch,vcpu,memory_mib,allocatable_cpu_milli,allocatable_memory_mib,max_pods,gpu_count,usd_per_hour,gpu_model,gpu_memory_mib,capacity_type
m5.large,amd64,2,8192,1900,7000,29,0,0.096,,,on-demand
m5.large,amd64,2,8192,1900,7000,29,0,0.04,,,spot
m7g.large,arm64,2,8192,1900,7000,29,0,0.08,,,on-demand
u-6tb1.112xlarge,amd64,448,6291456,447000,6000000,737,0,54.6,,,on-demand
g5.12xlarge,amd64,48,196608,47800,190000,110,4,5.672,A10G,24576,on-demand
"""


def planned(tmp_path: Path, *line: str, **spec: Any) -> dict[str, Any]:
    """For one pod."""
    (tmp_path / "catalog.csv").write_text(CATALOG, encoding="utf-8")
    containers = [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {"containers": containers, **spec}}
    (tmp_path / "pods.yaml").write_text(yaml.safe_dump(pod), encoding="utf-8")
    asked = ["plan", "--pods", str(tmp_path / "pods.yaml"), "--catalog", str(tmp_path / "catalog.csv"), "--json", *line]
    found: dict[str, Any] = json.loads(CliRunner().invoke(autoscale, asked, catch_exceptions=False).output)
    return found


def by_policy(tmp_path: Path, *types: str) -> tuple[str, str]:
    """The option for a policy with an entry for each of these types."""
    entries = [an_entry(kind.partition(".")[0], instance_type=kind) for kind in types]
    policy = a_policy(*entries).model_dump(mode="json", exclude_defaults=True)
    (tmp_path / "policy.yaml").write_text(yaml.safe_dump(policy), encoding="utf-8")
    return "--policy", str(tmp_path / "policy.yaml")


def kind_of(plan: dict[str, Any]) -> str:
    """Type and capacity of its one node; empty where there is none."""
    return " ".join(f"{one['instance_type']} {one['capacity_type']}" for one in plan["nodes"])


@pytest.mark.parametrize(
    ("label", "value", "kind"),
    [
        ("topology.kubernetes.io/region", "us-east-1", "m5.large spot"),
        ("karpenter.sh/capacity-type", "on-demand", "m5.large on-demand"),
        ("eks.amazonaws.com/capacityType", "ON_DEMAND", "m5.large on-demand"),
        ("beta.kubernetes.io/arch", "arm64", "m7g.large on-demand"),
        ("beta.kubernetes.io/os", "linux", "m5.large spot"),
        ("beta.kubernetes.io/instance-type", "m7g.large", "m7g.large on-demand"),
        ("karpenter.k8s.aws/instance-family", "m7g", "m7g.large on-demand"),
        ("karpenter.k8s.aws/instance-category", "u", "u-6tb1.112xlarge on-demand"),
        ("karpenter.k8s.aws/instance-generation", "1", "u-6tb1.112xlarge on-demand"),
        ("karpenter.k8s.aws/instance-size", "12xlarge", "g5.12xlarge on-demand"),
        ("karpenter.k8s.aws/instance-cpu", "48", "g5.12xlarge on-demand"),
        ("karpenter.k8s.aws/instance-memory", "196608", "g5.12xlarge on-demand"),
        ("karpenter.k8s.aws/instance-gpu-name", "a10g", "g5.12xlarge on-demand"),
        ("karpenter.k8s.aws/instance-gpu-count", "4", "g5.12xlarge on-demand"),
        ("karpenter.k8s.aws/instance-gpu-memory", "24576", "g5.12xlarge on-demand"),
        ("nvidia.com/gpu.present", "true", "g5.12xlarge on-demand"),
        ("nvidia.com/gpu.count", "4", "g5.12xlarge on-demand"),
        ("karpenter.sh/nodepool", "mine", ""),
    ],
)
def test_a_pod_is_planned_on_the_cheapest_type_with_the_label(
    tmp_path: Path, label: str, value: str, kind: str
) -> None:
    """Of a label that says nothing of a type there is none; it waits."""
    assert kind_of(planned(tmp_path, nodeSelector={label: value})) == kind


@pytest.mark.parametrize("key", ["node.kubernetes.io/instance-type", "karpenter.k8s.aws/instance-family"])
def test_a_pod_that_excludes_types_runs_on_the_common_processor_still(tmp_path: Path, key: str) -> None:
    """It was planned on arm64, as one that names its types: its image may not run there."""
    expression = {"key": key, "operator": "NotIn", "values": ["m5.large", "m5"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    assert kind_of(planned(tmp_path, affinity=affinity)) == "g5.12xlarge on-demand"


def test_adapters_are_those_that_the_catalogue_says(tmp_path: Path) -> None:
    """Without the column there are none; a policy's ``resources`` say its own."""
    spec = {"containers": [{"name": "c", "resources": {"limits": {"vpc.amazonaws.com/efa": "4"}}}]}
    lines, types = CATALOG.splitlines(), tmp_path / "types.csv"
    for column, many, kind in (("efa", "2", ""), ("other", "32", ""), ("efa", "32", "g5.12xlarge on-demand")):
        types.write_text(f"{lines[0]},{column}\n{lines[1]},0\n{lines[5]},{many}\n", encoding="utf-8")
        assert kind_of(planned(tmp_path, "--catalog", str(types), **spec)) == kind
    assert not kind_of(planned(tmp_path, "--catalog", str(types), *by_policy(tmp_path, "g5.12xlarge"), **spec))


def test_huge_pages_are_taken_from_memory(tmp_path: Path) -> None:
    """5 GiB beside 3 are more than a node of 7 has; which nodes have some, a policy says."""
    asked = {"cpu": "1", "memory": "3Gi", "hugepages-2Mi": "5Gi"}
    spec = {"containers": [{"name": "c", "resources": {"limits": asked}}]}
    made = planned(tmp_path, **spec)
    assert kind_of(made) == "g5.12xlarge on-demand"
    assert made["notes"] == ["hugepages of 1 pod are taken from memory: nodes have to be made with them"]
    asked["hugepages-2Mi"] = "2Gi"
    assert kind_of(planned(tmp_path, **spec)) == "m5.large spot"
    assert not kind_of(planned(tmp_path, *by_policy(tmp_path, "g5.12xlarge"), **spec))


def test_what_an_autoscaler_cannot_know_is_said(tmp_path: Path) -> None:
    """Only what pods ask for, and with how many pods."""
    selector = {"karpenter.k8s.aws/instance-family": "m5", "kubernetes.io/os": "linux"}
    (note,) = planned(tmp_path, nodeSelector=selector)["notes"]
    assert note == (
        "labels read from the catalogue, which nodes of an entry have where its labels say so: "
        "karpenter.k8s.aws/instance-family (1 pod)"
    )


def test_nodes_of_a_policy_have_the_labels_that_they_will_have(tmp_path: Path) -> None:
    """Those of their kubelet and of the roles; a plan on one's own groups promises no label of another autoscaler."""
    line = by_policy(tmp_path, "m5.large", "g5.12xlarge")
    assert kind_of(planned(tmp_path, *line, nodeSelector={"beta.kubernetes.io/arch": "amd64"})) == "m5.large on-demand"
    assert kind_of(planned(tmp_path, *line, nodeSelector={"nvidia.com/gpu.present": "true"})) == "g5.12xlarge on-demand"
    assert not kind_of(planned(tmp_path, *line, nodeSelector={"karpenter.sh/capacity-type": "on-demand"}))
