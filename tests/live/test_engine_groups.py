"""Node groups through the real engine: every option accepted, and a change of one group touches no other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stacks.local.toolchain.pulumi_engine import EngineSettings, pulumi_destroy, pulumi_preview, pulumi_up
from tests.live.hybrid import until
from tests.live.stacks import (
    GROUPS,
    asked_since,
    calls_so_far,
    client,
    everything_in,
    groups_in,
    settings_for,
)

pytestmark = pytest.mark.live

RENAMED = [{**GROUPS[0], "name": "a10g", "formerly": ["gpu"]}, GROUPS[1]]
EXCHANGED = [
    {**GROUPS[0], "name": "a10g"},  # `formerly` is needed for one `up` only
    {
        "name": "many",
        "instance_types": ["g5.12xlarge", "g5.24xlarge"],
        "capacity_type": "spot",
        "zones": ["us-east-1a"],
        "max": 2,
        "disk": "200Gi",
    },
    {
        "name": "fast",
        "instance_type": "p4d.24xlarge",
        "zones": ["us-east-1a"],
        "max": 2,
        "efa": True,
        "placement": "cluster",
    },
]


def write(settings: EngineSettings, groups: list[dict[str, Any]]) -> None:
    """The policy with other groups."""
    policy = json.loads(settings.policy.read_text(encoding="utf-8"))
    settings.policy.write_text(json.dumps(policy | {"groups": groups}), encoding="utf-8")


def touched(calls: list[dict[str, Any]]) -> dict[str, set[str]]:
    """Action -> names of the Auto Scaling groups that it was about."""
    found: dict[str, set[str]] = {}
    for call in calls:
        names = {
            value
            for key, value in call["parameters"].items()
            if key == "AutoScalingGroupName" or (key.startswith("Tags.member") and key.endswith("ResourceId"))
        }
        found.setdefault(call["action"], set()).update(names)
    return found


def test_a_change_of_one_group_touches_no_other(aws_url: str, engine: dict[str, Path], tmp_path: Path) -> None:
    """Renamed with a node in it, then another one removed and two of every option added; destroyed with nodes."""
    before = everything_in(aws_url)
    settings = settings_for(tmp_path, aws_url=aws_url, tools=engine, cluster="lab", groups=GROUPS)
    pulumi_up(settings)
    scaling = client("autoscaling", aws_url)
    scaling.set_desired_capacity(AutoScalingGroupName="lab-gpu-us-east-1a", DesiredCapacity=1)
    until(lambda: groups_in(aws_url, "lab")["lab-gpu-us-east-1a"]["Instances"])
    [node] = groups_in(aws_url, "lab")["lab-gpu-us-east-1a"]["Instances"]

    asked = calls_so_far(aws_url)
    write(settings, RENAMED)
    outputs = pulumi_up(settings)
    assert_renamed_in_place(touched(asked_since(aws_url, asked)))
    renamed = groups_in(aws_url, "lab")["lab-gpu-us-east-1a"]
    assert [one["InstanceId"] for one in renamed["Instances"]] == [node["InstanceId"]]
    assert {(one.name, one.entry) for one in outputs.groups if one.entry == "a10g"} == {
        ("lab-gpu-us-east-1a", "a10g"),
        ("lab-gpu-us-east-1b", "a10g"),
    }

    asked = calls_so_far(aws_url)
    write(settings, EXCHANGED)
    pulumi_up(settings)
    changes = touched(asked_since(aws_url, asked))
    assert changes["DeleteAutoScalingGroup"] == {"lab-cpu-us-east-1a"}
    assert changes["CreateAutoScalingGroup"] == {"lab-many-us-east-1a", "lab-fast-us-east-1a"}
    assert not changes.get("UpdateAutoScalingGroup"), "the renamed group keeps its name without `formerly`"
    assert_options_stand(aws_url)
    assert pulumi_preview(settings), "and there is nothing more to do"

    for name in ("lab-many-us-east-1a", "lab-fast-us-east-1a"):
        scaling.set_desired_capacity(AutoScalingGroupName=name, DesiredCapacity=1)
        until(lambda name=name: groups_in(aws_url, "lab")[name]["Instances"])
    assert all(
        instance["ProtectedFromScaleIn"]
        for group in groups_in(aws_url, "lab").values()
        for instance in group["Instances"]
    )
    pulumi_destroy(settings)
    assert everything_in(aws_url) == before, "protected nodes do not hold a destroy up, nor does the hook"


def assert_renamed_in_place(changes: dict[str, set[str]]) -> None:
    """Tags and a new version of the template: nothing is made, nothing deleted, and the other group is not touched."""
    assert not {action for action in changes if action.startswith(("Create", "Delete"))} - {
        "CreateLaunchTemplateVersion",
        "CreateOrUpdateTags",
        "CreateTags",
    }
    about = set().union(*changes.values())
    assert about == {"lab-gpu-us-east-1a", "lab-gpu-us-east-1b"}


def assert_options_stand(url: str) -> None:
    """Asked of AWS, not of the engine."""
    found = groups_in(url, "lab")
    mixed = found["lab-many-us-east-1a"]["MixedInstancesPolicy"]
    assert [one["InstanceType"] for one in mixed["LaunchTemplate"]["Overrides"]] == ["g5.12xlarge", "g5.24xlarge"]
    assert mixed["InstancesDistribution"]["OnDemandPercentageAboveBaseCapacity"] == 0
    fast = found["lab-fast-us-east-1a"]
    assert fast["PlacementGroup"] == "lab-fast"
    version = client("ec2", url).describe_launch_template_versions(LaunchTemplateName="lab-fast", Versions=["$Latest"])[
        "LaunchTemplateVersions"
    ][0]
    data = version["LaunchTemplateData"]
    assert [one["InterfaceType"] for one in data["NetworkInterfaces"]] == ["efa", *["efa-only"] * 3]
    for name in found:
        [hook] = client("autoscaling", url).describe_lifecycle_hooks(AutoScalingGroupName=name)["LifecycleHooks"]
        assert (hook["HeartbeatTimeout"], hook["DefaultResult"]) == (900, "CONTINUE")
