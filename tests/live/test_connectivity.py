"""A tunnel to on-prem, brought up by the real engine against the stand-in for AWS; and one that carries packets."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stacks.local.ground.lifecycle import ENGINE_BINARIES
from stacks.local.toolchain.pulumi_engine import EngineSettings, pulumi_destroy, pulumi_preview, pulumi_up
from stacks.local.toolchain.tools import ensure_tools
from tests.live import stacks
from tests.live.stacks import client, everything_in

pytestmark = pytest.mark.live

GROUPS = [{"name": "cpu", "instance_type": "m5.4xlarge", "zones": ["us-east-1a", "us-east-1b"], "max": 2}]
IMAGE = "ami-12c6146b"
OVERRIDES: dict[str, Any] = {
    "spillway:network": {"on_prem": ["10.20.0.0/16"], "trusted": ["10.20.0.0/16"]},
    "spillway:inventory": None,
}


def settings_for(folder: Path, *, aws_url: str, connectivity: dict[str, Any]) -> EngineSettings:
    """A stack with a connection and no machines."""
    tools = dict(ensure_tools(ENGINE_BINARIES, progress=print))
    made = stacks.settings_for(folder, aws_url=aws_url, tools=tools, cluster="lab", groups=GROUPS)
    return replace(made, overrides={**OVERRIDES, "spillway:connectivity": connectivity})


def state_of(settings: EngineSettings) -> str:
    """Every byte that the engine keeps."""
    files = sorted((settings.directory / "state").rglob("*"))
    return "".join(path.read_text(encoding="utf-8", errors="replace") for path in files if path.is_file())


def test_a_vpn_comes_up_stays_and_goes(aws_url: str, tmp_path: Path) -> None:
    """Its keys are in the state encrypted only; destroyed, nothing of it is left."""
    before = everything_in(aws_url)
    connectivity = {"kind": "vpn", "address": "198.51.100.7"}
    settings = settings_for(tmp_path, aws_url=aws_url, connectivity=connectivity)
    outputs = pulumi_up(settings)
    ec2 = client("ec2", aws_url)
    [connection] = [one for one in ec2.describe_vpn_connections()["VpnConnections"] if one["State"] == "available"]
    assert [route["DestinationCidrBlock"] for route in connection["Routes"]] == ["10.20.0.0/16"]
    tables = ec2.describe_route_tables(RouteTableIds=list(outputs.route_tables.values()))["RouteTables"]
    assert {one["GatewayId"] for table in tables for one in table["PropagatingVgws"]} == {connection["VpnGatewayId"]}
    assert len(outputs.vpn_tunnels) == 2
    assert outputs.vpn_keys == "[secret]"
    assert pulumi_preview(settings), "a second look finds all as it was"
    pulumi_destroy(settings)
    assert everything_in(aws_url) == before
    assert not [one for one in ec2.describe_vpn_connections()["VpnConnections"] if one["State"] != "deleted"]
    assert not [one for one in ec2.describe_customer_gateways()["CustomerGateways"] if one["State"] != "deleted"]


def test_a_wireguard_gateway_comes_up_with_its_key_where_it_alone_reads_it(aws_url: str, tmp_path: Path) -> None:
    """In no user data, no state, no output in clear; an edit of the routing check is found and mended."""
    before = everything_in(aws_url)
    connectivity = {"kind": "wireguard", "address": "198.51.100.7", "ami": IMAGE}
    settings = settings_for(tmp_path, aws_url=aws_url, connectivity=connectivity)
    outputs = pulumi_up(settings)
    ec2, ssm = client("ec2", aws_url), client("ssm", aws_url)
    private = ssm.get_parameter(Name="/spillway/lab/wireguard-key", WithDecryption=True)["Parameter"]["Value"]
    assert len(base64.b64decode(private)) == 32
    [gateway] = [
        one
        for found in ec2.describe_instances()["Reservations"]
        for one in found["Instances"]
        if not one["SourceDestCheck"]
    ]
    said = ec2.describe_instance_attribute(InstanceId=gateway["InstanceId"], Attribute="userData")
    data = base64.b64decode(said["UserData"]["Value"]).decode()
    assert "PostUp = wg set" in data
    for text in (data, state_of(settings), str(outputs)):
        assert private not in text
    assert outputs.wireguard_key == "[secret]"
    assert "AllowedIPs = 10.255.255.1/32, 10.40.0.0/16" in outputs.wireguard_config
    assert pulumi_preview(settings)

    ec2.modify_instance_attribute(InstanceId=gateway["InstanceId"], SourceDestCheck={"Value": True})
    assert not pulumi_preview(settings), "an edit by hand is found"
    pulumi_up(settings, refresh=True)
    [mended] = ec2.describe_instances(InstanceIds=[gateway["InstanceId"]])["Reservations"][0]["Instances"]
    assert mended["SourceDestCheck"] is False
    pulumi_destroy(settings)
    assert everything_in(aws_url) == before
