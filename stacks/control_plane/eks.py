"""A control plane of Amazon EKS, for nodes in EC2 and, as hybrid nodes, on-prem.

Who may come in is said by access entries alone (``API`` mode): the administrators of the configuration, the role of the
EC2 nodes (``nodes/join.py``), the role of hybrid nodes. Whoever ran ``pulumi up`` has no rights by that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import pulumi
import pulumi_aws as aws

from stacks.aws.identities import Role
from stacks.aws.trust import trust_of, trust_of_service_account
from stacks.control_plane.hybrid_nodes import HybridNodes
from stacks.network.parts import ControlPlanePart, NetworkPart
from stacks.settings.control_plane import EksSettings
from stacks.settings.outputs import ControlPlaneOutput

_ADMIN: Final = "arn:{partition}:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
_HTTPS: Final = 443
_UNPRIVILEGED: Final = (1025, 65535)
_LOG_GROUP: Final = "/aws/eks/{cluster}/cluster"
_MANAGED: Final = "arn:aws:iam::aws:policy"
_RIGHTS_OF_ADD_ONS: Final = {
    "vpc-cni": ("aws-node", f"{_MANAGED}/AmazonEKS_CNI_Policy"),
    "aws-ebs-csi-driver": ("ebs-csi-controller-sa", f"{_MANAGED}/service-role/AmazonEBSCSIDriverPolicy"),
}
"""ServiceAccount and AWS's own policy of those that ask AWS for something: no node is ready before ``vpc-cni`` is."""


class EksControlPlane(pulumi.ComponentResource):
    """The cluster, its key, its logs, its add-ons, and who may come in."""

    part: ControlPlanePart

    def __init__(
        self,
        name: str,
        settings: EksSettings,
        *,
        cluster: str,
        region: str,
        network: NetworkPart,
        zones: tuple[str, ...],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """``zones``: those of its own interfaces, nodes may be in others as well."""
        super().__init__("spillway:control:Eks", name, None, opts)
        self._name, self._settings, self._cluster_name, self._network = name, settings, cluster, network
        self._zones = zones
        self._cluster = self._make_cluster()
        self._open_ways()
        self._admit_admins()
        provider = self._trust_service_accounts()
        self._add_ons(provider)
        hybrid = (
            HybridNodes(
                name, settings.hybrid, cluster=self._cluster, cluster_name=self._cluster_name, opts=self._child()
            )
            if settings.hybrid
            else None
        )
        self.part = ControlPlanePart(
            kind="eks",
            about=_about(self._cluster, provider, hybrid, version=settings.version),
            kubeconfig=pulumi.Output.secret(_kubeconfig(self._cluster, cluster, region)),
            hybrid_activation_code=hybrid.code if hybrid else None,
        )
        self.register_outputs({"endpoint": self._cluster.endpoint, "arn": self._cluster.arn})

    def _child(self, **more: Any) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=self, **more)

    def _make_cluster(self) -> aws.eks.Cluster:
        name, settings, network = self._name, self._settings, self._network
        role, rights = self._role()
        # Made by us, or EKS makes it at its first line, without an end to what it keeps, and leaves it behind.
        logs = aws.cloudwatch.LogGroup(
            f"{name}-eks-logs",
            name=_LOG_GROUP.format(cluster=self._cluster_name),
            retention_in_days=settings.log_days,
            opts=self._child(),
        )
        return aws.eks.Cluster(
            f"{name}-eks",
            name=self._cluster_name,
            version=settings.version,
            role_arn=role.arn,
            access_config={
                "authentication_mode": "API",
                "bootstrap_cluster_creator_admin_permissions": False,
            },
            enabled_cluster_log_types=list(settings.logs),
            encryption_config={"provider": {"key_arn": self._secrets_key()}, "resources": ["secrets"]},
            remote_network_config=self._remote_networks(),
            vpc_config=aws.eks.ClusterVpcConfigArgs(
                subnet_ids=[network.subnets[zone] for zone in self._zones],
                endpoint_private_access=True,
                endpoint_public_access=settings.endpoint == "both",
                public_access_cidrs=list(settings.public_networks) or None,
            ),
            deletion_protection=settings.deletion_protection,
            opts=self._child(depends_on=[rights, logs]),
        )

    def _remote_networks(self) -> aws.eks.ClusterRemoteNetworkConfigArgs | None:
        nodes, pods = list(self._settings.remote_node_networks), list(self._settings.remote_pod_networks)
        if not nodes:
            return None
        return aws.eks.ClusterRemoteNetworkConfigArgs(
            remote_node_networks=aws.eks.ClusterRemoteNetworkConfigRemoteNodeNetworksArgs(cidrs=nodes),
            remote_pod_networks=aws.eks.ClusterRemoteNetworkConfigRemotePodNetworksArgs(cidrs=pods) if pods else None,
        )

    def _role(self) -> tuple[Role, aws.iam.RolePolicyAttachment]:
        name = f"{self._name}-eks"
        role = Role(
            name,
            cluster=self._cluster_name,
            called=f"{self._cluster_name}-eks",
            trust=trust_of("eks.amazonaws.com"),
            description=f"Control plane of the cluster {self._cluster_name}",
            parent=self,
        )
        attached = role.attach(name, f"{_MANAGED}/AmazonEKSClusterPolicy")
        role.close()
        return role, attached

    def _secrets_key(self) -> pulumi.Input[str]:
        if self._settings.secrets_key:
            return self._settings.secrets_key
        return aws.kms.Key(
            f"{self._name}-eks-secrets",
            description=f"Secrets of the cluster {self._cluster_name}",
            enable_key_rotation=True,
            deletion_window_in_days=30,
            opts=self._child(),
        ).arn

    def _open_ways(self) -> None:
        """Nodes to the API server; the API server to kubelets and webhooks; on-prem to the API server."""
        own = self._cluster.vpc_config.cluster_security_group_id.apply(lambda group: group or "")
        nodes = self._network.node_security_group_id
        self._ingress("from-nodes", to=own, ports=(_HTTPS, _HTTPS), referenced_security_group_id=nodes)
        self._ingress("to-webhooks", to=nodes, ports=(_HTTPS, _HTTPS), referenced_security_group_id=own)
        self._ingress("to-nodes", to=nodes, ports=_UNPRIVILEGED, referenced_security_group_id=own)
        for block in (*self._settings.remote_node_networks, *self._settings.remote_pod_networks):
            self._ingress(f"from-{block.replace('/', '-')}", to=own, ports=(_HTTPS, _HTTPS), cidr_ipv4=block)

    def _ingress(self, what: str, *, to: pulumi.Input[str], ports: tuple[int, int], **source: Any) -> None:
        aws.vpc.SecurityGroupIngressRule(
            f"{self._name}-eks-{what}",
            security_group_id=to,
            ip_protocol="tcp",
            from_port=ports[0],
            to_port=ports[1],
            description=f"EKS: {what.replace('-', ' ')}",
            opts=self._child(),
            **source,
        )

    def _admit_admins(self) -> None:
        for principal in self._settings.admins:
            who = f"{self._name}-admin-{principal.rpartition(':')[2].replace('/', '-')}"
            entry = aws.eks.AccessEntry(
                who, cluster_name=self._cluster.name, principal_arn=principal, type="STANDARD", opts=self._child()
            )
            aws.eks.AccessPolicyAssociation(
                who,
                cluster_name=self._cluster.name,
                principal_arn=principal,
                policy_arn=_ADMIN.format(partition=principal.split(":")[1]),
                access_scope={"type": "cluster"},
                opts=self._child(depends_on=[entry]),
            )

    def _add_ons(self, provider: aws.iam.OpenIdConnectProvider) -> None:
        for add_on, version in sorted(self._settings.addons.items()):
            needs = _RIGHTS_OF_ADD_ONS.get(add_on)
            aws.eks.Addon(
                f"{self._name}-{add_on}",
                cluster_name=self._cluster.name,
                addon_name=add_on,
                addon_version=version or None,
                service_account_role_arn=self._role_of(add_on, *needs, provider=provider) if needs else None,
                # A new cluster has them of its own already; what somebody changed in them later stays.
                resolve_conflicts_on_create="OVERWRITE",
                resolve_conflicts_on_update="PRESERVE",
                opts=self._child(),
            )

    def _role_of(
        self, add_on: str, account: str, policy: str, *, provider: aws.iam.OpenIdConnectProvider
    ) -> pulumi.Output[str]:
        """A role of the add-on's own: what its pods may do on AWS, the other pods of a node may not."""
        own = f"{self._name}-{add_on}"
        trust = pulumi.Output.all(arn=provider.arn, issuer=_issuer(self._cluster)).apply(
            lambda known: json.dumps(
                trust_of_service_account(
                    provider_arn=known["arn"], issuer=known["issuer"], namespace="kube-system", account=account
                )
            )
        )
        role = Role(
            own,
            cluster=self._cluster_name,
            called=f"{self._cluster_name}-{add_on}",
            trust=trust,
            description=f"Add-on {add_on} of the cluster {self._cluster_name}",
            parent=self,
        )
        attached = role.attach(own, policy)
        role.close()
        return pulumi.Output.all(role.arn, attached.id).apply(lambda known: str(known[0]))

    def _trust_service_accounts(self) -> aws.iam.OpenIdConnectProvider:
        return aws.iam.OpenIdConnectProvider(
            f"{self._name}-eks",
            url=_issuer(self._cluster),
            client_id_lists=["sts.amazonaws.com"],
            opts=self._child(),
        )


def kubeconfig(*, cluster: str, region: str, endpoint: str, authority: str) -> str:
    """A kubeconfig whose user gets a token from the AWS CLI: it is of whoever uses it."""
    command = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "aws",
        "args": ["--region", region, "eks", "get-token", "--cluster-name", cluster, "--output", "json"],
        "interactiveMode": "Never",
    }
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": cluster,
            "clusters": [{"name": cluster, "cluster": {"server": endpoint, "certificate-authority-data": authority}}],
            "users": [{"name": cluster, "user": {"exec": command}}],
            "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": cluster}}],
        },
        indent=1,
    )


def _kubeconfig(made: aws.eks.Cluster, cluster: str, region: str) -> pulumi.Output[str]:
    return pulumi.Output.all(endpoint=made.endpoint, authority=_authority(made)).apply(
        lambda known: kubeconfig(cluster=cluster, region=region, **known)
    )


def _authority(made: aws.eks.Cluster) -> pulumi.Output[str]:
    return made.certificate_authority.data.apply(lambda data: data or "")


def _issuer(made: aws.eks.Cluster) -> pulumi.Output[str]:
    return made.identities.apply(lambda found: str((found[0].oidcs or [])[0].issuer))


def _about(
    made: aws.eks.Cluster, provider: aws.iam.OpenIdConnectProvider, hybrid: HybridNodes | None, *, version: str
) -> pulumi.Output[ControlPlaneOutput]:
    of_hybrid: Mapping[str, Any] = (
        {"hybrid_role_arn": hybrid.role_arn, "hybrid_activation_id": hybrid.activation_id} if hybrid else {}
    )
    return pulumi.Output.all(
        endpoint=made.endpoint,
        certificate_authority=_authority(made),
        service_network=made.kubernetes_network_config.apply(lambda found: found.service_ipv4_cidr or ""),
        oidc_provider_arn=provider.arn,
        oidc_issuer=_issuer(made),
        **of_hybrid,
    ).apply(lambda known: ControlPlaneOutput(kind="eks", version=version, **known))
