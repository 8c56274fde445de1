"""What the stand-ins for plugins answer the engine: what changes, and what is made anew."""

from __future__ import annotations

from typing import Any

import pytest

from stacks.local.pulumi_plugins.aws.registry import KINDS
from stacks.local.pulumi_plugins.plugin import difference


@pytest.mark.parametrize(
    ("token", "before", "after", "replaces"),
    [
        ("aws:ec2/vpcEndpoint:VpcEndpoint", {"privateDnsEnabled": True}, {"privateDnsEnabled": False}, True),
        (
            "aws:ec2/instance:Instance",
            {"rootBlockDevice": {"kmsKeyId": "a", "volumeSize": 8}},
            {"rootBlockDevice": {"kmsKeyId": "b", "volumeSize": 8}},
            True,
        ),
        (
            "aws:ec2/instance:Instance",
            {"rootBlockDevice": {"kmsKeyId": "a", "volumeSize": 8}},
            {"rootBlockDevice": {"kmsKeyId": "a", "volumeSize": 9}},
            False,
        ),
        ("aws:ec2/instance:Instance", {"iamInstanceProfile": "a"}, {"iamInstanceProfile": "b"}, False),
        (
            "aws:eks/cluster:Cluster",
            {"accessConfig": {"authenticationMode": "API", "bootstrapClusterCreatorAdminPermissions": True}},
            {"accessConfig": {"authenticationMode": "API", "bootstrapClusterCreatorAdminPermissions": False}},
            True,
        ),
        (
            "aws:eks/cluster:Cluster",
            {"accessConfig": {"authenticationMode": "API_AND_CONFIG_MAP"}},
            {"accessConfig": {"authenticationMode": "API"}},
            False,
        ),
        ("aws:ssm/association:Association", {"name": "a"}, {"name": "b"}, True),
        ("aws:ssm/association:Association", {"associationName": "a"}, {"associationName": "b"}, False),
        ("aws:ec2transitgateway/vpcAttachment:VpcAttachment", {"subnetIds": ["a"]}, {"subnetIds": ["b"]}, False),
        ("aws:ec2/vpnConnection:VpnConnection", {"tunnel1PresharedKey": "a"}, {"tunnel1PresharedKey": "b"}, False),
        ("aws:ec2/vpnConnection:VpnConnection", {"customerGatewayId": "a"}, {"customerGatewayId": "b"}, False),
        ("aws:ec2/vpnConnection:VpnConnection", {"staticRoutesOnly": True}, {"staticRoutesOnly": False}, True),
        ("aws:ec2/internetGateway:InternetGateway", {"vpcId": "a"}, {"vpcId": "b"}, False),
    ],
)
def test_what_the_provider_makes_anew_the_stand_in_makes_anew(
    token: str, before: dict[str, Any], after: dict[str, Any], *, replaces: bool
) -> None:
    """And it updates in place what the provider updates in place."""
    answer = difference(before, after, fixed=KINDS[token].fixed)
    assert answer.changes == answer.DIFF_SOME
    assert bool(answer.replaces) is replaces
