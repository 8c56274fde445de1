"""Which trials begin and end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.model.errors import BadInput
from images.experiment.slots import ENDED, Moves, Slots, Word, moves

WORDS: tuple[Word, ...] = ("waiting", "running", "stopping", *sorted(ENDED))


def test_as_many_begin_as_there_are_slots_and_room() -> None:
    """In their order; the least may be bought for, the others take what is free."""
    waiting: list[Word] = ["waiting"] * 5
    assert moves(waiting, slots=Slots(1, 4), room=None) == Moves(start=(0, 1, 2, 3), guaranteed=frozenset({0}))
    assert moves(waiting, slots=Slots(2, 4), room=1) == Moves(start=(0,), guaranteed=frozenset({0}))
    assert moves(waiting, slots=Slots(2, 4), room=0) == Moves()
    assert moves(waiting[:2], slots=Slots(1, 4), room=None, guaranteed=1).guaranteed == frozenset()
    running: list[Word] = ["running", "waiting", "waiting"]
    assert moves(running, slots=Slots(2, 3), room=None, guaranteed=1) == Moves((1, 2), frozenset({1}))


def test_one_that_is_being_stopped_holds_its_slot_until_it_has_ended() -> None:
    """Its process may still have the GPU."""
    assert moves(["stopping", "waiting"], slots=Slots(1, 1), room=None).start == ()
    assert moves(["stopped", "waiting"], slots=Slots(1, 1), room=None).start == (1,)


@given(
    st.lists(st.sampled_from(WORDS), max_size=12),
    st.integers(1, 6),
    st.none() | st.integers(0, 4),
    st.sets(st.integers(0, 12)),
)
def test_slots_are_never_overdrawn_and_only_losers_that_run_are_stopped(
    trials: list[Word], most: int, room: int | None, lost: set[int]
) -> None:
    """Whatever the states are: fewer slots end no trial."""
    found = moves(trials, slots=Slots(1, most), room=room, losers=lost)
    held = sum(word in ("running", "stopping") for word in trials)
    assert len(found.start) + held <= max(most, held)
    assert len(found.start) == min(trials.count("waiting"), max(0, most - held), 99 if room is None else room)
    assert all(trials[number] == "waiting" for number in found.start)
    assert {*found.stop} == {number for number in lost if number < len(trials) and trials[number] == "running"}


def test_slots_are_a_number_or_a_range() -> None:
    """Anything else is refused with what would be right."""
    assert (Slots.parse(4), Slots.parse("1..8"), Slots.parse("2")) == (Slots(4, 4), Slots(1, 8), Slots(2, 2))
    assert str(Slots.parse(Slots(1, 8))) == "1..8"
    for wrong in (0, "8..1", "many", "", "1..", -1):
        with pytest.raises(BadInput, match=r"write how many trials may run at once: 4, or 1..8"):
            Slots.parse(wrong)
