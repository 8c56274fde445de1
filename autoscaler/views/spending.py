"""What `spillway autoscale spend` prints: sums by day, group, namespace or owner; or FOCUS columns as CSV."""

from __future__ import annotations

import csv
import io
import json
from collections import defaultdict
from collections.abc import Collection, Iterator
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Final, Literal

from autoscaler.acting_policy import of_record
from autoscaler.kube import client as k8s
from autoscaler.kube.ledger_configmaps import LedgerBooks
from autoscaler.kube.policy_configmap import PolicyRecord
from autoscaler.model import labels as words
from autoscaler.model.errors import Unavailable
from autoscaler.model.ledger import Account, Cost, Ledger

By = Literal["day", "group", "namespace", "owner"]
_NOBODY: Final = "(none)"
"""In place of an owner."""

FOCUS: Final = (
    *("BilledCost", "BillingCurrency", "BillingPeriodEnd", "BillingPeriodStart", "ChargeCategory", "ChargeClass"),
    *("ChargeDescription", "ChargeFrequency", "ChargePeriodEnd", "ChargePeriodStart", "ConsumedQuantity"),
    *("ConsumedUnit", "ContractedCost", "EffectiveCost", "InvoiceIssuerName", "ListCost", "PricingCategory"),
    *("PricingQuantity", "PricingUnit", "ProviderName", "PublisherName", "RegionId", "ResourceType"),
    *("ServiceCategory", "ServiceName", "Tags"),
)
"""Columns of the FinOps Open Cost and Usage Specification that are known here; https://focus.finops.org."""


def spending(month: str, by: By, *, kubeconfig: Path | None, namespace: str, wants_csv: bool) -> Iterator[str]:
    """Lines that say what nodes have cost in a month (``2026-11``), or FOCUS columns. Raises ``Unavailable``."""
    kube = k8s.Kube.connect(kubeconfig)
    try:
        ledger = LedgerBooks(kube, namespace=namespace, read_only=True).read([month])
        record = PolicyRecord(kube, namespace).read() if wants_csv else None
    except k8s.Refused as refused:
        raise Unavailable(f"the API server refuses: {refused}") from None
    if wants_csv:
        yield as_focus(ledger, region=of_record(record).region if record else "").rstrip("\n")
    else:
        yield from sums(ledger, by)


def sums(ledger: Ledger, by: By) -> Iterator[str]:
    """A line for each, with dollars and node hours, the dearest first (days in order); then the whole."""
    found: dict[str, Cost] = defaultdict(Cost)
    for (day, entry, holder), cost in ledger.costs.items():
        owner = holder.owner or _NOBODY
        name = {"day": day.isoformat(), "group": entry, "namespace": holder.namespace, "owner": owner}[by]
        found[name] = Cost(found[name].usd + cost.usd, found[name].hours + cost.hours)
    ordered = sorted(found.items(), key=lambda one: (one[0] if by == "day" else "", -one[1].usd, one[0]))
    width = max(map(len, (*found, "in all")))
    for name, cost in (*ordered, ("in all", _total(found.values()))):
        yield f"{name:<{width}}  {cost.usd:>12.2f} $  {cost.hours:>10.1f} node hours"
    if ledger.until is not None:
        yield f"counted until {ledger.until:%Y-%m-%d %H:%M:%S} UTC, at list prices, before discounts"


def _total(costs: Collection[Cost]) -> Cost:
    return Cost(sum(one.usd for one in costs), sum(one.hours for one in costs))


def as_focus(ledger: Ledger, *, region: str) -> str:
    """CSV with a row for each sum of a day. All four costs are the list price: no discount is known."""
    out = io.StringIO()
    table = csv.DictWriter(out, FOCUS, lineterminator="\n")
    table.writeheader()
    for account, cost in sorted(ledger.costs.items()):
        table.writerow(_row(account, cost, region))
    return out.getvalue()


def _row(account: Account, cost: Cost, region: str) -> dict[str, object]:
    first = account.day.replace(day=1)
    usd, hours = round(cost.usd, 6), round(cost.hours, 6)
    namespace, owner = account.holder
    tags = {words.GROUP: account.entry, "kubernetes.io/namespace": namespace}
    tags |= {words.OWNER: owner} if owner else {}
    return {
        **dict.fromkeys(("BilledCost", "ContractedCost", "EffectiveCost", "ListCost"), usd),
        "BillingCurrency": "USD",
        "BillingPeriodStart": _midnight(first),
        "BillingPeriodEnd": _midnight((first + timedelta(days=32)).replace(day=1)),
        "ChargeCategory": "Usage",
        "ChargeClass": "",
        "ChargeDescription": f"nodes of group {account.entry} for namespace {namespace}",
        "ChargeFrequency": "Usage-Based",
        "ChargePeriodStart": _midnight(account.day),
        "ChargePeriodEnd": _midnight(account.day + timedelta(days=1)),
        **dict.fromkeys(("ConsumedQuantity", "PricingQuantity"), hours),
        **dict.fromkeys(("ConsumedUnit", "PricingUnit"), "Hours"),
        **dict.fromkeys(("InvoiceIssuerName", "ProviderName", "PublisherName"), "AWS"),
        "PricingCategory": "Standard",
        "RegionId": region,
        "ResourceType": "Instance",
        "ServiceCategory": "Compute",
        "ServiceName": "Amazon Elastic Compute Cloud",
        "Tags": json.dumps(tags, sort_keys=True),
    }


def _midnight(day: date) -> str:
    return datetime.combine(day, time(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
