"""Time's hand on the groups, without HTTP or threads: what settling does, and when it wants to be done again.

In a module of its own, since only one stand-in at a time can own moto.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from moto.autoscaling.models import AutoScalingBackend, autoscaling_backends
from moto.ec2.models import ec2_backends

from stacks.local.fake_aws.auto_scaling import AutoScaling, Group
from stacks.local.fake_aws.instances import World
from stacks.local.fake_aws.reconciler import Scaling
from stacks.local.fake_aws.server import ACCOUNT, installed
from stacks.local.wire.faults import Faults
from tests.test_stacks.stand_in import IMAGE, Clock
from tests.test_stacks.test_local.test_wire.test_faults import script


@dataclass
class Region:
    """One region, time's hand, and the clock that it goes by."""

    groups: AutoScaling
    scaling: Scaling
    world: World
    clock: Clock

    def group(self, desired: int, **changes: Any) -> Group:
        """A group over two zones."""
        names = list(inspect.signature(AutoScalingBackend.create_auto_scaling_group).parameters)[1:]
        ordinary: dict[str, Any] = dict.fromkeys(names) | {
            "name": "g",
            "availability_zones": ["us-east-1a", "us-east-1b"],
            "desired_capacity": desired,
            "min_size": 0,
            "max_size": 100,
            "launch_template": {"LaunchTemplateName": "node"},
            "load_balancers": [],
            "target_group_arns": [],
        }
        return self.groups.create_auto_scaling_group(**ordinary | changes)


@pytest.fixture
def region() -> Iterator[Region]:
    """With one launch template, a boot delay of 3 seconds, and a second to end."""
    clock = Clock()
    world = World(faults=Faults(clock=clock), clock=clock, boot_delay=timedelta(seconds=3))
    with installed(world) as scaling:
        data = {"ImageId": IMAGE, "InstanceType": "m5.large"}
        ec2_backends[ACCOUNT]["us-east-1"].create_launch_template("node", "", data, {})
        groups: Any = autoscaling_backends[ACCOUNT]["us-east-1"]
        yield Region(groups, scaling, world, clock)


def test_the_next_time_is_when_instances_have_booted(region: Region) -> None:
    """And after that there is none."""
    region.group(2)
    assert region.scaling.settle() == region.clock.now + 3
    region.clock.now += 3
    assert region.scaling.settle() is None


def test_the_next_time_is_when_a_failed_launch_is_tried_again(region: Region) -> None:
    """Also when it failed just now: nobody else would wake the groups for it."""
    region.world.faults.put(script("{kind: insufficient-capacity}"))
    group = region.group(1)
    assert region.scaling.settle() == region.clock.now + region.world.retry_after.total_seconds()
    assert (group.desired_capacity, group.instance_states) == (1, [])


def test_a_group_that_shrinks_stays_balanced(region: Region) -> None:
    """However many go at once."""
    group = region.group(8)
    region.scaling.settle()
    group.set_desired_capacity(4)
    region.scaling.settle()
    region.clock.now += 1
    region.scaling.settle()
    assert Counter(member.availability_zone for member in group.instance_states) == {"us-east-1a": 2, "us-east-1b": 2}


def test_a_group_grows_past_what_is_launched_at_once(region: Region) -> None:
    """Its instances come in several goes, all in one settling."""
    group = region.group(60)
    region.scaling.settle()
    assert len(group.instance_states) == 60


def test_a_group_that_cannot_grow_leaves_the_others_alone(region: Region) -> None:
    """The group after it gets what it wants."""
    region.world.faults.put(script("{kind: insufficient-capacity, zone: us-east-1a}"))
    dry = region.group(1, name="dry", availability_zones=["us-east-1a"])
    other = region.group(1, name="other", availability_zones=["us-east-1b"])
    region.scaling.settle()
    assert (len(dry.instance_states), len(other.instance_states)) == (0, 1)


def test_a_second_stand_in_is_refused(region: Region) -> None:
    """It would take moto's state from the first without a word."""
    with pytest.raises(RuntimeError, match="one stand-in at a time"), installed(World()):
        pass
    assert region.group(1).desired_capacity == 1
