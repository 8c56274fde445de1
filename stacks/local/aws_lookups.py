"""What programs look up, as the stand-in for the aws plugin answers it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from botocore.exceptions import ClientError

from stacks.local.aws_kinds import Cloud, Properties, complaint


def look_up_image(cloud: Cloud, asked: Properties) -> Properties:
    """``aws.ec2.get_ami``: the one image that the filters leave, or the newest of them."""
    filters = [{"Name": one["name"], "Values": one["values"]} for one in asked.get("filters", [])]
    images = cloud.ec2.describe_images(Filters=filters)["Images"]
    if len(images) > 1 and not asked.get("mostRecent"):
        raise ClientError(complaint("your query returned more than one image"), "DescribeImages")
    if not images:
        raise ClientError(complaint(f"no image matches {filters}"), "DescribeImages")
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


LOOKUPS: Final[Mapping[str, Callable[[Cloud, Properties], Properties]]] = {
    "aws:ec2/getAmi:getAmi": look_up_image,
    "aws:ssm/getParameter:getParameter": look_up_parameter,
}
"""By token."""
