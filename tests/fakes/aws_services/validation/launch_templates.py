"""What EC2 refuses of launch templates, and of the instances that are made from them.

As on AWS, a launch template is checked in its form when it is written, and in what it refers to when a group or an
instance is made from it.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from stacks.local.wire.aws_protocol import Refused
from tests.fakes.aws_services.validation.lookups import Known, listed

USER_DATA_LIMIT: Final = 16384
_VOLUME_GIB: Final = {
    "gp2": (1, 16384),
    "gp3": (1, 65536),
    "io1": (4, 16384),
    "io2": (4, 65536),
    "st1": (125, 16384),
    "sc1": (125, 16384),
    "standard": (1, 1024),
}
"""https://docs.aws.amazon.com/ebs/latest/userguide/ebs-volume-types.html."""
_METADATA: Final = {
    "HttpTokens": ("optional", "required"),
    "HttpEndpoint": ("disabled", "enabled"),
    "HttpProtocolIpv6": ("disabled", "enabled"),
    "InstanceMetadataTags": ("disabled", "enabled"),
}
_ONLY_FOR: Final[Mapping[str, Mapping[str, tuple[int, int]]]] = {
    "Iops": {"gp3": (3000, 80000), "io1": (100, 64000), "io2": (100, 256000)},
    "Throughput": {"gp3": (125, 2000)},
}
_DEVICE: Final = re.compile(r"/dev/(sd[a-z]\d{0,2}|xvd[a-z]{1,2}\d{0,2})|xvd[a-z]{1,2}|sd[a-z]\d{0,2}")
"""https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/device_naming.html."""
_TEMPLATE_NAME: Final = re.compile(r"[a-zA-Z0-9().\-/_]{3,128}")
_IDS: Final = {"ImageId": ("ami", "InvalidAMIID.Malformed"), "SubnetId": ("subnet", "InvalidSubnetID.Malformed")}


def create_launch_template(asked: Mapping[str, Any], _: Known) -> None:
    """Name and form."""
    name = str(asked.get("LaunchTemplateName", ""))
    if not _TEMPLATE_NAME.fullmatch(name):
        raise Refused(
            "InvalidLaunchTemplateName.MalformedException",
            "A launch template name must be between 3 and 128 characters, and may contain letters, numbers, "
            f"and the following characters: - ( ) . / _ . The name {name!r} is not valid.",
        )
    _template_data(asked.get("LaunchTemplateData") or {})


def create_launch_template_version(asked: Mapping[str, Any], _: Known) -> None:
    """Form."""
    _template_data(asked.get("LaunchTemplateData") or {})


def run_instances(asked: Mapping[str, Any], known: Known) -> None:
    """Form, and what it refers to."""
    specification = asked.get("LaunchTemplate")
    template = known.launch_template(specification) if specification else {}
    own = {key: value for key, value in asked.items() if value}
    data = {**(template or {}), **own}
    _template_data(own)
    check_exists(data, known)
    subnet = data.get("SubnetId")
    if subnet and not known.has_subnet(subnet):
        raise Refused("InvalidSubnetID.NotFound", f"The subnet ID '{subnet}' does not exist")
    fewest, most = int(asked.get("MinCount", 1)), int(asked.get("MaxCount", 1))
    if not 1 <= fewest <= most:
        raise Refused(
            "InvalidParameterValue", f"Invalid value '{fewest}' for MinCount: it must be between 1 and MaxCount {most}."
        )


def check_exists(data: Mapping[str, Any], known: Known) -> None:
    """Type, image and security groups of what is to be launched."""
    instance_type, image = data.get("InstanceType"), data.get("ImageId")
    if not image:
        raise Refused("MissingParameter", "The request must contain the parameter ImageId")
    if instance_type and not known.has_instance_type(instance_type):
        raise Refused("InvalidParameterValue", f"Invalid value '{instance_type}' for InstanceType.")
    if not known.has_image(image):
        raise Refused("InvalidAMIID.NotFound", f"The image id '[{image}]' does not exist")
    interfaces = listed(data, "NetworkInterfaces", "NetworkInterface")
    of_interfaces = [group for one in interfaces for group in listed(one, "Groups", "SecurityGroupId")]
    for group in [*listed(data, "SecurityGroupIds", "SecurityGroupId"), *of_interfaces]:
        if not known.has_security_group(group):
            raise Refused("InvalidGroup.NotFound", f"The security group '{group}' does not exist")
    placement = (data.get("Placement") or {}).get("GroupName")
    if placement and not known.has_placement_group(placement):
        raise Refused("InvalidPlacementGroup.Unknown", f"The Placement Group '{placement}' is unknown.")
    if instance_type:
        _adapters_there(interfaces, instance_type, known)


def _adapters_there(interfaces: list[Any], instance_type: str, known: Known) -> None:
    adapters = [one for one in interfaces if one.get("InterfaceType") in ("efa", "efa-only")]
    most, cards = known.most_adapters(instance_type), known.network_cards(instance_type)
    if adapters and not most:
        raise Refused("InvalidParameterCombination", f"EFA interfaces are not supported on {instance_type}.")
    if len(adapters) > most:
        raise Refused(
            "AttachmentLimitExceeded",
            f"EFA interface count {len(adapters)} exceeds the limit of {most} for {instance_type}.",
        )
    for one in interfaces:
        if int(one.get("NetworkCardIndex") or 0) >= cards:
            raise Refused(
                "InvalidParameterValue",
                f"Network card index {one['NetworkCardIndex']} is not valid for {instance_type}, which has {cards}.",
            )


def _template_data(data: Mapping[str, Any]) -> None:
    """The form of what a launch template says, or ``RunInstances`` itself."""
    _user_data(data.get("UserData"))
    for key, (prefix, code) in _IDS.items():
        given = data.get(key)
        if given and not given.startswith(("resolve:ssm:", f"{prefix}-")):
            raise Refused(code, f'Invalid id: "{given}" (expecting "{prefix}-...")')
    for mapping in listed(data, "BlockDeviceMappings", "BlockDeviceMapping"):
        _device(str(mapping.get("DeviceName", "")))
        _volume(mapping.get("Ebs") or {})
    _metadata_options(data.get("MetadataOptions") or {})
    _market(data.get("InstanceMarketOptions") or {})
    _interfaces(data)


def _user_data(text: str | None) -> None:
    if not text:
        return
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise Refused("InvalidUserData.Malformed", "Invalid BASE64 encoding of user data.") from None
    if len(raw) > USER_DATA_LIMIT:
        raise Refused("InvalidParameterValue", f"User data is limited to {USER_DATA_LIMIT} bytes")


def _volume(ebs: Mapping[str, Any]) -> None:
    encrypted, kind = ebs.get("Encrypted"), ebs.get("VolumeType", "gp2")
    if encrypted is not None and encrypted not in ("true", "false"):
        raise Refused("InvalidParameterValue", f"Invalid value '{encrypted}' for Encrypted. Value must be a boolean.")
    if kind not in _VOLUME_GIB:
        raise Refused("InvalidParameterValue", f"Invalid value '{kind}' for VolumeType.")
    if ebs.get("KmsKeyId") and encrypted != "true":
        raise Refused(
            "InvalidParameterDependency", "The parameter KmsKeyId requires the parameter Encrypted to be set to true."
        )
    for key, kinds in _ONLY_FOR.items():
        if ebs.get(key) is not None and kind not in kinds:
            raise Refused("InvalidParameterCombination", f"The parameter {key} is not supported for {kind} volumes.")
        limits = kinds.get(kind)
        if ebs.get(key) is not None and limits and not limits[0] <= int(ebs[key]) <= limits[1]:
            raise Refused(
                "InvalidParameterValue",
                f"Volume {key} of {ebs[key]} must be between {limits[0]} and {limits[1]} for {kind}.",
            )
    size = ebs.get("VolumeSize")
    least, most = _VOLUME_GIB[kind]
    if size is not None and not (size.isdigit() and least <= int(size) <= most):
        raise Refused(
            "InvalidParameterValue",
            f"Volume of {size}GiB is invalid for volume type {kind}: it must be between {least} and {most} GiB.",
        )


def _device(name: str) -> None:
    if not _DEVICE.fullmatch(name):
        raise Refused("InvalidBlockDeviceMapping", f"Invalid device name {name}")


def _market(options: Mapping[str, Any]) -> None:
    kind, spot = options.get("MarketType"), options.get("SpotOptions") or {}
    if kind is not None and kind not in ("spot", "capacity-block", "interruptible-capacity-reservation"):
        raise Refused("InvalidParameterValue", f"Invalid value '{kind}' for InstanceMarketOptions.MarketType.")
    if spot and kind != "spot":
        raise Refused("InvalidParameterCombination", "SpotOptions may be given with the market type spot only.")
    behavior = spot.get("InstanceInterruptionBehavior", "terminate")
    if behavior != "terminate" and spot.get("SpotInstanceType") != "persistent":
        raise Refused("InvalidParameterCombination", f"Interruption behavior {behavior} needs a persistent request.")


def _interfaces(data: Mapping[str, Any]) -> None:
    interfaces = listed(data, "NetworkInterfaces", "NetworkInterface")
    if interfaces and (listed(data, "SecurityGroupIds", "SecurityGroupId") or data.get("SubnetId")):
        raise Refused(
            "InvalidParameterCombination",
            "Network interfaces and an instance-level subnet ID or security groups may not be specified on the same "
            "request",
        )
    places = Counter((one.get("NetworkCardIndex") or "0", one.get("DeviceIndex")) for one in interfaces)
    for (card, device), count in places.items():
        if device is None:
            raise Refused("MissingParameter", "The request must contain the parameter DeviceIndex of each interface")
        if count > 1:
            raise Refused("InvalidParameterValue", f"Device index {device} of network card {card} is given twice.")
    for one in interfaces:
        kind, place = one.get("InterfaceType", "interface"), (one.get("NetworkCardIndex") or "0", one["DeviceIndex"])
        if kind not in ("interface", "efa", "efa-only"):
            raise Refused("InvalidParameterValue", f"Invalid value '{kind}' for InterfaceType.")
        if kind == "efa-only" and place == ("0", "0"):
            raise Refused("InvalidParameterCombination", "The primary network interface cannot be EFA-only.")
        if one.get("AssociatePublicIpAddress") == "true" and len(interfaces) > 1:
            raise Refused(
                "InvalidParameterCombination",
                "The associatePublicIPAddress parameter cannot be specified when launching with multiple network "
                "interfaces.",
            )


def _metadata_options(options: Mapping[str, Any]) -> None:
    for key, allowed in _METADATA.items():
        given = options.get(key)
        if given is not None and given not in allowed:
            raise Refused("InvalidParameterValue", f"Value ({given}) for parameter {key} is invalid.")
    hops = options.get("HttpPutResponseHopLimit")
    if hops is not None and not (hops.isdigit() and 1 <= int(hops) <= 64):
        raise Refused("InvalidParameterValue", f"Value ({hops}) for parameter HttpPutResponseHopLimit is invalid.")
