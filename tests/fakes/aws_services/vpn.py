"""Calls of EC2 for VPN connections that moto does not know: static routes, and what a route table learns.

Nothing is routed here. What is asked for is kept with moto's own objects, whose descriptions then tell it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from moto.ec2.models import ec2_backends

from stacks.local.wire.aws_protocol import Call, Refused, Reply, refusal


class Vpn:
    """Of every region of one account."""

    def __init__(self, account: str) -> None:
        self._account = account
        self._calls: Final[Mapping[str, Callable[[Any, Mapping[str, Any]], None]]] = {
            "CreateVpnConnectionRoute": _add_route,
            "DeleteVpnConnectionRoute": _take_route,
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
