"""What runs now in groups whose maximum the policy lowers: told in a preview, since AWS does not simply end it."""

from __future__ import annotations

from collections.abc import Iterable

import pulumi
import pulumi_aws as aws

from autoscaler.config.policy import Policy, asg_name
from autoscaler.model import labels as words


def sizes_now(policy: Policy, *, provider: aws.Provider) -> dict[str, int]:
    """Desired capacity of each group of the cluster that stands already, by its name; asked of AWS."""
    opts = pulumi.InvokeOptions(provider=provider)
    ours = {asg_name(policy.cluster, entry.name, zone) for entry in policy.groups for zone in entry.zones}
    return sizes_of(ours & set(groups_of(policy.cluster, opts)), opts)


def sizes_of(names: Iterable[str], opts: pulumi.InvokeOptions) -> dict[str, int]:
    """Desired capacity of groups that stand, by name."""
    return {name: aws.autoscaling.get_group(name=name, opts=opts).desired_capacity for name in sorted(names)}


def groups_of(cluster: str, opts: pulumi.InvokeOptions) -> list[str]:
    """Names of its groups that stand."""
    tag = aws.autoscaling.GetAmiIdsFilterArgs(name=f"tag:{words.TAG_CLUSTER}", values=[cluster])
    return list(aws.autoscaling.get_ami_ids(filters=[tag], opts=opts).names)  # so the plugin calls the list of groups


def tell_shrinking(policy: Policy, sizes: dict[str, int], *, protected: bool, source: str) -> list[str]:
    """A line for each group that has more nodes than it may have from now on."""
    fate = (
        "they stay until they are idle and the autoscaler gives them back, since they are protected from scale-in"
        if protected
        else "AWS ends as many at once, busy or not (nodes.scale_in_protection is false)"
    )
    return [
        f"{source}: groups[{place}] ({entry.name}).max = {entry.max}, and {name} has {sizes[name]} nodes: {fate}"
        for place, entry in enumerate(policy.groups)
        for zone in entry.zones
        if sizes.get(name := asg_name(policy.cluster, entry.name, zone), 0) > entry.max
    ]
