"""What Prometheus is told; the page, the alerts and the dashboard say no more and no less than that."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest

from autoscaler.model import node_states
from autoscaler.model.actions import CAUSES, MONEY, Grow, Memory, Plan, Waiting
from autoscaler.model.cluster import Instance, Refusal
from autoscaler.model.resources import Resources
from autoscaler.planner.plan import plan
from autoscaler.record.decisions import Decision
from autoscaler.reporting.metrics import OURS, PAGE, Metrics, with_table
from tests import ROOT
from tests.builders import a_cluster, a_group, a_pod, a_policy, an_on_prem_node, later, nodes_of

FOLDER = PAGE.parent
STALE = "is stale: write what autoscaler.reporting.metrics.with_table makes of it"
_SUFFIXES = ("_bucket", "_sum", "_count")
_VALUES: Mapping[str, frozenset[str]] = {
    "cause": frozenset(CAUSES),
    "state": frozenset(node_states.STATES),
    "stage": frozenset({"launched", "joined", "bound"}),
    "outcome": frozenset({"steps", "nothing", "doubted", "done", "failed"}),
}


def exported() -> dict[str, tuple[str, ...]]:
    """Name -> labels."""
    return {one.name: one.labels for one in Metrics(CollectorRegistry()).table}


def alerts() -> list[dict[str, Any]]:
    """The rules."""
    [group] = yaml.safe_load((FOLDER / "alerts.yaml").read_text(encoding="utf-8"))["groups"]
    return list(group["rules"])


def expressions() -> Iterator[tuple[str, str]]:
    """Every expression of the alerts and of the dashboard, with where it stands."""
    yield from ((one["alert"], one["expr"]) for one in alerts())
    dashboard = json.loads((FOLDER / "dashboard.json").read_text(encoding="utf-8"))
    for panel in dashboard["panels"]:
        yield from ((panel["title"], target["expr"]) for target in panel["targets"])


def used(expression: str) -> set[str]:
    """Metrics in it, as they are exported."""
    found = set()
    for name in re.findall(r"\bspillway_\w+", expression):
        base = next((name.removesuffix(one) for one in _SUFFIXES if name.endswith(one)), name)
        found.add(base if base in exported() else name)
    return found


def test_the_page_has_every_metric_once() -> None:
    """A metric that is new, or changed, is in the table; one that is gone is not."""
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_table(page), f"{PAGE} {STALE}"
    assert [page.count(f"| `{name}` |") for name in exported()] == [1] * len(exported())


def test_the_page_of_the_room_has_every_state_of_a_node() -> None:
    """As the code has them."""
    path = ROOT / "autoscaler" / "README.md"
    page = path.read_text(encoding="utf-8")
    assert page == node_states.with_table(page), f"{path} is stale: see autoscaler.model.node_states.with_table"
    assert "| minimum |" in page


def test_what_is_declared_is_what_is_exported() -> None:
    """Names and kinds, as a scrape has them."""
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    metrics.watch(lambda: None)
    families = {(one.name, one.type) for one in registry.collect()}
    assert families == {(one.name.removesuffix("_total"), one.kind) for one in metrics.table}


@pytest.mark.parametrize(("where", "expression"), list(expressions()))
def test_alerts_and_panels_ask_for_metrics_that_exist(where: str, expression: str) -> None:
    """With labels that these have, and values that such a label takes."""
    known = exported()
    names = used(expression)
    assert names
    assert names <= known.keys()
    labels = {label for name in names for label in known[name]} | {"le"}
    grouped = {one.strip() for by in re.findall(r"\bby \(([^)]*)\)", expression) for one in by.split(",")}
    assert grouped <= labels, where
    for label, values in re.findall(r'(\w+)=~?"([^"]*)"', expression):
        assert label in labels
        assert set(values.split("|")) <= _VALUES[label]


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    """A section of the page, that says what to do."""
    page = PAGE.read_text(encoding="utf-8")
    sections = dict(re.findall(r"^### (Spillway\w+)\n(.*?)(?=^###|\Z)", page, flags=re.MULTILINE | re.DOTALL))
    assert list(sections) == [one["alert"] for one in alerts()]
    for one in alerts():
        assert one["annotations"]["runbook"] == f"autoscaler/monitoring/README.md#{one['alert'].lower()}"
        assert "\n- " in sections[one["alert"]]
        assert one["annotations"]["summary"].endswith(".")


def test_every_metric_is_on_the_dashboard() -> None:
    """Nothing is measured that is never looked at."""
    seen = set.union(*(used(expression) for where, expression in expressions()))
    assert exported().keys() - seen == set()


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    """One sample."""
    return registry.get_sample_value(name, labels)


def test_waiting_pods_are_counted_by_cause() -> None:
    """And a cause that is no more is zero, as all are where another acts."""
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    told = Plan(waiting=(Waiting("a/a", "r", cause=MONEY), Waiting("a/b", "r", cause=MONEY)))
    metrics.decided(told, a_cluster(), took=0.1, doubted=False)
    assert value(registry, "spillway_pods_waiting", cause="money") == 2
    metrics.decided(Plan(), a_cluster(), took=0.1, doubted=True)
    assert value(registry, "spillway_pods_waiting", cause="money") == 0
    assert value(registry, "spillway_decisions_total", outcome="doubted") == 1
    metrics.decided(told, a_cluster(), took=0.1, doubted=False)
    metrics.stand_by()
    assert value(registry, "spillway_pods_waiting", cause="money") == 0
    assert value(registry, "spillway_group_desired_nodes", group=a_group().name) is None


def test_a_refusal_is_counted_once_and_not_those_of_before() -> None:
    """AWS tells of each again and again."""
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    old, new = Refusal(later(minutes=-5), "Sold"), Refusal(later(seconds=5), "Sold")
    for refusals in ((old,), (new, old), (new, old)):
        cluster = a_cluster(groups=[a_group(refusals=refusals)])
        metrics.decided(Plan(), cluster, took=0.1, doubted=False)
    assert value(registry, "spillway_refusals_total", group=a_group().name, code="Sold") == 1


def test_a_new_instance_is_timed_at_each_stage_once() -> None:
    """From the order to launch, node, devices, first pod and that pod's start; one of before our time is not."""
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    old = Instance("i-old", "us-east-1a", launched=later(minutes=-5))
    group = a_group(desired=2, instances=(old,))
    name = group.name
    metrics.decided(Plan(), a_cluster(groups=[group]), took=0.1, doubted=False)
    metrics.ordered(Grow(name, 0, 1, 1.0, (), "r"), oldest=None)
    metrics._boots.ordered(name, later(seconds=1))
    booted = replace(group, instances=(old, Instance("i-new", "us-east-1a", launched=later(seconds=11))))
    nodes = [node for node in nodes_of(booted) if node.instance_id == "i-new"]
    nodes = [replace(node, created=later(seconds=71)) for node in nodes]
    pod = a_pod(node=nodes[0].name, phase="Running")
    bare = [replace(node, allocatable=Resources({"cpu": 1})) for node in nodes]
    begun = replace(pod, started=later(seconds=92))
    looks = [
        a_cluster(groups=[booted], seen_at=later(seconds=20)),
        a_cluster(groups=[booted], nodes=bare, seen_at=later(seconds=75)),
        a_cluster(groups=[booted], nodes=nodes, seen_at=later(seconds=81)),
        *[a_cluster(groups=[booted], nodes=nodes, pods=[pod], seen_at=later(seconds=91 + more)) for more in range(3)],
        a_cluster(groups=[booted], nodes=nodes, pods=[begun], seen_at=later(seconds=99)),
    ]
    for look in looks:
        metrics.decided(Plan(), look, took=0.1, doubted=False)
    for stage, seconds in (("launched", 10), ("joined", 60), ("devices", 70), ("bound", 80), ("started", 81)):
        assert value(registry, "spillway_boot_seconds_sum", group=name, stage=stage) == seconds
        assert value(registry, "spillway_boot_seconds_count", group=name, stage=stage) == 1


def test_nodes_and_gpus_are_told_by_state_when_they_are_asked_for() -> None:
    """Of the last decision; of a replica that does not act, nothing."""
    registry = CollectorRegistry()
    group = a_group("gpu-a100", joined=1, desired=2)
    pod = a_pod(node=nodes_of(group)[0].name, gpus=2, phase="Running")
    cluster = a_cluster(nodes=[an_on_prem_node(), *nodes_of(group)], groups=[group], pods=[pod])
    found: list[Decision | None] = [
        Decision(cluster, a_policy(), Memory(), plan(cluster, a_policy(), Memory())),
    ]
    metrics = Metrics(registry)
    metrics.watch(lambda: found[0])
    assert value(registry, "spillway_nodes", group=OURS, state="ready") == 1
    assert value(registry, "spillway_nodes", group=group.name, state="busy") == 1
    assert value(registry, "spillway_nodes", group=group.name, state="dead") == 0
    assert value(registry, "spillway_gpus", group=group.name, state="joining") == 8
    assert value(registry, "spillway_gpus_held", group=group.name, owner="team") == 2
    assert value(registry, "spillway_group_usd_per_hour", group=group.name) == pytest.approx(2 * group.usd_per_hour)
    found[0] = None
    assert b'state="busy"' not in generate_latest(registry)
