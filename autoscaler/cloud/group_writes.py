"""The calls that change the bill: nodes launched or ordered in a group, instances ended, terminations let go on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from autoscaler.cloud.clients import Clients
from autoscaler.cloud.errors import NotAllowed, NotLeader, Refused, told_in_words
from autoscaler.cloud.purchases import AT_MOST, Bought, launched, refused
from autoscaler.model import labels as words
from autoscaler.model.cluster import Refusal
from autoscaler.model.errors import Unavailable

if TYPE_CHECKING:
    from types_boto3_autoscaling.type_defs import AutoScalingGroupTypeDef

_AT_ONCE: Final = 8
"""Purchases beside each other. A client keeps ten connections, and AWS throttles those who ask for more."""
_WAITS_NO_LONGER: Final = ("No active Lifecycle Action", "Instance Id not found")
"""In AWS's words: the instance went on already, or is gone from its group."""


@dataclass(frozen=True, slots=True)
class Purchase:
    """An order of nodes that was held against the group as it is."""

    raw: AutoScalingGroupTypeDef
    count: int
    """Nodes that the group lacks."""
    to: int
    """The desired capacity that it is to have."""
    token: str
    at_once: bool
    """By ``LaunchInstances``; else by the desired capacity."""

    @property
    def group(self) -> str:
        """Name of the group."""
        return self.raw["AutoScalingGroupName"]


class GroupWrites:
    """The writes to one cluster's groups; safe to use from threads."""

    def __init__(
        self,
        clients: Clients,
        region: str,
        *,
        now: Callable[[], datetime],
        pool: Callable[[int], Executor] = ThreadPoolExecutor,
    ) -> None:
        """``pool``: given a number, what carries out so many purchases at once."""
        self.may_write: Callable[[], bool] = lambda: True
        """Asked immediately before each write: a process that stood still may have lost its lease."""
        self._clients = clients
        self._region = region
        self._now = now
        self._pool = pool

    def buy(self, purchases: Sequence[Purchase]) -> dict[str, Bought | Exception]:
        """Carries them out beside each other, each of another group. Gives what came of each, by name of the group.

        One that is not carried out fails alone: with ``NotAllowed``, ``Refused``, or what else says ``Unavailable``.
        """
        if not purchases:
            return {}
        with self._pool(min(len(purchases), _AT_ONCE)) as pool:
            answers = list(pool.map(self._tried, purchases))
        return {one.group: answer for one, answer in zip(purchases, answers, strict=True)}

    def _tried(self, one: Purchase) -> Bought | Exception:
        try:
            if one.at_once:
                return self._launch(one)
            self.set_desired(one.group, one.to)
        except (Refused, Unavailable) as error:
            return error
        return Bought(desired=one.to)

    def _launch(self, one: Purchase) -> Bought:
        """Launches at most what one call takes: the next plan orders more. Raises ``NotAllowed``, ``Refused``."""
        self._fence()
        with told_in_words(self._region):
            answer = self._clients.autoscaling.launch_instances(
                AutoScalingGroupName=one.group,
                RequestedCapacity=min(one.count, AT_MOST),
                AvailabilityZones=[one.raw["AvailabilityZones"][0]],
                ClientToken=one.token,
            )
        came, refusals = launched(answer, at=self._now()), refused(answer, at=self._now())
        if not came and not refusals:
            refusals = (Refusal(self._now(), "Refused", "EC2 launched nothing and does not say why"),)
        if not came and all(refusal.code == "UnauthorizedOperation" for refusal in refusals):
            raise NotAllowed(refusals[0].message)
        return Bought(desired=one.raw["DesiredCapacity"] + len(came), instances=came, refusals=refusals)

    def set_desired(self, group: str, to: int) -> None:
        """Set a group's desired capacity. Raises ``Refused``."""
        self._fence()
        with told_in_words(self._region):
            self._clients.autoscaling.set_desired_capacity(
                AutoScalingGroupName=group, DesiredCapacity=to, HonorCooldown=False
            )

    def end(self, instance: str, *, lowers: bool) -> None:
        """End an instance, and lower its group's desired capacity by one where it ``lowers``. Raises ``Refused``."""
        self._fence()
        with told_in_words(self._region):
            self._clients.autoscaling.terminate_instance_in_auto_scaling_group(
                InstanceId=instance, ShouldDecrementDesiredCapacity=lowers
            )

    def release(self, group: str, instance: str) -> None:
        """End the wait of a terminating instance. Raises ``Refused``; one that waits no longer is no failure."""
        self._fence()
        try:
            with told_in_words(self._region):
                self._clients.autoscaling.complete_lifecycle_action(
                    LifecycleHookName=words.TERMINATION_HOOK,
                    AutoScalingGroupName=group,
                    InstanceId=instance,
                    LifecycleActionResult="CONTINUE",
                )
        except Refused as no:
            if not any(gone in str(no) for gone in _WAITS_NO_LONGER):
                raise

    def _fence(self) -> None:
        if not self.may_write():
            raise NotLeader("another autoscaler may act by now: the lease was not renewed in time")
