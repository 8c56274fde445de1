"""Pods that all ask for something else, and machines that are there: the deadline, the gap, the checker's verdict."""

from __future__ import annotations

import csv
import random
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from autoscaler.inputs.offline_plan import plan_offline
from autoscaler.inputs.tables import read_asked, read_catalog, read_nodes
from tests.bench.figure import Figure
from tests.checker import Row, faults, read_table

_EVERY = ((2, "2nd"), (3, "3rd"), (4, "4th"), (8, "8th"), (16, "16th"))


def sizes(pods: Path, nodes: Path, catalog: Path) -> Iterator[Figure]:
    """Each case within 1 s."""
    asked, machines = read_table(pods), read_table(nodes)
    other, small = _of_other_sizes(asked), _small(30_000)
    # name, pods, machines that are there, and at most so many per cent above the bound
    cases: list[tuple[str, Sequence[Row], Sequence[Row], float]] = [
        ("openb, each pod of another size", other, (), 8.0),
        ("30,000 small pods of other sizes", small, (), 20.0),
        ("150 small pods of other sizes", small[:150], (), 30.0),
        ("2,000 pods of log-normal sizes", _log_normal(2_000), (), 20.0),
        (f"openb on all its {len(machines):,} machines", asked, machines, 2.0),
        *((f"openb on every {name} of its machines", asked, machines[::every], 3.0) for every, name in _EVERY),
        ("openb, each size times a number, on a third of its machines", _stretched(asked), machines[::3], 7.0),
        ("openb, each pod of another size, on every 4th machine", other, machines[::4], 25.0),
    ]
    for name, rows, there, most in cases:
        yield from _figures(name, rows, there, catalog, most=most)


def _figures(
    name: str, rows: Sequence[Row], machines: Sequence[Row], catalog: Path, *, most: float
) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as directory:
        pods, nodes = Path(directory) / "pods.csv", Path(directory) / "nodes.csv"
        write_table(pods, rows)
        write_table(nodes, machines)
        asked, there = read_asked(str(pods)), read_nodes(nodes) if machines else ()
    prices = read_catalog(catalog)
    began = time.process_time()
    plan = plan_offline(asked, prices, there, deadline=timedelta(seconds=1), clock=time.process_time)
    took = time.process_time() - began
    wrong = faults(plan.as_json(), pods=rows, catalog=read_table(catalog), nodes=machines)
    yield Figure(f"{name}: CPU time", took, "s", 1.05)
    yield Figure(f"{name}: cost", plan.usd_per_hour, "$/h")
    gap = (plan.usd_per_hour / plan.lower_bound_usd_per_hour - 1) * 100 if plan.lower_bound_usd_per_hour else 0.0
    yield Figure(f"{name}: above the bound", gap, "%", most)
    yield Figure(f"{name}: faults found by the checker", len(wrong) + len(plan.waiting), "", 0)


def _stretched(rows: Sequence[Row]) -> list[Row]:
    """Pods of one size alike, each size times two numbers of its own, from 0.6 to 1.6."""
    dice = random.Random(5)  # noqa: S311
    times: dict[tuple[str, ...], tuple[float, float]] = {}
    found: list[Row] = []
    for row in rows:
        size = (row["cpu_milli"], row["memory_mib"], row["num_gpu"])
        cpu, memory = times.setdefault(size, (dice.uniform(0.6, 1.6), dice.uniform(0.6, 1.6)))
        found.append(
            {
                **row,
                "cpu_milli": str(max(1, round(int(size[0]) * cpu / 100)) * 100),
                "memory_mib": str(max(1, round(int(size[1]) * memory / 64)) * 64),
            }
        )
    return found


def _of_other_sizes(rows: Sequence[Row]) -> list[Row]:
    """Each request times a number of its own, from 0.7 to 1.3."""
    dice = random.Random(5)  # noqa: S311 - the same pods every time
    return [
        {
            "name": f"p{number}",
            "cpu_milli": str(max(1, int(float(row["cpu_milli"]) * dice.uniform(0.7, 1.3)))),
            "memory_mib": str(max(1, int(float(row["memory_mib"]) * dice.uniform(0.7, 1.3)))),
            "num_gpu": row["num_gpu"],
        }
        for number, row in enumerate(rows)
    ]


def _log_normal(many: int) -> list[Row]:
    """Most are small, a few of them very large."""
    dice = random.Random(9)  # noqa: S311
    return [
        {
            "name": f"l{number}",
            "cpu_milli": str(min(180_000, int(dice.lognormvariate(5.7, 1.8)) + 1)),
            "memory_mib": str(min(700_000, int(dice.lognormvariate(6.5, 1.8)) + 1)),
            "num_gpu": "0",
        }
        for number in range(many)
    ]


def _small(many: int) -> list[Row]:
    dice = random.Random(7)  # noqa: S311
    return [
        {
            "name": f"s{number}",
            "cpu_milli": str(dice.randint(50, 2000)),
            "memory_mib": str(dice.randint(64, 8192)),
            "num_gpu": "0",
        }
        for number in range(many)
    ]


def write_table(path: Path, rows: Sequence[Mapping[str, str]]) -> None:
    """Rows as a CSV file."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, tuple(rows[0]) if rows else ())
        writer.writeheader()
        writer.writerows(rows)
