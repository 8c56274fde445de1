"""An independent check of an offline plan: from its JSON and the input tables alone, nothing of the planner is used.

``python -m tests.checker PLAN.json --pods PODS.csv --catalog CATALOG.csv [--nodes NODES.csv]`` prints every fault found
and exits 1, or says that there is none.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

Row = Mapping[str, str]
TOLERANCE = 1e-4


def faults(
    plan: Mapping[str, Any], *, pods: Sequence[Row], catalog: Sequence[Row], nodes: Sequence[Row] = ()
) -> list[str]:
    """Everything that is wrong with the plan, in words."""
    asks = {row.get("name") or f"pod-{number}": row for number, row in enumerate(pods, start=1)}
    types = {row["instance_type"]: row for row in catalog}
    rooms = {row["sn"]: _room_of_machine(row) for row in nodes}
    found: list[str] = []
    for node in plan["nodes"]:
        if node["name"] in rooms:
            found.append(f"two nodes are called {node['name']}")
        if node["instance_type"] not in types:
            found.append(f"{node['name']}: there is no type {node['instance_type']}")
            continue
        rooms[node["name"]] = _room_of_type(types[node["instance_type"]])
    return [
        *found,
        *_prices(plan, types),
        *_everyone_once(plan, asks),
        *_nothing_over(plan, asks, rooms),
        *_gangs_whole(plan, asks),
        *_zones(plan, asks),
    ]


def _room_of_machine(row: Row) -> list[float]:
    return [
        float(row["cpu_milli"]),
        float(row["memory_mib"]),
        float(row["gpu"] or 0),
        float(row.get("max_pods") or 110),
    ]


def _room_of_type(row: Row) -> list[float]:
    return [
        float(row["allocatable_cpu_milli"]),
        float(row["allocatable_memory_mib"]),
        float(row["gpu_count"] or 0),
        float(row["max_pods"]),
    ]


def _prices(plan: Mapping[str, Any], types: Mapping[str, Row]) -> Iterator[str]:
    total = 0.0
    for node in plan["nodes"]:
        listed = float(types.get(node["instance_type"], {"usd_per_hour": "nan"})["usd_per_hour"])
        if not math.isclose(node["usd_per_hour"], listed, abs_tol=TOLERANCE):
            yield f"{node['name']}: costs {node['usd_per_hour']}, the catalogue says {listed}"
        total += listed
    if not math.isclose(total, plan["usd_per_hour"], rel_tol=1e-9, abs_tol=TOLERANCE):
        yield f"usd_per_hour is {plan['usd_per_hour']}, the nodes cost {total}"
    if plan["lower_bound_usd_per_hour"] > plan["usd_per_hour"] + TOLERANCE:
        yield f"the bound {plan['lower_bound_usd_per_hour']} is above the cost {plan['usd_per_hour']}"


def _everyone_once(plan: Mapping[str, Any], asks: Mapping[str, Row]) -> Iterator[str]:
    placed, waiting = set(plan["placements"]), [one["pod"] for one in plan["waiting"]]
    for name in sorted(set(asks) - placed - set(waiting)):
        yield f"{name}: neither placed nor waiting"
    for name in sorted((placed | set(waiting)) - set(asks)):
        yield f"{name}: nobody asked for it"
    for name in sorted(placed & set(waiting)):
        yield f"{name}: placed and waiting"
    if len(waiting) != len(set(waiting)):
        yield "someone waits twice"
    for one in plan["waiting"]:
        if not one["reason"] or not one["would_fit_if"]:
            yield f"{one['pod']}: waits and nobody says why, or what would help"


def _nothing_over(plan: Mapping[str, Any], asks: Mapping[str, Row], rooms: Mapping[str, list[float]]) -> Iterator[str]:
    taken: dict[str, list[float]] = defaultdict(lambda: [0.0] * 4)
    for pod, node in plan["placements"].items():
        if node not in rooms:
            yield f"{pod}: there is no node {node}"
        elif pod in asks:
            row = asks[pod]
            amounts = (float(row["cpu_milli"]), float(row["memory_mib"]), float(row.get("num_gpu") or 0), 1.0)
            for one, amount in enumerate(amounts):
                taken[node][one] += amount
    for node, used in taken.items():
        for what, amount, room in zip(("cpu", "memory", "gpus", "pods"), used, rooms.get(node, used), strict=True):
            if amount > room + TOLERANCE:
                yield f"{node}: {amount:g} of {what} on {room:g}"
    for node in plan["nodes"]:
        if node["name"] not in taken:
            yield f"{node['name']}: bought and empty"


def _gangs_whole(plan: Mapping[str, Any], asks: Mapping[str, Row]) -> Iterator[str]:
    gangs: dict[str, set[bool]] = defaultdict(set)
    for name, row in asks.items():
        if row.get("gang"):
            gangs[row["gang"]].add(name in plan["placements"])
    for gang, states in sorted(gangs.items()):
        if len(states) > 1:
            yield f"gang {gang}: some of it is placed, some waits"


def _zones(plan: Mapping[str, Any], asks: Mapping[str, Row]) -> Iterator[str]:
    zone = {node["name"]: node["zone"] for node in plan["nodes"]}
    for pod, node in plan["placements"].items():
        wanted = asks.get(pod, {}).get("zone")
        if wanted and node in zone and zone[node] != wanted:
            yield f"{pod}: wants zone {wanted}, is on {node} in {zone[node]}"


def read_table(path: Path) -> list[dict[str, str]]:
    """A CSV file as rows."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def main() -> int:
    """Check one plan."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", type=Path)
    parser.add_argument("--pods", type=Path, required=True)
    parser.add_argument("--catalog", type=Path, required=True)
    parser.add_argument("--nodes", type=Path)
    asked = parser.parse_args()
    found = faults(
        json.loads(asked.plan.read_text(encoding="utf-8")),
        pods=read_table(asked.pods),
        catalog=read_table(asked.catalog),
        nodes=read_table(asked.nodes) if asked.nodes else (),
    )
    print("\n".join(found) or "no fault found")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
