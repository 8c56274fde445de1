"""A record is decided again: the same, or what differs is told."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from click.testing import CliRunner, Result

import spillway
from autoscaler.model.actions import Grow, Memory, Plan, Waiting
from autoscaler.model.cluster import CapacityBlock
from autoscaler.planner.plan import plan
from autoscaler.record.decisions import Decision
from autoscaler.record.replay import Tally, replay
from tests.builders import a_cluster, a_gang, a_group, a_pod, a_policy, an_on_prem_node, later
from tests.test_autoscaler.test_record.test_writer import recorded


def decided(second: int = 0) -> Decision:
    """A gang that needs more than the lab has."""
    cluster = a_cluster(pods=a_gang(pods=3, gpus=8), nodes=[an_on_prem_node()], seen_at=later(seconds=second))
    return Decision(cluster, a_policy(), Memory(), plan(cluster, a_policy(), Memory()))


def asked(*line: str) -> Result:
    """`spillway autoscale replay`."""
    return CliRunner().invoke(spillway.cli, ["autoscale", "replay", *line])


def test_what_was_decided_is_decided_again(tmp_path: Path) -> None:
    """Exit status 0, and how many."""
    recorded(tmp_path, decided(), decided(60))
    done = asked(str(tmp_path))
    assert done.exit_code == 0, done.output
    assert done.output == f"{tmp_path}: 2 decided the same again, 0 otherwise\n"


def test_when_a_capacity_block_may_be_used_is_part_of_what_was_seen(tmp_path: Path) -> None:
    """Without it what was bought in the block would wait for its time to be known."""
    block = CapacityBlock(later(hours=-1), later(hours=23))
    group = a_group(capacity_type="capacity-block", reservation="cr-0123456789abcdef0", block=block)
    pod = a_pod(gpus=8, duration=timedelta(hours=2))
    cluster = a_cluster(pods=[pod], groups=[group])
    one = Decision(cluster, a_policy(), Memory(), plan(cluster, a_policy(), Memory()))
    assert [step for step in one.plan.steps if isinstance(step, Grow)]
    recorded(tmp_path, one)
    done = asked(str(tmp_path))
    assert (done.exit_code, done.output) == (0, f"{tmp_path}: 1 decided the same again, 0 otherwise\n")


def test_another_plan_is_told_value_by_value_with_exit_status_1(tmp_path: Path) -> None:
    """A price in the last digit, a step that is missing, another that is new, a reason."""
    one = decided()
    [grow] = [step for step in one.plan.steps if isinstance(step, Grow)]
    other = replace(
        one.plan,
        steps=tuple(replace(s, to=s.to + 1) if s is grow else s for s in one.plan.steps),
        waiting=(Waiting("team/x", "no"),),
        usd_per_hour=one.plan.usd_per_hour + 1e-9,
        memory=replace(one.plan.memory, leftovers=frozenset({"i-1"})),
    )
    recorded(tmp_path, replace(one, plan=other), decided(60))
    done = asked(str(tmp_path))
    assert done.exit_code == 1
    told = done.output.splitlines()
    assert all(line.startswith("2026-11-21 09:00:00.000000 ") for line in told[:-1])
    parts = {line.split(" ")[2] for line in told[:-1]}
    assert parts == {"steps:", "waiting:", "usd_per_hour:", "memory.leftovers:"}
    assert any(f"steps: was grow {grow.group} to 3 nodes" in line for line in told)
    assert any(f"steps: is grow {grow.group} to 2 nodes" in line for line in told)
    assert told[-1].endswith("1 decided the same again, 1 otherwise")


def test_one_decision_alone_is_decided_again(tmp_path: Path) -> None:
    """That which held at the time."""
    wrong = replace(decided(60), plan=Plan())
    recorded(tmp_path, decided(), wrong)
    assert asked(str(tmp_path), "--at", "2026-11-21T09:00:30+00:00").exit_code == 0
    assert asked(str(tmp_path), "--at", "2026-11-21T09:01:30+00:00").exit_code == 1
    before = asked(str(tmp_path), "--at", "2026-11-21T08:59:00+00:00")
    assert (before.exit_code, "0 decided the same" in before.output) == (1, True)


def test_a_look_that_was_doubted_is_not_decided(tmp_path: Path) -> None:
    """Nor was it then."""
    recorded(tmp_path, replace(decided(), plan=Plan(), doubt="half of the nodes seem gone"))
    tally = Tally()
    assert list(replay(tmp_path, at=None, tally=tally)) == []
    assert str(tally) == "0 decided the same again, 0 otherwise, 1 not decided, for the look was doubted"


def test_a_look_that_planning_broke_on_breaks_again(tmp_path: Path) -> None:
    """The plan that says so is the same."""

    def broken(*_given: object) -> Plan:
        raise ZeroDivisionError("of all")

    told = Plan(warnings=("planning breaks (ZeroDivisionError: of all): nothing is done",))
    recorded(tmp_path, replace(decided(), plan=told))
    tally = Tally()
    assert list(replay(tmp_path, at=None, tally=tally, planner=broken)) == []
    assert tally.same == 1


def test_a_time_that_is_none_is_refused(tmp_path: Path) -> None:
    """Before anything is read."""
    done = asked(str(tmp_path), "--at", "noon")
    assert done.exit_code == 2
    assert "write one such as 14:02" in done.output
