"""``LaunchInstances`` at the stand-in for AWS, seen through boto3."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from stacks.local.fake_aws.launches import TOKEN_LIVES
from tests.test_stacks.stand_in import StandIn, client, eventually

HERE, THERE = "us-east-1a", "us-east-1b"


def launch(here: StandIn, group: str, count: int, **more: Any) -> dict[str, Any]:
    """The answer; each call with a token of its own."""
    asked = {"AvailabilityZones": [HERE], "ClientToken": f"token-{next(here.numbers)}"} | more
    asked = {key: value for key, value in asked.items() if value is not None}
    return dict(here.asg.launch_instances(AutoScalingGroupName=group, RequestedCapacity=count, **asked))


def refusal(here: StandIn, group: str, count: int = 1, **more: Any) -> str:
    """The code of the refusal, and that nothing was launched by it."""
    before = here.see(group)
    with pytest.raises(ClientError) as refused:
        launch(here, group, count, **more)
    after = here.see(group)
    assert (after["DesiredCapacity"], after["Instances"]) == (before["DesiredCapacity"], before["Instances"])
    return str(refused.value.response["Error"]["Code"])


def ids(answer: dict[str, Any]) -> list[str]:
    """Of all instances in an answer."""
    return [instance for one in answer["Instances"] for instance in one["InstanceIds"]]


def test_instances_are_there_when_the_call_returns(here: StandIn) -> None:
    """In the zone of the call, listed as pending, and the desired capacity went up by them."""
    group = here.group()
    answer = launch(here, group, 3)
    seen = here.see(group)
    assert (seen["DesiredCapacity"], len(ids(answer)), answer["Errors"]) == (3, 3, [])
    assert [one["InstanceId"] for one in seen["Instances"]] == ids(answer)
    assert {(one["LifecycleState"], one["AvailabilityZone"]) for one in seen["Instances"]} == {("Pending", HERE)}
    here.pass_time(3.1)
    eventually(lambda: here.states(group) == ["InService"] * 3)


def test_the_same_token_is_the_same_launch(here: StandIn) -> None:
    """As long as it lives; with other parameters it is a mistake."""
    group = here.group()
    first = launch(here, group, 1, ClientToken="once")
    assert ids(launch(here, group, 1, ClientToken="once")) == ids(first)
    assert here.see(group)["DesiredCapacity"] == 1
    assert refusal(here, group, 2, ClientToken="once") == "IdempotentParameterMismatch"
    here.pass_time(TOKEN_LIVES + 1)
    assert ids(launch(here, group, 1, ClientToken="once")) != ids(first)


@pytest.mark.parametrize(
    ("kind", "code"), [("insufficient-capacity", "InsufficientInstanceCapacity"), ("quota", "VcpuLimitExceeded")]
)
def test_a_refusal_is_an_answer_and_nothing_is_left_desired(here: StandIn, kind: str, code: str) -> None:
    """With the type, the zone and EC2's words; nothing is tried again."""
    group = here.group()
    here.fail(f"{{kind: {kind}}}")
    answer = launch(here, group, 2)
    [error] = answer["Errors"]
    assert (answer["Instances"], error["ErrorCode"], error["AvailabilityZone"]) == ([], code, HERE)
    assert error["ErrorMessage"]
    assert (here.see(group)["DesiredCapacity"], here.ids(group)) == (0, [])


def test_some_of_the_instances_may_come(here: StandIn) -> None:
    """They are kept and counted, the others are an error."""
    group = here.group()
    here.fail("{kind: insufficient-capacity, after: 2}")
    answer = launch(here, group, 3)
    assert (len(ids(answer)), len(answer["Errors"]), here.see(group)["DesiredCapacity"]) == (2, 1, 2)


def test_a_retry_is_left_to_the_group_where_that_is_asked_for(here: StandIn) -> None:
    """Then the desired capacity goes up by all, and what is refused now comes later."""
    group = here.group()
    here.fail("{kind: insufficient-capacity}")
    launch(here, group, 2, RetryStrategy="retry-with-group-configuration")
    assert here.see(group)["DesiredCapacity"] == 2
    here.ask("DELETE", "faults")
    here.pass_time(10)
    eventually(lambda: len(here.ids(group)) == 2)


def test_what_the_group_does_not_allow_is_refused(here: StandIn) -> None:
    """More than the maximum, another zone, no zone where there are two, a warm pool, spot beside on demand."""
    group = here.group(MaxSize=2)
    assert refusal(here, group, 3) == "ValidationError"
    assert refusal(here, group, AvailabilityZones=["us-east-1f"]) == "ValidationError"
    assert refusal(here, group, AvailabilityZones=None) == "ValidationError"
    here.asg.put_warm_pool(AutoScalingGroupName=group)
    assert refusal(here, group) == "UnsupportedOperation"
    for share, code in ((50, "ValidationError"), (0, "")):
        specification = {"LaunchTemplateId": here.template, "Version": "$Latest"}
        policy = {
            "LaunchTemplate": {
                "LaunchTemplateSpecification": specification,
                "Overrides": [{"InstanceType": "m5.large"}],
            },
            "InstancesDistribution": {"OnDemandPercentageAboveBaseCapacity": share},
        }
        mixed = here.group(LaunchTemplate=None, MixedInstancesPolicy=policy)
        if code:
            assert refusal(here, mixed) == code
        else:
            assert launch(here, mixed, 1)["Instances"][0]["MarketType"] == "Spot"


def test_a_call_that_is_throttled_launches_nothing(here: StandIn) -> None:
    """As every other call."""
    group = here.group()
    here.fail("{kind: throttle, actions: [LaunchInstances]}")
    assert refusal(here, group) == "Throttling"


def test_a_quota_is_told_beforehand_and_holds_for_all_that_runs(here: StandIn) -> None:
    """Plenty where no fault says otherwise; what comes within it comes."""
    quotas = client(here.url, "service-quotas")

    def told() -> float:
        return float(quotas.get_service_quota(ServiceCode="ec2", QuotaCode="L-DB2E81BA")["Quota"]["Value"])

    states = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]
    found = here.ec2.describe_instances(Filters=states)["Reservations"]
    running = sum(one["InstanceType"] == "g5.12xlarge" for each in found for one in each["Instances"])
    assert told() == 100_000
    here.fail(f"{{kind: quota, vcpus: {(running + 2) * 48 + 47}}}")
    assert told() == (running + 2) * 48 + 47
    answer = launch(here, here.group(), 3)
    assert (len(ids(answer)), [one["ErrorCode"] for one in answer["Errors"]]) == (2, ["VcpuLimitExceeded"])
