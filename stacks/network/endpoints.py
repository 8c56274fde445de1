"""Ways to services of AWS that do not lead through the internet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from stacks.aws.security_groups import SecurityGroup

_HTTPS = 443


@dataclass(frozen=True, kw_only=True)
class EndpointsArgs:
    """What the endpoints of a VPC are made from."""

    name: str
    """Of the network."""
    region: str
    vpc_id: pulumi.Input[str]
    vpc_cidr: str
    subnets: Mapping[str, pulumi.Input[str]]
    """By zone; an interface endpoint has an address in each."""
    route_tables: Mapping[str, pulumi.Input[str]]
    services: tuple[str, ...]
    """With an interface endpoint; the gateway to S3 is there in any case, since it costs nothing."""


class Endpoints(pulumi.ComponentResource):
    """The gateway to S3, and the interface endpoints behind one security group."""

    def __init__(self, name: str, args: EndpointsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("spillway:network:Endpoints", name, None, opts)
        self._args = args
        child = pulumi.ResourceOptions(parent=self)
        aws.ec2.VpcEndpoint(
            f"{args.name}-s3",
            vpc_id=args.vpc_id,
            vpc_endpoint_type="Gateway",
            service_name=service_name("s3", args.region),
            route_table_ids=list(args.route_tables.values()),
            tags={"Name": f"{args.name}-s3"},
            opts=child,
        )
        if args.services:
            group = self._security_group(f"{args.name}-endpoints")
            for service in args.services:
                self._interface(service, group)
        self.register_outputs({})

    def _security_group(self, name: str) -> pulumi.Output[str]:
        """Whoever is in the VPC may ask; an endpoint asks nobody."""
        group = SecurityGroup(
            name, "Endpoints of AWS services", vpc_id=self._args.vpc_id, opts=pulumi.ResourceOptions(parent=self)
        )
        group.let_in(f"{name}-https", "HTTPS from the VPC", port=_HTTPS, cidr_ipv4=self._args.vpc_cidr)
        group.close()
        return group.id

    def _interface(self, service: str, group: pulumi.Output[str]) -> None:
        args = self._args
        name = f"{args.name}-{service.replace('.', '-')}"
        aws.ec2.VpcEndpoint(
            name,
            vpc_id=args.vpc_id,
            vpc_endpoint_type="Interface",
            service_name=service_name(service, args.region),
            subnet_ids=list(args.subnets.values()),
            security_group_ids=[group],
            private_dns_enabled=True,  # the service's own name leads to the endpoint
            tags={"Name": name},
            opts=pulumi.ResourceOptions(parent=self),
        )


def service_name(service: str, region: str) -> str:
    """``com.amazonaws.us-east-1.ecr.api``; the Chinese partition has its own prefix for most services."""
    china = region.startswith("cn-") and service not in ("s3", "ssm", "ssmmessages", "logs")
    return f"{'cn.' if china else ''}com.amazonaws.{region}.{service}"
