"""Openb under the limits of a policy, alone and in gangs: who can be served, and what that costs above the bound."""

from __future__ import annotations

import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final

from autoscaler.config.policy import Policy, read_policy
from autoscaler.inputs.offline_plan import OfflinePlan, plan_offline
from autoscaler.inputs.tables import read_asked, read_catalog, read_nodes
from tests.bench.figure import Figure
from tests.bench.sizes import write_table
from tests.checker import Row, faults, read_table

TYPES: Final = (
    *("g4dn.xlarge", "g4dn.2xlarge", "g4dn.4xlarge", "g4dn.12xlarge", "g4dn.metal", "g5.xlarge", "g5.12xlarge"),
    *("g5.48xlarge", "g6.xlarge", "g6.4xlarge", "g6.12xlarge", "g6.48xlarge", "p4d.24xlarge", "m5.4xlarge"),
    *("m5.24xlarge", "c5.9xlarge", "c5.24xlarge", "r5.8xlarge"),
)
ENDLESS = 100_000
LATE = 1.1
"""Part of the deadline: what is begun under limits may end a little later."""
_CENT = 1e-6


def limits(pods: Path, nodes: Path, catalog: Path) -> Iterator[Figure]:
    """Each case within 1 s; what is hardest within 5 s, too."""
    asked, machines = read_table(pods), read_table(nodes)
    gangs = _gangs(asked)
    few = {kind: random.Random(kind).randint(20, 200) for kind in TYPES}  # noqa: S311 - the same each time
    # name, pods, machines that are there, the policy, the deadline; how many wait, how far above the bound (%)
    cases: list[tuple[str, Sequence[Row], Sequence[Row], str, float, int, float]] = [
        ("openb on at most 600 nodes", asked, (), _policy("nodes: 600"), 1, 2_700, 2),
        ("openb with at most 3,000 GPUs bought", asked, (), _policy("gpus: 3000"), 1, 4_350, 3),
        ("openb for at most 6,500 $/h", asked, (), _policy("usd_per_hour: 6500"), 1, 1_300, 3),
        ("openb, 20 to 200 nodes of each type", asked, (), _policy(most=few), 1, 3_300, 2),
        ("openb, 20 to 200 nodes of each type", asked, (), _policy(most=few), 5, 3_300, 2),
        ("openb in gangs of 2 to 16, 500 nodes, 1,500 GPUs", gangs, (), _policy("nodes: 500, gpus: 1500"), 1, 6_550, 3),
        ("openb on every 4th machine and at most 600 nodes", asked, machines[::4], _policy("nodes: 600"), 1, 1_300, 5),
        ("openb on every 4th machine and at most 600 nodes", asked, machines[::4], _policy("nodes: 600"), 5, 1_300, 2),
        ("openb on every 8th machine and at most 600 nodes", asked, machines[::8], _policy("nodes: 600"), 1, 1_900, 5),
        ("openb on every 4th machine and at most 1,500 GPUs", asked, machines[::4], _policy("gpus: 1500"), 1, 4_300, 5),
    ]
    for name, rows, there, policy, deadline, waiting, most in cases:
        with tempfile.TemporaryDirectory() as directory:
            folder = Path(directory)
            write_table(folder / "pods.csv", rows)
            write_table(folder / "nodes.csv", there)
            (folder / "policy.yaml").write_text(policy, encoding="utf-8")
            wanted, known = read_asked(str(folder / "pods.csv")), read_policy(folder / "policy.yaml")
            free = read_nodes(folder / "nodes.csv") if there else ()
        prices, span = read_catalog(catalog), timedelta(seconds=deadline)
        began = time.process_time()
        plan = plan_offline(wanted, prices, free, policy=known, deadline=span, clock=time.process_time)
        took = time.process_time() - began
        wrong = faults(plan.as_json(), pods=rows, catalog=read_table(catalog), nodes=there)
        wrong += _broken(plan, known, prices={row["instance_type"]: row for row in read_table(catalog)})
        stem, gap = f"{name}, {deadline:g} s", plan.usd_per_hour / plan.lower_bound_usd_per_hour - 1
        yield Figure(f"{stem}: CPU time", took, "s", deadline * LATE)
        yield Figure(f"{stem}: pods waiting", len(plan.waiting), f"of {len(rows)}", waiting)
        yield Figure(f"{stem}: above the bound", gap * 100, "%", most)
        yield Figure(f"{stem}: faults found by the checker", len(wrong), "", 0)


def _broken(plan: OfflinePlan, policy: Policy, *, prices: dict[str, dict[str, str]]) -> list[str]:
    """Limits that are not kept."""
    bought = Counter(node.instance_type for node in plan.nodes)
    gpus = sum(float(prices[kind]["gpu_count"] or 0) * many for kind, many in bought.items())
    found = [entry.name for entry in policy.groups if bought[entry.types[0]] > entry.max]
    most = policy.limits
    found += ["nodes"] if most.nodes is not None and len(plan.nodes) > most.nodes else []
    found += ["gpus"] if most.gpus is not None and gpus > most.gpus else []
    found += ["usd"] if most.usd_per_hour is not None and plan.usd_per_hour > most.usd_per_hour + _CENT else []
    return found


def _policy(limit: str = "", *, most: dict[str, int] | None = None) -> str:
    lines = ["cluster: c", *([f"limits: {{{limit}}}"] if limit else []), "groups:"]
    for kind in TYPES:
        name, maximum = kind.replace(".", "-"), (most or {}).get(kind, ENDLESS)
        lines.append(f"  - {{name: {name}, instance_type: {kind}, zones: [us-east-1a], max: {maximum}}}")
    return "\n".join(lines) + "\n"


def _gangs(rows: Sequence[Row]) -> list[Row]:
    """Neighbours in the table together, each gang with a priority."""
    dice = random.Random(2)  # noqa: S311
    found: list[Row] = []
    while len(found) < len(rows):
        gang = {"gang": f"g{len(found)}", "priority": str(dice.choice((0, 0, 0, 10, 100)))}
        found += [{**row, **gang} for row in rows[len(found) : len(found) + dice.randint(2, 16)]]
    return found
