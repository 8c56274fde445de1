"""From what AWS says of Auto Scaling groups to the model's: prices, quotas, launch times and refusals are asked for."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from autoscaler.cloud.clients import Clients
from autoscaler.cloud.errors import one_failure_alone
from autoscaler.cloud.launches import REFUSALS_LAST, being_tried, refusals
from autoscaler.cloud.node_templates import NodeTemplate
from autoscaler.cloud.prices import Prices
from autoscaler.cloud.purchases import HELD
from autoscaler.cloud.quotas import Draw, Quota, Quotas
from autoscaler.cloud.reservations import Reservations
from autoscaler.config.policy import Policy
from autoscaler.model import labels as words
from autoscaler.model.cluster import Group, Instance, Refusal
from autoscaler.model.instance_types import InstanceType, one_quota, read_instance_type

if TYPE_CHECKING:
    from types_boto3_autoscaling.type_defs import AutoScalingGroupTypeDef

_WARNINGS_KEPT: Final = 1000
"""Lines that are not told again: what AWS says in them may never be the same twice."""
_STATES: Final = {"InService": "in-service", "Terminating": "terminating", "Pending": "pending"}
_DOWN: Final = "Terminating:Proceed"


class GroupReader:
    """Reads groups, and remembers what need not be asked for again."""

    def __init__(
        self, clients: Clients, region: str, *, warn: Callable[[str], None], now: Callable[[], datetime]
    ) -> None:
        """``warn`` is told of each thing that a person should mend."""
        self._clients = clients
        self._region = region
        self._warn = warn
        self._now = now
        self._warned: deque[str] = deque(maxlen=_WARNINGS_KEPT)
        self._types: dict[str, InstanceType] = {}
        self._prices = Prices(clients, region, warn=self.warn_once)
        self._launched: dict[str, datetime] = {}
        self._refusals: dict[str, tuple[Refusal, ...]] = {}
        self._answered: dict[str, tuple[Refusal, ...]] = {}
        """Refusals of ``LaunchInstances``, which a group's history need not tell; newest first."""
        self.quotas = Quotas(ec2=clients.ec2, quotas=clients.quotas, warn=warn) if clients.quotas else None
        self.reservations = Reservations(clients.ec2, warn=self.warn_once)
        self._at_rest: dict[str, frozenset[str]] = {}
        """Groups that had what they desire, of which no launch was being tried -> the instances that they had then: as
        long as they have no other, their history need not be read."""

    def warn_once(self, line: str) -> None:
        """Tells a person, unless that was told before."""
        if line not in self._warned:
            self._warned.append(line)
            self._warn(line)

    def forget_others(self, raws: Iterable[AutoScalingGroupTypeDef]) -> None:
        """Forgets instances that are in none of these groups, which are all."""
        here = _instances_of(raws)
        self._launched = {one: at for one, at in self._launched.items() if one in here}

    def is_written(self, group: str) -> None:
        """Has its history read again: it is about to be resized."""
        self._at_rest.pop(group, None)

    def was_answered(self, group: str, refused: tuple[Refusal, ...]) -> None:
        """Remembers what a purchase was refused at once."""
        young = [refusal for refusal in self._answered.get(group, ()) if refusal.at > self._now() - REFUSALS_LAST]
        self._answered[group] = (*refused, *young)

    def draw_of(self, raw: AutoScalingGroupTypeDef, policy: Policy) -> Draw:
        """What a node of the group draws on."""
        template = NodeTemplate.of(raw, policy)
        entry = template.entry
        if entry is None:
            return Draw(0, None)
        vcpus = max((self._types[one].vcpus for one in entry.types if one in self._types), default=0)
        code = template.reservation or one_quota(entry.types, spot=entry.capacity_type == "spot")
        return Draw(vcpus, self._quota(code), is_reservation=bool(template.reservation))

    def took(self, draw: Draw, nodes: int) -> None:
        """Counts so many nodes as bought, of what they draw on."""
        for known in (self.quotas, self.reservations):
            if known is not None and draw.quota is not None:
                known.took(draw.code, draw.vcpus * nodes)

    def read(self, raws: list[AutoScalingGroupTypeDef], policy: Policy) -> Iterator[Group]:
        """Yields the groups; one that cannot be read is told and left out. Raises botocore's errors."""
        templates = [NodeTemplate.of(raw, policy) for raw in raws]
        self._learn_types({kind for template in templates for kind in template.types})
        self._learn_launch_times(raws)
        self._learn_quotas(templates)
        self._learn_reservations(templates)
        for template in templates:
            try:
                yield self._group_from(template)
            except (KeyError, ValueError, IndexError) as error:
                self.warn_once(f"the group {template.raw['AutoScalingGroupName']} is left out: {error}")

    def _group_from(self, template: NodeTemplate) -> Group:
        raw, entry, types, capacity = template.raw, template.entry, template.types, template.capacity_type
        name, zone, reservation = raw["AutoScalingGroupName"], raw["AvailabilityZones"][0], template.reservation
        kind = " or ".join(types)
        stands = entry is not None and (entry.types, entry.capacity_reservation or "") == (types, reservation)
        price = self._prices.of_group(name, types, zone=zone, capacity=capacity, entry=entry, stands=stands)
        if price is None:
            self.warn_once(
                f"the price of {kind} ({capacity}) in {zone} is not known, so {name} is not grown: "
                "write usd_per_hour into its entry of the policy"
            )
        if entry is None:
            self.warn_once(
                f"the group {name} is tagged for this cluster, but the policy has no entry "
                f"{template.group!r}: it is not grown"
            )
        desired = raw["DesiredCapacity"]
        instances = tuple(self._instance(one) for one in raw.get("Instances", []))
        refused, launching = self._launches(name, instances, desired)
        return Group(
            name=name,
            entry=entry.name if entry else template.group or name,
            instance_type=kind,
            zone=zone,
            allocatable=template.allocatable(self._types),
            usd_per_hour=price or 0.0,
            capacity_type=capacity,
            labels={words.REGION: self._region, **template.labels(self._types)},
            taints=template.taints(),
            minimum=raw["MinSize"],
            maximum=raw["MaxSize"] if price is not None and entry is not None else desired,
            desired=desired,
            instances=instances,
            refusals=refused,
            launching=launching,
            vcpus=max((self._types[one].vcpus for one in types if one in self._types), default=0),
            quota=(code := reservation or one_quota(types, spot=capacity == "spot")),
            quota_left=quota.left if (quota := self._quota(code)) is not None else None,
            mixed=len(types) > 1,
            max_size=raw["MaxSize"],
            built_from=template.built_from,
            reservation=reservation,
            block=self.reservations.block(reservation) if capacity == "capacity-block" else None,
        )

    def _instance(self, raw: Any) -> Instance:
        state = next(
            (ours for theirs, ours in _STATES.items() if raw["LifecycleState"].startswith(theirs)), "in-service"
        )
        return Instance(
            id=raw["InstanceId"],
            zone=raw["AvailabilityZone"],
            launched=self._launched.get(raw["InstanceId"]),
            state=state,  # type: ignore[arg-type]
            held=raw["LifecycleState"] == HELD,
            is_down=raw["LifecycleState"] == _DOWN,
        )

    def _learn_quotas(self, templates: Iterable[NodeTemplate]) -> None:
        if self.quotas is None:
            return
        ours, coming = Counter[str](), Counter[str]()
        for template in templates:
            if (entry := template.entry) is not None:
                fewest = min((self._types[one].vcpus for one in entry.types if one in self._types), default=0)
                vcpus = 0 if template.reservation else fewest  # a reservation draws on a quota from when it is made
                code = one_quota(entry.types, spot=entry.capacity_type == "spot")
                ours[code] += vcpus * template.wanted
                coming[code] += vcpus * template.coming
        with one_failure_alone(self.warn_once, "what its quotas leave, so that EC2 may refuse what they do not"):
            self.quotas.read(ours.keys() - {""}, self._learn_types, coming)
        for code, in_use in ours.items():
            self.quotas.holds(code, in_use)

    def _learn_reservations(self, templates: Iterable[NodeTemplate]) -> None:
        vcpus_of, blocks = {}, set()
        ours, coming = Counter[str](), Counter[str]()
        for template in templates:
            if reservation := template.reservation:
                (kind, *_) = template.types
                vcpus_of[reservation] = self._types[kind].vcpus if kind in self._types else 0
                ours[reservation] += vcpus_of[reservation] * template.wanted
                coming[reservation] += vcpus_of[reservation] * template.coming
                blocks |= {reservation} if template.capacity_type == "capacity-block" else set()
        self.reservations.read(vcpus_of, coming, blocks=blocks)
        for one, vcpus in ours.items():
            self.reservations.holds(one, vcpus)

    def _quota(self, code: str) -> Quota | None:
        """Returns the quota of the account, or what a Capacity Reservation has; ``None`` where it is not known."""
        return self.reservations.of(code) or (self.quotas.of(code) if self.quotas is not None else None)

    def _learn_types(self, kinds: set[str]) -> dict[str, InstanceType]:
        """Ask once for each type. Gives all that are known."""
        unknown = sorted(kinds - self._types.keys() - {""})
        for start in range(0, len(unknown), 100):
            with one_failure_alone(self.warn_once, "what EC2 says of the instance types"):
                pages = self._clients.ec2.get_paginator("describe_instance_types").paginate(
                    InstanceTypes=unknown[start : start + 100]  # type: ignore[arg-type]
                )
                for page in pages:
                    for described in page["InstanceTypes"]:
                        self._types[str(described["InstanceType"])] = read_instance_type(described)
        return self._types

    def _learn_launch_times(self, raws: Iterable[AutoScalingGroupTypeDef]) -> None:
        """Auto Scaling does not say when an instance was launched; EC2 does."""
        unknown = sorted(_instances_of(raws) - self._launched.keys())
        for start in range(0, len(unknown), 100):
            with one_failure_alone(self.warn_once, "when instances were launched"):
                pages = self._clients.ec2.get_paginator("describe_instances").paginate(
                    Filters=[{"Name": "instance-id", "Values": unknown[start : start + 100]}]
                )
                for page in pages:
                    for reservation in page["Reservations"]:
                        for instance in reservation["Instances"]:
                            self._launched[instance["InstanceId"]] = instance["LaunchTime"].astimezone(UTC)

    def _launches(self, name: str, instances: tuple[Instance, ...], desired: int) -> tuple[tuple[Refusal, ...], int]:
        """Failed launches of the last hour, newest first; and how many are being tried, without an instance yet.

        Read only where something may be missing or on its way, or was since it was last read: at the first look, after
        the group was resized, and where an instance has come. What was refused is remembered when nothing is missing
        any more: the zone is as full as it was.
        """
        tried, here, known = 0, frozenset(one.id for one in instances), self._at_rest.get(name)
        if desired > len(instances) or known is None or not here <= known:
            with one_failure_alone(self.warn_once, f"why {name} does not grow"):
                asked = self._clients.autoscaling.describe_scaling_activities(AutoScalingGroupName=name, MaxRecords=100)
                tried = being_tried(asked["Activities"], instances)
                self._refusals[name] = refusals(asked["Activities"])
                if desired <= len(instances) and not tried:
                    self._at_rest[name] = here
        since = self._now() - REFUSALS_LAST
        found = [one for one in (*self._answered.get(name, ()), *self._refusals.get(name, ())) if one.at > since]
        return tuple(sorted(found, key=lambda one: one.at, reverse=True)), tried


def _instances_of(raws: Iterable[AutoScalingGroupTypeDef]) -> set[str]:
    return {one["InstanceId"] for raw in raws for one in raw.get("Instances", [])}
