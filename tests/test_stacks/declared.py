"""Declares a program's resources against Pulumi's mocks, for tests that look at what was asked for."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pulumi
import pulumi.runtime

from autoscaler.config.group_entry import GroupEntry
from autoscaler.config.policy import Policy
from stacks.preflight.inputs import Plans, read_plans
from stacks.settings.stack import read_settings


@dataclass(frozen=True, slots=True)
class Declared:
    """One resource that a program asked for, in the plugin's spelling."""

    token: str
    name: str
    inputs: dict[str, Any]


class Recorder(pulumi.runtime.Mocks):
    """Takes every resource as made, under the id ``NAME-id``."""

    def __init__(self, **answers: dict[str, Any]) -> None:
        """``answers`` to look-ups, by the function's name: ``getVpc={...}``."""
        self.declared: list[Declared] = []
        self._answers = _ANSWERS | answers

    def new_resource(self, args: pulumi.runtime.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        """The inputs come back as outputs, with what AWS would add."""
        self.declared.append(Declared(token=args.typ, name=args.name, inputs=dict(args.inputs)))
        made_up = {"arn": f"arn:aws:test:::{args.name}", "latestVersion": 1, **_made(args.typ, args.name, args.inputs)}
        return f"{args.name}-id", {**args.inputs, **made_up}

    def call(self, args: pulumi.runtime.MockCallArgs) -> tuple[dict[str, Any], list[tuple[str, str]]]:
        """Look-ups."""
        return self._answers[args.token.rpartition(":")[2]], []


def _made(token: str, name: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """What only the one who makes it knows."""
    public = base64.b64encode(hashlib.sha256(name.encode()).digest()).decode()
    known: dict[str, dict[str, Any]] = {
        "aws:eks/cluster:Cluster": {
            "endpoint": "https://api",
            "certificateAuthority": {"data": "UEVN"},
            "identities": [{"oidcs": [{"issuer": "https://issuer/id/1"}]}],
            "kubernetesNetworkConfig": {"serviceIpv4Cidr": "10.100.0.0/16"},
            "vpcConfig": {**inputs.get("vpcConfig", {}), "clusterSecurityGroupId": "sg-own"},
        },
        "aws:ssm/activation:Activation": {"activationCode": "hush-hush"},
        "aws:ec2/eip:Eip": {"publicIp": "192.0.2.1"},
        "aws:ec2/instance:Instance": {"primaryNetworkInterfaceId": f"{name}-eni"},
        "aws:ec2/vpnConnection:VpnConnection": {"tunnel1Address": "192.0.2.11", "tunnel2Address": "192.0.2.12"},
        "spillway-onprem:index:WireguardKey": {"publicKey": public, "privateKey": _secret(f"PRIVATE-{name}")},
        "spillway-onprem:index:PresharedKey": {"key": _secret(f"KEY-{name}")},
        "spillway-onprem:index:Machine": {"joinToken": _secret(f"TOKEN-{name}"), "found": {}, "registered": True},
    }
    return known.get(token, {})


def _secret(value: str) -> dict[str, str]:
    """As a provider marks one: https://github.com/pulumi/pulumi/blob/master/sdk/go/common/resource/sig/sig.go."""
    return {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "value": value}


_ANSWERS: Final[dict[str, dict[str, Any]]] = {
    "readStackResourceOutputs": {"outputs": {}},
    "getCallerIdentity": {"accountId": "123456789012", "arn": "arn:aws:iam::123456789012:user/deployer"},
    "getAmiIds": {"names": []},
    "getEbsVolumes": {"ids": []},
    "getAmi": {"id": "ami-1", "rootDeviceName": "/dev/sda1", "architecture": "x86_64"},
    "getAvailabilityZones": {
        "names": [f"{region}{letter}" for region in ("us-east-1", "eu-west-1") for letter in "abcdef"]
    },
    "getKey": {"keyState": "Enabled"},
    "getTransitGateway": {},
    "getVpnGateway": {},
    "getVpcPeeringConnection": {},
    "readStackOutputs": {
        "outputs": {"subnets": {"us-east-1a": "a", "us-east-1b": "b"}, "controlPlane": {"kind": "eks"}}
    },
    "getInstanceType": {
        "supportedArchitectures": ["x86_64"],
        "defaultVcpus": 48,
        "memorySize": 196608,
        "gpuses": [{"name": "A10G", "manufacturer": "NVIDIA", "count": 4, "memorySize": 24576}],
        "efaSupported": True,
        "efaMaximumInterfaces": 4,
        "maximumNetworkCards": 4,
        "supportedPlacementStrategies": ["cluster", "partition", "spread"],
        "supportedUsagesClasses": ["on-demand", "spot"],
    },
    "getSpotPrice": {"spotPrice": "1.7016"},
    "getVpcEndpointService": {
        "availabilityZones": [f"us-east-1{letter}" for letter in "abcdef"],
        "privateDnsName": "service.us-east-1.amazonaws.com",
    },
    "getProduct": {
        "result": json.dumps(
            {"terms": {"OnDemand": {"a": {"priceDimensions": {"b": {"pricePerUnit": {"USD": "5.672"}}}}}}}
        )
    },
    "getParameter": {"value": "ami-0123456789abcdef0"},
    "getClusters": {"names": []},
    "getCluster": {"version": "1.35", "vpcConfig": {"subnetIds": []}},
    "getClusterVersions": {
        "clusterVersions": [
            *({"clusterVersion": f"1.{minor}", "versionStatus": "STANDARD_SUPPORT"} for minor in range(32, 36)),
            {
                "clusterVersion": "1.31",
                "versionStatus": "UNSUPPORTED",
                "endOfExtendedSupportDate": "2026-11-26T00:00:00Z",
            },
        ]
    },
    "getAddon": {"addonVersion": "v1.21.1-eksbuild.1"},
    "getAddonVersion": {"version": "v1.21.1-eksbuild.1"},
}


def declare(program: Callable[[], Any]) -> list[Declared]:
    """What ``program`` asks for when it runs as a stack."""
    recorder = Recorder()
    pulumi.runtime.set_mocks(recorder, project="spillway", stack="test", preview=False)
    pulumi.runtime.test(program)()  # type: ignore[no-untyped-call]  # Pulumi's
    return recorder.declared


def of_type(declared: list[Declared], token: str) -> dict[str, dict[str, Any]]:
    """Inputs of the resources of one type, by name."""
    return {one.name: one.inputs for one in declared if one.token == token}


def group(**given: Any) -> GroupEntry:
    """An ordinary GPU group of one zone."""
    ordinary = {"name": "gpu", "instance_type": "g5.12xlarge", "zones": ["us-east-1a"], "max": 4}
    return GroupEntry.model_validate(ordinary | given)


def policy(*groups: GroupEntry, cluster: str = "lab") -> Policy:
    """A policy with these groups; one ordinary group where none is given."""
    return Policy(cluster=cluster, groups=groups or (group(),))


def plans(folder: Path, *groups: dict[str, Any], **configured: Any) -> Plans:
    """A stack's plans, read from files as a user would have them."""
    entries = list(groups) or [{"name": "gpu", "instance_type": "g5.12xlarge", "zones": ["us-east-1a"], "max": 4}]
    path = folder / "policy.yaml"
    path.write_text(json.dumps({"cluster": "lab", "groups": entries}), encoding="utf-8")
    if "vpc" not in configured.get("network", {}):  # the ordinary group is in one zone, a VPC in two
        configured["network"] = {"zones": ["us-east-1a", "us-east-1b"]} | configured.get("network", {})
    configuration = {"spillway:policy": str(path), **{f"spillway:{key}": value for key, value in configured.items()}}
    return read_plans(read_settings(configuration, stack="test"))
