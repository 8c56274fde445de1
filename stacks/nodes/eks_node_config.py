"""What a node of Amazon EKS is told: a NodeConfig, which AWS's ``nodeadm`` sets containerd and the kubelet up by.

On EC2 it stands in user data, in a part of its own media type, which cloud-init passes over; the kubelet comes in by
the role of its instance, there is no token (https://awslabs.github.io/amazon-eks-ami/nodeadm/doc/api/). On-prem, where
the ``nodeadm`` of hybrid nodes reads it, it holds the activation of Systems Manager as well
(https://docs.aws.amazon.com/eks/latest/userguide/hybrid-nodes-nodeadm.html). Imports no Pulumi.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import yaml

from stacks.nodes.user_data import NodeSpec

API_VERSION: Final = "node.eks.aws/v1alpha1"
_MEDIA_TYPE: Final = "application/node.eks.aws"
_BOUNDARY: Final = "spillway-node"


@dataclass(frozen=True, slots=True)
class EksJoin:
    """How a machine becomes a node by ``nodeadm``."""

    server: str
    """URL of the API server."""
    authority: str
    """Base64 of the PEM that its certificate is signed by."""
    service_network: str
    """The cluster's; ``nodeadm`` takes the tenth address of it for the name server of the pods."""


def render_node_config(spec: NodeSpec, join: EksJoin, *, max_pods: int | None = None) -> str:
    """User data in MIME parts, the NodeConfig one of them. The same spec gives the same text, byte for byte.

    ``max_pods``: else as many as the type's network interfaces have addresses for, as ``nodeadm`` counts them.
    """
    cluster = {
        "name": spec.cluster,
        "apiServerEndpoint": join.server,
        "certificateAuthority": join.authority,
        "cidr": join.service_network,
    }
    text = _node_config({"cluster": cluster, "kubelet": kubelet_options(spec, max_pods=max_pods)})
    return (
        f'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="{_BOUNDARY}"\n\n'
        f"--{_BOUNDARY}\nContent-Type: {_MEDIA_TYPE}\n\n{text}\n--{_BOUNDARY}--\n"
    )


def kubelet_options(spec: NodeSpec, *, max_pods: int | None = None) -> dict[str, Any]:
    """``spec.kubelet`` of a NodeConfig: labels are a flag of the kubelet's alone, the rest is its configuration."""
    options: dict[str, Any] = {}
    if spec.labels:
        labels = ",".join(f"{key}={value}" for key, value in sorted(spec.labels.items()))
        options["flags"] = [f"--node-labels={labels}"]
    config: dict[str, Any] = {}
    if spec.taints:
        config["registerWithTaints"] = [
            {key: value for key, value in asdict(taint).items() if value} for taint in spec.taints
        ]
    if max_pods is not None:
        config["maxPods"] = max_pods
    return options | ({"config": config} if config else {})


def render_hybrid_node_config(spec: NodeSpec, *, region: str, activation: str, code: str) -> str:
    """The file of an on-prem machine. ``code`` is a secret, and so is the text."""
    return _node_config(
        {
            "cluster": {"name": spec.cluster, "region": region},
            "hybrid": {"ssm": {"activationId": activation, "activationCode": code}},
            "kubelet": kubelet_options(spec),
        }
    )


def _node_config(spec: Mapping[str, Any]) -> str:
    config = {"apiVersion": API_VERSION, "kind": "NodeConfig", "spec": dict(spec)}
    return yaml.safe_dump(config, sort_keys=False, default_flow_style=False, width=10000)
