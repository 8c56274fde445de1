"""The resource types and look-ups that the stand-in for the aws plugin serves: one class each, over boto3.

A class says what may be asked for (``inputs``), what cannot be changed afterwards (``fixed``: a change replaces the
resource, as with the real plugin), and how to make, find, change and delete one. Names are those of the real plugin.
"""

# ruff: noqa: ARG002 - every kind has the same methods, whatever it needs of what it is given
# ruff: noqa: D102 - they are documented once, in `Kind`
# ruff: noqa: S105 - a token is the name of a type here

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

_PATIENCE: Final = 120.0
_BETWEEN_LOOKS: Final = 0.2
"""Seconds to wait for a group that is being deleted."""

Properties = dict[str, Any]
Tags = Mapping[str, str]


class Cloud:
    """The AWS endpoint that the provider was configured with."""

    def __init__(self, *, region: str, endpoint: str, default_tags: Tags) -> None:
        self.region = region
        self.default_tags = dict(default_tags)
        self._endpoint = endpoint
        self._clients: dict[str, Any] = {}
        self._making = threading.Lock()

    def client(self, service: str) -> Any:
        """A client of one service; made once, usable from every thread."""
        with self._making:
            if service not in self._clients:
                # Adaptive waits would hide from a test what it asked for; the engine shows the error.
                config = Config(retries={"mode": "standard", "max_attempts": 3}, max_pool_connections=20)
                make: Any = boto3.client  # its types know one signature per service
                self._clients[service] = make(
                    service, region_name=self.region, endpoint_url=self._endpoint, config=config
                )
            return self._clients[service]

    @property
    def ec2(self) -> Any:
        """EC2."""
        return self.client("ec2")

    @property
    def scaling(self) -> Any:
        """Auto Scaling."""
        return self.client("autoscaling")

    @property
    def iam(self) -> Any:
        """IAM."""
        return self.client("iam")


class Kind:
    """One type of resource. As it stands: an EC2 resource with tags, of which nothing can be changed."""

    token: ClassVar[str]
    inputs: ClassVar[frozenset[str]]
    fixed: ClassVar[frozenset[str]] = frozenset()
    unordered: ClassVar[frozenset[str]] = frozenset()
    """Lists whose order means nothing."""
    moving: ClassVar[frozenset[str]] = frozenset()
    """Outputs that an update changes."""
    named: ClassVar[str] = ""
    """The property that gets a name made up when the program gives none, and that must be unique."""
    tagged: ClassVar[bool] = True
    """It has a map of tags, to which the provider's default tags are added."""

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        """Make one; gives its id."""
        raise NotImplementedError

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        """What stands there now, inputs and outputs; ``None`` where it is gone."""
        raise NotImplementedError

    def update(self, cloud: Cloud, key: str, old: Properties, new: Properties) -> None:
        """Change what can be changed, tags apart."""

    def retag(self, cloud: Cloud, key: str, before: Tags, after: Tags) -> None:
        """Bring the tags to ``after``."""
        gone = [{"Key": name} for name in before if name not in after]
        fresh = {name: value for name, value in after.items() if before.get(name) != value}
        if gone:
            cloud.ec2.delete_tags(Resources=[key], Tags=gone)
        if fresh:
            cloud.ec2.create_tags(Resources=[key], Tags=_listed(fresh))

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        """Take it away."""
        raise NotImplementedError


class Vpc(Kind):
    """A VPC."""

    token = "aws:ec2/vpc:Vpc"
    inputs = frozenset({"cidrBlock", "enableDnsSupport", "enableDnsHostnames", "instanceTenancy", "tags"})
    fixed = frozenset({"cidrBlock"})
    _switches: ClassVar = {"enableDnsSupport": "EnableDnsSupport", "enableDnsHostnames": "EnableDnsHostnames"}

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        made = cloud.ec2.create_vpc(CidrBlock=wanted["cidrBlock"], TagSpecifications=_specified("vpc", tags))
        key: str = made["Vpc"]["VpcId"]
        self.update(cloud, key, {}, wanted)
        return key

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        vpc = _first(cloud.ec2.describe_vpcs, "Vpcs", VpcIds=[key])
        if vpc is None:
            return None
        switches = {
            name: cloud.ec2.describe_vpc_attribute(VpcId=key, Attribute=attribute[:1].lower() + attribute[1:])[
                attribute
            ]["Value"]
            for name, attribute in self._switches.items()
        }
        return {
            "cidrBlock": vpc["CidrBlock"],
            "instanceTenancy": vpc["InstanceTenancy"],
            "ownerId": vpc.get("OwnerId", ""),
            **switches,
            **_tags_of(vpc),
        }

    def update(self, cloud: Cloud, key: str, old: Properties, new: Properties) -> None:
        for name, attribute in self._switches.items():  # EC2 takes one of them per call
            if name in new and new[name] != old.get(name):
                cloud.ec2.modify_vpc_attribute(VpcId=key, **{attribute: {"Value": new[name]}})

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        cloud.ec2.delete_vpc(VpcId=key)


class Subnet(Kind):
    """A subnet."""

    token = "aws:ec2/subnet:Subnet"
    inputs = frozenset({"vpcId", "cidrBlock", "availabilityZone", "mapPublicIpOnLaunch", "tags"})
    fixed = frozenset({"vpcId", "cidrBlock", "availabilityZone"})

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        made = cloud.ec2.create_subnet(
            VpcId=wanted["vpcId"],
            CidrBlock=wanted["cidrBlock"],
            **_given(wanted, availabilityZone="AvailabilityZone"),
            TagSpecifications=_specified("subnet", tags),
        )
        key: str = made["Subnet"]["SubnetId"]
        self.update(cloud, key, {}, wanted)
        return key

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        subnet = _first(cloud.ec2.describe_subnets, "Subnets", SubnetIds=[key])
        return subnet and {
            "vpcId": subnet["VpcId"],
            "cidrBlock": subnet["CidrBlock"],
            "availabilityZone": subnet["AvailabilityZone"],
            "mapPublicIpOnLaunch": subnet["MapPublicIpOnLaunch"],
            **_tags_of(subnet),
        }

    def update(self, cloud: Cloud, key: str, old: Properties, new: Properties) -> None:
        public = new.get("mapPublicIpOnLaunch", False)
        if public != old.get("mapPublicIpOnLaunch", False):
            cloud.ec2.modify_subnet_attribute(SubnetId=key, MapPublicIpOnLaunch={"Value": public})

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        cloud.ec2.delete_subnet(SubnetId=key)


class InternetGateway(Kind):
    """An internet gateway, attached to its VPC."""

    token = "aws:ec2/internetGateway:InternetGateway"
    inputs = frozenset({"vpcId", "tags"})
    fixed = frozenset({"vpcId"})

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        made = cloud.ec2.create_internet_gateway(TagSpecifications=_specified("internet-gateway", tags))
        key: str = made["InternetGateway"]["InternetGatewayId"]
        cloud.ec2.attach_internet_gateway(InternetGatewayId=key, VpcId=wanted["vpcId"])
        return key

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        gateway = _first(cloud.ec2.describe_internet_gateways, "InternetGateways", InternetGatewayIds=[key])
        if gateway is None:
            return None
        attached = gateway["Attachments"]
        return {"vpcId": attached[0]["VpcId"] if attached else "", **_tags_of(gateway)}

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        if state.get("vpcId"):
            cloud.ec2.detach_internet_gateway(InternetGatewayId=key, VpcId=state["vpcId"])
        cloud.ec2.delete_internet_gateway(InternetGatewayId=key)


class Eip(Kind):
    """An Elastic IP address."""

    token = "aws:ec2/eip:Eip"
    inputs = frozenset({"domain", "tags"})
    fixed = frozenset({"domain"})

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        made = cloud.ec2.allocate_address(
            Domain=wanted.get("domain", "vpc"), TagSpecifications=_specified("elastic-ip", tags)
        )
        key: str = made["AllocationId"]
        return key

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        address = _first(cloud.ec2.describe_addresses, "Addresses", AllocationIds=[key])
        return address and {
            "domain": address["Domain"],
            "publicIp": address["PublicIp"],
            "allocationId": key,
            **_tags_of(address),
        }

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        cloud.ec2.release_address(AllocationId=key)


class NatGateway(Kind):
    """A NAT gateway."""

    token = "aws:ec2/natGateway:NatGateway"
    inputs = frozenset({"subnetId", "allocationId", "connectivityType", "tags"})
    fixed = frozenset({"subnetId", "allocationId", "connectivityType"})

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        made = cloud.ec2.create_nat_gateway(
            SubnetId=wanted["subnetId"],
            **_given(wanted, allocationId="AllocationId", connectivityType="ConnectivityType"),
            TagSpecifications=_specified("natgateway", tags),
        )
        key: str = made["NatGateway"]["NatGatewayId"]
        cloud.ec2.get_waiter("nat_gateway_available").wait(NatGatewayIds=[key], WaiterConfig={"Delay": 1})
        return key

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        gateway = _first(cloud.ec2.describe_nat_gateways, "NatGateways", NatGatewayIds=[key])
        if gateway is None or gateway["State"] in ("deleted", "deleting"):
            return None
        addresses = gateway.get("NatGatewayAddresses") or [{}]
        return {
            "subnetId": gateway["SubnetId"],
            "allocationId": addresses[0].get("AllocationId"),
            "connectivityType": gateway.get("ConnectivityType", "public"),
            "publicIp": addresses[0].get("PublicIp"),
            **_tags_of(gateway),
        }

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        cloud.ec2.delete_nat_gateway(NatGatewayId=key)


class RouteTable(Kind):
    """A route table; its routes are resources of their own."""

    token = "aws:ec2/routeTable:RouteTable"
    inputs = frozenset({"vpcId", "tags"})
    fixed = frozenset({"vpcId"})

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        made = cloud.ec2.create_route_table(VpcId=wanted["vpcId"], TagSpecifications=_specified("route-table", tags))
        key: str = made["RouteTable"]["RouteTableId"]
        return key

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        table = _first(cloud.ec2.describe_route_tables, "RouteTables", RouteTableIds=[key])
        return table and {"vpcId": table["VpcId"], **_tags_of(table)}

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        cloud.ec2.delete_route_table(RouteTableId=key)


class Route(Kind):
    """One route of a table. Its id is made of the table's and the destination."""

    token = "aws:ec2/route:Route"
    inputs = frozenset({"routeTableId", "destinationCidrBlock", "gatewayId", "natGatewayId"})
    fixed = frozenset({"routeTableId", "destinationCidrBlock"})
    tagged = False
    _targets: ClassVar = {"gatewayId": "GatewayId", "natGatewayId": "NatGatewayId"}

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        cloud.ec2.create_route(**self._place(wanted), **_given(wanted, **self._targets))
        return f"{wanted['routeTableId']}_{wanted['destinationCidrBlock']}"

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        table_id, _, destination = key.partition("_")
        table = _first(cloud.ec2.describe_route_tables, "RouteTables", RouteTableIds=[table_id])
        routes = table["Routes"] if table else []
        route = next((one for one in routes if one.get("DestinationCidrBlock") == destination), None)
        return route and {
            "routeTableId": table_id,
            "destinationCidrBlock": destination,
            **{name: route.get(field) for name, field in self._targets.items()},
        }

    def update(self, cloud: Cloud, key: str, old: Properties, new: Properties) -> None:
        cloud.ec2.replace_route(**self._place(new), **_given(new, **self._targets))

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        cloud.ec2.delete_route(**self._place(state))

    @staticmethod
    def _place(wanted: Properties) -> dict[str, str]:
        return {"RouteTableId": wanted["routeTableId"], "DestinationCidrBlock": wanted["destinationCidrBlock"]}


class RouteTableAssociation(Kind):
    """Which table a subnet goes by."""

    token = "aws:ec2/routeTableAssociation:RouteTableAssociation"
    inputs = frozenset({"routeTableId", "subnetId"})
    fixed = frozenset({"subnetId"})
    tagged = False

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        made = cloud.ec2.associate_route_table(RouteTableId=wanted["routeTableId"], SubnetId=wanted["subnetId"])
        key: str = made["AssociationId"]
        return key

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        by_subnet = [{"Name": "association.subnet-id", "Values": [wanted["subnetId"]]}]
        table = _first(cloud.ec2.describe_route_tables, "RouteTables", Filters=by_subnet)
        if table is None:
            return None
        return {"routeTableId": table["RouteTableId"], "subnetId": wanted["subnetId"]}

    def update(self, cloud: Cloud, key: str, old: Properties, new: Properties) -> None:
        cloud.ec2.replace_route_table_association(AssociationId=key, RouteTableId=new["routeTableId"])

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        cloud.ec2.disassociate_route_table(AssociationId=key)


class SecurityGroup(Kind):
    """A security group without rules: those are resources of their own."""

    token = "aws:ec2/securityGroup:SecurityGroup"
    inputs = frozenset({"name", "description", "vpcId", "revokeRulesOnDelete", "tags"})
    fixed = frozenset({"name", "description", "vpcId"})
    named = "name"

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        made = cloud.ec2.create_security_group(
            GroupName=wanted["name"],
            Description=wanted.get("description", "Managed by Pulumi"),
            VpcId=wanted["vpcId"],
            TagSpecifications=_specified("security-group", tags),
        )
        key: str = made["GroupId"]
        found = _first(cloud.ec2.describe_security_groups, "SecurityGroups", GroupIds=[key]) or {}
        if found.get("IpPermissionsEgress"):  # EC2 lets a new group out to everywhere; the plugin takes that away
            cloud.ec2.revoke_security_group_egress(GroupId=key, IpPermissions=found["IpPermissionsEgress"])
        return key

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        group = _first(cloud.ec2.describe_security_groups, "SecurityGroups", GroupIds=[key])
        return group and {
            "name": group["GroupName"],
            "description": group["Description"],
            "vpcId": group["VpcId"],
            "arn": _arn(cloud, "ec2", f"security-group/{key}"),
            **_tags_of(group),
        }

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        if state.get("revokeRulesOnDelete"):
            group = _first(cloud.ec2.describe_security_groups, "SecurityGroups", GroupIds=[key]) or {}
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
    fixed = frozenset({"securityGroupId", "ipProtocol", "cidrIpv4", "referencedSecurityGroupId", "fromPort", "toPort"})
    _authorize: ClassVar[str]
    _revoke: ClassVar[str]

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        about = _given(wanted, description="Description")
        permission: dict[str, Any] = {
            "IpProtocol": str(wanted["ipProtocol"]),
            **_given(wanted, fromPort="FromPort", toPort="ToPort"),
        }
        if "cidrIpv4" in wanted:
            permission["IpRanges"] = [{"CidrIp": wanted["cidrIpv4"], **about}]
        if "referencedSecurityGroupId" in wanted:
            permission["UserIdGroupPairs"] = [{"GroupId": wanted["referencedSecurityGroupId"], **about}]
        made = getattr(cloud.ec2, self._authorize)(
            GroupId=wanted["securityGroupId"],
            IpPermissions=[permission],
            TagSpecifications=_specified("security-group-rule", tags),
        )
        key: str = made["SecurityGroupRules"][0]["SecurityGroupRuleId"]
        return key

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        rule = _first(cloud.ec2.describe_security_group_rules, "SecurityGroupRules", SecurityGroupRuleIds=[key])
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
            **_tags_of(rule),
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


class LaunchTemplate(Kind):
    """A launch template: every change makes a new version."""

    token = "aws:ec2/launchTemplate:LaunchTemplate"
    _data: ClassVar = frozenset(
        {
            *("blockDeviceMappings", "iamInstanceProfile", "imageId", "instanceMarketOptions", "instanceType"),
            *("metadataOptions", "networkInterfaces", "placement", "tagSpecifications", "userData"),
            "vpcSecurityGroupIds",
        }
    )
    inputs = frozenset({"name", "updateDefaultVersion", "tags", *_data})
    fixed = frozenset({"name"})
    moving = frozenset({"latestVersion", "defaultVersion"})
    named = "name"

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        made = cloud.ec2.create_launch_template(
            LaunchTemplateName=wanted["name"],
            LaunchTemplateData=self._as_data(wanted),
            TagSpecifications=_specified("launch-template", tags),
        )
        key: str = made["LaunchTemplate"]["LaunchTemplateId"]
        return key

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        template = _first(cloud.ec2.describe_launch_templates, "LaunchTemplates", LaunchTemplateIds=[key])
        if template is None:
            return None
        latest = template["LatestVersionNumber"]
        version = cloud.ec2.describe_launch_template_versions(LaunchTemplateId=key, Versions=[str(latest)])
        data = _camel(version["LaunchTemplateVersions"][0]["LaunchTemplateData"])
        data["vpcSecurityGroupIds"] = data.pop("securityGroupIds", [])
        asked = [one for one in data.get("tagSpecifications", []) if one["resourceType"] != "launch-template"]
        data["tagSpecifications"] = [one | {"tags": _mapped(one["tags"])} for one in asked]
        return {
            "name": template["LaunchTemplateName"],
            "latestVersion": latest,
            "defaultVersion": template["DefaultVersionNumber"],
            "arn": _arn(cloud, "ec2", f"launch-template/{key}"),
            **{name: data.get(name) or None for name in self._data},
            **_tags_of(template),
        }

    def update(self, cloud: Cloud, key: str, old: Properties, new: Properties) -> None:
        if all(old.get(name) == new.get(name) for name in self._data):
            return
        made = cloud.ec2.create_launch_template_version(LaunchTemplateId=key, LaunchTemplateData=self._as_data(new))
        if new.get("updateDefaultVersion"):
            version = str(made["LaunchTemplateVersion"]["VersionNumber"])
            cloud.ec2.modify_launch_template(LaunchTemplateId=key, DefaultVersion=version)

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        cloud.ec2.delete_launch_template(LaunchTemplateId=key)

    def _as_data(self, wanted: Properties) -> dict[str, Any]:
        data: dict[str, Any] = _pascal({name: wanted[name] for name in self._data if wanted.get(name)})
        if "VpcSecurityGroupIds" in data:
            data["SecurityGroupIds"] = data.pop("VpcSecurityGroupIds")
        for mapping in data.get("BlockDeviceMappings", []):
            for switch in ("Encrypted", "DeleteOnTermination"):  # text in the plugin's schema
                if switch in mapping.get("Ebs", {}):
                    mapping["Ebs"][switch] = str(mapping["Ebs"][switch]).lower() == "true"
        for tagged, asked in zip(data.get("TagSpecifications", []), wanted.get("tagSpecifications", []), strict=True):
            tagged["Tags"] = _listed(asked["tags"])
        return data


class ScalingGroup(Kind):
    """An Auto Scaling group."""

    token = "aws:autoscaling/group:Group"
    inputs = frozenset(
        {
            *("name", "minSize", "maxSize", "desiredCapacity", "vpcZoneIdentifiers", "launchTemplate", "tags"),
            *("healthCheckType", "healthCheckGracePeriod", "protectFromScaleIn", "waitForCapacityTimeout"),
            *("forceDelete", "suspendedProcesses", "placementGroup", "capacityRebalance"),
        }
    )
    fixed = frozenset({"name"})
    unordered = frozenset({"tags", "vpcZoneIdentifiers", "suspendedProcesses"})
    named = "name"
    tagged = False
    _fields: ClassVar = {
        "minSize": "MinSize",
        "maxSize": "MaxSize",
        "desiredCapacity": "DesiredCapacity",
        "healthCheckType": "HealthCheckType",
        "healthCheckGracePeriod": "HealthCheckGracePeriod",
        "protectFromScaleIn": "NewInstancesProtectedFromScaleIn",
        "placementGroup": "PlacementGroup",
        "capacityRebalance": "CapacityRebalance",
    }

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        name: str = wanted["name"]
        if self._find(cloud, name) is not None:
            raise ClientError(_taken(name), "CreateAutoScalingGroup")
        cloud.scaling.create_auto_scaling_group(
            AutoScalingGroupName=name, Tags=self._tags(name, wanted), **self._request(wanted)
        )
        self._suspend(cloud, name, {}, wanted)
        return name

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        group = self._find(cloud, key)
        if group is None:
            return None
        template = group.get("LaunchTemplate") or {}
        return {
            "name": key,
            "arn": group["AutoScalingGroupARN"],
            **{name: group.get(field) for name, field in self._fields.items()},
            "vpcZoneIdentifiers": [one for one in group.get("VPCZoneIdentifier", "").split(",") if one],
            "availabilityZones": group.get("AvailabilityZones", []),
            "launchTemplate": {
                "id": template.get("LaunchTemplateId"),
                "name": template.get("LaunchTemplateName"),
                "version": template.get("Version"),
            },
            "suspendedProcesses": [one["ProcessName"] for one in group.get("SuspendedProcesses", [])],
            "tags": [
                {"key": tag["Key"], "value": tag["Value"], "propagateAtLaunch": tag["PropagateAtLaunch"]}
                for tag in group.get("Tags", [])
            ],
        }

    def update(self, cloud: Cloud, key: str, old: Properties, new: Properties) -> None:
        wanted = {name: value for name, value in new.items() if name != "desiredCapacity" or value != old.get(name)}
        cloud.scaling.update_auto_scaling_group(AutoScalingGroupName=key, **self._request(wanted))
        self._suspend(cloud, key, old, new)
        kept = {tag["key"] for tag in new.get("tags", [])}
        gone = [_group_tag(key, {"Key": tag["key"]}) for tag in old.get("tags", []) if tag["key"] not in kept]
        if gone:
            cloud.scaling.delete_tags(Tags=gone)
        if new.get("tags"):
            cloud.scaling.create_or_update_tags(Tags=self._tags(key, new))

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        if self._find(cloud, key) is not None:
            cloud.scaling.delete_auto_scaling_group(
                AutoScalingGroupName=key, ForceDelete=bool(state.get("forceDelete"))
            )
        end = time.monotonic() + _PATIENCE
        while cloud.scaling.describe_auto_scaling_groups(AutoScalingGroupNames=[key])["AutoScalingGroups"]:
            if time.monotonic() > end:  # its subnet cannot go before its instances have
                raise ClientError(_complaint(f"{key} still has instances"), "DeleteAutoScalingGroup")
            time.sleep(_BETWEEN_LOOKS)

    def _request(self, wanted: Properties) -> dict[str, Any]:
        request = _given(wanted, **self._fields)
        if "vpcZoneIdentifiers" in wanted:
            request["VPCZoneIdentifier"] = ",".join(wanted["vpcZoneIdentifiers"])
        template = wanted.get("launchTemplate")
        if template:
            request["LaunchTemplate"] = _given(
                template, id="LaunchTemplateId", name="LaunchTemplateName", version="Version"
            )
        return request

    @staticmethod
    def _find(cloud: Cloud, name: str) -> Any:
        groups = cloud.scaling.describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"]
        return next((group for group in groups if group.get("Status") is None), None)

    @staticmethod
    def _tags(name: str, wanted: Properties) -> list[dict[str, Any]]:
        return [
            _group_tag(name, {"Key": tag["key"], "Value": tag["value"], "PropagateAtLaunch": tag["propagateAtLaunch"]})
            for tag in wanted.get("tags", [])
        ]

    @staticmethod
    def _suspend(cloud: Cloud, name: str, old: Properties, new: Properties) -> None:
        before, after = set(old.get("suspendedProcesses") or ()), set(new.get("suspendedProcesses") or ())
        if after - before:
            cloud.scaling.suspend_processes(AutoScalingGroupName=name, ScalingProcesses=sorted(after - before))
        if before - after:
            cloud.scaling.resume_processes(AutoScalingGroupName=name, ScalingProcesses=sorted(before - after))


class Role(Kind):
    """An IAM role."""

    token = "aws:iam/role:Role"
    inputs = frozenset({"name", "path", "assumeRolePolicy", "description", "maxSessionDuration", "tags"})
    fixed = frozenset({"name", "path"})
    named = "name"

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        cloud.iam.create_role(
            RoleName=wanted["name"],
            AssumeRolePolicyDocument=wanted["assumeRolePolicy"],
            Tags=_listed(tags),
            **_given(wanted, path="Path", description="Description", maxSessionDuration="MaxSessionDuration"),
        )
        name: str = wanted["name"]
        return name

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        role = _found(cloud.iam.get_role, "Role", RoleName=key)
        return role and {
            "name": role["RoleName"],
            "path": role["Path"],
            "arn": role["Arn"],
            "uniqueId": role["RoleId"],
            "assumeRolePolicy": json.dumps(role["AssumeRolePolicyDocument"]),
            "description": role.get("Description"),
            "maxSessionDuration": role.get("MaxSessionDuration"),
            **_tags_of(role),
        }

    def update(self, cloud: Cloud, key: str, old: Properties, new: Properties) -> None:
        if old.get("assumeRolePolicy") != new.get("assumeRolePolicy"):
            cloud.iam.update_assume_role_policy(RoleName=key, PolicyDocument=new["assumeRolePolicy"])
        cloud.iam.update_role(
            RoleName=key, **_given(new, description="Description", maxSessionDuration="MaxSessionDuration")
        )

    def retag(self, cloud: Cloud, key: str, before: Tags, after: Tags) -> None:
        gone = [name for name in before if name not in after]
        if gone:
            cloud.iam.untag_role(RoleName=key, TagKeys=gone)
        if after:
            cloud.iam.tag_role(RoleName=key, Tags=_listed(after))

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        cloud.iam.delete_role(RoleName=key)


class RolePolicy(Kind):
    """What a role may do, written into the role itself."""

    token = "aws:iam/rolePolicy:RolePolicy"
    inputs = frozenset({"name", "role", "policy"})
    fixed = frozenset({"name", "role"})
    named = "name"
    tagged = False

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        self.update(cloud, "", {}, wanted)
        return f"{wanted['role']}:{wanted['name']}"

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        role, _, name = key.partition(":")
        document = _found(cloud.iam.get_role_policy, "PolicyDocument", RoleName=role, PolicyName=name)
        return document and {"role": role, "name": name, "policy": json.dumps(document)}

    def update(self, cloud: Cloud, key: str, old: Properties, new: Properties) -> None:
        cloud.iam.put_role_policy(RoleName=new["role"], PolicyName=new["name"], PolicyDocument=new["policy"])

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        role, _, name = key.partition(":")
        cloud.iam.delete_role_policy(RoleName=role, PolicyName=name)


class InstanceProfile(Kind):
    """What hands a role to instances."""

    token = "aws:iam/instanceProfile:InstanceProfile"
    inputs = frozenset({"name", "path", "role", "tags"})
    fixed = frozenset({"name", "path"})
    named = "name"

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        cloud.iam.create_instance_profile(
            InstanceProfileName=wanted["name"], Tags=_listed(tags), **_given(wanted, path="Path")
        )
        self.update(cloud, wanted["name"], {}, wanted)
        name: str = wanted["name"]
        return name

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        profile = _found(cloud.iam.get_instance_profile, "InstanceProfile", InstanceProfileName=key)
        if profile is None:
            return None
        roles = [role["RoleName"] for role in profile["Roles"]]
        return {
            "name": key,
            "path": profile["Path"],
            "arn": profile["Arn"],
            "role": roles[0] if roles else None,
            **_tags_of(profile),
        }

    def update(self, cloud: Cloud, key: str, old: Properties, new: Properties) -> None:
        before, after = old.get("role"), new.get("role")
        if before and before != after:
            cloud.iam.remove_role_from_instance_profile(InstanceProfileName=key, RoleName=before)
        if after and before != after:
            cloud.iam.add_role_to_instance_profile(InstanceProfileName=key, RoleName=after)

    def retag(self, cloud: Cloud, key: str, before: Tags, after: Tags) -> None:
        gone = [name for name in before if name not in after]
        if gone:
            cloud.iam.untag_instance_profile(InstanceProfileName=key, TagKeys=gone)
        if after:
            cloud.iam.tag_instance_profile(InstanceProfileName=key, Tags=_listed(after))

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        if state.get("role"):
            cloud.iam.remove_role_from_instance_profile(InstanceProfileName=key, RoleName=state["role"])
        cloud.iam.delete_instance_profile(InstanceProfileName=key)


def look_up_image(cloud: Cloud, asked: Properties) -> Properties:
    """``aws.ec2.get_ami``: the one image that the filters leave, or the newest of them."""
    filters = [{"Name": one["name"], "Values": one["values"]} for one in asked.get("filters", [])]
    images = cloud.ec2.describe_images(Filters=filters)["Images"]
    if len(images) > 1 and not asked.get("mostRecent"):
        raise ClientError(_complaint("your query returned more than one image"), "DescribeImages")
    if not images:
        raise ClientError(_complaint(f"no image matches {filters}"), "DescribeImages")
    image = max(images, key=lambda one: one.get("CreationDate", ""))
    return {
        "id": image["ImageId"],
        "imageId": image["ImageId"],
        "name": image.get("Name", ""),
        "architecture": image.get("Architecture", ""),
        "rootDeviceName": image.get("RootDeviceName", ""),
    }


def look_up_parameter(cloud: Cloud, asked: Properties) -> Properties:
    """``aws.ssm.get_parameter``."""
    found = cloud.client("ssm").get_parameter(Name=asked["name"], WithDecryption=True)["Parameter"]
    return {"id": found["Name"], "name": found["Name"], "type": found["Type"], "value": found["Value"]}


_ALL: Final[tuple[Kind, ...]] = (
    Vpc(),
    Subnet(),
    InternetGateway(),
    Eip(),
    NatGateway(),
    RouteTable(),
    Route(),
    RouteTableAssociation(),
    SecurityGroup(),
    IngressRule(),
    EgressRule(),
    LaunchTemplate(),
    ScalingGroup(),
    Role(),
    RolePolicy(),
    InstanceProfile(),
)
KINDS: Final[Mapping[str, Kind]] = {kind.token: kind for kind in _ALL}
"""By token."""
LOOKUPS: Final[Mapping[str, Callable[[Cloud, Properties], Properties]]] = {
    "aws:ec2/getAmi:getAmi": look_up_image,
    "aws:ssm/getParameter:getParameter": look_up_parameter,
}


def _found(call: Callable[..., Any], field: str, **asked: Any) -> Any:
    """A field of the answer; ``None`` where AWS says that there is no such thing."""
    try:
        return call(**asked)[field]
    except ClientError as error:
        code = error.response["Error"]["Code"]
        if "NotFound" in code or code == "NoSuchEntity":
            return None
        raise


def _first(call: Callable[..., Any], field: str, **asked: Any) -> Any:
    """The one thing asked for by its id; ``None`` where it is gone."""
    found = _found(call, field, **asked)
    return found[0] if found else None


def _given(wanted: Mapping[str, Any], /, **names: str) -> dict[str, Any]:
    """Those of the wanted properties that are there, by AWS's names."""
    return {field: wanted[name] for name, field in names.items() if wanted.get(name) is not None}


def _specified(kind: str, tags: Tags) -> list[dict[str, Any]]:
    return [{"ResourceType": kind, "Tags": _listed(tags)}] if tags else []


def _listed(tags: Tags) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def _mapped(tags: list[dict[str, str]]) -> dict[str, str]:
    """A list of tags, as boto gives it or with its keys in camel case, as a mapping."""
    pairs = ((tag.get("Key", tag.get("key", "")), tag.get("Value", tag.get("value", ""))) for tag in tags)
    return {key: value for key, value in pairs if not key.startswith("aws:")}


def _tags_of(described: Mapping[str, Any]) -> Properties:
    return {"tagsAll": _mapped(described.get("Tags") or [])}


def _group_tag(name: str, tag: dict[str, Any]) -> dict[str, Any]:
    return {"ResourceId": name, "ResourceType": "auto-scaling-group", **tag}


def _arn(cloud: Cloud, service: str, what: str) -> str:
    return f"arn:aws:{service}:{cloud.region}:123456789012:{what}"


def _taken(name: str) -> Any:
    return _complaint(f"AutoScalingGroup by this name already exists - {name}", code="AlreadyExists")


def _complaint(message: str, *, code: str = "InvalidQuery") -> Any:
    return {"Error": {"Code": code, "Message": message}}


def _pascal(value: Any) -> Any:
    """Keys as the API spells them."""
    if isinstance(value, dict):
        return {key[:1].upper() + key[1:]: _pascal(inner) for key, inner in value.items()}
    return [_pascal(inner) for inner in value] if isinstance(value, list) else value


def _camel(value: Any) -> Any:
    """Keys as the plugin spells them."""
    if isinstance(value, dict):
        return {key[:1].lower() + key[1:]: _camel(inner) for key, inner in value.items()}
    return [_camel(inner) for inner in value] if isinstance(value, list) else value
