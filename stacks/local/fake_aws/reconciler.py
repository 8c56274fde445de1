"""Time's hand on the Auto Scaling groups: brings each of them, step by step, to what is wanted of it."""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final

from moto.core.exceptions import ServiceException

from stacks.local.fake_aws.auto_scaling import ENDING, LAUNCHING, AutoScaling, Group, Member, given, now_in_words
from stacks.local.fake_aws.capacity_reservations import BLOCK
from stacks.local.fake_aws.instances import GROUP_TAG, NotLaunched, World, market_of

LAUNCH: Final = "Launching a new EC2 instance"
"""What a launch is described with: the instance's id follows once there is one."""
AT_ONCE: Final = 50
"""Instances that a group launches before it looks at the time again."""


class Scaling:
    """Time's hand: brings every group a step closer to what is wanted of it."""

    def __init__(self, world: World, regions: Callable[[], Iterable[AutoScaling]]) -> None:
        self._world = world
        self._regions = regions
        self._wake = threading.Event()
        self._stopping = False

    def changed(self) -> None:
        """Says that there may be something to do."""
        self._wake.set()

    def stop(self) -> None:
        """Ends :meth:`run`."""
        self._stopping = True
        self._wake.set()

    def run(self) -> None:
        """Runs until stopped. Between two steps the lock is free, so that calls are answered while a group grows."""
        while not self._stopping:
            self._wake.clear()
            due = self.settle()
            now = self._world.clock()
            self._wake.wait(None if due is None else max(due - now, 0.001))

    def settle(self) -> float | None:
        """Everything that can be done now; gives the time at which there is more to do."""
        while not self._stopping:
            with self._world.lock:
                self._advance()
            if not self._adjust_all():
                with self._world.lock:
                    return self._advance()
        return None

    def _advance(self) -> float | None:
        """Does what comes with time alone; returns when the next of it is due."""
        now = self._world.clock()
        dues: list[float | None] = []
        for region in self._regions():
            dues.append(region.ec2_backend.start_due(now))
            for group in list(region.autoscaling_groups.values()):
                dues.append(_advance_members(region, group, now))
                _fail_what_is_due(group, now)
                dues.extend(due for *_, due in group.trying)
                dues.append(group.retry_at if group.retry_at > now else None)
        return min((due for due in dues if due is not None), default=None)

    def _adjust_all(self) -> bool:
        """Every group closer to its desired capacity, instance by instance; whether anything changed."""
        changed = False
        with self._world.lock:
            groups = [(region, group) for region in self._regions() for group in region.autoscaling_groups.values()]
        for region, group in groups:
            for _ in range(AT_ONCE):
                with self._world.lock:
                    busy = _adjust(region, group, self._world.clock())
                if not busy or self._stopping:
                    break
                changed = True
                time.sleep(0.0005)  # a lock is not fair: let a waiting call have it
        return changed


def _advance_members(region: AutoScaling, group: Group, now: float) -> float | None:
    """What time alone does to a group's instances; gives the next such time."""
    dues: list[float] = []
    _finish(region, group, [member for member in group.instance_states if _is_over(member, now)])
    dues += [member.taken_back_at for member in group.instance_states if member.taken_back_at < math.inf]
    for member in list(group.instance_states):
        for hook in [hook for hook, deadline in member.waits.items() if deadline <= now]:
            del member.waits[hook]
            region.proceed(group, member, result=region.default_result(group, hook))
        if member.lifecycle_state == "Pending" and member.instance.state == "running":
            _arrive(region, group, member)
        dues.extend(member.waits.values())
        if member.lifecycle_state in ENDING:
            dues.append(member.ends_at)
    if group.status and not group.instance_states:
        region.forget(group.name)
    return min(dues, default=None)


def _arrive(region: AutoScaling, group: Group, member: Member) -> None:
    member.waits = region.deadlines(group, LAUNCHING)
    member.lifecycle_state = "Pending:Wait"
    region.proceed(group, member, result="CONTINUE")


def _is_over(member: Member, now: float) -> bool:
    return (member.lifecycle_state in ENDING and member.ends_at <= now) or member.taken_back_at <= now


def _finish(region: AutoScaling, group: Group, members: list[Member]) -> None:
    if not members:
        return
    group.instance_states = [member for member in group.instance_states if member not in members]
    region.ec2_backend.terminate_instances([member.instance.id for member in members])
    for member in members:
        if member.activity is not None:
            member.activity.end()


def _adjust(region: AutoScaling, group: Group, now: float) -> bool:
    """One instance more or less, where the group is not at its desired capacity."""
    if group.status:
        return False
    sick = next((m for m in group.instance_states if m.health_status == "Unhealthy" and m.is_coming_or_here), None)
    if sick is not None and not group.is_suspended("ReplaceUnhealthy"):
        region.end(group, sick, cause="in response to a user health-check")
        return True
    lacking = (group.desired_capacity or 0) - group.capacity()
    if lacking > 0 and not group.trying and now >= group.retry_at and not group.is_suspended("Launch"):
        return _launch(region, group, now)
    if lacking < 0 and not group.is_suspended("Terminate"):
        return _shrink(region, group, surplus=-lacking)
    return False


def _launch(region: AutoScaling, group: Group, now: float) -> bool:
    """One more instance: of the first type, in the emptiest zone, that EC2 grants."""
    have = group.capacity()
    cause = (
        f"{group.cause}  At {now_in_words()} an instance was started in response to a difference "
        f"between desired and actual capacity, increasing the capacity from {have} to {group.desired_capacity}."
    )
    for (instance_type, weight), (zone, subnet) in itertools.product(types(group), places(group)):
        try:
            member = launched(group, instance_type=instance_type, zone=zone, subnet=subnet)
        except ServiceException as refused:
            late = refused.late.total_seconds() if isinstance(refused, NotLaunched) else 0.0
            failed = region.note(group, LAUNCH, cause)
            group.trying.append((failed, f"{refused.message} Launching EC2 instance failed.", now + late))
            _fail_what_is_due(group, now)
            continue
        if weight is not None:
            member.weight, member.weighted_capacity = weight, str(weight)
        member.activity = region.note(group, f"Launching a new EC2 instance: {member.instance.id}", cause)
        group.instance_states.append(member)
        return True
    known = max((due for *_, due in group.trying), default=now)
    group.retry_at = known + region.world.retry_after.total_seconds()
    return False


def _fail_what_is_due(group: Group, now: float) -> None:
    """A refusal is known some time after the try."""
    for tried in [one for one in group.trying if one[2] <= now]:
        activity, message, _ = tried
        group.trying.remove(tried)
        activity.description = f"{LAUNCH}.  Status Reason: {message}"
        activity.end("Failed", message)


def launched(group: Group, *, instance_type: str, zone: str, subnet: str | None) -> Member:
    """An instance that EC2 has just launched for the group, which does not list it yet. Raises EC2's refusals."""
    template, data = group.ec2_launch_template, group.template_data()
    version = None if template is None else str(template.get_version(group.launch_template_version).number)
    reservation = group.ec2_backend.run_instances(
        group.image_id,
        1,
        data.get("UserData") if template else group.launch_config.user_data,
        group.security_groups,
        security_group_ids=_security_groups(data),
        instance_type=instance_type,
        is_instance_type_default=False,
        tags={"instance": {**group.get_propagated_tags(), **group.instance_tags, GROUP_TAG: group.name}},
        placement=zone,
        placement_group=group.placement_group,
        subnet_id=subnet,
        launch_config=group.launch_config,
        launch_template={"LaunchTemplateId": template.id, "Version": version} if template else None,
        associate_public_ip=group.launch_config.associate_public_ip_address if group.launch_config else None,
        lifecycle="spot" if next_is_spot(group) else BLOCK if market_of(data) == BLOCK else None,
    )
    instance = reservation.instances[0]
    instance.autoscaling_group = group  # type: ignore[attr-defined]  # moto hangs it there
    protected = group.new_instances_protected_from_scale_in
    member = Member(instance, lifecycle_state="Pending", protected_from_scale_in=protected)
    member.template_version = version
    left = group.ec2_backend.capacity_reservations.taken_back_in(instance.id)
    if left is not None:
        member.taken_back_at = group.ec2_backend.world.clock() + left.total_seconds()
    return member


def _security_groups(data: dict[str, Any]) -> list[str]:
    """The template's own, or those of its first interface: further interfaces are not simulated."""
    interfaces = data.get("NetworkInterfaces") or [{}]
    return list(
        data.get("SecurityGroupIds") or interfaces[0].get("Groups") or interfaces[0].get("SecurityGroupId") or []
    )


def types(group: Group) -> list[tuple[str, int | None]]:
    """Instance types in order of preference, each with its weight where the policy gives one."""
    policy = group.mixed_instances_policy or {}
    overrides = (policy.get("LaunchTemplate") or {}).get("Overrides") or []
    typed = [override for override in overrides if override.get("InstanceType")]
    if not typed:
        return [(group.instance_type, None)]
    return [
        (one["InstanceType"], int(one["WeightedCapacity"]) if one.get("WeightedCapacity") else None) for one in typed
    ]


def places(group: Group) -> list[tuple[str, str | None]]:
    """(zone, subnet), the zone with the fewest instances first."""
    subnets = [subnet for subnet in (group.vpc_zone_identifier or "").split(",") if subnet]
    places: list[tuple[str, str | None]] = [
        (str(group.ec2_backend.get_subnet(subnet).availability_zone), subnet) for subnet in subnets
    ] or [(zone, None) for zone in group.availability_zones]
    zones = Counter(member.availability_zone for member in group.instance_states if member.is_coming_or_here)
    return sorted(places, key=lambda place: zones[place[0]])


def next_is_spot(group: Group) -> bool:
    """Whether the group's next instance is to be spot capacity, by its launch template or its distribution."""
    if (group.template_data().get("InstanceMarketOptions") or {}).get("MarketType") == "spot":
        return True
    distribution = (group.mixed_instances_policy or {}).get("InstancesDistribution")
    if not distribution:
        return False
    base = int(distribution.get("OnDemandBaseCapacity") or 0)
    share = int(given(distribution.get("OnDemandPercentageAboveBaseCapacity"), 100)) / 100
    here = [member for member in group.instance_states if member.is_coming_or_here]
    on_demand = sum(member.weight for member in here if member.instance.lifecycle != "spot")
    wanted = base + math.ceil(max(group.capacity() + 1 - base, 0) * share)
    return on_demand >= max(wanted, min(base, group.capacity() + 1))


def _shrink(region: AutoScaling, group: Group, *, surplus: int) -> bool:
    """End the oldest unprotected instances of the fullest zones, as long as the group does not fall short by it."""
    here = [member for member in group.instance_states if member.is_coming_or_here]
    zones = Counter(member.availability_zone for member in here)
    free = [member for member in here if not member.protected_from_scale_in]
    desired = group.desired_capacity or 0
    cause = f"in response to a difference between desired and actual capacity, shrinking the capacity to {desired}"
    ended = False
    while free := [member for member in free if member.weight <= surplus and member.is_coming_or_here]:
        member = max(free, key=lambda member: zones[member.availability_zone])  # of several the first, the oldest
        region.end(group, member, cause=cause)
        zones[member.availability_zone] -= 1
        surplus -= member.weight
        ended = True
    return ended
