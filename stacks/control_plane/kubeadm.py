"""A control plane on instances of our own, made by kubeadm: one member, or three that stand the loss of one.

    load balancer :6443 ── address of each member (a network interface that outlives its instance)
                           └─ instance ── data volume (etcd, keys; outlives the instance too)
    after each member: a gate, which `pulumi up` waits for, and which the next member waits for

A change of what members are told replaces their instances one after another: the old one goes, the new one comes back
with its address and its data as the same member of etcd, and only when that is healthy is the next one touched.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from itertools import product
from typing import Any, Final

import pulumi
import pulumi_aws as aws
import yaml

from stacks.aws.boundary import path_of
from stacks.aws.identities import Role
from stacks.aws.security_groups import SecurityGroup
from stacks.aws.trust import trust_of
from stacks.control_plane.existing_members import TAG_KEY, key_from, member_name, parameters_of
from stacks.control_plane.member_iam import member_rights
from stacks.control_plane.member_user_data import API_PORT, NOT_YET, MemberSpec, healthy_command, render_member
from stacks.control_plane.snapshots import SnapshotStore
from stacks.network.parts import ControlPlanePart, NetworkPart
from stacks.settings.control_plane import KubeadmSettings
from stacks.settings.outputs import ControlPlaneOutput

_GATE_SECONDS: Final = 900
_POD_NETWORKS: Final[Mapping[str, tuple[str, int]]] = {
    "vxlan-of-cilium-or-flannel": ("udp", 8472),
    "vxlan-of-calico": ("udp", 4789),
    "bgp-of-calico": ("tcp", 179),
    "health-of-cilium": ("tcp", 4240),
}
"""What pods elsewhere reach pods on members by, such as CoreDNS: protocol and port."""


@dataclass(frozen=True, kw_only=True)
class KubeadmArgs:
    """What a control plane is made from."""

    settings: KubeadmSettings
    cluster: str
    region: str
    network: NetworkPart
    zones: tuple[str, ...]
    image_id: pulumi.Input[str]


class KubeadmControlPlane(pulumi.ComponentResource):
    """Members, their load balancer, the places of their secrets and of their snapshots."""

    part: ControlPlanePart

    def __init__(self, name: str, args: KubeadmArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("spillway:control:Kubeadm", name, None, opts)
        self._name, self._args, self._settings = f"{name}-control-plane", args, args.settings
        self._key = self._make_key()
        self._store = SnapshotStore(
            name, args.settings.snapshots, key_arn=self._key, opts=pulumi.ResourceOptions(parent=self)
        )
        self._parameters = parameters_of(args.cluster)
        kept = [self._make_parameter(one) for one in astuple(self._parameters)]
        self._profile = self._make_identity()
        self._balancer_group, self._group = self._make_groups()
        self._balancer, targets = self._make_balancer()
        self._target_group = targets
        gates: list[pulumi.Resource] = list(kept)
        for number in range(args.settings.instances):
            gates = [self._make_member(number, after=gates)]
        kubeconfig = self._read_kubeconfig(after=gates)
        self.part = ControlPlanePart(kind="kubeadm", about=self._about(kubeconfig), kubeconfig=kubeconfig)
        founded = {"pod_network": args.settings.pod_network, "service_network": args.settings.service_network}
        self.register_outputs(
            {"endpoint": self._balancer.dns_name, "networks": founded, "names": list(args.settings.names)}
        )

    def _child(self, **more: Any) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=self, **more)

    def _make_key(self) -> pulumi.Output[str]:
        if self._settings.key:
            return pulumi.Output.from_input(self._settings.key)
        return aws.kms.Key(
            self._name,
            description=f"Volumes, secrets and snapshots of the control plane of {self._args.cluster}",
            enable_key_rotation=True,
            deletion_window_in_days=30,
            opts=self._child(),
        ).arn

    def _make_parameter(self, parameter: str) -> aws.ssm.Parameter:
        """A place for a secret. Members write it; the stack makes it, so that it goes with the stack.

        An update by the provider is one `PutParameter` with the value that the stack knows: it would put ``NOT_YET``,
        or a token that is no more, over what a member has written there. So nothing but its tags is ever updated.
        """
        return aws.ssm.Parameter(
            f"{self._name}-{parameter.rpartition('/')[2]}",
            name=parameter,
            type="SecureString",
            value=NOT_YET,
            key_id=self._key,
            tier="Advanced",  # a kubeconfig is longer than what the standard one holds
            opts=self._child(ignore_changes=["value", "keyId", "tier"]),
        )

    def _make_identity(self) -> aws.iam.InstanceProfile:
        args, own = self._args, f"{self._args.cluster}-control-plane"
        role = Role(
            self._name,
            cluster=args.cluster,
            called=own,
            trust=trust_of("ec2.amazonaws.com"),
            description=f"Control plane of the cluster {args.cluster}",
            parent=self,
        )
        rights = pulumi.Output.all(key=self._key, bucket=self._store.bucket_arn).apply(
            lambda known: json.dumps(
                member_rights(cluster=args.cluster, region=args.region, parameters=self._parameters, **known)
            )
        )
        role.grant(self._name, "member", rights)
        role.close()
        return aws.iam.InstanceProfile(
            self._name, name=own, path=path_of(args.cluster), role=role.name, opts=self._child()
        )

    def _make_groups(self) -> tuple[SecurityGroup, SecurityGroup]:
        """Makes the groups of the load balancer and of the members, which it reaches."""
        name, vpc = self._name, self._args.network.vpc_id
        balancer = SecurityGroup(f"{name}-balancer", "Load balancer of the API server", vpc_id=vpc, opts=self._child())
        members = SecurityGroup(name, "Control plane of the cluster", vpc_id=vpc, opts=self._child())

        def open_way(what: str, *, to: SecurityGroup, port: int | None = API_PORT, **source: Any) -> None:
            to.let_in(f"{name}-{what}", what.replace("-", " "), port=port, **source)

        nodes = self._args.network.node_security_group_id
        open_way("nodes-to-api", to=balancer, referenced_security_group_id=nodes)
        open_way("members-to-api", to=balancer, referenced_security_group_id=members.id)
        for block in self._settings.clients:
            open_way(f"{block.replace('/', '-')}-to-api", to=balancer, cidr_ipv4=block)
        open_way("balancer-to-members", to=members, referenced_security_group_id=balancer.id)
        open_way("member-to-member", to=members, port=None, referenced_security_group_id=members.id)
        sources: dict[str, dict[str, Any]] = {"nodes": {"referenced_security_group_id": nodes}}
        sources |= {block.replace("/", "-"): {"cidr_ipv4": block} for block in self._settings.clients}
        for (source, given), (way, (protocol, port)) in product(sources.items(), _POD_NETWORKS.items()):
            open_way(f"{way}-from-{source}", to=members, protocol=protocol, port=port, **given)
        self._reach_nodes(members)
        for what, group in (("balancer", balancer), ("members", members)):
            group.let_out(f"{name}-{what}-out", cidr_ipv4="0.0.0.0/0")
            group.close()
        return balancer, members

    def _reach_nodes(self, members: SecurityGroup) -> None:
        """The API server to kubelets and webhooks, and the members' pods to those of nodes."""
        name, network = f"{self._name}-members-to-nodes", self._args.network
        if network.node_group:
            network.node_group.let_in(name, "from the control plane", referenced_security_group_id=members.id)
            return
        aws.vpc.SecurityGroupIngressRule(
            name,
            security_group_id=network.node_security_group_id,
            ip_protocol="-1",
            referenced_security_group_id=members.id,
            description="from the control plane",
            opts=self._child(),
        )

    def _make_balancer(self) -> tuple[aws.lb.LoadBalancer, aws.lb.TargetGroup]:
        cluster, network = self._args.cluster, self._args.network
        balancer = aws.lb.LoadBalancer(
            self._name,
            name=f"{cluster}-api"[:32],
            load_balancer_type="network",
            internal=True,
            subnets=list(network.subnets.values()),
            security_groups=[self._balancer_group.id],
            enable_cross_zone_load_balancing=True,
            opts=self._child(),
        )
        # By address, not by instance: a member reaches the API server through its own balancer only so, and its
        # place in the group outlives its instance.
        targets = aws.lb.TargetGroup(
            self._name,
            name=f"{cluster}-api"[:32],
            port=API_PORT,
            protocol="TCP",
            target_type="ip",
            vpc_id=network.vpc_id,
            deregistration_delay=30,
            health_check={"protocol": "HTTPS", "path": "/readyz", "port": str(API_PORT), "matcher": "200"},
            opts=self._child(),
        )
        aws.lb.Listener(
            self._name,
            load_balancer_arn=balancer.arn,
            port=API_PORT,
            protocol="TCP",
            default_actions=[{"type": "forward", "target_group_arn": targets.arn}],
            opts=self._child(),
        )
        return balancer, targets

    def _make_member(self, number: int, *, after: list[pulumi.Resource]) -> pulumi.Resource:
        """One member, and its gate, which is open when it is healthy."""
        args, name = self._args, member_name(self._args.cluster, number)
        zone = args.zones[number % len(args.zones)]
        interface = aws.ec2.NetworkInterface(
            name,
            subnet_id=args.network.subnets[zone],
            security_groups=[self._group.id],
            tags={"Name": name},
            opts=self._child(ignore_changes=["subnetId"]),  # where its volume is
        )
        volume = aws.ebs.Volume(
            name,
            availability_zone=zone,
            size=self._settings.data_volume_gib,
            type="gp3",
            encrypted=True,
            kms_key_id=self._key,
            tags={"Name": name, TAG_KEY: key_from(self._settings)},
            # One more zone of the policy moves no member: in another zone it would have a volume without etcd.
            opts=self._child(ignore_changes=["availabilityZone", "kmsKeyId"]),
        )
        aws.lb.TargetGroupAttachment(
            name,
            target_group_arn=self._target_group.arn,
            target_id=interface.private_ip,
            port=API_PORT,
            opts=self._child(),
        )
        instance = self._make_instance(number, name=name, interface=interface, volume=volume, after=after)
        attached = aws.ec2.VolumeAttachment(
            name,
            device_name="/dev/sdf",
            instance_id=instance.id,
            volume_id=volume.id,
            stop_instance_before_detaching=True,  # etcd writes until the end
            opts=self._child(delete_before_replace=True),
        )
        return aws.ssm.Association(
            f"{name}-healthy",
            name="AWS-RunShellScript",
            association_name=f"{args.cluster}-member-{number}-healthy",
            targets=[{"key": "InstanceIds", "values": [instance.id]}],
            parameters={"commands": healthy_command()},
            wait_for_success_timeout_seconds=_GATE_SECONDS,
            opts=self._child(depends_on=[attached]),
        )

    def _make_instance(
        self,
        number: int,
        *,
        name: str,
        interface: aws.ec2.NetworkInterface,
        volume: aws.ebs.Volume,
        after: list[pulumi.Resource],
    ) -> aws.ec2.Instance:
        settings = self._settings
        return aws.ec2.Instance(
            name,
            ami=self._args.image_id,
            instance_type=settings.instance_type,
            iam_instance_profile=self._profile.name,
            primary_network_interface={"network_interface_id": interface.id},
            metadata_options={"http_endpoint": "enabled", "http_tokens": "required", "http_put_response_hop_limit": 1},
            root_block_device={
                "volume_type": "gp3",
                "volume_size": settings.root_volume_gib,
                "encrypted": True,
                "kms_key_id": self._key,
            },
            user_data_base64=self._user_data(number, volume),
            user_data_replace_on_change=True,
            tags={"Name": name},
            # An image that is named is meant. What a parameter holds today must not replace a control plane by itself.
            opts=self._child(
                depends_on=after,
                delete_before_replace=True,
                ignore_changes=["ami"] if settings.ami.startswith("ssm:") else [],
            ),
        )

    def _user_data(self, number: int, volume: aws.ebs.Volume) -> pulumi.Output[str]:
        args, settings = self._args, self._settings

        def rendered(known: Mapping[str, str]) -> str:
            spec = MemberSpec(
                cluster=args.cluster,
                region=args.region,
                version=settings.version,
                first=number == 0,
                names=settings.names,
                pod_network=settings.pod_network,
                service_network=settings.service_network,
                parameters=self._parameters,
                snapshot_every=settings.snapshots.every,
                **known,
            )
            return base64.b64encode(render_member(spec).encode()).decode()

        return pulumi.Output.all(
            endpoint=self._balancer.dns_name, data_volume=volume.id, key=self._key, bucket=self._store.bucket
        ).apply(rendered)

    def _read_kubeconfig(self, *, after: list[pulumi.Resource]) -> pulumi.Output[str]:
        """Reads the kubeconfig that the first member has written, once all are healthy."""
        found = aws.ssm.get_parameter_output(
            name=self._parameters.kubeconfig,
            with_decryption=True,
            opts=pulumi.InvokeOutputOptions(parent=self, depends_on=after),
        )
        return pulumi.Output.secret(found.value)

    def _about(self, kubeconfig: pulumi.Output[str]) -> pulumi.Output[ControlPlaneOutput]:
        authority = pulumi.Output.unsecret(kubeconfig.apply(authority_in))  # a public certificate
        return pulumi.Output.all(
            endpoint=self._balancer.dns_name.apply(lambda host: f"https://{host}:{API_PORT}"),
            certificate_authority=authority,
            snapshots_bucket=self._store.bucket,
        ).apply(
            lambda known: ControlPlaneOutput(
                kind="kubeadm", version=self._settings.version, join_parameter=self._parameters.token, **known
            )
        )


def authority_in(kubeconfig: str) -> str:
    """Base64 of the cluster's authority. Raises where no member has written it: nodes would trust no server."""
    if kubeconfig == NOT_YET:
        raise pulumi.RunError(
            "the gate of the first member is open, and its kubeconfig is not there: see "
            "`journalctl -u spillway-control-plane` on that instance"
        )
    return str(yaml.safe_load(kubeconfig)["clusters"][0]["cluster"]["certificate-authority-data"])
