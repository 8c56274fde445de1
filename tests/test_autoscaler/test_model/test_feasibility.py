"""May this pod run there, and if not, why not: the scheduler's filters one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.model import labels as words
from autoscaler.model.cluster import Node, Pod
from autoscaler.model.constraints import PodTerm, Requirement, Spread, Taint, Toleration
from autoscaler.model.feasibility import Reason, requirement_holds, sum_up, tolerates, why_not_on
from autoscaler.planner.placement.snapshot import Snapshot
from autoscaler.planner.supply.candidate_nodes import Place, harm
from tests import examples
from tests.builders import GPU_TAINT, TOLERATES_GPU, a_pod, an_on_prem_node, selects

ANY = frozenset({"team"})
WEB = (Requirement("app", "In", ("web",)),)


def a_place(node: Node, *, used: tuple[Pod, ...] = ()) -> Place:
    """The node as a place, with what these pods take of it gone."""
    free = dict(node.allocatable)
    for pod in used:
        for name, amount in pod.requests.items():
            free[name] = free.get(name, 0) - amount
    ports = frozenset(port for pod in used for port in pod.host_ports)
    return Place(name=node.name, labels=node.labels, taints=node.taints, free=free, tier=0, node=node, ports=ports)


def a_snapshot(nodes: list[Node], residents: tuple[Pod, ...] = (), pending: tuple[Pod, ...] = ()) -> Snapshot:
    """Nodes with pods on them, and those who want to join them."""
    places = [a_place(node, used=tuple(pod for pod in residents if pod.node == node.name)) for node in nodes]
    return Snapshot(places, residents, pending)


def why_not(pod: Pod, *, nodes: list[Node], residents: tuple[Pod, ...] = ()) -> list[str | None]:
    """The reason on each node, in words."""
    snapshot = a_snapshot(nodes, residents, (pod,))
    reasons = [snapshot.why_not(snapshot.shape(pod), place) for place in snapshot.places]
    return [reason.kind if reason else None for reason in reasons]


def zoned(name: str, zone: str, **given: Any) -> Node:
    """A CPU machine in a zone."""
    return an_on_prem_node(name, gpus=0, labels={words.ZONE: zone}, **given)


@pytest.mark.parametrize(
    ("operator", "values", "value", "holds"),
    [
        ("In", ("a", "b"), "b", True),
        ("In", ("a",), None, False),
        ("NotIn", ("a",), "b", True),
        ("NotIn", ("a",), None, True),
        ("NotIn", ("a",), "a", False),
        ("Exists", (), "", True),
        ("Exists", (), None, False),
        ("DoesNotExist", (), None, True),
        ("DoesNotExist", (), "a", False),
        ("Gt", ("40000",), "81920", True),
        ("Gt", ("40000",), "40000", False),
        ("Lt", ("40000",), "24576", True),
        ("Gt", ("40000",), None, False),
        ("Gt", ("40000",), "many", False),
        ("Lt", ("few",), "1", False),
        ("Lt", ("1_000",), "1", False),
        ("Gt", ("1",), "1_000", False),
        ("Gt", (), "1", False),
        ("Gt", ("1", "2"), "13", False),
        ("Lt", ("0",), "-5", True),
        ("Gt", ("0",), "9223372036854775807", True),
        ("Gt", ("0",), "9223372036854775808", False),
        ("Lt", ("0",), "-9223372036854775808", True),
        ("Lt", ("0",), "-9223372036854775809", False),
        ("Lt", ("9" * 5000,), "1", False),
    ],
)
def test_an_expression_holds_as_kubernetes_says(
    operator: Any, values: tuple[str, ...], value: str | None, *, holds: bool
) -> None:
    """Every operator of a node selector, on a label that is there and on one that is not."""
    assert requirement_holds(Requirement("key", operator, values), value) is holds


@pytest.mark.parametrize(
    ("toleration", "taint", "covered"),
    [
        (Toleration(operator="Exists"), Taint("a", "b", "NoExecute"), True),
        (Toleration(key="a", operator="Exists"), Taint("a", "b"), True),
        (Toleration(key="a", operator="Exists", effect="NoExecute"), Taint("a", "b"), False),
        (Toleration(key="a", value="b"), Taint("a", "b"), True),
        (Toleration(key="a", value="c"), Taint("a", "b"), False),
        (Toleration(key="a"), Taint("a"), True),
        (Toleration(key="other", operator="Exists"), Taint("a"), False),
        (Toleration(value="b"), Taint("a", "b"), False),
        (Toleration(key="sla", operator="Gt", value="750"), Taint("sla", "950"), True),
        (Toleration(key="sla", operator="Gt", value="950"), Taint("sla", "950"), False),
        (Toleration(key="sla", operator="Lt", value="950"), Taint("sla", "750"), True),
        (Toleration(key="sla", operator="Lt", value="750"), Taint("sla", "750"), False),
        (Toleration(key="sla", operator="Gt", value="1"), Taint("sla", "95.5"), False),
        (Toleration(key="sla", operator="Gt", value="1"), Taint("sla"), False),
        (Toleration(key="sla", operator="Gt", value="1", effect="NoExecute"), Taint("sla", "2"), False),
    ],
)
def test_a_toleration_covers_a_taint_as_kubernetes_says(toleration: Toleration, taint: Taint, *, covered: bool) -> None:
    """Key, operator, value and effect."""
    assert tolerates((toleration,), taint) is covered


def test_a_preference_keeps_nobody_away() -> None:
    """``PreferNoSchedule`` is a wish; ``NoExecute`` is not."""
    wish, order = Taint("a", effect="PreferNoSchedule"), Taint("a", effect="NoExecute")
    assert why_not_on(affinity=(), tolerations=(), labels={}, taints=(wish,)) is None
    assert why_not_on(affinity=(), tolerations=(), labels={}, taints=(wish, order)) == Reason(
        "taint a:NoExecute not tolerated"
    )


def test_one_term_of_several_is_enough() -> None:
    """Terms are alternatives; within one, everything must hold."""
    terms = (selects(zone="a", product="A100"), selects(zone="b"))
    pod = a_pod(affinity=terms)
    nodes = [zoned("n1", "a"), zoned("n2", "b")]
    assert why_not(pod, nodes=nodes) == [
        (
            "no match for the pod's node selector or affinity "
            "(nvidia.com/gpu.product is A100 or topology.kubernetes.io/zone is b)"
        ),
        None,
    ]


def test_a_node_may_be_selected_by_its_name() -> None:
    """``matchFields`` knows the name where there is no label."""
    pod = a_pod(affinity=((Requirement("metadata.name", "In", ("n2",)),),))
    assert [bool(word) for word in why_not(pod, nodes=[zoned("n1", "a"), zoned("n2", "a")])] == [True, False]


def test_what_lacks_is_named_with_amounts() -> None:
    """Amounts of all nodes that lack the same are told in one line."""
    nodes = [an_on_prem_node(f"dgx-{n}") for n in range(3)]
    residents = (a_pod("a", gpus=8, node="dgx-0"), a_pod("b", gpus=4, node="dgx-1"), a_pod("c", gpus=6, node="dgx-2"))
    snapshot = a_snapshot(nodes, residents)
    shape = snapshot.shape(a_pod(gpus=8))
    assert sum_up(snapshot.reasons(shape)) == "3 nodes: not enough nvidia.com/gpu (asks 8, at most 4 free)"
    assert sum_up([snapshot.why_not(shape, snapshot.places[2]) or Reason("")]) == (
        "1 node: not enough nvidia.com/gpu (asks 8, 2 free)"
    )


def test_different_reasons_are_counted_apart() -> None:
    """The most frequent first."""
    nodes = [an_on_prem_node("dgx-0"), zoned("n1", "a"), zoned("n2", "a")]
    snapshot = a_snapshot(nodes)
    shape = snapshot.shape(a_pod(cpu=200, tolerations=()))
    assert sum_up(snapshot.reasons(shape)) == (
        "2 nodes: not enough cpu (asks 200, at most 128 free); 1 node: taint nvidia.com/gpu:NoSchedule not tolerated"
    )


@pytest.mark.parametrize("resource", ["cpu", "memory", "pods", "ephemeral-storage", "example.com/fpga"])
def test_every_resource_counts(resource: str) -> None:
    """The usual ones and any extended one."""
    amounts = {"pods": 1, resource: 10**15}
    pod = a_pod(requests=type(a_pod().requests)(amounts))
    assert why_not(pod, nodes=[zoned("n1", "a")]) == [f"not enough {resource}"]


def test_a_full_node_has_room_for_a_pod_that_asks_for_nothing_of_what_is_short() -> None:
    """Over-commitment of one resource is no reason against a pod that does not ask for it."""
    node = an_on_prem_node("n1", gpus=0, cpu=2)
    resident = a_pod("greedy", cpu=3, node="n1")
    pod = a_pod(requests=type(a_pod().requests)({"memory": 1, "pods": 1}))
    assert why_not(pod, nodes=[node], residents=(resident,)) == [None]


def test_a_host_port_is_given_once() -> None:
    """Two pods cannot listen on the same port of one host."""
    resident = a_pod("a", node="n1", host_ports=frozenset({("TCP", 80)}))
    pod = a_pod("b", host_ports=frozenset({("TCP", 80), ("TCP", 81)}))
    assert why_not(pod, nodes=[zoned("n1", "a"), zoned("n2", "a")], residents=(resident,)) == [
        "host port 80/TCP is taken",
        None,
    ]


def test_pods_keep_apart_by_host_and_by_zone() -> None:
    """Required anti-affinity, in the domain of its topology key."""
    nodes = [zoned("n1", "a"), zoned("n2", "a"), zoned("n3", "b")]
    resident = a_pod("web-1", node="n1", labels={"app": "web"})
    by_host = a_pod("web-2", labels={"app": "web"}, apart_from=(PodTerm(words.HOSTNAME, WEB, ANY),))
    by_zone = a_pod("web-3", labels={"app": "web"}, apart_from=(PodTerm(words.ZONE, WEB, ANY),))
    assert [bool(word) for word in why_not(by_host, nodes=nodes, residents=(resident,))] == [True, False, False]
    assert [bool(word) for word in why_not(by_zone, nodes=nodes, residents=(resident,))] == [True, True, False]


def test_anti_affinity_of_a_pod_that_runs_keeps_others_away() -> None:
    """Anti-affinity holds in both directions, though the other has no rule of its own."""
    resident = a_pod("db", node="n1", labels={"app": "db"}, apart_from=(PodTerm(words.ZONE, WEB, ANY),))
    nodes = [zoned("n1", "a"), zoned("n2", "a"), zoned("n3", "b")]
    web, other = a_pod("web", labels={"app": "web"}), a_pod("other", labels={"app": "other"})
    assert [bool(word) for word in why_not(web, nodes=nodes, residents=(resident,))] == [True, True, False]
    assert why_not(other, nodes=nodes, residents=(resident,)) == [None, None, None]


def test_another_namespace_is_not_meant() -> None:
    """A term speaks of pods in its namespaces only."""
    resident = a_pod("web-1", namespace="else", node="n1", labels={"app": "web"})
    pod = a_pod("web-2", labels={"app": "web"}, apart_from=(PodTerm(words.HOSTNAME, WEB, ANY),))
    assert why_not(pod, nodes=[zoned("n1", "a")], residents=(resident,)) == [None]


def test_pods_go_near_to_those_that_are_there() -> None:
    """Required affinity is to a pod that is there."""
    nodes = [zoned("n1", "a"), zoned("n2", "b")]
    resident = a_pod("web-1", node="n2", labels={"app": "web"})
    pod = a_pod("cache", near_to=(PodTerm(words.ZONE, WEB, ANY),))
    assert [bool(word) for word in why_not(pod, nodes=nodes, residents=(resident,))] == [True, False]
    assert all(why_not(pod, nodes=nodes))


def test_the_first_of_a_kind_may_go_anywhere() -> None:
    """A pod that is near to its own kind starts the group; the next one follows it."""
    nodes = [zoned("n1", "a"), zoned("n2", "b")]
    pod = a_pod("web", labels={"app": "web"}, near_to=(PodTerm(words.ZONE, WEB, ANY),))
    snapshot = a_snapshot(nodes, pending=(pod,))
    shape = snapshot.shape(pod)
    assert [snapshot.why_not(shape, place) for place in snapshot.places] == [None, None]
    snapshot.put(shape, snapshot.places[1], pod.key)
    assert [bool(snapshot.why_not(shape, place)) for place in snapshot.places] == [True, False]


def test_pods_are_spread_evenly() -> None:
    """No domain may be more than ``max_skew`` ahead of the emptiest."""
    nodes = [zoned("n1", "a"), zoned("n2", "b")]
    residents = (a_pod("web-1", node="n1", labels={"app": "web"}),)
    pod = a_pod("web-2", labels={"app": "web"}, spread=(Spread(words.ZONE, 1, WEB),))
    assert [bool(word) for word in why_not(pod, nodes=nodes, residents=residents)] == [True, False]


def test_too_few_domains_count_as_empty_ones() -> None:
    """With ``minDomains`` above what is there, the emptiest domain has none."""
    residents = (a_pod("web-1", node="n1", labels={"app": "web"}),)
    labels = {"app": "web"}
    lenient = a_pod("web-2", labels=labels, spread=(Spread(words.ZONE, 1, WEB),))
    strict = a_pod("web-2", labels=labels, spread=(Spread(words.ZONE, 1, WEB, min_domains=2),))
    assert why_not(lenient, nodes=[zoned("n1", "a")], residents=residents) == [None]
    assert all(why_not(strict, nodes=[zoned("n1", "a")], residents=residents))


def test_nodes_that_the_pod_does_not_select_are_no_domains_of_its_spread() -> None:
    """An empty zone that the pod may not enter does not hold it back."""
    nodes = [zoned("n1", "a"), zoned("n2", "b")]
    residents = (a_pod("web-1", node="n1", labels={"app": "web"}),)
    pod = a_pod("web-2", labels={"app": "web"}, selector={"zone": "a"}, spread=(Spread(words.ZONE, 1, WEB),))
    assert [bool(word) for word in why_not(pod, nodes=nodes, residents=residents)] == [False, True]


def test_a_node_without_the_key_takes_no_spread_pod() -> None:
    """There is nothing to count on it."""
    pod = a_pod(labels={"app": "web"}, spread=(Spread(words.ZONE, 1, WEB),))
    assert why_not(pod, nodes=[an_on_prem_node("n1", gpus=0)]) == [
        "no label topology.kubernetes.io/zone, which the pod's topology spread names"
    ]


def test_pods_that_are_alike_share_a_shape() -> None:
    """Labels that no rule asks about do not tell them apart; those that one does, do."""
    alike = (a_pod("a", labels={"index": "1"}), a_pod("b", labels={"index": "2"}))
    snapshot = a_snapshot([zoned("n1", "a")], pending=alike)
    assert snapshot.shape(alike[0]) is snapshot.shape(alike[1])
    asking = a_pod("c", apart_from=(PodTerm(words.HOSTNAME, (Requirement("index", "In", ("1",)),), ANY),))
    snapshot = a_snapshot([zoned("n1", "a")], pending=(*alike, asking))
    assert snapshot.shape(alike[0]) is not snapshot.shape(alike[1])


def test_what_is_put_can_be_taken_back() -> None:
    """Room, ports, neighbours: all as before."""
    pod = a_pod(
        "web",
        labels={"app": "web"},
        host_ports=frozenset({("TCP", 80)}),
        apart_from=(PodTerm(words.HOSTNAME, WEB, ANY),),
    )
    snapshot = a_snapshot([zoned("n1", "a")], pending=(pod,))
    shape, place = snapshot.shape(pod), snapshot.places[0]
    before, mark = dict(place.free), snapshot.mark()
    snapshot.put(shape, place, pod.key)
    assert snapshot.why_not(shape, place) is not None
    assert snapshot.find(shape) is None
    snapshot.undo(mark)
    assert (place.free, place.ports, place.guests) == (before, frozenset(), [])
    assert snapshot.find(shape) is place


def test_the_place_where_least_is_lost_is_found_first() -> None:
    """GPUs are not stranded by a pod that needs none, and the fuller of two machines is filled up."""
    nodes = [an_on_prem_node("dgx-1", taints=()), an_on_prem_node("dgx-2", taints=()), zoned("cpu-1", "a")]
    residents = (a_pod("train", gpus=6, node="dgx-2"),)
    snapshot = a_snapshot(nodes, residents)
    assert snapshot.find(snapshot.shape(a_pod("cpu")), None) is snapshot.places[2]
    assert snapshot.find(snapshot.shape(a_pod("small", gpus=2)), None) is snapshot.places[1]
    assert snapshot.find(snapshot.shape(a_pod("large", gpus=4)), None) is snapshot.places[0]


def test_a_taint_of_gpu_machines_is_tolerated_by_the_builder_s_gpu_pods() -> None:
    """What the tests' GPU pods carry is what lets them in."""
    assert tolerates((TOLERATES_GPU,), GPU_TAINT)


@st.composite
def pending_pods(draw: st.DrawFn, number: int) -> Pod:
    """A pod with or without GPUs and rules."""
    rules: dict[str, Any] = {}
    if draw(st.booleans()):
        rules["selector"] = {"zone": draw(st.sampled_from("ab"))}
    term = PodTerm(draw(st.sampled_from((words.HOSTNAME, words.ZONE))), WEB, ANY)
    match draw(st.sampled_from(("apart", "near", "spread", "port", "", ""))):
        case "apart":
            rules["apart_from"] = (term,)
        case "near":
            rules["near_to"] = (term,)
        case "spread":
            rules["spread"] = (Spread(term.topology_key, 1, WEB),)
        case "port":
            rules["host_ports"] = frozenset({("TCP", 80)})
    app = draw(st.sampled_from(("web", "db")))
    sizes = {"gpus": draw(st.sampled_from((0, 0, 1, 4))), "cpu": draw(st.sampled_from((1, 20, 60)))}
    return a_pod(f"p{number}", labels={"app": app}, **sizes, **rules)


@settings(deadline=None, max_examples=examples(50))
@given(data=st.data(), zones=st.lists(st.sampled_from(("a", "b", "")), min_size=1, max_size=5))
def test_what_is_found_is_the_best_of_all_places_that_take_the_pod(data: st.DataObject, zones: list[str]) -> None:
    """Asked again and again, while pods are put and taken back, as if every place were looked at each time."""
    nodes = [
        an_on_prem_node(
            f"n{n}", gpus=n % 3 * 4, cpu=64, memory="4Gi", taints=(), labels={words.ZONE: zone} if zone else {}
        )
        for n, zone in enumerate(zones)
    ]
    pods = [data.draw(pending_pods(number)) for number in range(5)]
    residents = [replace(pod, name=f"r-{pod.name}", node=data.draw(st.sampled_from(nodes)).name) for pod in pods[:2]]
    snapshot = a_snapshot(nodes, tuple(residents), tuple(pods))
    marks = []
    for _ in range(12):
        shape = snapshot.shape(data.draw(st.sampled_from(pods)))
        takers = [place for place in snapshot.places if snapshot.why_not(shape, place) is None]
        found = snapshot.find(shape)
        assert found is min(takers, key=lambda place: (harm(place), place.name), default=None)
        if marks and data.draw(st.booleans()):
            snapshot.undo(marks.pop())
        elif found is not None:
            marks.append(snapshot.mark())
            snapshot.put(shape, found, "key")
