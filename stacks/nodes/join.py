"""How nodes come in: where the bootstrap token is kept, and the right of the EC2 nodes' role to be admitted by it.

A token stands in one place only: a SecureString of SSM Parameter Store. User data and outputs name that place. Nodes
that the project's own roles prepare have each a token of its own; images that join in their own way share one.
"""

from __future__ import annotations

import base64
import ipaddress
import json
from typing import Any, Literal

import pulumi
import pulumi_aws as aws

from autoscaler.model import labels as words
from autoscaler.model.errors import BadInput
from stacks.aws.identities import Role
from stacks.network.parts import ControlPlanePart
from stacks.nodes.bundle import NodeBundle
from stacks.nodes.eks_node_config import EksJoin
from stacks.nodes.user_data import Bundle, Join
from stacks.settings.control_plane import EksSettings, KubeadmSettings
from stacks.settings.outputs import ControlPlaneOutput
from stacks.settings.stack import Settings

JoinedBy = Literal["roles", "nodeadm", "image"]
"""What makes a node of an instance: the project's roles, AWS's ``nodeadm``, or whatever its image has for that."""


def joined_by(settings: Settings) -> JoinedBy:
    """Says what joins a machine to the cluster, by the configuration."""
    if settings.nodes.roles != "none":
        return "roles"
    return "nodeadm" if isinstance(settings.control_plane, EksSettings) else "image"


def instance_tags(cluster: str, *, by: JoinedBy) -> dict[str, str]:
    """The tag by which the cloud controller of EKS knows the instances of its cluster."""
    return {f"kubernetes.io/cluster/{cluster}": "owned"} if by == "nodeadm" else {}


def join_parameter(cluster: str) -> str:
    """Name of the SecureString that holds the bootstrap token (``id.secret``) of the cluster's nodes."""
    return f"/spillway/{cluster}/join-token"


class NodeAdmission(pulumi.ComponentResource):
    """Lets the EC2 nodes' role into the cluster: on EKS by an access entry, elsewhere by the bootstrap token."""

    def __init__(
        self,
        name: str,
        *,
        cluster: str,
        control_plane: ControlPlanePart,
        role: Role,
        by_roles: bool = False,
        bundle: NodeBundle | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """``by_roles``: each has a token of its own; ``bundle``: what they fetch."""
        super().__init__("spillway:control:NodeAdmission", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        if control_plane.kind == "eks":
            stands = control_plane.about.apply(lambda _: cluster)  # an entry needs its cluster
            aws.eks.AccessEntry(name, cluster_name=stands, principal_arn=role.arn, type="EC2_LINUX", opts=child)
            role.grant(name, "join", KNOW_ITSELF, parent=self)
        else:
            role.grant(name, "join", read_own_token(cluster) if by_roles else read_token(cluster), parent=self)
        if bundle is not None:
            fetching = bundle.object_arn.apply(lambda arn: json.dumps(fetch_bundle(arn)))
            role.grant(f"{name}-bundle", "bundle", fetching, parent=self)
        self.register_outputs({})


def join_of(
    settings: Settings, *, cluster: str, control_plane: ControlPlanePart, bundle: NodeBundle | None
) -> pulumi.Output[Join]:
    """What user data tells machines that the project's own roles make nodes of."""
    wanted = settings.control_plane
    dns = _cluster_dns(wanted.service_network) if isinstance(wanted, KubeadmSettings) else ()
    found: pulumi.Output[Bundle | None] = bundle.bundle if bundle else pulumi.Output.from_input(None)

    def told(known: Any) -> Join:
        about: ControlPlaneOutput = known[0]
        return Join(
            server=about.endpoint,
            authority=base64.b64decode(about.certificate_authority).decode(),
            token_parameter=words.JOIN_PARAMETER.format(cluster=cluster, instance="{instance}"),
            cluster_dns=dns,
            bundle=known[1],
        )

    return pulumi.Output.all(control_plane.about, found).apply(told)


def eks_join_of(control_plane: ControlPlanePart) -> pulumi.Output[EksJoin]:
    """What user data tells ``nodeadm``."""
    return control_plane.about.apply(
        lambda about: EksJoin(
            server=about.endpoint, authority=about.certificate_authority, service_network=about.service_network
        )
    )


def check_join(settings: Settings) -> None:
    """Whether nodes can be made by the roles with this control plane. Raises ``BadInput``; asks nothing outside."""
    by, wanted = settings.nodes.roles, settings.control_plane
    if by == "none" or settings.program not in ("all", "node-pools", "release"):
        return
    if wanted is None:
        raise BadInput(f"spillway:nodes.roles = {by!r}: there is no control plane to join: name it in control_plane")
    if wanted.kind == "eks":
        raise BadInput(
            f"spillway:nodes.roles = {by!r}: EKS lets no kubelet in by a bootstrap token, only by the instance's role, "
            "and its image has a kubelet of its own: leave nodes.roles out, and nodeadm of that image joins the nodes"
        )
    if by == "baked" and settings.nodes.ami is None and settings.program != "release":
        raise BadInput(
            "spillway:nodes.ami is missing: with roles: baked it names the image that they were baked into (how it is "
            "made says stacks/README.md, The image of the nodes); Ubuntu's own has none of them"
        )


def _cluster_dns(service_network: str) -> tuple[str, ...]:
    """Where kubeadm puts CoreDNS: the tenth address."""
    return (str(ipaddress.IPv4Network(service_network)[10]),)


def read_token(cluster: str) -> dict[str, object]:
    """The right to read the bootstrap token, and nothing else that is kept beside it."""
    parameter = f"arn:*:ssm:*:*:parameter{join_parameter(cluster)}"
    read = {"Sid": "ReadJoinToken", "Effect": "Allow", "Action": "ssm:GetParameter", "Resource": parameter}
    return {"Version": "2012-10-17", "Statement": [read, _decrypt(parameter)]}


def read_own_token(cluster: str) -> dict[str, object]:
    """The right to read the token that was made for the very instance that asks, and no other's.

    The parameter's tag says whose it is. ``ec2:SourceInstanceARN`` is set by AWS on requests with the credentials that
    an instance's metadata service gives; whoever asks cannot choose it.
    """
    parameter = f"arn:*:ssm:*:*:parameter{words.JOIN_PARAMETER.format(cluster=cluster, instance='*')}"
    read = {
        "Sid": "ReadOwnJoinToken",
        "Effect": "Allow",
        "Action": "ssm:GetParameter",
        "Resource": parameter,
        "Condition": {"StringEquals": {f"aws:ResourceTag/{words.TAG_INSTANCE}": "${ec2:SourceInstanceARN}"}},
    }
    return {"Version": "2012-10-17", "Statement": [read, _decrypt(parameter)]}


def _decrypt(parameter: str) -> dict[str, object]:
    """Whatever key the parameter is under: for this one parameter, and through Parameter Store alone."""
    return {
        "Sid": "DecryptIt",
        "Effect": "Allow",
        "Action": "kms:Decrypt",
        "Resource": "*",
        "Condition": {
            "StringLike": {"kms:ViaService": "ssm.*.amazonaws.com", "kms:EncryptionContext:PARAMETER_ARN": parameter}
        },
    }


def fetch_bundle(object_arn: str) -> dict[str, object]:
    """The right to fetch the one object."""
    statement = {"Sid": "FetchTheBundle", "Effect": "Allow", "Action": "s3:GetObject", "Resource": object_arn}
    return {"Version": "2012-10-17", "Statement": [statement]}


KNOW_ITSELF: dict[str, object] = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Sid": "KnowItself",
            "Effect": "Allow",
            "Action": ["ec2:DescribeInstances", "ec2:DescribeInstanceTypes"],
            "Resource": "*",
        }
    ],
}
"""What ``nodeadm`` asks at boot: the instance's private name, which its access entry knows it by, and how many pods its
type takes. Neither call can be narrowed to one instance."""
