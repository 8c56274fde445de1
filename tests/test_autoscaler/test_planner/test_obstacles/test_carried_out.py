"""Limits and maxima as they would be once changes were made."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from autoscaler.model.actions import Backoff
from autoscaler.model.constraints import PodTerm, Requirement, Spread, Toleration
from autoscaler.model.labels import HOSTNAME, ZONE
from autoscaler.model.needed_changes import (
    CAPACITY,
    POD_RUNS,
    PULUMI_UP,
    QUOTA_RAISED,
    READY,
    UNCORDON,
    WELL,
    WORK_ENDS,
    NeededChange,
)
from autoscaler.model.pauses import Pause
from autoscaler.model.resources import Resources
from autoscaler.planner.demand.gangs import gangs_of
from autoscaler.planner.obstacles.carried_out import (
    _changed,
    _edited,
    _parts,
    _raised,
    as_changed,
    carried_out,
    entries_added,
)
from autoscaler.planner.obstacles.changes import resumed
from autoscaler.planner.obstacles.search import Search, Work
from autoscaler.planner.placement.gang_packing import Demand
from autoscaler.planner.placement.offerings import Ceilings, Market, Offering
from autoscaler.planner.placement.snapshot import Snapshot
from autoscaler.planner.supply.fleet import survey
from autoscaler.planner.supply.node_places import new_place
from tests.builders import NOW, a_cluster, a_group, a_pod, a_policy, an_entry, an_on_prem_node, later

POLICY = a_policy(
    an_entry("cpu", max=4), an_entry("gpu-a10g", max=2), limits={"usd_per_hour": 10, "nodes": 6, "gpus": 8}
)


def to(path: str, amount: float) -> NeededChange:
    """One limit is to be that."""
    return NeededChange("policy", path=path, to=amount)


@pytest.mark.parametrize(
    ("path", "amount", "expected"),
    [
        ("limits.usd_per_hour", 12.5, (12.5, 6, 8, [4, 2])),
        ("limits.usd_per_hour", 9.0, (10, 6, 8, [4, 2])),
        ("limits.nodes", 7, (10, 7, 8, [4, 2])),
        ("limits.gpus", 16, (10, 6, 16, [4, 2])),
        ("groups[cpu].max", 5, (10, 6, 8, [5, 2])),
        ("groups[gpu-a10g].max", 1, (10, 6, 8, [4, 2])),
        ("groups[other].max", 9, (10, 6, 8, [4, 2])),
    ],
)
def test_a_policy_is_edited_upwards_and_only_there(path: str, amount: float, expected: tuple[Any, ...]) -> None:
    """An answer that was found while less was asked for lowers nothing."""
    done = _edited([to(path, amount)], POLICY)
    limits = done.limits
    assert (limits.usd_per_hour, limits.nodes, limits.gpus, [entry.max for entry in done.groups]) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([], (3.0, 2, 1, 4, 100)),
        ([to("limits.usd_per_hour", 12.5)], (5.5, 2, 1, 4, 100)),
        ([to("limits.usd_per_hour", 9.0)], (3.0, 2, 1, 4, 100)),
        ([to("limits.nodes", 8)], (3.0, 4, 1, 4, 100)),
        ([to("limits.nodes", 5)], (3.0, 2, 1, 4, 100)),
        ([to("limits.gpus", 10), to("groups[cpu].max", 5)], (3.0, 2, 3, 5, 100)),
        ([to("groups[cpu].max", 3)], (3.0, 2, 1, 4, 100)),
        ([NeededChange("other", other=QUOTA_RAISED, groups=("L-1",), to=28)], (3.0, 2, 1, 4, 128)),
    ],
)
def test_what_is_left_grows_by_as_much(changes: list[NeededChange], expected: tuple[Any, ...]) -> None:
    """Of what may be bought as of now; the market's own stays as it is."""
    left = Ceilings(usd=3.0, nodes=2, gpus=1, entries={"cpu": 4}, quotas={"L-1": 100})
    search: Any = SimpleNamespace(market=SimpleNamespace(ceilings=left), policy=POLICY)
    found = _raised(changes, search)
    assert (found.usd, found.nodes, found.gpus, found.entries["cpu"], found.quotas["L-1"]) == expected
    assert (left.usd, left.nodes, left.gpus, left.entries, left.quotas) == (3.0, 2, 1, {"cpu": 4}, {"L-1": 100})


def test_what_has_no_limit_gets_none() -> None:
    """Nor does an entry that nothing is counted of."""
    search: Any = SimpleNamespace(market=SimpleNamespace(ceilings=Ceilings()), policy=a_policy())
    found = _raised([to("limits.nodes", 8), to("limits.usd_per_hour", 8.0), to("limits.gpus", 8)], search)
    assert (found.usd, found.nodes, found.gpus, found.entries) == (None, None, None, {})


def test_a_limit_of_nothing_stays_one_where_it_is_not_raised() -> None:
    """Nothing is left, whatever else changes."""
    none = a_policy(an_entry("cpu", max=0), limits={"nodes": 0, "gpus": 0})
    left = Ceilings(nodes=0, gpus=0, entries={"cpu": 0})
    search: Any = SimpleNamespace(market=SimpleNamespace(ceilings=left), policy=none)
    assert _raised([NeededChange("other", other=READY)], search) == left
    assert _raised([NeededChange("other", other=QUOTA_RAISED, groups=("L-1",), to=4)], search).quotas == {"L-1": 4}


A_NODE = a_group("gpu-a10g")


@pytest.mark.parametrize(
    ("left", "why"),
    [
        (Ceilings(), ""),
        (Ceilings(entries={"gpu-a10g": 0}), "max"),
        (Ceilings(entries={"gpu-a10g": 1, "cpu": 0}), ""),
        (Ceilings(usd=A_NODE.usd_per_hour), ""),
        (Ceilings(usd=A_NODE.usd_per_hour - 0.01), "usd_per_hour"),
        (Ceilings(nodes=0), "nodes"),
        (Ceilings(nodes=1), ""),
        (Ceilings(gpus=3), "gpus"),
        (Ceilings(gpus=4), ""),
    ],
)
def test_which_limit_one_more_node_would_break(left: Ceilings, why: str) -> None:
    """The entry's own first; what is just enough breaks none."""
    assert left.why_not(A_NODE) == why


WEB, DB = ((Requirement("app", "In", (app,)),) for app in ("web", "db"))
NEAR, APART = PodTerm(ZONE, DB, frozenset({"team"})), PodTerm(HOSTNAME, WEB, frozenset({"team"}))
SITE, FAST = Requirement("site", "In", ("x",)), Requirement("disk", "Exists")
SPREAD = (Spread(ZONE, 1, WEB), Spread(HOSTNAME, 1, WEB))
TOLERATION = Toleration("team", "Exists")
POD = a_pod(affinity=((SITE, FAST), (FAST,)), near_to=(NEAR,), apart_from=(APART,), spread=SPREAD)


def of_pod(part: str, **given: Any) -> NeededChange:
    """A change of the pod."""
    return NeededChange("pod", pod=part, **given)


@pytest.mark.parametrize(
    ("change", "changed"),
    [
        (of_pod("tolerations", toleration=TOLERATION), {"tolerations": (TOLERATION,)}),
        (of_pod("nodeAffinity", requirement=SITE), {"affinity": ((FAST,), (FAST,))}),
        (
            of_pod("nodeAffinity", requirement=SITE, to="y"),
            {"affinity": ((Requirement("site", "In", ("y",)), FAST), (FAST,))},
        ),
        (of_pod("nodeAffinity", requirement=FAST), {"affinity": ()}),
        (of_pod("podAffinity", term=NEAR), {"near_to": ()}),
        (of_pod("podAffinity", term=APART), {}),
        (of_pod("podAntiAffinity", term=APART), {"apart_from": ()}),
        (of_pod("podAntiAffinity", term=NEAR), {}),
        (of_pod("topologySpread", to=ZONE), {"spread": SPREAD[1:]}),
        (of_pod("topology", to=ZONE), {}),
        (to("limits.nodes", 8), {}),
    ],
)
def test_a_change_of_the_pod_is_made_and_nothing_else(change: NeededChange, changed: dict[str, Any]) -> None:
    """Each on the part that it names."""
    names = ("affinity", "near_to", "apart_from", "spread", "tolerations", "requests")
    found = _changed(POD, [change])
    assert {name: getattr(found, name) for name in names} == {name: getattr(POD, name) for name in names} | changed


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        (of_pod("topology", to=ZONE), False),
        (of_pod("podAffinity", term=NEAR), False),
        (of_pod("podAffinity", term=PodTerm(HOSTNAME, DB, frozenset({"team"}))), True),
        (of_pod("podAntiAffinity", term=NEAR), True),
        (to("limits.nodes", 8), True),
    ],
)
def test_a_gang_stays_together_unless_that_is_what_changes(change: NeededChange, *, kept: bool) -> None:
    """The rule of its gang, or between its pods by the same label."""
    snapshot = Snapshot((), (), [POD])
    search: Any = SimpleNamespace(snapshot=snapshot)
    demand = Demand(
        "g", ((POD.key, snapshot.shape(POD)),), minimum=1, topology=ZONE, anchor="a", assignments={POD.key: "n"}
    )
    [gang] = gangs_of([POD])
    [pod], asked = as_changed(gang, demand, [change], search)
    assert (asked.topology, asked.anchor) == ((ZONE, "a") if kept else (None, None))
    assert asked.pods == ((pod.key, snapshot.shape(pod)),)
    assert (asked.minimum, asked.assignments) == (None, {})


def test_a_pod_is_split_where_it_is_named_into_parts_of_its_own_name() -> None:
    """Each asks for its part; others stay whole."""
    split = of_pod("split", to=3, pods=(POD.key,))
    whole = a_pod("whole", cpu=3)
    assert _parts(whole, [split]) == [whole]
    parts = _parts(replace(POD, requests=Resources({"cpu": 3000})), [to("limits.nodes", 8), split])
    assert [(part.name, part.uid, part.requests["cpu"]) for part in parts] == [
        (f"pod#{number}", f"uid-team-pod#{number}", 1000) for number in range(3)
    ]
    assert _parts(POD, [of_pod("split", pods=(POD.key,))]) == [POD]


def test_an_added_entry_is_offered_as_it_says() -> None:
    """With as many pods and nodes as a node may take; other changes of the policy add none."""
    entry = NeededChange("policy", path="groups", resources=(("cpu", 2000),), labels=(("site", "x"),))
    search: Any = SimpleNamespace(policy=POLICY)
    [offering] = entries_added([to("limits.nodes", 8), entry], search)
    assert dict(offering.group.allocatable) == {"cpu": 2000, "pods": 110}
    assert (offering.group.labels, offering.buyable) == ({"site": "x"}, 110)


def a_search(**given: Any) -> Search:
    """Of a cluster, after a plan for nothing."""
    policy = given.pop("policy", POLICY)
    cluster = a_cluster(**given)
    fleet = survey(cluster, policy, {})
    snapshot = Snapshot(fleet.places, cluster.pods, [pod for pod in cluster.pods if not pod.node])
    offerings = [Offering(one, fresh, one.maximum) for one in cluster.groups]
    return Search(cluster, policy, fleet, Market(snapshot, offerings, Ceilings()), Work(1_000))


def fresh(name: str) -> Any:
    """A new node; of which it is does not matter here."""
    return new_place(A_NODE, name, dict(A_NODE.allocatable))


def test_work_that_ends_takes_nothing_and_a_partner_that_runs_is_counted() -> None:
    """The pod of another name stays; the snapshot can be taken back."""
    node = an_on_prem_node(gpus=0, cpu=10)
    there = [a_pod(name, cpu=cpu, node=node.name, phase="Running") for name, cpu in (("ends", 4), ("stays", 2))]
    search = a_search(nodes=[node], pods=[*there, a_pod("near", near_to=(NEAR,))], groups=[])
    [place] = search.snapshot.places
    assert place.free["cpu"] == 4_000
    ends = NeededChange("other", other=WORK_ENDS, pods=("team/ends",), nodes=(node.name,))
    runs = NeededChange("other", other=POD_RUNS, term=NEAR, labels=((ZONE, "a"),))
    after = carried_out([ends, runs, of_pod("podAffinity", term=NEAR)], search)
    assert after.market.thorough
    assert (place.free["cpu"], after.ended, after.taken) == (8_000, {"team/ends"}, [])
    assert search.snapshot.rules.selected(NEAR) == 1
    search.snapshot.undo(0)
    assert (place.free["cpu"], search.snapshot.rules.selected(NEAR)) == (4_000, 0)


def test_what_was_closed_or_paused_is_open_then() -> None:
    """Of those the change names, and none else."""
    refused = replace(A_NODE, desired=0)
    pauses = (Pause("group.gpu-a10g", "audit"), Pause("group.cpu", "audit"))
    search = a_search(groups=[refused, a_group("cpu")], pauses=pauses)
    search.fleet.closed.update({group.name: Backoff(later(minutes=6), 1, NOW, "x") for group in search.cluster.groups})
    again = NeededChange("other", other=CAPACITY, groups=("gpu-a10g",))
    up = NeededChange("policy", run=PULUMI_UP, groups=("cpu",))
    after = carried_out([again, resumed(pauses[0]), up], search)
    assert list(after.fleet.closed) == [a_group("cpu").name]
    assert after.cluster.pauses == pauses[1:]
    assert (len(search.fleet.closed), search.cluster.pauses) == (2, pauses)


def test_pulumi_up_builds_what_the_policy_names_with_the_sizes_that_it_says() -> None:
    """A group that it does not name stays as it is, and is not bought in."""
    groups = [a_group("gpu-a10g", maximum=1), a_group("gone", maximum=7)]
    up = NeededChange("policy", run=PULUMI_UP, groups=("cpu",))
    after = carried_out([up, to("groups[gpu-a10g].max", 5)], a_search(groups=groups))
    sizes = {(group.entry, group.zone): group.maximum for group in after.cluster.groups}
    assert sizes == {("gpu-a10g", "us-east-1a"): 5, ("gone", "us-east-1a"): 7} | {
        (entry, zone): most
        for entry, zone, most in (
            ("cpu", "us-east-1a", 4),
            ("cpu", "us-east-1b", 4),
            ("gpu-a10g", "us-east-1b", 5),
        )
    }
    buyable = {(one.group.entry, one.group.zone): one.buyable for one in after.market.offerings}
    assert buyable == {key: most for key, most in sizes.items() if key[0] != "gone"}
    as_is = carried_out([], a_search(groups=groups))
    assert [group.entry for group in as_is.cluster.groups] == ["gpu-a10g", "gone"]


@pytest.mark.parametrize(
    ("node", "change", "opens"),
    [
        ({"cordoned": True, "cordoned_by": "ada"}, NeededChange("other", run=UNCORDON, nodes=("dgx-01",)), True),
        ({"cordoned": True, "cordoned_by": "ada"}, NeededChange("other", run=UNCORDON, nodes=("dgx-02",)), False),
        ({"cordoned": True, "cordoned_by": "ada"}, NeededChange("other", other=READY, nodes=("dgx-01",)), False),
        ({"ready": False}, NeededChange("other", other=READY, nodes=("dgx-01",)), True),
        ({"ready": False}, NeededChange("other", other=WELL, nodes=("dgx-01",)), True),
        ({"ready": False}, NeededChange("other", run=UNCORDON, nodes=("dgx-01",)), False),
    ],
)
def test_a_closed_node_opens_when_what_closes_it_ends(
    node: dict[str, Any], change: NeededChange, *, opens: bool
) -> None:
    """That node, and for that reason."""
    search = a_search(nodes=[an_on_prem_node(**node)], groups=[])
    carried_out([change], search)
    assert [place.name for place in search.snapshot.places] == ["dgx-01"] * opens
