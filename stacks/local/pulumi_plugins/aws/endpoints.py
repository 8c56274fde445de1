"""VPC endpoints and flow logs, as the stand-in for the aws plugin serves them."""

# ruff: noqa: ARG002 - every kind has the same methods, whatever it needs of what it is given
# ruff: noqa: D102 - they are documented once, in `Kind`
# ruff: noqa: S105 - a token is the name of a type here

from __future__ import annotations

from typing import Any, ClassVar, Final

from botocore.exceptions import ClientError

from stacks.local.pulumi_plugins.aws.kinds import (
    Cloud,
    Ec2Kind,
    Kind,
    Properties,
    Tags,
    complaint,
    first,
    given,
    specified,
    tags_of,
)


class VpcEndpoint(Ec2Kind):
    """An endpoint of a service: a gateway in route tables, or an interface in subnets."""

    token = "aws:ec2/vpcEndpoint:VpcEndpoint"
    inputs = frozenset(
        {
            *("vpcId", "serviceName", "vpcEndpointType", "routeTableIds", "subnetIds", "securityGroupIds"),
            *("privateDnsEnabled", "policy", "tags"),
        }
    )
    fixed = frozenset({"vpcId", "serviceName", "vpcEndpointType"})
    unordered = frozenset({"routeTableIds", "subnetIds", "securityGroupIds"})
    noun, tag_type = "VpcEndpoint", "vpc-endpoint"
    asked: ClassVar = {
        "vpcId": "VpcId",
        "serviceName": "ServiceName",
        "vpcEndpointType": "VpcEndpointType",
        "routeTableIds": "RouteTableIds",
        "subnetIds": "SubnetIds",
        "securityGroupIds": "SecurityGroupIds",
        "privateDnsEnabled": "PrivateDnsEnabled",
        "policy": "PolicyDocument",
    }
    told: ClassVar = {"state": "State", "networkInterfaceIds": "NetworkInterfaceIds"}
    _lists: ClassVar = {
        "routeTableIds": "RouteTableIds",
        "subnetIds": "SubnetIds",
        "securityGroupIds": "SecurityGroupIds",
    }

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        found = super().read(cloud, key, wanted)
        if found is None or found["state"] in ("deleted", "deleting"):
            return None
        groups = self.describe(cloud, key).get("Groups", [])
        return found | {"securityGroupIds": [group["GroupId"] for group in groups], "policy": wanted.get("policy")}

    def update(self, cloud: Cloud, key: str, old: Properties, new: Properties) -> None:
        if not old:
            return
        changes: dict[str, Any] = {}
        for name, field in self._lists.items():
            before, after = set(old.get(name) or ()), set(new.get(name) or ())
            changes |= {f"Add{field}": sorted(after - before), f"Remove{field}": sorted(before - after)}
        changes = {field: ids for field, ids in changes.items() if ids}
        if new.get("policy") != old.get("policy"):
            changes["PolicyDocument"] = new.get("policy", "")
        if changes:
            cloud.ec2.modify_vpc_endpoint(VpcEndpointId=key, **changes)

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        cloud.ec2.delete_vpc_endpoints(VpcEndpointIds=[key])


class FlowLog(Kind):
    """A flow log of a VPC."""

    token = "aws:ec2/flowLog:FlowLog"
    _asked: ClassVar = {
        "trafficType": "TrafficType",
        "logDestinationType": "LogDestinationType",
        "logDestination": "LogDestination",
        "iamRoleArn": "DeliverLogsPermissionArn",
        "maxAggregationInterval": "MaxAggregationInterval",
    }
    inputs = frozenset({"vpcId", "tags", *_asked})
    fixed = inputs - {"tags"}

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        made = cloud.ec2.create_flow_logs(
            ResourceType="VPC",
            ResourceIds=[wanted["vpcId"]],
            **given(wanted, **self._asked),
            TagSpecifications=specified("vpc-flow-log", tags),
        )
        if made.get("Unsuccessful"):
            raise ClientError(complaint(made["Unsuccessful"][0]["Error"]["Message"]), "CreateFlowLogs")
        key: str = made["FlowLogIds"][0]
        return key

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        log = first(cloud.ec2.describe_flow_logs, "FlowLogs", FlowLogIds=[key])
        if log is None:
            return None
        if "LogDestination" not in log:  # AWS tells the group's name where one was given
            log["LogDestination"] = wanted.get("logDestination")
        return {"vpcId": log["ResourceId"], **{name: log.get(field) for name, field in self._asked.items()}} | tags_of(
            log
        )

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        cloud.ec2.delete_flow_logs(FlowLogIds=[key])


KINDS: Final[tuple[Kind, ...]] = (VpcEndpoint(), FlowLog())
