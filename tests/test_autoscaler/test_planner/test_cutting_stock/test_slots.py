"""Seats for pods on planned nodes: whole, in order, and with company that each of them admits."""

from __future__ import annotations

from random import Random

from autoscaler.planner.cutting_stock.host_rules import FREE, Company, Stance
from autoscaler.planner.cutting_stock.slots import seat

EVEN = Stance(counted=frozenset({1}), spread=((1, 1),))
COUNTED = Stance(counted=frozenset({1}))
OTHER_EVEN = Stance(counted=frozenset({2}), spread=((2, 1),))
ALONE = Stance(repels=frozenset({3}), known_by=frozenset({3}))
STANCES = [FREE, EVEN, COUNTED, OTHER_EVEN, ALONE]


def test_without_rules_pods_are_seated_in_order() -> None:
    """Those that are left come last; a place that no pod is left for stays empty."""
    rows = [[0, 2, 4, 6], [1, 3, 5]]
    wanted = [[(0, 2), (1, 1)], [(1, 1)], [(0, 1)]]
    expected = [[0, 2, 1], [3], [4]]
    nodes, companies, left = seat(wanted, rows, stances=[FREE], number=[0] * 7)
    assert (nodes, left) == (expected, [5, 6])
    assert companies == [Company()] * 3
    assert seat(wanted, rows, stances=[FREE, EVEN], number=[0] * 7) == (nodes, companies, left)
    assert seat([[(1, 4)]], rows, stances=[FREE], number=[0] * 7)[::2] == ([[1, 3, 5]], [0, 2, 4, 6])


def test_pods_of_one_spread_are_seated_apart_and_others_beside_them() -> None:
    """Each node gets one of the four that count each other, and is filled with those that none counts."""
    nodes, _, left = seat([[(0, 3)]] * 4, [list(range(12))], stances=[FREE, EVEN], number=[1] * 4 + [0] * 8)
    assert nodes == [[0, 4, 5], [1, 6, 7], [2, 8, 9], [3, 10, 11]]
    assert left == []


def test_the_spread_that_most_pods_have_goes_first() -> None:
    """Of the rows that are wanted on the node, also where another comes before it in line."""
    number = [3, 1, 1, 0]
    nodes, companies, left = seat([[(0, 1)], [(0, 1)]], [[0, 1, 2, 3]], stances=STANCES, number=number)
    assert (nodes, left) == ([[1], [2]], [0, 3])
    assert [one.counts for one in companies] == [{1: 1}, {1: 1}]
    nodes, _, left = seat([[(0, 2)]], [[0, 1, 2, 3]], stances=STANCES, number=number)
    assert (nodes, left) == ([[1, 3]], [0, 2])  # then one that none counts, before one of another spread
    nodes, _, left = seat([[(0, 1), (1, 1)]], [[0, 1], [2, 3, 4]], stances=STANCES, number=[3, 1, 1, 1, 1])
    assert (nodes, left) == ([[0, 2]], [1, 3, 4])  # a row of which all have one spread has no choice


def test_what_keeps_others_away_is_seated_before_those_that_no_rule_concerns() -> None:
    """Of these there are more, and each node has room for one of either."""
    nodes, _, left = seat([[(0, 2)]] * 2, [list(range(6))], stances=STANCES, number=[0, 0, 0, 0, 4, 4])
    assert (nodes, left) == ([[4, 0], [5, 1]], [2, 3])


def test_whatever_is_seated_is_admitted_and_none_is_left_that_would_be() -> None:
    """Any pods, any nodes: each once, no more than planned of each row, in company that admits it."""
    dice = Random(11)  # noqa: S311 - the same pods every time
    some_left = 0
    for _ in range(200):
        number = [dice.randrange(len(STANCES)) for _ in range(dice.randint(1, 14))]
        row_of = [dice.randrange(2) for _ in number]
        rows = [[pod for pod, row in enumerate(row_of) if row == one] for one in range(2)]
        wanted = [[(row, dice.randint(1, 3)) for row in range(2) if dice.random() < 0.8] for _ in range(5)]
        nodes, companies, left = seat(wanted, rows, stances=STANCES, number=number)
        assert sorted([*left, *(pod for guests in nodes for pod in guests)]) == list(range(len(number)))
        assert left == sorted(left)
        assert len(nodes) == len(wanted)
        some_left += bool(left)
        for guests, company, planned in zip(nodes, companies, wanted, strict=True):
            again = Company()
            for pod in guests:
                assert again.admits(STANCES[number[pod]])
                again.join(STANCES[number[pod]])
            assert again == company
            for row, many in planned:
                seated = sum(row_of[pod] == row for pod in guests)
                assert seated <= many
                would = [pod for pod in left if row_of[pod] == row and company.admits(STANCES[number[pod]])]
                assert seated == many or not would
    assert some_left > 20
