"""What is left out, as changes that a person or a program can make."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autoscaler.config.policy import Policy
from autoscaler.model.actions import Backoff
from autoscaler.model.cluster import Cluster, Group, Pod
from autoscaler.model.constraints import PodTerm, Requirement, Spread, Taint, Toleration
from autoscaler.model.labels import HOSTNAME, ZONE
from autoscaler.model.needed_changes import (
    CAPACITY,
    POD_RUNS,
    PULUMI_UP,
    QUOTA_RAISED,
    READY,
    TIME_COMES,
    WELL,
    WORK_ENDS,
    NeededChange,
)
from autoscaler.model.pauses import BUDGET, BUYING, Pause
from autoscaler.planner.obstacles.changes import changes_of, resumed
from autoscaler.planner.obstacles.relaxations import Relaxation
from autoscaler.planner.obstacles.search import Found, Search, Work
from autoscaler.planner.obstacles.unbuilt_groups import added
from autoscaler.planner.placement.gang_packing import Placed
from autoscaler.planner.placement.offerings import Ceilings, Market, Offering
from autoscaler.planner.placement.snapshot import Snapshot
from autoscaler.planner.supply.candidate_nodes import Place
from autoscaler.planner.supply.fleet import survey
from autoscaler.planner.supply.node_places import new_place
from tests.builders import NOW, a_cluster, a_group, a_pod, a_policy, an_entry, an_on_prem_node, later

WEB, DB = ((Requirement("app", "In", (app,)),) for app in ("web", "db"))
NEAR, APART = PodTerm(ZONE, DB, frozenset({"team"})), PodTerm(HOSTNAME, WEB, frozenset({"team"}))
SITE = Requirement("site", "In", ("x",))
POD = a_pod(gpus=4)
GROUP = a_group("gpu-a10g", vcpus=48, quota="L-1", usd_per_hour=2.0)


def a_search(cluster: Cluster | None = None, policy: Policy | None = None) -> Search:
    """After a plan for nothing."""
    cluster = cluster or a_cluster(groups=[GROUP], pods=[POD])
    policy = policy or a_policy(an_entry("gpu-a10g", max=10))
    fleet = survey(cluster, policy, {})
    snapshot = Snapshot(fleet.places, cluster.pods, [pod for pod in cluster.pods if not pod.node])
    return Search(cluster, policy, fleet, Market(snapshot, (), Ceilings()), Work(1_000))


def bought(group: Group, name: str, **labels: str) -> Place:
    """A new node of the group."""
    place = new_place(group, name, dict(group.allocatable))
    return replace(place, labels={**place.labels, **labels})


def found(
    *relaxed: Relaxation, on: list[Place], search: Search, pod: Pod = POD, ended: Any = (), buys: bool = True
) -> Found:
    """The pod on each of these places, one of its like on each."""
    places = tuple((f"{pod.key}-{number}", place) for number, place in enumerate(on))
    shape = search.snapshot.shape(pod)
    return Found(
        relaxed,
        Placed(places, tuple(on) if buys else ()),
        dict.fromkeys(dict(places), shape),
        (pod,),
        frozenset(),
        ended,
    )


def changes(*relaxed: Relaxation, left: Ceilings | None = None, **given: Any) -> tuple[NeededChange, ...]:
    """What has to change."""
    search = given.pop("search", None) or a_search()
    on = given.pop("on", None) or [bought(GROUP, "g+1")]
    return changes_of(found(*relaxed, on=on, search=search, **given), search, left or Ceilings())


def of_pod(part: str, **given: Any) -> NeededChange:
    """A change of the pod."""
    return NeededChange("pod", pod=part, **given)


@pytest.mark.parametrize(
    ("relaxed", "expected"),
    [
        (
            [Relaxation("taint", taint=Taint("team", "a"))],
            [of_pod("tolerations", toleration=Toleration("team", "Equal", "a", "NoSchedule"))],
        ),
        ([Relaxation("select", requirement=SITE)], [of_pod("nodeAffinity", requirement=SITE)]),
        ([Relaxation("near", term=NEAR)], [of_pod("podAffinity", term=NEAR)]),
        ([Relaxation("apart", term=APART)], [of_pod("podAntiAffinity", term=APART)]),
        ([Relaxation("spread", key=ZONE)], [of_pod("topologySpread", to=ZONE)]),
        ([Relaxation("topology", key=ZONE)], [of_pod("topology", to=ZONE)]),
        ([Relaxation("topology", key=ZONE), Relaxation("near", term=NEAR)], [of_pod("podAffinity", term=NEAR)]),
        (
            [Relaxation("topology", key=HOSTNAME), Relaxation("near", term=NEAR)],
            [of_pod("podAffinity", term=NEAR), of_pod("topology", to=HOSTNAME)],
        ),
        (
            [Relaxation("topology", key=HOSTNAME), Relaxation("apart", term=APART)],
            [of_pod("podAntiAffinity", term=APART), of_pod("topology", to=HOSTNAME)],
        ),
        (
            [Relaxation("spread", key=ZONE), Relaxation("near", term=NEAR)],
            [of_pod("podAffinity", term=NEAR), of_pod("topologySpread", to=ZONE)],
        ),
        ([Relaxation("split", parts=2)], [of_pod("split", to=2)]),
        ([Relaxation("work"), Relaxation("usd")], []),
    ],
)
def test_each_rule_of_the_pod_that_is_left_out_is_a_change_of_it(
    relaxed: list[Relaxation], expected: list[NeededChange]
) -> None:
    """A gang that a rule between pods keeps together is told of that rule alone."""
    assert sorted(changes(*relaxed), key=str) == sorted(expected, key=str)


@pytest.mark.parametrize(
    ("labels", "requirement", "to"),
    [
        ([{"site": "y"}, {"site": "y"}], SITE, "y"),
        ([{"site": "y"}, {"site": "z"}], SITE, None),
        ([{"site": "x"}], SITE, None),
        ([{}], SITE, None),
        ([{"site": "y"}], Requirement("site", "NotIn", ("x",)), None),
    ],
)
def test_a_value_to_ask_for_is_one_that_all_its_places_have(
    labels: list[dict[str, str]], requirement: Requirement, to: str | None
) -> None:
    """And that it does not ask for already."""
    on = [bought(GROUP, f"g+{number}", **one) for number, one in enumerate(labels)]
    [change] = changes(Relaxation("select", requirement=requirement), on=on)
    assert change == of_pod("nodeAffinity", requirement=requirement, to=to)


def test_a_partner_would_have_to_run_where_there_is_room_on_a_node_that_is_there() -> None:
    """Else the rule is in the way: where the place is bought, the selector tells no pod, or its gang stays together."""
    node = an_on_prem_node(labels={ZONE: "a"})
    search = a_search(a_cluster(nodes=[node], groups=[], pods=[POD]))
    [there] = search.snapshot.places
    partner, own = Relaxation("partner", term=NEAR), {"search": search, "on": [there], "buys": False}
    assert changes(partner, **own) == (NeededChange("other", other=POD_RUNS, term=NEAR, labels=((ZONE, "a"),)),)
    assert changes(partner, **own | {"on": [there, bought(GROUP, "g+1")]}) == (of_pod("podAffinity", term=NEAR),)
    vague = PodTerm(ZONE, (Requirement("app", "Exists"),), frozenset({"team"}))
    assert changes(Relaxation("partner", term=vague), **own) == (of_pod("podAffinity", term=vague),)
    together = changes(partner, Relaxation("topology", key=ZONE), **own)
    assert together == (of_pod("podAffinity", term=NEAR),)
    other_key = changes(partner, Relaxation("topology", key=HOSTNAME), **own)
    assert {one.other or one.pod for one in other_key} == {POD_RUNS, "topology"}


@pytest.mark.parametrize(
    ("limits", "left", "expected"),
    [
        ({"usd_per_hour": 10}, {"usd": 4.0}, []),
        ({"usd_per_hour": 10}, {"usd": 3.0}, [NeededChange("money", path="limits.usd_per_hour", to=11.0)]),
        ({}, {"usd": 0.0}, []),
        ({"nodes": 5}, {"nodes": 2}, []),
        ({"nodes": 5}, {"nodes": 1}, [NeededChange("policy", path="limits.nodes", to=6)]),
        ({"gpus": 16}, {"gpus": 8}, []),
        ({"gpus": 16}, {"gpus": 3}, [NeededChange("policy", path="limits.gpus", to=21)]),
        ({}, {"entries": {"gpu-a10g": 2}}, []),
        ({}, {"entries": {"gpu-a10g": -1}}, [NeededChange("policy", path="groups[gpu-a10g].max", to=13)]),
        ({}, {"entries": {"cpu": 0}}, []),
        ({}, {"quotas": {"L-1": 96}}, []),
        ({}, {"quotas": {"L-1": 90}}, [NeededChange("other", other=QUOTA_RAISED, groups=("L-1",), to=6)]),
    ],
)
def test_a_limit_is_raised_by_what_lacks(
    limits: dict[str, Any], left: dict[str, Any], expected: list[NeededChange]
) -> None:
    """Two nodes of 2 dollars, 4 GPUs and 48 vCPUs each; what is just enough is left as it is."""
    search = a_search(policy=a_policy(an_entry("gpu-a10g", max=10), limits=limits))
    on = [bought(GROUP, "g+1"), bought(GROUP, "g+2")]
    assert list(changes(search=search, on=on, left=Ceilings(**left))) == expected
    assert changes(search=search, on=on, left=Ceilings(**left), buys=False) == ()


def test_pulumi_has_to_run_for_groups_that_lack_or_are_too_small() -> None:
    """With all that is bought for this gang and others; not for an entry that is to be added."""
    up = Relaxation("pulumi")
    small, large = replace(GROUP, maximum=1), replace(a_group("cpu"), maximum=9)
    search = a_search(a_cluster(groups=[small, large], pods=[POD]))
    search.market.bought.update({small.name: 2, large.name: 9})
    on = [bought(small, "s+1"), bought(large, "l+1"), bought(a_group("gpu-a100"), "n+1")]
    assert changes(up, search=search, on=on) == (
        NeededChange("policy", run=PULUMI_UP, groups=("gpu-a100", "gpu-a10g")),
    )
    search.market.cancelled[small.name] = 1
    assert changes(up, search=search, on=on[:2]) == ()
    assert changes(search=search, on=on) == ()
    new = added({"cpu": 1000, "pods": 1}, {"site": "x"}, search.policy)
    entry = NeededChange("policy", path="groups", resources=(("cpu", 1000),), labels=(("site", "x"),))
    assert changes(up, search=search, on=[new.new_place("new")]) == (entry,)


def test_what_is_closed_is_asked_again_after_the_last_of_its_groups() -> None:
    """Of those that it would be bought in; a pause ends by its own command."""
    other = a_group("cpu")
    pauses = (Pause("group.gpu-a10g", "audit"), Pause("group.cpu", "audit"))
    search = a_search(a_cluster(groups=[GROUP, other], pods=[POD], pauses=pauses))
    search.fleet.closed.update(
        {GROUP.name: Backoff(later(minutes=6), 1, NOW, "x"), other.name: Backoff(later(minutes=9), 1, NOW, "x")}
    )
    note = "asked again after 2026-11-21 09:06:00 UTC"
    assert changes(Relaxation("capacity"), search=search) == (
        NeededChange("other", other=CAPACITY, groups=("gpu-a10g",), note=note),
    )
    on = [bought(GROUP, "g+1"), bought(a_group("gpu-a100"), "n+1")]
    [closed] = changes(Relaxation("capacity"), search=search, on=on)
    assert closed.groups == ("gpu-a10g",)
    assert changes(Relaxation("resume"), search=search) == (resumed(pauses[0]),)
    assert changes(search=search) == ()


def test_each_pause_that_stops_buying_in_a_group_has_to_end() -> None:
    """Its own, and that of all; not that of another group. What is said in words names both too."""
    pauses = (Pause("all", "night"), Pause("group.cpu", "audit"), Pause("group.gpu-a10g", "audit"))
    search = a_search(a_cluster(groups=[GROUP, a_group("cpu")], pods=[POD], pauses=pauses))
    assert changes(Relaxation("resume"), search=search) == (resumed(pauses[0]), resumed(pauses[2]))
    assert search.fleet.paused[GROUP.name] == (pauses[0], pauses[2])


@pytest.mark.parametrize(
    ("pause", "kind", "text"),
    [
        (Pause("group.cpu", "audit"), "policy", " --group cpu"),
        (Pause(BUYING, "audit"), "policy", " --buying"),
        (Pause("all", "audit"), "policy", ""),
    ],
)
def test_a_pause_ends_by_the_command_that_names_it(pause: Pause, kind: str, text: str) -> None:
    """A budget's by time."""
    change = resumed(pause)
    assert change.kind == kind
    assert change.run.endswith(f"resume{text}")
    budget = resumed(replace(pause, scope=f"{BUDGET}x"))
    assert (budget.kind, budget.other, budget.run) == ("other", TIME_COMES, "")


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ({}, []),
        ({"cordoned": True, "cordoned_by": "ada"}, ["uncordon"]),
        ({"ready": False}, [READY]),
        ({"ready": False, "cordoned": True}, [READY, "uncordon"]),
    ],
)
def test_a_closed_node_has_to_open(node: dict[str, Any], expected: list[str]) -> None:
    """Of those that the pod would be on."""
    nodes = [an_on_prem_node(**node), an_on_prem_node("dgx-02", ready=False)]
    search = a_search(a_cluster(nodes=nodes, groups=[], pods=[POD]))
    search.closed.open(search.snapshot, cordoned=search.closed.names, unfit=search.closed.names)
    place = search.snapshot.place("dgx-01")
    assert place is not None
    said = changes(search=search, on=[place], buys=False)
    assert sorted("uncordon" if "uncordon" in one.run else one.other for one in said) == sorted(expected)
    assert all(one.nodes == ("dgx-01",) for one in said)
    if expected == [READY]:
        object.__setattr__(search.fleet, "faults", replace(search.fleet.faults, closed={"dgx-01": "Xid 79"}))
        said = changes(search=search, on=[place], buys=False)
        assert {one.other for one in said} == {READY, WELL}


def test_only_pods_without_whose_end_there_is_no_room_have_to_end() -> None:
    """The largest that is left, when those that fit again are put back, the smallest first."""
    node = an_on_prem_node(gpus=8, cpu=20)
    there = [
        a_pod("small", gpus=1, node=node.name, phase="Running"),
        a_pod("large", gpus=4, node=node.name, phase="Running"),
        a_pod("cpu", cpu=9, node=node.name, phase="Running"),
    ]
    search = a_search(a_cluster(nodes=[node], groups=[], pods=[POD, *there]))
    [place] = search.snapshot.places
    for pod in there:
        search.snapshot.remove_pod(search.snapshot.shape(pod), place)
    search.snapshot.put(search.snapshot.shape(POD), place, f"{POD.key}-0")
    ended = tuple((place, pod) for pod in there)
    said = changes(search=search, on=[place], buys=False, ended=ended)
    assert said == (NeededChange("other", other=WORK_ENDS, nodes=(node.name,), pods=("team/large",)),)
    assert place.free["nvidia.com/gpu"] == 3


@pytest.mark.parametrize("whose", ["its", "the pod's"])
def test_a_pod_that_keeps_the_other_away_has_to_end(whose: str) -> None:
    """Or that it keeps away from; one elsewhere can stay."""
    rule = {"apart_from": (APART,)}
    pod = a_pod(labels={"app": "web"}, **(rule if whose == "the pod's" else {}))
    nodes = [an_on_prem_node(name, gpus=0) for name in ("dgx-01", "dgx-02")]
    there = [
        a_pod(
            f"on-{node.name}",
            labels={"app": "web"},
            node=node.name,
            phase="Running",
            **(rule if whose == "its" else {}),
        )
        for node in nodes
    ]
    search = a_search(a_cluster(nodes=nodes, groups=[], pods=[pod, *there]))
    first, second = search.snapshot.places
    for one, place in zip(there, (first, second), strict=True):
        search.snapshot.remove_pod(search.snapshot.shape(one), place)
    search.snapshot.put(search.snapshot.shape(pod), first, f"{pod.key}-0")
    said = changes(search=search, pod=pod, on=[first], buys=False, ended=((first, there[0]), (second, there[1])))
    assert [one.pods for one in said] == [("team/on-dgx-01",)]


def test_an_offering_is_told_by_its_group() -> None:
    """Spread by what the pod asks: nothing is asked of a gang that is placed as it is."""
    pod = a_pod(spread=(Spread(ZONE, 1, WEB),))
    search = a_search(a_cluster(groups=[GROUP], pods=[pod]))
    offering = Offering(GROUP, lambda name: bought(GROUP, name), 1)
    assert changes(search=search, pod=pod, on=[offering.new_place("g+1")]) == ()
