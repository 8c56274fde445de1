"""The door to AWS: the model's groups, resizing, errors in words. Answers are AWS's own shapes, by boto3's stub."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import boto3
import pytest
from botocore.stub import ANY, Stubber

from autoscaler.cloud.autoscaling_groups import Changed, Ec2
from autoscaler.cloud.clients import Clients, connect
from autoscaler.cloud.errors import NoAnswer, NotLeader, Refused, refusal_code
from autoscaler.cloud.purchases import Bought, token_of
from autoscaler.config.group_entry import GroupEntry
from autoscaler.config.policy import Policy
from autoscaler.config.policy_changes import pending
from autoscaler.model import labels as words
from autoscaler.model.actions import Order
from autoscaler.model.cluster import CapacityBlock
from autoscaler.model.constraints import Taint
from autoscaler.model.errors import Unavailable
from autoscaler.model.resources import Resources
from autoscaler.planner.supply.node_places import labels_of
from stacks.local.process.ports import free_ports
from stacks.nodes.node_groups import group_tags
from tests.builders import a_policy, an_entry
from tests.live.hybrid import Aws, stand_in_aws, until, write_policy

NAME = "local-gpu-a10g-us-east-1a"
LAUNCHED = datetime(2026, 11, 21, 8, tzinfo=UTC)
TYPE = {
    "InstanceType": "g5.12xlarge",
    "ProcessorInfo": {"SupportedArchitectures": ["x86_64"]},
    "VCpuInfo": {"DefaultVCpus": 48},
    "MemoryInfo": {"SizeInMiB": 196608},
    "GpuInfo": {"Gpus": [{"Name": "A10G", "Manufacturer": "NVIDIA", "Count": 4, "MemoryInfo": {"SizeInMiB": 24576}}]},
    "NetworkInfo": {"MaximumNetworkInterfaces": 15, "Ipv4AddressesPerInterface": 50},
}


KEYS = {"aws_access_key_id": "k", "aws_secret_access_key": "s", "region_name": "us-east-1"}


@cache
def clients() -> tuple[Any, ...]:
    """Made once: each takes boto3 a good part of a second."""
    return tuple(boto3.client(name, **KEYS) for name in ("autoscaling", "ec2", "pricing"))  # type: ignore[call-overload]


class Door:
    """An ``Ec2`` whose three clients are stubbed, until the next one is made."""

    active: ClassVar[list[Stubber]] = []

    def __init__(self, policy: Policy, quotas: Any = None) -> None:
        for stub in self.active:
            stub.deactivate()
        made = clients()
        self.autoscaling, self.ec2, self.pricing = self.active[:] = [Stubber(client) for client in made]
        for stub in self.active:
            stub.activate()
        self.warned: list[str] = []
        self.door = Ec2(policy, Clients(made[0], made[1], lambda: made[2], quotas), warn=self.warned.append)
        self.door.reader._at_rest[NAME] = frozenset(f"i-{number}" for number in range(10))

    def groups_are(self, *groups: dict[str, Any], named: str = "") -> None:
        """What the next question for groups is answered with."""
        asked: dict[str, Any] = (
            {"AutoScalingGroupNames": [named]}
            if named
            else {"Filters": [{"Name": f"tag:{words.TAG_CLUSTER}", "Values": ["local"]}]}
        )
        self.autoscaling.add_response("describe_auto_scaling_groups", {"AutoScalingGroups": list(groups)}, asked)

    def types_are(self, *types: dict[str, Any]) -> None:
        """And for instance types."""
        self.ec2.add_response("describe_instance_types", {"InstanceTypes": list(types)}, {"InstanceTypes": ANY})

    def instances_are(self, *ids: str) -> None:
        """And for when instances were launched."""
        described = [{"InstanceId": one, "LaunchTime": LAUNCHED} for one in ids]
        self.ec2.add_response("describe_instances", {"Reservations": [{"Instances": described}]}, {"Filters": ANY})

    def activities_are(self, *activities: dict[str, Any]) -> None:
        """And for a group's history."""
        filled = [{"ActivityId": "a", "AutoScalingGroupName": NAME, "Cause": "c", **one} for one in activities]
        self.autoscaling.add_response(
            "describe_scaling_activities",
            {"Activities": filled},
            {"AutoScalingGroupName": NAME, "MaxRecords": 100},
        )


def raw_group(
    *, desired: int = 0, instances: tuple[str, ...] = (), tags: dict[str, str] | None = None, **more: Any
) -> dict[str, Any]:
    """A group as AWS tells it."""
    told = {words.TAG_CLUSTER: "local", words.TAG_GROUP: "gpu-a10g"} | (tags or {})
    ordinary = {
        "AutoScalingGroupName": NAME,
        "MinSize": 0,
        "MaxSize": 6,
        "DesiredCapacity": desired,
        "DefaultCooldown": 300,
        "AvailabilityZones": ["us-east-1a"],
        "HealthCheckType": "EC2",
        "CreatedTime": LAUNCHED,
        "Instances": [
            {
                "InstanceId": one,
                "AvailabilityZone": "us-east-1a",
                "LifecycleState": "InService",
                "HealthStatus": "Healthy",
                "ProtectedFromScaleIn": False,
            }
            for one in instances
        ],
        "Tags": [{"Key": key, "Value": value} for key, value in told.items()],
    }
    return ordinary | more


@pytest.fixture
def door() -> Door:
    """With the A10G group in the policy, priced there."""
    entry = an_entry(
        "gpu-a10g", usd_per_hour=5.672, labels={"team": "vision"}, taints=[{"key": words.GPU, "effect": "NoSchedule"}]
    )
    return Door(a_policy(entry))


def test_a_group_at_zero_is_known_whole(door: Door) -> None:
    """Labels, taints and room of a node that does not exist: from the policy and the type's formula."""
    door.groups_are(raw_group())
    door.types_are(TYPE)
    (group,) = door.door.groups()
    assert (group.name, group.entry, group.zone) == (NAME, "gpu-a10g", "us-east-1a")
    assert (group.minimum, group.maximum, group.desired) == (0, 6, 0)
    assert group.usd_per_hour == 5.672
    assert group.allocatable[words.GPU] == 4
    assert group.allocatable["cpu"] == 47810
    assert group.labels == {
        words.ORIGIN: words.EC2,
        words.GROUP: "gpu-a10g",
        words.CAPACITY_TYPE: "on-demand",
        words.ZONE: "us-east-1a",
        words.REGION: "us-east-1",
        words.INSTANCE_TYPE: "g5.12xlarge",
        words.ARCH: "amd64",
        words.OS: "linux",
        "team": "vision",
    }
    assert group.taints == (Taint(words.GPU),)
    assert group.refusals == ()
    assert door.warned == []


def test_template_tags_have_the_last_word(door: Door) -> None:
    """The tag convention of the Kubernetes autoscaler: labels, taints and resources of a new node."""
    tags = {
        f"{words.TEMPLATE_RESOURCE}cpu": "40",
        f"{words.TEMPLATE_RESOURCE}memory": "100Gi",
        f"{words.TEMPLATE_RESOURCE}example.com/nic": "2",
        f"{words.TEMPLATE_LABEL}team": "speech",
        f"{words.TEMPLATE_TAINT}dedicated": "speech:NoExecute",
    }
    door.groups_are(raw_group(tags=tags))
    door.types_are(TYPE)
    (group,) = door.door.groups()
    assert group.allocatable == Resources.parse({"cpu": "40", "memory": "100Gi", "example.com/nic": 2})
    assert group.labels["team"] == "speech"
    assert Taint("dedicated", "speech", "NoExecute") in group.taints


def test_a_group_whose_tags_say_what_it_holds_is_known_though_ec2_does_not_tell_its_type(door: Door) -> None:
    """Only that its vCPUs are counted against no limit; without the tags the group is left out."""
    tags = {f"{words.TEMPLATE_RESOURCE}cpu": "40", f"{words.TEMPLATE_RESOURCE}memory": "100Gi"}
    door.groups_are(raw_group(tags=tags), raw_group(AutoScalingGroupName="other"))
    door.ec2.add_client_error("describe_instance_types", "UnauthorizedOperation")
    (group,) = door.door.groups()
    assert (group.name, group.allocatable["cpu"], group.vcpus) == (NAME, 40_000, 0)
    (left_out,) = [line for line in door.warned if "left out" in line]
    assert left_out == (
        "the group other is left out: EC2 does not say what g5.12xlarge holds (ec2:DescribeInstanceTypes), nor do tags "
        "k8s.io/cluster-autoscaler/node-template/resources/cpu and .../memory"
    )


def test_instances_carry_when_they_were_launched_and_are_asked_for_once(door: Door) -> None:
    """Auto Scaling does not say it; EC2 does, for each instance one time."""
    for _ in range(2):
        door.groups_are(raw_group(desired=1, instances=("i-1",)))
    door.types_are(TYPE)
    door.instances_are("i-1")
    door.door.groups()
    (group,) = door.door.groups()
    assert [(one.id, one.launched, one.state) for one in group.instances] == [("i-1", LAUNCHED, "in-service")]
    door.ec2.assert_no_pending_responses()


@pytest.mark.parametrize(
    ("state", "ours"),
    [
        ("Pending:Wait", "pending"),
        ("InService", "in-service"),
        ("Terminating:Wait", "terminating"),
        ("Standby", "in-service"),
    ],
)
def test_lifecycle_states_are_three(door: Door, state: str, ours: str) -> None:
    """AWS has a dozen."""
    raw = raw_group(desired=1, instances=("i-1",))
    raw["Instances"][0]["LifecycleState"] = state
    door.groups_are(raw)
    door.types_are(TYPE)
    door.instances_are("i-1")
    assert door.door.groups()[0].instances[0].state == ours


@pytest.mark.parametrize(("state", "held"), [("Terminating:Wait", True), ("Terminating:Proceed", False)])
def test_what_a_hook_holds_is_known(door: Door, state: str, held: bool) -> None:  # noqa: FBT001 - a table
    """Only while it waits."""
    raw = raw_group(desired=1, instances=("i-1",))
    raw["Instances"][0]["LifecycleState"] = state
    door.groups_are(raw)
    door.types_are(TYPE)
    door.instances_are("i-1")
    assert door.door.groups()[0].instances[0].held is held


def test_letting_go_ends_the_wait_of_our_hook(door: Door) -> None:
    """One that waits no longer is no failure; any other refusal is."""
    asked = {
        "LifecycleHookName": words.TERMINATION_HOOK,
        "AutoScalingGroupName": NAME,
        "InstanceId": "i-1",
        "LifecycleActionResult": "CONTINUE",
    }
    door.autoscaling.add_response("complete_lifecycle_action", {}, asked)
    door.door.release(NAME, "i-1")
    no_longer = ("No active Lifecycle Action found with instance ID i-1", "Instance Id not found - No managed instance")
    for message in (*no_longer, "something else"):
        door.autoscaling.add_client_error("complete_lifecycle_action", "ValidationError", message)
    for _ in no_longer:
        door.door.release(NAME, "i-1")
    with pytest.raises(Refused, match="something else"):
        door.door.release(NAME, "i-1")


SMALLER = TYPE | {"InstanceType": "g6.12xlarge", "MemoryInfo": {"SizeInMiB": 131072}}


def a_set(**given: Any) -> Door:
    """A group of two types, the preferred one with less memory."""
    kinds = {"instance_type": None, "instance_types": ["g6.12xlarge", "g5.12xlarge"]}
    return Door(a_policy(an_entry("gpu-a10g", **kinds | given)))


def test_of_a_set_of_types_the_smallest_is_promised() -> None:
    """Any of them may come, so no pod may count on more, nor on the type."""
    door = a_set(usd_per_hour=5.0)
    door.groups_are(raw_group())
    door.types_are(TYPE, SMALLER)
    [group] = door.door.groups()
    assert group.instance_type == "g6.12xlarge or g5.12xlarge"
    assert group.mixed
    assert words.INSTANCE_TYPE not in group.labels
    assert words.INSTANCE_TYPE not in labels_of(group, "n")
    assert group.allocatable[words.GPU] == 4
    assert group.allocatable["memory"] < 131072 * 2**20


def test_of_a_set_of_types_the_dearest_is_what_it_costs() -> None:
    """So that limits hold whichever comes; with one unknown price the group is not grown."""
    for prices, maximum, usd in (((3.0, 5.0), 10, 5.0), ((3.0, None), 0, 0.0)):
        door = a_set(capacity_type="spot")
        door.groups_are(raw_group() | {"MaxSize": 10})
        door.types_are(TYPE, SMALLER)
        for price in prices:
            history = [] if price is None else [{"SpotPrice": str(price)}]
            door.ec2.add_response("describe_spot_price_history", {"SpotPriceHistory": history})
        [group] = door.door.groups()
        assert (group.usd_per_hour, group.maximum) == (usd, maximum)


def test_a_group_that_is_being_deleted_is_none_any_more(door: Door) -> None:
    """AWS lists it until its last instance is gone, and refuses to grow it."""
    door.groups_are(raw_group(Status="Delete in progress"))
    assert door.door.groups() == ()
    assert door.warned == []


def test_what_ec2_refused_is_data(door: Door) -> None:
    """Only failures of the last hour, newest first, and only asked for where something is missing."""
    now = datetime.now(UTC)
    full = (
        "We currently do not have sufficient g5.12xlarge capacity in the Availability Zone you requested (us-east-1a)."
    )
    door.groups_are(raw_group(desired=2))
    door.types_are(TYPE)
    door.activities_are(
        {"StartTime": now - timedelta(minutes=2), "StatusCode": "Failed", "StatusMessage": full},
        {
            "StartTime": now - timedelta(minutes=1),
            "StatusCode": "Failed",
            "StatusMessage": "MaxSpotInstanceCountExceeded",
        },
        {"StartTime": now - timedelta(minutes=1), "StatusCode": "InProgress"},
        {"StartTime": now - timedelta(hours=3), "StatusCode": "Failed", "StatusMessage": full},
    )
    (group,) = door.door.groups()
    assert [one.code for one in group.refusals] == ["MaxSpotInstanceCountExceeded", "InsufficientInstanceCapacity"]
    assert group.refusals[1].message == full


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("ValidationError: 3 more would be above max value 2 for the AutoScalingGroup.", "MaxSizeExceeded"),
        ("AccessDenied: User is not authorized to perform: autoscaling:SetDesiredCapacity", "UnauthorizedOperation"),
        ("We currently do not have sufficient p4d.24xlarge capacity in the zone", "InsufficientInstanceCapacity"),
        ("You have requested more vCPU capacity than your current vCPU limit of 64 allows", "VcpuLimitExceeded"),
        ("Max spot instance count exceeded", "MaxSpotInstanceCountExceeded"),
        ("You have requested more instances (21) than your current instance limit", "InstanceLimitExceeded"),
        ("Rate exceeded", "RequestLimitExceeded"),
        ("You are not authorized to perform this operation", "UnauthorizedOperation"),
        ("something new", "Refused"),
    ],
)
def test_refusals_have_codes(message: str, code: str) -> None:
    """From AWS's sentences."""
    assert refusal_code(message) == code


def test_an_unknown_price_stops_growth_and_is_told_once() -> None:
    """Not the rest of the group: its nodes are still given back."""
    door = Door(a_policy(an_entry("gpu-a10g")))
    for _ in range(2):
        door.groups_are(raw_group(desired=1, instances=("i-1",)))
    door.types_are(TYPE)
    door.instances_are("i-1")
    door.pricing.add_client_error("get_products", "AccessDeniedException", "no pricing:GetProducts")
    groups = door.door.groups()
    assert door.door.groups() == groups
    assert (groups[0].desired, groups[0].maximum) == (1, 1)
    assert len(door.warned) == 2
    assert "AccessDenied" in door.warned[0]
    assert "write usd_per_hour into its entry of the policy" in door.warned[1]


def test_the_price_list_is_asked_where_the_policy_is_silent() -> None:
    """Free dimensions of an offer are not its price."""
    door = Door(a_policy(an_entry("gpu-a10g")))
    dimensions = {"d1": {"pricePerUnit": {"USD": "0.0"}}, "d2": {"pricePerUnit": {"USD": "5.672"}}}
    product = json.dumps({"terms": {"OnDemand": {"offer": {"priceDimensions": dimensions}}}})
    door.groups_are(raw_group())
    door.types_are(TYPE)
    door.pricing.add_response("get_products", {"PriceList": [product]}, {"ServiceCode": "AmazonEC2", "Filters": ANY})
    assert door.door.groups()[0].usd_per_hour == 5.672


def test_a_spot_group_has_the_spot_price() -> None:
    """Of its zone, now."""
    door = Door(a_policy(an_entry("gpu-a10g", capacity_type="spot")))
    door.groups_are(raw_group())
    door.types_are(TYPE)
    door.ec2.add_response("describe_spot_price_history", {"SpotPriceHistory": [{"SpotPrice": "1.9"}]}, None)
    (group,) = door.door.groups()
    assert (group.usd_per_hour, group.capacity_type) == (1.9, "spot")


def test_a_group_that_the_policy_does_not_name_is_never_grown(door: Door) -> None:
    """It is ours by its tag; somebody took it out of the policy."""
    raw = raw_group(desired=1, instances=("i-1",), tags={words.TAG_GROUP: "old"})
    raw["Instances"][0]["InstanceType"] = "g5.12xlarge"
    door.groups_are(raw)
    door.types_are(TYPE)
    door.instances_are("i-1")
    door.pricing.add_response("get_products", {"PriceList": []})
    (group,) = door.door.groups()
    assert (group.entry, group.maximum) == ("old", 1)
    assert any("the policy has no entry 'old'" in line for line in door.warned)


def test_what_was_told_is_remembered_in_bounds(door: Door) -> None:
    """AWS's words may vary without an end. The newest are not told again."""
    broken = [raw_group(AutoScalingGroupName=f"group-{number}", AvailabilityZones=[]) for number in range(1500)]
    for told in (broken, [broken[-1]], [broken[0]]):
        door.groups_are(*told)
        door.types_are(TYPE)
        assert door.door.groups() == ()
    assert [line.partition(" is left out")[0] for line in door.warned[1499:]] == [
        "the group group-1499",
        "the group group-0",
    ]


def test_instances_that_are_gone_are_forgotten(door: Door) -> None:
    """Of a day's thousands those that are there; a look at one group forgets none of the others'."""
    door.types_are(TYPE)
    for number in range(3):
        door.groups_are(raw_group(desired=1, instances=(f"i-{number}",)))
        door.instances_are(f"i-{number}")
        door.door.groups()
    door.groups_are(raw_group(), named=NAME)
    door.door.group(NAME)
    assert [*door.door.reader._launched] == ["i-2"]


WANTED = {"AutoScalingGroupName": NAME, "DesiredCapacity": 3, "HonorCooldown": False}


def launching(count: int, **order: Any) -> dict[str, Any]:
    """The parameters of a launch, with the token of the order."""
    token = token_of(group=NAME, **{"was": 1, "to": 3, "at": LAUNCHED} | order)
    return {
        "AutoScalingGroupName": NAME,
        "RequestedCapacity": count,
        "AvailabilityZones": ["us-east-1a"],
        "ClientToken": token,
    }


def grown(door: Ec2, group: str, *, coming: int = 0, **order: Any) -> Bought:
    """What came of one order. Raises what it failed with."""
    came = door.grow({group: Order(**order)}, coming={group: coming})[group]
    if isinstance(came, Exception):
        raise came
    return came


def test_growing_looks_once_more_and_launches_what_lacks(door: Door) -> None:
    """In the group's zone, with the order's own token; the instances and the refusal of one answer."""
    door.groups_are(raw_group(desired=1, instances=("i-1",)), named=NAME)
    came = [{"InstanceType": "g5.12xlarge", "AvailabilityZone": "us-east-1a", "InstanceIds": ["i-2"]}]
    full = "We currently do not have sufficient g5.12xlarge capacity."
    errors = [{"ErrorCode": "InsufficientInstanceCapacity", "ErrorMessage": full, "AvailabilityZone": "us-east-1a"}]
    door.autoscaling.add_response("launch_instances", {"Instances": came, "Errors": errors}, launching(2))
    bought = grown(door.door, NAME, was=1, to=3, at=LAUNCHED)
    assert (bought.desired, [one.id for one in bought.instances]) == (2, ["i-2"])
    assert [(one.code, one.message) for one in bought.refusals] == [("InsufficientInstanceCapacity", full)]
    door.autoscaling.assert_no_pending_responses()


def test_what_was_refused_at_once_is_told_with_the_group_from_then_on(door: Door) -> None:
    """Its history need not say it."""
    door.groups_are(raw_group(), named=NAME)
    errors = [{"ErrorCode": "VcpuLimitExceeded", "ErrorMessage": "You have requested more vCPU capacity"}]
    door.autoscaling.add_response("launch_instances", {"Errors": errors}, launching(2, was=0, to=2, at=LAUNCHED))
    grown(door.door, NAME, was=0, to=2, at=LAUNCHED)
    door.groups_are(raw_group())
    door.types_are(TYPE)
    door.activities_are()
    assert [one.code for one in door.door.groups()[0].refusals] == ["VcpuLimitExceeded"]


@pytest.mark.parametrize(
    ("code", "learnt"),
    [("AccessDenied", True), ("UnsupportedOperation", True), ("InvalidAction", True), ("ValidationError", False)],
)
def test_where_nothing_may_be_launched_at_once_the_desired_capacity_is_set(door: Door, code: str, learnt: bool) -> None:  # noqa: FBT001 - a table
    """Absolute, so that doing it twice buys once. It is learnt and told once; any other refusal is one."""
    door.groups_are(raw_group(desired=1), named=NAME)
    door.autoscaling.add_client_error("launch_instances", code, "why")
    if learnt:
        door.autoscaling.add_response("set_desired_capacity", {}, WANTED)
    bought = grown(door.door, NAME, was=1, to=3, at=LAUNCHED)
    assert (bought.desired, len(bought.refusals)) == ((3, 0) if learnt else (1, 1))
    assert len(door.warned) == learnt
    if learnt:
        door.groups_are(raw_group(desired=1), named=NAME)
        door.autoscaling.add_response("set_desired_capacity", {}, WANTED)
        grown(door.door, NAME, was=1, to=3, at=LAUNCHED)
        assert len(door.warned) == 1
    door.autoscaling.assert_no_pending_responses()


def test_a_group_in_which_nothing_may_be_bought_is_refused_alone(door: Door) -> None:
    """Not an outage: other groups are bought in."""
    door.groups_are(raw_group(desired=1), named=NAME)
    for call in ("launch_instances", "set_desired_capacity"):
        door.autoscaling.add_client_error(call, "AccessDenied", "not authorized")
    bought = grown(door.door, NAME, was=1, to=3, at=LAUNCHED)
    assert (bought.desired, [one.code for one in bought.refusals]) == (1, ["UnauthorizedOperation"])


MIXED: dict[str, Any] = {"LaunchTemplate": {"Overrides": [{"InstanceType": "g5.12xlarge"}]}}


@pytest.mark.parametrize(
    ("more", "why_not"),
    [
        ({"LaunchConfigurationName": "old"}, "launch configuration"),
        ({"WarmPoolConfiguration": {"MinSize": 1}}, "warm pool"),
        ({"MixedInstancesPolicy": {"InstancesDistribution": {"OnDemandPercentageAboveBaseCapacity": 50}}}, "mixes"),
        ({"MixedInstancesPolicy": {"LaunchTemplate": {"Overrides": [{"WeightedCapacity": "2"}]}}}, "weights"),
        ({"MixedInstancesPolicy": MIXED | {"InstancesDistribution": {"OnDemandPercentageAboveBaseCapacity": 0}}}, ""),
        ({"MixedInstancesPolicy": MIXED}, ""),
        ({}, ""),
    ],
)
def test_groups_that_aws_launches_nothing_in_at_once_are_known_by_their_description(
    door: Door, more: dict[str, Any], why_not: str
) -> None:
    """They are not asked for it in vain."""
    door.groups_are(raw_group(desired=1, **more), named=NAME)
    if why_not:
        door.autoscaling.add_response("set_desired_capacity", {}, WANTED)
    else:
        door.autoscaling.add_response(
            "launch_instances", {"Instances": [{"InstanceIds": ["i-2", "i-3"]}]}, launching(2)
        )
    grown(door.door, NAME, was=1, to=3, at=LAUNCHED)
    door.autoscaling.assert_no_pending_responses()
    assert (why_not in "".join(door.warned)) if why_not else not door.warned


def test_a_launch_without_an_answer_is_no_refusal(door: Door) -> None:
    """It may have been done. A call that was throttled was not."""
    for code in ("InternalFailure", "IdempotentCallInProgress"):
        door.groups_are(raw_group(desired=1), named=NAME)
        door.autoscaling.add_client_error("launch_instances", code, "why", http_status_code=500)
        with pytest.raises(NoAnswer):
            grown(door.door, NAME, was=1, to=3, at=LAUNCHED)
    door.groups_are(raw_group(desired=1), named=NAME)
    door.autoscaling.add_client_error("launch_instances", "Throttling", "Rate exceeded")
    with pytest.raises(Unavailable, match="fewer calls") as throttled:
        grown(door.door, NAME, was=1, to=3, at=LAUNCHED)
    assert not isinstance(throttled.value, NoAnswer)


@pytest.mark.parametrize("desired", [0, 2, 3, 4])
def test_a_group_that_is_not_as_planned_is_not_grown(door: Door, desired: int) -> None:
    """Somebody was faster, or it was lowered: the next plan starts from what is true."""
    door.groups_are(raw_group(desired=desired), named=NAME)
    door.types_are(TYPE)
    if desired:
        door.activities_are()
    with pytest.raises(Changed, match=f"^{NAME} was to have 1 node when .* and is to have {desired} now") as changed:
        grown(door.door, NAME, was=1, to=3, at=LAUNCHED)
    assert changed.value.group is not None
    assert changed.value.group.desired == desired


def test_a_group_that_has_all_by_now_is_not_grown(door: Door) -> None:
    """Two came though one was desired, and one is being launched."""
    door.groups_are(raw_group(desired=1, instances=("i-1", "i-2")), named=NAME)
    door.types_are(TYPE)
    door.instances_are("i-1", "i-2")
    with pytest.raises(Changed, match="has 3 nodes by now, or is launching them") as changed:
        grown(door.door, NAME, was=1, to=3, at=LAUNCHED, coming=1)
    assert changed.value.group is not None


def test_what_ec2_does_not_let_this_account_launch_is_ordered_by_the_desired_capacity(door: Door) -> None:
    """Auto Scaling launches by a role of its own. Where some were launched, the others are refused."""
    denied = {"ErrorCode": "UnauthorizedOperation", "ErrorMessage": "You are not authorized"}
    came = [{"InstanceType": "g5.12xlarge", "AvailabilityZone": "us-east-1a", "InstanceIds": ["i-2"]}]
    door.groups_are(raw_group(desired=1, instances=("i-1",)), named=NAME)
    door.autoscaling.add_response("launch_instances", {"Instances": came, "Errors": [denied]}, launching(2))
    assert [one.code for one in grown(door.door, NAME, was=1, to=3, at=LAUNCHED).refusals] == ["UnauthorizedOperation"]
    door.groups_are(raw_group(desired=1, instances=("i-1",)), named=NAME)
    door.autoscaling.add_response("launch_instances", {"Errors": [denied]}, launching(2))
    door.autoscaling.add_response("set_desired_capacity", {}, WANTED)
    bought = grown(door.door, NAME, was=1, to=3, at=LAUNCHED)
    assert (bought.desired, bought.refusals) == (3, ())
    assert door.warned == [f"{NAME} is grown by its desired capacity, not by LaunchInstances: You are not authorized"]


def test_orders_in_several_groups_are_one_look_and_fail_alone(door: Door) -> None:
    """One is as planned, one is not, one is not there."""
    changed = raw_group(desired=2) | {"AutoScalingGroupName": "changed"}
    raws, asked = [raw_group(desired=1), changed], {"AutoScalingGroupNames": [NAME, "changed", "gone"]}
    door.autoscaling.add_response("describe_auto_scaling_groups", {"AutoScalingGroups": raws}, asked)
    door.types_are(TYPE)
    door.autoscaling.add_response("describe_scaling_activities", {"Activities": []})
    door.autoscaling.add_response("launch_instances", {"Instances": [{"InstanceIds": ["i-2", "i-3"]}]}, launching(2))
    came = door.door.grow(dict.fromkeys((NAME, "changed", "gone"), Order(1, 3, LAUNCHED)))
    assert isinstance(bought := came[NAME], Bought)
    assert bought.desired == 3
    assert [type(came[name]) for name in ("changed", "gone")] == [Changed, Changed]
    door.autoscaling.assert_no_pending_responses()


def test_a_process_that_may_have_lost_its_lease_writes_nothing(door: Door) -> None:
    """AWS is looked at, and asked for nothing more: no launch, no desired capacity, no end, no release."""
    door.door.writes.may_write = lambda: False
    door.groups_are(raw_group(desired=1), named=NAME)
    assert isinstance(door.door.grow({NAME: Order(1, 3, LAUNCHED)})[NAME], NotLeader)
    door.groups_are(raw_group(desired=1), named=NAME)
    with pytest.raises(NotLeader, match="the lease was not renewed in time"):
        door.door.cancel(NAME, was=1, to=0)
    with pytest.raises(NotLeader):
        door.door.terminate("i-1", group=NAME)
    with pytest.raises(NotLeader):
        door.door.release(NAME, "i-1")


def test_where_the_groups_cannot_be_looked_at_nothing_is_ordered(door: Door) -> None:
    """Each order fails with the same."""
    door.autoscaling.add_client_error("describe_auto_scaling_groups", "Throttling", "Rate exceeded")
    came = door.door.grow(dict.fromkeys((NAME, "other"), Order(1, 3, LAUNCHED)))
    assert [type(one) for one in came.values()] == [Unavailable, Unavailable]


BLOCK = "cr-0123456789abcdef0"


def door_of_a_block(*, available: int) -> Door:
    """To a group that launches into a Capacity Block of four instances, of which EC2 counts so many as free."""
    of_block = {"capacity_type": "capacity-block", "capacity_reservation": BLOCK}
    door = Door(a_policy(an_entry("gpu-a10g", zones=["us-east-1a"], usd_per_hour=5.672, **of_block)))
    door.types_are(TYPE)
    ends = LAUNCHED + timedelta(days=1)
    said = {"ReservationType": "capacity-block", "State": "active", "StartDate": LAUNCHED, "EndDate": ends}
    said |= {"TotalInstanceCount": 4, "AvailableInstanceCount": available}
    asked = {"CapacityReservationIds": [BLOCK]}
    door.ec2.add_response("describe_capacity_reservations", {"CapacityReservations": [said]}, asked)
    return door


def test_a_group_of_a_capacity_block_knows_when_it_may_be_used() -> None:
    """And how many vCPUs are left there, which are counted by what its type has."""
    door, block = door_of_a_block(available=3), BLOCK
    raw = raw_group(tags={words.TAG_RESERVATION: block})
    door.groups_are(raw)
    [group] = door.door.groups()
    assert group.block == CapacityBlock(LAUNCHED, LAUNCHED + timedelta(days=1), 4)
    assert (group.quota, group.quota_left, door.warned) == (block, 3 * 48, [])
    door.groups_are(raw, named=NAME)
    (refusal,) = grown(door.door, NAME, was=0, to=4, at=LAUNCHED).refusals
    assert refusal.code == "ReservationCapacityExceeded"
    assert refusal.message.endswith("vCPUs are in use, and 4 nodes would be 192 more")
    came = [{"InstanceType": "g5.12xlarge", "AvailabilityZone": "us-east-1a", "InstanceIds": ["i-1", "i-2", "i-3"]}]
    door.groups_are(raw, named=NAME)
    door.autoscaling.add_response("launch_instances", {"Instances": came, "Errors": []}, launching(3, was=0))
    assert grown(door.door, NAME, was=0, to=3, at=LAUNCHED).refusals == ()
    door.groups_are(raw_group(desired=3, tags={words.TAG_RESERVATION: block}), named=NAME)
    (refusal,) = grown(door.door, NAME, was=3, to=4, at=LAUNCHED).refusals
    assert refusal.code == "ReservationCapacityExceeded"


def test_what_is_being_launched_into_a_capacity_block_has_its_room() -> None:
    """EC2 counts it when it has come; till then nothing more is bought there than the block has."""
    door = door_of_a_block(available=4)
    door.groups_are(raw_group(desired=3, tags={words.TAG_RESERVATION: BLOCK}))
    door.activities_are()
    [group] = door.door.groups()
    assert group.quota_left == 48


def test_a_group_with_more_than_it_desires_takes_from_a_quota_only_what_is_launched() -> None:
    """Two instances stand where one is desired, so an order of two more launches one; then one more has room."""
    door = door_of_a_block(available=2)
    tags, there = {words.TAG_RESERVATION: BLOCK}, ("i-1", "i-2")
    door.groups_are(raw_group(desired=1, instances=there, tags=tags))
    door.instances_are(*there)
    [group] = door.door.groups()
    assert group.quota_left == 2 * 48
    door.groups_are(raw_group(desired=1, instances=there, tags=tags), named=NAME)
    door.autoscaling.add_response("set_desired_capacity", {}, WANTED)
    assert grown(door.door, NAME, was=1, to=3, at=LAUNCHED).desired == 3
    door.groups_are(raw_group(desired=3, instances=there, tags=tags), named=NAME)
    (refusal,) = grown(door.door, NAME, was=3, to=5, at=LAUNCHED).refusals
    assert refusal.message.endswith("144 of 192 vCPUs are in use, and 2 nodes would be 96 more")


@pytest.mark.parametrize(("desired", "used"), [(0, 52), (1, 52 + 48), (3, 52 + 3 * 48)])
def test_what_a_quota_leaves_is_known_with_the_group(desired: int, used: int) -> None:
    """Less what runs in the region, also of types that no group has; and what Auto Scaling is launching for ours."""
    quotas = boto3.client("service-quotas", **KEYS)
    door = Door(a_policy(an_entry("gpu-a10g", zones=["us-east-1a"], usd_per_hour=5.672)), lambda: quotas)
    with Stubber(quotas) as stub:
        door.groups_are(raw_group(desired=desired))
        if desired:
            door.activities_are()
        door.types_are(TYPE)
        running = [
            {"InstanceId": "i-1", "InstanceType": "g5.12xlarge"},
            {"InstanceId": "i-2", "InstanceType": "g5.xlarge"},
        ]
        door.ec2.add_response("describe_instances", {"Reservations": [{"Instances": running}]}, {"Filters": ANY})
        door.types_are(TYPE | {"InstanceType": "g5.xlarge", "VCpuInfo": {"DefaultVCpus": 4}})
        said = {"Quota": {"QuotaCode": "L-DB2E81BA", "QuotaName": "G", "Value": 768.0}}
        stub.add_response("get_service_quota", said, {"ServiceCode": "ec2", "QuotaCode": "L-DB2E81BA"})
        [group] = door.door.groups()
    assert (group.quota, group.quota_left, door.warned) == ("L-DB2E81BA", 768 - used, [])


def test_a_group_of_another_cluster_is_not_there(door: Door) -> None:
    """Whatever its name."""
    door.groups_are(raw_group(tags={words.TAG_CLUSTER: "another"}), named=NAME)
    with pytest.raises(Changed, match="is not there any more"):
        grown(door.door, NAME, was=0, to=1, at=LAUNCHED)


def test_cancelling_an_order_ends_no_instance(door: Door) -> None:
    """One that came after all stays wanted."""
    door.groups_are(raw_group(desired=2, instances=("i-1", "i-2")), named=NAME)
    door.types_are(TYPE)
    door.instances_are("i-1", "i-2")
    with pytest.raises(Changed, match="has 2 nodes by now"):
        door.door.cancel(NAME, was=2, to=1)
    door.groups_are(raw_group(desired=2, instances=("i-1",)), named=NAME)
    door.autoscaling.add_response(
        "set_desired_capacity", {}, {"AutoScalingGroupName": NAME, "DesiredCapacity": 1, "HonorCooldown": False}
    )
    door.groups_are(raw_group(desired=1, instances=("i-1",)), named=NAME)
    door.activities_are()
    now = door.door.cancel(NAME, was=2, to=1)
    assert (now.desired, now.launching) == (1, 0)
    door.autoscaling.assert_no_pending_responses()


def test_a_launch_that_is_being_tried_is_known_until_its_instance_is_listed(door: Door) -> None:
    """Also of a group that desires nothing any more: at the first look, and until it has ended."""
    now = datetime.now(UTC)
    tried = {"StartTime": now, "StatusCode": "PreInService", "Description": "Launching a new EC2 instance"}
    listed = {"StartTime": now, "StatusCode": "InProgress", "Description": "Launching a new EC2 instance: i-1"}
    other = {"StartTime": now, "StatusCode": "InProgress", "Description": "Terminating EC2 instance: i-0"}
    door.door.reader._at_rest.clear()
    door.types_are(TYPE)
    door.instances_are("i-1")
    for desired, activities, launching in ((2, (tried, listed, other), 1), (1, (tried, listed), 1), (1, (listed,), 0)):
        door.groups_are(raw_group(desired=desired, instances=("i-1",)))
        door.activities_are(*activities)
        assert door.door.groups()[0].launching == launching
    door.groups_are(raw_group(desired=1, instances=("i-1",)))
    assert door.door.groups()[0].launching == 0


def test_what_was_refused_before_an_instance_came_is_learnt_with_it(door: Door) -> None:
    """Auto Scaling replaces an instance that was lost by itself: refusals on the way fell between two looks."""
    full = "We currently do not have sufficient g5.12xlarge capacity in the Availability Zone you requested"
    refused = {"StartTime": datetime.now(UTC), "StatusCode": "Failed", "StatusMessage": full}
    door.types_are(TYPE)
    door.instances_are("i-1")
    door.groups_are(raw_group(desired=1, instances=("i-1",)))
    assert door.door.groups()[0].refusals == ()
    door.groups_are(raw_group(desired=1, instances=("i-77",)))
    door.instances_are("i-77")
    door.activities_are(refused)
    (group,) = door.door.groups()
    assert [one.code for one in group.refusals] == ["InsufficientInstanceCapacity"]
    door.groups_are(raw_group(desired=1, instances=("i-77",)))
    assert door.door.groups()[0].refusals == group.refusals
    door.autoscaling.assert_no_pending_responses()


def test_giving_back_lowers_the_group_too(door: Door) -> None:
    """Else it would buy a successor. What AWS refuses is a refusal."""
    wanted = {"InstanceId": "i-1", "ShouldDecrementDesiredCapacity": True}
    door.autoscaling.add_response("terminate_instance_in_auto_scaling_group", {}, wanted)
    door.door.terminate("i-1", group=NAME)
    door.autoscaling.add_client_error("terminate_instance_in_auto_scaling_group", "ValidationError", "not found")
    with pytest.raises(Refused, match="ValidationError: not found"):
        door.door.terminate("i-1", group=NAME)
    door.autoscaling.add_client_error(
        "terminate_instance_in_auto_scaling_group", "ValidationError", "min size constraint"
    )
    door.autoscaling.add_response("describe_auto_scaling_groups", {"AutoScalingGroups": []})
    with pytest.raises(Refused, match="min size constraint"):  # of a group that is gone nothing is known
        door.door.terminate("i-1", group=NAME)


@pytest.mark.parametrize(
    ("code", "status", "said"),
    [
        ("InvalidClientTokenId", 403, "does not accept the credentials"),
        ("ExpiredToken", 403, "does not accept the credentials"),
        ("AccessDenied", 403, "does not allow this account"),
        ("Throttling", 400, "asks for fewer calls"),
        ("ServiceUnavailable", 503, "is not able to answer now"),
    ],
)
def test_errors_are_told_in_words(door: Door, code: str, status: int, said: str) -> None:
    """With the region and AWS's own code."""
    door.autoscaling.add_client_error("describe_auto_scaling_groups", code, "why", http_status_code=status)
    with pytest.raises(Unavailable, match=f"AWS in us-east-1 {said}.*{code}"):
        door.door.groups()


@pytest.fixture
def no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine that nobody has set up for AWS."""
    for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(key, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.mark.usefixtures("no_credentials")
def test_no_credentials_are_told_with_the_ways_to_give_them() -> None:
    """Not with a stack trace of boto3's."""
    with pytest.raises(Unavailable, match="no credentials found: set AWS_PROFILE"):
        Ec2(a_policy(), connect("us-east-1")).groups()


def test_nobody_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the address that was tried."""
    (port,) = free_ports(1)
    for key, value in {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}.items():
        monkeypatch.setenv(key, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    with pytest.raises(Unavailable, match=f"AWS in us-east-1 does not answer: .*127.0.0.1:{port}"):
        Ec2(a_policy(), connect("us-east-1")).groups()


@pytest.fixture
def stand_in(tmp_path: Path) -> Iterator[tuple[Aws, Policy]]:
    """The stand-in for AWS with one group that no other test has left instances in: AWS remembers."""
    _, policy = write_policy(tmp_path)
    with stand_in_aws(tmp_path / "state", boot_delay="200ms") as aws:
        aws.make_groups(policy)
        yield aws, policy


@pytest.mark.live
def test_against_the_stand_in_a_group_grows_once_and_shrinks(
    stand_in: tuple[Aws, Policy], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole way of an instance, through boto3 and HTTP."""
    aws, policy = stand_in
    for key, value in aws.env.items():
        monkeypatch.setenv(key, value)
    door = Ec2(policy, connect("us-east-1"))
    (group,) = door.groups()
    assert group.allocatable[words.GPU] == 4
    grown(door, group.name, was=0, to=1, at=LAUNCHED)
    with pytest.raises(Changed):
        grown(door, group.name, was=0, to=1, at=LAUNCHED)
    instance = until(lambda: next(iter(door.groups()[0].instances), None))
    assert instance.launched is not None
    door.terminate(instance.id, group=group.name)
    assert door.groups()[0].desired == 0


def test_a_group_whose_maximum_was_lowered_can_be_emptied(
    stand_in: tuple[Aws, Policy], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its nodes are protected, so AWS ends none: it desires one, has three, gives all back, and buys none anew."""
    aws, policy = stand_in
    for key, value in aws.env.items():
        monkeypatch.setenv(key, value)
    door, scaling = Ec2(policy, connect("us-east-1")), aws.client("autoscaling")
    (group,) = door.groups()
    scaling.update_auto_scaling_group(AutoScalingGroupName=group.name, NewInstancesProtectedFromScaleIn=True)
    grown(door, group.name, was=0, to=3, at=LAUNCHED)
    until(lambda: len([one for one in door.groups()[0].instances if one.state == "in-service"]) == 3)
    scaling.update_auto_scaling_group(AutoScalingGroupName=group.name, MaxSize=1)
    assert door.groups()[0].desired == 1
    for instance in door.groups()[0].instances:
        door.terminate(instance.id, group=group.name)
    until(lambda: not door.groups()[0].instances)
    assert door.groups()[0].desired == 0
    assert not [one for one in aws.asked("SetDesiredCapacity") if one["parameters"].get("DesiredCapacity") == "0"]


def test_a_dead_instance_ends_also_where_its_group_is_at_its_minimum(
    stand_in: tuple[Aws, Policy], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another is launched in its place; one that works is not given back below the minimum. EC2 says what has ended."""
    aws, policy = stand_in
    for key, value in aws.env.items():
        monkeypatch.setenv(key, value)
    door, scaling = Ec2(policy, connect("us-east-1")), aws.client("autoscaling")
    (group,) = door.groups()
    scaling.update_auto_scaling_group(AutoScalingGroupName=group.name, MinSize=1, DesiredCapacity=1)
    until(lambda: [one.state for one in door.groups()[0].instances] == ["in-service"])
    (instance,) = door.groups()[0].instances
    assert not door.has_ended(instance.id)
    with pytest.raises(Refused, match="min size constraint"):
        door.terminate(instance.id, group=group.name)
    door.terminate(instance.id, group=group.name, is_dead=True)
    until(
        lambda: [one.id for one in door.groups()[0].instances if one.state == "in-service"] not in ([], [instance.id])
    )
    assert door.groups()[0].desired == 1
    until(lambda: door.has_ended(instance.id))
    assert door.has_ended("i-0123456789abcdef0")


def tagged_by(policy: Policy) -> dict[str, str]:
    """The tags that the stacks give the first entry's group."""
    return group_tags(policy.cluster, policy.region, policy.groups[0], "us-east-1a")


def test_an_edit_of_what_pulumi_builds_changes_no_group_until_it_is_built() -> None:
    """Type, price, labels, taints and capacity are those that stand; live keys are those of the edit."""
    entry = {"usd_per_hour": 5.672, "labels": {"team": "vision"}, "taints": [{"key": words.GPU}]}
    before = a_policy(an_entry("gpu-a10g", **entry))
    door = Door(before)
    for _ in range(3):
        door.groups_are(raw_group(tags=tagged_by(before)))
    door.types_are(TYPE)
    (stood,) = door.door.groups()
    after = {"instance_type": "p5.48xlarge", "usd_per_hour": 98.0, "labels": {}, "taints": [{"key": "other"}]}
    door.door.obey(a_policy(an_entry("gpu-a10g", **after, capacity_type="spot", max=3, disk="900Gi")))
    (stands,) = door.door.groups()
    assert stands == stood
    door.door.obey(a_policy(an_entry("gpu-a10g", **entry | {"usd_per_hour": 6.0})))
    assert door.door.groups()[0].usd_per_hour == 6.0


def test_a_group_of_an_entry_that_was_renamed_is_the_entrys_until_it_is_built_anew() -> None:
    """It carries the former name in its tags, and is bought in."""
    before = a_policy(an_entry("gpu-a10g", usd_per_hour=5.672))
    door = Door(a_policy(an_entry("vision", instance_type="g5.12xlarge", usd_per_hour=5.672, formerly=("gpu-a10g",))))
    door.groups_are(raw_group(tags=tagged_by(before)))
    door.types_are(TYPE)
    (group,) = door.door.groups()
    assert (group.entry, group.maximum) == ("vision", 6)
    assert group.labels[words.GROUP] == "gpu-a10g", "which its nodes carry"
    assert not door.warned


@pytest.mark.parametrize(
    "entry",
    [
        {},
        {
            "labels": {"team": "vision"},
            "taints": [{"key": words.GPU, "value": "a10g"}, {"key": "b", "effect": "NoExecute"}],
        },
        {"capacity_type": "spot", "disk": "300Gi", "resources": {"cpu": "40", "pods": "50"}, "min": 1},
        {"instance_type": None, "instance_types": ("g5.12xlarge", "g6.12xlarge")},
        {"instance_type": None, "instance_types": ("g5.12xlarge",), "efa": True, "placement": "cluster"},
    ],
)
def test_of_groups_as_the_stacks_build_them_nothing_is_pending(entry: dict[str, Any]) -> None:
    """And a change of each key that they build from is."""
    built = a_policy(an_entry("gpu-a10g", **{"usd_per_hour": 5.672, "zones": ("us-east-1a",), "max": 6} | entry))
    several = {"Overrides": [{"InstanceType": kind} for kind in built.groups[0].types]}
    mixed = {"MixedInstancesPolicy": {"LaunchTemplate": several}} if len(built.groups[0].types) > 1 else {}
    door = Door(built)
    door.groups_are(raw_group(tags=tagged_by(built), MinSize=entry.get("min", 0), **mixed))
    door.types_are(TYPE, TYPE | {"InstanceType": "g6.12xlarge"})
    groups = door.door.groups()
    assert pending(built, groups) == ()
    for change in (
        {"disk": "500Gi"},
        {"labels": {"new": "x"}},
        {"taints": [{"key": "z"}]},
        {"resources": {"cpu": "1"}},
    ):
        edited = built.groups[0].model_dump() | change
        assert pending(a_policy(GroupEntry.model_validate(edited)), groups), change
