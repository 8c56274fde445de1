"""How the machines on-prem and the nodes in the VPC reach each other, one of three by configuration.

routed      by a gateway that is there (or by nothing of ours): routes, where one is named
wireguard   by an instance in the VPC that holds a tunnel to a machine of yours
vpn         by an IPsec connection of two tunnels to a router of yours
"""

from __future__ import annotations

import base64
import ipaddress
import json
from itertools import combinations

import pulumi
import pulumi_aws as aws

from autoscaler.model.errors import BadInput
from stacks.aws.boundary import path_of
from stacks.aws.identities import Role
from stacks.aws.security_groups import SecurityGroup
from stacks.aws.trust import trust_of
from stacks.connectivity.routes import ConnectivityArgs, Fields, Routed, routes
from stacks.connectivity.vpn import Vpn
from stacks.connectivity.wireguard import FETCH, INTERFACE, check_pair, ends, render, render_gateway
from stacks.nodes.on_prem_machines import OnPremProvider, WireguardKey
from stacks.settings.on_prem import ConnectivitySettings, RoutedSettings, WireguardSettings


def check_connectivity(
    settings: ConnectivitySettings | None, *, vpc: tuple[str, ...], on_prem: tuple[str, ...], public: bool
) -> None:
    """Whether the two sides can be connected like this. Raises ``BadInput``; ``public``: a public subnet is there."""
    if settings is None:
        return
    if not on_prem:
        raise BadInput(
            f"spillway:connectivity ({settings.kind}) needs spillway:network.on_prem: which networks are on the other "
            "side? e.g. [10.20.0.0/16]"
        )
    if isinstance(settings, WireguardSettings):
        if not public:
            raise BadInput(
                "spillway:connectivity (wireguard) needs a public subnet for its gateway: spillway:network.nat one or "
                "per-zone in a VPC that is made here; for one that is there take routed or vpn"
            )
        named = [(settings.tunnel, "spillway:connectivity.tunnel"), *((one, "the VPC") for one in vpc)]
        named += [(one, "spillway:network.on_prem") for one in on_prem]
        for (one, where), (other, there) in combinations(named, 2):
            if ipaddress.IPv4Network(one).overlaps(ipaddress.IPv4Network(other)):
                raise BadInput(f"{where} = {one} and {there} = {other} overlap: give one of them other addresses")


def connect(name: str, args: ConnectivityArgs, *, opts: pulumi.ResourceOptions) -> Fields:
    """Declare what connects the two sides; gives what the stack exports of it."""
    settings = args.settings
    if isinstance(settings, RoutedSettings):
        Routed(name, args, settings, opts)
        return {}
    if isinstance(settings, WireguardSettings):
        return Wireguard(name, args, settings, opts).fields
    return Vpn(name, args, settings, opts).fields


class Wireguard(pulumi.ComponentResource):
    """An instance that holds the tunnel, with an address of its own, and routes through it."""

    fields: Fields

    def __init__(
        self,
        name: str,
        args: ConnectivityArgs,
        settings: WireguardSettings,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("spillway:connectivity:Wireguard", name, None, opts)
        self._name, self._args, self._settings = name, args, settings
        child = pulumi.ResourceOptions(parent=self)
        maker = pulumi.ResourceOptions(parent=self, provider=OnPremProvider(f"{name}-keys", None, child))
        own = WireguardKey(f"{name}-aws", rotate=settings.rotate, opts=maker)
        theirs = None if settings.public_key else WireguardKey(f"{name}-on-prem", rotate=settings.rotate, opts=maker)
        address = aws.ec2.Eip(name, domain="vpc", tags={"Name": name}, opts=child)
        their_key = theirs.public_key if theirs else pulumi.Output.from_input(str(settings.public_key))
        conf = pulumi.Output.all(own.public_key, their_key, address.public_ip).apply(self._configured)
        parameter = aws.ssm.Parameter(
            f"{name}-key",
            name=f"/spillway/{args.cluster}/wireguard-key",
            type="SecureString",
            value=own.private_key,
            description="Private key of the AWS end of the tunnel",
            opts=child,
        )
        data = pulumi.Output.all(conf, own.public_key, parameter.name).apply(
            lambda known: render_gateway(known[0][0], own_key=known[1], parameter=known[2], region=args.region)
        )
        gateway = self._gateway(data, parameter)
        aws.ec2.EipAssociation(name, allocation_id=address.id, instance_id=gateway.id, opts=child)
        routes(name, args, {"network_interface_id": gateway.primary_network_interface_id}, parent=self)
        self.fields = {"wireguard_config": conf.apply(lambda both: both[1])}
        if theirs:
            self.fields["wireguard_key"] = theirs.private_key
        self.register_outputs({"instanceId": gateway.id})

    def _configured(self, known: list[str]) -> tuple[str, str]:
        """The files of both ends, checked against each other."""
        args, settings = self._args, self._settings
        own_key, their_key, address = known
        both = ends(
            tunnel=settings.tunnel,
            port=settings.port,
            vpc=args.vpc,
            on_prem=args.on_prem,
            keys=(own_key, their_key),
            addresses=(address, settings.address),
            fetch=f"{FETCH} /etc/wireguard/{INTERFACE}.key",
        )
        files = render(both[0]), render(both[1])
        check_pair(*files)
        return files

    def _gateway(self, data: pulumi.Output[str], parameter: aws.ssm.Parameter) -> aws.ec2.Instance:
        name, args = self._name, self._args
        child = pulumi.ResourceOptions(parent=self)
        zone = min(args.network.public_subnets)
        return aws.ec2.Instance(
            name,
            ami=args.image_id,
            instance_type=self._settings.instance_type,
            subnet_id=args.network.public_subnets[zone],
            vpc_security_group_ids=[self._security_group()],
            iam_instance_profile=self._profile(parameter),
            source_dest_check=False,  # it passes on what is neither from nor to itself
            user_data_base64=data.apply(lambda text: base64.b64encode(text.encode()).decode()),
            user_data_replace_on_change=True,
            metadata_options={"http_endpoint": "enabled", "http_tokens": "required", "http_put_response_hop_limit": 1},
            root_block_device={
                "volume_type": "gp3",
                "volume_size": 10,
                "encrypted": True,
                "delete_on_termination": True,
            },
            tags={"Name": name},
            opts=child,
        )

    def _security_group(self) -> pulumi.Output[str]:
        """Your side's address reaches the one port, the nodes reach what is behind it; nobody else does."""
        name, settings, network = f"{self._name}-gateway", self._settings, self._args.network
        child = pulumi.ResourceOptions(parent=self)
        group = SecurityGroup(name, "WireGuard gateway of the cluster", vpc_id=network.vpc_id, opts=child)
        group.let_in(
            f"{name}-tunnel",
            "the other end of the tunnel",
            port=settings.port,
            protocol="udp",
            cidr_ipv4=f"{settings.address}/32",
        )
        group.let_in(
            f"{name}-nodes",
            "what nodes send on-prem",
            referenced_security_group_id=network.node_security_group_id,
        )
        group.let_out(f"{name}-out", cidr_ipv4="0.0.0.0/0")
        group.close()
        return group.id

    def _profile(self, parameter: aws.ssm.Parameter) -> pulumi.Output[str]:
        """A role that may read this one key, and nothing else."""
        name, child = f"{self._args.cluster}-wireguard", pulumi.ResourceOptions(parent=self)
        role = Role(
            self._name,
            cluster=self._args.cluster,
            called=name,
            trust=trust_of("ec2.amazonaws.com"),
            description="WireGuard gateway of the cluster",
            parent=self,
        )
        role.grant(self._name, "read-own-key", parameter.arn.apply(_may_read))
        role.close()
        path = path_of(self._args.cluster)
        return aws.iam.InstanceProfile(self._name, name=name, path=path, role=role.name, opts=child).name


def _may_read(parameter: str) -> str:
    read = {"Effect": "Allow", "Action": "ssm:GetParameter", "Resource": parameter}
    return json.dumps({"Version": "2012-10-17", "Statement": [read]})
