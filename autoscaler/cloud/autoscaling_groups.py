"""The only door to AWS at run time: Auto Scaling groups as the model has them, and the writes that change the bill.

Groups are found by the tag with the cluster's name; nothing else is ever touched. What AWS refuses is data
(:class:`Refused`) or an outage (``Unavailable``), told in words; neither stops the loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from autoscaler.cloud.clients import Clients
from autoscaler.cloud.errors import NotAllowed, Refused, refusal_code, told_in_words
from autoscaler.cloud.group_reader import GroupReader
from autoscaler.cloud.group_writes import GroupWrites, Purchase
from autoscaler.cloud.interruption_queue import InterruptionQueue
from autoscaler.cloud.node_templates import tags_of
from autoscaler.cloud.purchases import Bought, living, token_of, why_not_at_once
from autoscaler.cloud.quotas import Draw
from autoscaler.config.policy import Policy
from autoscaler.model import labels as words
from autoscaler.model.actions import Order
from autoscaler.model.cluster import Group, Refusal
from autoscaler.model.enumeration import counted
from autoscaler.model.errors import Unavailable

if TYPE_CHECKING:
    from types_boto3_autoscaling.type_defs import AutoScalingGroupTypeDef

_AT_MINIMUM: Final = "min size constraint"
"""In AWS's words: the group desires its minimum, and would go below."""
_NOTHING: Final[Mapping[str, int]] = MappingProxyType({})


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
        self.reader = GroupReader(clients, policy.region, warn=warn, now=now)
        self.writes = GroupWrites(clients, policy.region, now=now, pool=pool)
        self._policy = policy
        """Replaced as a whole by :meth:`obey`, maybe in another thread."""
        self._clients = clients
        self._now = now
        self._not_at_once: dict[str, str] = {}
        """Group name -> why nothing is launched in it at once: learnt once."""

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
            self.reader.forget_others(raws)
            return tuple(self.reader.read(raws, self._policy))

    def group(self, name: str) -> Group | None:
        """One group as it is now."""
        raw = self._described(name).get(name)
        return self._as_is(raw) if raw is not None else None

    def _as_is(self, raw: AutoScalingGroupTypeDef) -> Group | None:
        with told_in_words(self._policy.region):
            return next(self.reader.read([raw], self._policy), None)

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
        draws: dict[str, Draw] = {}
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
            draw = draws[name] = self.reader.draw_of(purchase.raw, self._policy)
            refusal = draw.refuses(purchase.count, taken, at=self._now())
            if refusal is not None:
                came[name] = Bought(desired=order.was, refusals=(refusal,))
                continue
            taken[draw.code] += purchase.count * draw.vcpus
            purchases.append(purchase)
        for purchase, answer in self._bought(purchases):
            name = purchase.group
            came[name] = self._learnt(purchase, answer, draws[name])
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
        self.reader.warn_once(f"{name} is grown by its desired capacity, not by LaunchInstances: {why_not}")

    def _bought(self, purchases: Sequence[Purchase]) -> Iterator[tuple[Purchase, Bought | Exception]]:
        """Yields what came of each; those that may not be made at once are made by the desired capacity."""
        for one in purchases:
            self.reader.is_written(one.group)
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
        self.reader.was_answered(one.group, answer.refusals)
        self.reader.took(draw, min(one.count, answer.desired - was))
        return answer

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
        self.reader.is_written(name)
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
