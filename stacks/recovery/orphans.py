"""What stands in AWS though no state records it: found by what its creation asked for, and taken away by a call."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from autoscaler.model import labels as words
from stacks.recovery.by_name import Finder, Found, Inputs, NamedFinder, until
from stacks.recovery.by_tag import TagFinder, name_tag
from stacks.recovery.of_clusters import ClusterFinder

_WRITTEN_OVER: Final = (
    *("kubernetes:", "spillway:", "spillway-onprem:", "pulumi:", "aws:autoscaling/lifecycleHook:"),
    *("aws:cloudwatch/eventTarget:", "aws:sqs/queuePolicy:"),
    *("aws:iam/rolePolicy:", "aws:iam/rolePolicyAttachment:", "aws:iam/userPolicy:"),
    *("aws:iam/rolePoliciesExclusive:", "aws:iam/rolePolicyAttachmentsExclusive:"),
    *("aws:ec2/eipAssociation:", "aws:ec2/volumeAttachment:", "aws:ec2/vpnGatewayRoutePropagation:"),
    *("aws:ec2/vpcSecurityGroupRulesExclusive:", "aws:eks/accessPolicyAssociation:", "aws:lb/targetGroupAttachment:"),
    *("aws:s3/bucketLifecycleConfiguration:", "aws:s3/bucketObjectv2:", "aws:s3/bucketPolicy:"),
    *("aws:s3/bucketPublicAccessBlock:", "aws:s3/bucketServerSideEncryptionConfiguration:", "aws:s3/bucketVersioning:"),
)
"""Types whose creation writes over, or takes for its own, what is there: made again they are the same thing."""


_GONE: Final = ("NotFound", "NoSuchEntity", "NoSuchBucket", "DoesNotExist")
"""In the codes by which AWS's services say that a thing is not there."""
_TARGETS: Final[Mapping[str, str]] = {
    # of a route: the program's property -> EC2's field
    "gatewayId": "GatewayId",
    "natGatewayId": "NatGatewayId",
    "networkInterfaceId": "NetworkInterfaceId",
    "transitGatewayId": "TransitGatewayId",
    "vpcPeeringConnectionId": "VpcPeeringConnectionId",
}


@dataclass(frozen=True, slots=True)
class Orphan:
    """One thing in AWS that no stack owns."""

    name: str
    """What the program called it."""
    what: str
    """Type and id, for people."""
    remove: Callable[[], object]

    @property
    def resource(self) -> str:
        """Its type and what the program called it, as ``resource_of`` gives them."""
        return resource_of(self.what.partition(" ")[0], self.name)


class OrphanFinder:
    """Finds resources of a cluster in one region that its state does not know."""

    def __init__(self, *, region: str, cluster: str, recorded: frozenset[tuple[str, str]]) -> None:
        """``recorded``: type and id of all that the state knows. A role and its profile have one id."""
        import boto3  # noqa: PLC0415 - slow to import

        session = boto3.session.Session(region_name=region or None)
        self._ec2: Any = session.client("ec2")
        self._scaling: Any = session.client("autoscaling")
        self._iam: Any = session.client("iam")
        self._cluster = cluster
        self._recorded = recorded
        self._by_tag = TagFinder(self._ec2, cluster=cluster).finders
        self._finders: dict[str, Finder] = {
            **self._by_tag,
            "aws:ec2/route:Route": self._route,
            "aws:ec2/routeTableAssociation:RouteTableAssociation": self._association,
            "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": partial(self._rule, egress=False),
            "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule": partial(self._rule, egress=True),
            "aws:ec2/launchTemplate:LaunchTemplate": self._template,
            "aws:ec2/placementGroup:PlacementGroup": self._placement_group,
            "aws:autoscaling/group:Group": self._scaling_group,
            "aws:iam/role:Role": self._role,
            "aws:iam/instanceProfile:InstanceProfile": self._profile,
            "aws:ec2/vpnConnectionRoute:VpnConnectionRoute": self._vpn_route,
            **NamedFinder(session, cluster=cluster).finders,
            **ClusterFinder(session, cluster=cluster).finders,
        }

    def knows(self, token: str, inputs: Inputs) -> bool:
        """Whether it can be looked for: by type, and by a ``Name`` tag where nothing else tells two of them apart."""
        return token in self._finders and (token not in self._by_tag or bool(name_tag(inputs)))

    def find(self, token: str, name: str, inputs: Inputs) -> list[Orphan]:
        """What that creation has left, and no state records."""
        return [
            Orphan(name=name, what=f"{kind_of(token)} {key}", remove=remove)
            for key, remove in self._finders[token](inputs)
            if (token, key) not in self._recorded
        ]

    # --- EC2, by what they join ---

    def _route(self, inputs: Inputs) -> Found:
        table, destination = inputs["routeTableId"], inputs.get("destinationCidrBlock")
        for found in self._tables("route-table-id", table):
            if any(_leads(route, inputs) for route in found["Routes"]):
                yield (
                    f"{table}_{destination}",
                    partial(self._ec2.delete_route, RouteTableId=table, DestinationCidrBlock=destination),
                )

    def _association(self, inputs: Inputs) -> Found:
        for table in self._tables("association.subnet-id", inputs["subnetId"]):
            if table["RouteTableId"] != inputs["routeTableId"]:
                continue  # it leads elsewhere: another's
            for one in table["Associations"]:
                if one.get("SubnetId") == inputs["subnetId"]:
                    key = one["RouteTableAssociationId"]
                    yield key, partial(self._ec2.disassociate_route_table, AssociationId=key)

    def _vpn_route(self, inputs: Inputs) -> Found:
        connection, block = inputs["vpnConnectionId"], inputs["destinationCidrBlock"]
        for found in self._ec2.describe_vpn_connections(VpnConnectionIds=[connection])["VpnConnections"]:
            if any(route["DestinationCidrBlock"] == block for route in found.get("Routes", [])):
                asked = {"VpnConnectionId": connection, "DestinationCidrBlock": block}
                yield f"{block}:{connection}", partial(self._ec2.delete_vpn_connection_route, **asked)

    def _tables(self, field: str, value: str) -> list[Any]:
        found: list[Any] = self._ec2.describe_route_tables(Filters=[{"Name": field, "Values": [value]}])["RouteTables"]
        return found

    def _rule(self, inputs: Inputs, *, egress: bool) -> Found:
        group = inputs["securityGroupId"]
        by_group = [{"Name": "group-id", "Values": [group]}]
        revoke = self._ec2.revoke_security_group_egress if egress else self._ec2.revoke_security_group_ingress
        for rule in self._ec2.describe_security_group_rules(Filters=by_group)["SecurityGroupRules"]:
            if rule["IsEgress"] is egress and _is_asked_for(rule, inputs) and self._is_ours(rule):
                key = rule["SecurityGroupRuleId"]
                yield key, partial(revoke, GroupId=group, SecurityGroupRuleIds=[key])

    # --- By name ---

    def _template(self, inputs: Inputs) -> Found:
        by_name = [{"Name": "launch-template-name", "Values": [inputs["name"]]}]
        for template in self._ec2.describe_launch_templates(Filters=by_name)["LaunchTemplates"]:
            if self._is_ours(template):
                key = template["LaunchTemplateId"]
                yield key, partial(self._ec2.delete_launch_template, LaunchTemplateId=key)

    def _placement_group(self, inputs: Inputs) -> Found:
        for group in self._ec2.describe_placement_groups()["PlacementGroups"]:
            if group["GroupName"] == inputs["name"] and self._is_ours(group):
                yield inputs["name"], partial(self._ec2.delete_placement_group, GroupName=inputs["name"])

    def _scaling_group(self, inputs: Inputs) -> Found:
        name = inputs["name"]
        for group in self._scaling.describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"]:
            if self._is_ours(group):
                yield name, partial(self._remove_scaling_group, name)

    def _remove_scaling_group(self, name: str) -> None:
        def is_gone() -> bool:
            answer = self._scaling.describe_auto_scaling_groups(AutoScalingGroupNames=[name])
            return not answer["AutoScalingGroups"]

        self._scaling.delete_auto_scaling_group(AutoScalingGroupName=name, ForceDelete=True)
        until(is_gone)

    def _role(self, inputs: Inputs) -> Found:
        role = self._of_iam(self._iam.get_role, "Role", RoleName=inputs["name"])
        if role and self._is_ours(role):
            yield inputs["name"], partial(self._iam.delete_role, RoleName=inputs["name"])

    def _profile(self, inputs: Inputs) -> Found:
        name = inputs["name"]
        profile = self._of_iam(self._iam.get_instance_profile, "InstanceProfile", InstanceProfileName=name)
        if profile and self._is_ours(profile):
            yield name, partial(self._remove_profile, name, [role["RoleName"] for role in profile["Roles"]])

    def _remove_profile(self, name: str, roles: list[str]) -> None:
        for role in roles:
            with contextlib.suppress(self._iam.exceptions.NoSuchEntityException):  # it has left by itself
                self._iam.remove_role_from_instance_profile(InstanceProfileName=name, RoleName=role)
        self._iam.delete_instance_profile(InstanceProfileName=name)

    def _is_ours(self, described: Mapping[str, Any]) -> bool:
        """It carries the cluster's tag: another's thing of that name is not touched."""
        return (words.TAG_CLUSTER, self._cluster) in {(tag["Key"], tag["Value"]) for tag in described.get("Tags") or ()}

    def _of_iam(self, call: Callable[..., Any], field: str, **asked: str) -> Any:
        try:
            return call(**asked)[field]
        except self._iam.exceptions.NoSuchEntityException:
            return None


def remove(orphan: Orphan) -> bool:
    """Take it away; ``False`` where it has gone by itself, which is no failure."""
    from botocore.exceptions import ClientError  # noqa: PLC0415 - slow to import

    try:
        orphan.remove()
    except ClientError as error:
        if not any(word in error.response["Error"]["Code"] for word in _GONE):
            raise
        return False
    return True


def is_written_over(token: str) -> bool:
    """Whether making it again does no harm."""
    return token.startswith(_WRITTEN_OVER)


def token_of(urn: str) -> str:
    """The type in a URN: ``aws:ec2/vpc:Vpc``."""
    return urn.split("::")[2].rpartition("$")[2]


def name_of(urn: str) -> str:
    """What the program calls a resource."""
    return urn.rpartition("::")[2]


def kind_of(token: str) -> str:
    """The last word of a type: ``Vpc`` of ``aws:ec2/vpc:Vpc``."""
    return token.rpartition(":")[2]


def resource_of(kind: str, name: str) -> str:
    """What a resource is called to people: its type and its name in the program."""
    return f"{kind} ({name})"


def _leads(route: Mapping[str, Any], inputs: Inputs) -> bool:
    """Whether it is the one that was asked for: one to the same networks by another way is another's."""
    ways = [route.get(field) == inputs[key] for key, field in _TARGETS.items() if inputs.get(key)]
    return route.get("DestinationCidrBlock") == inputs.get("destinationCidrBlock") and all(ways)


def _is_asked_for(rule: Mapping[str, Any], inputs: Inputs) -> bool:
    every_port = str(inputs["ipProtocol"]) == "-1"
    return (
        str(rule["IpProtocol"]) == str(inputs["ipProtocol"])
        and rule.get("CidrIpv4") == inputs.get("cidrIpv4")
        and (rule.get("ReferencedGroupInfo") or {}).get("GroupId") == inputs.get("referencedSecurityGroupId")
        and (every_port or (rule.get("FromPort"), rule.get("ToPort")) == (inputs.get("fromPort"), inputs.get("toPort")))
    )
