"""Pod affinity that means namespaces by their labels."""

from __future__ import annotations

from autoscaler.config.policy import Policy
from autoscaler.model import labels as words
from autoscaler.model.actions import Admit, Memory, Plan
from autoscaler.model.cluster import Cluster
from autoscaler.model.constraints import PodTerm, Requirement
from autoscaler.model.pod_index import pod_index_of
from autoscaler.planner.demand.namespace_selectors import resolved
from autoscaler.planner.plan import plan
from tests.builders import a_cluster, a_gang, a_pod, a_policy, an_on_prem_node

LOUD = (Requirement("app", "In", ("loud",)),)
TENANTS = (Requirement("tenant", "In", ("yes",)),)
NAMESPACES = {"team": {"tenant": "yes"}, "other": {"tenant": "yes"}, "system": {}}


def apart(*, meant: tuple[Requirement, ...] = TENANTS) -> PodTerm:
    """From loud pods on the same host, in namespaces with these labels."""
    return PodTerm(words.HOSTNAME, LOUD, frozenset(), meant)


def decide(cluster: Cluster) -> Plan:
    """The plan for it."""
    return plan(cluster, a_policy(), Memory())


def home(cluster: Cluster) -> str:
    """Where the one pod of the gang is admitted."""
    (step,) = (step for step in decide(cluster).steps if isinstance(step, Admit))
    ((_, node),) = step.placements
    return node


def test_pods_of_the_namespaces_that_are_meant_are_kept_away_from() -> None:
    """Of a tenant, not of the system; an empty selector means every namespace."""
    nodes = [an_on_prem_node("dgx-1"), an_on_prem_node("dgx-2")]
    (pod,) = a_gang(pods=1, gpus=1, apart_from=(apart(),))
    there = [
        a_pod("a", namespace="other", labels={"app": "loud"}, gpus=1, node="dgx-1", phase="Running"),
        a_pod("b", namespace="system", labels={"app": "loud"}, gpus=2, node="dgx-2", phase="Running"),
    ]
    assert home(a_cluster(pods=[pod, *there], nodes=nodes, namespaces=NAMESPACES)) == "dgx-2"
    (anyone,) = a_gang(pods=1, gpus=1, apart_from=(apart(meant=()),))
    look = a_cluster(pods=[anyone, *there], nodes=nodes, groups=[], namespaces=NAMESPACES)
    decided = plan(look, Policy(cluster="local", groups=()), Memory())
    assert not decided.steps
    assert "which the pod's anti-affinity forbids" in decided.waiting[0].because


def test_a_pod_that_runs_keeps_those_away_that_it_means() -> None:
    """By the labels of their namespace; while these are not known, it is taken to mean every pod that waits."""
    keeper = a_pod("k", namespace="system", apart_from=(apart(),), gpus=1, node="dgx-1", phase="Running")
    nodes = [an_on_prem_node("dgx-1"), an_on_prem_node("dgx-2")]
    full = a_pod("f", gpus=4, node="dgx-2", phase="Running")
    (loud,) = a_gang(pods=1, gpus=1, labels={"app": "loud"})
    strangers: dict[str, dict[str, str]] = {"team": {}}
    assert home(a_cluster(pods=[loud, keeper, full], nodes=nodes, namespaces=NAMESPACES)) == "dgx-2"
    assert home(a_cluster(pods=[loud, keeper, full], nodes=nodes)) == "dgx-2"
    near_full = [an_on_prem_node("dgx-1")]
    assert home(a_cluster(pods=[loud, keeper], nodes=near_full, namespaces=strangers)) == "dgx-1"


def test_while_labels_of_namespaces_are_not_known_the_pod_waits() -> None:
    """And says so; nothing is bought on a guess."""
    decided = decide(a_cluster(pods=[a_pod(apart_from=(apart(),))]))
    assert decided.steps == ()
    assert "the labels of namespaces" in decided.waiting[0].because


def test_while_labels_are_not_known_those_that_are_named_are_meant_beside_every_one_that_waits() -> None:
    """Of a pod that runs; a term without a selector stays as it is."""
    named = PodTerm(words.HOSTNAME, LOUD, frozenset({"system"}), TENANTS)
    plain = PodTerm(words.HOSTNAME, LOUD, frozenset({"monitoring"}))
    keeper = a_pod("k", namespace="system", apart_from=(named, plain), node="dgx-1", phase="Running")
    index = pod_index_of([keeper, a_pod("waits", namespace="team")])
    terms = {frozenset({"system", "team"}), frozenset({"monitoring"})}
    assert {term.namespaces for term in resolved(index, None).anti_affinity} == terms
    terms = {frozenset({"system", "team", "other"}), frozenset({"monitoring"})}
    assert {term.namespaces for term in resolved(index, NAMESPACES).anti_affinity} == terms
