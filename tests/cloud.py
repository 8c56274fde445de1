"""A stand-in for EC2 and Auto Scaling within the process: groups that live in a clock of the test's own.

Two clients with boto3's method names, parameters and answers, of what ``autoscaler/cloud`` asks.
Parameters are held against botocore's model of the service, once for each set of them. Refused is what AWS refuses, in
its words: a size above the maximum or below the minimum, an instance that is not there or ends already, a hook that
does not wait.

Each launch is an activity that is in progress first; the instance comes, or the refusal, so much later. A launch under
way goes on though nothing is desired any more, and its instance, which is protected from scale-in as ours are, stays.
The whole stand-in, with HTTP, hooks and time: ``stacks/local``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Final, NoReturn

import botocore.session
from botocore.exceptions import ClientError
from botocore.validate import ParamValidator

from autoscaler.cloud.clients import Clients
from autoscaler.model import labels as words
from autoscaler.model.cluster import Group

FULL: Final = (
    "We currently do not have sufficient {kind} capacity in the Availability Zone you requested ({zone}). Our system "
    "will be working on provisioning additional capacity. Launching EC2 instance failed."
)
QUOTA: Final = (
    "You have requested more vCPU capacity than your current vCPU limit of 64 allows for the instance bucket that the "
    "specified instance type belongs to. Launching EC2 instance failed."
)
_PARAMETERS_SEEN: Final[set[tuple[str, ...]]] = set()


@dataclass
class Launch:
    """One try of a group to launch an instance."""

    began: datetime
    due: datetime
    """When it is granted or refused."""
    refusal: str
    """Why it will be refused; empty: it is granted."""
    at: datetime | None = None
    """When it was refused."""


@dataclass
class Scaling:
    """One Auto Scaling group."""

    shown: Group
    """Its name, type, zone and bounds."""
    desired: int
    instances: dict[str, str] = field(default_factory=dict)
    """Instance id -> lifecycle state."""
    launches: list[Launch] = field(default_factory=list)
    """Under way, or refused."""
    again_at: datetime | None = None
    """Auto Scaling rests after a refusal."""

    @property
    def under_way(self) -> list[Launch]:
        """Launches neither granted nor refused so far."""
        return [one for one in self.launches if one.at is None]

    @property
    def living(self) -> int:
        """Instances that are not being ended."""
        return sum(not state.startswith("Terminating") for state in self.instances.values())

    @property
    def paid_for(self) -> int:
        """Machines that run or are ordered, but for those that are being ended."""
        return max(self.desired, self.living + len(self.under_way))

    @property
    def held(self) -> int:
        """Instances that a hook holds: they run, and are billed, until they are shut down."""
        return sum(state == "Terminating:Wait" for state in self.instances.values())


@dataclass
class Cloud:
    """All groups of one cluster."""

    cluster: str
    chance: random.Random
    groups: dict[str, Scaling]
    now: datetime
    refuses: float = 0.0
    dry: frozenset[str] = frozenset()
    """Groups that never get an instance."""
    says: tuple[tuple[str, str], ...] = (("InsufficientInstanceCapacity", FULL), ("VcpuLimitExceeded", QUOTA))
    """Of which refusals one is drawn."""
    late: tuple[float, float] = (0.0, 0.0)
    """Seconds from an order to its grant or refusal: at least and at most."""
    rests: timedelta = timedelta(seconds=20)
    """Between a refusal and the next try."""
    launched: dict[str, datetime] = field(default_factory=dict)
    born: int = 0
    """Instances that ever were: each has a number."""
    quota: int | None = None
    """vCPUs of each quota of the account, one for each node; ``None``: it cannot be asked about."""
    at_once: bool = True
    """Whether the account may launch instances within a call."""
    tokens: dict[str, tuple[dict[str, Any], dict[str, Any]]] = field(default_factory=dict)
    """Of such a call: what was asked for and answered."""
    touch: Callable[[str], None] = lambda _what: None
    """Called before and after each write, with what it is: a fault point."""
    watch: Callable[[], None] = lambda: None
    """Called after each change, with nothing else changed yet."""
    refused: int = 0
    changes: int = 0
    """How often something happened that the autoscaler did not do."""

    @classmethod
    def of(cls, groups: list[Group], *, cluster: str, now: datetime, chance: random.Random, **more: Any) -> Cloud:
        """With these groups, at what they desire and have."""
        made = {one.name: Scaling(one, one.desired, {i.id: "InService" for i in one.instances}) for one in groups}
        cloud = cls(cluster=cluster, chance=chance, groups=made, now=now, **more)
        cloud.born = sum(len(one.instances) for one in groups)
        cloud.launched = {i.id: i.launched or now for one in groups for i in one.instances}
        return cloud

    def clients(self) -> Clients:
        """For the door."""
        quotas = None if self.quota is None else lambda: _Quotas(self)
        return Clients(_Scaling(self), _Ec2(self), _no_prices, quotas)  # type: ignore[arg-type]  # of boto3's shape

    def advance(self, to: datetime) -> None:
        """What happens until then, in order of time."""
        while (due := min(self._dues(), default=to)) < to or due <= self.now:
            self.now = max(self.now, due)
            if not self._settle():
                break
        self.now = to
        self._settle()

    def _dues(self) -> Iterator[datetime]:
        for group in self.groups.values():
            yield from (one.due for one in group.under_way)
            if group.desired > group.living + len(group.under_way):
                yield group.again_at or self.now

    def _settle(self) -> bool:
        """What is due at this moment; whether anything was."""
        return sum(self._of(group) for group in self.groups.values()) > 0  # each, whatever came of the others

    def _of(self, group: Scaling) -> bool:
        due = [one for one in group.under_way if one.due <= self.now]
        for one in due:
            self._end(group, one)
        rests = group.again_at is not None and group.again_at > self.now
        lacking = 0 if rests else group.desired - group.living - len(group.under_way)
        for _ in range(lacking):
            self.begin(group)
        gone = [one for one, state in group.instances.items() if state == "Terminating"]
        for one in gone:
            del group.instances[one]
        self.changes += bool(due) + (lacking > 0) + bool(gone)
        self.watch()
        return bool(due) or lacking > 0

    def begin(self, group: Scaling) -> None:
        """Try to launch one instance."""
        late = timedelta(seconds=self.chance.uniform(*self.late))
        refused = self._refuses(group)
        words_ = self.chance.choice(self.says)[1].format(kind=group.shown.instance_type, zone=group.shown.zone)
        due = self.now + late
        group.launches.append(Launch(self.now, due, self._block_refuses(group) or (words_ if refused else "")))

    def _refuses(self, group: Scaling) -> bool:
        return group.shown.name in self.dry or self.chance.random() < self.refuses

    def _block_refuses(self, group: Scaling) -> str:
        """What EC2 says of a Capacity Block that has not begun, that ends, or that is full; empty: nothing."""
        block, key = group.shown.block, group.shown.reservation
        if block is None:
            return ""
        if not block.starts <= self.now < block.taken_back:
            return f"The Capacity Reservation {key} is {'scheduled' if self.now < block.starts else 'ending'}."
        is_full = len(group.instances) + len(group.under_way) >= block.instances
        return f"There is no room in the Capacity Reservation {key}." if is_full else ""

    def launch(self, group: Scaling, count: int) -> dict[str, Any]:
        """Launch instances at once: as many as come, up to the first that is refused."""
        came: list[str] = []
        errors = []
        while len(came) < count and not errors:
            no_block = self._block_refuses(group)
            if no_block or self._refuses(group):
                code, said = ("ReservationCapacityExceeded", no_block) if no_block else self.chance.choice(self.says)
                said = said.format(kind=group.shown.instance_type, zone=group.shown.zone)
                errors.append({"ErrorCode": code, "ErrorMessage": said, "AvailabilityZone": group.shown.zone})
                self.refused += 1
            else:
                came.append(self._new(group))
        group.desired += len(came)
        return {"Instances": [{"AvailabilityZone": group.shown.zone, "InstanceIds": came}], "Errors": errors}

    def _end(self, group: Scaling, launch: Launch) -> None:
        if launch.refusal:
            launch.at, group.again_at = self.now, self.now + self.rests
            self.refused += 1
            return
        group.launches.remove(launch)
        self._new(group)

    def _new(self, group: Scaling) -> str:
        instance, self.born = f"i-{self.born:05}", self.born + 1
        self.launched[instance] = self.now
        group.instances[instance] = "InService"
        return instance

    @property
    def usd_per_hour(self) -> float:
        """Of all that runs or is ordered."""
        return sum(group.shown.usd_per_hour * (group.paid_for + group.held) for group in self.groups.values())


class _Client:
    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud

    def _group(self, name: str, operation: str) -> Scaling:
        group = self.cloud.groups.get(name)
        if group is None:
            _refuse(operation, f"AutoScalingGroup name not found - AutoScalingGroup '{name}' not found")
        return group


class _Pages:
    def __init__(self, ask: Callable[..., dict[str, Any]]) -> None:
        self._ask = ask

    def paginate(self, **asked: Any) -> list[dict[str, Any]]:
        """All in one page."""
        return [self._ask(**asked)]


class _Scaling(_Client):
    """Auto Scaling's client."""

    def get_paginator(self, name: str) -> _Pages:
        return _Pages(getattr(self, name))

    def describe_auto_scaling_groups(self, **asked: Any) -> dict[str, Any]:
        _check("autoscaling", "DescribeAutoScalingGroups", asked)
        names = asked.get("AutoScalingGroupNames")
        found = [one for name, one in self.cloud.groups.items() if names is None or name in names]
        return {"AutoScalingGroups": [self._described(one) for one in found]}

    def _described(self, group: Scaling) -> dict[str, Any]:
        shown = group.shown
        tags = {words.TAG_CLUSTER: self.cloud.cluster, words.TAG_GROUP: shown.entry}
        tags |= {f"{words.TEMPLATE_RESOURCE}{name}": _amount(name, n) for name, n in shown.allocatable.items()}
        tags |= {f"{words.TEMPLATE_LABEL}{words.INSTANCE_TYPE}": shown.instance_type, words.TAG_BUILT_FROM: "x"}
        tags |= {f"{words.TEMPLATE_LABEL}{words.CAPACITY_TYPE}": shown.capacity_type}
        tags |= {words.TAG_RESERVATION: shown.reservation} if shown.reservation else {}
        tags |= {f"{words.TEMPLATE_TAINT}{one.key}": f"{one.value}:{one.effect}" for one in shown.taints}
        instances = [
            {
                "InstanceId": one,
                "AvailabilityZone": shown.zone,
                "LifecycleState": "Terminating:Proceed" if state == "Terminating" else state,
                "HealthStatus": "Healthy",
                "ProtectedFromScaleIn": True,
            }
            for one, state in group.instances.items()
        ]
        return {
            "AutoScalingGroupName": shown.name,
            "MinSize": shown.minimum,
            "MaxSize": shown.maximum,
            "DesiredCapacity": group.desired,
            "DefaultCooldown": 300,
            "AvailabilityZones": [shown.zone],
            "HealthCheckType": "EC2",
            "CreatedTime": self.cloud.now,
            "Instances": instances,
            "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
        }

    def describe_scaling_activities(self, **asked: Any) -> dict[str, Any]:
        _check("autoscaling", "DescribeScalingActivities", asked)
        group = self._group(asked["AutoScalingGroupName"], "DescribeScalingActivities")
        newest = group.launches[::-1][: asked.get("MaxRecords", 100)]
        return {"Activities": [self._activity(group, one) for one in newest]}

    def _activity(self, group: Scaling, launch: Launch) -> dict[str, Any]:
        ended = {"StatusCode": "Failed", "StatusMessage": launch.refusal, "EndTime": launch.at, "Progress": 100}
        reason = f"  Status Reason: {launch.refusal}" if launch.at else ""
        return {
            "ActivityId": "a",
            "AutoScalingGroupName": group.shown.name,
            "Description": f"Launching a new EC2 instance{'.' if reason else ''}{reason}",
            "Cause": "a difference between desired and actual capacity",
            "StartTime": launch.began,
            **(ended if launch.at else {"StatusCode": "InProgress", "Progress": 30}),
        }

    def set_desired_capacity(self, **asked: Any) -> dict[str, Any]:
        _check("autoscaling", "SetDesiredCapacity", asked)
        self.cloud.touch(f"before resizing {asked['AutoScalingGroupName']}")
        group, wanted = self._group(asked["AutoScalingGroupName"], "SetDesiredCapacity"), asked["DesiredCapacity"]
        for bound, is_wrong in (("maximum", wanted > group.shown.maximum), ("minimum", wanted < group.shown.minimum)):
            if is_wrong:
                side = f"{'above max' if bound == 'maximum' else 'below min'} value {getattr(group.shown, bound)}"
                _refuse(
                    "SetDesiredCapacity", f"New SetDesiredCapacity value {wanted} is {side} for the AutoScalingGroup."
                )
        if wanted > group.desired:
            group.again_at = None
        group.desired = wanted
        self.cloud.watch()
        self.cloud.touch(f"after resizing {asked['AutoScalingGroupName']}")
        return {}

    def launch_instances(self, **asked: Any) -> dict[str, Any]:
        _check("autoscaling", "LaunchInstances", asked)
        name, count, token = asked["AutoScalingGroupName"], asked["RequestedCapacity"], asked["ClientToken"]
        self.cloud.touch(f"before launching in {name}")
        if not self.cloud.at_once:
            _refuse("LaunchInstances", "not authorized to perform: autoscaling:LaunchInstances", code="AccessDenied")
        group = self._group(name, "LaunchInstances")
        before, answer = self.cloud.tokens.get(token, (asked, None))
        if before != asked:
            _refuse("LaunchInstances", "other parameters", code="IdempotentParameterMismatch")
        if answer is None:
            if group.desired + count > group.shown.maximum:
                _refuse("LaunchInstances", f"{count} more would be above max value {group.shown.maximum}.")
            answer = self.cloud.launch(group, count)
            self.cloud.tokens[token] = (asked, answer)
        self.cloud.changes += bool(answer["Errors"])  # also told again, to another process
        self.cloud.watch()
        self.cloud.touch(f"after launching in {name}")
        return answer

    def terminate_instance_in_auto_scaling_group(self, **asked: Any) -> dict[str, Any]:
        operation = "TerminateInstanceInAutoScalingGroup"
        _check("autoscaling", operation, asked)
        self.cloud.touch(f"before ending {asked['InstanceId']}")
        group = next((one for one in self.cloud.groups.values() if asked["InstanceId"] in one.instances), None)
        if group is None:
            _refuse(operation, f"Instance Id not found - No managed instance found for {asked['InstanceId']}")
        if group.instances[asked["InstanceId"]].startswith("Terminating"):
            return {}
        if asked["ShouldDecrementDesiredCapacity"]:
            if group.desired - 1 < group.shown.minimum:
                _refuse(
                    operation,
                    "Currently, desiredSize equals minSize "
                    f"({group.shown.minimum}). Terminating instance without replacement will violate group's min size "
                    "constraint. Either set shouldDecrementDesiredCapacity flag to false or lower group's min size.",
                )
            group.desired -= 1
        group.instances[asked["InstanceId"]] = "Terminating:Wait"
        self.cloud.watch()
        self.cloud.touch(f"after ending {asked['InstanceId']}")
        return {}

    def complete_lifecycle_action(self, **asked: Any) -> dict[str, Any]:
        _check("autoscaling", "CompleteLifecycleAction", asked)
        self.cloud.touch(f"before letting go {asked['InstanceId']}")
        group = self._group(asked["AutoScalingGroupName"], "CompleteLifecycleAction")
        if group.instances.get(asked["InstanceId"]) != "Terminating:Wait":
            said = f"No active Lifecycle Action found with instance ID {asked['InstanceId']}"
            _refuse("CompleteLifecycleAction", said)
        group.instances[asked["InstanceId"]] = "Terminating"
        self.cloud.watch()
        self.cloud.touch(f"after letting go {asked['InstanceId']}")
        return {}


class _Ec2(_Client):
    """EC2's client."""

    def get_paginator(self, name: str) -> _Pages:
        return _Pages(getattr(self, name))

    def describe_instance_types(self, **asked: Any) -> dict[str, Any]:
        _check("ec2", "DescribeInstanceTypes", asked)
        return {"InstanceTypes": [_a_type(kind) for kind in asked["InstanceTypes"]]}

    def describe_capacity_reservations(self, **asked: Any) -> dict[str, Any]:
        """Of the Capacity Blocks that groups launch into, one group each."""
        _check("ec2", "DescribeCapacityReservations", asked)
        [key] = asked["CapacityReservationIds"]
        [group] = [one for one in self.cloud.groups.values() if one.shown.reservation == key]
        block, now = group.shown.block, self.cloud.now
        assert block is not None
        state = "scheduled" if now < block.starts else "active" if now < block.ends else "expired"
        told = {
            "State": state,
            "ReservationType": "capacity-block",
            "TotalInstanceCount": block.instances,
            "AvailableInstanceCount": block.instances - len(group.instances) if state == "active" else 0,
            "StartDate": block.starts,
            "EndDate": block.ends,
        }
        return {"CapacityReservations": [told]}

    def describe_instances(self, **asked: Any) -> dict[str, Any]:
        _check("ec2", "DescribeInstances", asked)
        known = self.cloud.launched
        if asked["Filters"][0]["Name"] == "instance-state-name":
            here = [(group, one) for group in self.cloud.groups.values() for one in group.instances]
            return {"Reservations": [{"Instances": [{"InstanceType": group.shown.instance_type} for group, _ in here]}]}
        ids = [one for one in asked["Filters"][0]["Values"] if one in known]
        return {"Reservations": [{"Instances": [{"InstanceId": one, "LaunchTime": known[one]} for one in ids]}]}


class _Quotas(_Client):
    """The client of Service Quotas."""

    def get_service_quota(self, **asked: Any) -> dict[str, Any]:
        _check("service-quotas", "GetServiceQuota", asked)
        return {"Quota": {"QuotaCode": asked["QuotaCode"], "QuotaName": "vCPUs", "Value": float(self.cloud.quota or 0)}}


def _a_type(kind: str) -> dict[str, Any]:
    """Its amounts do not matter: the groups' tags have the last word."""
    return {
        "InstanceType": kind,
        "ProcessorInfo": {"SupportedArchitectures": ["x86_64"]},
        "VCpuInfo": {"DefaultVCpus": 1},
        "MemoryInfo": {"SizeInMiB": 1024},
        "NetworkInfo": {"MaximumNetworkInterfaces": 15, "Ipv4AddressesPerInterface": 50},
    }


def _amount(name: str, amount: int) -> str:
    return f"{amount}m" if name == "cpu" else str(amount)


def _no_prices() -> NoReturn:
    raise AssertionError("every price is in the policy")


def _refuse(operation: str, message: str, *, code: str = "ValidationError") -> NoReturn:
    raise ClientError({"Error": {"Code": code, "Message": message}}, operation)


def _check(service: str, operation: str, asked: dict[str, Any]) -> None:
    """That botocore would send it: once for each operation and set of parameters."""
    shape = (service, operation, *sorted(asked))
    if shape not in _PARAMETERS_SEEN:
        model = _models(service).operation_model(operation).input_shape
        report = ParamValidator().validate(asked, model)
        assert not report.has_errors(), report.generate_report()
        _PARAMETERS_SEEN.add(shape)


@cache
def _models(service: str) -> Any:
    return botocore.session.get_session().get_service_model(service)
