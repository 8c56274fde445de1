"""The launch template of a policy entry: how each of its instances is made. Imports no policy of scaling."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

import pulumi
import pulumi_aws as aws

from autoscaler.config.group_entry import GroupEntry

_GIB: Final = 2**30


def launch_template(
    name: str,
    *,
    physical_name: str,
    entry: GroupEntry,
    user_data: pulumi.Input[str],
    image_id: pulumi.Input[str],
    root_device: pulumi.Input[str],
    instance_profile_arn: pulumi.Input[str],
    security_group_id: pulumi.Input[str],
    kms_key_id: pulumi.Input[str] | None,
    adapters: int,
    first_adapter_card: int,
    tags: Mapping[str, str],
    opts: pulumi.ResourceOptions,
) -> aws.ec2.LaunchTemplate:
    """IMDSv2, an encrypted root volume, no secret in user data; adapters and spot where the entry asks for them."""
    several = len(entry.types) > 1
    return aws.ec2.LaunchTemplate(
        name,
        name=physical_name,
        update_default_version=True,
        image_id=image_id,
        # Of a set the group says the types, and the market with them: AWS refuses a template that says it too.
        instance_type=None if several else entry.types[0],
        instance_market_options=None
        if entry.capacity_type == "on-demand" or several
        else {"market_type": entry.capacity_type},
        capacity_reservation_specification={
            "capacity_reservation_target": {"capacity_reservation_id": entry.capacity_reservation}
        }
        if entry.capacity_reservation
        else None,
        user_data=pulumi.Output.from_input(user_data).apply(lambda text: base64.b64encode(text.encode()).decode()),
        iam_instance_profile={"arn": instance_profile_arn},
        # Where interfaces are listed, each has its security groups, and the template must have none.
        vpc_security_group_ids=None if adapters else [security_group_id],
        network_interfaces=network_interfaces(adapters, security_group_id, first_card=first_adapter_card) or None,
        metadata_options={
            "http_endpoint": "enabled",
            "http_tokens": "required",  # IMDSv2
            "http_put_response_hop_limit": 1,  # pods do not reach the role of their node
        },
        block_device_mappings=[
            {
                "device_name": root_device,
                "ebs": {
                    "volume_type": "gp3",
                    "volume_size": root_volume_gib(entry),
                    "encrypted": "true",
                    "delete_on_termination": "true",
                    **({"kms_key_id": kms_key_id} if kms_key_id is not None else {}),
                },
            }
        ],
        tag_specifications=[
            {"resource_type": "instance", "tags": tags},
            {"resource_type": "volume", "tags": tags},
        ],
        opts=opts,
    )


def network_interfaces(adapters: int, security_group_id: pulumi.Input[str], *, first_card: int) -> list[Any]:
    """One Elastic Fabric Adapter on each network card from the first that takes one.

    The interface of card 0 is the node's ordinary one as well, or, where that card takes no adapter, that alone. The
    others carry fabric traffic only (``efa-only``), so that a node of 32 adapters takes one address of its subnet, not
    32: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-acc-inst-types.html
    """
    if not adapters:
        return []
    own = (0, 0, "interface" if first_card else "efa")
    # Beside an interface on card 0 that is an adapter itself, the others are the second devices of their cards.
    others = [(card, 0 if first_card else 1, "efa-only") for card in range(1, first_card + adapters)]
    return [
        {
            "network_card_index": card,
            "device_index": device,
            "interface_type": kind,
            "security_groups": [security_group_id],
            "delete_on_termination": "true",
        }
        for card, device, kind in (own, *others)
    ]


def root_volume_gib(entry: GroupEntry) -> int:
    """Size of the root volume in whole GiB, rounded up."""
    return -(-entry.disk_bytes // _GIB)
