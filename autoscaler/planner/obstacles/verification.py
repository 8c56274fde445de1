"""Whether what is told of each gang helps, tried on the snapshot; and what it lacks, added.

What lets one gang in may let in another before it, as it is: raised limits, a node that is opened, work that ends. So
each answer is carried out and those before it in turn are served first, as the next plan would. Then all answers are
carried out together, for all gangs are to be let in by all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from autoscaler.model.needed_changes import NeededChange, merged
from autoscaler.planner.demand.gangs import Gang
from autoscaler.planner.obstacles.carried_out import as_changed, carried_out, entries_added
from autoscaler.planner.obstacles.changes import changes_of
from autoscaler.planner.obstacles.search import Search
from autoscaler.planner.placement.gang_packing import Demand

_ROUNDS: Final = 4
"""How often what is lacking is added, at most: once for nearly all."""
Changes = tuple[NeededChange, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """What is told of a gang."""

    gang: Gang
    demand: Demand
    changes: Changes
    """None: nothing was found that would help it."""


def verified(answers: Sequence[Answer], search: Search) -> list[Changes]:
    """What is to be told of each, which are in turn. The snapshot is as it was, afterwards.

    Of the first one alone, which has none before it, that has been tried when its answer was sought.
    """
    told = list(answers)
    unsure: Iterable[int] = range(1, len(told))
    for _ in range(_ROUNDS):
        for number in unsure:
            told[number] = _enough(told[number], told[:number], search)
        lacking = dict(_lacking_together(told, search)) if len(told) > 1 else {}
        for number, more in lacking.items():
            told[number] = replace(told[number], changes=merged(told[number].changes, more))
        unsure = lacking
        if not lacking:
            break
    return [one.changes for one in told]


def _enough(answer: Answer, before: Sequence[Answer], search: Search) -> Answer:
    """Returns the answer with what lets the gang in where those before it are served first, as they are."""
    for _ in range(_ROUNDS):
        if search.work.is_spent or not answer.changes:
            break
        start = search.snapshot.mark()
        after = carried_out(answer.changes, search)
        _serve(before, after)
        more = _lacking(answer, after)
        search.snapshot.undo(start)
        wider = merged(answer.changes, more)
        if wider == answer.changes:
            break
        answer = replace(answer, changes=wider)
    return answer


def _serve(answers: Iterable[Answer], after: Search) -> None:
    """Serves the gangs in turn, as they are. Of those that are alike none finds a place where the first did not."""
    refused = set()
    for one in answers:
        alike = (tuple(sorted(shape.number for _, shape in one.demand.pods)), one.demand.topology, one.demand.anchor)
        if alike not in refused and after.place(one.demand) is None:
            refused.add(alike)


def _lacking_together(answers: Sequence[Answer], search: Search) -> Iterator[tuple[int, Changes]]:
    """What lacks some gangs, by number, when all is carried out for all of them."""
    start = search.snapshot.mark()
    after = carried_out(merged(*(one.changes for one in answers)), search)
    for number, one in enumerate(answers):
        if not one.changes:
            after.place(one.demand)
            continue
        more = _lacking(one, after) if not search.work.is_spent else ()
        if set(more) - set(one.changes):
            yield number, more
    search.snapshot.undo(start)


def _lacking(answer: Answer, after: Search) -> Changes:
    """What it takes besides, when its own pods have changed; nothing where it has its place, which is kept."""
    pods, demand = as_changed(answer.gang, answer.demand, answer.changes, after)
    more, start = entries_added(answer.changes, after), after.snapshot.mark()
    if after.place(demand, more) is not None:
        return ()
    market, after.market = after.market, after.market.with_more(more) if more else after.market
    found = after.smallest(pods, demand)
    changes = changes_of(found, after, after.ceilings) if found is not None else ()
    after.snapshot.undo(start)
    after.market = market
    return tuple(one for one in changes if one.pod != "split")
