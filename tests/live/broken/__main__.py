"""A program that breaks every guardrail, once each: what the resources are called says which."""

from __future__ import annotations

import pulumi
import pulumi_aws as aws

tagged = aws.Provider(
    "tagged",
    region="us-east-1",
    default_tags={"tags": {"spillway.dev/cluster": "broken", "spillway.dev/made-by": "pulumi"}},
)
bare = aws.Provider("bare", region="us-east-1")
ours, nobodys = pulumi.ResourceOptions(provider=tagged), pulumi.ResourceOptions(provider=bare)

vpc = aws.ec2.Vpc("without-tags", cidr_block="10.1.0.0/16", opts=nobodys)
subnet = aws.ec2.Subnet("subnet", vpc_id=vpc.id, cidr_block="10.1.0.0/20", opts=ours)
group = aws.ec2.SecurityGroup("group", vpc_id=vpc.id, opts=ours)
aws.vpc.SecurityGroupIngressRule(
    "open-to-the-world",
    security_group_id=group.id,
    ip_protocol="tcp",
    from_port=22,
    to_port=22,
    cidr_ipv4="0.0.0.0/0",
    opts=ours,
)
template = aws.ec2.LaunchTemplate(
    "without-token-and-in-clear",
    image_id="ami-12c6146b",
    instance_type="g5.12xlarge",
    metadata_options={"http_tokens": "optional"},
    block_device_mappings=[{"device_name": "/dev/sda1", "ebs": {"volume_size": 100}}],
    opts=ours,
)
aws.autoscaling.Group(
    "too-dear",
    min_size=0,
    max_size=100,
    vpc_zone_identifiers=[subnet.id],
    launch_template={"id": template.id, "version": "1"},
    tags=[
        {"key": "spillway.dev/cluster", "value": "broken", "propagate_at_launch": False},
        {"key": "spillway.dev/group", "value": "gpu", "propagate_at_launch": False},
    ],
    opts=ours,
)
aws.s3.Bucket("bare-bucket", opts=ours)
pulumi.export("cost", {"groups": [{"entry": "gpu", "usdPerHour": 5.672}]})
