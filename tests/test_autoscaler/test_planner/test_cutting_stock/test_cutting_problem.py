"""What the solver is asked: kinds of nodes, and how many there may be of each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoscaler.model.constraints import PodTerm, Requirement
from autoscaler.model.labels import HOSTNAME, ZONE
from autoscaler.model.resources import MEMORY
from autoscaler.planner.cutting_stock.at_hand_kinds import AtHandKinds
from autoscaler.planner.cutting_stock.cutting_plan import Want
from autoscaler.planner.cutting_stock.cutting_problem import CuttingProblem, cutting_problem
from autoscaler.solver.solution import Nodes
from tests.builders import a_group, a_pod
from tests.test_autoscaler.test_planner.test_placement.test_gang_packing import a_market, own_place

ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
POD = a_pod()


def problem(
    *wants: tuple[str, int],
    maximum: int = 9,
    usd: dict[str, float] | None = None,
    free: bool = False,
    own: dict[str, int] | None = None,
    limits: dict[str, float] | None = None,
) -> CuttingProblem:
    """Pods alike that want a zone each, and a group in each zone. ``usd``: prices by zone that differ."""
    groups = [replace(a_group("cpu", zone, maximum=maximum), usd_per_hour=(usd or {}).get(zone, 0.8)) for zone in ZONES]
    places = [own_place("own", ZONES[0], **own or {})] if free else []
    market = a_market([POD], groups, places, **limits or {})
    market.snapshot.rules.expect((market.sample(offering) for offering in market.offerings), market.may_come)
    shape = market.snapshot.shape(POD)
    there = AtHandKinds.of([shape], market, most=9) if free else None
    return cutting_problem({Want(shape, zone): many for zone, many in wants}, market, there=there)


def test_groups_alike_in_every_zone_are_one_kind_where_there_is_no_end_of_them() -> None:
    """By the zone of a pod it is known which of them is meant."""
    found = problem((ZONES[0], 2), (ZONES[1], 3))
    assert len(found.kinds) == 1
    assert found.zones is not None
    (names,) = found.zones.names.values()
    assert set(names) == set(ZONES)
    assert all(name.endswith(zone) for zone, name in names.items())
    assert ZONE not in found.kinds[0].name


@pytest.mark.parametrize(
    ("more", "kinds"),
    [
        ({"maximum": 4}, 3),
        ({"limits": {"nodes": 3}}, 3),
        ({"usd": {ZONES[1]: 0.9}}, 3),
        ({"free": True}, 4),
    ],
)
def test_what_differs_by_zone_or_has_an_end_is_a_kind_for_each(more: dict[str, object], kinds: int) -> None:
    """Fewer nodes than pods, a limit that they share, another price, a place that costs nothing more."""
    found = problem((ZONES[0], 2), (ZONES[1], 3), **more)  # type: ignore[arg-type]
    assert (found.zones, len(found.kinds)) == (None, kinds)


def test_of_a_kind_there_are_as_many_as_may_be_had_or_any_number_where_that_is_enough_for_all() -> None:
    """A node for each of five pods is as good as no limit; of places that cost nothing more there are so many."""
    ample = [kind.available for kind in problem((ZONES[0], 2), (ZONES[1], 3), free=True, maximum=5).kinds]
    assert ample == [1, None, None, None]
    scarce = [kind.available for kind in problem((ZONES[0], 2), (ZONES[1], 3), free=True, maximum=4).kinds]
    assert scarce == [1, 4, 4, 4]


def test_a_plan_to_begin_with_is_told_by_the_numbers_of_its_pods() -> None:
    """One node each, in the order given."""
    found = problem((ZONES[0], 2), (ZONES[1], 3))
    (first, second), (kind,) = found.wants, found.kinds
    told = found.nodes_of([(kind.name, {second: 2}), (kind.name, {second: 1, first: 2})])
    assert told == [Nodes(kind.name, 1, ((1, 2),)), Nodes(kind.name, 1, ((1, 1), (0, 2)))]


def test_room_at_hand_is_rounded_down() -> None:
    """What is planned there has to fit."""
    memory = problem((ZONES[0], 1)).names.index(MEMORY)
    whole = problem((ZONES[0], 1), free=True, own={MEMORY: 2**31}).kinds[0].amounts[memory]
    assert problem((ZONES[0], 1), free=True, own={MEMORY: 2**31 + 1}).kinds[0].amounts[memory] == whole
    assert problem((ZONES[0], 1), free=True, own={MEMORY: 2**31 - 1}).kinds[0].amounts[memory] == whole - 1


def test_a_pod_that_may_go_to_any_zone_is_asked_for_in_each() -> None:
    """Which zone it gets, the solver says."""
    found = problem((ZONES[0], 2), ("", 3))
    assert (found.zones, len(found.kinds)) == (None, 3)


def test_a_pod_that_rules_concern_has_no_place_that_costs_nothing_by_the_problem() -> None:
    """It does not tell which pods run there: such a pod was put beside them before, or is bought for."""
    web = (Requirement("app", "In", ("web",)),)
    alone = a_pod("alone", labels={"app": "web"}, apart_from=(PodTerm(HOSTNAME, web, frozenset({"team"})),))
    tolerant = replace(alone, name="tolerant", affinity=((Requirement(ZONE, "In", ZONES[:1]),),))
    groups = [a_group("cpu", zone) for zone in ZONES]
    market = a_market([POD, alone, tolerant], groups, [own_place("own", ZONES[0])])
    wants = {Want(market.snapshot.shape(pod), ""): 1 for pod in (POD, alone, tolerant)}
    there = AtHandKinds.of([market.snapshot.shape(POD)], market, most=9)
    rows = cutting_problem(wants, market, there=there).rows
    names = [group.name for group in groups]
    assert [row.kinds for row in rows] == [None, frozenset(names), frozenset(names[:1])]
    assert [row.kinds for row in cutting_problem(wants, market).rows] == [None, None, frozenset(names[:1])]
