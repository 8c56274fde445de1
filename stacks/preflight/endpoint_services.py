"""Services of AWS that machines talk to: which of them need an endpoint in the VPC, and which EC2 has one for.

Where nothing leads out of the VPC, a service without an endpoint is a machine that never joins, and nothing says why.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pulumi
import pulumi_aws as aws

from autoscaler.config.policy import Policy
from autoscaler.model.errors import BadInput
from stacks.network.endpoints import service_name
from stacks.settings.control_plane import EksSettings, ExistingSettings, KubeadmSettings
from stacks.settings.stack import Settings

_ABSENT: Final = ("no matching", "InvalidServiceName", "does not exist", "no results")
_PRICE_LIST: Final = "pricing.api"
_MAKE: Final = "leave network.endpoints out for all that are needed, or add them"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundService:
    """An interface endpoint that can be made in a region, as AWS tells of it."""

    zones: frozenset[str]
    has_name: bool
    """Whether the service's own name can lead to it."""


def needed_services(settings: Settings) -> dict[str, str]:
    """Each service that something in the VPC cannot do without, and what that is. S3 has a gateway in any case."""
    needed: dict[str, str] = {}
    for service, who in _needs(settings):
        needed[service] = f"{needed[service]}, {who}" if service in needed else who
    return dict(sorted(needed.items()))


def check_endpoints(settings: Settings) -> None:
    """Whether the endpoints that the stack file names are enough, where nothing else leads out. Raises ``BadInput``."""
    network = settings.network
    named = network.endpoints
    if named is None:
        return
    if "s3" in named:
        raise BadInput(
            "spillway:network.endpoints names s3, which is reached through a gateway endpoint in any case: take it out"
        )
    if network.nat != "none":
        return
    missing = {service: who for service, who in needed_services(settings).items() if service not in named}
    if missing:
        told = ", ".join(f"{service} (for {who})" for service, who in missing.items())
        raise BadInput(
            f"spillway:network.endpoints lacks {told}, and with network.nat = 'none' nothing else leads there: {_MAKE}"
        )


def check_prices(settings: Settings, policy: Policy, *, source: str) -> None:
    """Whether the autoscaler learns what its groups cost, where the price list cannot be asked. Raises ``BadInput``."""
    network, control_plane = settings.network, settings.control_plane
    runs_here = settings.release is not None and control_plane is not None and control_plane.kind != "existing"
    if network.nat != "none" or not runs_here or _PRICE_LIST in (network.endpoints or ()):
        return
    wrong = [
        f"{source}: groups[{place}] ({entry.name}).usd_per_hour is missing, and with spillway:network.nat = 'none' the "
        "autoscaler cannot ask for AWS's price list, so that it would never grow it: write what a node costs per hour"
        for place, entry in enumerate(policy.groups)
        if entry.usd_per_hour is None and entry.capacity_type == "on-demand"
    ]
    if wrong:
        raise BadInput("\n".join(wrong))


def look_up_services(
    services: tuple[str, ...], *, region: str, provider: aws.Provider
) -> Mapping[str, FoundService | None]:
    """Ask EC2 which of these can have an interface endpoint there; ``None`` for those that cannot."""
    return {service: _look_up(service, region=region, provider=provider) for service in services}


def check_services(found: Mapping[str, FoundService | None], *, zones: tuple[str, ...], region: str) -> None:
    """Whether each can have an endpoint in every zone. Raises ``BadInput`` with every mistake."""
    key = "spillway:network.endpoints"
    see = f"aws ec2 describe-vpc-endpoint-services --region {region} --query ServiceNames lists those that are there"
    wrong = []
    for service, one in found.items():
        if one is None:
            wrong.append(f"{key} names {service!r}, and no service of AWS in {region} has such an endpoint: {see}")
        elif lacking := sorted(set(zones) - one.zones):
            wrong.append(f"{key} names {service!r}, which has no endpoint in {', '.join(lacking)}: take other zones")
        elif not one.has_name:
            wrong.append(f"{key} names {service!r}, whose own name cannot lead to its endpoint: take it out")
    if wrong:
        raise BadInput("\n".join(wrong))


def _needs(settings: Settings) -> Iterator[tuple[str, str]]:
    control_plane = settings.control_plane
    if isinstance(control_plane, EksSettings):
        yield "ec2", "nodeadm and vpc-cni"
        yield "ecr.api", "EKS's own images"
        yield "ecr.dkr", "EKS's own images"
        yield "sts", "the role of vpc-cni"
    if isinstance(control_plane, KubeadmSettings):
        yield "ssm", "the members' secrets"
        yield "ssmmessages", "the members' gates"
    if settings.nodes.roles != "none" or (isinstance(control_plane, ExistingSettings) and control_plane.join_token):
        yield "ssm", "the nodes' tokens"
    if settings.release:
        yield "autoscaling", "the autoscaler"
        yield "ec2", "the autoscaler"
        if isinstance(control_plane, EksSettings):
            yield "sts", "the autoscaler's role"
        if settings.nodes.roles != "none":
            yield "ssm", "the approver"


def _look_up(service: str, *, region: str, provider: aws.Provider) -> FoundService | None:
    try:
        found = aws.ec2.get_vpc_endpoint_service(
            service_name=service_name(service, region),
            service_type="Interface",
            opts=pulumi.InvokeOptions(provider=provider),
        )
    except Exception as error:  # the SDK has no type of its own for a look-up that failed
        if any(said in str(error) for said in _ABSENT):
            return None
        raise
    return FoundService(zones=frozenset(found.availability_zones), has_name=bool(found.private_dns_name))
