"""Budgets and the ledger that survives restarts."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from autoscaler.kube.client import Kube
from autoscaler.kube.ledger_configmaps import LedgerBooks, months_at
from autoscaler.model import labels as words
from autoscaler.model.actions import PAUSED, Grow, Memory, Remove
from autoscaler.model.cluster import CapacityBlock, Cluster
from autoscaler.model.ledger import IDLE, Account, Cost, Holder, Ledger
from autoscaler.planner.plan import plan
from autoscaler.reporting.bookkeeper import Bookkeeper, spent
from autoscaler.views.spending import FOCUS, as_focus, sums
from tests.builders import NOW, a_cluster, a_gang, a_group, a_pod, a_policy, an_entry, an_on_prem_node, later, nodes_of
from tests.test_autoscaler.fake_api import Answer, fake_api
from tests.test_autoscaler.test_cli.test_autoscale import typed
from tests.test_autoscaler.test_kube.test_policy_configmap import Shelf

TODAY = NOW.date()
COSTS = {
    Account(TODAY, "gpu-a10g", Holder("vision", "ada")): Cost(60.0, 10.0),
    Account(TODAY, "cpu", Holder(IDLE)): Cost(10.0, 13.0),
    Account(date(2026, 11, 1), "gpu-a10g", Holder("vision")): Cost(200.0, 35.0),
    Account(date(2026, 10, 31), "gpu-a10g", Holder("vision")): Cost(1000.0, 176.0),
}
LEDGER = Ledger(COSTS, NOW)


def budgets(whole: dict[str, Any], group: dict[str, float] | None = None) -> Any:
    """A policy with a budget of all, and one of gpu-a10g."""
    policy = a_policy(an_entry("gpu-a10g", budget=group or {}), an_entry("cpu"))
    budget = type(policy.budget).model_validate(whole)
    return policy.model_copy(update={"budget": budget})


@pytest.mark.parametrize(
    ("whole", "group", "told"),
    [
        ({}, {}, {}),
        ({"usd_per_day": 71}, {"usd_per_day": 61}, {}),
        ({"usd_per_day": 70}, {}, {"budget": later(hours=15)}),
        ({}, {"usd_per_day": 60}, {"budget.gpu-a10g": later(hours=15)}),
        ({"usd_per_month": 270}, {}, {"budget": datetime.fromisoformat("2026-12-01T00:00:00Z")}),
        ({"usd_per_month": 271}, {}, {}),
        ({"usd_per_day": 1, "usd_per_month": 1}, {}, {"budget": datetime.fromisoformat("2026-12-01T00:00:00Z")}),
        ({"namespaces": {"vision": {"usd_per_day": 61}, "speech": {"usd_per_day": 1}}}, {}, {}),
        ({"namespaces": {"vision": {"usd_per_day": 60}}}, {}, {"budget.namespace/vision": later(hours=15)}),
        ({"owners": {"ada": {"usd_per_month": 61}, "bob": {"usd_per_day": 1}}}, {}, {}),
        ({"owners": {"ada": {"usd_per_day": 60}}}, {}, {"budget.owner/ada": later(hours=15)}),
    ],
)
def test_a_budget_that_is_spent_pauses_buying_until_its_period_ends(
    whole: dict[str, Any], group: dict[str, float], told: dict[str, datetime]
) -> None:
    """Of a day or a month of UTC, for all, one group, one namespace or one owner; the later end counts."""
    assert {one.scope: one.until for one in spent(LEDGER, budgets(whole, group), NOW)} == told


def test_under_a_spent_budget_nothing_is_bought_idle_nodes_go_and_pods_are_told() -> None:
    """With what would change it."""
    (pause,) = spent(LEDGER, budgets({"usd_per_day": 70}), NOW)
    group = a_group("gpu-a10g", joined=1)
    marks = {"cordoned": True, "cordoned_by": "spillway-autoscaler", "cordoned_at": NOW - timedelta(hours=1)}
    look = a_cluster(
        pods=[a_pod("p", gpus=4, selector={"zone": "us-east-1b"})],
        nodes=nodes_of(group, **marks),
        groups=(group, a_group("gpu-a10g", "us-east-1b")),
        pauses=(pause,),
    )
    done = plan(look, a_policy(), Memory())
    assert {type(step) for step in done.steps} == {Remove}
    (waits,) = done.waiting
    assert (
        "buying is paused until 2026-11-22 00:00:00 UTC by the policy: the budget of 70 $ for this day" in waits.because
    )
    assert waits.would_fit_if == "the budget is raised, or that time has come"
    assert Grow not in {type(step) for step in done.steps}


def waiting_for(namespace: str, *, many: int = 2, **given: Any) -> list[Any]:
    """Pods of a namespace, of 4 GPUs each."""
    return [a_pod(f"{namespace}-{number}", namespace=namespace, gpus=4, **given) for number in range(many)]


def test_for_a_namespace_that_has_spent_its_budget_nothing_is_bought_and_others_are_served() -> None:
    """Its pods are told what it would cost; where there is room they run all the same."""
    (pause,) = spent(LEDGER, budgets({"namespaces": {"vision": {"usd_per_day": 60}}}), NOW)
    groups = (a_group("gpu-a10g"),)
    pods = [*waiting_for("vision"), *waiting_for("speech")]
    done = plan(a_cluster(pods=pods, groups=groups, pauses=(pause,)), a_policy(), Memory())
    assert [step.by for step in done.steps if isinstance(step, Grow)] == [2]
    told = {one.pod: one for one in done.waiting if one.cause == PAUSED}
    assert told.keys() == {"vision/vision-0", "vision/vision-1"}
    assert told["vision/vision-1"].because == (
        "buying for it would cost 5.67 $/h, but buying for namespace vision is paused until 2026-11-22 00:00:00 UTC"
        " by the policy: the budget of 60 $ for this day is spent"
    )
    assert told["vision/vision-1"].would_fit_if == "the budget is raised, or that time has come"
    roomy = a_cluster(pods=waiting_for("vision"), nodes=(an_on_prem_node(),), groups=groups, pauses=(pause,))
    assert plan(roomy, a_policy(), Memory()).waiting == ()


def test_for_an_owner_that_has_spent_its_budget_nothing_is_bought_in_any_namespace() -> None:
    """Others of the same namespace are served; of a gang, one pod of that owner is enough."""
    (pause,) = spent(LEDGER, budgets({"owners": {"ada": {"usd_per_day": 60}}}), NOW)
    ada = {"labels": {words.OWNER: "ada"}}
    pods = [*waiting_for("vision", **ada), *waiting_for("speech", **ada), a_pod("other", namespace="vision", gpus=4)]
    look = a_cluster(pods=pods, groups=(a_group("gpu-a10g"),), pauses=(pause,))
    done = plan(look, a_policy(), Memory())
    assert [step.by for step in done.steps if isinstance(step, Grow)] == [1]
    told = {one.pod: one.because for one in done.waiting if one.cause == PAUSED}
    assert told.keys() == {f"{where}/{where}-{number}" for where in ("vision", "speech") for number in (0, 1)}
    assert "but buying for owner ada is paused until 2026-11-22 00:00:00 UTC" in told["speech/speech-1"]
    first, *others = a_gang("g", 2, gpus=4)
    gang = [first, *(replace(pod, labels={**pod.labels, words.OWNER: "ada"}) for pod in others)]
    both = plan(replace(look, pods=tuple(gang)), a_policy(), Memory())
    assert [one.cause for one in both.waiting] == [PAUSED, PAUSED]


def test_a_gang_that_was_bought_for_before_the_budget_was_spent_keeps_its_nodes() -> None:
    """What was ordered comes; the members that lack a node wait, and none is bought for them."""
    (pause,) = spent(LEDGER, budgets({"namespaces": {"vision": {"usd_per_day": 60}}}), NOW)
    group = a_group("gpu-a10g", joined=1)
    (node,) = nodes_of(group)
    running = a_pod("vision-r", namespace="vision", gpus=4, node=node.name, phase="Running", started=NOW)
    look = a_cluster(pods=[running, *waiting_for("vision", many=1)], nodes=(node,), groups=(group,), pauses=(pause,))
    done = plan(look, a_policy(), Memory())
    assert done.steps == ()
    assert [one.cause for one in done.waiting] == [PAUSED]


def look(at: datetime) -> Cluster:
    """One node of 5.672 $/h."""
    group = a_group("gpu-a10g", joined=1)
    return a_cluster(seen_at=at, nodes=nodes_of(group), groups=(group,))


def test_the_ledger_survives_a_restart_and_is_written_each_minute(tmp_path: Path) -> None:
    """What ran while none counted is counted by the next one; the month before is not written again."""
    shelf, policy = Shelf(), budgets({"usd_per_day": 6})
    with fake_api() as api:
        api.answer = shelf.answer
        kube = Kube.connect(api.kubeconfig(tmp_path))
        books = LedgerBooks(kube, namespace="spillway")
        books.write(Ledger({Account(date(2026, 10, 31), "cpu", Holder("x", "ada")): Cost(1.0, 1.0)}, NOW))
        first = Bookkeeper(books)
        for second in range(0, 121, 10):
            assert first.look(look(later(seconds=second)), policy) == ()
        puts = [one.path.rpartition("/")[2] for one in api.asked if one.method == "PUT"]
        assert puts.count("spillway-autoscaler-ledger-11") == 2
        assert puts.count("spillway-autoscaler-ledger-10") == 1
        again = Bookkeeper(LedgerBooks(kube, namespace="spillway"))
        assert again.look(look(later(minutes=63)), policy) == ()
        (pause,) = again.look(look(later(minutes=65)), policy)
        assert pause.scope == "budget"
        again.close()
        read = LedgerBooks(kube, namespace="spillway").read(months_at(NOW))
        assert read.usd(since=TODAY) == pytest.approx(65 / 60 * 5.672, abs=1e-4)
        assert read.usd(since=date(2026, 10, 1)) == pytest.approx(1 + 65 / 60 * 5.672, abs=1e-4)
        assert LedgerBooks(kube, namespace="spillway").read(["2025-11"]).costs == {}, "the ring's next year"


def test_what_the_policy_says_of_a_block_is_counted_and_may_spend_a_budget(tmp_path: Path) -> None:
    """Of 240 $ for a day 10 $ an hour, though a node of it costs nothing."""
    given = {
        "capacity_type": "capacity-block",
        "capacity_reservation": "cr-0123456789abcdef0",
        "zones": ("us-east-1a",),
    }
    entry = an_entry("gpu-a10g", upfront_usd=240.0, budget={"usd_per_day": 1}, **given)
    block = CapacityBlock(later(hours=-1), later(hours=23), instances=1)

    def within(at: datetime) -> Cluster:
        return a_cluster(seen_at=at, groups=(a_group("gpu-a10g", usd_per_hour=0.0, block=block),))

    with fake_api() as api:
        api.answer = Shelf().answer
        keeper = Bookkeeper(LedgerBooks(Kube.connect(api.kubeconfig(tmp_path)), namespace="spillway"))
        for minute in range(6):
            assert keeper.look(within(later(minutes=minute)), a_policy(entry)) == ()
        (pause,) = keeper.look(within(later(minutes=7)), a_policy(entry))
        assert pause.because == "the budget of 1 $ for this day is spent"
    with pytest.raises(ValueError, match="upfront_usd 240 with capacity_type: on-demand: only Capacity Blocks"):
        an_entry("gpu-a10g", upfront_usd=240.0)


def test_without_the_cluster_nothing_is_counted_and_nothing_paused(tmp_path: Path) -> None:
    """Buying goes on; once it is back, what ran is counted."""
    with fake_api() as api:
        api.answer = lambda asked: Answer({}, 200 if asked.path == "/version" else 503)
        keeper = Bookkeeper(LedgerBooks(Kube.connect(api.kubeconfig(tmp_path)), namespace="spillway"))
        assert keeper.look(look(NOW), budgets({"usd_per_day": 1})) == ()


def test_spend_adds_up_by_day_group_namespace_and_owner() -> None:
    """The dearest first, days in order, and the whole."""
    lines = [line.split() for line in sums(LEDGER, "group")]
    assert [(line[0], line[1]) for line in lines[:2]] == [("gpu-a10g", "1260.00"), ("cpu", "10.00")]
    assert lines[2][:3] == ["in", "all", "1270.00"]
    assert [line.split()[0] for line in sums(LEDGER, "day")][:3] == ["2026-10-31", "2026-11-01", "2026-11-21"]
    assert {line.split()[0] for line in sums(LEDGER, "namespace")} >= {"vision", IDLE}
    owners = {line.split()[0]: line.split()[1] for line in sums(LEDGER, "owner")}
    assert owners | {"in": ""} == {"(none)": "1210.00", "ada": "60.00", "in": "", "counted": "until"}
    assert next(sums(Ledger(), "day")).startswith("in all")


def test_focus_columns_are_those_of_the_specification_and_add_up() -> None:
    """A row for each sum of a day; periods in UTC."""
    rows = list(csv.DictReader(io.StringIO(as_focus(LEDGER, region="us-east-1"))))
    assert tuple(rows[0]) == FOCUS
    assert sum(float(row["BilledCost"]) for row in rows) == 1270
    (row,) = [row for row in rows if row["ChargeDescription"] == "nodes of group cpu for namespace (idle)"]
    assert (row["ChargePeriodStart"], row["ChargePeriodEnd"]) == ("2026-11-21T00:00:00Z", "2026-11-22T00:00:00Z")
    assert (row["BillingPeriodStart"], row["BillingPeriodEnd"]) == ("2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z")
    assert (row["ConsumedQuantity"], row["ConsumedUnit"], row["RegionId"]) == ("13.0", "Hours", "us-east-1")
    assert json.loads(row["Tags"]) == {"spillway.dev/group": "cpu", "kubernetes.io/namespace": IDLE}
    assert [json.loads(row["Tags"]).get("spillway.dev/owner") for row in rows] == [None, None, None, "ada"]


def test_the_command_reads_the_month_that_is_asked_for(tmp_path: Path) -> None:
    """As a table, or as CSV."""
    shelf = Shelf()
    with fake_api() as api:
        api.answer = shelf.answer
        config = api.kubeconfig(tmp_path)
        LedgerBooks(Kube.connect(config), namespace="spillway").write(LEDGER)
        table = typed("autoscale", "spend", "--month", "2026-11", "--by", "group", kubeconfig=config)
        assert table.returncode == 0, table.stderr
        assert table.stdout.splitlines()[0].split()[:2] == ["gpu-a10g", "260.00"]
        rows = typed("autoscale", "spend", "--month", "2026-10", "--csv", kubeconfig=config).stdout
        assert rows.splitlines()[0] == ",".join(FOCUS)
        assert len(rows.splitlines()) == 2
        assert typed("autoscale", "spend", "--month", "november", kubeconfig=config).returncode == 2
