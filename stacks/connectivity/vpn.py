"""An IPsec connection of two tunnels to a router of yours."""

from __future__ import annotations

from typing import Any

import pulumi
import pulumi_aws as aws

from stacks.connectivity.routes import ConnectivityArgs, Fields, attached, dashed, routes
from stacks.nodes.on_prem_machines import OnPremProvider, PresharedKey
from stacks.settings.on_prem import VpnSettings


class Vpn(pulumi.ComponentResource):
    """A customer gateway, a connection of two tunnels with keys of ours, and the way to it."""

    fields: Fields

    def __init__(
        self, name: str, args: ConnectivityArgs, settings: VpnSettings, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("spillway:connectivity:Vpn", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        maker = pulumi.ResourceOptions(parent=self, provider=OnPremProvider(f"{name}-keys", None, child))
        keys = [PresharedKey(f"{name}-tunnel{number}", rotate=settings.rotate, opts=maker).key for number in (1, 2)]
        router = aws.ec2.CustomerGateway(
            name,
            bgp_asn=str(settings.asn),
            ip_address=settings.address,
            type="ipsec.1",
            tags={"Name": name},
            opts=child,
        )
        connection = aws.ec2.VpnConnection(
            name,
            customer_gateway_id=router.id,
            type="ipsec.1",
            static_routes_only=settings.routing == "static",
            **self._way_in(name, args, settings),
            **_tunnels(settings, keys),
            tags={"Name": name},
            opts=child,
        )
        if settings.routing == "static":
            for block in args.on_prem:
                aws.ec2.VpnConnectionRoute(
                    f"{name}-{dashed(block)}",
                    destination_cidr_block=block,
                    vpn_connection_id=connection.id,
                    opts=child,
                )
        inside = [tunnel.inside or "" for tunnel in settings.tunnels]
        self.fields = {
            "vpn_tunnels": [
                {"address": connection.tunnel1_address, "inside": inside[0]},
                {"address": connection.tunnel2_address, "inside": inside[1]},
            ],
            "vpn_keys": pulumi.Output.json_dumps(keys),
        }
        self.register_outputs({"connectionId": connection.id})

    def _way_in(self, name: str, args: ConnectivityArgs, settings: VpnSettings) -> dict[str, Any]:
        """A gateway of the VPC's own, which tells its route tables what it learns; or the transit gateway."""
        if settings.transit_gateway:
            after = [attached(name, args, settings.transit_gateway, parent=self)]
            routes(name, args, {"transit_gateway_id": settings.transit_gateway}, parent=self, after=after)
            return {"transit_gateway_id": settings.transit_gateway}
        child = pulumi.ResourceOptions(parent=self)
        gateway = aws.ec2.VpnGateway(
            name,
            vpc_id=args.network.vpc_id,
            amazon_side_asn=str(settings.amazon_asn),
            tags={"Name": name},
            opts=child,
        )
        for zone, table in args.network.route_tables.items():
            aws.ec2.VpnGatewayRoutePropagation(
                f"{name}-{zone}", vpn_gateway_id=gateway.id, route_table_id=table, opts=child
            )
        return {"vpn_gateway_id": gateway.id}


def _tunnels(settings: VpnSettings, keys: list[pulumi.Output[str]]) -> dict[str, Any]:
    """Arguments of the two tunnels: IKE version 2 only, with keys of ours."""
    arguments: dict[str, Any] = {}
    for number, (tunnel, key) in enumerate(zip(settings.tunnels, keys, strict=True), start=1):
        arguments[f"tunnel{number}_preshared_key"] = key
        arguments[f"tunnel{number}_ike_versions"] = ["ikev2"]
        if tunnel.inside:
            arguments[f"tunnel{number}_inside_cidr"] = tunnel.inside
    return arguments
