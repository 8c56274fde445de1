"""Nodes whose hardware is at fault, by their conditions: from when on, until when, and how many at one time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autoscaler.config.policy import Faults
from autoscaler.model.cluster import GpuHealth, Node, NodeCondition
from autoscaler.model.labels import AUTOSCALER
from autoscaler.planner.supply.fleet import survey
from autoscaler.planner.supply.node_faults import NodeFaults, node_faults
from tests.builders import NOW, a_cluster, a_policy, an_on_prem_node, later

READY = "AcceleratedHardwareReady"
OURS: dict[str, Any] = {"cordoned": True, "cordoned_by": AUTOSCALER}
AFTER = Faults().after


def a_node(name: str = "n1", status: str = "False", *, minutes: float = 60, kind: str = READY, **given: Any) -> Node:
    """One with that condition, since so many minutes ago."""
    return an_on_prem_node(name, conditions=(NodeCondition(kind, status, "", later(minutes=-minutes)),), **given)


def faults(
    *nodes: Node,
    share: float = 1.0,
    health: tuple[GpuHealth, ...] | None = None,
    **rules: Any,
) -> NodeFaults:
    """Of these nodes."""
    policy = a_policy().model_copy(update={"faults": Faults(share=share, **rules)})
    cluster = a_cluster(nodes=nodes, gpu_health=health)
    return node_faults(cluster, survey(cluster, policy, {}).nodes, policy)


def measured(errors: str | None, *, minutes: float = 60) -> tuple[GpuHealth, ...]:
    """What the DCGM exporter has told of the node since so many minutes."""
    return (GpuHealth("n1", errors, None if errors is None else later(minutes=-minutes)),)


def test_a_node_is_at_fault_while_its_condition_says_so() -> None:
    """In words, with the reason where there is one."""
    assert faults(a_node()).closed == {"n1": f"{READY} is False since 2026-11-21 08:00:00 UTC"}
    reason = replace(a_node(), conditions=(NodeCondition(READY, "False", "NvidiaXID95", later(minutes=-60)),))
    assert faults(reason).closed == {"n1": f"{READY} is False (NvidiaXID95) since 2026-11-21 08:00:00 UTC"}
    assert faults(a_node(status="True")) == faults(a_node(status="Unknown")) == NodeFaults()
    assert faults(a_node(kind="Other")) == NodeFaults()
    assert faults(a_node(kind="Broken", status="True"), conditions={"Broken": True}).closed.keys() == {"n1"}


def test_a_fault_counts_from_the_moment_on_at_which_it_has_lasted() -> None:
    """Until then the next look is at that moment; a condition without a time has stood since the node was made."""
    minutes = AFTER.total_seconds() / 60
    assert faults(a_node(minutes=minutes)).closed.keys() == {"n1"}
    just = faults(a_node(minutes=0))
    assert (just.closed, just.wake_at) == ({}, NOW + AFTER)
    assert faults(a_node(minutes=minutes)).wake_at is None
    old = an_on_prem_node("n1", created=later(hours=-1), conditions=(NodeCondition(READY, "False", "", None),))
    assert faults(old).closed == {"n1": f"{READY} is False since 2026-11-21 08:00:00 UTC"}
    two = faults(a_node("a", minutes=0), a_node("b", minutes=-1))
    assert two.wake_at == NOW + AFTER


@pytest.mark.parametrize(
    ("given", "minutes", "is_closed"),
    [
        (OURS, 0, True),
        (OURS, 60, False),
        ({}, 0, False),
        ({"cordoned": True, "cordoned_by": "kubectl"}, 0, False),
        ({"cordoned_by": AUTOSCALER}, 0, False),
        ({**OURS, "provider_id": "aws:///us-east-1a/i-1"}, 0, False),
    ],
)
def test_a_machine_that_we_closed_stays_closed_for_a_while_after_it_is_well_again(
    given: dict[str, Any], minutes: float, *, is_closed: bool
) -> None:
    """Not an instance, which ends anyhow; the next look is when that time is over."""
    found = faults(a_node(status="True", minutes=minutes, **given))
    assert found.closed == ({"n1": f"{READY} is well again only since 2026-11-21 09:00:00 UTC"} if is_closed else {})
    assert (found.wake_at == NOW + AFTER) is (
        bool(given.get("cordoned") and "kubectl" not in given.values()) and not minutes
    )


@pytest.mark.parametrize(
    ("share", "closed"), [(0.0, ["c"]), (0.34, ["c"]), (0.5, ["c", "a"]), (1.0, ["c", "a", "b", "d"])]
)
def test_no_more_than_a_share_is_closed_at_one_time(share: float, closed: list[str]) -> None:
    """One at least, those first that are closed already; the others are told."""
    found = faults(a_node("a"), a_node("b"), a_node("c", **OURS), a_node("d"), share=share)
    assert list(found.closed) == closed
    assert sorted([*found.closed, *found.told]) == ["a", "b", "c", "d"]


def test_a_node_is_at_fault_while_the_dcgm_exporter_tells_of_errors_of_its_gpus() -> None:
    """Where the policy says so, and from when on they have lasted."""
    ill = measured("GPU 3: Xid 79")
    told = {"n1": "the DCGM exporter tells of GPU 3: Xid 79 since 2026-11-21 08:00:00 UTC"}
    assert faults(an_on_prem_node("n1"), health=ill, dcgm=True).closed == told
    assert faults(an_on_prem_node("n1"), health=ill) == NodeFaults()
    assert faults(an_on_prem_node("n2"), health=ill, dcgm=True) == NodeFaults(), "a node that is gone"
    just = faults(an_on_prem_node("n1"), health=measured("GPU 3: Xid 79", minutes=0), dcgm=True)
    assert (just.closed, just.wake_at) == ({}, NOW + AFTER)
    for health in (measured(""), measured(None), None, ()):
        assert faults(an_on_prem_node("n1"), health=health, dcgm=True) == NodeFaults()


@pytest.mark.parametrize(
    ("health", "why"),
    [
        (measured("", minutes=60), ""),
        (measured("", minutes=0), "what DCGM measures is well again only since 2026-11-21 09:00:00 UTC"),
        (
            measured("GPU 0: Xid 95", minutes=0),
            "the DCGM exporter tells of GPU 0: Xid 95 since 2026-11-21 09:00:00 UTC",
        ),
        (measured(None), "the DCGM exporter does not say whether its GPUs are well again"),
        (None, "the DCGM exporter does not say whether its GPUs are well again"),
        ((), ""),
    ],
)
def test_a_machine_that_we_closed_is_opened_when_its_gpus_are_known_to_be_well(
    health: tuple[GpuHealth, ...] | None, why: str
) -> None:
    """Another replica has measured nothing yet; a machine without an exporter goes by its conditions alone."""
    assert faults(an_on_prem_node("n1", **OURS), health=health, dcgm=True).closed == ({"n1": why} if why else {})
    assert faults(an_on_prem_node("n1", **OURS), health=health) == NodeFaults()
    instance = an_on_prem_node("n1", **OURS, provider_id="aws:///us-east-1a/i-1")
    assert faults(instance, health=health, dcgm=True).closed == {}, "an instance ends anyhow"


def test_a_machine_that_we_closed_is_not_opened_by_a_fault_that_comes_back() -> None:
    """Which need not last anew."""
    assert faults(a_node(minutes=0, **OURS)).closed.keys() == {"n1"}
