"""What EC2 refuses of security groups and their rules, and of the ranges of networks.

https://docs.aws.amazon.com/vpc/latest/userguide/amazon-vpc-limits.html
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Any, Final

from stacks.local.wire.aws_protocol import Refused
from tests.fakes.aws_services.validation.lookups import Known, listed

_RULES: Final = 60
"""In one direction, of one security group."""
_TEXT: Final = re.compile(r"[a-zA-Z0-9 ._\-:/()#,@\[\]+=&;{}!$*]{0,255}")
_PORTS: Final = 65535
_NAMED: Final = ("tcp", "udp", "icmp", "icmpv6", "-1")
_WITH_PORTS: Final = ("tcp", "udp", "6", "17")
_VPC, _SUBNET = (16, 28), (16, 28)


def create_security_group(asked: Mapping[str, Any], _: Known) -> None:
    """Name and description."""
    name, about = str(asked.get("GroupName", "")), str(asked.get("GroupDescription", ""))
    if not name or name.startswith("sg-") or not _TEXT.fullmatch(name):
        raise Refused("InvalidParameterValue", f"Value ({name}) for parameter GroupName is invalid.")
    if not about:
        raise Refused("MissingParameter", "The request must contain the parameter GroupDescription")
    if not _TEXT.fullmatch(about):
        raise Refused("InvalidParameterValue", f"Value ({about}) for parameter GroupDescription is invalid.")


def authorize_ingress(asked: Mapping[str, Any], known: Known) -> None:
    """Rules in."""
    _authorize(asked, known, egress=False)


def authorize_egress(asked: Mapping[str, Any], known: Known) -> None:
    """Rules out."""
    _authorize(asked, known, egress=True)


def create_vpc(asked: Mapping[str, Any], _: Known) -> None:
    """Its range."""
    _range(str(asked.get("CidrBlock", "")), sizes=_VPC, code="InvalidVpc.Range")


def create_subnet(asked: Mapping[str, Any], _: Known) -> None:
    """Its range."""
    _range(str(asked.get("CidrBlock", "")), sizes=_SUBNET, code="InvalidSubnet.Range")


def delete_in_use(asked: Mapping[str, Any], known: Known) -> None:
    """A VPC, a subnet or a security group that something still stands in, or that a rule names.

    https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html: DependencyViolation.
    """
    thing = str(asked.get("VpcId") or asked.get("SubnetId") or asked.get("GroupId") or "")
    holders = known.holders_of(thing)
    if holders:
        message = f"The resource '{thing}' has dependencies and cannot be deleted: {', '.join(sorted(holders))}"
        raise Refused("DependencyViolation", message)


def detach_internet_gateway(asked: Mapping[str, Any], known: Known) -> None:
    """While addresses in the VPC are reached through it: DependencyViolation, as above."""
    vpc = str(asked.get("VpcId", ""))
    if known.bound_to(vpc):
        raise Refused(
            "DependencyViolation",
            f"Network {vpc} has some mapped public address(es). Please unmap those public address(es) before "
            "detaching the gateway.",
        )


def release_address(asked: Mapping[str, Any], known: Known) -> None:
    """While something has it: InvalidIPAddress.InUse, as above."""
    bound = known.bound_to(str(asked.get("AllocationId", "")))
    if bound:
        raise Refused("InvalidIPAddress.InUse", f"Address {bound[0]} is in use.")


def delete_vpn_gateway(asked: Mapping[str, Any], known: Known) -> None:
    """Of either end: detached first, and without connections.

    https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DeleteVpnGateway.html
    https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DeleteCustomerGateway.html
    """
    gateway = str(asked.get("VpnGatewayId") or asked.get("CustomerGatewayId") or "")
    holders = known.tunnels_of(gateway)
    if holders:
        raise Refused("IncorrectState", f"The gateway '{gateway}' is in use: {', '.join(sorted(holders))}")


def _authorize(asked: Mapping[str, Any], known: Known, *, egress: bool) -> None:
    permissions = listed(asked, "IpPermissions")
    sources = sum(len(_sources(one)) for one in permissions)
    group = str(asked.get("GroupId", ""))
    if known.rules_of(group, egress=egress) + sources > _RULES:
        raise Refused(
            "RulesPerSecurityGroupLimitExceeded",
            "The maximum number of rules per security group has been reached.",
        )
    for permission in permissions:
        _protocol_and_ports(permission)
        for source in _sources(permission):
            _source(source)


def _protocol_and_ports(permission: Mapping[str, Any]) -> None:
    protocol = str(permission.get("IpProtocol", ""))
    if protocol not in _NAMED and not (protocol.isdigit() and int(protocol) <= 255):
        raise Refused("InvalidParameterValue", f"Invalid value '{protocol}' for IP protocol. Unknown protocol.")
    first, last = permission.get("FromPort"), permission.get("ToPort")
    if protocol not in _WITH_PORTS:
        return
    if first is None or last is None:
        raise Refused("MissingParameter", "The request must contain the parameters FromPort and ToPort for tcp and udp")
    if not 0 <= int(first) <= int(last) <= _PORTS:
        raise Refused("InvalidParameterValue", f"Invalid {protocol.upper()} port range ({first}-{last}).")


def _sources(permission: Mapping[str, Any]) -> list[Any]:
    kinds = (("IpRanges",), ("Ipv6Ranges",), ("UserIdGroupPairs", "Groups"), ("PrefixListIds",))
    return [source for names in kinds for source in listed(permission, *names)]


def _source(source: Mapping[str, Any]) -> None:
    about = str(source.get("Description", ""))
    if not _TEXT.fullmatch(about):
        raise Refused(
            "InvalidParameterValue",
            f"Invalid rule description '{about}'. Valid descriptions are strings less than "
            "256 characters from the following set: a-zA-Z0-9. _-:/()#,@[]+=&;{}!$*",
        )
    block = source.get("CidrIp") or source.get("CidrIpv6")
    if block is not None:
        try:
            ipaddress.ip_network(str(block), strict=False)
        except ValueError:
            raise Refused("InvalidParameterValue", f"CIDR block {block} is malformed") from None


def _range(text: str, *, sizes: tuple[int, int], code: str) -> None:
    try:
        network = ipaddress.IPv4Network(text, strict=False)
    except ValueError:
        raise Refused("InvalidParameterValue", f"Value ({text}) for parameter cidrBlock is invalid.") from None
    if not sizes[0] <= network.prefixlen <= sizes[1]:
        raise Refused(code, f"The CIDR '{text}' is invalid.")
