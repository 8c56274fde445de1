"""A step is taken as planned or not at all: what a last look finds between the plan and the act."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoscaler.model.actions import Cancel
from autoscaler.model.cluster import Group, Instance
from tests.builders import NOW
from tests.test_autoscaler.test_loop import GROUP, Written, bench


def standing(launching: int, *states: str) -> Group:
    """The group with so many launches that are being tried, and instances in these states."""
    instances = tuple(
        Instance(id=f"i-{number}", zone="us-east-1a", launched=NOW, state=state)  # type: ignore[arg-type]
        for number, state in enumerate(states)
    )
    return replace(GROUP, launching=launching, instances=instances)


@pytest.mark.parametrize(
    ("planned", "found", "is_more"),
    [
        (standing(0), standing(0), False),
        (standing(0, "in-service"), standing(0, "in-service"), False),
        (standing(1), standing(0, "pending"), False),
        (standing(1, "in-service"), standing(1), False),
        (standing(0), standing(0, "terminating"), False),
        (standing(0), standing(1), True),
        (standing(0), standing(0, "pending"), True),
        (standing(1, "in-service"), standing(1, "in-service", "pending"), True),
    ],
    ids=["nothing", "one that was known", "a try that came", "one that went", "one that ends", "a try", "one", "two"],
)
def test_what_came_while_its_order_was_cancelled_is_told(*, planned: Group, found: Group, is_more: bool) -> None:
    """It is paid for all the same; what the plan knew of is no news, and the next plan knows what was found."""
    made, record = bench(Cancel(GROUP.name, 3, 2, "r")), Written()
    made.fakes.group = found
    loop = made.loop(recorder=record)
    made.knows_aws(planned)
    loop.once()
    told = record.told[-1]
    assert told == (f"failed: {GROUP.name} is launching a node after all",) if is_more else told == ("done",)
    assert made.store.group(GROUP.name) == replace(found, desired=2)
