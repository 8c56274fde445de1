"""The stand-in for AWS behaves as AWS does where a cluster depends on it, seen through boto3."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from moto.iam.models import iam_backends

from stacks.local.fake_aws import server
from tests.test_stacks.stand_in import StandIn, client, eventually, template_data


def refusal(act: Callable[[], object]) -> tuple[str, str]:
    """Code and message that a call is refused with."""
    with pytest.raises(ClientError) as refused:
        act()
    error = refused.value.response["Error"]
    return error["Code"], error["Message"]


# --- Sizes and names --------------------------------------------------------------------------------------------------


def test_more_than_the_maximum_is_refused(here: StandIn) -> None:
    """SetDesiredCapacity stays within the group's bounds, and a refusal changes nothing."""
    group = here.group(MaxSize=4)
    assert refusal(lambda: here.asg.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=5)) == (
        "ValidationError",
        "New SetDesiredCapacity value 5 is above max value 4 for the AutoScalingGroup.",
    )
    assert here.see(group)["DesiredCapacity"] == 0


def test_less_than_the_minimum_is_refused(here: StandIn) -> None:
    """Nor does it go below."""
    group = here.group(MinSize=1)
    assert refusal(lambda: here.asg.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=0)) == (
        "ValidationError",
        "New SetDesiredCapacity value 0 is below min value 1 for the AutoScalingGroup.",
    )


def test_bounds_that_contradict_each_other_are_refused(here: StandIn) -> None:
    """At creation and at update."""
    words = ("ValidationError", "Max bound, 1, must be greater than or equal to min bound, 2")
    assert refusal(lambda: here.group(MinSize=2, MaxSize=1)) == words
    group = here.group(MinSize=2, MaxSize=3)
    update = here.asg.update_auto_scaling_group
    assert refusal(lambda: update(AutoScalingGroupName=group, MaxSize=1)) == words


def test_a_desired_capacity_outside_the_bounds_is_refused(here: StandIn) -> None:
    """At creation and at update."""
    assert refusal(lambda: here.group(DesiredCapacity=11)) == (
        "ValidationError",
        "Desired capacity:11 must be between the specified min size:0 and max size:10",
    )
    group = here.group()
    update = here.asg.update_auto_scaling_group
    assert refusal(lambda: update(AutoScalingGroupName=group, DesiredCapacity=11))[0] == "ValidationError"


def test_new_bounds_pull_the_desired_capacity_within_them(here: StandIn) -> None:
    """A lower maximum lowers it; a higher minimum raises it."""
    group = here.group(DesiredCapacity=4)
    here.asg.update_auto_scaling_group(AutoScalingGroupName=group, MaxSize=3)
    assert here.see(group)["DesiredCapacity"] == 3
    here.asg.update_auto_scaling_group(AutoScalingGroupName=group, MaxSize=9, MinSize=5)
    assert here.see(group)["DesiredCapacity"] == 5


def test_a_name_that_is_taken_is_refused(here: StandIn) -> None:
    """The group that has it stays as it is."""
    group = here.group(MaxSize=3)
    code, message = refusal(lambda: here.group(AutoScalingGroupName=group, MaxSize=7))
    assert (code, "already exists" in message) == ("AlreadyExists", True)
    assert here.see(group)["MaxSize"] == 3


def test_a_group_that_is_not_there(here: StandIn) -> None:
    """Is told by name."""
    code, message = refusal(lambda: here.asg.set_desired_capacity(AutoScalingGroupName="none", DesiredCapacity=1))
    assert (code, "'none' not found" in message) == ("ValidationError", True)


# --- Instances come ---------------------------------------------------------------------------------------------------


def test_instances_are_pending_until_they_have_booted(here: StandIn) -> None:
    """Both to EC2 and to their group."""
    group = here.group(DesiredCapacity=2)
    eventually(lambda: here.states(group) == ["Pending", "Pending"])
    first = here.ids(group)[0]
    assert here.instance(first)["State"]["Name"] == "pending"
    here.pass_time(2.9)
    here.settle()
    assert here.states(group) == ["Pending", "Pending"]
    here.pass_time(0.2)
    eventually(lambda: here.states(group) == ["InService", "InService"])
    assert here.instance(first)["State"]["Name"] == "running"


def test_instances_are_spread_over_the_zones(here: StandIn) -> None:
    """As evenly as the number allows."""
    group = here.group()
    here.want(group, 5)
    zones = Counter(instance["AvailabilityZone"] for instance in here.see(group)["Instances"])
    assert sorted(zones.values()) == [2, 3]


def test_the_launch_template_reaches_the_instance(here: StandIn) -> None:
    """Metadata options, root volume, instance profile and tags."""
    iam = client(here.url, "iam")
    profile = iam.create_instance_profile(InstanceProfileName="node")["InstanceProfile"]["Arn"]
    template = here.new_template(IamInstanceProfile={"Arn": profile})
    group = here.group(LaunchTemplate={"LaunchTemplateId": template})
    here.want(group, 1)
    seen = here.instance(here.ids(group)[0])
    tags = {tag["Key"]: tag["Value"] for tag in seen["Tags"]}
    volumes = [mapping["Ebs"]["VolumeId"] for mapping in seen["BlockDeviceMappings"]]
    sizes = [volume["Size"] for volume in here.ec2.describe_volumes(VolumeIds=volumes)["Volumes"]]
    assert seen["MetadataOptions"]["HttpTokens"] == "required"
    assert seen["IamInstanceProfile"]["Arn"] == profile
    assert sizes == [100]
    assert (tags["team"], tags["aws:autoscaling:groupName"]) == ("vision", group)


def test_no_volume_is_left_behind(here: StandIn) -> None:
    """The root volume ends with its instance."""
    before = len(here.ec2.describe_volumes()["Volumes"])
    group = here.group()
    here.want(group, 2)
    assert len(here.ec2.describe_volumes()["Volumes"]) == before + 2
    here.asg.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=0)
    eventually(lambda: set(here.states(group)) == {"Terminating"})
    here.pass_time(2)
    eventually(lambda: here.states(group) == [])
    assert len(here.ec2.describe_volumes()["Volumes"]) == before


@pytest.mark.parametrize("source", ["1", "$Latest"])
def test_a_version_is_laid_over_the_one_it_comes_from(here: StandIn, source: str) -> None:
    """What the new version does not say, it takes from its source: the latest is the one before it."""
    template = here.new_template()
    here.ec2.create_launch_template_version(
        LaunchTemplateId=template, SourceVersion=source, LaunchTemplateData={"InstanceType": "m5.large"}
    )
    versions = here.ec2.describe_launch_template_versions(LaunchTemplateId=template, Versions=["2"])
    data = versions["LaunchTemplateVersions"][0]["LaunchTemplateData"]
    assert (data["InstanceType"], data["ImageId"]) == ("m5.large", template_data()["ImageId"])


def test_a_launch_template_has_the_tags_that_it_was_given_later(here: StandIn) -> None:
    """And the `up` after that changes nothing."""
    template = here.new_template()
    here.ec2.create_tags(Resources=[template], Tags=[{"Key": "team", "Value": "robots"}])
    [seen] = here.ec2.describe_launch_templates(LaunchTemplateIds=[template])["LaunchTemplates"]
    assert {"Key": "team", "Value": "robots"} in seen["Tags"]


def test_overrides_say_which_types_and_spot_its_share(here: StandIn) -> None:
    """One on-demand instance as base, the rest spot, of the first type that is named."""
    policy = {
        "LaunchTemplate": {
            "LaunchTemplateSpecification": {"LaunchTemplateId": here.template, "Version": "$Latest"},
            "Overrides": [{"InstanceType": "g6.12xlarge"}, {"InstanceType": "g5.12xlarge"}],
        },
        "InstancesDistribution": {"OnDemandBaseCapacity": 1, "OnDemandPercentageAboveBaseCapacity": 0},
    }
    group = here.group(LaunchTemplate=None, MixedInstancesPolicy=policy)
    here.want(group, 3)
    seen = [here.instance(instance) for instance in here.ids(group)]
    assert {one["InstanceType"] for one in seen} == {"g6.12xlarge"}
    assert sorted(one.get("InstanceLifecycle", "on-demand") for one in seen) == ["on-demand", "spot", "spot"]


def test_an_update_of_the_sizes_leaves_the_policy(here: StandIn) -> None:
    """What an update does not name stays."""
    specification = {"LaunchTemplateId": here.template}
    overrides = [{"InstanceType": "g6.12xlarge"}]
    policy = {"LaunchTemplate": {"LaunchTemplateSpecification": specification, "Overrides": overrides}}
    group = here.group(LaunchTemplate=None, MixedInstancesPolicy=policy)
    here.asg.update_auto_scaling_group(AutoScalingGroupName=group, MaxSize=3)
    assert here.see(group)["MixedInstancesPolicy"]["LaunchTemplate"]["Overrides"] == overrides


def test_weights_count_towards_the_desired_capacity(here: StandIn) -> None:
    """Four units are two instances of weight two."""
    policy = {
        "LaunchTemplate": {
            "LaunchTemplateSpecification": {"LaunchTemplateId": here.template},
            "Overrides": [{"InstanceType": "g5.12xlarge", "WeightedCapacity": "2"}],
        }
    }
    group = here.group(LaunchTemplate=None, MixedInstancesPolicy=policy, DesiredCapacity=4)
    eventually(lambda: len(here.ids(group)) == 2)
    here.pass_time(10)
    eventually(lambda: here.states(group) == ["InService", "InService"])


def test_a_launch_is_an_activity(here: StandIn) -> None:
    """In progress until the instance is in service, then successful."""
    group = here.group(DesiredCapacity=1)
    eventually(lambda: here.states(group) == ["Pending"])
    assert here.activities(group)[0]["StatusCode"] == "InProgress"
    here.pass_time(10)
    eventually(lambda: here.states(group) == ["InService"])
    activity = here.activities(group)[0]
    assert (activity["StatusCode"], activity["Progress"]) == ("Successful", 100)
    assert activity["Description"] == f"Launching a new EC2 instance: {here.ids(group)[0]}"


def test_the_same_token_launches_once(here: StandIn) -> None:
    """RunInstances with a client token that was used before gives the same instances."""
    asked = {"ImageId": template_data()["ImageId"], "InstanceType": "m5.large", "MinCount": 1, "MaxCount": 1}
    first = here.ec2.run_instances(**asked, ClientToken="once")["Instances"][0]["InstanceId"]
    again = here.ec2.run_instances(**asked, ClientToken="once")["Instances"][0]["InstanceId"]
    other = here.ec2.run_instances(**asked, ClientToken="twice")["Instances"][0]["InstanceId"]
    assert first == again != other
    here.ec2.terminate_instances(InstanceIds=[first, other])


# --- Instances go -----------------------------------------------------------------------------------------------------


def test_scale_in_takes_from_the_fullest_zone_the_oldest(here: StandIn) -> None:
    """So that the group stays balanced."""
    group = here.group()
    here.want(group, 3)
    zones = Counter(instance["AvailabilityZone"] for instance in here.see(group)["Instances"])
    fullest = max(zones, key=lambda zone: zones[zone])
    oldest = next(one["InstanceId"] for one in here.see(group)["Instances"] if one["AvailabilityZone"] == fullest)
    here.asg.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=2)
    eventually(lambda: "Terminating" in here.states(group))
    here.pass_time(2)
    eventually(lambda: len(here.ids(group)) == 2)
    assert oldest not in here.ids(group)
    assert here.instance(oldest)["State"]["Name"] == "terminated"


def test_protected_instances_stay(here: StandIn) -> None:
    """Scale-in takes none of them; a call that names one does."""
    group = here.group(NewInstancesProtectedFromScaleIn=True)
    here.want(group, 2)
    here.asg.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=0)
    here.settle()
    assert here.states(group) == ["InService", "InService"]
    first, second = here.ids(group)
    here.asg.terminate_instance_in_auto_scaling_group(InstanceId=first, ShouldDecrementDesiredCapacity=False)
    eventually(lambda: here.states(group) == ["InService", "Terminating"])
    here.pass_time(5)
    eventually(lambda: here.ids(group) == [second])


def test_an_instance_ends_with_its_place(here: StandIn) -> None:
    """With a decrement it has no successor."""
    group = here.group()
    here.want(group, 2)
    gone = here.ids(group)[0]
    activity = here.asg.terminate_instance_in_auto_scaling_group(InstanceId=gone, ShouldDecrementDesiredCapacity=True)[
        "Activity"
    ]
    assert "shrinking the capacity from 2 to 1" in activity["Cause"]
    assert here.see(group)["DesiredCapacity"] == 1
    here.pass_time(5)
    eventually(lambda: len(here.ids(group)) == 1)
    assert gone not in here.ids(group)


def test_an_instance_ends_and_is_replaced(here: StandIn) -> None:
    """Without a decrement it has one."""
    group = here.group()
    here.want(group, 1)
    gone = here.ids(group)[0]
    here.asg.terminate_instance_in_auto_scaling_group(InstanceId=gone, ShouldDecrementDesiredCapacity=False)
    here.pass_time(5)
    eventually(lambda: len(here.ids(group)) == 1 and gone not in here.ids(group))


def test_a_decrement_below_the_minimum_is_refused(here: StandIn) -> None:
    """The group keeps what it must."""
    group = here.group(MinSize=1)
    here.want(group, 1)
    end = here.asg.terminate_instance_in_auto_scaling_group
    code, message = refusal(lambda: end(InstanceId=here.ids(group)[0], ShouldDecrementDesiredCapacity=True))
    assert (code, "desiredSize equals minSize (1)" in message) == ("ValidationError", True)


def test_an_instance_of_no_group_is_refused(here: StandIn) -> None:
    """By its id."""
    end = here.asg.terminate_instance_in_auto_scaling_group
    assert refusal(lambda: end(InstanceId="i-0", ShouldDecrementDesiredCapacity=True)) == (
        "ValidationError",
        "Instance Id not found - No managed instance found for instance ID: i-0",
    )


def test_an_instance_that_ec2_ends_is_replaced(here: StandIn) -> None:
    """The group notices and makes up for it."""
    group = here.group()
    here.want(group, 1)
    gone = here.ids(group)[0]
    here.ec2.terminate_instances(InstanceIds=[gone])
    eventually(lambda: here.states(group) == ["Pending"])
    assert gone not in here.ids(group)


def test_an_unhealthy_instance_is_replaced(here: StandIn) -> None:
    """As soon as somebody says so."""
    group = here.group()
    here.want(group, 1)
    sick = here.ids(group)[0]
    here.asg.set_instance_health(InstanceId=sick, HealthStatus="Unhealthy")
    here.world.changed()
    eventually(lambda: here.states(group) == ["Pending", "Terminating"])


def test_a_suspended_process_stands_still(here: StandIn) -> None:
    """No launch until it is resumed."""
    group = here.group()
    here.asg.suspend_processes(AutoScalingGroupName=group, ScalingProcesses=["Launch"])
    here.asg.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=1)
    here.settle()
    assert here.states(group) == []
    here.asg.resume_processes(AutoScalingGroupName=group, ScalingProcesses=["Launch"])
    here.world.changed()
    eventually(lambda: here.states(group) == ["Pending"])


def test_a_group_in_use_is_not_deleted_without_force(here: StandIn) -> None:
    """With force its instances end first, then it goes."""
    group = here.group(MinSize=1)
    here.want(group, 2)
    delete = here.asg.delete_auto_scaling_group
    assert refusal(lambda: delete(AutoScalingGroupName=group))[0] == "ResourceInUse"
    delete(AutoScalingGroupName=group, ForceDelete=True)
    assert here.see(group)["Status"] == "Delete in progress"
    here.pass_time(5)
    eventually(lambda: here.see(group) == {})


def test_an_empty_group_is_deleted_at_once(here: StandIn) -> None:
    """There is nothing to wait for."""
    group = here.group()
    here.asg.delete_auto_scaling_group(AutoScalingGroupName=group)
    assert here.see(group) == {}


# --- Lifecycle hooks --------------------------------------------------------------------------------------------------


def hooked(here: StandIn, transition: str, **changes: Any) -> str:
    """A group with one hook named ``drain``."""
    group = here.group()
    here.asg.put_lifecycle_hook(
        LifecycleHookName="drain",
        AutoScalingGroupName=group,
        LifecycleTransition=f"autoscaling:EC2_INSTANCE_{transition}",
        **{"HeartbeatTimeout": 60, "DefaultResult": "CONTINUE"} | changes,
    )
    return group


def complete(here: StandIn, group: str, result: str) -> None:
    """Complete the hook for the only instance of the group."""
    here.asg.complete_lifecycle_action(
        LifecycleHookName="drain",
        AutoScalingGroupName=group,
        LifecycleActionResult=result,
        InstanceId=here.ids(group)[0],
    )


def test_a_hook_holds_an_instance_that_ends(here: StandIn) -> None:
    """Until it is completed; meanwhile the instance runs on."""
    group = hooked(here, "TERMINATING")
    here.want(group, 1)
    last = here.ids(group)[0]
    here.asg.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=0)
    eventually(lambda: here.states(group) == ["Terminating:Wait"])
    here.pass_time(30)
    here.settle()
    assert here.states(group) == ["Terminating:Wait"]
    assert here.instance(last)["State"]["Name"] == "running"
    complete(here, group, "CONTINUE")
    eventually(lambda: here.states(group) == [])


def test_a_hook_lets_go_when_its_heartbeat_runs_out(here: StandIn) -> None:
    """A heartbeat gives it as long again."""
    group = hooked(here, "TERMINATING")
    here.want(group, 1)
    here.asg.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=0)
    eventually(lambda: here.states(group) == ["Terminating:Wait"])
    here.pass_time(50)
    here.asg.record_lifecycle_action_heartbeat(
        LifecycleHookName="drain", AutoScalingGroupName=group, InstanceId=here.ids(group)[0]
    )
    here.pass_time(50)
    here.settle()
    assert here.states(group) == ["Terminating:Wait"]
    here.pass_time(11)
    eventually(lambda: here.states(group) == [])


def test_a_hook_holds_an_instance_that_comes(here: StandIn) -> None:
    """It is in service only once the hook is completed."""
    group = hooked(here, "LAUNCHING")
    here.asg.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=1)
    eventually(lambda: here.states(group) == ["Pending"])
    here.pass_time(5)
    eventually(lambda: here.states(group) == ["Pending:Wait"])
    complete(here, group, "CONTINUE")
    eventually(lambda: here.states(group) == ["InService"])


def test_an_abandoned_launch_ends_the_instance(here: StandIn) -> None:
    """And another one is launched in its place."""
    group = hooked(here, "LAUNCHING")
    here.asg.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=1)
    eventually(lambda: here.states(group) == ["Pending"])
    first = here.ids(group)[0]
    here.pass_time(5)
    eventually(lambda: here.states(group) == ["Pending:Wait"])
    complete(here, group, "ABANDON")
    eventually(lambda: here.states(group) == ["Pending", "Terminating"])
    here.pass_time(2)
    eventually(lambda: here.instance(first)["State"]["Name"] == "terminated")


def test_completing_what_does_not_wait_is_refused(here: StandIn) -> None:
    """As AWS words it; an instance that is gone waits no more than one that runs."""
    group = hooked(here, "TERMINATING")
    here.want(group, 1)
    assert refusal(lambda: complete(here, group, "CONTINUE"))[1].startswith("No active Lifecycle Action found")
    gone = {"AutoScalingGroupName": group, "LifecycleHookName": "hook", "InstanceId": "i-0123456789abcdef0"}
    said = refusal(lambda: here.asg.complete_lifecycle_action(**gone, LifecycleActionResult="CONTINUE"))[1]
    assert said == "No active Lifecycle Action found with instance ID i-0123456789abcdef0"


# --- What is written down ---------------------------------------------------------------------------------------------


def test_calls_that_change_something_are_written_down(here: StandIn) -> None:
    """With what was asked, by whom, when, and how it ended; questions are not."""
    group = here.group(MaxSize=1)
    number = here.ask("GET", "requests")[1]["requests"][-1]["number"]
    here.see(group)
    here.asg.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=1)
    refusal(lambda: here.asg.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=2))
    granted, refused = here.ask("GET", f"requests?since={number}")[1]["requests"]
    assert (granted["service"], granted["action"], granted["error"]) == ("autoscaling", "SetDesiredCapacity", "")
    assert granted["parameters"]["DesiredCapacity"] == "1"
    assert (granted["access_key"], "Botocore" in granted["user_agent"]) == ("local", True)
    assert (refused["error"], refused["number"]) == ("ValidationError", number + 2)
    assert granted["at"] <= refused["at"]


def test_every_instance_is_written_down_from_launch_to_end(here: StandIn) -> None:
    """For counting dollars and leftovers."""
    group = here.group()
    here.want(group, 1)
    here.asg.delete_auto_scaling_group(AutoScalingGroupName=group, ForceDelete=True)
    here.pass_time(5)
    eventually(lambda: here.see(group) == {})
    lives = [life for life in here.ask("GET", "instances")[1]["instances"] if life["group"] == group]
    assert [(life["instance_type"], life["market"]) for life in lives] == [("g5.12xlarge", "on-demand")]
    assert lives[0]["launched_at"] <= lives[0]["running_at"] <= lives[0]["ended_at"]


def test_it_says_that_it_is_well_and_what_it_is(here: StandIn) -> None:
    """The keeper asks before it starts what depends on it."""
    status, answer = here.ask("GET", "health")
    assert (status, answer["stand_in_for"]) == (200, "AWS")


def test_what_it_does_not_know_is_told(here: StandIn) -> None:
    """Not found, with the request named; a wrong number likewise."""
    assert here.ask("GET", "weather")[0] == 404
    assert here.ask("GET", "requests?since=noon")[0] == 400


# --- Other services ---------------------------------------------------------------------------------------------------


def test_moto_serves_the_rest(here: StandIn) -> None:
    """S3, SSM and STS answer as moto has them."""
    s3 = client(here.url, "s3", s3={"addressing_style": "path"})
    s3.create_bucket(Bucket="state")
    s3.put_object(Bucket="state", Key="lock", Body=b"mine", IfNoneMatch="*")
    assert refusal(lambda: s3.put_object(Bucket="state", Key="lock", Body=b"other", IfNoneMatch="*"))[0] == (
        "PreconditionFailed"
    )
    ssm = client(here.url, "ssm")
    assert ssm.get_parameters_by_path(Path="/aws/service/ami-amazon-linux-latest")["Parameters"]
    assert client(here.url, "sts").get_caller_identity()["Account"] == server.ACCOUNT


# --- The command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def no_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command leaves the test process's signals and thread hook alone."""
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr("threading.excepthook", threading.excepthook)


@pytest.mark.usefixtures("no_signals")
def test_a_port_that_is_taken_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """With the port and what to do, and exit status 1."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert server.main(["--port", str(port)]) == 1
    told = capsys.readouterr().err
    assert f"cannot listen on 127.0.0.1:{port}" in told
    assert "choose another --port" in told


@pytest.mark.usefixtures("no_signals")
def test_a_wrong_script_of_faults_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything starts, with file, line and key, and exit status 2."""
    script = tmp_path / "faults.yaml"
    script.write_text("faults:\n  - kind: throttle\n    evry: 3\n", encoding="utf-8")
    assert server.main(["--port", "0", "--faults", str(script)]) == 2
    told = capsys.readouterr().err
    assert "faults.yaml:3" in told
    assert "did you mean every?" in told


def test_policies_of_aws_are_made_for_its_own_partition_alone(here: StandIn) -> None:
    """There are 1,582; for all six partitions, as moto would to find whose key signs a call, they take a second."""
    here.ec2.describe_vpcs()
    assert [*iam_backends[server.ACCOUNT]] == ["aws"]
