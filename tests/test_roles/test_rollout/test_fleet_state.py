"""Where each machine of a rollout stands, by its node's marks, its plan and what this run knows of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from roles.engine.disruption import Disruption
from roles.engine.host_plan import Change, HostPlan, identity
from roles.rollout.fleet_state import Standing
from roles.rollout.model import Member, Outcome, Phase, Resident, Rules
from roles.rollout.node_state import Seen

LOUD = Change(resource="loud", commands=("set",), disruption=Disruption.REBOOT)
QUIET = Change(resource="quiet", commands=("set",))
PLAN = HostPlan(host="a", changes=(LOUD, QUIET))
WANTS = identity(PLAN)
NOTHING = HostPlan(host="a")


@dataclass
class Nodes:
    """The cluster's nodes, and what was written on them."""

    seen: dict[str, Seen] = field(default_factory=dict)
    written: list[tuple[Any, ...]] = field(default_factory=list)

    def look(self) -> dict[str, Seen]:
        """All of them."""
        return self.seen

    def begin(self, name: str, phase: Phase, *, cordon: bool) -> None:
        """Noted."""
        self.written.append(("begin", name, phase, cordon))

    def mark(self, name: str, phase: Phase, outcome: str) -> None:
        """Noted."""
        self.written.append(("mark", name, phase, outcome))

    def finish(self, name: str, outcome: str | None) -> None:
        """Noted."""
        self.written.append(("finish", name, outcome))


def standing(
    *seen: Seen, blocked: Any = None, before: Any = None, rack: str = "", **rules: Any
) -> tuple[Standing, Nodes]:
    """Of the machine ``a``; nodes are there where some are given."""
    nodes = Nodes({one.name: one for one in seen})
    marks: Any = nodes if seen else None
    return Standing(marks, {"a": rack}, rules=Rules(**rules), blocked=blocked or {}, before=before or {}), nodes


def member(found: Standing, plan: HostPlan = PLAN, *, failed: bool = False) -> Member:
    """The machine ``a`` now."""
    return found.members({"a": plan}, failed={"a"} if failed else ())["a"]


def test_a_machine_is_as_its_node_and_its_plan_say() -> None:
    """With its pods, in its rack unless the inventory names another."""
    resident = Resident(key="team/p", holds_gpu=False)
    node = Seen(name="a", rack="r1", is_ready=True, is_cordoned=True, phase=Phase.DRAINING, residents=(resident,))
    found = member(standing(node)[0])
    assert found == Member(
        name="a",
        domain="r1",
        wants=WANTS,
        needs=Disruption.REBOOT,
        has_quiet_part=True,
        is_cordoned=True,
        phase=Phase.DRAINING,
        residents=(resident,),
    )
    assert member(standing(node, rack="r2")[0]).domain == "r2"
    assert not member(standing(replace(node, is_ready=False))[0]).is_ready


@pytest.mark.parametrize(
    ("plan", "wants", "quiet", "known"),
    [
        (NOTHING, "", False, True),
        (HostPlan(host="a", changes=(LOUD,)), "x", False, True),
        (HostPlan(host="a", changes=(QUIET,)), "x", True, True),
        (HostPlan(host="a", unreachable="no route"), "", False, False),
        (HostPlan(host="a", failed="no such version"), "", False, False),
    ],
)
def test_what_a_plan_asks_of_a_machine(plan: HostPlan, wants: str, *, quiet: bool, known: bool) -> None:
    """Nothing where there is nothing to do, or where no plan could be made."""
    found = member(standing(Seen(name="a"))[0], plan)
    assert (bool(found.wants), found.has_quiet_part, found.is_known) == (bool(wants), quiet, known)
    everything = member(standing(Seen(name="a"), allowed=Disruption.REBOOT)[0])
    assert everything.has_quiet_part


def test_other_nodes_count_against_the_budget_and_are_left_alone() -> None:
    """As they are; nothing is wanted of them."""
    other = Seen(name="b", rack="r9", is_ready=False, is_cordoned=True, phase=Phase.DRAINING)
    found = standing(Seen(name="a"), other)[0].members({"a": PLAN}, failed=())
    assert found["b"] == Member(name="b", domain="r9", is_ready=False, is_cordoned=True)
    assert list(found) == ["a", "b"]


@pytest.mark.parametrize(
    ("seen", "plan", "failed", "outcome", "refused"),
    [
        ({"outcome": Outcome.FAILED, "outcome_of": WANTS}, PLAN, False, Outcome.FAILED, False),
        ({"outcome": Outcome.FAILED, "outcome_of": "another"}, PLAN, False, Outcome.NONE, False),
        (
            {"outcome": Outcome.FAILED, "outcome_of": "another", "phase": Phase.RESTORING},
            PLAN,
            False,
            Outcome.FAILED,
            False,
        ),
        ({"outcome": Outcome.FAILED, "outcome_of": ""}, NOTHING, False, Outcome.NONE, False),
        (
            {"outcome": Outcome.FAILED, "outcome_of": "", "phase": Phase.RESTORING},
            NOTHING,
            False,
            Outcome.FAILED,
            False,
        ),
        ({"outcome": Outcome.REFUSED, "outcome_of": WANTS}, PLAN, False, Outcome.NONE, True),
        ({"outcome": Outcome.REFUSED, "outcome_of": WANTS}, PLAN, True, Outcome.REFUSED, False),
        ({"outcome": Outcome.UNSETTLED, "outcome_of": WANTS}, PLAN, False, Outcome.UNSETTLED, False),
    ],
)
def test_how_a_plan_ended_holds_while_the_machine_wants_the_same(
    seen: dict[str, Any], plan: HostPlan, outcome: Outcome, *, failed: bool, refused: bool
) -> None:
    """Or while it is under way. What an earlier run could not do this one tries."""
    found = member(standing(Seen(name="a", **seen))[0], plan, failed=failed)
    assert (found.outcome, found.was_refused) == (outcome, refused)


def test_what_this_run_knows_comes_before_what_the_node_says() -> None:
    """How its plan ended, that it went silent, and why nothing may be changed on it."""
    found, _ = standing(Seen(name="a", outcome=Outcome.FAILED, outcome_of=WANTS), blocked={"a": "no room"})
    assert (member(found).outcome, member(found).blocked, member(found).is_lost) == (Outcome.FAILED, "no room", False)
    found.ended["a"] = Outcome.PARTLY
    found.abandoned.add("a")
    found.block("a", "taken")
    assert (member(found).outcome, member(found).blocked, member(found).is_lost) == (Outcome.PARTLY, "taken", True)


def test_the_marks_of_a_node_are_written_on_it() -> None:
    """With the plan where it has ended there."""
    found, nodes = standing(Seen(name="a"))
    one = member(found)
    found.begin(one, Phase.DRAINING, cordon=True)
    found.go_on(one, Phase.APPLYING)
    found.go_on(one, Phase.RESTORING, Outcome.FAILED)
    found.finish(one, None)
    assert nodes.written == [
        ("begin", "a", Phase.DRAINING, True),
        ("mark", "a", Phase.APPLYING, ""),
        ("mark", "a", Phase.RESTORING, f"failed:{WANTS}"),
        ("finish", "a", None),
    ]
    assert found.ends() == {}


@pytest.mark.parametrize("others", [(), (Seen(name="b"),)])
def test_the_marks_of_a_machine_that_is_no_node_are_kept(others: tuple[Seen, ...]) -> None:
    """And lead it to its end, though it joins meanwhile: the node bears nothing of it."""
    found, nodes = standing(*others)
    one = member(found)
    assert (one.in_cluster, one.is_ready, one.phase) == (False, True, Phase.IDLE)
    found.begin(one, Phase.APPLYING, cordon=False)
    assert member(found).phase is Phase.APPLYING
    nodes.seen["a"] = Seen(name="a", is_ready=True, is_cordoned=True, phase=Phase.IDLE)
    found.go_on(member(found), Phase.RESTORING, Outcome.FAILED)
    now = member(found)
    assert (now.phase, now.outcome, now.in_cluster, now.is_cordoned) == (
        Phase.RESTORING,
        Outcome.FAILED,
        bool(others),
        bool(others),
    )
    assert found.ends() == {"a": f"failed:{WANTS}"}
    found.finish(now, f"failed:{WANTS}")
    assert (member(found).phase, member(found).outcome) == (Phase.IDLE, Outcome.NONE if others else Outcome.FAILED)
    found.finish(replace(now, in_cluster=False), None)
    assert found.ends() == {}
    assert nodes.written == []


@pytest.mark.parametrize(
    ("before", "outcome"),
    [
        (f"failed:{WANTS}", Outcome.FAILED),
        ("done", Outcome.NONE),
        ("failed:another", Outcome.NONE),
        ("", Outcome.NONE),
        ("strange:x", Outcome.NONE),
    ],
)
def test_how_an_earlier_run_ended_is_known_of_a_machine_that_is_no_node(before: str, outcome: Outcome) -> None:
    """From the journal; what is no outcome is none."""
    assert member(standing(before={"a": before})[0]).outcome is outcome
