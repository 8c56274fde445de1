"""How both sides reach each other: each option against mocks, and what is refused before anything is made."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from autoscaler.model.errors import BadInput
from stacks.on_prem_provider.keys import preshared_key, wireguard_pair
from stacks.programs import build
from stacks.settings.stack import read_settings
from tests.test_stacks.declared import Declared, declare, of_type, plans
from tests.test_stacks.graph import graph

ON_PREM = {"on_prem": ["10.20.0.0/16", "10.21.0.0/16"]}
GROUPS = [{"name": "gpu", "instance_type": "g5.12xlarge", "zones": ["us-east-1a", "us-east-1b"], "max": 4}]
KEY = wireguard_pair()["publicKey"]
WIREGUARD = {"kind": "wireguard", "address": "198.51.100.7", "public_key": KEY}
VPN = {"kind": "vpn", "address": "198.51.100.7"}


def made(folder: Path, connectivity: dict[str, Any], **network: Any) -> list[Declared]:
    """What a stack of two zones declares."""
    these = plans(folder, *GROUPS, network={**ON_PREM, **network}, connectivity=connectivity)
    return declare(lambda: build(these))


def ways_on_prem(declared: list[Declared]) -> dict[str, dict[str, Any]]:
    """Routes from the nodes to the other side."""
    routes = of_type(declared, "aws:ec2/route:Route")
    return {name: route for name, route in routes.items() if route["destinationCidrBlock"] != "0.0.0.0/0"}


@pytest.mark.parametrize(
    ("via", "target"),
    [
        ("tgw-0123456789abcdef0", "transitGatewayId"),
        ("vgw-0123456789abcdef0", "gatewayId"),
        ("pcx-0123456789abcdef0", "vpcPeeringConnectionId"),
    ],
)
def test_routed_by_what_is_there(tmp_path: Path, via: str, target: str) -> None:
    """Each zone's nodes have a route to each network; a transit gateway has the VPC attached."""
    declared = made(tmp_path, {"kind": "routed", "via": via})
    routes = ways_on_prem(declared)
    assert len(routes) == 4
    assert {route[target] for route in routes.values()} == {via}
    attached = of_type(declared, "aws:ec2transitgateway/vpcAttachment:VpcAttachment")
    assert len(attached) == (1 if via.startswith("tgw") else 0)


def test_routed_by_others_makes_nothing(tmp_path: Path) -> None:
    """Routes that somebody else sees to."""
    assert ways_on_prem(made(tmp_path, {"kind": "routed"})) == {}


def test_a_wireguard_gateway_is_reached_by_the_other_end_alone(tmp_path: Path) -> None:
    """One UDP port from one address; its disk is encrypted, its metadata service wants a token."""
    declared = made(tmp_path, WIREGUARD)
    [gateway] = of_type(declared, "aws:ec2/instance:Instance").values()
    assert gateway["sourceDestCheck"] is False
    assert gateway["metadataOptions"]["httpTokens"] == "required"
    assert gateway["rootBlockDevice"]["encrypted"] is True
    assert gateway["subnetId"] == "lab-public-us-east-1a-id"
    rules = of_type(declared, "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule")
    own = {name: rule for name, rule in rules.items() if "gateway" in name}
    assert {rule.get("cidrIpv4") or rule["referencedSecurityGroupId"] for rule in own.values()} == {
        "198.51.100.7/32",
        "lab-nodes-id",
    }
    [tunnel] = [rule for rule in own.values() if rule.get("cidrIpv4")]
    assert (tunnel["ipProtocol"], tunnel["fromPort"], tunnel["toPort"]) == ("udp", 51820, 51820)
    assert {route["networkInterfaceId"] for route in ways_on_prem(declared).values()} == {"lab-on-prem-eni"}


def test_a_wireguard_key_is_in_a_parameter_that_its_gateway_alone_may_read(tmp_path: Path) -> None:
    """Not in user data; each end knows the other's public key."""
    declared = made(tmp_path, WIREGUARD)
    [parameter] = of_type(declared, "aws:ssm/parameter:Parameter").values()
    assert parameter["type"] == "SecureString"
    assert "PRIVATE-lab-on-prem-aws" in str(parameter["value"])
    [gateway] = of_type(declared, "aws:ec2/instance:Instance").values()
    data = base64.b64decode(gateway["userDataBase64"]).decode()
    assert "PRIVATE" not in data
    assert KEY in data
    [policy] = [one for name, one in of_type(declared, "aws:iam/rolePolicy:RolePolicy").items() if "on-prem" in name]
    [right] = json.loads(policy["policy"])["Statement"]
    assert right == {"Effect": "Allow", "Action": "ssm:GetParameter", "Resource": "arn:aws:test:::lab-on-prem-key"}


def test_a_pair_for_your_end_is_made_where_you_give_no_key(tmp_path: Path) -> None:
    """Its private half is a secret output; with a key of yours there is none to tell."""
    these = plans(tmp_path, *GROUPS, network=ON_PREM, connectivity={**WIREGUARD, "public_key": None})
    fields: dict[str, Any] = {}
    declared = declare(lambda: fields.update(build(these)))
    assert len(of_type(declared, "spillway-onprem:index:WireguardKey")) == 2
    assert "wireguard_key" in fields
    mine: dict[str, Any] = {}
    declare(lambda: mine.update(build(plans(tmp_path, *GROUPS, network=ON_PREM, connectivity=WIREGUARD))))
    assert "wireguard_config" in mine
    assert "wireguard_key" not in mine


def test_a_vpn_with_static_routes(tmp_path: Path) -> None:
    """Two tunnels with a key each; the gateway tells every route table what it knows."""
    declared = made(tmp_path, {**VPN, "tunnels": [{"inside": "169.254.77.0/30"}, {}]})
    [connection] = of_type(declared, "aws:ec2/vpnConnection:VpnConnection").values()
    assert connection["staticRoutesOnly"] is True
    assert connection["tunnel1InsideCidr"] == "169.254.77.0/30"
    assert connection["tunnel1IkeVersions"] == ["ikev2"]
    assert "KEY-lab-on-prem-tunnel1" in str(connection["tunnel1PresharedKey"])
    assert "KEY-lab-on-prem-tunnel2" in str(connection["tunnel2PresharedKey"])
    routes = of_type(declared, "aws:ec2/vpnConnectionRoute:VpnConnectionRoute").values()
    assert {route["destinationCidrBlock"] for route in routes} == set(ON_PREM["on_prem"])
    assert len(of_type(declared, "aws:ec2/vpnGatewayRoutePropagation:VpnGatewayRoutePropagation")) == 2


def test_a_vpn_with_bgp_has_no_static_routes(tmp_path: Path) -> None:
    """The routers tell each other."""
    declared = made(tmp_path, {**VPN, "routing": "bgp", "asn": 65010})
    [router] = of_type(declared, "aws:ec2/customerGateway:CustomerGateway").values()
    assert (router["bgpAsn"], router["ipAddress"]) == ("65010", "198.51.100.7")
    assert not of_type(declared, "aws:ec2/vpnConnectionRoute:VpnConnectionRoute")
    [connection] = of_type(declared, "aws:ec2/vpnConnection:VpnConnection").values()
    assert connection["staticRoutesOnly"] is False


def test_a_vpn_at_a_transit_gateway_makes_no_gateway_of_its_own(tmp_path: Path) -> None:
    """The VPC is attached to it, and the nodes' routes lead there."""
    declared = made(tmp_path, {**VPN, "routing": "bgp", "transit_gateway": "tgw-0123456789abcdef0"})
    assert not of_type(declared, "aws:ec2/vpnGateway:VpnGateway")
    assert len(ways_on_prem(declared)) == 4
    assert len(of_type(declared, "aws:ec2transitgateway/vpcAttachment:VpcAttachment")) == 1


@pytest.mark.parametrize("connectivity", [{**WIREGUARD, "public_key": None}, VPN])
def test_every_key_is_a_secret_on_its_way(tmp_path: Path, connectivity: dict[str, Any]) -> None:
    """In the inputs of whatever takes it."""
    these = plans(tmp_path, *GROUPS, network=ON_PREM, connectivity=connectivity)
    drawn = graph(lambda: build(these))
    if connectivity["kind"] == "vpn":
        assert {"tunnel1PresharedKey", "tunnel2PresharedKey"} <= drawn["VpnConnection lab-on-prem"].secrets
    else:
        assert "value" in drawn["Parameter lab-on-prem-key"].secrets
        assert "userDataBase64" not in drawn["Instance lab-on-prem"].secrets


@pytest.mark.parametrize(
    ("connectivity", "told"),
    [
        ({"kind": "pigeon"}, "spillway:connectivity"),
        ({"kind": "routed", "via": "igw-1"}, "spillway:connectivity.via = 'igw-1'"),
        ({"kind": "wireguard"}, "address is missing: your side's address on the internet"),
        ({**WIREGUARD, "address": "10.0.0.1"}, "address = '10.0.0.1': must be an address of the internet"),
        ({**WIREGUARD, "public_key": "abc"}, "must be the public key of your side, as `wg pubkey` prints it"),
        ({**WIREGUARD, "tunnel": "10.255.0.0/16"}, "must be a private /30"),
        ({**WIREGUARD, "port": 53}, "spillway:connectivity.port = 53"),
        ({**VPN, "routing": "rip"}, "spillway:connectivity.routing = 'rip'"),
        ({**VPN, "asn": 64512}, "asn and amazon_asn are both 64512"),
        ({**VPN, "transit_gateway": "tgw-0123456789abcdef0"}, "routing must be bgp with a transit_gateway"),
        ({**VPN, "tunnels": [{"inside": "169.254.0.0/30"}, {}]}, "that AWS has not reserved"),
        (
            {**VPN, "tunnels": [{"inside": "169.254.77.0/30"}, {"inside": "169.254.77.0/30"}]},
            "the same inside network 169.254.77.0/30",
        ),
    ],
)
def test_a_mistake_is_told_with_its_key(connectivity: dict[str, Any], told: str) -> None:
    """Before any resource is touched."""
    configuration = {"spillway:policy": "p.yaml", "spillway:connectivity": connectivity}
    with pytest.raises(BadInput) as refusal:
        read_settings(configuration, stack="prod")
    assert told in str(refusal.value)


@pytest.mark.parametrize(
    ("connectivity", "network", "told"),
    [
        (VPN, {"on_prem": []}, "needs spillway:network.on_prem: which networks are on the other side?"),
        (WIREGUARD, {"nat": "none"}, "needs a public subnet for its gateway"),
        ({**WIREGUARD, "tunnel": "10.40.9.0/30"}, {}, "spillway:connectivity.tunnel = 10.40.9.0/30 and the VPC"),
    ],
)
def test_what_does_not_fit_the_rest_of_the_stack_is_refused(
    tmp_path: Path, connectivity: dict[str, Any], network: dict[str, Any], told: str
) -> None:
    """Networks, subnets, and the tunnel between them."""
    with pytest.raises(BadInput) as refusal:
        plans(tmp_path, *GROUPS, network={**ON_PREM, **network}, connectivity=connectivity)
    assert told in str(refusal.value)


def test_keys_are_such_as_their_users_take() -> None:
    """32 bytes in base64; letters and digits that begin with a letter."""
    pair = wireguard_pair()
    assert len(base64.b64decode(pair["privateKey"])) == len(base64.b64decode(pair["publicKey"])) == 32
    key = preshared_key()["key"]
    assert key.isalnum()
    assert key[0].isalpha()
    assert 8 <= len(key) <= 64
    assert preshared_key()["key"] != key
