"""What AWS refuses and moto accepts: requests that are wrong in themselves, or that name what is not there.

Each check raises ``Refused`` with AWS's code and words. They see a call before moto does and hold no state of their
own; what exists is asked of :class:`Known`. As on AWS, a launch template is checked in its form when it is written, and
in what it refers to when a group or an instance is made from it.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

from stacks.local.wire import Call, Refused, nested

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
_PAGE: Final = 100
_TAGS: Final = 50
_TAG_KEY: Final = 128
_TAG_VALUE: Final = 256
_TEMPLATE_NAME: Final = re.compile(r"[a-zA-Z0-9().\-/_]{3,128}")
_GROUP_NAME: Final = re.compile(r"[^:\x00-\x1f\x7f]{1,255}")
_IDS: Final = {"ImageId": ("ami", "InvalidAMIID.Malformed"), "SubnetId": ("subnet", "InvalidSubnetID.Malformed")}


class Known(Protocol):
    """What there is in the call's region."""

    def has_instance_type(self, name: str) -> bool:
        """Whether EC2 has such a type."""

    def has_image(self, image: str) -> bool:
        """Whether there is such an image."""

    def has_security_group(self, group: str) -> bool:
        """Whether there is such a security group."""

    def has_subnet(self, subnet: str) -> bool:
        """Whether there is such a subnet."""

    def launch_template(self, specification: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The data of a template in the version that is named; ``None`` where there is no such template."""


def check(call: Call, known: Known) -> None:
    """Raise ``Refused`` where AWS would refuse the call."""
    found = _CHECKS.get((call.service, call.action))
    if found is not None:
        found(nested({key: str(value) for key, value in call.parameters.items()}), known)


def _create_launch_template(asked: Mapping[str, Any], _: Known) -> None:
    name = str(asked.get("LaunchTemplateName", ""))
    if not _TEMPLATE_NAME.fullmatch(name):
        raise Refused(
            "InvalidLaunchTemplateName.MalformedException",
            "A launch template name must be between 3 and 128 characters, and may contain letters, numbers, "
            f"and the following characters: - ( ) . / _ . The name {name!r} is not valid.",
        )
    _tag_specifications(asked)
    _template_data(asked.get("LaunchTemplateData") or {})


def _create_launch_template_version(asked: Mapping[str, Any], _: Known) -> None:
    _template_data(asked.get("LaunchTemplateData") or {})


def _run_instances(asked: Mapping[str, Any], known: Known) -> None:
    specification = asked.get("LaunchTemplate")
    template = known.launch_template(specification) if specification else {}
    own = {key: value for key, value in asked.items() if value}
    data = {**(template or {}), **own}
    _template_data(own)
    _exists(data, known)
    subnet = data.get("SubnetId")
    if subnet and not known.has_subnet(subnet):
        raise Refused("InvalidSubnetID.NotFound", f"The subnet ID '{subnet}' does not exist")
    fewest, most = int(asked.get("MinCount", 1)), int(asked.get("MaxCount", 1))
    if not 1 <= fewest <= most:
        raise Refused(
            "InvalidParameterValue", f"Invalid value '{fewest}' for MinCount: it must be between 1 and MaxCount {most}."
        )


def _create_group(asked: Mapping[str, Any], known: Known) -> None:
    name = str(asked.get("AutoScalingGroupName", ""))
    if not _GROUP_NAME.fullmatch(name):
        raise _invalid(
            f"1 validation error detected: Value '{name}' at 'autoScalingGroupName' failed to satisfy constraint: "
            "Member must have length between 1 and 255 and hold no colon"
        )
    for parameter in ("MinSize", "MaxSize"):
        if asked.get(parameter) is None:
            where = parameter[0].lower() + parameter[1:]
            raise _invalid(
                f"1 validation error detected: Value null at '{where}' failed to satisfy constraint: "
                "Member must not be null"
            )
    _tags(asked.get("Tags") or [], code="ValidationError")
    _group_refers_to_what_is_there(asked, known)


def _page(asked: Mapping[str, Any], _: Known) -> None:
    size = str(asked.get("MaxRecords", "1"))
    if not (size.isdigit() and 1 <= int(size) <= _PAGE):
        raise _invalid(
            f"1 validation error detected: Value '{size}' at 'maxRecords' failed to satisfy constraint: "
            f"Member must have value less than or equal to {_PAGE}"
        )


def _update_group(asked: Mapping[str, Any], known: Known) -> None:
    _group_refers_to_what_is_there(asked, known)


def _group_refers_to_what_is_there(asked: Mapping[str, Any], known: Known) -> None:
    for subnet in filter(None, str(asked.get("VPCZoneIdentifier", "")).split(",")):
        if not known.has_subnet(subnet):
            raise _invalid(f"The subnet ID '{subnet}' does not exist")
    mixed = (asked.get("MixedInstancesPolicy") or {}).get("LaunchTemplate") or {}
    specification = asked.get("LaunchTemplate") or mixed.get("LaunchTemplateSpecification")
    if not specification:
        return
    data = known.launch_template(specification)
    if data is None:
        raise _invalid(_NOT_FULLY_FORMED + "The specified launch template, with template ID or name, does not exist.")
    types = [one.get("InstanceType") for one in mixed.get("Overrides") or []] or [data.get("InstanceType")]
    try:
        for instance_type in types:
            _exists({**data, "InstanceType": instance_type}, known)
    except Refused as reason:
        raise _invalid(f"{_NOT_FULLY_FORMED}{reason}") from None


def _exists(data: Mapping[str, Any], known: Known) -> None:
    """Type, image and security groups of what is to be launched."""
    instance_type, image = data.get("InstanceType"), data.get("ImageId")
    if not image:
        raise Refused("MissingParameter", "The request must contain the parameter ImageId")
    if instance_type and not known.has_instance_type(instance_type):
        raise Refused("InvalidParameterValue", f"Invalid value '{instance_type}' for InstanceType.")
    if not known.has_image(image):
        raise Refused("InvalidAMIID.NotFound", f"The image id '[{image}]' does not exist")
    for group in _listed(data, "SecurityGroupIds", "SecurityGroupId"):
        if not known.has_security_group(group):
            raise Refused("InvalidGroup.NotFound", f"The security group '{group}' does not exist")


def _template_data(data: Mapping[str, Any]) -> None:
    """The form of what a launch template says, or ``RunInstances`` itself."""
    _user_data(data.get("UserData"))
    for key, (prefix, code) in _IDS.items():
        given = data.get(key)
        if given and not given.startswith(("resolve:ssm:", f"{prefix}-")):
            raise Refused(code, f'Invalid id: "{given}" (expecting "{prefix}-...")')
    for mapping in _listed(data, "BlockDeviceMappings", "BlockDeviceMapping"):
        _volume(mapping.get("Ebs") or {})
    _metadata_options(data.get("MetadataOptions") or {})
    _tag_specifications(data)


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
    size = ebs.get("VolumeSize")
    least, most = _VOLUME_GIB[kind]
    if size is not None and not (size.isdigit() and least <= int(size) <= most):
        raise Refused(
            "InvalidParameterValue",
            f"Volume of {size}GiB is invalid for volume type {kind}: it must be between {least} and {most} GiB.",
        )


def _metadata_options(options: Mapping[str, Any]) -> None:
    for key, allowed in _METADATA.items():
        given = options.get(key)
        if given is not None and given not in allowed:
            raise Refused("InvalidParameterValue", f"Value ({given}) for parameter {key} is invalid.")
    hops = options.get("HttpPutResponseHopLimit")
    if hops is not None and not (hops.isdigit() and 1 <= int(hops) <= 64):  # noqa: PLR2004 - EC2's limit
        raise Refused("InvalidParameterValue", f"Value ({hops}) for parameter HttpPutResponseHopLimit is invalid.")


def _create_tags(asked: Mapping[str, Any], _: Known) -> None:
    _tags(_listed(asked, "Tags", "Tag"), code="InvalidParameterValue")


def _group_tags(asked: Mapping[str, Any], _: Known) -> None:
    _tags(asked.get("Tags") or [], code="ValidationError")


def _tag_specifications(asked: Mapping[str, Any]) -> None:
    for specification in _listed(asked, "TagSpecifications", "TagSpecification"):
        _tags(_listed(specification, "Tags", "Tag"), code="InvalidParameterValue")


def _tags(tags: Iterable[Mapping[str, Any]], *, code: str) -> None:
    listed = list(tags)
    if len(listed) > _TAGS:
        raise Refused("TagLimitExceeded", "The maximum number of Tags for a resource has been reached.")
    for tag in listed:
        key, value = str(tag.get("Key", "")), str(tag.get("Value") or "")
        if not 1 <= len(key) <= _TAG_KEY:
            raise Refused(code, f"Tag key exceeds the maximum length of {_TAG_KEY} characters: {key!r}")
        if len(value) > _TAG_VALUE:
            raise Refused(code, f"Tag value exceeds the maximum length of {_TAG_VALUE} characters: {value!r}")
        if key.lower().startswith("aws:"):
            raise Refused(
                code, f"Value ( {key} ) for parameter key is invalid. Tag keys starting with 'aws:' are reserved"
            )


def _listed(data: Mapping[str, Any], *names: str) -> list[Any]:
    """A list that the query protocol may name in the singular."""
    return next((list(data[name]) for name in names if data.get(name)), [])


def _invalid(message: str) -> Refused:
    return Refused("ValidationError", message)


_NOT_FULLY_FORMED: Final = "You must use a valid fully-formed launch template. "

_CHECKS: Final[Mapping[tuple[str, str], Callable[[Mapping[str, Any], Known], None]]] = {
    ("autoscaling", "CreateAutoScalingGroup"): _create_group,
    ("autoscaling", "CreateOrUpdateTags"): _group_tags,
    ("autoscaling", "DescribeAutoScalingGroups"): _page,
    ("autoscaling", "DescribeScalingActivities"): _page,
    ("autoscaling", "UpdateAutoScalingGroup"): _update_group,
    ("ec2", "CreateLaunchTemplate"): _create_launch_template,
    ("ec2", "CreateLaunchTemplateVersion"): _create_launch_template_version,
    ("ec2", "CreateTags"): _create_tags,
    ("ec2", "RunInstances"): _run_instances,
}
