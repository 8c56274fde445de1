"""Time's hand on the Auto Scaling groups: brings each of them, step by step, to what is wanted of it."""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Iterable

from moto.core.exceptions import ServiceException

from stacks.local.auto_scaling import LAUNCHING, AutoScaling, Group, Member, given, now_in_words
from stacks.local.instances import GROUP_TAG, World


class Scaling:
    """Time's hand: brings every group a step closer to what is wanted of it."""

    def __init__(self, world: World, regions: Callable[[], Iterable[AutoScaling]]) -> None:
        self._world = world
        self._regions = regions
        self._wake = threading.Event()
        self._stopping = False

    def changed(self) -> None:
        """There may be something to do."""
        self._wake.set()

    def stop(self) -> None:
        """End :meth:`run`."""
        self._stopping = True
        self._wake.set()

    def run(self) -> None:
        """Until stopped. Between two steps the lock is free, so that calls are answered while a group grows."""
        while not self._stopping:
            self._wake.clear()
            due = self.settle()
            now = self._world.clock()
            self._wake.wait(None if due is None else max(due - now, 0.001))

    def settle(self) -> float | None:
        """Everything that can be done now; gives the time at which there is more to do."""
        while not self._stopping:
            with self._world.lock:
                busy, due = self._step()
            if not busy:
                return due
            threading.Event().wait(0.0005)  # an RLock is not fair: let a waiting call have it
        return None

    def _step(self) -> tuple[bool, float | None]:
        now = self._world.clock()
        dues: list[float | None] = []
        for region in list(self._regions()):
            dues.append(region.ec2_backend.start_due(now))
            for group in list(region.autoscaling_groups.values()):
                dues.append(_advance_members(region, group, now))
                if _adjust(region, group, now):
                    return True, None
                if group.retry_at > now:
                    dues.append(group.retry_at)
        return False, min((due for due in dues if due is not None), default=None)


def _advance_members(region: AutoScaling, group: Group, now: float) -> float | None:
    """What time alone does to a group's instances; gives the next such time."""
    dues: list[float] = []
    for member in list(group.instance_states):
        for hook in [hook for hook, deadline in member.waits.items() if deadline <= now]:
            del member.waits[hook]
            region.proceed(group, member, result=region.default_result(group, hook))
        if member.lifecycle_state == "Pending" and member.instance.state == "running":
            _arrive(region, group, member)
        if member.lifecycle_state in ("Terminating", "Terminating:Proceed") and member.ends_at <= now:
            _finish(region, group, member)
            continue
        dues.extend(member.waits.values())
        if member.lifecycle_state in ("Terminating", "Terminating:Proceed"):
            dues.append(member.ends_at)
    if group.status and not group.instance_states:
        region.autoscaling_groups.pop(group.name, None)
    return min(dues, default=None)


def _arrive(region: AutoScaling, group: Group, member: Member) -> None:
    member.waits = region.deadlines(group, LAUNCHING)
    member.lifecycle_state = "Pending:Wait"
    region.proceed(group, member, result="CONTINUE")


def _finish(region: AutoScaling, group: Group, member: Member) -> None:
    group.instance_states.remove(member)
    region.ec2_backend.terminate_instances([member.instance.id])
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
    if lacking > 0 and now >= group.retry_at and not group.is_suspended("Launch"):
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
    for (instance_type, weight), (zone, subnet) in itertools.product(_types(group), _places(group)):
        try:
            member = _launched(group, instance_type=instance_type, zone=zone, subnet=subnet)
        except ServiceException as refused:
            message = f"{refused.message} Launching EC2 instance failed."
            failed = region.note(group, f"Launching a new EC2 instance.  Status Reason: {message}", cause)
            failed.end("Failed", message)
            continue
        if weight is not None:
            member.weight, member.weighted_capacity = weight, str(weight)
        member.activity = region.note(group, f"Launching a new EC2 instance: {member.instance.id}", cause)
        group.instance_states.append(member)
        return True
    group.retry_at = now + region.world.retry_after.total_seconds()
    return False


def _launched(group: Group, *, instance_type: str, zone: str, subnet: str | None) -> Member:
    template, data = group.ec2_launch_template, group.template_data()
    version = None if template is None else str(template.get_version(group.launch_template_version).number)
    spot = _next_is_spot(group) or (data.get("InstanceMarketOptions") or {}).get("MarketType") == "spot"
    reservation = group.ec2_backend.run_instances(
        group.image_id,
        1,
        data.get("UserData") if template else group.launch_config.user_data,
        group.security_groups,
        security_group_ids=list(data.get("SecurityGroupIds") or []),
        instance_type=instance_type,
        is_instance_type_default=False,
        tags={"instance": {**group.get_propagated_tags(), **group.instance_tags, GROUP_TAG: group.name}},
        placement=zone,
        subnet_id=subnet,
        launch_config=group.launch_config,
        launch_template={"LaunchTemplateId": template.id, "Version": version} if template else None,
        associate_public_ip=group.launch_config.associate_public_ip_address if group.launch_config else None,
        lifecycle="spot" if spot else None,
    )
    instance = reservation.instances[0]
    instance.autoscaling_group = group  # type: ignore[attr-defined]  # moto hangs it there
    protected = group.new_instances_protected_from_scale_in
    member = Member(instance, lifecycle_state="Pending", protected_from_scale_in=protected)
    member.template_version = version
    return member


def _types(group: Group) -> list[tuple[str, int | None]]:
    """Instance types in order of preference, each with its weight where the policy gives one."""
    policy = group.mixed_instances_policy or {}
    overrides = (policy.get("LaunchTemplate") or {}).get("Overrides") or []
    typed = [override for override in overrides if override.get("InstanceType")]
    if not typed:
        return [(group.instance_type, None)]
    return [
        (one["InstanceType"], int(one["WeightedCapacity"]) if one.get("WeightedCapacity") else None) for one in typed
    ]


def _places(group: Group) -> list[tuple[str, str | None]]:
    """(zone, subnet), the zone with the fewest instances first."""
    subnets = [subnet for subnet in (group.vpc_zone_identifier or "").split(",") if subnet]
    places: list[tuple[str, str | None]] = [
        (str(group.ec2_backend.get_subnet(subnet).availability_zone), subnet) for subnet in subnets
    ] or [(zone, None) for zone in group.availability_zones]
    zones = [member.availability_zone for member in group.instance_states if member.is_coming_or_here]
    return sorted(places, key=lambda place: zones.count(place[0]))


def _next_is_spot(group: Group) -> bool:
    distribution = (group.mixed_instances_policy or {}).get("InstancesDistribution") or {}
    base = int(distribution.get("OnDemandBaseCapacity") or 0)
    share = int(given(distribution.get("OnDemandPercentageAboveBaseCapacity"), 100)) / 100
    here = [member for member in group.instance_states if member.is_coming_or_here]
    on_demand = sum(member.weight for member in here if member.instance.lifecycle != "spot")
    wanted = base + math.ceil(max(group.capacity() + 1 - base, 0) * share)
    return on_demand >= max(wanted, min(base, group.capacity() + 1))


def _shrink(region: AutoScaling, group: Group, *, surplus: int) -> bool:
    """End the oldest unprotected instance of the fullest zone, if the group does not fall short by it."""
    here = [member for member in group.instance_states if member.is_coming_or_here]
    zones = [member.availability_zone for member in here]
    free = [member for member in here if not member.protected_from_scale_in and member.weight <= surplus]
    if not free:
        return False
    fullest = max(zones.count(member.availability_zone) for member in free)
    member = next(member for member in free if zones.count(member.availability_zone) == fullest)
    desired = group.desired_capacity or 0
    cause = f"in response to a difference between desired and actual capacity, shrinking the capacity to {desired}"
    region.end(group, member, cause=cause)
    return True
