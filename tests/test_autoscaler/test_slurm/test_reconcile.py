"""Machines for Slurm's cloud nodes: the real planner and door, beside stand-ins of slurmctld and AWS in the process."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from autoscaler.cloud import errors
from autoscaler.cloud.autoscaling_groups import Ec2
from autoscaler.config.policy import Policy
from autoscaler.model.errors import Unavailable
from autoscaler.slurm.controller import Controller
from autoscaler.slurm.reconcile import Reconciler
from tests.builders import NOW, a_group, a_policy, an_entry
from tests.cloud import Cloud

A, B = "cpu-us-east-1a", "cpu-us-east-1b"
LINE = (
    "NodeName={name} CoresPerSocket=1  CPUAlloc=1 Gres=(null) NodeAddr={name} State={state} ThreadsPerCore=1"
    " Partitions=main  CapWatts=n/a Reason=in State=x [root@2026-11-24T12:01:22] Comment=bla{extra}"
)
"""As Slurm 22.05 prints it, in short."""


@dataclass
class Slurmctld:
    """Answers Slurm's commands in its words; what it is told changes what it says next."""

    states: dict[str, str]
    jobs: dict[str, str] = field(default_factory=dict)
    """``%i %A`` of a job -> its nodes."""
    extra: dict[str, str] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)

    def run(self, words: Sequence[str]) -> str:
        """One command."""
        match words:
            case ("scontrol", "--all", "--oneliner", "show", "nodes"):
                return "".join(self._line(name) + "\n" for name in self.states)
            case ("squeue", *_):
                return "".join(f"{job} {nodes}\n" for job, nodes in self.jobs.items()) + "9 9 \n"
            case ("scontrol", "show", "hostnames", listed):
                stem, _, numbers = listed.removesuffix("]").partition("[")
                first, last = map(int, numbers.split("-"))
                return "".join(f"{stem}{number}\n" for number in range(first, last + 1))
            case ("scontrol", "update", node, extra) if extra.startswith("extra="):
                self.extra[node.removeprefix("nodename=")] = extra.removeprefix("extra=")
            case ("scontrol", "update", node, "state=power_down_force", reason):
                name = node.removeprefix("nodename=")
                self.states[name] = "IDLE+CLOUD+POWERING_DOWN"
                self.told.append(f"{name}: {reason}")
            case ("scontrol", "requeue", number):
                self._requeue(number)
            case _:
                self.told.append(" ".join(words))
        return ""

    def _line(self, name: str) -> str:
        extra = f" Extra={self.extra[name]}" if self.extra.get(name) else ""
        return LINE.format(name=name, state=self.states[name], extra=extra)

    def _requeue(self, number: str) -> None:
        job = next((job for job in self.jobs if job.split()[1] == number), None)
        if job is None:
            raise Unavailable("Slurm: scontrol requeue: Only batch jobs are accepted or processed")
        del self.jobs[job]


def waking(*names: str) -> dict[str, str]:
    """Nodes of jobs that are configured."""
    return dict.fromkeys(names, "MIXED+CLOUD+NOT_RESPONDING+POWERING_UP")


def a_cloud(**given: Any) -> Cloud:
    """One entry in two zones, at 0.768 $/h a node."""
    groups = [a_group("cpu", "us-east-1a"), a_group("cpu", "us-east-1b")]
    return Cloud.of(groups, cluster="local", now=NOW, chance=random.Random(7), **given)  # noqa: S311 - a test


def turn(slurm: Slurmctld, cloud: Cloud, *, slept: list[float] | None = None, **policy: Any) -> list[str]:
    """What one call of the program tells. ``slept``: is given how long it waited each time."""
    asked: Policy = a_policy(an_entry("cpu", usd_per_hour=0.768), **policy)
    said: list[str] = []

    def sleep(seconds: float) -> None:
        if slept is not None:
            slept.append(seconds)
        cloud.advance(cloud.now + timedelta(seconds=seconds))

    ec2 = Ec2(asked, cloud.clients(), now=lambda: cloud.now)
    door = Controller(slurm.run)
    Reconciler(policy=asked, slurm=door, ec2=ec2, tell=said.append, now=lambda: cloud.now, sleep=sleep).turn()
    return said


def living(cloud: Cloud) -> int:
    """Machines that are paid for."""
    return sum(group.paid_for for group in cloud.groups.values())


def test_each_node_that_wakes_gets_a_machine_of_its_group_once() -> None:
    """A second call, as Slurm makes it for others, buys nothing more."""
    slurm = Slurmctld(waking(f"{A}-1", f"{B}-4"), {"3 3": f"{A}-1", "5+1 6": f"{B}-4"})
    cloud = a_cloud()
    turn(slurm, cloud)
    assert {name: cloud.groups[f"local-{name[:-2]}"].instances.keys() for name in slurm.extra} == {
        name: {instance} for name, instance in slurm.extra.items()
    }
    assert slurm.extra.keys() == slurm.states.keys()
    assert turn(slurm, cloud) == []


def test_one_zone_that_is_full_leaves_nothing_bought_of_a_job_in_two() -> None:
    """A component in each: neither starts; the job is queued again, told why, and both nodes are free for others."""
    slurm = Slurmctld(waking(f"{A}-1", f"{B}-1"), {"5+0 5": f"{A}-1", "5+1 6": f"{B}-1"})
    cloud = a_cloud(dry=frozenset({f"local-{B}"}))
    turn(slurm, cloud)
    assert (living(cloud), slurm.jobs) == (0, {})
    assert any("jobid=5 admincomment=spillway: " in one for one in slurm.told), slurm.told
    assert any("jobid=6 starttime=now+180" in one for one in slurm.told), slurm.told
    assert all("POWERING_DOWN" in state for state in slurm.states.values())


def test_within_the_limit_one_job_is_started_and_the_other_put_back() -> None:
    """Each as a whole; what ends on a terminal is told so, as it cannot be queued again."""
    slurm = Slurmctld(
        waking(f"{A}-1", f"{A}-2", f"{A}-3", f"{A}-4"), {"1 1": f"{A}-[1-2]", "2 2": f"{A}-3", "3 3": f"{A}-4"}
    )
    cloud = a_cloud()
    turn(slurm, cloud, limits={"usd_per_hour": 1.6})
    assert living(cloud) == len(cloud.launched) == len([one for one in slurm.extra.values() if one]) == 2
    started = {name for name, instance in slurm.extra.items() if instance}
    assert started in ({f"{A}-1", f"{A}-2"}, {f"{A}-3", f"{A}-4"})
    assert any("limits.usd_per_hour" in one for one in slurm.told), slurm.told


def test_jobs_that_share_a_node_start_together() -> None:
    """Of one that cannot be whole, the other's node would run in vain."""
    slurm = Slurmctld(waking(f"{A}-1", f"{A}-2"), {"1 1": f"{A}-[1-2]", "2 2": f"{A}-2"})
    turn(slurm, cloud := a_cloud(), limits={"usd_per_hour": 1.0})
    assert (cloud.launched, slurm.jobs) == ({}, {})


def test_a_node_that_sleeps_keeps_no_machine_and_one_whose_machine_is_gone_is_freed() -> None:
    """Also where nothing told of it: whatever a killed call left is given back by the next."""
    slurm = Slurmctld(waking(f"{A}-1", f"{A}-2"), {"1 1": f"{A}-[1-2]"})
    cloud = a_cloud()
    turn(slurm, cloud)
    slurm.states = {f"{A}-1": "IDLE+CLOUD+POWERING_DOWN", f"{A}-2": "DOWN*+CLOUD"}
    del cloud.groups[f"local-{A}"].instances[slurm.extra[f"{A}-2"]]
    cloud.groups[f"local-{A}"].desired = 1
    turn(slurm, cloud)
    assert (living(cloud), set(slurm.extra.values())) == (0, {""})
    assert slurm.told[-1] == f"{A}-2: reason=spillway: its machine is gone"


def test_a_node_that_did_not_come_up_can_be_wanted_again() -> None:
    """Slurm leaves it down after ResumeTimeout; its machine ends."""
    slurm = Slurmctld(waking(f"{A}-1"), {"1 1": f"{A}-1"})
    turn(slurm, cloud := a_cloud())
    slurm.states = {f"{A}-1": "DOWN+CLOUD+POWERED_DOWN+NOT_RESPONDING"}
    turn(slurm, cloud)
    assert (living(cloud), slurm.states[f"{A}-1"]) == (0, "IDLE+CLOUD+POWERING_DOWN")


def test_machines_that_come_late_are_waited_for_and_what_never_comes_is_not_left_ordered() -> None:
    """Where the account may not launch at once."""
    slow, never = Slurmctld(waking(f"{A}-1"), {"1 1": f"{A}-1"}), Slurmctld(waking(f"{A}-1"), {"1 1": f"{A}-1"})
    turn(slow, a_cloud(at_once=False, late=(20.0, 20.0)))
    assert slow.extra[f"{A}-1"]
    turn(never, cloud := a_cloud(at_once=False, dry=frozenset({f"local-{A}"})))
    assert (living(cloud), never.jobs, never.extra) == (0, {}, {})


def test_what_comes_when_nothing_waits_for_it_any_more_is_given_back() -> None:
    """After the policy's boot time the job is queued again."""
    slurm = Slurmctld(waking(f"{A}-1"), {"1 1": f"{A}-1"})
    turn(slurm, cloud := a_cloud(at_once=False, late=(2000.0, 2000.0)))
    assert (slurm.jobs, slurm.told[-1]) == ({}, f"{A}-1: reason=spillway: EC2 has launched no machine in time")
    cloud.advance(cloud.now + timedelta(seconds=2000))
    turn(slurm, cloud)
    assert (len(cloud.launched), living(cloud)) == (1, 0)


def test_nodes_of_others_and_own_machines_are_left_alone() -> None:
    """A cloud node of no group of the policy, and one that is not in the cloud."""
    slurm = Slurmctld(waking("theirs-1") | {"own": "DOWN"}, {"1 1": "theirs-1"})
    assert turn(slurm, cloud := a_cloud()) == []
    assert (living(cloud), slurm.told) == (0, [])


@pytest.mark.parametrize("call", ["grow", "groups"])
def test_a_call_that_aws_refuses_is_made_again_ever_later(monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """As the loop does; then it goes on as if nothing had been."""
    real, tries, slept = getattr(Ec2, call), [], []

    def refuse(self: Ec2, *given: Any, **named: Any) -> Any:
        tries.append(call)
        if len(tries) <= 4:
            raise errors.Refused("Throttling", "Rate exceeded") if call == "grow" else Unavailable("AWS: no answer")
        return real(self, *given, **named)

    monkeypatch.setattr(Ec2, call, refuse)
    slurm = Slurmctld(waking(f"{A}-1"), {"3 3": f"{A}-1"})
    said = turn(slurm, a_cloud(), slept=slept)
    assert slurm.extra, said
    assert all(least <= one <= 2 * least for least, one in zip((0.5, 1, 2, 4), slept, strict=False)), slept


def test_what_aws_refuses_for_longer_than_a_machine_may_take_is_put_back_with_its_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The program ends: it was called for a job, and each further call would wait for it."""
    slept: list[float] = []

    def refuse(*_: Any, **__: Any) -> Any:
        raise errors.Refused("UnauthorizedOperation", "not you")

    monkeypatch.setattr(Ec2, "grow", refuse)
    slurm = Slurmctld(waking(f"{A}-1"), {"3 3": f"{A}-1"})
    turn(slurm, a_cloud(), slept=slept, scale_up={"boot_timeout": "300s"})
    assert slurm.jobs == {}
    assert any("no machine in time (UnauthorizedOperation: not you)" in one for one in slurm.told), slurm.told
    assert len(slept) < 30, "not each second"
