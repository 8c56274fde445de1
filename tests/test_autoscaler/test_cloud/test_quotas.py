"""Quotas of vCPUs: read from Service Quotas, told when they are nearly used up, and nothing is bought beyond."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest

from autoscaler.cloud.autoscaling_groups import Ec2
from autoscaler.cloud.quotas import READ_AGAIN, Quotas
from autoscaler.model.instance_types import InstanceType
from tests.builders import NOW, a_group, a_policy, an_entry
from tests.cloud import Cloud

P, SPOT_P = "L-417A185B", "L-7212CCBC"
P4D = InstanceType("p4d.24xlarge", "amd64", vcpus=96, memory_mib=1, gpus=8, max_pods=1)


class Account:
    """Both services as far as they are asked."""

    def __init__(self, most: int, *instances: dict[str, Any]) -> None:
        self.most, self.instances = most, list(instances)
        self.asked: list[str] = []
        self.told: list[str] = []
        self.now = 0.0
        self.quotas = Quotas(ec2=self, quotas=lambda: self, warn=self.told.append, clock=lambda: self.now)  # type: ignore[arg-type]

    def get_paginator(self, _name: str) -> Account:
        """Of ``DescribeInstances``."""
        return self

    def paginate(self, **asked: Any) -> list[dict[str, Any]]:
        """One page of all that run."""
        assert asked["Filters"] == [{"Name": "instance-state-name", "Values": ["pending", "running"]}]
        return [{"Reservations": [{"Instances": self.instances}]}]

    def get_service_quota(self, **asked: Any) -> dict[str, Any]:
        """Of Service Quotas."""
        assert asked["ServiceCode"] == "ec2"
        self.asked.append(asked["QuotaCode"])
        name = "Running On-Demand P instances"
        return {"Quota": {"QuotaCode": asked["QuotaCode"], "QuotaName": name, "Value": float(self.most)}}

    def read(self, *codes: str, coming: int = 0) -> None:
        """As the door does."""
        self.quotas.read(codes or (P,), lambda _kinds: _TYPES, {P: coming})

    def left(self, code: str = P) -> int:
        """VCPUs."""
        quota = self.quotas.of(code)
        assert quota is not None
        return quota.left


_TYPES: Mapping[str, InstanceType] = {"p4d.24xlarge": P4D, "m5.large": InstanceType("m5.large", "amd64", 2, 1, 0, 1)}
RUNS = {"InstanceType": "p4d.24xlarge"}


def test_what_is_in_use_counts_by_family_and_market_whichever_cluster_it_is_of() -> None:
    """On demand and spot have quotas of their own."""
    account = Account(960, RUNS, RUNS | {"InstanceLifecycle": "spot"}, RUNS, {"InstanceType": "m5.large"})
    account.read(P, SPOT_P)
    assert (account.left(P), account.left(SPOT_P)) == (960 - 192, 960 - 96)
    assert account.quotas.of("L-1216C47A") is None


def test_quotas_are_read_now_and_then_and_what_is_bought_meanwhile_counts() -> None:
    """Never less than nothing is left."""
    account = Account(200)
    account.read()
    account.quotas.took(P, 96)
    account.read()
    assert (account.left(), account.asked) == (104, [P])
    account.quotas.took(P, 192)
    assert account.left() == 0
    account.now += READ_AGAIN
    account.instances.append(RUNS)
    account.read()
    assert (account.left(), account.asked) == (104, [P, P])


def test_what_groups_of_ours_desire_is_in_use_though_no_instance_shows_it_yet() -> None:
    """Never less than what runs; of a quota that is not known nothing is kept."""
    account = Account(960, RUNS, RUNS)
    account.read()
    for vcpus, left in ((96, 768), (288, 672), (192, 672)):
        account.quotas.holds(P, vcpus)
        assert account.left() == left
    account.quotas.holds(SPOT_P, 96)
    assert account.quotas.of(SPOT_P) is None


def test_what_no_instance_shows_yet_is_in_use_beside_what_runs_for_others() -> None:
    """Two nodes run, one of another cluster; a third was ordered."""
    account = Account(288, RUNS, RUNS)
    account.read(coming=96)
    assert account.left() == 0


@pytest.mark.parametrize(
    ("desired", "living", "held", "left"), [(1, 0, 2, 0), (1, 1, 1, 1), (2, 1, 0, 1), (0, 0, 3, 0), (1, 2, 0, 1)]
)
def test_nodes_that_are_held_at_their_end_draw_on_a_quota_beside_those_that_are_to_come(
    desired: int, living: int, held: int, left: int
) -> None:
    """A node bought in their place would be beyond it. Asked of AWS, and once more before it is asked again."""
    group = a_group("gpu-a10g", "us-east-1a")
    cloud = Cloud.of([group], cluster="local", now=NOW, chance=random.Random(0), quota=3)  # noqa: S311
    scaling = cloud.groups[group.name]
    door = Ec2(a_policy(an_entry("gpu-a10g", usd_per_hour=5.0)), cloud.clients(), now=lambda: NOW)
    scaling.desired = desired
    states = ["InService"] * living + ["Terminating:Wait"] * held
    scaling.instances = {f"i-{number}": state for number, state in enumerate(states)}
    cloud.launched = dict.fromkeys(scaling.instances, NOW)
    assert [one.quota_left for one in door.groups()] == [left]
    asked_before = Ec2(a_policy(an_entry("gpu-a10g", usd_per_hour=5.0)), cloud.clients(), now=lambda: NOW)
    now, scaling.instances, scaling.desired = scaling.instances, {}, 0
    assert [one.quota_left for one in asked_before.groups()] == [3]
    scaling.instances, scaling.desired = now, desired
    assert [one.quota_left for one in asked_before.groups()] == [left]


@pytest.mark.parametrize(("most", "told"), [(240, 1), (241, 0)])
def test_from_four_fifths_on_a_person_is_told_once(most: int, told: int) -> None:
    """By name and numbers, with what to do; again when it was less meanwhile."""
    account = Account(most, RUNS)
    account.read()
    for _ in range(2):
        account.quotas.took(P, 96 if account.left() > 96 else 0)
    assert len(account.told) == told
    if told:
        assert account.told[0].startswith(
            f"quota {P} (Running On-Demand P instances): 192 of 240 vCPUs are in use: ask "
        )
        account.instances.clear()
        for _ in range(2):
            account.now += READ_AGAIN
            account.read()
            account.instances[:] = [RUNS, RUNS]
        assert len(account.told) == 2
