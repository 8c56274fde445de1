"""Launch templates, Auto Scaling groups and what belongs to them, as the stand-in for the aws plugin serves them."""

# ruff: noqa: ARG002 - every kind has the same methods, whatever it needs of what it is given
# ruff: noqa: D102 - they are documented once, in `Kind`
# ruff: noqa: S105 - a token is the name of a type here

from __future__ import annotations

import time
from typing import Any, ClassVar, Final

from botocore.exceptions import ClientError

from stacks.local.pulumi_plugins.aws.kinds import (
    Cloud,
    Kind,
    Properties,
    Tags,
    arn,
    camel,
    complaint,
    first,
    given,
    listed,
    mapped,
    pascal,
    specified,
    tags_of,
)

_PATIENCE: Final = 120.0
_BETWEEN_LOOKS: Final = 0.2
"""Seconds to wait for a group that is being deleted."""


class LaunchTemplate(Kind):
    """A launch template: every change makes a new version."""

    token = "aws:ec2/launchTemplate:LaunchTemplate"
    _data: ClassVar = frozenset(
        {
            *("blockDeviceMappings", "iamInstanceProfile", "imageId", "instanceMarketOptions", "instanceType"),
            *("metadataOptions", "networkInterfaces", "placement", "tagSpecifications", "userData"),
            *("capacityReservationSpecification", "vpcSecurityGroupIds"),
        }
    )
    inputs = frozenset({"name", "updateDefaultVersion", "tags", *_data})
    moving = frozenset({"latestVersion", "defaultVersion"})
    named = "name"

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        made = cloud.ec2.create_launch_template(
            LaunchTemplateName=wanted["name"],
            LaunchTemplateData=self._as_data(wanted),
            TagSpecifications=specified("launch-template", tags),
        )
        key: str = made["LaunchTemplate"]["LaunchTemplateId"]
        return key

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        template = first(cloud.ec2.describe_launch_templates, "LaunchTemplates", LaunchTemplateIds=[key])
        if template is None:
            return None
        latest = template["LatestVersionNumber"]
        version = cloud.ec2.describe_launch_template_versions(LaunchTemplateId=key, Versions=[str(latest)])
        data = camel(version["LaunchTemplateVersions"][0]["LaunchTemplateData"])
        data["vpcSecurityGroupIds"] = data.pop("securityGroupIds", [])
        for interface in data.get("networkInterfaces", []):
            interface["securityGroups"] = interface.pop("groups", [])
        asked = [one for one in data.get("tagSpecifications", []) if one["resourceType"] != "launch-template"]
        data["tagSpecifications"] = [one | {"tags": mapped(one["tags"])} for one in asked]
        return {
            "name": template["LaunchTemplateName"],
            "latestVersion": latest,
            "defaultVersion": template["DefaultVersionNumber"],
            "arn": arn(cloud, "ec2", f"launch-template/{key}"),
            **{name: data.get(name) or None for name in self._data},
            **tags_of(template),
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
        data: dict[str, Any] = pascal({name: wanted[name] for name in self._data if wanted.get(name)})
        if "VpcSecurityGroupIds" in data:
            data["SecurityGroupIds"] = data.pop("VpcSecurityGroupIds")
        for mapping in data.get("BlockDeviceMappings", []):
            for switch in ("Encrypted", "DeleteOnTermination"):  # text in the plugin's schema
                if switch in mapping.get("Ebs", {}):
                    mapping["Ebs"][switch] = str(mapping["Ebs"][switch]).lower() == "true"
        for interface in data.get("NetworkInterfaces", []):
            interface["Groups"] = interface.pop("SecurityGroups", [])
            for switch in ("AssociatePublicIpAddress", "DeleteOnTermination"):
                if switch in interface:
                    interface[switch] = str(interface[switch]).lower() == "true"
        for tagged, asked in zip(data.get("TagSpecifications", []), wanted.get("tagSpecifications", []), strict=True):
            tagged["Tags"] = listed(asked["tags"])
        return data


class ScalingGroup(Kind):
    """An Auto Scaling group."""

    token = "aws:autoscaling/group:Group"
    inputs = frozenset(
        {
            *("name", "minSize", "maxSize", "desiredCapacity", "vpcZoneIdentifiers", "launchTemplate", "tags"),
            *("healthCheckType", "healthCheckGracePeriod", "protectFromScaleIn", "waitForCapacityTimeout"),
            *("forceDelete", "suspendedProcesses", "placementGroup", "capacityRebalance", "mixedInstancesPolicy"),
        }
    )
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
        template = group.get("LaunchTemplate")
        return {
            "name": key,
            "arn": group["AutoScalingGroupARN"],
            **{name: group.get(field) for name, field in self._fields.items()},
            "vpcZoneIdentifiers": [one for one in group.get("VPCZoneIdentifier", "").split(",") if one],
            "availabilityZones": group.get("AvailabilityZones", []),
            "launchTemplate": template
            and {
                "id": template.get("LaunchTemplateId"),
                "name": template.get("LaunchTemplateName"),
                "version": template.get("Version"),
            },
            "mixedInstancesPolicy": camel(group["MixedInstancesPolicy"]) if "MixedInstancesPolicy" in group else None,
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
                raise ClientError(complaint(f"{key} still has instances"), "DeleteAutoScalingGroup")
            time.sleep(_BETWEEN_LOOKS)

    def _request(self, wanted: Properties) -> dict[str, Any]:
        request = given(wanted, **self._fields)
        if "vpcZoneIdentifiers" in wanted:
            request["VPCZoneIdentifier"] = ",".join(wanted["vpcZoneIdentifiers"])
        template = wanted.get("launchTemplate")
        if template:
            request["LaunchTemplate"] = given(
                template, id="LaunchTemplateId", name="LaunchTemplateName", version="Version"
            )
        if wanted.get("mixedInstancesPolicy"):
            request["MixedInstancesPolicy"] = pascal(wanted["mixedInstancesPolicy"])
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


class LifecycleHook(Kind):
    """A lifecycle hook of a group. Its id is its name, as the plugin has it."""

    token = "aws:autoscaling/lifecycleHook:LifecycleHook"
    _fields: ClassVar = {
        "lifecycleTransition": "LifecycleTransition",
        "defaultResult": "DefaultResult",
        "heartbeatTimeout": "HeartbeatTimeout",
        "notificationMetadata": "NotificationMetadata",
    }
    inputs = frozenset({"name", "autoscalingGroupName", *_fields})
    named = "name"
    tagged = False

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        self.update(cloud, wanted["name"], {}, wanted)
        key: str = wanted["name"]
        return key

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        hooks = cloud.scaling.describe_lifecycle_hooks(
            AutoScalingGroupName=wanted["autoscalingGroupName"], LifecycleHookNames=[key]
        )["LifecycleHooks"]
        if not hooks:
            return None
        return {
            "name": key,
            "autoscalingGroupName": hooks[0]["AutoScalingGroupName"],
            **{name: hooks[0].get(field) for name, field in self._fields.items()},
        }

    def update(self, cloud: Cloud, key: str, old: Properties, new: Properties) -> None:
        cloud.scaling.put_lifecycle_hook(
            LifecycleHookName=key, AutoScalingGroupName=new["autoscalingGroupName"], **given(new, **self._fields)
        )

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        cloud.scaling.delete_lifecycle_hook(LifecycleHookName=key, AutoScalingGroupName=state["autoscalingGroupName"])


class PlacementGroup(Kind):
    """A placement group. Its id is its name, as the plugin has it."""

    token = "aws:ec2/placementGroup:PlacementGroup"
    inputs = frozenset({"name", "strategy", "partitionCount", "spreadLevel", "tags"})
    named = "name"
    _fields: ClassVar = {"strategy": "Strategy", "partitionCount": "PartitionCount", "spreadLevel": "SpreadLevel"}

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        cloud.ec2.create_placement_group(
            GroupName=wanted["name"],
            **given(wanted, **self._fields),
            TagSpecifications=specified("placement-group", tags),
        )
        key: str = wanted["name"]
        return key

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        group = self._find(cloud, key)
        return group and {
            "name": key,
            "placementGroupId": group["GroupId"],
            "arn": arn(cloud, "ec2", f"placement-group/{key}"),
            **{name: group.get(field) for name, field in self._fields.items()},
            **tags_of(group),
        }

    def retag(self, cloud: Cloud, key: str, before: Tags, after: Tags) -> None:
        group = self._find(cloud, key)
        if group:
            super().retag(cloud, group["GroupId"], before, after)

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        cloud.ec2.delete_placement_group(GroupName=key)

    @staticmethod
    def _find(cloud: Cloud, name: str) -> Any:
        try:
            return first(cloud.ec2.describe_placement_groups, "PlacementGroups", GroupNames=[name])
        except ClientError as error:
            if error.response["Error"]["Code"] == "InvalidPlacementGroup.Unknown":
                return None
            raise


def _group_tag(name: str, tag: dict[str, Any]) -> dict[str, Any]:
    return {"ResourceId": name, "ResourceType": "auto-scaling-group", **tag}


def _taken(name: str) -> Any:
    return complaint(f"AutoScalingGroup by this name already exists - {name}", code="AlreadyExists")


KINDS: Final[tuple[Kind, ...]] = (LaunchTemplate(), PlacementGroup(), ScalingGroup(), LifecycleHook())
