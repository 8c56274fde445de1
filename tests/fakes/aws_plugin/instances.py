"""Single instances, their interfaces and volumes, as the stand-in for the aws plugin serves them."""

# ruff: noqa: D102 - they are documented once, in `Kind`
# ruff: noqa: S105 - a token is the name of a type here

from __future__ import annotations

import base64
from typing import Any, ClassVar, Final

from stacks.local.pulumi_plugins.aws.kinds import (
    Cloud,
    Ec2Kind,
    Kind,
    Properties,
    Tags,
    first,
    given,
    pascal,
    specified,
    tags_of,
)

_GONE: Final = ("terminated", "shutting-down")
_SOON: Final = {"Delay": 1}


class NetworkInterface(Ec2Kind):
    """An interface with an address, which outlives the instance that it is on."""

    token = "aws:ec2/networkInterface:NetworkInterface"
    inputs = frozenset({"subnetId", "securityGroups", "description", "tags"})
    unordered = frozenset({"securityGroups"})
    noun = "NetworkInterface"
    tag_type = "network-interface"
    asked: ClassVar = {"subnetId": "SubnetId", "description": "Description", "securityGroups": "Groups"}
    told: ClassVar = {"privateIp": "PrivateIpAddress"}

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        one = self.describe(cloud, key)
        return one and {
            "subnetId": one["SubnetId"],
            "description": one.get("Description") or None,
            "securityGroups": [group["GroupId"] for group in one["Groups"]],
            "privateIp": one["PrivateIpAddress"],
            "tagsAll": {tag["Key"]: tag["Value"] for tag in one.get("TagSet", [])},
        }

    def update(self, cloud: Cloud, key: str, old: Properties, new: Properties) -> None:
        if old and old.get("securityGroups") != new.get("securityGroups"):
            cloud.ec2.modify_network_interface_attribute(NetworkInterfaceId=key, Groups=new["securityGroups"])


class Volume(Ec2Kind):
    """A volume."""

    token = "aws:ebs/volume:Volume"
    inputs = frozenset({"availabilityZone", "size", "type", "encrypted", "kmsKeyId", "tags"})
    noun = "Volume"
    tag_type = "volume"
    asked: ClassVar = {
        "availabilityZone": "AvailabilityZone",
        "size": "Size",
        "type": "VolumeType",
        "encrypted": "Encrypted",
        "kmsKeyId": "KmsKeyId",
    }

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        made = cloud.ec2.create_volume(**given(wanted, **self.asked), TagSpecifications=specified("volume", tags))
        key: str = made["VolumeId"]
        cloud.ec2.get_waiter("volume_available").wait(VolumeIds=[key], WaiterConfig=_SOON)
        return key

    def update(self, cloud: Cloud, key: str, old: Properties, new: Properties) -> None:
        if old and (old.get("size"), old.get("type")) != (new.get("size"), new.get("type")):
            cloud.ec2.modify_volume(VolumeId=key, **given(new, size="Size", type="VolumeType"))


class VolumeAttachment(Kind):
    """A volume on an instance."""

    token = "aws:ec2/volumeAttachment:VolumeAttachment"
    inputs = frozenset({"deviceName", "instanceId", "volumeId", "stopInstanceBeforeDetaching"})
    tagged = False

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        key = f"vai-{wanted['instanceId']}-{wanted['volumeId']}"
        if self.read(cloud, key, wanted) is None:  # as the plugin: what is attached so already is taken for its own
            cloud.ec2.attach_volume(**given(wanted, deviceName="Device", instanceId="InstanceId", volumeId="VolumeId"))
        return key

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        volume = first(cloud.ec2.describe_volumes, "Volumes", VolumeIds=[wanted["volumeId"]]) or {}
        attached = volume.get("Attachments", [])
        one = next((one for one in attached if one["InstanceId"] == wanted["instanceId"]), None)
        return one and {
            "deviceName": one["Device"],
            "instanceId": one["InstanceId"],
            "volumeId": wanted["volumeId"],
        }

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        cloud.ec2.detach_volume(VolumeId=state["volumeId"], InstanceId=state["instanceId"])


class Instance(Kind):
    """An instance, on an interface of its own or on one that is there."""

    token = "aws:ec2/instance:Instance"
    inputs = frozenset(
        {
            *("ami", "instanceType", "iamInstanceProfile", "primaryNetworkInterface", "metadataOptions"),
            *("subnetId", "vpcSecurityGroupIds", "sourceDestCheck"),
            *("rootBlockDevice", "userDataBase64", "userDataReplaceOnChange", "tags"),
        }
    )
    unordered = frozenset({"vpcSecurityGroupIds"})

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        root = first(cloud.ec2.describe_images, "Images", ImageIds=[wanted["ami"]]) or {}
        disk = {"deleteOnTermination": True} | {
            key: value for key, value in wanted["rootBlockDevice"].items() if key != "tags"
        }
        made = cloud.ec2.run_instances(
            MinCount=1,
            MaxCount=1,
            ImageId=wanted["ami"],
            InstanceType=wanted["instanceType"],
            IamInstanceProfile={"Name": wanted["iamInstanceProfile"]},
            **_attached(wanted),
            MetadataOptions=pascal(wanted["metadataOptions"]),
            UserData=base64.b64decode(wanted["userDataBase64"]).decode(),
            BlockDeviceMappings=[{"DeviceName": root.get("RootDeviceName", "/dev/sda1"), "Ebs": pascal(disk)}],
            TagSpecifications=specified("instance", tags),
        )
        key: str = made["Instances"][0]["InstanceId"]
        cloud.ec2.get_waiter("instance_running").wait(InstanceIds=[key], WaiterConfig=_SOON)
        self._check_or_not(cloud, key, {}, wanted)
        return key

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        reservation: Any = first(cloud.ec2.describe_instances, "Reservations", InstanceIds=[key])
        one = reservation["Instances"][0] if reservation else None
        if one is None or one["State"]["Name"] in _GONE:
            return None
        interfaces = [each["NetworkInterfaceId"] for each in one.get("NetworkInterfaces", [])]
        place: Properties = {
            "primaryNetworkInterface": {"networkInterfaceId": interfaces[0]} if interfaces else None,
        }
        if "subnetId" in wanted:
            place = {
                "subnetId": one["SubnetId"],
                "vpcSecurityGroupIds": [group["GroupId"] for group in one["SecurityGroups"]],
                "sourceDestCheck": one["SourceDestCheck"],
                "primaryNetworkInterfaceId": interfaces[0],
            }
        return {
            "ami": one["ImageId"],
            "instanceType": one["InstanceType"],
            "privateIp": one.get("PrivateIpAddress"),
            "instanceState": one["State"]["Name"],
            **place,
            **tags_of(one),
        }

    def update(self, cloud: Cloud, key: str, old: Properties, new: Properties) -> None:
        if old.get("instanceType") != new.get("instanceType"):  # as the plugin: off, changed, on
            cloud.ec2.stop_instances(InstanceIds=[key])
            cloud.ec2.get_waiter("instance_stopped").wait(InstanceIds=[key], WaiterConfig=_SOON)
            cloud.ec2.modify_instance_attribute(InstanceId=key, InstanceType={"Value": new["instanceType"]})
            cloud.ec2.start_instances(InstanceIds=[key])
            cloud.ec2.get_waiter("instance_running").wait(InstanceIds=[key], WaiterConfig=_SOON)
        if "subnetId" in new and old.get("vpcSecurityGroupIds") != new.get("vpcSecurityGroupIds"):
            cloud.ec2.modify_instance_attribute(InstanceId=key, Groups=new["vpcSecurityGroupIds"])
        if old.get("iamInstanceProfile") != new.get("iamInstanceProfile"):
            by_instance = [{"Name": "instance-id", "Values": [key]}]
            [held] = cloud.ec2.describe_iam_instance_profile_associations(Filters=by_instance)[
                "IamInstanceProfileAssociations"
            ]
            cloud.ec2.replace_iam_instance_profile_association(
                AssociationId=held["AssociationId"], IamInstanceProfile={"Name": new["iamInstanceProfile"]}
            )
        self._check_or_not(cloud, key, old, new)

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        cloud.ec2.terminate_instances(InstanceIds=[key])
        cloud.ec2.get_waiter("instance_terminated").wait(InstanceIds=[key], WaiterConfig=_SOON)

    def _check_or_not(self, cloud: Cloud, key: str, old: Properties, new: Properties) -> None:
        """Whether packets that are not its own are dropped."""
        check = new.get("sourceDestCheck", True)
        if check != old.get("sourceDestCheck", True):
            cloud.ec2.modify_instance_attribute(InstanceId=key, SourceDestCheck={"Value": check})


def _attached(wanted: Properties) -> Properties:
    """On an interface that is there, or on a new one in a subnet."""
    if "primaryNetworkInterface" in wanted:
        interface = wanted["primaryNetworkInterface"]["networkInterfaceId"]
        return {"NetworkInterfaces": [{"DeviceIndex": 0, "NetworkInterfaceId": interface}]}
    return given(wanted, subnetId="SubnetId", vpcSecurityGroupIds="SecurityGroupIds")


KINDS: Final = (NetworkInterface(), Volume(), VolumeAttachment(), Instance())
