"""Flow logs, as the stand-in for the aws plugin serves them."""

# ruff: noqa: D102 - they are documented once, in `Kind`
# ruff: noqa: S105 - a token is the name of a type here

from __future__ import annotations

from typing import ClassVar, Final

from botocore.exceptions import ClientError

from stacks.local.pulumi_plugins.aws.kinds import (
    Cloud,
    Kind,
    Properties,
    Tags,
    complaint,
    first,
    given,
    specified,
    tags_of,
)


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


KINDS: Final[tuple[Kind, ...]] = (FlowLog(),)
