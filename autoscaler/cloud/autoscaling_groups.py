"""The only door to AWS at run time: Auto Scaling groups as the model has them, and the writes that change the bill.

Groups are found by the tag with the cluster's name; nothing else is ever touched. What AWS refuses is data
(:class:`Refused`) or an outage (``Unavailable``), told in words; neither stops the loop.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from autoscaler.cloud.clients import Clients
from autoscaler.cloud.errors import NotAllowed, Refused, one_failure_alone, refusal_code, told_in_words
from autoscaler.cloud.group_writes import GroupWrites, Purchase
from autoscaler.cloud.interruption_queue import InterruptionQueue
from autoscaler.cloud.launches import REFUSALS_LAST, being_tried, refusals
from autoscaler.cloud.node_templates import NodeTemplate, tags_of
from autoscaler.cloud.prices import Prices
from autoscaler.cloud.purchases import HELD, Bought, living, token_of, why_not_at_once
from autoscaler.cloud.quotas import Draw, Quota, Quotas
from autoscaler.cloud.reservations import Reservations
from autoscaler.config.policy import Policy
from autoscaler.model import labels as words
from autoscaler.model.actions import Order
from autoscaler.model.cluster import Group, Instance, Refusal
from autoscaler.model.enumeration import counted
from autoscaler.model.errors import Unavailable
from autoscaler.model.instance_types import InstanceType, one_quota, read_instance_type

if TYPE_CHECKING:
    from types_boto3_autoscaling.type_defs import AutoScalingGroupTypeDef

_AT_MINIMUM: Final = "min size constraint"
"""In AWS's words: the group desires its minimum, and would go below."""
_NOTHING: Final[Mapping[str, int]] = MappingProxyType({})
_WARNINGS_KEPT: Final = 1000
"""Lines that are not told again: what AWS says in them may never be the same twice."""
_STATES: Final = {"InService": "in-service", "Terminating": "terminating", "Pending": "pending"}
_DOWN: Final = "Terminating:Proceed"


class Changed(Exception):  # noqa: N818 - reads as what it is at the raise site
    """The group is not as the plan saw it: look again. ``group`` is how it is now, where it is there."""

    def __init__(self, message: str, group: Group | None = None) -> None:
        super().__init__(message)
        self.group = group


class Ec2:
    """The Auto Scaling groups of one cluster."""

    def __init__(
        self,
        policy: Policy,
        clients: Clients,
        *,
        warn: Callable[[str], None] = lambda _line: None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        pool: Callable[[int], Executor] = ThreadPoolExecutor,
    ) -> None:
        """``warn`` is told once of each thing that a person should mend (an unknown price).

        ``pool``: given a number, what carries out so many purchases at once.
        """
        self.writes = GroupWrites(clients, policy.region, now=now, pool=pool)
        self._policy = policy
        """Replaced as a whole by :meth:`obey`, maybe in another thread."""
        self._clients = clients
        self._warn = warn
        self._now = now
        self._warned: deque[str] = deque(maxlen=_WARNINGS_KEPT)
        self._types: dict[str, InstanceType] = {}
        self._prices = Prices(clients, policy.region, warn=self._warn_once)
        self._launched: dict[str, datetime] = {}
        self._refusals: dict[str, tuple[Refusal, ...]] = {}
        self._answered: dict[str, tuple[Refusal, ...]] = {}
        """Refusals of ``LaunchInstances``, which a group's history need not tell; newest first."""
        self._not_at_once: dict[str, str] = {}
        """Group name -> why nothing is launched in it at once: learnt once."""
        self._quotas = Quotas(ec2=clients.ec2, quotas=clients.quotas, warn=warn) if clients.quotas else None
        self._reservations = Reservations(clients.ec2, warn=self._warn_once)
        self._at_rest: dict[str, frozenset[str]] = {}
        """Groups that had what they desire, of which no launch was being tried -> the instances that they had then: as
        long as they have no other, their history need not be read."""

    def obey(self, policy: Policy) -> None:
        """Look at the groups by this policy from now on; cluster and region stay those that it was made with."""
        self._policy = policy

    def groups(self) -> tuple[Group, ...]:
        """Every group of the cluster as it is now. Raises ``Unavailable``; one bad group is told and left out."""
        with told_in_words(self._policy.region):
            pages = self._clients.autoscaling.get_paginator("describe_auto_scaling_groups").paginate(
                Filters=[{"Name": f"tag:{words.TAG_CLUSTER}", "Values": [self._policy.cluster]}]
            )
            raws = [raw for page in pages for raw in page["AutoScalingGroups"] if raw.get("Status") is None]
            here = _instances_of(raws)
            self._launched = {one: at for one, at in self._launched.items() if one in here}
            return tuple(self._groups_from(raws))

    def group(self, name: str) -> Group | None:
        """One group as it is now."""
        raw = self._described(name).get(name)
        return self._as_is(raw) if raw is not None else None

    def _as_is(self, raw: AutoScalingGroupTypeDef) -> Group | None:
        with told_in_words(self._policy.region):
            return next(self._groups_from([raw]), None)

    def grow(
        self, orders: Mapping[str, Order], *, coming: Mapping[str, int] = _NOTHING
    ) -> dict[str, Bought | Exception]:
        """Buy nodes: a group that desires ``was`` is to have ``to`` of them. Gives what came of each, by name of group.

        At once where the group and the account allow it, else by its desired capacity; all beside each other. An order
        with the ``at`` of an earlier one is the same. ``coming``: by name of group, launches that are being tried,
        without an instance so far. One that is not carried out fails alone: with ``Changed`` where the desired capacity
        is another, ``NoAnswer``, or what else says ``Unavailable``; what AWS refuses is part of what came of it.

        Never lowers, and never buys twice: the groups, at most 50, are looked at once more immediately before, in one
        call. What one order takes of a quota is not there for the next.
        """
        came: dict[str, Bought | Exception] = {}
        quotas: dict[str, Draw] = {}
        purchases: list[Purchase] = []
        taken = Counter[str]()
        try:
            raws = self._described(*orders)
        except (Refused, Unavailable) as error:
            return dict.fromkeys(orders, error)
        for name, order in orders.items():
            try:
                purchase = self._as_ordered(raws, name, order, coming.get(name, 0))
            except (Changed, Refused, Unavailable) as error:
                came[name] = error
                continue
            draw = quotas[name] = self._draws(purchase.raw)
            refusal = draw.refuses(purchase.count, taken, at=self._now())
            if refusal is not None:
                came[name] = Bought(desired=order.was, refusals=(refusal,))
                continue
            taken[draw.code] += purchase.count * draw.vcpus
            purchases.append(purchase)
        for purchase, answer in self._bought(purchases):
            name = purchase.group
            came[name] = self._learnt(purchase, answer, quotas[name])
        return came

    def _as_ordered(
        self, raws: Mapping[str, AutoScalingGroupTypeDef], name: str, order: Order, coming: int
    ) -> Purchase:
        raw = self._as_planned(name, order.was, raws.get(name))
        here = living(raw) + coming
        count = order.to - max(order.was, here)
        if count < 1:
            raise Changed(f"{name} has {counted(here, 'node')} by now, or is launching them", self._as_is(raw))
        # where it has more than it desires, AWS would end that as it sees fit: it is to desire it
        has_more = order.to - order.was > count
        why_not = "" if has_more else self._not_at_once.get(name) or why_not_at_once(raw)
        if why_not:
            self._may_not_at_once(name, why_not)
        token = token_of(group=name, was=order.was, to=order.to, at=order.at)
        return Purchase(raw, count, order.to, token, at_once=not (has_more or why_not))

    def _may_not_at_once(self, name: str, why_not: str) -> None:
        self._not_at_once[name] = why_not
        self._warn_once(f"{name} is grown by its desired capacity, not by LaunchInstances: {why_not}")

    def _bought(self, purchases: Sequence[Purchase]) -> Iterator[tuple[Purchase, Bought | Exception]]:
        """Yields what came of each; those that may not be made at once are made by the desired capacity."""
        for one in purchases:
            self._at_rest.pop(one.group, None)
        answers = self.writes.buy(purchases)
        denied = []
        for one in purchases:
            answer = answers[one.group]
            if one.at_once and isinstance(answer, NotAllowed):
                self._may_not_at_once(one.group, str(answer))
                denied.append(replace(one, at_once=False))
        answers |= self.writes.buy(denied)
        yield from ((one, answers[one.group]) for one in purchases)

    def _learnt(self, one: Purchase, answer: Bought | Exception, draw: Draw) -> Bought | Exception:
        """What came of a purchase, what AWS refused as part of it; the next look knows of it."""
        was = one.raw["DesiredCapacity"]
        if isinstance(answer, Refused | NotAllowed):
            answer = Bought(desired=was, refusals=(Refusal(self._now(), refusal_code(str(answer)), str(answer)),))
        if isinstance(answer, Exception):
            return answer
        young = [refusal for refusal in self._answered.get(one.group, ()) if refusal.at > self._now() - REFUSALS_LAST]
        self._answered[one.group] = (*answer.refusals, *young)
        for known in (self._quotas, self._reservations):
            if known is not None and draw.quota is not None:
                known.took(draw.code, draw.vcpus * min(one.count, answer.desired - was))
        return answer

    def _draws(self, raw: AutoScalingGroupTypeDef) -> Draw:
        template = NodeTemplate.of(raw, self._policy)
        entry = template.entry
        if entry is None:
            return Draw(0, None)
        vcpus = max((self._types[one].vcpus for one in entry.types if one in self._types), default=0)
        code = template.reservation or one_quota(entry.types, spot=entry.capacity_type == "spot")
        return Draw(vcpus, self._quota(code), is_reservation=bool(template.reservation))

    def cancel(self, name: str, *, was: int, to: int) -> Group:
        """Lower the desired capacity from ``was`` to ``to``, where no instance ends by it. Gives the group after that.

        Raises ``Changed`` where the desired capacity is another or the instances have come after all, ``Refused``.
        """
        raw = self._as_planned(name, was, self._described(name).get(name))
        here = living(raw)
        if here > to:
            raise Changed(
                f"{name} has {counted(here, 'node')} by now: EC2 delivered what it had refused", self._as_is(raw)
            )
        self._at_rest.pop(name, None)
        self.writes.set_desired(name, to)
        now = self.group(name)
        if now is None:
            raise Changed(f"{name} is not there any more")
        return now

    def terminate(self, instance: str, *, group: str, is_dead: bool = False) -> None:
        """End one instance and lower its group's desired capacity by one. Raises ``Refused``.

        One that ``is_dead`` ends also where its group is at its minimum: Auto Scaling launches another then.

        A group whose maximum was lowered below what runs desires less than it has: where it is at its minimum so, AWS
        lowers it no more, and an instance can end without, for the group has one too many anyway.
        """
        try:
            self.writes.end(instance, lowers=True)
        except Refused as refused:
            if _AT_MINIMUM not in str(refused) or not (is_dead or self._has_too_many(group)):
                raise
            self.writes.end(instance, lowers=False)

    def release(self, group: str, instance: str) -> None:
        """End the wait of a terminating instance. Raises ``Refused``; one that waits no longer is no failure."""
        self.writes.release(group, instance)

    def interruption_queue(self) -> InterruptionQueue:
        """The cluster's: its client is made when it is asked for the first time."""
        return InterruptionQueue(self._clients.sqs, cluster=self._policy.cluster, region=self._policy.region)

    def has_ended(self, instance: str) -> bool:
        """Whether EC2 says that the instance is terminated, or knows it no more."""
        with told_in_words(self._policy.region):
            found = self._clients.ec2.describe_instances(Filters=[{"Name": "instance-id", "Values": [instance]}])
        states = [one["State"]["Name"] for each in found["Reservations"] for one in each["Instances"]]
        return all(state == "terminated" for state in states)

    def _has_too_many(self, name: str) -> bool:
        raw = self._described(name).get(name)
        return raw is not None and living(raw) > raw["DesiredCapacity"]

    def _as_planned(self, name: str, was: int, raw: AutoScalingGroupTypeDef | None) -> AutoScalingGroupTypeDef:
        if raw is None:
            raise Changed(f"{name} is not there any more")
        if raw["DesiredCapacity"] != was:
            said = f"{name} was to have {counted(was, 'node')} when this was decided"
            raise Changed(f"{said}, and is to have {raw['DesiredCapacity']} now", self._as_is(raw))
        return raw

    def _described(self, *names: str) -> dict[str, AutoScalingGroupTypeDef]:
        """Those of the cluster, by name; AWS takes at most 50 names."""
        with told_in_words(self._policy.region):
            found = self._clients.autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=list(names))
        ours = (
            raw for raw in found["AutoScalingGroups"] if tags_of(raw).get(words.TAG_CLUSTER) == self._policy.cluster
        )
        return {raw["AutoScalingGroupName"]: raw for raw in ours}

    # --- From what AWS says to the group ---

    def _groups_from(self, raws: list[AutoScalingGroupTypeDef]) -> Iterator[Group]:
        policy = self._policy
        templates = [NodeTemplate.of(raw, policy) for raw in raws]
        self._learn_types({kind for template in templates for kind in template.types})
        self._learn_launch_times(raws)
        self._learn_quotas(templates)
        self._learn_reservations(templates)
        for template in templates:
            try:
                yield self._group_from(template)
            except (KeyError, ValueError, IndexError) as error:
                self._warn_once(f"the group {template.raw['AutoScalingGroupName']} is left out: {error}")

    def _group_from(self, template: NodeTemplate) -> Group:
        raw, entry, types, capacity = template.raw, template.entry, template.types, template.capacity_type
        name, zone, reservation = raw["AutoScalingGroupName"], raw["AvailabilityZones"][0], template.reservation
        kind = " or ".join(types)
        stands = entry is not None and (entry.types, entry.capacity_reservation or "") == (types, reservation)
        price = self._prices.of_group(name, types, zone=zone, capacity=capacity, entry=entry, stands=stands)
        if price is None:
            self._warn_once(
                f"the price of {kind} ({capacity}) in {zone} is not known, so {name} is not grown: "
                "write usd_per_hour into its entry of the policy"
            )
        if entry is None:
            self._warn_once(
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
            labels={words.REGION: self._policy.region, **template.labels(self._types)},
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
            block=self._reservations.block(reservation) if capacity == "capacity-block" else None,
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
        if self._quotas is None:
            return
        ours, coming = Counter[str](), Counter[str]()
        for template in templates:
            if (entry := template.entry) is not None:
                fewest = min((self._types[one].vcpus for one in entry.types if one in self._types), default=0)
                vcpus = 0 if template.reservation else fewest  # a reservation draws on a quota from when it is made
                code = one_quota(entry.types, spot=entry.capacity_type == "spot")
                ours[code] += vcpus * template.wanted
                coming[code] += vcpus * template.coming
        with one_failure_alone(self._warn_once, "what its quotas leave, so that EC2 may refuse what they do not"):
            self._quotas.read(ours.keys() - {""}, self._learn_types, coming)
        for code, in_use in ours.items():
            self._quotas.holds(code, in_use)

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
        self._reservations.read(vcpus_of, coming, blocks=blocks)
        for one, vcpus in ours.items():
            self._reservations.holds(one, vcpus)

    def _quota(self, code: str) -> Quota | None:
        """Returns the quota of the account, or what a Capacity Reservation has; ``None`` where it is not known."""
        return self._reservations.of(code) or (self._quotas.of(code) if self._quotas is not None else None)

    def _learn_types(self, kinds: set[str]) -> dict[str, InstanceType]:
        """Ask once for each type. Gives all that are known."""
        unknown = sorted(kinds - self._types.keys() - {""})
        for start in range(0, len(unknown), 100):
            with one_failure_alone(self._warn_once, "what EC2 says of the instance types"):
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
            with one_failure_alone(self._warn_once, "when instances were launched"):
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
            with one_failure_alone(self._warn_once, f"why {name} does not grow"):
                asked = self._clients.autoscaling.describe_scaling_activities(AutoScalingGroupName=name, MaxRecords=100)
                tried = being_tried(asked["Activities"], instances)
                self._refusals[name] = refusals(asked["Activities"])
                if desired <= len(instances) and not tried:
                    self._at_rest[name] = here
        since = self._now() - REFUSALS_LAST
        found = [one for one in (*self._answered.get(name, ()), *self._refusals.get(name, ())) if one.at > since]
        return tuple(sorted(found, key=lambda one: one.at, reverse=True)), tried

    def _warn_once(self, line: str) -> None:
        if line not in self._warned:
            self._warned.append(line)
            self._warn(line)


def _instances_of(raws: Iterable[AutoScalingGroupTypeDef]) -> set[str]:
    return {one["InstanceId"] for raw in raws for one in raw.get("Instances", [])}
