"""The planner on the openb trace, and on pods with five kinds of rules, over the amd64 types of a catalogue.

Time is CPU time of one process on one core. Every figure comes with the independent checker's verdict. Karpenter's and
the rounding's figures are from the same two tables, measured once beside ours, and given for comparison.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from autoscaler.inputs.offline_plan import plan_offline
from autoscaler.inputs.tables import read_asked, read_catalog
from tests import ROOT
from tests.bench.changes import changes
from tests.bench.diverse import ZONES, diverse_pods
from tests.bench.figure import Figure
from tests.bench.limits import limits
from tests.bench.sizes import sizes
from tests.bench.stranded import stranded
from tests.checker import faults, read_table
from tests.checker_of_lists import faults_of_list

PEERS = (
    ("Karpenter's solver, August 2026, 2 threads, 89.8 s", 11_594.0),
    ("linear bound rounded with first-fit-decreasing, 0.01 s", 8_142.0),
)
DIVERSE_PEERS = ((10_000, 23.6), (20_000, 109.7))
"""(pods, seconds that Karpenter's solver takes for such a mix over 400 types)"""
DIVERSE_PERCENT = 5.0
TYPES = 400
BOUNDS = ((1.0, 1.5), (5.0, 0.6))
"""(deadline in seconds, at most so many per cent above the bound)"""


def data_folder() -> Path | None:
    """Where the two tables are: beside this checkout, or one level up."""
    here = ROOT
    return next((one for root in (here, here.parent) if (one := root / "shared" / "data").is_dir()), None)


def planner() -> Iterator[Figure]:
    """Plan within 1 s and within 5 s, check, and compare; nothing where the tables are not at hand."""
    data = data_folder()
    if data is None:
        return
    pods, catalog = data / "openb_pod_list_default.csv", data / "ec2_us_east_1_2026_07_20.csv"
    for deadline, percent in BOUNDS:
        asked, prices = read_asked(str(pods)), read_catalog(catalog)
        began = time.process_time()
        plan = plan_offline(asked, prices, deadline=timedelta(seconds=deadline), clock=time.process_time)
        took = time.process_time() - began
        wrong = faults(plan.as_json(), pods=read_table(pods), catalog=read_table(catalog))
        gap = (plan.usd_per_hour / plan.lower_bound_usd_per_hour - 1) * 100
        stem = f"openb in {deadline:g} s"
        yield Figure(f"{stem}: cost", plan.usd_per_hour, "$/h")
        yield Figure(f"{stem}: no plan costs less than", plan.lower_bound_usd_per_hour, "$/h")
        yield Figure(f"{stem}: above that bound", gap, "%", percent)
        yield Figure(f"{stem}: CPU time", took, "s", deadline * 1.05)
        yield Figure(f"{stem}: faults found by the checker", len(wrong), "", 0)
        yield Figure(f"{stem}: pods waiting", len(plan.waiting), "", 0)
    for name, usd in PEERS:
        yield Figure(f"openb: {name}", usd, "$/h")
    yield from changes("openb", read_asked(str(pods)), read_catalog(catalog))
    yield from _diverse(catalog)
    nodes = data / "openb_node_list_all_node.csv"
    yield from sizes(pods, nodes, catalog)
    yield from limits(pods, nodes, catalog)
    yield from stranded(pods, nodes)


def _diverse(catalog: Path) -> Iterator[Figure]:
    """Generic, spread by zone, spread by host, near by zone, apart by host: a fifth each."""
    prices = [price for price in read_catalog(catalog) if price.arch == "amd64"]
    prices = prices[:: max(1, len(prices) // TYPES)][:TYPES]
    for (count, theirs), deadline in zip(DIVERSE_PEERS, (1.0, 2.0), strict=True):
        listed = diverse_pods(count)
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "pods.json"
            path.write_text(json.dumps(listed), encoding="utf-8")
            began = time.process_time()
            asked = read_asked(str(path))
            reading = time.process_time() - began
        began = time.process_time()
        plan = plan_offline(asked, prices, zones=ZONES, deadline=timedelta(seconds=deadline), clock=time.process_time)
        took = time.process_time() - began
        wrong = faults_of_list(plan.as_json(), pods=listed["items"], catalog=read_table(catalog))
        stem = f"{count} pods with five kinds of rules"
        yield Figure(f"{stem}: CPU time", took, "s", deadline * 1.05)
        yield Figure(f"{stem}: CPU time to read their List", reading, "s")
        yield Figure(f"{stem}: Karpenter's solver", theirs, "s")
        yield Figure(f"{stem}: cost", plan.usd_per_hour, "$/h")
        gap = (plan.usd_per_hour / plan.lower_bound_usd_per_hour - 1) * 100
        yield Figure(f"{stem}: above the bound", gap, "%", DIVERSE_PERCENT)
        yield Figure(f"{stem}: faults found by the checker", len(wrong), "", 0)
        yield Figure(f"{stem}: pods waiting", len(plan.waiting), "", 0)
        if deadline == 1:
            yield from changes(stem, asked, prices, zones=ZONES)
