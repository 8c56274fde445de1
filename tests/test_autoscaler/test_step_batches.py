"""Batches: every step is taken once, and none that a failure of one beside it should have stopped."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from autoscaler.model.actions import Admit, Cordon, Grow, Remove, Step
from autoscaler.step_batches import ORDERS_AT_MOST, batches


def grows(group: str, *gangs: str, was: int = 0) -> Grow:
    """An order whose pods are the gangs themselves."""
    return Grow(group, was, was + 1, 1.0, gangs, "r")


STEPS = st.one_of(
    st.builds(
        lambda group, gangs: grows(group, *sorted(gangs)), st.sampled_from("abcdef"), st.sets(st.sampled_from("xyz"))
    ),
    st.builds(lambda gang: Admit(gang, (), "r"), st.sampled_from("xyz")),
    st.builds(lambda node: Cordon(node, "r"), st.sampled_from("nm")),
)


def test_gangs_are_admitted_together_and_nodes_ordered_together() -> None:
    """Whatever is not of their kind goes by itself, and is waited for."""
    admits, orders = [Admit(name, (), "r") for name in "xy"], [grows("a", "x"), grows("b", "y")]
    steps: list[Step] = [*admits, Remove("c", "i-1", None, "r"), Remove("c", "i-2", None, "r"), *orders]
    assert [len(batch) for batch in batches(steps, gangs_of=lambda step: step.demand)] == [2, 1, 1, 2]


def test_a_gang_is_bought_for_group_after_group() -> None:
    """Where the first is refused the second is not asked for; what is for another gang goes beside the first."""
    first, second, other = grows("a", "x"), grows("b", "x", "y"), grows("c", "z")
    assert [*batches([first, second, other], gangs_of=lambda step: step.demand)] == [(first, other), (second,)]


@given(st.lists(STEPS, max_size=60))
def test_every_step_is_taken_once_and_in_order_where_it_matters(steps: list[Step]) -> None:
    """Kinds go one after the other; orders of a gang, and of a group, too."""
    made = [*batches(steps, gangs_of=lambda step: step.demand)]
    taken = [step for batch in made for step in batch]
    assert [type(step) for step in taken] == [type(step) for step in steps]
    before, after = defaultdict(list), defaultdict(list)
    for sequence, found in ((steps, before), (taken, after)):
        for step in sequence:
            names = {step.group, *step.demand} if isinstance(step, Grow) else {repr(step)}
            for name in names:
                found[name].append(step)
    assert before == after
    for batch in made:
        orders = [step for step in batch if isinstance(step, Grow)]
        whose = [name for step in orders for name in {step.group, *step.demand}]
        assert len(whose) == len(set(whose))
        assert len(orders) <= ORDERS_AT_MOST
