"""User data of EKS nodes: a NodeConfig that ``nodeadm`` reads, image by group, and nothing secret."""

from __future__ import annotations

import email
import json
from typing import Any, Final

import pulumi
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.model import labels as words
from autoscaler.model.constraints import Taint
from stacks.network.parts import ControlPlanePart
from stacks.nodes.eks_node_config import EksJoin, render_node_config
from stacks.nodes.images import eks_image, image_of_nodes
from stacks.nodes.instance_types import Shape
from stacks.nodes.node_groups import user_data
from stacks.nodes.on_prem_machines import hybrid_node_configs
from stacks.nodes.user_data import NodeSpec
from stacks.settings.inventory import Inventory
from stacks.settings.outputs import ControlPlaneOutput
from stacks.settings.stack import read_settings
from tests.test_stacks.declared import Recorder, group
from tests.test_stacks.graph import graph

JOIN: Final = EksJoin(server="https://api", authority="UEVN", service_network="10.100.0.0/16")
FIELDS: Final = {
    # https://github.com/awslabs/amazon-eks-ami/blob/main/nodeadm/api/v1alpha1/nodeconfig_types.go, as far as used here
    "cluster": {"name", "apiServerEndpoint", "certificateAuthority", "cidr"},
    "kubelet": {"config", "flags", "maxPodsExpression"},
}
EKS: Final[dict[str, Any]] = {"kind": "eks", "version": "1.34", "admins": ["arn:aws:iam::123456789012:role/platform"]}


def config_in(text: str) -> dict[str, Any]:
    """The NodeConfig, found as ``nodeadm`` finds it: the part of its media type."""
    message = email.message_from_string(text)
    assert message.get_content_type() == "multipart/mixed"
    [part] = [one for one in message.walk() if one.get_content_type() == "application/node.eks.aws"]
    config: dict[str, Any] = yaml.safe_load(str(part.get_payload()))
    assert (config["apiVersion"], config["kind"]) == ("node.eks.aws/v1alpha1", "NodeConfig")
    return config["spec"]  # type: ignore[no-any-return]


key = st.from_regex(r"[a-z]{1,8}\.[a-z]{1,8}/[A-Za-z0-9][-A-Za-z0-9_.]{0,20}[A-Za-z0-9]", fullmatch=True)
value = st.from_regex(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,30}[A-Za-z0-9])?)?", fullmatch=True)
taint = st.builds(Taint, key=key, value=value, effect=st.sampled_from(["NoSchedule", "PreferNoSchedule", "NoExecute"]))


@given(labels=st.dictionaries(key, value, max_size=12), taints=st.lists(taint, max_size=3).map(tuple))
def test_labels_and_taints_arrive_as_the_kubelet_reads_them(labels: dict[str, str], taints: tuple[Taint, ...]) -> None:
    """Whatever they look like: `yes`, `1`, `1e3`, a hundred characters."""
    spec = config_in(render_node_config(NodeSpec(cluster="lab", labels=labels, taints=taints), JOIN))
    assert set(spec) == set(FIELDS)
    assert all(set(spec[part]) <= FIELDS[part] for part in spec)
    flags = spec["kubelet"].get("flags", [])
    assert all(flag.startswith("--node-labels=") for flag in flags)
    read = dict(pair.split("=") for flag in flags for pair in flag.removeprefix("--node-labels=").split(","))
    assert read == labels
    registered = spec["kubelet"].get("config", {}).get("registerWithTaints", [])
    assert tuple(Taint(**{"value": "", **one}) for one in registered) == taints


def test_it_says_where_the_cluster_is() -> None:
    """All four that `nodeadm` refuses to go without; the authority is what EKS gives, base64 as it is."""
    assert config_in(render_node_config(NodeSpec(cluster="lab"), JOIN))["cluster"] == {
        "name": "lab",
        "apiServerEndpoint": "https://api",
        "certificateAuthority": "UEVN",
        "cidr": "10.100.0.0/16",
    }


def test_pods_are_as_many_as_the_policy_says() -> None:
    """The autoscaler reckons with the same number; without one both take what the interfaces have addresses for."""
    told = user_data(cluster="lab", region="us-east-1", entry=group(resources={"pods": 50}), join=JOIN)
    assert config_in(told)["kubelet"]["config"]["maxPods"] == 50
    unsaid = user_data(cluster="lab", region="us-east-1", entry=group(), join=JOIN)
    assert "maxPods" not in config_in(unsaid)["kubelet"]["config"]


def test_nodes_join_reserved_unless_the_policy_says_otherwise() -> None:
    """The autoscaler takes the taint off (``autoscaler/planner/handoff/reservations.py``)."""
    told = user_data(cluster="lab", region="us-east-1", entry=group(), join=JOIN)
    assert config_in(told)["kubelet"]["config"] == {
        "registerWithTaints": [{"key": words.RESERVED, "effect": "NoSchedule"}]
    }
    not_reserved = user_data(cluster="lab", region="us-east-1", entry=group(), join=JOIN, reserved=False)
    assert "config" not in config_in(not_reserved)["kubelet"]


def test_gpus_are_told_to_whatever_runs_on_gpu_nodes() -> None:
    """Device plugin and exporter select by this label; nodeadm sets it from 1.35 on, to the same."""
    with_gpus = user_data(cluster="lab", region="us-east-1", entry=group(), join=JOIN, gpus=4)
    assert f"{words.GPU_PRESENT}=true" in config_in(with_gpus)["kubelet"]["flags"][0]
    without = user_data(cluster="lab", region="us-east-1", entry=group(), join=JOIN)
    assert words.GPU_PRESENT not in config_in(without)["kubelet"]["flags"][0]


@pytest.mark.parametrize(
    ("architecture", "gpus", "kind"),
    [("x86_64", 0, "x86_64/standard"), ("x86_64", 8, "x86_64/nvidia"), ("arm64", 0, "arm64/standard")],
)
def test_the_image_follows_version_architecture_and_gpus(architecture: str, gpus: int, kind: str) -> None:
    """Drivers are on the image."""
    assert eks_image("1.34", architecture=architecture, gpus=gpus) == (
        f"ssm:/aws/service/eks/optimized-ami/1.34/amazon-linux-2023/{kind}/recommended/image_id"
    )


def test_an_image_that_is_configured_is_taken() -> None:
    """On EKS as elsewhere; else EKS has its own, and the others Ubuntu, for the processor of the type."""

    def image(architecture: str = "x86_64", **configured: Any) -> str:
        shape = Shape(architecture=architecture, vcpus=4, memory_mib=16384)
        written = {"spillway:policy": "p.yaml", **{f"spillway:{name}": one for name, one in configured.items()}}
        return image_of_nodes(read_settings(written, stack="lab"), shape)

    assert image(nodes={"ami": "ami-0123456789abcdef0"}, control_plane=EKS) == "ami-0123456789abcdef0"
    assert "optimized-ami/1.34/amazon-linux-2023/x86_64/standard" in image(control_plane=EKS)
    assert "ubuntu/server/24.04/stable/current/amd64" in image()
    assert "ubuntu/server/24.04/stable/current/arm64" in image("arm64")


def test_an_on_prem_machine_of_eks_has_a_file_for_nodeadm() -> None:
    """With the activation, and the labels and taints of the inventory; the whole is one secret output."""
    machines = [
        {
            "name": "dgx-01",
            "address": "10.80.0.11",
            "cpus": 128,
            "memory": "1Ti",
            "gpus": {"product": "NVIDIA-A100-SXM4-40GB", "count": 8, "memory": "40Gi"},
            "rack": "r1",
            "taints": [{"key": "nvidia.com/gpu"}],
        }
    ]
    about = ControlPlaneOutput(
        kind="eks", endpoint="https://api", certificate_authority="UEVN", hybrid_activation_id=ACTIVATION
    )

    def program() -> None:
        part = ControlPlanePart(
            kind="eks",
            about=pulumi.Output.from_input(about),
            kubeconfig=pulumi.Output.from_input(""),
            hybrid_activation_code=pulumi.Output.secret(20 * "c"),
        )
        inventory = Inventory.model_validate({"machines": machines})
        configs = hybrid_node_configs(part, inventory, cluster="lab", region="us-east-1")
        pulumi.export("configs", configs)
        pulumi.export("is_secret", pulumi.Output.from_input(configs.is_secret()))

    exports = graph(program, mocks=Recorder()).exports
    assert exports["is_secret"] is True
    config = yaml.safe_load(json.loads(exports["configs"])["dgx-01"])
    assert config["spec"]["cluster"] == {"name": "lab", "region": "us-east-1"}
    assert config["spec"]["hybrid"] == {"ssm": {"activationId": ACTIVATION, "activationCode": 20 * "c"}}
    labels = config["spec"]["kubelet"]["flags"][0]
    assert f"{words.ORIGIN}={words.ON_PREM}" in labels
    assert f"{words.GPU_PRESENT}=true" in labels
    assert words.HOSTNAME not in labels, "nodeadm refuses a name that is not Systems Manager's"
    assert config["spec"]["kubelet"]["config"]["registerWithTaints"] == [
        {"key": "nvidia.com/gpu", "effect": "NoSchedule"}
    ]


ACTIVATION = "0a1b2c3d-0000-4000-8000-0123456789ab"
