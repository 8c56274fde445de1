"""Machines for the nodes that Slurm wants, and for no others: what its programs for resuming and suspending run.

Slurm says by a node's state whether it is to have a machine; all three programs ask for that anew, so that whichever
runs next mends what another left half done: nothing is known but what Slurm and AWS say.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Final

from autoscaler.acting_policy import as_priced
from autoscaler.cloud import errors
from autoscaler.cloud.autoscaling_groups import Changed, Ec2
from autoscaler.cloud.purchases import Bought, in_words
from autoscaler.config.policy import Policy
from autoscaler.kube.retry_delay import RetryDelay
from autoscaler.model.actions import STARTING, Cancel, Grow, Memory, Order, Plan
from autoscaler.model.cluster import Group
from autoscaler.model.errors import Unavailable
from autoscaler.model.step_descriptions import describe
from autoscaler.planner.plan import plan
from autoscaler.slurm.controller import Controller, SlurmJob, SlurmNode, gangs_of
from autoscaler.slurm.demand import NAMESPACE, group_of, look, machines_of

_AGAIN: Final = 1.0
"""Seconds from one look at what is on its way to the next."""
Gangs = list[tuple[frozenset[str], tuple[SlurmJob, ...]]]


class Reconciler:
    """One turn over all cloud nodes of a Slurm cluster. One at a time: callers hold a lock."""

    def __init__(
        self,
        *,
        policy: Policy,
        slurm: Controller,
        ec2: Ec2,
        tell: Callable[[str], None],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._policy = policy.model_copy(
            update={"scale_down": policy.scale_down.model_copy(update={"enabled": False})}
        )  # which nodes are not wanted any more Slurm says
        self._slurm = slurm
        self._ec2 = ec2
        self._tell = tell
        self._now = now
        self._sleep = sleep
        self._memory = Memory()
        self._delay = RetryDelay(least=_AGAIN)
        self._failure = ""
        """Why the last call to AWS was in vain."""

    def turn(self) -> None:
        """Buy what is wanted and may be, put back the jobs of the rest, end what nothing wants. Raises ``Unavailable``.

        Comes back when every node that may be bought has its machine, or the policy's boot time is over.
        """
        end = self._now() + self._policy.scale_up.boot_timeout
        while True:
            try:
                nodes, groups = self._slurm.nodes(), self._ec2.groups()
            except Unavailable as error:
                if self._now() >= end:
                    raise
                self._back_off(str(error))
                continue
            machines = machines_of(nodes, groups)
            gangs = self._wanted(nodes, groups, machines)
            decided = self._decide(groups, machines, gangs)
            if self._buy(decided) and self._now() < end:
                continue
            refused = self._refused(decided, gangs)
            self._put_back(gangs, refused)
            lacking = self._hand_out([one for one in gangs if min(one[0]) not in refused], groups, machines)
            if not lacking or self._now() >= end:
                break
            self._sleep(_AGAIN)
        why = f"EC2 has launched no machine in time{self._failure}"
        self._put_back(lacking, {min(names): why for names, _ in lacking})
        self._give_back()

    def _hand_out(self, gangs: Gangs, groups: tuple[Group, ...], machines: dict[str, str]) -> Gangs:
        """Give each gang its machines, once there are enough for all of it. Gives those that wait for theirs."""
        lacking: Gangs = []
        spare = {group.name: _unclaimed(group, machines) for group in groups}
        for names, jobs in gangs:
            of = {name: group.name for name in sorted(names) if (group := group_of(name, groups))}
            if any(many > len(spare[group]) for group, many in Counter(of.values()).items()):
                lacking.append((names, jobs))
                continue
            for name, group_name in of.items():
                instance = spare[group_name].pop(0)
                self._slurm.has_machine(name, instance)
                self._tell(f"{name} is {instance} of {group_name}")
        return lacking

    def _wanted(self, nodes: tuple[SlurmNode, ...], groups: tuple[Group, ...], machines: dict[str, str]) -> Gangs:
        waking = {node.name for node in nodes if node.is_waking and group_of(node.name, groups)}
        lacking = frozenset(waking - machines.keys())
        return list(gangs_of(self._slurm.jobs(), lacking)) if lacking else []

    def _decide(self, groups: tuple[Group, ...], machines: dict[str, str], gangs: Gangs) -> Plan:
        now = self._now()
        policy = self._policy.at(now)
        cluster = as_priced(look(groups, machines, (names for names, _ in gangs), now=now), policy)
        return plan(cluster, policy, self._memory)

    def _buy(self, decided: Plan) -> bool:
        """Whether anything has changed by it, so that it is to be decided anew."""
        self._memory, changed = decided.memory, False
        for step in decided.steps:
            if not isinstance(step, Grow | Cancel):
                continue
            changed = True
            try:
                if isinstance(step, Cancel):
                    self._ec2.cancel(step.group, was=step.was, to=step.to)
                    continue
                bought = self._grown(step)
            except (Changed, errors.Refused, Unavailable) as error:
                self._failure = f" ({error})"
                self._back_off(f"{describe(step)}: {error}")
                break
            self._delay.reset()
            self._tell(f"{describe(step)}: {in_words(bought, asked=step.by) if bought.refusals else step.because}")
            if bought.refusals:
                break
        return changed

    def _grown(self, step: Grow) -> Bought:
        came = self._ec2.grow({step.group: Order(step.was, step.to, step.at)})[step.group]
        if isinstance(came, Exception):
            raise came
        return came

    def _back_off(self, why: str) -> None:
        """Backs off as the loop does: AWS would throttle all of the account that asks again at once."""
        self._tell(why)
        self._sleep(self._delay.longer())

    def _refused(self, decided: Plan, gangs: Gangs) -> dict[str, str]:
        """First name of a gang that nothing is bought for -> why."""
        why = {
            one.pod.removeprefix(f"{NAMESPACE}/"): f"{one.because}; would fit if {one.would_fit_if}"
            for one in decided.waiting
            if one.cause != STARTING
        }
        return {min(names): why[name] for names, _ in gangs for name in sorted(names, reverse=True) if name in why}

    def _put_back(self, gangs: Gangs, refused: dict[str, str]) -> None:
        """Their jobs wait as long as a group is left alone that EC2 has refused, their nodes are free for others."""
        for names, jobs in gangs:
            if min(names) not in refused:
                continue
            why = f"spillway: {refused[min(names)]}"
            self._tell(f"{', '.join(sorted(names))}: not started: {why.removeprefix('spillway: ')}")
            for job in jobs:
                self._slurm.put_back(job, why, until=self._policy.scale_up.refusal_backoff)
            for name in sorted(names):
                self._slurm.power_down(name, why)

    def _give_back(self) -> None:
        """End machines that no node wants any more, and free nodes whose machine is gone or did not come."""
        nodes, groups = self._slurm.nodes(), self._ec2.groups()
        machines = machines_of(nodes, groups)
        for node in nodes:
            if group_of(node.name, groups) is None:
                continue
            if node.instance and node.name not in machines:
                self._slurm.has_machine(node.name, "")
            if node.has_failed:
                self._slurm.power_down(node.name, "spillway: did not come up, may be tried again")
            elif not node.sleeps and not node.is_waking and node.name not in machines:
                self._slurm.power_down(node.name, "spillway: its machine is gone")
        for group, instance in _unwanted(groups, machines):
            try:
                self._ec2.terminate(instance, group=group.name)
            except errors.Refused as error:
                self._tell(f"{instance} of {group.name} is not terminated: {error}")
            else:
                self._tell(f"{instance} of {group.name} is terminated")


def _unclaimed(group: Group, machines: dict[str, str]) -> list[str]:
    """Its instances that are no node's, the oldest first."""
    claimed = set(machines.values())
    return [one.id for one in group.instances if one.state != "terminating" and one.id not in claimed]


def _unwanted(groups: tuple[Group, ...], machines: dict[str, str]) -> Iterator[tuple[Group, str]]:
    """Yields instances that no node claims, beyond the group's minimum."""
    for group in groups:
        held = sum(group_of(name, (group,)) is not None for name in machines)
        for instance in _unclaimed(group, machines)[max(group.minimum - held, 0) :]:
            yield group, instance
