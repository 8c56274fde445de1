"""Rules by host between pods of one node, against the same rules asked of every pair of them."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from autoscaler.model.cluster import Pod
from autoscaler.model.constraints import PodTerm, Requirement, Spread
from autoscaler.model.labels import HOSTNAME, ZONE
from autoscaler.planner.cutting_stock.host_rules import FREE, Company, HostRules, Stance
from autoscaler.planner.placement.snapshot import Snapshot
from tests.builders import a_pod

WEB = (Requirement("app", "In", ("web",)),)
SSH = ("TCP", 22)


def admits(company: Sequence[Stance], joining: Stance) -> bool:
    """The rules of each pod there and of the one that joins, asked one by one."""
    whole = [*company, joining]
    together = {key: sum(key in one.counted for one in whole) for key in range(4)}
    return (
        not any(one.known_by & joining.repels or one.repels & joining.known_by for one in company)
        and not any(one.ports & joining.ports for one in company)
        and all(together[key] <= most for key, most in joining.spread)
        and all(together[key] <= most for one in company for key, most in one.spread if key in joining.counted)
    )


def a_stance(dice: Random) -> Stance:
    """Any; half of the rules are of one kind only."""
    keys = [frozenset(key for key in range(4) if dice.random() < 0.2) for _ in range(3)]
    spread = tuple((key, dice.randint(1, 3)) for key in range(4) if dice.random() < 0.3)
    return Stance(*keys, spread, frozenset(port for port in (SSH, ("UDP", 53)) if dice.random() < 0.15))


def test_a_pod_joins_where_no_rule_of_it_or_of_a_pod_there_forbids_it() -> None:
    """Thousands of pods, on nodes of up to a dozen."""
    dice = Random(5)  # noqa: S311 - the same pods every time
    answers = set()
    for _ in range(300):
        company, there = Company(), list[Stance]()
        for joining in (a_stance(dice) for _ in range(12)):
            answer = company.admits(joining)
            assert answer is admits(there, joining), (there, joining)
            answers.add((answer, len(there)))
            if answer:
                company.join(joining)
                there.append(joining)
    assert {(True, 4), (False, 4)} <= answers


def shaped(*pods: Pod) -> tuple[HostRules, list[Stance]]:
    """The rules between these, five of the first, and the stance of each."""
    snapshot = Snapshot((), (), pods)
    shapes = [snapshot.shape(pod) for pod in pods]
    rules = HostRules(dict.fromkeys(shapes, 1) | {shapes[0]: 5})
    return rules, [rules.stance(shape) for shape in shapes]


def apart(key: str = HOSTNAME, *namespaces: str) -> tuple[PodTerm, ...]:
    """Keeps pods of the web away."""
    return (PodTerm(key, WEB, frozenset(namespaces or ("team",))),)


def test_pods_that_no_rule_by_host_concerns_are_free() -> None:
    """Rules by zone do not count here."""
    spread = (Spread(ZONE, 1, WEB),)
    rules, stances = shaped(a_pod(labels={"app": "web"}), a_pod(apart_from=apart(ZONE)), a_pod(spread=spread))
    assert [one is FREE for one in stances] == [True, True, True]
    assert (rules.exclusive, len(rules.stances)) == ((), 1)


def test_which_pods_anti_affinity_means() -> None:
    """Pods with the labels, in the namespaces that it names: what has it repels, what is meant knows."""
    web = {"app": "web"}
    _, (alone, meant, other, elsewhere, itself) = shaped(
        a_pod(apart_from=apart()),
        a_pod(labels=web),
        a_pod(labels={"app": "db"}),
        a_pod(labels=web, namespace="else"),
        a_pod(labels=web, apart_from=apart()),
    )
    (key,) = alone.repels
    assert (alone.known_by, meant) == (frozenset(), Stance(known_by=frozenset({key})))
    assert other is FREE
    assert elsewhere is FREE
    assert itself == Stance(frozenset({key}), frozenset({key}))


def test_which_pods_a_spread_counts() -> None:
    """Pods of its own namespace alone; it counts itself only where it has the label."""
    web, spread = {"app": "web"}, (Spread(HOSTNAME, 2, WEB),)
    _, (even, counted, uncounted, elsewhere) = shaped(
        a_pod(labels=web, spread=spread), a_pod(labels=web), a_pod(spread=spread), a_pod(labels=web, namespace="else")
    )
    ((key, most),) = even.spread
    assert most == 2
    assert even == Stance(counted=frozenset({key}), spread=((key, 2),))
    assert counted == Stance(counted=frozenset({key}))
    assert uncounted == Stance(spread=((key, 2),))
    assert elsewhere is FREE


@pytest.mark.parametrize(
    ("rule", "is_alone"),
    [
        ({"apart_from": apart()}, True),
        ({"host_ports": frozenset({SSH})}, True),
        ({"spread": (Spread(HOSTNAME, 1, WEB),)}, True),
        ({"spread": (Spread(HOSTNAME, 2, WEB),)}, False),
        ({"apart_from": apart(HOSTNAME, "else")}, False),
    ],
)
def test_what_of_its_like_a_node_holds_once_is_told_to_the_solver(rule: dict[str, object], *, is_alone: bool) -> None:
    """A pod with it takes the node's one place of that kind; others take none."""
    alone, other = a_pod(labels={"app": "web"}, **rule), a_pod(labels={"app": "db"})
    rules, _ = shaped(alone, other)
    snapshot = Snapshot((), (), (alone, other))
    assert len(rules.exclusive) == is_alone
    assert rules.needs(snapshot.shape(alone)) == (1,) * is_alone


def test_the_solver_is_told_of_the_two_that_most_pods_need_and_of_none_that_few_need() -> None:
    """Of 100 pods one that needs a node alone finds one; of those that need a place each row says how many."""
    ports = [frozenset({("TCP", number)}) for number in range(4)]
    pods = [a_pod(f"p{number}", host_ports=one) for number, one in enumerate(ports)] + [a_pod("free")]
    snapshot = Snapshot((), (), pods)
    shapes = [snapshot.shape(pod) for pod in pods]
    rules = HostRules(dict(zip(shapes, (3, 5, 4, 1, 87), strict=True)))
    assert rules.exclusive == (("TCP", 1), ("TCP", 2))
    assert [rules.needs(shape) for shape in shapes] == [(0, 0), (1, 0), (0, 1), (0, 0), (0, 0)]
    few = HostRules(dict(zip(shapes, (2, 3, 1, 1, 93), strict=True)))
    assert few.exclusive == (("TCP", 1),)
    assert [rules.number(shape) for shape in shapes] == [1, 2, 3, 4, 0]
