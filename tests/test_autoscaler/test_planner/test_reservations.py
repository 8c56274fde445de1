"""Offerings with terms of their own: Capacity Reservations, prepaid and as large as they are; placement groups."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoscaler.config.group_entry import GroupEntry
from autoscaler.config.policy import Policy
from autoscaler.model import labels as words
from autoscaler.model.actions import QUOTA, STARTING, Grow, Memory, Plan
from autoscaler.model.cluster import Group, Pod, Refusal
from autoscaler.model.errors import BadInput
from autoscaler.planner.explanation.explain import explain
from autoscaler.planner.plan import plan
from tests.builders import NOW, a_cluster, a_gang, a_group, a_pod, a_policy, an_entry, later

ID = "cr-0123456789abcdef0"


def reserved(room: int, **given: object) -> Group:
    """A group whose nodes, of 96 vCPUs, go into the reservation; it has room for so many more."""
    group = a_group("reserved", usd_per_hour=0.0, vcpus=96, quota=ID, quota_left=96 * room, reservation=ID)
    return replace(group, **given)  # type: ignore[arg-type]


def entry(name: str, **given: object) -> GroupEntry:
    """Of the policy."""
    return an_entry(name, **{"zones": ("us-east-1a",), "capacity_reservation": ID} | given)


ON_DEMAND = a_group("gpu-a100", vcpus=96, quota="L-417A185B")
POLICY = a_policy(entry("reserved"), an_entry("gpu-a100"))


def decide(*pods: Pod, groups: tuple[Group, ...], policy: Policy = POLICY) -> Plan:
    """The plan for pods that wait."""
    return plan(a_cluster(pods=pods, groups=groups), policy, Memory())


def bought(done: Plan) -> dict[str, int]:
    """Nodes that are ordered, by group."""
    return {step.group: step.by for step in done.steps if isinstance(step, Grow)}


def pods(many: int) -> tuple[Pod, ...]:
    """Each takes a node."""
    return tuple(a_pod(f"p{number}", gpus=8) for number in range(many))


def test_what_is_reserved_is_used_first_and_costs_nothing_more() -> None:
    """The rest is bought on demand."""
    done = decide(*pods(3), groups=(reserved(2), ON_DEMAND))
    assert bought(done) == {reserved(2).name: 2, ON_DEMAND.name: 1}
    assert done.usd_per_hour == pytest.approx(ON_DEMAND.usd_per_hour)


def test_a_limit_of_money_does_not_keep_what_is_paid_for_from_being_used() -> None:
    """Of dollars, it takes none."""
    policy = a_policy(*POLICY.groups, limits={"usd_per_hour": 0.01})
    assert bought(decide(*pods(3), groups=(reserved(2), ON_DEMAND), policy=policy)) == {reserved(2).name: 2}


def test_a_gang_spills_over_as_a_whole() -> None:
    """Part of it in the reservation, the others beside it."""
    done = decide(*a_gang("g", pods=3, gpus=8), groups=(reserved(1), ON_DEMAND))
    assert bought(done) == {reserved(1).name: 1, ON_DEMAND.name: 2}


def test_one_that_is_full_is_the_obstacle_that_is_told() -> None:
    """With what would change it; counted apart from quotas of the account in words alone."""
    only = a_policy(entry("reserved"))
    done = decide(*pods(2), groups=(reserved(1),), policy=only)
    (waits,) = [one for one in done.waiting if one.cause != STARTING]
    assert waits.cause == QUOTA
    assert f"Capacity Reservation {ID} leaves 0" in waits.because
    assert waits.would_fit_if == f"Capacity Reservation {ID} has room for 96 vCPUs or more"


def test_two_entries_share_the_room_of_one_reservation() -> None:
    """As two of one quota do."""
    other = reserved(1, name="other", entry="other")
    policy = a_policy(entry("reserved"), entry("other"))
    assert sum(bought(decide(*pods(3), groups=(reserved(1), other), policy=policy)).values()) == 1


def test_what_ec2_refuses_though_it_seemed_to_have_room_is_bought_beside_it() -> None:
    """Somebody else was faster; every group of the reservation is left alone for a while."""
    refused = (Refusal(NOW, "ReservationCapacityExceeded", "full"),)
    other = reserved(1, name="other", entry="other", desired=0)
    policy = a_policy(*POLICY.groups, entry("other"))
    done = decide(*pods(1), groups=(reserved(1, refusals=refused), other, ON_DEMAND), policy=policy)
    assert bought(done) == {ON_DEMAND.name: 1}


def test_the_group_says_what_it_draws_on() -> None:
    """In the words of `explain group`."""
    cluster = a_cluster(groups=(reserved(0),), seen_at=later(minutes=1))
    policy = a_policy(entry("reserved"))
    said = explain("group", "reserved", cluster, policy, plan(cluster, policy, Memory()))
    assert f"Capacity Reservation {ID} leaves 0 of the 96 vCPUs of a node" in "\n".join(said)


@pytest.mark.parametrize(
    "wrong",
    [{"capacity_type": "spot"}, {"zones": ("us-east-1a", "us-east-1b")}, {"capacity_reservation": "cr-x"}],
    ids=str,
)
def test_a_reservation_is_of_one_type_in_one_zone_on_demand(wrong: dict[str, object]) -> None:
    """Else no node could be launched into it."""
    with pytest.raises((BadInput, ValueError)):
        entry("reserved", **wrong)


def test_its_price_is_nothing_unless_the_policy_says_one() -> None:
    """A team may count what its reservation costs."""
    assert entry("r").usd_per_hour == 0
    assert entry("r", usd_per_hour=3.5).usd_per_hour == 3.5


def test_a_gang_may_ask_for_one_placement_group() -> None:
    """By the label that all nodes of an entry share: an entry with ``placement: cluster`` is one placement group."""
    near, far = a_group("near", maximum=2), a_group("far", maximum=9, usd_per_hour=30.0)
    clusters = [an_entry(name, placement="cluster", zones=("us-east-1a",)) for name in ("near", "far")]
    policy = a_policy(*clusters)
    gang = a_gang("g", pods=3, gpus=8, topology=words.GROUP)
    assert bought(decide(*gang, groups=(near, far), policy=policy)) == {far.name: 3}
    anywhere = a_gang("g", pods=3, gpus=8)
    assert bought(decide(*anywhere, groups=(near, far), policy=policy)) == {near.name: 2, far.name: 1}
