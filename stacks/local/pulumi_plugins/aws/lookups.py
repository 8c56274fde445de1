"""What programs look up, as the stand-in for the aws plugin answers it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from botocore.exceptions import ClientError

from stacks.local.pulumi_plugins.aws.kinds import Cloud, Properties, complaint, mapped


def look_up_image(cloud: Cloud, asked: Properties) -> Properties:
    """``aws.ec2.get_ami``: the one image that the filters leave, or the newest of them."""
    filters = [{"Name": one["name"], "Values": one["values"]} for one in asked.get("filters", [])]
    images = cloud.ec2.describe_images(Filters=filters)["Images"]
    if len(images) > 1 and not asked.get("mostRecent"):
        raise ClientError(complaint("your query returned more than one image"), "DescribeImages")
    if not images:
        raise ClientError(
            complaint("Your query returned no results. Please change your search criteria and try again."),
            "DescribeImages",
        )
    image = max(images, key=lambda one: one.get("CreationDate", ""))
    return {
        "id": image["ImageId"],
        "imageId": image["ImageId"],
        "name": image.get("Name", ""),
        "architecture": image.get("Architecture", ""),
        "rootDeviceName": image.get("RootDeviceName", ""),
    }


def look_up_parameter(cloud: Cloud, asked: Properties) -> Properties:
    """Answers ``aws.ssm.get_parameter``."""
    found = cloud.client("ssm").get_parameter(Name=asked["name"], WithDecryption=True)["Parameter"]
    return {"id": found["Name"], "name": found["Name"], "type": found["Type"], "value": found["Value"]}


def look_up_instance_type(cloud: Cloud, asked: Properties) -> Properties:
    """``aws.ec2.get_instance_type``, as far as programs look at it."""
    kind = cloud.ec2.describe_instance_types(InstanceTypes=[asked["instanceType"]])["InstanceTypes"][0]
    network, gpus = kind["NetworkInfo"], kind.get("GpuInfo", {}).get("Gpus", [])
    return {
        "id": kind["InstanceType"],
        "instanceType": kind["InstanceType"],
        "supportedArchitectures": kind["ProcessorInfo"]["SupportedArchitectures"],
        "defaultVcpus": kind["VCpuInfo"]["DefaultVCpus"],
        "memorySize": kind["MemoryInfo"]["SizeInMiB"],
        "gpuses": [
            {
                "name": gpu["Name"],
                "manufacturer": gpu["Manufacturer"],
                "count": gpu["Count"],
                "memorySize": gpu.get("MemoryInfo", {}).get("SizeInMiB", 0),
            }
            for gpu in gpus
        ],
        "efaSupported": network.get("EfaSupported", False),
        "efaMaximumInterfaces": network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0),
        "maximumNetworkCards": network.get("MaximumNetworkCards", 1),
        "supportedPlacementStrategies": kind.get("PlacementGroupInfo", {}).get("SupportedStrategies", []),
        "supportedUsagesClasses": kind.get("SupportedUsageClasses", []),
    }


def look_up_spot_price(cloud: Cloud, asked: Properties) -> Properties:
    """Answers ``aws.ec2.get_spot_price`` with the newest price."""
    history = cloud.ec2.describe_spot_price_history(
        InstanceTypes=[asked["instanceType"]],
        AvailabilityZone=asked["availabilityZone"],
        ProductDescriptions=["Linux/UNIX"],
    )["SpotPriceHistory"]
    if not history:
        raise ClientError(complaint("no matching EC2 Spot Price found"), "DescribeSpotPriceHistory")
    newest = max(history, key=lambda one: one["Timestamp"])
    return {"id": cloud.region, "spotPrice": newest["SpotPrice"], "spotPriceTimestamp": str(newest["Timestamp"])}


def look_up_scaling_groups(cloud: Cloud, asked: Properties) -> Properties:
    """``aws.autoscaling.get_ami_ids``: names of Auto Scaling groups, as the plugin calls them."""
    filters = [{"Name": one["name"], "Values": one["values"]} for one in asked.get("filters") or ()]
    pages = cloud.scaling.get_paginator("describe_auto_scaling_groups").paginate(Filters=filters)
    found = [group for page in pages for group in page["AutoScalingGroups"]]
    names, arns = ([group[f"AutoScalingGroup{what}"] for group in found] for what in ("Name", "ARN"))
    return {"id": cloud.region, "names": names, "arns": arns}


def look_up_scaling_group(cloud: Cloud, asked: Properties) -> Properties:
    """``aws.autoscaling.get_group``, as far as programs look at it."""
    found = cloud.scaling.describe_auto_scaling_groups(AutoScalingGroupNames=[asked["name"]])["AutoScalingGroups"]
    if not found:
        raise ClientError(complaint(f"no matching Auto Scaling Group {asked['name']}"), "DescribeAutoScalingGroups")
    return {"id": asked["name"], "name": asked["name"], "desiredCapacity": found[0]["DesiredCapacity"]}


def look_up_volumes(cloud: Cloud, asked: Properties) -> Properties:
    """Answers ``aws.ebs.get_ebs_volumes`` with their ids."""
    return {"id": cloud.region, "ids": [one["VolumeId"] for one in _volumes(cloud, asked)]}


def look_up_volume(cloud: Cloud, asked: Properties) -> Properties:
    """``aws.ebs.get_volume``: the one that the filters leave."""
    volumes = _volumes(cloud, asked)
    if len(volumes) != 1:
        raise ClientError(complaint(f"your query returned {len(volumes)} volumes"), "DescribeVolumes")
    [volume] = volumes
    return {
        "id": volume["VolumeId"],
        "volumeId": volume["VolumeId"],
        "availabilityZone": volume["AvailabilityZone"],
        "encrypted": volume["Encrypted"],
        "kmsKeyId": volume.get("KmsKeyId", ""),
        "size": volume["Size"],
        "tags": mapped(volume.get("Tags", [])),
    }


def _volumes(cloud: Cloud, asked: Properties) -> list[Any]:
    filters = [{"Name": one["name"], "Values": one["values"]} for one in asked.get("filters", [])]
    pages = cloud.ec2.get_paginator("describe_volumes").paginate(Filters=filters)
    return [volume for page in pages for volume in page["Volumes"]]


def look_up_caller(cloud: Cloud, _: Properties) -> Properties:
    """Answers ``aws.get_caller_identity``."""
    caller = cloud.client("sts").get_caller_identity()
    return {"id": caller["Account"], "accountId": caller["Account"], "arn": caller["Arn"], "userId": caller["UserId"]}


def look_up_zones(cloud: Cloud, asked: Properties) -> Properties:
    """Answers ``aws.get_availability_zones``."""
    states = [{"Name": "state", "Values": [asked["state"]]}] if "state" in asked else []
    zones = cloud.ec2.describe_availability_zones(Filters=states)["AvailabilityZones"]
    return {
        "id": cloud.region,
        "names": [one["ZoneName"] for one in zones],
        "zoneIds": [one["ZoneId"] for one in zones],
    }


def look_up_key(cloud: Cloud, asked: Properties) -> Properties:
    """``aws.kms.get_key``, as far as programs look at it."""
    key = cloud.client("kms").describe_key(KeyId=asked["keyId"])["KeyMetadata"]
    return {"id": key["KeyId"], "arn": key["Arn"], "keyId": key["KeyId"], "keyState": key["KeyState"]}


def look_up_rules(cloud: Cloud, asked: Properties) -> Properties:
    """Answers ``aws.vpc.get_security_group_rules`` with their ids."""
    filters = [{"Name": one["name"], "Values": one["values"]} for one in asked.get("filters") or ()]
    found = cloud.ec2.describe_security_group_rules(Filters=filters)["SecurityGroupRules"]
    return {"id": cloud.region, "ids": [one["SecurityGroupRuleId"] for one in found]}


def look_up_rule(cloud: Cloud, asked: Properties) -> Properties:
    """``aws.vpc.get_security_group_rule``, as far as programs look at it."""
    key = asked["securityGroupRuleId"]
    [rule] = cloud.ec2.describe_security_group_rules(SecurityGroupRuleIds=[key])["SecurityGroupRules"]
    return {
        "id": key,
        "securityGroupRuleId": key,
        "securityGroupId": rule["GroupId"],
        "isEgress": rule["IsEgress"],
        "ipProtocol": rule["IpProtocol"],
        "fromPort": rule.get("FromPort", -1),
        "toPort": rule.get("ToPort", -1),
        "cidrIpv4": rule.get("CidrIpv4", ""),
        "cidrIpv6": rule.get("CidrIpv6", ""),
        "tags": mapped(rule.get("Tags", [])),
    }


LOOKUPS: Final[Mapping[str, Callable[[Cloud, Properties], Properties]]] = {
    "aws:index/getCallerIdentity:getCallerIdentity": look_up_caller,
    "aws:index/getAvailabilityZones:getAvailabilityZones": look_up_zones,
    "aws:kms/getKey:getKey": look_up_key,
    "aws:autoscaling/getAmiIds:getAmiIds": look_up_scaling_groups,
    "aws:autoscaling/getGroup:getGroup": look_up_scaling_group,
    "aws:ebs/getEbsVolumes:getEbsVolumes": look_up_volumes,
    "aws:ebs/getVolume:getVolume": look_up_volume,
    "aws:ec2/getAmi:getAmi": look_up_image,
    "aws:ec2/getInstanceType:getInstanceType": look_up_instance_type,
    "aws:ec2/getSpotPrice:getSpotPrice": look_up_spot_price,
    "aws:vpc/getSecurityGroupRules:getSecurityGroupRules": look_up_rules,
    "aws:vpc/getSecurityGroupRule:getSecurityGroupRule": look_up_rule,
    "aws:ssm/getParameter:getParameter": look_up_parameter,
}
"""By token."""
