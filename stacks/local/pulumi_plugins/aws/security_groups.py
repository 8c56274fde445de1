"""Security groups and their rules, as the stand-in for the aws plugin serves them."""

# ruff: noqa: ARG002 - every kind has the same methods, whatever it needs of what it is given
# ruff: noqa: D102 - they are documented once, in `Kind`
# ruff: noqa: S105 - a token is the name of a type here

from __future__ import annotations

from typing import Any, ClassVar, Final

from stacks.local.pulumi_plugins.aws.kinds import Cloud, Kind, Properties, Tags, arn, first, given, specified, tags_of


class SecurityGroup(Kind):
    """A security group without rules: those are resources of their own."""

    token = "aws:ec2/securityGroup:SecurityGroup"
    inputs = frozenset({"name", "description", "vpcId", "revokeRulesOnDelete", "tags"})
    named = "name"

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        made = cloud.ec2.create_security_group(
            GroupName=wanted["name"],
            Description=wanted.get("description", "Managed by Pulumi"),
            VpcId=wanted["vpcId"],
            TagSpecifications=specified("security-group", tags),
        )
        key: str = made["GroupId"]
        found = first(cloud.ec2.describe_security_groups, "SecurityGroups", GroupIds=[key]) or {}
        if found.get("IpPermissionsEgress"):  # EC2 lets a new group out to everywhere; the plugin takes that away
            cloud.ec2.revoke_security_group_egress(GroupId=key, IpPermissions=found["IpPermissionsEgress"])
        return key

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        group = first(cloud.ec2.describe_security_groups, "SecurityGroups", GroupIds=[key])
        return group and {
            "name": group["GroupName"],
            "description": group["Description"],
            "vpcId": group["VpcId"],
            "arn": arn(cloud, "ec2", f"security-group/{key}"),
            **tags_of(group),
        }

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        if state.get("revokeRulesOnDelete"):
            group = first(cloud.ec2.describe_security_groups, "SecurityGroups", GroupIds=[key]) or {}
            if group.get("IpPermissions"):
                cloud.ec2.revoke_security_group_ingress(GroupId=key, IpPermissions=group["IpPermissions"])
        cloud.ec2.delete_security_group(GroupId=key)


class _Rule(Kind):
    """One rule of a security group."""

    inputs = frozenset(
        {
            *("securityGroupId", "ipProtocol", "cidrIpv4", "referencedSecurityGroupId"),
            *("fromPort", "toPort", "description", "tags"),
        }
    )
    _authorize: ClassVar[str]
    _revoke: ClassVar[str]

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        about = given(wanted, description="Description")
        permission: dict[str, Any] = {
            "IpProtocol": str(wanted["ipProtocol"]),
            **given(wanted, fromPort="FromPort", toPort="ToPort"),
        }
        if "cidrIpv4" in wanted:
            permission["IpRanges"] = [{"CidrIp": wanted["cidrIpv4"], **about}]
        if "referencedSecurityGroupId" in wanted:
            permission["UserIdGroupPairs"] = [{"GroupId": wanted["referencedSecurityGroupId"], **about}]
        made = getattr(cloud.ec2, self._authorize)(
            GroupId=wanted["securityGroupId"],
            IpPermissions=[permission],
            TagSpecifications=specified("security-group-rule", tags),
        )
        key: str = made["SecurityGroupRules"][0]["SecurityGroupRuleId"]
        return key

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        rule = first(cloud.ec2.describe_security_group_rules, "SecurityGroupRules", SecurityGroupRuleIds=[key])
        if rule is None:
            return None
        ports = {} if rule["IpProtocol"] == "-1" else {"fromPort": rule.get("FromPort"), "toPort": rule.get("ToPort")}
        return {
            "securityGroupId": rule["GroupId"],
            "securityGroupRuleId": key,
            "ipProtocol": rule["IpProtocol"],
            "cidrIpv4": rule.get("CidrIpv4"),
            "referencedSecurityGroupId": rule.get("ReferencedGroupInfo", {}).get("GroupId"),
            "description": rule.get("Description") or wanted.get("description"),
            **ports,
            **tags_of(rule),
        }

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        getattr(cloud.ec2, self._revoke)(GroupId=state["securityGroupId"], SecurityGroupRuleIds=[key])


class IngressRule(_Rule):
    """A way in."""

    token = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
    _authorize, _revoke = "authorize_security_group_ingress", "revoke_security_group_ingress"


class EgressRule(_Rule):
    """A way out."""

    token = "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule"
    _authorize, _revoke = "authorize_security_group_egress", "revoke_security_group_egress"


class RulesExclusive(Kind):
    """That a group has these rules, and no others. It is nothing in AWS: to delete it changes nothing there."""

    token = "aws:ec2/vpcSecurityGroupRulesExclusive:VpcSecurityGroupRulesExclusive"
    inputs = frozenset({"securityGroupId", "ingressRuleIds", "egressRuleIds"})
    unordered = frozenset({"ingressRuleIds", "egressRuleIds"})
    tagged = False

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        key: str = wanted["securityGroupId"]
        self.update(cloud, key, {}, wanted)
        return key

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        if first(cloud.ec2.describe_security_groups, "SecurityGroups", GroupIds=[key]) is None:
            return None
        by_group = [{"Name": "group-id", "Values": [key]}]
        rules = cloud.ec2.describe_security_group_rules(Filters=by_group)["SecurityGroupRules"]
        ways = {True: "egressRuleIds", False: "ingressRuleIds"}
        found: Properties = {"securityGroupId": key, "ingressRuleIds": [], "egressRuleIds": []}
        for rule in rules:
            found[ways[rule["IsEgress"]]].append(rule["SecurityGroupRuleId"])
        return found

    def update(self, cloud: Cloud, key: str, old: Properties, new: Properties) -> None:
        found = self.read(cloud, key, new) or {}
        for name, revoke in (
            ("ingressRuleIds", cloud.ec2.revoke_security_group_ingress),
            ("egressRuleIds", cloud.ec2.revoke_security_group_egress),
        ):
            for rule in sorted(set(found.get(name, ())) - set(new[name])):
                revoke(GroupId=key, SecurityGroupRuleIds=[rule])

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        """Deletes no rule."""


KINDS: Final[tuple[Kind, ...]] = (SecurityGroup(), IngressRule(), EgressRule(), RulesExclusive())
