"""Calls of EC2 for VPN connections that moto does not know: static routes, changes, and what a route table learns.

Nothing is routed here. What is asked for is kept with moto's own objects, whose descriptions then tell it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from moto.ec2.models import ec2_backends

from stacks.local.wire.aws_protocol import Call, Refused, Reply, nested, refusal

_KEY: Final = re.compile(r"[A-Za-z1-9._][A-Za-z0-9._]{7,63}")


class Vpn:
    """Of every region of one account."""

    def __init__(self, account: str) -> None:
        self._account = account
        self._calls: Final[Mapping[str, Callable[[Any, Mapping[str, Any]], None]]] = {
            "CreateVpnConnectionRoute": _add_route,
            "DeleteVpnConnectionRoute": _take_route,
            "ModifyVpnConnection": _move,
            "ModifyVpnTunnelOptions": _change_tunnel,
            "EnableVgwRoutePropagation": _learn,
            "DisableVgwRoutePropagation": _forget,
        }

    def answer(self, call: Call) -> Reply | None:
        """What EC2 says to one call; ``None`` where moto knows it."""
        own = self._calls.get(call.action)
        if own is None:
            return None
        try:
            own(ec2_backends[self._account][call.region], call.parameters)
        except Refused as refused:
            return refusal(call, refused)
        name = f"{call.action}Response"
        body = f'<{name} xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><return>true</return></{name}>'
        return 200, "text/xml", body.encode()


def _add_route(backend: Any, asked: Mapping[str, Any]) -> None:
    connection = _connection(backend, asked)
    block = asked["DestinationCidrBlock"]
    routes = getattr(connection, "routes", [])
    if any(one["DestinationCidrBlock"] == block for one in routes):
        raise Refused("InvalidParameterValue", f"the route {block} exists")
    connection.routes = [*routes, {"DestinationCidrBlock": block, "Source": "Static", "State": "available"}]


def _take_route(backend: Any, asked: Mapping[str, Any]) -> None:
    connection = _connection(backend, asked)
    block = asked["DestinationCidrBlock"]
    connection.routes = [one for one in getattr(connection, "routes", []) if one["DestinationCidrBlock"] != block]


def _move(backend: Any, asked: Mapping[str, Any]) -> None:
    """To another router, or another end of AWS's: https://docs.aws.amazon.com/vpn/latest/s2svpn/modify-vpn-target.html."""
    connection = _connection(backend, asked)
    if "CustomerGatewayId" in asked:
        connection.customer_gateway_id = backend.get_customer_gateway(asked["CustomerGatewayId"]).id
    ends = {name: asked[name] for name in ("VpnGatewayId", "TransitGatewayId") if name in asked}
    if len(ends) > 1:
        raise Refused("InvalidParameterCombination", "a VPN connection ends at one gateway")
    if ends:
        connection.vpn_gateway_id = ends.get("VpnGatewayId")
        connection.transit_gateway_id = ends.get("TransitGatewayId")


def _change_tunnel(backend: Any, asked: Mapping[str, Any]) -> None:
    """One tunnel at a time: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_ModifyVpnTunnelOptions.html."""
    connection = _connection(backend, asked)
    outside = asked.get("VpnTunnelOutsideIpAddress", "")
    if f"<ip_address>{outside}</ip_address>" not in connection.customer_gateway_configuration:
        raise Refused("InvalidParameterValue", f"{outside} is no tunnel of {connection.id}")
    wanted = nested({key: str(value) for key, value in asked.items()}).get("TunnelOptions", {})
    key = wanted.get("PreSharedKey")
    if key is not None and not _KEY.fullmatch(key):
        raise Refused("InvalidParameterValue", "a pre-shared key has 8 to 64 letters, digits, periods and underscores")
    before = (connection.options or {}).get("TunnelOptions", [])
    changed = {"OutsideIpAddress": outside} | ({"PreSharedKey": key} if key else {})
    connection.options = {"TunnelOptions": [*before, changed]}  # all changes: moto's two tunnels have one address


def _learn(backend: Any, asked: Mapping[str, Any]) -> None:
    table, gateway = _table(backend, asked), asked["GatewayId"]
    attached = getattr(backend.vpn_gateways.get(gateway), "attachments", {})
    if table.vpc_id not in attached:
        raise Refused("Gateway.NotAttached", f"resource {gateway} is not attached to network {table.vpc_id}")
    table.propagating_vgws = [*getattr(table, "propagating_vgws", []), {"GatewayId": gateway}]


def _forget(backend: Any, asked: Mapping[str, Any]) -> None:
    table = _table(backend, asked)
    table.propagating_vgws = [
        one for one in getattr(table, "propagating_vgws", []) if one["GatewayId"] != asked["GatewayId"]
    ]


def _connection(backend: Any, asked: Mapping[str, Any]) -> Any:
    connection = backend.vpn_connections.get(asked["VpnConnectionId"])
    if connection is None or connection.state == "deleted":
        raise Refused(
            "InvalidVpnConnectionID.NotFound", f"the VPN connection {asked['VpnConnectionId']} does not exist"
        )
    return connection


def _table(backend: Any, asked: Mapping[str, Any]) -> Any:
    table = backend.route_tables.get(asked["RouteTableId"])
    if table is None:
        raise Refused("InvalidRouteTableID.NotFound", f"the route table {asked['RouteTableId']} does not exist")
    return table
