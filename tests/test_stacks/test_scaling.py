"""The stand-in's groups without HTTP: in a module of its own, since only one stand-in at a time can own moto."""

from __future__ import annotations

import inspect

from moto.autoscaling.models import AutoScalingBackend, autoscaling_backends
from moto.ec2.models import ec2_backends

from stacks.local.aws import ACCOUNT, installed
from stacks.local.faults import Faults
from stacks.local.instances import World
from tests.test_stacks.stand_in import IMAGE, Clock
from tests.test_stacks.test_faults import script


def test_the_time_of_the_next_try_is_known() -> None:
    """Nobody need wake the groups for it: settling gives it, also when the launch failed just now."""
    clock = Clock()
    world = World(faults=Faults(script("{kind: insufficient-capacity}"), clock=clock), clock=clock)
    with installed(world) as scaling:
        templates, groups = ec2_backends[ACCOUNT]["us-east-1"], autoscaling_backends[ACCOUNT]["us-east-1"]
        template = templates.create_launch_template("t", "", {"ImageId": IMAGE, "InstanceType": "m5.large"}, {})
        asked = dict.fromkeys(list(inspect.signature(AutoScalingBackend.create_auto_scaling_group).parameters)[1:])
        groups.create_auto_scaling_group(
            **asked
            | {
                "name": "g",
                "availability_zones": ["us-east-1a"],
                "desired_capacity": 1,
                "min_size": 0,
                "max_size": 1,
                "launch_template": {"LaunchTemplateId": template.id},
                "load_balancers": [],
                "target_group_arns": [],
            }
        )
        assert scaling.settle() == clock.now + world.retry_after.total_seconds()
