"""The pods' sums, kept in step change by change, are the sums of the pods."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from autoscaler.model.cluster import GangRef, Pod
from autoscaler.model.constraints import PodTerm, Requirement
from autoscaler.model.labels import HOSTNAME
from autoscaler.model.pod_index import PodIndex, Register, pod_index_of
from tests.builders import a_pod

_APART = PodTerm(HOSTNAME, (Requirement("app", "In", ("a",)),), frozenset({"team"}))


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    """One of a few names, in any state."""
    return a_pod(
        draw(st.sampled_from("pqrs")),
        cpu=draw(st.integers(1, 3)),
        labels={"app": draw(st.sampled_from("ab"))},
        node=draw(st.none() | st.sampled_from(("n1", "n2"))),
        phase=draw(st.sampled_from(("Pending", "Running", "Succeeded"))),
        deleting=draw(st.booleans()),
        gang=draw(st.none() | st.just(GangRef("team", "g"))),
        apart_from=draw(st.sampled_from(((), (_APART,)))),
        host_ports=draw(st.sampled_from((frozenset(), frozenset({("TCP", 80)})))),
        is_daemon=draw(st.booleans()),
        owner="DaemonSet/d",
    )


@given(changes=st.lists(pods() | st.sampled_from("pqrs"), max_size=20))
def test_sums_kept_in_step_are_those_of_the_pods(changes: list[Pod | str]) -> None:
    """Whatever came, changed or went, with an index taken after each change."""
    register, there = Register(), dict[str, Pod]()
    rolls: list[tuple[PodIndex, dict[str, Any]]] = []
    for change in changes:
        name, after = (change, None) if isinstance(change, str) else (change.name, change)
        register.change(there.pop(name, None), after)
        if after is not None:
            there[name] = after
        rolls.append((register.index(tuple(there.values())), _sums(pod_index_of(there.values()))))
    assert [_sums(index) for index, _ in rolls] == [sums for _, sums in rolls]


def test_an_index_does_not_change_with_the_register() -> None:
    """A decision that is being made looks at one moment."""
    pod, register = a_pod("p", node="n1", labels={"app": "a"}, apart_from=(_APART,)), Register()
    register.change(None, pod)
    index = register.index((pod,))
    before = _sums(index)
    register.change(pod, replace(pod, node="n2"))
    register.change(None, a_pod("q", node="n1", labels={"app": "a"}, apart_from=(_APART,)))
    assert _sums(index) == before
    assert before["loads"]["n1"]["cpu"] == 1000


def _sums(index: PodIndex) -> dict[str, Any]:
    """All that an index says, in an order of its own."""
    loads = {
        node: {**load.used, "ports": load.ports, "pods": sorted(map(repr, load.residents)), "daemons": load.daemons}
        for node, load in index.loads.items()
    }
    gangs = {name: sorted(map(repr, members)) for name, members in index.gangs.items()}
    unbound = sorted(map(repr, index.unbound))
    return {
        "loads": loads,
        "gangs": gangs,
        "unbound": unbound,
        "classes": index.classes,
        "anti_affinity": index.anti_affinity,
    }
