"""A snapshot answers as the rules say of all pods that are where they are then, whatever was put and taken back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest

from autoscaler.model.cluster import Pod
from autoscaler.model.constraints import PodTerm, Requirement, Spread, Term
from autoscaler.model.feasibility import NODE_NAME, term_holds
from autoscaler.model.labels import GPU, HOSTNAME, ZONE
from autoscaler.planner.placement.interpod_rules import term_selects
from autoscaler.planner.placement.snapshot import Snapshot
from autoscaler.planner.supply.candidate_nodes import Place, harm
from tests.builders import a_pod, an_on_prem_node

Where = list[tuple[Pod, Place]]
ROOM = {"cpu": 6_000, "memory": 2**40, "pods": 110}
WEB, DB = ((Requirement("app", "In", (app,)),) for app in ("web", "db"))
NOT_WEB = (Requirement("app", "NotIn", ("web",)),)
TEAM, BOTH = frozenset({"team"}), frozenset({"team", "else"})
HTTP = frozenset({("TCP", 80)})


def a_place(name: str, zone: str = "", **given: Any) -> Place:
    """A machine with six CPUs free; without a zone it has no such label."""
    labels = {HOSTNAME: name} | ({ZONE: zone} if zone else {})
    return Place(**{"name": name, "labels": labels, "taints": (), "free": dict(ROOM), "tier": 0} | given)


def is_meant(selector: Term, namespaces: Iterable[str], pod: Pod) -> bool:
    """Whether a rule is about the pod."""
    return pod.namespace in namespaces and term_holds(selector, pod.labels)


def allowed(pod: Pod, place: Place, where: Where, places: Sequence[Place]) -> bool:
    """What the scheduler would say, each rule asked of each pod."""
    there = [one for one, other in where if other is place]
    cpu = sum(one.requests["cpu"] for one in there) + pod.requests["cpu"]
    if cpu > ROOM["cpu"] or any(one.host_ports & pod.host_ports for one in there) or not _selects(pod, place):
        return False
    for one, other in where:
        for rule, about in ((pod, one), (one, pod)):
            for term in rule.apart_from:
                mine, its = place.labels.get(term.topology_key), other.labels.get(term.topology_key)
                if mine is not None and mine == its and is_meant(term.selector, term.namespaces, about):
                    return False
    evenly = all(_is_even(pod, one, place, where, places) for one in pod.spread)
    return evenly and _is_near(pod, place, where) and _is_even_for_planned(pod, place, where, places)


def _is_near(pod: Pod, place: Place, where: Where) -> bool:
    if any(term.topology_key not in place.labels for term in pod.near_to):
        return False
    company = [other for one, other in where if all(is_meant(t.selector, t.namespaces, one) for t in pod.near_to)]
    domains = {(term.topology_key, other.labels.get(term.topology_key)) for term in pod.near_to for other in company}
    if all(value is None for _, value in domains) and all(is_meant(t.selector, t.namespaces, pod) for t in pod.near_to):
        return True  # the first of its kind
    return all((term.topology_key, place.labels[term.topology_key]) in domains for term in pod.near_to)


def _is_even(
    pod: Pod, rule: Spread, place: Place, where: Where, places: Sequence[Place], *, joins: Pod | None = None
) -> bool:
    """Of a pod's rule, when the pod itself, or one that joins it, comes to the place."""
    key, keys = rule.topology_key, {one.topology_key for one in pod.spread}
    if joins is None and not keys <= place.labels.keys():
        return False
    counted = [one for one in places if keys <= one.labels.keys() and _selects(pod, one)]
    domains = {one.labels[key] for one in counted}
    met = (other for one, other in where if is_meant(rule.selector, {pod.namespace}, one))
    many = Counter(other.labels[key] for other in met if any(other is one for one in counted))
    fewest = min((many[one] for one in domains), default=0)
    if rule.min_domains is not None and len(domains) < rule.min_domains:
        fewest = 0
    more = is_meant(rule.selector, {pod.namespace}, pod if joins is None else joins)
    return many[place.labels[key]] + more - fewest <= rule.max_skew


def _is_even_for_planned(pod: Pod, place: Place, where: Where, places: Sequence[Place]) -> bool:
    """The scheduler may come to those that are not bound after this one."""
    return all(
        _is_even(one, rule, place, where, places, joins=pod)
        for one, other in where
        if one.name.startswith("new")
        for rule in one.spread
        if is_meant(rule.selector, {one.namespace}, pod)
        and place.labels.get(rule.topology_key) == other.labels[rule.topology_key]
    )


def _selects(pod: Pod, place: Place) -> bool:
    return not pod.affinity or any(term_holds(term, place.labels, place.name) for term in pod.affinity)


def drawn_place(dice: Random, name: str, zone: str) -> Place:
    """A machine that may have an SSD."""
    place = a_place(name, zone)
    return replace(place, labels={**place.labels, "disk": "ssd"}) if dice.random() < 0.5 else place


def some_rules(dice: Random) -> dict[str, Any]:
    """One or two, or none."""
    terms = [PodTerm(key, one, ns) for key in (HOSTNAME, ZONE) for one in (WEB, DB, NOT_WEB) for ns in (TEAM, BOTH)]
    spreads = [
        Spread(key, skew, one, min_domains=least)
        for key in (HOSTNAME, ZONE)
        for one in (WEB, DB)
        for skew, least in ((1, None), (2, None), (1, 4))
    ]
    kinds: list[dict[str, Any]] = [
        {},
        {"apart_from": tuple(dice.sample(terms, dice.randint(1, 2)))},
        {"near_to": tuple(dice.sample(terms, dice.randint(1, 2)))},
        {"spread": tuple(dice.sample(spreads, dice.randint(1, 2)))},
        {"spread": tuple(dice.sample(spreads, 1)), "affinity": ((Requirement(ZONE, "In", ("a", "b")),),)},
        {"spread": tuple(dice.sample(spreads, 1)), "affinity": ON_SSD},
        {"host_ports": HTTP},
    ]
    return dice.choice(kinds) | dice.choice(kinds)


def some_pods(dice: Random, stem: str, many: int) -> list[Pod]:
    """Of two applications in two namespaces."""
    return [
        a_pod(
            f"{stem}{number}",
            cpu=dice.randint(1, 3),
            labels=dice.choice(({"app": "web"}, {"app": "db"}, {})),
            namespace=dice.choice(("team", "team", "else")),
            **some_rules(dice),
        )
        for number in range(many)
    ]


@dataclass
class Story:
    """A snapshot that is changed, and what is where by the same changes."""

    dice: Random
    zones: Sequence[str]
    places: list[Place]
    closed: list[Place]
    where: Where
    pending: list[Pod]
    snapshot: Snapshot
    marks: list[tuple[int, Where, list[Place]]] = field(default_factory=list)

    @classmethod
    def begun(cls, dice: Random) -> Story:
        """Three to five machines, and one that is closed, with some pods on them."""
        zones = ["a", "a", "b", "c", ""]
        places = [drawn_place(dice, f"n{number}", zone) for number, zone in enumerate(zones[: dice.randint(3, 5)])]
        closed = [a_place("closed", "d")]
        where: Where = []
        residents = []
        for pod in some_pods(dice, "old", 6):
            place = dice.choice([*places, *closed])
            if not any(one.host_ports & pod.host_ports for one, other in where if other is place):
                where.append((pod, place))
                residents.append(a_pod(pod.name, **_as_given(pod), node=place.name, phase="Running"))
                for name, amount in pod.requests.items():
                    place.free[name] = place.free.get(name, 0) - amount
                place.ports |= pod.host_ports
        pending = some_pods(dice, "new", 7)
        return cls(dice, zones, places, closed, where, pending, Snapshot(places, residents, pending, closed=closed))

    def may(self, pod: Pod, where: Where) -> list[Place]:
        """Where the rules let it go."""
        return [place for place in self.places if allowed(pod, place, where, [*self.places, *self.closed])]

    def check(self) -> None:
        """Which places suit each pending pod, and which is found."""
        for pod in self.pending:
            shape, may = self.snapshot.shape(pod), self.may(pod, self.where)
            said = [place for place in self.places if self.snapshot.why_not(shape, place) is None]
            assert said == may, (pod, self.where)
            within = self.dice.choice([(HOSTNAME, "n1"), (ZONE, "a"), (ZONE, "d"), (HOSTNAME, "closed")])
            there = [place for place in may if place.labels.get(within[0]) == within[1]]
            for places, found in ((may, self.snapshot.find(shape)), (there, self.snapshot.find(shape, within))):
                assert found is min(places, key=lambda place: (harm(place), place.name), default=None)

    def change(self) -> None:
        """Put a pod, have one leave or move, add a machine, or take back all since some moment."""
        puts = [self._put] * 3
        self.dice.choice([*puts, self._mark, self._undo, self._leave, self._add, self._move])()

    def _put(self) -> None:
        pod = self.dice.choice(self.pending)
        may = [] if any(one is pod for one, _ in self.where) else self.may(pod, self.where)
        if may:
            self.snapshot.put(self.snapshot.shape(pod), place := self.dice.choice(may), pod.key)
            self.where = [*self.where, (pod, place)]

    def _mark(self) -> None:
        self.marks.append((self.snapshot.mark(), self.where, self.places))

    def _undo(self) -> None:
        if self.marks:
            mark, self.where, self.places = self.marks.pop()
            self.snapshot.undo(mark)
            assert self.snapshot.places == self.places

    def _leave(self) -> None:
        if bound := [one for one in self.where if one[0].name.startswith("old")]:
            gone = self.dice.choice(bound)
            self.snapshot.remove_pod(self.snapshot.shape(gone[0]), gone[1])
            self.where = [one for one in self.where if one is not gone]
            if self.dice.random() < 0.3:
                self.snapshot.restore_pod(self.snapshot.shape(gone[0]), gone[1])
                self.where = [*self.where, gone]

    def _add(self) -> None:
        self.snapshot.add(new := drawn_place(self.dice, f"more{len(self.places)}", self.dice.choice(self.zones)))
        self.places = [*self.places, new]

    def _move(self) -> None:
        ours = [(pod, place) for pod, place in self.where if pod.key in place.guests]
        if not ours or self.marks:
            return
        pod, old = self.dice.choice(ours)
        left = [one for one in self.where if one != (pod, old)]
        if may := self.may(pod, left):
            self.snapshot.move(self.snapshot.shape(pod), old, new := self.dice.choice(may), pod.key)
            assert pod.key in new.guests
            assert (pod.key in old.guests) is (old is new)
            self.where = [*left, (pod, new)]


@pytest.mark.parametrize("seed", range(40))
def test_the_rules_hold_of_whatever_is_put_counted_and_taken_back(seed: int) -> None:
    """Asked of each pod and place after each change."""
    story = Story.begun(Random(seed))  # noqa: S311 - the same clusters every time
    assert all(story.snapshot.shape(pod) is story.snapshot.shape(pod) for pod in story.pending)
    for _ in range(9):
        story.check()
        story.change()
    story.check()


def _as_given(pod: Pod) -> dict[str, Any]:
    names = ("namespace", "labels", "requests", "apart_from", "near_to", "spread", "affinity", "host_ports")
    return {name: getattr(pod, name) for name in names}


def keeps_off(key: str, selector: Term = WEB) -> dict[str, Any]:
    """Anti-affinity of the namespace's own pods."""
    return {"apart_from": (PodTerm(key, selector, TEAM),)}


def a_snapshot(*pending: Pod, residents: Sequence[Pod] = ()) -> tuple[Snapshot, list[Any]]:
    """Two hosts of one zone and one of another, and the shapes of the pending pods."""
    snapshot = Snapshot([a_place("n0", "a"), a_place("n1", "a"), a_place("n2", "b")], residents, pending)
    return snapshot, [snapshot.shape(pod) for pod in pending]


ON_SSD = ((Requirement("disk", "In", ("ssd",)),),)
IS_WEB = {"labels": {"app": "web"}}
EVEN_BY_ZONE = {"spread": (Spread(ZONE, 1, WEB),)}


@pytest.mark.parametrize(
    ("pod", "other", "alone"),
    [
        ({}, {}, True),
        ({}, keeps_off(HOSTNAME), True),
        (IS_WEB, keeps_off(HOSTNAME), False),
        (IS_WEB | {"namespace": "else"}, keeps_off(HOSTNAME), True),
        (keeps_off(HOSTNAME), {}, False),
        (EVEN_BY_ZONE, {}, False),
        ({"near_to": (PodTerm(ZONE, WEB, TEAM),)}, {}, False),
        ({"host_ports": HTTP}, {}, False),
        (IS_WEB, EVEN_BY_ZONE, True),
    ],
)
def test_a_pod_stands_alone_where_no_rule_has_a_say(pod: dict[str, Any], other: dict[str, Any], *, alone: bool) -> None:
    """Its own, or one of another that keeps it off; also of one that is there."""
    snapshot, (shape, _) = a_snapshot(a_pod(**pod), a_pod("other", **other))
    assert snapshot.stands_alone(shape) is alone
    there = a_pod("other", node="n0", phase="Running", **other)
    snapshot, (shape,) = a_snapshot(a_pod(**pod), residents=[there])
    assert snapshot.stands_alone(shape) is alone


@pytest.mark.parametrize(
    ("rules", "common"),
    [
        ({}, True),
        (keeps_off(HOSTNAME), True),
        (keeps_off(ZONE), True),
        (keeps_off("rack"), False),
        (EVEN_BY_ZONE, True),
        ({"spread": (Spread(HOSTNAME, 1, WEB),)}, True),
        ({"spread": (Spread("rack", 1, WEB),)}, False),
        ({"near_to": (PodTerm(ZONE, WEB, TEAM),)}, True),
        ({"near_to": (PodTerm(HOSTNAME, WEB, TEAM),)}, False),
    ],
)
def test_common_rules_are_by_zone_or_keep_pods_off_hosts(rules: dict[str, Any], *, common: bool) -> None:
    """Those of the pod, and of others that mean it."""
    snapshot, (shape,) = a_snapshot(a_pod(**rules))
    assert snapshot.rules.are_by_host_or_zone(shape) is common
    snapshot, (shape, _) = a_snapshot(a_pod(**IS_WEB), a_pod("other", **rules))
    assert snapshot.rules.are_by_host_or_zone(shape) is (common or "apart_from" not in rules)


@pytest.mark.parametrize(
    ("rules", "by", "its_own", "others"),
    [
        ({}, [], [], []),
        (keeps_off(ZONE), [ZONE], [ZONE], [ZONE]),
        (keeps_off(HOSTNAME, DB), [HOSTNAME], [HOSTNAME], []),
        (EVEN_BY_ZONE, [ZONE], [ZONE], [ZONE]),
        ({"near_to": (PodTerm(ZONE, DB, TEAM),)}, [ZONE], [ZONE], []),
        ({"near_to": (PodTerm(ZONE, WEB, TEAM),)}, [ZONE], [ZONE], [ZONE]),
    ],
)
def test_by_which_labels_pods_are_counted(
    rules: dict[str, Any], by: list[str], its_own: list[str], others: list[str]
) -> None:
    """At all; and pods of a shape, by their own rules or by those of others that mean them."""
    snapshot, (own, web) = a_snapshot(a_pod("own", **rules), a_pod("other", cpu=2, **IS_WEB))
    assert [key for key in (HOSTNAME, ZONE) if snapshot.rules.count_by(key)] == by
    assert [key for key in (HOSTNAME, ZONE) if snapshot.rules.count_shape_by(own, key)] == its_own
    assert [key for key in (HOSTNAME, ZONE) if snapshot.rules.count_shape_by(web, key)] == others


def test_a_rule_of_a_pod_that_is_there_counts_by_its_label() -> None:
    """Also where no pending pod has one; and one of another namespace means no pod."""
    there = a_pod("there", node="n0", phase="Running", **keeps_off(ZONE))
    snapshot, (web, plain) = a_snapshot(a_pod("web", **IS_WEB), a_pod(), residents=[there])
    assert (snapshot.rules.count_by(ZONE), snapshot.rules.count_by(HOSTNAME)) == (True, False)
    assert (snapshot.rules.count_shape_by(web, ZONE), snapshot.rules.count_shape_by(plain, ZONE)) == (True, False)
    assert [place.name for place in snapshot.places if snapshot.rules.why_not(web, place) is None] == ["n2"]


def test_how_many_pods_a_rule_counts_where_and_whether_two_places_differ_to_it() -> None:
    """Two in one zone, as two rules count them, and one that has none."""
    rules = {"spread": (Spread(ZONE, 1, WEB), Spread(HOSTNAME, 2, WEB)), "apart_from": (PodTerm(ZONE, DB, TEAM),)}
    there = [a_pod(f"w{n}", node=f"n{n}", phase="Running", **IS_WEB) for n in range(2)]
    snapshot, (web, plain) = a_snapshot(a_pod("web", **IS_WEB, **rules), a_pod(), residents=there)
    assert [snapshot.rules.counted_with(web, ZONE, one) for one in ("a", "b")] == [2, 0]
    assert [snapshot.rules.counted_with(web, HOSTNAME, one) for one in ("n0", "n2")] == [1, 0]
    assert snapshot.rules.counted_with(plain, ZONE, "a") == 0
    assert snapshot.rules.selected(PodTerm(ZONE, DB, TEAM)) == 0
    n0, n1, n2 = snapshot.places
    assert [snapshot.rules.tell_apart(web, n0, one) for one in (n0, n1, n2)] == [False, True, True]
    assert not snapshot.rules.tell_apart(plain, n0, n2)
    mark = snapshot.mark()
    snapshot.count(web, {ZONE: "b"}, 2)
    assert [snapshot.rules.counted_with(web, ZONE, one) for one in ("a", "b")] == [2, 2]
    snapshot.undo(mark)
    assert [snapshot.rules.counted_with(web, ZONE, one) for one in ("a", "b")] == [2, 0]
    assert term_selects(PodTerm(ZONE, WEB, TEAM), web)
    assert not term_selects(PodTerm(ZONE, WEB, frozenset({"else"})), web)
    assert not term_selects(PodTerm(ZONE, DB, TEAM), web)


def test_the_first_of_a_kind_is_first_where_others_are_on_machines_without_a_zone() -> None:
    """Those are in no domain: the scheduler lets the next one go anywhere, and so may a node be bought for it."""
    near = {"near_to": (PodTerm(ZONE, WEB, TEAM),)}
    there = a_pod("w0", node="own", phase="Running", **IS_WEB)
    pending = [a_pod("web", **IS_WEB, **near), a_pod("db", labels={"app": "db"}, **near)]
    snapshot = Snapshot([a_place("own"), a_place("n0", "a")], [there], pending)
    web, other = map(snapshot.shape, pending)
    assert snapshot.find(web) is snapshot.places[1]
    assert snapshot.find(other) is None


def test_affinity_of_several_terms_is_to_pods_that_all_of_them_select() -> None:
    """As in the scheduler: a pod that one term selects, and another that the other does, are not enough."""
    both = PodTerm(ZONE, WEB, TEAM), PodTerm(ZONE, (Requirement("tier", "In", ("front",)),), TEAM)
    there = [
        a_pod("web", node="n0", phase="Running", **IS_WEB),
        a_pod("front", node="n0", phase="Running", labels={"tier": "front"}),
        a_pod("both", node="n2", phase="Running", labels={"app": "web", "tier": "front"}),
    ]
    snapshot, (near,) = a_snapshot(a_pod(near_to=both), residents=there)
    n0, _, n2 = snapshot.places
    assert snapshot.find(near) is n2
    why = snapshot.why_not(near, n0)
    assert why is not None
    assert "no pod of which app is web and tier is front runs in its zone" in why.kind


def test_a_spread_counts_pods_on_the_nodes_alone_that_its_pod_may_go_to() -> None:
    """As the scheduler does (``nodeAffinityPolicy: Honor``): others of the zone are none of its business."""
    ssd = {name: replace(one := a_place(name, name[-1]), labels={**one.labels, "disk": "ssd"}) for name in ("1a", "2b")}
    places = [*ssd.values(), a_place("3", "b")]
    there = [a_pod(f"w{number}", node="3", phase="Running", **IS_WEB) for number in range(2)]
    pending = [a_pod("web", affinity=ON_SSD, **IS_WEB, **EVEN_BY_ZONE)]
    snapshot = Snapshot(places, there, pending)
    web = snapshot.shape(pending[0])
    assert [snapshot.why_not(web, place) is None for place in places] == [True, True, False]
    snapshot.put(web, ssd["2b"], "web")
    assert [snapshot.why_not(web, place) is None for place in places] == [True, False, False]
    snapshot.count(web, {ZONE: "a"}, 2)
    assert [snapshot.why_not(web, place) is None for place in places] == [False, True, False]


def test_zones_in_which_nodes_may_be_bought_count_as_empty_domains() -> None:
    """One that is there must leave the others room for as many, as the scheduler will see it."""
    there = [a_pod("w0", node="n0", phase="Running", **IS_WEB), a_pod("w2", node="n2", phase="Running", **IS_WEB)]
    snapshot, (web,) = a_snapshot(a_pod("web", **IS_WEB, **EVEN_BY_ZONE), residents=there)
    assert snapshot.find(web) is not None
    snapshot.rules.expect([a_place("new", "c")], lambda _: False)
    assert snapshot.find(web) is None


@pytest.mark.parametrize(("there", "to_come", "has_room"), [(True, 1, True), (False, 0, True), (False, 1, False)])
def test_a_node_that_may_be_bought_is_an_empty_host_for_pods_on_nodes_to_come(
    *, there: bool, to_come: int, has_room: bool
) -> None:
    """Pods of nodes that have joined are bound before others join; those of nodes to come when all of them have."""
    node = an_on_prem_node("there") if there else None
    places = [a_place(name, "a", node=node) for name in ("n0", "n1")]
    residents = [a_pod(f"w{number}", node=f"n{number}", phase="Running", **IS_WEB) for number in (0, 1)]
    pods = [a_pod("web", **IS_WEB, spread=(Spread(HOSTNAME, 1, WEB),)), a_pod("other", **IS_WEB)]
    snapshot = Snapshot(places, residents, pods)
    web, other = map(snapshot.shape, pods)
    snapshot.rules.expect([a_place("new", "a")], lambda _: bool(to_come))
    assert (snapshot.find(web) is not None) == has_room
    if has_room:
        snapshot.put(web, places[0], "web")
        assert snapshot.find(other) is places[1]


def test_a_new_node_is_judged_by_itself() -> None:
    """By room, labels and taints, not by what is around."""
    snapshot, (wide, zoned) = a_snapshot(
        a_pod("wide", cpu=7), a_pod("zoned", affinity=((Requirement(ZONE, "In", ("b",)),),))
    )
    a, b = a_place("a+?", "a"), a_place("b+?", "b", free=ROOM | {"cpu": 7_000})
    assert [snapshot.why_not_new(wide, one) is None for one in (a, b)] == [False, True]
    assert [snapshot.why_not_new(zoned, one) is None for one in (a, b)] == [False, True]
    assert [snapshot.suits(wide, one) for one in (a, b)] == [True, True]
    assert [snapshot.suits(zoned, one) for one in (a, b)] == [False, True]


def test_a_node_takes_its_first_pod_when_it_is_opened_and_closes_with_it() -> None:
    """A fresh one is not found; what was put first opens it, and taking that back closes it."""
    snapshot, (shape,) = a_snapshot(a_pod(cpu=1))
    mark = snapshot.mark()
    fresh = a_place("fresh", "a", standing=False, tier=-1)
    snapshot.add(fresh)
    assert (snapshot.place("fresh"), snapshot.place_on("fresh"), fresh.index) == (fresh, fresh, 3)
    assert snapshot.find(shape) is not fresh
    assert snapshot.find(shape, (HOSTNAME, "fresh")) is None
    inner = snapshot.mark()
    snapshot.put(shape, fresh, "team/pod")
    assert snapshot.find(shape) is snapshot.find(shape, (HOSTNAME, "fresh")) is fresh
    snapshot.undo(inner)
    assert (fresh.standing, fresh.guests, fresh.free) == (False, [], ROOM)
    snapshot.undo(mark)
    assert (snapshot.place("fresh"), snapshot.place_on("fresh"), len(snapshot.places)) == (None, None, 3)
    snapshot.add(fresh)
    snapshot.remove(fresh)
    assert (snapshot.place("fresh"), len(snapshot.places), fresh.index) == (None, 3, -1)


def test_the_places_that_take_a_shape_follow_those_that_are_there() -> None:
    """By labels and taints, whatever is free."""
    snapshot, (shape,) = a_snapshot(a_pod(cpu=99, affinity=((Requirement(ZONE, "In", ("b",)),),)))
    assert [place.name for place in snapshot.takers(shape)] == ["n2"]
    snapshot.add(a_place("n3", "b"))
    assert [place.name for place in snapshot.takers(shape)] == ["n2", "n3"]


def test_reasons_are_of_nodes_that_are_there() -> None:
    """A node that would be bought is none."""
    snapshot, (shape,) = a_snapshot(a_pod(gpus=1))
    assert list(snapshot.reasons(shape)) == []
    snapshot.places[1].node = an_on_prem_node("n1", gpus=0)
    snapshot.places[2].node = an_on_prem_node("n2", gpus=8)
    snapshot.places[2].free[GPU] = 1
    assert [one.kind for one in snapshot.reasons(shape)] == [f"not enough {GPU}"]


@pytest.mark.parametrize(
    ("rules", "there", "why"),
    [
        (
            keeps_off(HOSTNAME),
            IS_WEB,
            "a pod of which app is web runs on the node, which the pod's anti-affinity forbids",
        ),
        (IS_WEB, keeps_off(ZONE), "the anti-affinity of a pod that runs in its zone forbids it"),
        (
            {"near_to": (PodTerm(ZONE, DB, TEAM),)},
            {},
            "no pod of which app is db runs in its zone, as the pod's affinity asks",
        ),
        ({"near_to": (PodTerm("rack", DB, TEAM),)}, {}, "no label rack, which the pod's affinity names"),
        ({"spread": (Spread("rack", 1, WEB),)}, {}, "no label rack, which the pod's topology spread names"),
        (IS_WEB | EVEN_BY_ZONE, IS_WEB, "maxSkew of the pod's topology spread by zone would be exceeded"),
        ({"host_ports": HTTP}, {"host_ports": HTTP}, "host port 80/TCP is taken"),
    ],
)
def test_why_not_is_told_in_the_words_of_the_rule(rules: dict[str, Any], there: dict[str, Any], why: str) -> None:
    """On the node of the other pod."""
    resident = a_pod("there", node="n0", phase="Running", **there)
    snapshot, (shape,) = a_snapshot(a_pod(**rules), residents=[resident])
    snapshot.places[0].ports |= resident.host_ports
    reason = snapshot.why_not(shape, snapshot.places[0])
    assert reason is not None
    assert reason.kind == why


@pytest.mark.parametrize("rules", [{}, {"affinity": ((Requirement(NODE_NAME, "NotIn", ("x",)),),)}])
def test_a_host_that_is_added_counts_as_empty_until_it_is_taken_back(rules: dict[str, Any]) -> None:
    """Each of three has one of its like: only the new one may have another; without it all may."""
    there = [a_pod(f"w{n}", node=f"n{n}", phase="Running", **IS_WEB) for n in range(3)]
    even = a_pod("web", **IS_WEB, **rules, spread=(Spread(HOSTNAME, 1, WEB),))
    snapshot, (shape,) = a_snapshot(even, residents=there)

    def may() -> list[str]:
        return [place.name for place in snapshot.places if snapshot.why_not(shape, place) is None]

    assert may() == ["n0", "n1", "n2"]
    for _ in range(2):
        mark = snapshot.mark()
        snapshot.add(a_place("n3", "c"))
        assert may() == ["n3"]
        snapshot.undo(mark)
        assert may() == ["n0", "n1", "n2"]


@pytest.mark.parametrize(("least", "may"), [(2, True), (3, False)])
def test_as_many_domains_as_are_asked_for_are_enough(least: int, *, may: bool) -> None:
    """With fewer the emptiest counts as empty."""
    there = [a_pod(f"w{n}", node=f"n{n}", phase="Running", **IS_WEB) for n in (0, 2)]
    even = a_pod("web", **IS_WEB, spread=(Spread(ZONE, 1, WEB, min_domains=least),))
    snapshot, (shape,) = a_snapshot(even, residents=there)
    assert (snapshot.find(shape) is not None) is may


def test_a_planned_pod_keeps_its_spread_though_others_come_after_it() -> None:
    """The scheduler may come to it last. A bound one has been judged; what is taken back is no longer planned."""
    even = a_pod("even", **IS_WEB, spread=(Spread(HOSTNAME, 1, WEB),))
    there = [a_pod("bound", node="n2", phase="Running", **IS_WEB, spread=even.spread)]
    snapshot, (shape, web, plain) = a_snapshot(even, a_pod("web", cpu=2, **IS_WEB), a_pod(), residents=there)
    home = snapshot.places[0]
    mark = snapshot.mark()
    snapshot.put(shape, home, "even")
    assert [snapshot.why_not(web, place) is None for place in snapshot.places] == [False, True, True]
    assert snapshot.why_not(plain, home) is None
    reason = snapshot.why_not(web, home)
    assert reason is not None
    assert reason.kind == "maxSkew of a planned pod's topology spread by host would be exceeded"
    found = snapshot.find(web)
    assert found is None or found is not home
    snapshot.put(web, snapshot.places[1], "web")
    assert snapshot.why_not(web, home) is None
    snapshot.undo(mark)
    assert snapshot.why_not(web, home) is None


def test_what_is_noted_is_undone_with_what_was_put_in_reverse() -> None:
    """And all shapes that were asked about are known."""
    snapshot, (shape,) = a_snapshot(a_pod())
    said: list[int] = []
    for number in range(2):
        snapshot.note(lambda number=number: said.append(number))  # type: ignore[misc]
    snapshot.undo(1)
    assert said == [1]
    snapshot.undo(0)
    assert said == [1, 0]
    assert list(snapshot.shapes) == [shape]
