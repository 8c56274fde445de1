"""What there is in one region of the stand-in, as the checks of calls ask for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from moto.ec2.models import EC2Backend
from moto.ec2.models.instance_types import INSTANCE_TYPES
from moto.iam.models import iam_backends

from stacks.local.fake_aws.placement_groups import placement_groups


class Inventory:
    """What there is in one region, for ``validation/validate.py``."""

    def __init__(self, backend: EC2Backend) -> None:
        self._backend = backend

    def has_instance_type(self, name: str) -> bool:
        """Whether EC2 has such a type."""
        return name in INSTANCE_TYPES

    def has_image(self, image: str) -> bool:
        """Whether there is such an image."""
        return image in self._backend.amis

    def has_security_group(self, group: str) -> bool:
        """Whether there is such a security group."""
        return self._backend.get_security_group_from_id(group) is not None

    def has_subnet(self, subnet: str) -> bool:
        """Whether there is such a subnet."""
        return any(subnet in zone for zone in self._backend.subnets.values())

    def has_principal(self, arn: str) -> bool:
        """Whether there is such a role or user, as far as this account knows."""
        account, _, what = arn.partition(":iam::")[2].partition(":")
        if account != self._backend.account_id or what == "root":
            return True
        iam = iam_backends[account]["aws"]
        return arn in {one.arn for one in (*iam.roles.values(), *iam.users.values())}

    def has_placement_group(self, name: str) -> bool:
        """Whether there is such a placement group."""
        return name in placement_groups(self._backend).strategies

    def most_adapters(self, instance_type: str) -> int:
        """Elastic Fabric Adapters that a type can have."""
        network = INSTANCE_TYPES[instance_type]["NetworkInfo"]
        return int(network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0))

    def network_cards(self, instance_type: str) -> int:
        """How many a type has."""
        return int(INSTANCE_TYPES[instance_type]["NetworkInfo"]["MaximumNetworkCards"])

    def holders_of(self, thing: str) -> list[str]:
        """Ids of what must go before a VPC, a subnet or a security group may."""
        groups = [one for vpc in self._backend.groups.values() for one in vpc.values()]
        named = [one.id for one in groups if one.vpc_id == thing and not one.is_default]
        referring = [one.id for one in groups if one.id != thing and thing in _groups_in_rules_of(one)]
        gateways = [one.id for one in self._backend.internet_gateways.values() if one.vpc and one.vpc.id == thing]
        subnets = [one.id for zone in self._backend.subnets.values() for one in zone.values() if one.vpc_id == thing]
        return named + referring + gateways + subnets + [one.id for one in self._interfaces() if thing in _places(one)]

    def bound_to(self, thing: str) -> list[str]:
        """Elastic addresses that something has: that of an allocation, or those in a VPC."""
        live = {one.id for one in self._interfaces()}
        bound = [one for one in self._backend.addresses if one.eni and one.eni.id in live]
        return [one.public_ip for one in bound if thing in (one.allocation_id, one.eni.subnet.vpc_id)]

    def tunnels_of(self, gateway: str) -> list[str]:
        """Ids of what must go before a customer's or a virtual private gateway may: VPN connections, attachments."""
        found = [
            one.id
            for one in self._backend.vpn_connections.values()
            if one.state != "deleted" and gateway in (one.customer_gateway_id, one.vpn_gateway_id)
        ]
        virtual = self._backend.vpn_gateways.get(gateway)
        attached = virtual.attachments.items() if virtual is not None else ()
        return found + [vpc for vpc, one in attached if one.state == "attached"]

    def _interfaces(self) -> list[Any]:
        """Those that AWS has: moto keeps the ones of instances and NAT gateways that are gone."""
        dead = {one._eni.id for one in self._backend.nat_gateways.values() if one.state == "deleted"}
        return [
            one
            for one in self._backend.enis.values()
            if one.id not in dead and not (one.instance and one.instance.state == "terminated")
        ]

    def rules_of(self, group: str, *, egress: bool) -> int:
        """How many rules a security group has in one direction."""
        found = self._backend.get_security_group_from_id(group)
        return len((found.egress_rules if egress else found.ingress_rules) if found else [])

    def launch_template(self, specification: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The data of a template in the version that is named; ``None`` where there is no such template."""
        by_name = self._backend.launch_template_name_to_ids.get(specification.get("LaunchTemplateName", ""))
        template = self._backend.launch_templates.get(by_name or specification.get("LaunchTemplateId", ""))
        if template is None:
            return None
        return dict(template.get_version(specification.get("Version") or "$Default").data)


def _places(interface: Any) -> set[str]:
    return {interface.subnet.id, interface.subnet.vpc_id, *(group.id for group in interface.group_set)}


def _groups_in_rules_of(group: Any) -> set[str]:
    rules = [*group.ingress_rules, *group.egress_rules]
    return {source.get("GroupId") for rule in rules for source in [rule.source_group or {}]}
