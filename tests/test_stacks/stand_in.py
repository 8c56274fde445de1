"""The stand-in for AWS in this process, with a clock that the test moves, an ordinary network and a template in it."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import boto3
import urllib3
from botocore.config import Config

from autoscaler.model.constraints import Taint
from stacks.local.fake_aws.instances import World
from stacks.local.fake_aws.server import serving
from stacks.local.wire.faults import Faults
from stacks.nodes.user_data import NodeSpec, render_user_data

PATIENCE = 20.0
"""Seconds that a test waits for what happens in another thread."""
IMAGE = "ami-12c6146b"
"""One that moto knows."""


class Clock:
    """Time that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """Seconds."""
        return self.now


@dataclass
class StandIn:
    """A running stand-in, with clients, two subnets and a launch template."""

    url: str
    world: World
    clock: Clock
    ec2: Any
    asg: Any
    subnets: list[str]
    template: str
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def group(self, **changes: Any) -> str:
        """Create an ordinary group in both zones; gives its name."""
        name = f"group-{next(self.numbers)}"
        ordinary = {
            "AutoScalingGroupName": name,
            "MinSize": 0,
            "MaxSize": 10,
            "LaunchTemplate": {"LaunchTemplateId": self.template, "Version": "$Latest"},
            "VPCZoneIdentifier": ",".join(self.subnets),
        }
        asked = {key: value for key, value in (ordinary | changes).items() if value is not None}
        self.asg.create_auto_scaling_group(**asked)
        return name

    def new_template(self, **data: Any) -> str:
        """Create a launch template; gives its id."""
        made = self.ec2.create_launch_template(
            LaunchTemplateName=f"template-{next(self.numbers)}", LaunchTemplateData=template_data(**data)
        )
        return str(made["LaunchTemplate"]["LaunchTemplateId"])

    def see(self, group: str) -> dict[str, Any]:
        """The group as the API shows it."""
        groups = self.asg.describe_auto_scaling_groups(AutoScalingGroupNames=[group])["AutoScalingGroups"]
        return dict(groups[0]) if groups else {}

    def states(self, group: str) -> list[str]:
        """Lifecycle states of its instances, sorted."""
        return sorted(instance["LifecycleState"] for instance in self.see(group).get("Instances", []))

    def ids(self, group: str) -> list[str]:
        """Ids of its instances."""
        return [instance["InstanceId"] for instance in self.see(group)["Instances"]]

    def instance(self, instance_id: str) -> dict[str, Any]:
        """One instance as EC2 shows it."""
        found = self.ec2.describe_instances(InstanceIds=[instance_id])
        return dict(found["Reservations"][0]["Instances"][0])

    def activities(self, group: str) -> list[dict[str, Any]]:
        """Its history, newest first."""
        return list(self.asg.describe_scaling_activities(AutoScalingGroupName=group)["Activities"])

    def want(self, group: str, count: int) -> None:
        """Set the desired capacity and let the instances come into service."""
        self.asg.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=count)
        eventually(lambda: len(self.ids(group)) == count)
        self.pass_time(10)
        eventually(lambda: self.states(group) == ["InService"] * count)

    def settle(self) -> None:
        """Wait until the groups were looked at: a new one, after all others, has its instance."""
        group = self.group(DesiredCapacity=1)
        eventually(lambda: self.states(group) == ["Pending"])
        self.asg.delete_auto_scaling_group(AutoScalingGroupName=group, ForceDelete=True)

    def pass_time(self, seconds: float) -> None:
        """Move the clock."""
        self.clock.now += seconds
        self.world.changed()

    def ask(self, method: str, path: str, body: str = "") -> tuple[int, dict[str, Any]]:
        """Of the stand-in itself."""
        answer = urllib3.request(method, f"{self.url}/spillway/{path}", body=body.encode(), retries=False)
        return answer.status, json.loads(answer.data)

    def fail(self, *faults: str, seed: int = 0) -> None:
        """Put a script of faults in force, each in YAML's flow style."""
        lines = "".join(f"\n  - {fault}" for fault in faults)
        status, answer = self.ask("PUT", "faults", f"seed: {seed}\nfaults:{lines or ' []'}\n")
        assert status == 200, answer


def template_data(**changes: Any) -> dict[str, Any]:
    """An ordinary launch template."""
    spec = NodeSpec(
        cluster="local",
        labels={"spillway.dev/origin": "ec2", "spillway.dev/group": "gpu-a10g"},
        taints=(Taint("nvidia.com/gpu"),),
    )
    ordinary = {
        "ImageId": IMAGE,
        "InstanceType": "g5.12xlarge",
        "UserData": base64.b64encode(render_user_data(spec).encode()).decode(),
        "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 1},
        "BlockDeviceMappings": [{"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 100, "VolumeType": "gp3"}}],
        "TagSpecifications": [{"ResourceType": "instance", "Tags": [{"Key": "team", "Value": "vision"}]}],
    }
    return {key: value for key, value in (ordinary | changes).items() if value is not None}


def client(url: str, service: str, **settings: Any) -> Any:
    """A boto3 client for the stand-in that does not try again by itself."""
    return boto3.client(
        service,  # type: ignore[call-overload]
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="local",
        aws_secret_access_key="local",  # noqa: S106 - the stand-in takes any
        config=Config(retries={"total_max_attempts": 1}, **settings),
    )


def eventually(holds: Callable[[], object]) -> None:
    """Wait until it does."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, "did not come about"
        time.sleep(0.01)


@contextlib.contextmanager
def stand_in() -> Iterator[StandIn]:
    """A stand-in with a boot delay of 3 seconds and a second to end, on a clock that stands."""
    clock = Clock()
    world = World(faults=Faults(clock=clock), clock=clock, boot_delay=timedelta(seconds=3))
    with serving(world) as url:
        ec2 = client(url, "ec2")
        vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
        subnets = [
            ec2.create_subnet(VpcId=vpc, CidrBlock=block, AvailabilityZone=zone)["Subnet"]["SubnetId"]
            for block, zone in (("10.0.0.0/20", "us-east-1a"), ("10.0.16.0/20", "us-east-1b"))
        ]
        made = StandIn(url, world, clock, ec2, client(url, "autoscaling"), subnets, "")
        made.template = made.new_template()
        yield made
