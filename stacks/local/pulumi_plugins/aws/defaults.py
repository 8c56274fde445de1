"""What AWS has where the program says nothing, of properties that the provider does not take over from AWS.

Of a property that a program leaves out, a refresh takes over what stands where its schema says *Computed*: that is an
output, and no difference. Of those below it does not: what was set by hand shows as a difference, and the next update
puts the default in its place. The facts are those of the provider's reference ("Optional", "Defaults to ..."):
``replacements.source_of`` is the page of a type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "aws:autoscaling/group:Group": {
        "capacityRebalance": False,
        "healthCheckGracePeriod": 300,
        "placementGroup": "",
        "protectFromScaleIn": False,
        "suspendedProcesses": [],
    },
    "aws:cloudwatch/logGroup:LogGroup": {"retentionInDays": 0},
    "aws:ec2/launchTemplate:LaunchTemplate": {
        "blockDeviceMappings": [],
        "capacityReservationSpecification": None,
        "iamInstanceProfile": None,
        "imageId": None,
        "instanceMarketOptions": None,
        "instanceType": None,
        "networkInterfaces": [],
        "placement": None,
        "tagSpecifications": [],
        "userData": None,
        "vpcSecurityGroupIds": [],
    },
    "aws:ec2/subnet:Subnet": {"mapPublicIpOnLaunch": False},
    "aws:ec2/vpc:Vpc": {"enableDnsSupport": True},
    "aws:eks/cluster:Cluster": {"enabledClusterLogTypes": []},
    "aws:iam/role:Role": {"description": "", "maxSessionDuration": 3600, "permissionsBoundary": None},
    "aws:kms/key:Key": {"enableKeyRotation": False},
}
"""By token and property."""
_NOTHING: Final[tuple[Any, ...]] = (None, "", [], {})
"""What AWS says of a property that has no value."""


def left_out(token: str, said: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """What stands of properties that the program leaves out, where it is not their default."""
    defaults = DEFAULTS.get(token, {})
    return {
        name: found[name]
        for name, default in defaults.items()
        if name not in said and found.get(name) not in (*_NOTHING, default)
    }


def given_back(token: str, before: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Any]:
    """Defaults of properties that stood and that the program leaves out."""
    return {name: default for name, default in DEFAULTS.get(token, {}).items() if name in before and name not in said}
