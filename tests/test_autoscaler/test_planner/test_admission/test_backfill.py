"""What was left out of a plan and finds room in it all the same; and that there is none for what waits."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from autoscaler.config.policy import read_policy
from autoscaler.inputs.offline_plan import OfflinePlan, plan_offline
from autoscaler.inputs.tables import read_asked, read_catalog, read_nodes
from tests import examples
from tests.checker_of_lists import faults_of_list
from tests.test_autoscaler.test_planner.test_plan_limits import CATALOG, planned
from tests.test_autoscaler.test_solver.test_admission_lp import ROOMS

COLUMNS = "name,cpu_milli,memory_mib,num_gpu,gang,priority\n"
USD = {"c.huge": 3.0, "g.one": 1.0, "g.four": 3.6}
NODES = "sn,cpu_milli,memory_mib,gpu,model\n"
GPU_ONLY = "cluster: c\ngroups:\n  - {name: gpu, instance_type: g.four, zones: [us-east-1a], max: 1}\n"

Size = tuple[int, int, int]


@dataclass(frozen=True)
class Case:
    """Pods by size, in order; at most so many nodes of each type, and of everything together."""

    pods: list[Size]
    most: dict[str, int]
    limits: dict[str, int]
    machines: list[Size] = field(default_factory=list)

    def policy(self) -> str:
        """In words."""
        limits = ", ".join(f"{name}: {most}" for name, most in self.limits.items())
        groups = "".join(
            f"  - {{name: {kind.replace('.', '-')}, instance_type: {kind}, zones: [us-east-1a], max: {most}}}\n"
            for kind, most in self.most.items()
        )
        return f"cluster: c\nlimits: {{{limits}}}\ngroups:\n{groups}"


sizes = st.tuples(
    st.sampled_from((500, 1_500, 3_000, 7_000, 20_000)),
    st.sampled_from((1_000, 4_000, 12_000, 28_000)),
    st.sampled_from((0, 0, 1, 1, 2, 4)),
)
cases = st.builds(
    Case,
    st.lists(st.tuples(sizes, st.integers(1, 40)), min_size=4, max_size=8).map(
        lambda rows: [size for number in range(40) for size, many in rows if number < many]
    ),
    st.fixed_dictionaries({kind: st.integers(1, 12) for kind in ROOMS}),
    st.fixed_dictionaries(
        {}, optional={"nodes": st.integers(2, 20), "gpus": st.integers(2, 20), "usd_per_hour": st.integers(3, 40)}
    ),
    st.lists(sizes, max_size=4),
)


LEFT_OUT = Case(
    [*[(500, 1000, 0)] * 25, (1500, 4000, 0), (3000, 4000, 0)],
    {"c.huge": 2, "g.one": 3, "g.four": 1},
    {"nodes": 2, "usd_per_hour": 3},
    [(500, 1000, 0)],
)
"""Of which a purchase within the limits leaves one out, beside a machine: bought for without it, planning broke."""


@settings(max_examples=examples(30), deadline=None)
@given(case=cases, seconds=st.sampled_from((0.1, 1.0)))
@example(case=LEFT_OUT, seconds=1.0)
@example(case=LEFT_OUT, seconds=0.1)
def test_for_no_gang_that_waits_there_is_room(
    case: Case, seconds: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Neither beside others nor on one more node within the limits, which are kept; however little is searched."""
    pods = "".join(f"p{one},{cpu},{memory},{gpus}\n" for one, (cpu, memory, gpus) in enumerate(case.pods))
    nodes = "".join(f"m{one},{cpu},{memory},{gpus},\n" for one, (cpu, memory, gpus) in enumerate(case.machines))
    nodes, folder = NODES + nodes if nodes else "", tmp_path_factory.mktemp("case")
    plan = planned(folder, pods, policy=case.policy(), nodes=nodes, seconds=seconds)
    free = _free(plan, case)
    bought = Counter(node.instance_type for node in plan.nodes)
    assert all(bought[kind] <= case.most[kind] for kind in bought)
    assert bought.total() <= case.limits.get("nodes", 10**6)
    assert sum(ROOMS[kind][2] * many for kind, many in bought.items()) <= case.limits.get("gpus", 10**6)
    assert plan.usd_per_hour <= case.limits.get("usd_per_hour", 10**6)
    for one in plan.waiting:
        size = case.pods[int(one.pod[1:])]
        assert not [name for name, room in free.items() if _holds(room, (*size, 1))], one
        assert not [kind for kind in _to_be_had(plan, case) if _holds(ROOMS[kind], size)], one


MOST_PODS = {row["instance_type"]: int(row["max_pods"]) for row in csv.DictReader(io.StringIO(CATALOG))}


def _free(plan: OfflinePlan, case: Case) -> dict[str, list[int]]:
    rooms = {f"m{one}": [*size, 110] for one, size in enumerate(case.machines)}
    rooms |= {node.name: [*ROOMS[node.instance_type], MOST_PODS[node.instance_type]] for node in plan.nodes}
    for pod, place in plan.placements.items():
        for side, some in enumerate((*case.pods[int(pod[1:])], 1)):
            rooms[place][side] -= some
    return rooms


def _to_be_had(plan: OfflinePlan, case: Case) -> list[str]:
    """Types of which one more node may be bought."""
    bought = Counter(node.instance_type for node in plan.nodes)
    gpus = sum(ROOMS[kind][2] * many for kind, many in bought.items())
    most = {"nodes": 10**6, "gpus": 10**6, "usd_per_hour": 10**6} | case.limits
    return [
        kind
        for kind, room in ROOMS.items()
        if bought[kind] < case.most[kind]
        and bought.total() < most["nodes"]
        and gpus + room[2] <= most["gpus"]
        and plan.usd_per_hour + USD[kind] <= most["usd_per_hour"]
    ]


def _holds(room: tuple[int, ...] | list[int], size: tuple[int, ...]) -> bool:
    return all(some <= have for some, have in zip(size, room, strict=True))


def places(
    directory: Path, pods: str | list[dict[str, Any]], *, policy: str = GPU_ONLY, nodes: str = ""
) -> dict[str, str]:
    """Pod -> where it goes. ``pods``: lines of a table, or a List's items."""
    return dict(made(directory, pods, policy=policy, nodes=nodes).placements)


def made(directory: Path, pods: str | list[dict[str, Any]], *, policy: str = GPU_ONLY, nodes: str = "") -> OfflinePlan:
    """The plan."""
    name = "pods.csv" if isinstance(pods, str) else "pods.json"
    text = COLUMNS + pods if isinstance(pods, str) else json.dumps({"kind": "List", "items": pods})
    for file, written in ((name, text), ("policy.yaml", policy), ("nodes.csv", nodes), ("catalog.csv", CATALOG)):
        (directory / file).write_text(written, encoding="utf-8")
    return plan_offline(
        read_asked(str(directory / name)),
        read_catalog(directory / "catalog.csv"),
        read_nodes(directory / "nodes.csv") if nodes else (),
        policy=read_policy(directory / "policy.yaml"),
    )


def test_a_gang_that_does_not_fit_leaves_its_room_to_others(tmp_path: Path) -> None:
    """Four of its five pods would: two on the machine and two on the node that may be bought."""
    gang = "".join(f"g{one},20000,1000,1,gang,\n" for one in range(5))
    others = "".join(f"p{one},20000,1000,2,,\n" for one in range(4))
    homes = places(tmp_path, gang + others, nodes=NODES + "home,48000,64000,4,\n")
    assert sorted(homes) == ["p0", "p1", "p2", "p3"]
    assert sorted(homes.values()) == ["gpu-us-east-1a-1"] * 2 + ["home"] * 2


def test_what_was_to_be_bought_for_a_gang_that_does_not_fit_is_not_bought(tmp_path: Path) -> None:
    """One node is allowed, and another kind is needed for the one that comes after."""
    cpu = "  - {name: cpu, instance_type: c.huge, zones: [us-east-1a], max: 1}\nlimits: {nodes: 1}\n"
    gang = "".join(f"g{one},9000,1000,1,gang,\n" for one in range(5))
    assert places(tmp_path, gang + "large,60000,1000,0,,\n", policy=GPU_ONLY + cpu).keys() == {"large"}


def test_only_what_asks_for_no_less_than_one_that_failed_is_passed_over(tmp_path: Path) -> None:
    """The third is smaller than the second, and fits."""
    pods = "first,20000,1000,1,,\nsecond,30000,1000,1,,\nthird,25000,1000,1,,\n"
    assert places(tmp_path, pods).keys() == {"first", "third"}


def test_the_first_in_order_has_the_room(tmp_path: Path) -> None:
    """What comes later and is more urgent is first; of those that are as urgent the first in the file."""
    pods = "a,30000,1000,1,,\nb,30000,1000,1,,\nc,30000,1000,1,,7\n"
    assert places(tmp_path, pods).keys() == {"c"}
    assert places(tmp_path, pods.replace("7", "")).keys() == {"a"}


def test_machines_are_filled_before_anything_is_bought_and_those_with_gpus_last_by_others(tmp_path: Path) -> None:
    """A pod that asks for no GPU goes to the machine that has none, though less would be left over on the other."""
    nodes = NODES + "with,8000,16000,1,\nwithout,16000,64000,0,\n"
    homes = places(tmp_path, "cpu,6000,12000,0,,\ngpu,6000,12000,1,,\nmore,6000,12000,1,,\n", nodes=nodes)
    assert homes == {"cpu": "without", "gpu": "with", "more": "gpu-us-east-1a-1"}


def test_no_pod_joins_those_that_keep_it_off_their_node(tmp_path: Path) -> None:
    """Of those that keep their like off their node one is on the machine and one on the node; others go beside them."""
    pods = [_pod(f"alone-{one}", "lonely", cpu="2") for one in range(3)]
    pods += [_pod(f"other-{one}", "sociable", cpu="7") for one in range(9)]
    homes = places(tmp_path, pods, nodes=NODES + "home,16000,64000,0,\n")
    assert homes.keys() == {"alone-0", "alone-1", *(f"other-{one}" for one in range(8))}
    assert {homes["alone-0"], homes["alone-1"]} == {"home", "gpu-us-east-1a-1"}


def test_what_has_a_place_keeps_others_off_its_node_too(tmp_path: Path) -> None:
    """A hundred and twenty pods that keep their like off their nodes, and fifty nodes; others go beside them."""
    policy = GPU_ONLY.replace("max: 1", "max: 50")
    pods = [_pod(f"alone-{one}", "lonely", cpu="2") for one in range(120)]
    pods += [_pod(f"other-{one}", "sociable", cpu="7") for one in range(400)]
    plan, catalog = made(tmp_path, pods, policy=policy), list(csv.DictReader(io.StringIO(CATALOG)))
    assert faults_of_list(plan.as_json(), pods=pods, catalog=catalog) == []
    assert Counter(name.split("-")[0] for name in plan.placements) == {"alone": 50, "other": 300}


@pytest.mark.parametrize("many", [20, 200])
def test_a_spread_over_zones_holds_among_those_that_are_served(tmp_path: Path, many: int) -> None:
    """Two nodes are to be had in one of the zones: in the other no more than three pods would be bound."""
    groups = "".join(
        f"  - {{name: {zone}, instance_type: g.one, zones: [us-east-1{zone}], max: {most}}}\n"
        for zone, most in (("a", 100), ("b", 2))
    )
    pods = [_pod(f"p{one}", "even", cpu="6") for one in range(many)]
    plan, catalog = (
        made(tmp_path, pods, policy="cluster: c\ngroups:\n" + groups),
        list(csv.DictReader(io.StringIO(CATALOG))),
    )
    assert faults_of_list(plan.as_json(), pods=pods, catalog=catalog) == []
    assert Counter(node.zone for node in plan.nodes) == {"us-east-1a": 3, "us-east-1b": 2}
    assert {one.reason for one in plan.waiting} == {"needs 1 more b node (1.00 $/h), but max 2 of group b leaves 0"}


def _pod(name: str, app: str, *, cpu: str) -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": [{"name": "main", "image": "i", "resources": {"requests": {"cpu": cpu}}}]}
    if app == "lonely":
        term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname"}
        rule = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        spec["affinity"] = {"podAntiAffinity": rule}
    if app == "even":
        rule = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "topology.kubernetes.io/zone"}
        spec["topologySpreadConstraints"] = [rule | {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": app}},
        "spec": spec,
        "status": {"phase": "Pending"},
    }
