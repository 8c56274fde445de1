"""What the programs in ``stacks/`` export: one frozen record, read by ``roles/`` and by whoever wires the autoscaler.

``pulumi stack output --json`` gives it as JSON with the keys of the fields in camelCase; :func:`parse_outputs` reads
that back. Imports no Pulumi.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from autoscaler.model.cluster import CapacityType
from autoscaler.model.errors import BadInput


class GroupOutput(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One Auto Scaling group: a policy entry in one zone."""

    name: str
    """Name of the Auto Scaling group."""
    entry: str
    """Name of the policy entry (``groups[].name``)."""
    zone: str
    instance_type: str
    """Of a set of types the preferred one."""
    instance_types: tuple[str, ...] = ()
    """Of a set of types all of them."""
    capacity_type: CapacityType
    min: int
    max: int


class TaintOutput(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A taint of a node."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


class MachineOutput(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One on-prem machine of the inventory."""

    name: str
    address: str
    ssh_user: str = "root"
    ssh_port: int = 22
    ssh_key: str = ""
    """Path of the private key where the inventory names one."""
    ssh_host_key: str = ""
    """Its public host key: whoever connects takes no other."""
    labels: dict[str, str] = {}
    """Of its node, those of the inventory's fields among them."""
    taints: tuple[TaintOutput, ...] = ()
    gpu_product: str = ""
    gpus: int = 0
    rack: str = ""
    owner: str = ""


class ControlPlaneOutput(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The cluster's API server, and how machines come in."""

    kind: Literal["existing", "eks", "kubeadm"]
    endpoint: str
    """URL of the API server."""
    certificate_authority: str
    """Base64 of the PEM that its certificate is signed by."""
    version: str = ""
    """Of Kubernetes, as configured; empty where the cluster was there before."""
    join_parameter: str = ""
    """Name of the SecureString in SSM Parameter Store that holds a bootstrap token (``id.secret``): by it a kubelet
    asks for its certificate. The value is in no output. Empty on EKS, whose nodes come in by their role."""
    service_network: str = ""
    """Addresses of the cluster's services; EKS only, where it is AWS's choice."""
    oidc_provider_arn: str = ""
    """By which roles of IAM trust ServiceAccounts; EKS only."""
    oidc_issuer: str = ""
    snapshots_bucket: str = ""
    """Where snapshots of etcd are kept; kubeadm only."""
    hybrid_role_arn: str = ""
    """Role of on-prem machines that are EKS hybrid nodes; where they were asked for."""
    hybrid_activation_id: str = ""
    """Systems Manager activation by which they register; its code is the secret output ``hybridActivationCode``."""


class VpnTunnelOutput(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One tunnel of the VPN connection, as your router is told of it."""

    address: str
    """Of the AWS end on the internet."""
    inside: str = ""
    """The network inside it."""


class ReleaseOutput(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The autoscaler that runs in the cluster."""

    namespace: str
    image: str
    role_arn: str = ""
    """What it may do on AWS is a policy of this role; empty where it has an access key."""


class GroupCostOutput(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An entry of the policy at its maximum."""

    entry: str
    capacity_type: CapacityType
    instance_types: tuple[str, ...]
    max: int
    """Nodes at most, over all zones."""
    usd_per_hour: float | None = None
    """Price of one node; ``None`` where it is not known."""


class CostOutput(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the stack may cost, in dollars per hour."""

    groups: tuple[GroupCostOutput, ...] = ()
    max_usd_per_hour: float = 0.0
    """With every group at its maximum."""
    max_on_demand_usd_per_hour: float = 0.0
    max_spot_usd_per_hour: float = 0.0
    idle_usd_per_hour: float = 0.0
    """An estimate of what it costs with no node."""


class StackOutputs(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Everything that a stack tells the rest of the house. A program that makes one part exports that part's fields."""

    cluster: str
    """Name of the cluster: the tag by which the autoscaler knows its groups."""
    region: str
    vpc_id: str = ""
    subnets: dict[str, str] = {}
    """Subnet of the nodes, by zone."""
    public_subnets: dict[str, str] = {}
    """By zone; empty where no way leads to the internet, or the VPC was there before."""
    route_tables: dict[str, str] = {}
    """Of the nodes' subnets, by zone."""
    node_security_group_id: str = ""
    node_role_arn: str = ""
    """Role of the EC2 nodes."""
    control_plane: ControlPlaneOutput | None = None
    kubeconfig: str = ""
    """Secret: ``pulumi stack output --show-secrets kubeconfig``. Of an administrator."""
    hybrid_activation_code: str = ""
    """Secret: what an on-prem machine shows to Systems Manager to become an EKS hybrid node."""
    hybrid_node_configs: str = ""
    """Secret, a JSON object: by machine, the NodeConfig by which ``nodeadm`` makes an EKS hybrid node of it."""
    groups: tuple[GroupOutput, ...] = ()
    machines: tuple[MachineOutput, ...] = ()
    join_tokens: str = ""
    """Secret, a JSON object: by machine, the bootstrap token by which it joins within ten minutes of its issue."""
    wireguard_config: str = ""
    """Of your end of the tunnel, for wg-quick. It has no key in it: that is in the file that it names."""
    wireguard_key: str = ""
    """Secret: the private key of your end, where it was made here."""
    vpn_tunnels: tuple[VpnTunnelOutput, ...] = ()
    vpn_keys: str = ""
    """Secret, a JSON list: the pre-shared keys of the tunnels, in their order."""
    release: ReleaseOutput | None = None
    cost: CostOutput | None = None


def parse_outputs(exported: object, *more: object) -> StackOutputs:
    """Parses the JSON object of ``pulumi stack output --json``; of several stacks where the programs are split.

    Raises ``BadInput`` naming the output that is wrong.
    """
    together: dict[str, Any] = {}
    for one in (exported, *more):
        if not isinstance(one, dict):
            raise BadInput(f"the stack's outputs must be a JSON object, and are {type(one).__name__}")
        together |= one
    try:
        return msgspec.convert(together, StackOutputs)
    except msgspec.ValidationError as mistake:
        raise BadInput(f"the stack's outputs are not those of this project's programs: {mistake}") from None


def exported_name(field: str) -> str:
    """The output's name: that of the record's field, in camelCase."""
    names = dict(zip(StackOutputs.__struct_fields__, StackOutputs.__struct_encode_fields__, strict=True))
    return names[field]
