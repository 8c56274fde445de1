"""What may be left out of a pod's rules, and the pod without it."""

from __future__ import annotations

from typing import Any

import pytest

from autoscaler.model.constraints import PodTerm, Requirement, Spread, Taint, Toleration
from autoscaler.model.labels import HOSTNAME, ZONE
from autoscaler.model.resources import Resources
from autoscaler.planner.obstacles.relaxations import (
    Relaxation,
    in_drop_order,
    part_of,
    relaxed_pod,
    rules_of,
    toleration_of,
)
from tests.builders import GPU_TAINT, TOLERATES_GPU, a_pod

WEB, DB = ((Requirement("app", "In", (app,)),) for app in ("web", "db"))
NEAR, APART = PodTerm(ZONE, DB, frozenset({"team"})), PodTerm(HOSTNAME, WEB, frozenset({"team"}))
SITE, FAST = Requirement("site", "In", ("x",)), Requirement("disk", "Exists")
SPREAD = (Spread(ZONE, 1, WEB), Spread(HOSTNAME, 1, WEB))
POD = a_pod(affinity=((SITE, FAST), (FAST,)), near_to=(NEAR,), apart_from=(APART,), spread=SPREAD)


@pytest.mark.parametrize(
    ("one", "changed"),
    [
        (Relaxation("select", requirement=SITE), {"affinity": ((FAST,), (FAST,))}),
        (Relaxation("select", requirement=FAST), {"affinity": ()}),
        (Relaxation("near", term=NEAR), {"near_to": ()}),
        (Relaxation("partner", term=NEAR), {"near_to": ()}),
        (Relaxation("apart", term=APART), {"apart_from": ()}),
        (Relaxation("spread", key=ZONE), {"spread": SPREAD[1:]}),
        (Relaxation("topology", key=ZONE), {}),
        (
            Relaxation("taint", taint=GPU_TAINT),
            {"tolerations": (Toleration("nvidia.com/gpu", "Exists", "", "NoSchedule"),)},
        ),
        (Relaxation("usd"), {}),
        (Relaxation("split", parts=2), {}),
    ],
)
def test_a_pod_without_a_rule_has_all_others(one: Relaxation, changed: dict[str, Any]) -> None:
    """What is not the pod's own changes nothing of it."""
    found = relaxed_pod(POD, (one,))
    names = ("affinity", "near_to", "apart_from", "spread", "tolerations", "requests")
    assert {name: getattr(found, name) for name in names} == {name: getattr(POD, name) for name in names} | changed
    assert (found is POD) is (not changed)


def test_the_narrowest_toleration_is_for_the_value_where_the_taint_has_one() -> None:
    """Not for any value."""
    assert toleration_of(Taint("team", "a", "NoExecute")) == Toleration("team", "Equal", "a", "NoExecute")
    assert toleration_of(Taint("team")) == Toleration("team", "Exists", "", "NoSchedule")


@pytest.mark.parametrize(("parts", "cpu", "memory"), [(2, 3, 5), (3, 2, 4), (4, 2, 3)])
def test_a_part_asks_for_its_part_rounded_up_and_is_one_pod(parts: int, cpu: int, memory: int) -> None:
    """So that all parts together have what the pod asked for."""
    pod = a_pod(requests=Resources({"cpu": 5, "memory": 10, "pods": 1}))
    assert dict(part_of(pod, parts).requests) == {"cpu": cpu, "memory": memory, "pods": 1}


def test_what_may_be_left_out_is_named_once() -> None:
    """A taint that not every pod tolerates and that keeps pods off; each rule of any pod; the gang's topology."""
    soft, team = Taint("soft", "", "PreferNoSchedule"), Taint("team", "a")
    pods = [POD, a_pod("other", affinity=((FAST,),), tolerations=(TOLERATES_GPU,))]
    found = list(rules_of(pods, [team, GPU_TAINT, soft, team], ZONE))
    assert found == [
        Relaxation("taint", taint=GPU_TAINT),
        Relaxation("taint", taint=team),
        Relaxation("select", requirement=SITE),
        Relaxation("select", requirement=FAST),
        Relaxation("apart", term=APART),
        Relaxation("spread", key=ZONE),
        Relaxation("spread", key=HOSTNAME),
        Relaxation("topology", key=ZONE),
    ]
    assert list(rules_of(pods[1:], [GPU_TAINT, soft], None)) == [Relaxation("select", requirement=FAST)]


def test_what_a_person_is_asked_for_last_is_done_without_first() -> None:
    """A rule of the pod before other work, that before money, and a toleration at the end."""
    kinds: list[Any] = ["taint", "usd", "work", "select", "group", "pulumi", "split"]
    found = [one.what for one in in_drop_order([Relaxation(kind) for kind in kinds])]
    assert found == ["group", "split", "select", "work", "usd", "pulumi", "taint"]
