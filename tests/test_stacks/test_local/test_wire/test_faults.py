"""Faults by script: what a script may say, when each strikes, and what AWS's callers see of it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from botocore.exceptions import ClientError, HTTPClientError
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.config.documents import parse_document, read_document
from autoscaler.model.errors import BadInput
from stacks.local.wire.aws_protocol import Call
from stacks.local.wire.faults import Faults, Script
from tests.test_stacks.stand_in import Clock, StandIn, client, eventually

THREE = timedelta(seconds=3)


def script(*faults: str, seed: int = 0) -> Script:
    """Each fault in YAML's flow style."""
    lines = "".join(f"\n  - {fault}" for fault in faults)
    return parse_document(f"seed: {seed}\nfaults:{lines or ' []'}", Script, what="faults", source="script")


def refused(*faults: str) -> str:
    """The words with which a script is refused."""
    with pytest.raises(BadInput) as mistake:
        script(*faults)
    return str(mistake.value)


def call(action: str = "SetDesiredCapacity", service: str = "autoscaling") -> Call:
    """A call of an API."""
    return Call(service=service, action=action, region="us-east-1", json_protocol=service == "ssm")


def code(faults: Faults, asked: Call) -> str:
    """The error that a call meets."""
    met = faults.refuse(asked)
    return met.code if met else ""


# --- What a script may say --------------------------------------------------------------------------------------------


def test_a_script_is_read_from_a_file(tmp_path: Path) -> None:
    """With spans as people write them."""
    path = tmp_path / "faults.yaml"
    path.write_text("faults:\n  - {kind: slow-boot, by: 2m, begins: 10s, lasts: 1h}\n", encoding="utf-8")
    fault = read_document(path, Script, what="faults").faults[0]
    assert (fault.by, fault.begins, fault.lasts) == (timedelta(minutes=2), timedelta(seconds=10), timedelta(hours=1))


def test_an_unknown_kind_is_refused_with_those_that_there_are() -> None:
    """By entry and value."""
    words = refused("{kind: earthquake}")
    assert "faults[0].kind = 'earthquake'" in words
    assert "insufficient-capacity" in words


def test_a_key_of_another_kind_is_refused_with_the_kind_s_own() -> None:
    """A throttle strikes calls, not instance types."""
    words = refused("{kind: throttle, instance_type: p4d.24xlarge}")
    assert "throttle does not take 'instance_type': its keys are actions, begins, code, every, lasts" in words


@pytest.mark.parametrize(
    ("fault", "needs"),
    [("slow-boot", "factor or by"), ("never-joins", "count or share"), ("late-device", "by")],
)
def test_a_fault_that_would_do_nothing_is_refused(fault: str, needs: str) -> None:
    """What it lacks is told."""
    assert f"{fault} needs {needs}" in refused(f"{{kind: {fault}}}")


def test_what_is_in_force_can_be_put_again() -> None:
    """The answer to GET is a script, but for the counts."""
    written = Faults(script("{kind: slow-boot, factor: 2.0, lasts: 90s}", seed=7)).as_json()
    assert written == {
        "seed": 7,
        "faults": [{"kind": "slow-boot", "factor": 2.0, "lasts": "90s", "struck": 0}],
    }


# --- When each strikes ------------------------------------------------------------------------------------------------


def test_a_fault_has_its_time() -> None:
    """Not before it begins, not after it has lasted."""
    clock = Clock()
    faults = Faults(script("{kind: gone, begins: 10s, lasts: 5s}"), clock=clock)
    seen = []
    for _ in range(4):
        seen.append(faults.gone())
        clock.now += 5
    assert seen == [None, None, "unavailable", None]


def test_capacity_runs_out_for_one_type_in_one_zone() -> None:
    """After those that are still granted; elsewhere there is enough."""
    faults = Faults(script("{kind: insufficient-capacity, instance_type: p4d.24xlarge, zone: us-east-1a, after: 1}"))
    assert faults.grants(instance_type="p4d.24xlarge", zone="us-east-1a")
    assert not faults.grants(instance_type="p4d.24xlarge", zone="us-east-1a")
    assert faults.grants(instance_type="p4d.24xlarge", zone="us-east-1b")
    assert faults.grants(instance_type="g5.12xlarge", zone="us-east-1a")
    assert faults.as_json()["faults"][0]["struck"] == 1


def test_a_refused_launch_uses_nothing_up() -> None:
    """Two do not fit where one is left; that one is still there."""
    faults = Faults(script("{kind: insufficient-capacity, after: 1}"))
    assert not faults.grants(instance_type="t", zone="z", count=2)
    assert faults.grants(instance_type="t", zone="z", count=1)


def test_every_third_call_is_throttled() -> None:
    """Of those that are named; others do not count."""
    faults = Faults(script("{kind: throttle, actions: [SetDesiredCapacity], every: 3}"))
    seen = [code(faults, call(action)) for action in ("SetDesiredCapacity", "DescribeTags") * 3]
    assert seen == ["", "", "", "", "Throttling", ""]


@pytest.mark.parametrize(
    ("service", "throttled", "unknown"),
    [
        ("ec2", "RequestLimitExceeded", "AuthFailure"),
        ("autoscaling", "Throttling", "InvalidClientTokenId"),
        ("ssm", "ThrottlingException", "UnrecognizedClientException"),
    ],
)
def test_each_service_has_its_own_words(service: str, throttled: str, unknown: str) -> None:
    """For too many calls, and for wrong credentials."""
    assert code(Faults(script("{kind: throttle}")), call(service=service)) == throttled
    assert code(Faults(script("{kind: wrong-credentials}")), call(service=service)) == unknown


def test_boot_is_slower_and_devices_later() -> None:
    """Factors and spans add up; the type that is not named boots as ever."""
    faults = Faults(script("{kind: slow-boot, instance_type: a, factor: 4, by: 1s}", "{kind: late-device, by: 10s}"))
    slow = faults.joining(instance_type="a", zone="z", boot_delay=THREE)
    usual = faults.joining(instance_type="b", zone="z", boot_delay=THREE)
    assert (slow.delay, slow.devices_later) == (timedelta(seconds=13), timedelta(seconds=10))
    assert (usual.delay, usual.devices_later) == (THREE, timedelta(seconds=10))


def test_the_first_instances_never_join() -> None:
    """As many as the script says."""
    faults = Faults(script("{kind: never-joins, count: 2}"))
    delays = [faults.joining(instance_type="t", zone="z", boot_delay=THREE).delay for _ in range(3)]
    assert delays == [None, None, THREE]


@given(seed=st.integers(), share=st.sampled_from([0.0, 0.25, 1.0]))
def test_the_same_seed_strikes_the_same_instances(seed: int, share: float) -> None:
    """None of them, some, or all, as the share says."""

    def joined() -> list[bool]:
        faults = Faults(script(f"{{kind: never-joins, share: {share}}}", seed=seed))
        joins = [faults.joining(instance_type="t", zone="z", boot_delay=THREE) for _ in range(40)]
        return [one.delay is not None for one in joins]

    first = joined()
    assert first == joined()
    assert {0.0: sum(first) == 40, 0.25: True, 1.0: sum(first) == 0}[share]


# --- What callers see -------------------------------------------------------------------------------------------------


def test_a_group_outlives_a_lack_of_capacity(here: StandIn) -> None:
    """The call succeeds, desired stays, a failed activity says why in AWS's words, and it is tried again."""
    here.fail("{kind: insufficient-capacity, lasts: 60s}")
    group = here.group(DesiredCapacity=1, VPCZoneIdentifier=here.subnets[0])
    eventually(lambda: here.activities(group))
    failed = here.activities(group)[0]
    assert failed["StatusCode"] == "Failed"
    assert failed["StatusMessage"].startswith(
        "We currently do not have sufficient g5.12xlarge capacity in the Availability Zone you requested (us-east-1a)."
    )
    assert failed["StatusMessage"].endswith("Launching EC2 instance failed.")
    assert here.see(group)["DesiredCapacity"] == 1
    here.pass_time(5)
    eventually(lambda: len(here.activities(group)) == 2)
    here.pass_time(60)
    eventually(lambda: here.states(group) == ["Pending"])


def test_a_refusal_may_come_late(here: StandIn) -> None:
    """The launch is in progress first, no second one begins meanwhile, and then it has failed, in AWS's words."""
    here.fail("{kind: quota, late: 40s}")
    group = here.group(DesiredCapacity=2, VPCZoneIdentifier=here.subnets[0])
    eventually(lambda: here.activities(group))
    [tried] = here.activities(group)
    assert (tried["StatusCode"], tried["Description"]) == ("InProgress", "Launching a new EC2 instance")
    here.pass_time(40)
    eventually(lambda: here.activities(group)[0]["StatusCode"] == "Failed")
    [failed] = here.activities(group)
    assert failed["StatusMessage"].startswith("You have requested more vCPU capacity than your ")
    here.pass_time(6)
    eventually(lambda: [one["StatusCode"] for one in here.activities(group)] == ["InProgress", "Failed"])


def test_a_group_takes_the_zone_that_has_capacity(here: StandIn) -> None:
    """One zone is dry: the other one gives all."""
    here.fail("{kind: insufficient-capacity, zone: us-east-1a}")
    group = here.group()
    here.want(group, 3)
    assert {one["AvailabilityZone"] for one in here.see(group)["Instances"]} == {"us-east-1b"}


def test_a_wish_that_is_withdrawn_is_not_tried_again(here: StandIn) -> None:
    """Desired capacity back at zero: nothing comes when capacity does."""
    here.fail("{kind: insufficient-capacity}")
    group = here.group(DesiredCapacity=1)
    eventually(lambda: here.activities(group))
    here.asg.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=0)
    here.ask("DELETE", "faults")
    here.pass_time(30)
    here.settle()
    assert here.ids(group) == []


def test_run_instances_is_refused_outright(here: StandIn) -> None:
    """Without a group there is nobody to try again."""
    here.fail("{kind: insufficient-capacity}")
    with pytest.raises(ClientError, match="InsufficientInstanceCapacity"):
        here.ec2.run_instances(ImageId="ami-12c6146b", InstanceType="m5.large", MinCount=1, MaxCount=1)


def test_a_throttled_call_is_tried_again_by_boto3(here: StandIn) -> None:
    """Every second call is refused: the client's own retries get through."""
    here.fail("{kind: throttle, every: 2}")
    here.asg.describe_auto_scaling_groups()
    with pytest.raises(ClientError, match="Throttling"):
        here.asg.describe_auto_scaling_groups()


def test_wrong_credentials_are_told_as_aws_tells_them(here: StandIn) -> None:
    """Every call is refused while they are wrong."""
    here.fail("{kind: wrong-credentials}")
    with pytest.raises(ClientError, match="AuthFailure"):
        here.ec2.describe_instances()
    with pytest.raises(ClientError, match="InvalidClientTokenId"):
        here.asg.describe_auto_scaling_groups()
    with pytest.raises(ClientError, match="UnrecognizedClientException"):
        client(here.url, "ssm").get_parameter(Name="x")


def test_the_service_can_be_gone(here: StandIn) -> None:
    """It answers 503; its own controls go on answering."""
    here.fail("{kind: gone}")
    with pytest.raises(ClientError) as outage:
        here.asg.describe_auto_scaling_groups()
    assert outage.value.response["ResponseMetadata"]["HTTPStatusCode"] == 503
    assert here.ask("GET", "health")[0] == 200
    here.ask("DELETE", "faults")
    assert here.asg.describe_auto_scaling_groups()


def test_connections_can_be_cut(here: StandIn) -> None:
    """As when the host is down: no answer at all."""
    here.fail("{kind: gone, how: reset}")
    with pytest.raises(HTTPClientError):
        here.asg.describe_auto_scaling_groups()
    here.ask("DELETE", "faults")
    assert here.asg.describe_auto_scaling_groups()


def test_a_wrong_script_changes_nothing(here: StandIn) -> None:
    """It is refused with its mistake; the one before stays in force."""
    here.fail("{kind: gone}")
    status, answer = here.ask("PUT", "faults", "faults:\n  - kind: gone\n    how: loudly\n")
    assert (status, "PUT /spillway/faults:3: faults[0].how = 'loudly'" in answer["error"]) == (400, True)
    assert here.ask("GET", "faults")[1]["faults"][0]["kind"] == "gone"


def test_strikes_are_counted(here: StandIn) -> None:
    """For a test that must know that its fault was met."""
    here.fail("{kind: wrong-credentials}")
    for _ in range(2):
        with pytest.raises(ClientError):
            here.ec2.describe_vpcs()
    assert here.ask("GET", "faults")[1]["faults"][0]["struck"] == 2
