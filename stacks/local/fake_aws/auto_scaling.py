"""moto's Auto Scaling with its behaviour put in place: groups that live in time, as AWS's do.

moto launches and ends instances inside the call, accepts sizes that contradict each other, knows one zone per group, no
activities and no waiting hooks. Here a call only writes down what is wanted, and ``reconciler.py`` brings it about:

- refusals in AWS's words: sizes out of bounds, names taken, groups in use, instances that are not the group's;
- instances go ``Pending``, ``InService``, ``Terminating``, balanced over the group's zones;
- scale-in takes from the fullest zone, the oldest first, and never a protected instance;
- lifecycle hooks hold an instance until they are completed or their heartbeat runs out;
- a launch that EC2 refuses leaves the desired capacity as it is, writes a failed activity, and is tried again;
- overrides and weights of a mixed instances policy, and its share of spot;
- suspended processes do nothing; an unhealthy instance is replaced.

Left out: cooldowns, scaling policies by metrics, warm pools, instance refresh, instance maintenance policies.
"""

from __future__ import annotations

import copy
import math
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from moto.autoscaling.exceptions import AutoscalingClientError
from moto.autoscaling.models import AutoScalingBackend, FakeAutoScalingGroup, InstanceState, LifecycleHook
from moto.ec2.models.instances import Instance

from stacks.local.fake_aws.instances import Ec2, World

LAUNCHING: Final = "autoscaling:EC2_INSTANCE_LAUNCHING"
TERMINATING: Final = "autoscaling:EC2_INSTANCE_TERMINATING"
_KEPT: Final = 5000
_COMING: Final = ("Pending", "Pending:Wait", "Pending:Proceed")
HERE: Final = (*_COMING, "InService")
ENDING: Final = ("Terminating", "Terminating:Proceed")
_GOING: Final = (*ENDING, "Terminating:Wait")


@dataclass
class Activity:
    """One line of a group's history, with the fields that the API shows."""

    auto_scaling_group_name: str
    description: str
    cause: str
    status_code: str = "InProgress"
    status_message: str | None = None
    progress: int = 50
    details: str = "{}"
    start_time: datetime = field(default_factory=lambda: datetime.now(UTC))
    end_time: datetime | None = None
    activity_id: str = field(default_factory=lambda: str(uuid.uuid4()))

    def end(self, status: str = "Successful", message: str | None = None) -> None:
        """Ends the activity."""
        self.status_code, self.status_message = status, message
        self.progress, self.end_time = 100, datetime.now(UTC)


class Member(InstanceState):
    """One instance in a group."""

    def __init__(self, instance: Instance, **kwargs: Any) -> None:
        super().__init__(instance, **kwargs)
        self.weight = 1
        self.weighted_capacity: str | None = None
        self.activity: Activity | None = None
        self.waits: dict[str, float] = {}
        """Hook name -> when its heartbeat runs out."""
        self.ends_at = math.inf
        self.taken_back_at = math.inf
        """When EC2 ends it by itself, whatever the group wants."""
        self.template_version: str | None = None

    @property
    def launch_template(self) -> dict[str, Any] | None:
        """The template and version that it was launched with, not the group's of today."""
        shown: dict[str, Any] | None = super().launch_template
        return shown and shown | {"Version": self.template_version or shown["Version"]}

    @property
    def is_coming_or_here(self) -> bool:
        """It counts towards the desired capacity."""
        return self.lifecycle_state in HERE


class Group(FakeAutoScalingGroup):
    """One Auto Scaling group."""

    autoscaling_backend: AutoScaling
    ec2_backend: Ec2
    instance_states: list[Member]  # type: ignore[assignment]  # `installed` sees to it

    def __init__(self, **kwargs: Any) -> None:
        self.retry_at = 0.0
        self.trying: list[tuple[Activity, str, float]] = []
        """Launches that will fail: what is shown of each, why, and when that is known."""
        self.cause = ""
        self.status: str | None = None
        super().__init__(**kwargs)

    def set_desired_capacity(self, new_capacity: int | None) -> None:
        """Write down what is wanted."""
        before = getattr(self, "desired_capacity", 0)
        self.desired_capacity = self.min_size if new_capacity is None else new_capacity
        self.cause = (
            f"At {now_in_words()} a user request update of AutoScalingGroup constraints to min: {self.min_size}, "
            f"max: {self.max_size}, desired: {self.desired_capacity} changing the desired capacity "
            f"from {before} to {self.desired_capacity}."
        )
        self.retry_at = 0.0
        self.autoscaling_backend.world.changed()

    def update(self, **kwargs: Any) -> None:  # type: ignore[override]  # passed on as they come
        """Updates as AWS: bounds are checked, the desired capacity is pulled within them, what is not named stays."""
        minimum, maximum = given(kwargs["min_size"], self.min_size), given(kwargs["max_size"], self.max_size)
        wanted = kwargs["desired_capacity"]
        check_sizes(minimum=minimum, maximum=maximum, desired=wanted)
        if wanted is None:
            wanted = min(max(self.desired_capacity or 0, minimum), maximum)
        if not any(kwargs.get(key) for key in ("mixed_instances_policy", "launch_template", "launch_config_name")):
            kwargs["mixed_instances_policy"] = self._policy_as_asked()
        super().update(**{**kwargs, "desired_capacity": wanted})

    def replace_autoscaling_group_instances(self, count_needed: int, propagated_tags: dict[str, str]) -> None:
        """Moto's way to launch at once: not used."""

    def _policy_as_asked(self) -> dict[str, Any] | None:
        """The policy names its template by id and by name once moto has it; in a request only one may be there."""
        policy = copy.deepcopy(self.mixed_instances_policy)
        if policy:
            policy["LaunchTemplate"]["LaunchTemplateSpecification"].pop("LaunchTemplateName", None)
        return policy

    def is_suspended(self, process: str) -> bool:
        """Whether this process of the group stands still."""
        return any(suspended["ProcessName"] == process for suspended in self.suspended_processes)

    def capacity(self) -> int:
        """What counts towards the desired capacity."""
        return sum(member.weight for member in self.instance_states if member.is_coming_or_here)

    def template_data(self) -> dict[str, Any]:
        """What the group's launch template says, in the version that the group names."""
        if self.ec2_launch_template is None:
            return {}
        return dict(self.ec2_launch_template.get_version(self.launch_template_version).data)


class AutoScaling(AutoScalingBackend):
    """Auto Scaling of one region."""

    world: World
    ec2_backend: Ec2
    autoscaling_groups: dict[str, Group]  # type: ignore[assignment]  # `installed` sees to it

    def __init__(self, region_name: str, account_id: str) -> None:
        super().__init__(region_name, account_id)
        self.activities: list[Activity] = []
        """Newest last."""
        self.launch_tokens: dict[str, tuple[float, Any, dict[str, Any]]] = {}
        """``ClientToken`` of ``LaunchInstances`` -> when it came, what was asked for and answered."""

    def group(self, name: str) -> Group:
        """The group of that name, or AWS's refusal."""
        group = self.autoscaling_groups.get(name)
        if group is None:
            raise refused(f"AutoScalingGroup name not found - AutoScalingGroup '{name}' not found")
        return group

    def member(self, instance_id: str) -> tuple[Group, Member]:
        """The group's view of an instance, or AWS's refusal."""
        for group in self.autoscaling_groups.values():
            for member in group.instance_states:
                if member.instance.id == instance_id:
                    return group, member
        raise refused(f"Instance Id not found - No managed instance found for instance ID: {instance_id}")

    def create_auto_scaling_group(self, **kwargs: Any) -> Group:  # type: ignore[override]  # passed on as they come
        """Creates a group as moto, with the name free and the sizes consistent."""
        name = kwargs["name"]
        if name in self.autoscaling_groups:
            message = f"AutoScalingGroup by this name already exists - A group with the name {name} already exists"
            raise AutoscalingClientError("AlreadyExists", message)
        sizes = {key: None if kwargs[key] is None else int(kwargs[key]) for key in ("min_size", "max_size")}
        check_sizes(minimum=sizes["min_size"], maximum=sizes["max_size"], desired=kwargs["desired_capacity"])
        group: Group = super().create_auto_scaling_group(**kwargs)  # type: ignore[assignment]  # `installed` sees to it
        return group

    def set_desired_capacity(self, group_name: str, desired_capacity: int | None) -> None:
        """Sets the capacity within the group's bounds; refuses what is beyond them."""
        group, wanted = self.group(group_name), int(desired_capacity or 0)
        if wanted > (group.max_size or 0):
            raise refused(
                f"New SetDesiredCapacity value {wanted} is above max value {group.max_size} for the AutoScalingGroup."
            )
        if wanted < (group.min_size or 0):
            raise refused(
                f"New SetDesiredCapacity value {wanted} is below min value {group.min_size} for the AutoScalingGroup."
            )
        group.set_desired_capacity(wanted)

    def delete_auto_scaling_group(self, group_name: str, *, force: bool = False) -> None:
        """Deletes a group at once when it is empty; with ``force`` its instances end first."""
        group = self.group(group_name)
        if group.instance_states and not force:
            going = all(member.lifecycle_state in _GOING for member in group.instance_states)
            raise AutoscalingClientError(*(_ACTIVITY_IN_PROGRESS if going else _IN_USE))
        if not group.instance_states:
            self.forget(group_name)
            return
        group.min_size = group.max_size = 0
        group.set_desired_capacity(0)
        group.status = "Delete in progress"
        for member in group.instance_states:
            self.end(group, member, cause="in response to a user request", hooks=False)

    def forget(self, group_name: str) -> None:
        """A group is gone, and its hooks with it."""
        self.autoscaling_groups.pop(group_name, None)
        for key in [key for key, hook in self.lifecycle_hooks.items() if hook.auto_scaling_group_name == group_name]:
            del self.lifecycle_hooks[key]

    def terminate_instance(self, instance_id: str, should_decrement: bool) -> Activity:  # type: ignore[override]  # noqa: FBT001 - moto's signature
        """End one instance of a group, with or without a successor."""
        group, member = self.member(instance_id)
        desired = group.desired_capacity or 0
        cause = "in response to a user request"
        if should_decrement and member.is_coming_or_here:
            if desired - 1 < (group.min_size or 0):
                raise refused(_BELOW_MINIMUM.format(minimum=group.min_size))
            group.set_desired_capacity(desired - 1)
            cause += f", shrinking the capacity from {desired} to {desired - 1}"
        return self.end(group, member, cause=cause)

    def notify_terminate_instances(self, instance_ids: list[str]) -> None:
        """EC2 ended instances on its own or a user's account: they leave their groups, which make up for them."""
        for group in self.autoscaling_groups.values():
            for member in [member for member in group.instance_states if member.instance.id in instance_ids]:
                group.instance_states.remove(member)
                activity = member.activity or self.note(group, f"Terminating EC2 instance: {member.instance.id}", _LOST)
                activity.end()
        self.world.changed()

    def note(self, group: Group, description: str, cause: str) -> Activity:
        """A new line of history."""
        activity = Activity(auto_scaling_group_name=group.name, description=description, cause=cause)
        self.activities.append(activity)
        del self.activities[:-_KEPT]
        return activity

    def end(self, group: Group, member: Member, *, cause: str, hooks: bool = True) -> Activity:
        """Begin to end an instance: first its hooks, then itself."""
        if member.lifecycle_state in _GOING and member.activity is not None and hooks:
            return member.activity
        if member.activity is not None and member.activity.end_time is None:
            member.activity.end("Cancelled")
        what = f"instance {member.instance.id} was taken out of service {cause}."
        member.activity = self.note(
            group, f"Terminating EC2 instance: {member.instance.id}", f"At {now_in_words()} {what}"
        )
        member.lifecycle_state = "Terminating"
        member.waits = self.deadlines(group, TERMINATING) if hooks else {}
        if member.waits:
            member.lifecycle_state = "Terminating:Wait"
        member.ends_at = self.world.clock() + self.world.end_delay.total_seconds()
        self.world.changed()
        return member.activity

    def deadlines(self, group: Group, transition: str) -> dict[str, float]:
        """Hooks of the group for this transition, and when each runs out."""
        now = self.world.clock()
        return {hook.name: now + hook.heartbeat_timeout for hook in self._hooks(group, transition)}

    def complete_lifecycle_action(self, *, hook: str, group: str, result: str, instance: str) -> None:
        """The owner of a hook is done with an instance."""
        found, member = self._waiting(hook=hook, group=group, instance=instance)
        member.waits.pop(hook)
        if result == "ABANDON":
            member.waits.clear()
        self.proceed(found, member, result=result)

    def record_heartbeat(self, *, hook: str, group: str, instance: str) -> None:
        """The owner of a hook needs longer."""
        _, member = self._waiting(hook=hook, group=group, instance=instance)
        member.waits[hook] = self.world.clock() + self.lifecycle_hooks[f"{group}_{hook}"].heartbeat_timeout
        self.world.changed()

    def proceed(self, group: Group, member: Member, *, result: str) -> None:
        """Go on with an instance once no hook holds it any more."""
        if member.waits:
            return
        if member.lifecycle_state == "Terminating:Wait":
            member.lifecycle_state = "Terminating:Proceed"
        elif result == "ABANDON":
            self.end(group, member, cause="because a lifecycle hook was abandoned", hooks=False)
        else:
            member.lifecycle_state = "InService"
            if member.activity is not None:
                member.activity.end()
        self.world.changed()

    def default_result(self, group: Group, hook: str) -> str:
        """What a hook says when its heartbeat runs out."""
        found = self.lifecycle_hooks.get(f"{group.name}_{hook}")
        return str(found.default_result) if found else "ABANDON"

    def _waiting(self, *, hook: str, group: str, instance: str) -> tuple[Group, Member]:
        for member in self.group(group).instance_states:
            if member.instance.id == instance and hook in member.waits:
                return self.group(group), member
        raise refused(f"No active Lifecycle Action found with instance ID {instance}")

    def _hooks(self, group: Group, transition: str) -> list[LifecycleHook]:
        return [
            hook
            for hook in self.lifecycle_hooks.values()
            if hook.auto_scaling_group_name == group.name and hook.lifecycle_transition == transition
        ]


def check_sizes(*, minimum: int | None, maximum: int | None, desired: int | None) -> None:
    """AWS's refusals of sizes that contradict each other."""
    low, high = minimum or 0, maximum or 0
    if low > high:
        raise refused(f"Max bound, {high}, must be greater than or equal to min bound, {low}")
    if desired is not None and not low <= desired <= high:
        raise refused(f"Desired capacity:{desired} must be between the specified min size:{low} and max size:{high}")


def refused(message: str) -> AutoscalingClientError:
    """A ``ValidationError``, which is what most of its refusals are called."""
    return AutoscalingClientError("ValidationError", message)


def given(value: Any, otherwise: Any) -> Any:
    """The value, where there is one."""
    return otherwise if value is None else value


def now_in_words() -> str:
    """Returns the time as causes of activities write it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


_IN_USE: Final = (
    "ResourceInUse",
    (
        "You cannot delete an AutoScalingGroup while there are instances or pending Spot instance request(s) "
        "still in the group."
    ),
)
_ACTIVITY_IN_PROGRESS: Final = (
    "ScalingActivityInProgress",
    "You cannot delete an AutoScalingGroup while there are scaling activities in progress for that group.",
)
_BELOW_MINIMUM: Final = (
    "Currently, desiredSize equals minSize ({minimum}). Terminating instance without replacement will violate group's "
    "min size constraint. Either set shouldDecrementDesiredCapacity flag to false or lower group's min size."
)
_LOST: Final = (
    "An instance was taken out of service in response to an EC2 health check "
    "indicating it has been terminated or stopped."
)
