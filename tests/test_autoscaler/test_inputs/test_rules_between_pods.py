"""Pods with rules between them, planned offline: the independent checker finds no fault but those made on purpose."""

from __future__ import annotations

import copy
import json
import time
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.config.policy import read_policy
from autoscaler.inputs.offline_plan import plan_offline
from autoscaler.inputs.tables import read_asked, read_catalog
from tests import examples
from tests.bench.diverse import ZONES, diverse_pods
from tests.checker import read_table
from tests.checker_of_lists import HOST, ZONE, faults_of_list

CATALOG = """\
instance_type,arch,vcpu,memory_mib,allocatable_cpu_milli,allocatable_memory_mib,max_pods,gpu_count,usd_per_hour
c.small,amd64,2,4096,1900,3500,20,0,0.1
c.large,amd64,8,16384,7900,15000,50,0,0.4
c.huge,amd64,64,131072,63000,125000,100,0,3.0
"""


def plan(directory: Path, pods: list[dict[str, Any]], *, policy: Path | None = None) -> dict[str, Any]:
    """Plan for a List of these pods, with three zones."""
    (directory / "pods.json").write_text(json.dumps({"kind": "List", "items": pods}), encoding="utf-8")
    (directory / "catalog.csv").write_text(CATALOG, encoding="utf-8")
    made = plan_offline(
        read_asked(str(directory / "pods.json")),
        read_catalog(directory / "catalog.csv"),
        policy=read_policy(policy) if policy is not None else None,
        zones=() if policy is not None else ZONES,
        deadline=timedelta(seconds=1),
        clock=time.process_time,
    )
    found: dict[str, Any] = json.loads(json.dumps(made.as_json()))
    return found


def check(directory: Path, made: dict[str, Any], pods: list[dict[str, Any]]) -> list[str]:
    """The independent checker's word."""
    return faults_of_list(made, pods=pods, catalog=read_table(directory / "catalog.csv"))


def test_the_five_kinds_of_pods_keep_their_rules(tmp_path: Path) -> None:
    """Every pod has a place, and the checker finds nothing."""
    pods = diverse_pods(150)["items"]
    made = plan(tmp_path, pods)
    assert check(tmp_path, made, pods) == []
    assert made["waiting"] == []


def test_each_zone_has_a_mix_that_few_nodes_hold(tmp_path: Path) -> None:
    """Those that keep apart by host share nodes with others: 9 % above the bound where zones had whatever came last."""
    made = plan(tmp_path, diverse_pods(1500)["items"])
    assert made["usd_per_hour"] <= 1.075 * made["lower_bound_usd_per_hour"]


def test_the_checker_goes_red_for_a_plan_that_is_broken_on_purpose(tmp_path: Path) -> None:
    """All of a kind on one node: apart, spread over hosts, spread over zones and near are all missed."""
    pods = diverse_pods(150)["items"]
    good = plan(tmp_path, pods)
    for kind, words in ((1, ZONE), (2, HOST), (4, "must be apart")):
        broken = copy.deepcopy(good)
        target = next(node["name"] for node in broken["nodes"])
        for pod in pods[kind * 30 : kind * 30 + 30]:
            broken["placements"][pod["metadata"]["name"]] = target
        assert any(words in fault for fault in check(tmp_path, broken, pods)), words
    broken = copy.deepcopy(good)
    near = [pod["metadata"]["name"] for pod in pods[90:120] if pod["metadata"]["labels"]["my-affinity"] == "a"]
    zones = {node["name"]: node["zone"] for node in good["nodes"]}
    elsewhere = next(name for name, zone in zones.items() if zone != zones[good["placements"][near[0]]])
    broken["placements"][near[0]] = elsewhere
    assert any("must be near" in fault for fault in check(tmp_path, broken, pods))


def test_host_ports_and_pods_that_stay_in_one_zone(tmp_path: Path) -> None:
    """No port twice on a node; those that are near to each other are in one zone."""
    pods = [_pod(f"web-{number}", port=8080) for number in range(3)] + [
        _pod(f"g-{number}", gang="g") for number in range(4)
    ]
    made = plan(tmp_path, pods)
    assert check(tmp_path, made, pods) == []
    assert len({made["placements"][f"web-{number}"] for number in range(3)}) == 3
    zone = {node["name"]: node["zone"] for node in made["nodes"]}
    assert max(Counter(zone[made["placements"][f"g-{number}"]] for number in range(4)).values()) == 4


def _required(kind: str, key: str) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": key}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def _spread(key: str, skew: int) -> dict[str, Any]:
    selector = {"matchLabels": {"app": "web"}}
    one = {"topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector, "maxSkew": skew}
    return {"topologySpreadConstraints": [one]}


def _limited(directory: Path, zones: Sequence[str], *, nodes: int, **most: int) -> Path:
    """A policy of so many nodes, and of so many of each kind."""
    groups = "".join(
        f"  - {{name: {kind}, instance_type: c.{kind}, zones: [{', '.join(zones)}], max: {many}}}\n"
        for kind, many in most.items()
    )
    policy = directory / "policy.yaml"
    policy.write_text(f"cluster: c\nlimits: {{nodes: {nodes}}}\ngroups:\n{groups}", encoding="utf-8")
    return policy


RULES: list[dict[str, Any]] = [
    {},
    _required("podAntiAffinity", HOST),
    _required("podAntiAffinity", ZONE),
    _required("podAffinity", ZONE),
    *(_spread(key, skew) for key in (HOST, ZONE) for skew in (1, 2)),
]


@settings(deadline=None, max_examples=examples(40))
@given(data=st.data())
def test_rules_are_kept_within_limits_too(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Any mix of rules, of pods that others mean and pods that none does, for few nodes in two or three zones."""
    pods = []
    for number in range(data.draw(st.integers(2, 24))):
        pod = _pod(f"p{number}", port=80 if data.draw(st.integers(0, 9)) == 0 else 0)
        pod["metadata"]["labels"] = {"app": data.draw(st.sampled_from(["web", "web", "db"]))}
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = str(data.draw(st.sampled_from([1, 2, 5])))
        pod["spec"] |= data.draw(st.sampled_from(RULES))
        pods.append(pod)
    zones = list(ZONES[: data.draw(st.integers(2, 3))])
    nodes = data.draw(st.integers(1, 12))
    directory = tmp_path_factory.mktemp("rules")
    policy = _limited(
        directory, zones, nodes=nodes, small=data.draw(st.integers(1, 20)), large=data.draw(st.integers(1, 20))
    )
    made = plan(directory, pods, policy=policy)
    assert check(directory, made, pods) == []
    assert len(made["nodes"]) <= nodes
    assert len(made["placements"]) + len(made["waiting"]) == len(pods)


def test_no_pod_joins_a_planned_one_whose_spread_it_would_break(tmp_path: Path) -> None:
    """Found by the property above: the scheduler may come to the even pod last, and others fit beside it before."""
    pods = [_pod(f"port-{number}", port=80) for number in range(3)]
    pods += [_pod("even"), _pod("plain"), _pod("wide-even"), _pod("wide-alone")]
    for pod in (pods[3], pods[5]):
        pod["spec"] |= _spread(HOST, 1)
    pods[6]["spec"] |= _required("podAntiAffinity", HOST)
    for pod in pods:
        pod["metadata"]["labels"] = {"app": "web"}
    for pod in pods[5:]:
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "5"
    made = plan(tmp_path, pods, policy=_limited(tmp_path, ZONES[:2], nodes=5, small=2, large=10))
    assert check(tmp_path, made, pods) == []
    assert made["placements"].keys() >= {"even", "plain", "wide-even"}


def test_no_pod_joins_another_on_a_node_to_come_when_more_are_bought(tmp_path: Path) -> None:
    """Found by the property above: a node that was bought last, without such pods, made the spread uneven."""
    pods = [_pod(f"p{number}") for number in range(11)]
    for number, pod in enumerate(pods):
        pod["metadata"]["labels"] = {"app": "db" if number == 9 else "web"}
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1"
    pods[2]["spec"] |= _required("podAntiAffinity", ZONE)
    pods[9]["spec"] |= _required("podAntiAffinity", HOST)
    for pod in (pods[4], pods[10]):
        pod["spec"] |= _spread(HOST, 1)
    made = plan(tmp_path, pods, policy=_limited(tmp_path, ZONES[:2], nodes=8, small=1, large=12))
    assert check(tmp_path, made, pods) == []
    assert [one["pod"] for one in made["waiting"]] == ["p2"]


def test_pods_of_a_spread_share_the_nodes_that_a_limit_leaves(tmp_path: Path) -> None:
    """Each node that may be bought has one first; the others join them evenly when no more may be."""
    pods = [_pod(f"p{number}") for number in range(8)]
    for pod in pods:
        pod["metadata"]["labels"] = {"app": "web"}
        pod["spec"] |= _spread(HOST, 1)
    made = plan(tmp_path, pods, policy=_limited(tmp_path, ZONES[:2], nodes=3, large=12))
    assert check(tmp_path, made, pods) == []
    assert sorted(Counter(made["placements"].values()).values()) == [2, 3, 3]


def test_a_rule_that_cannot_be_kept_is_said(tmp_path: Path) -> None:
    """Affinity to pods of another kind waits with its reason."""
    pod = _pod("picky")
    pod["spec"]["affinity"] = {
        "podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"app": "other"}}, "topologyKey": ZONE}
            ]
        }
    }
    made = plan(tmp_path, [pod])
    assert "no pod of which app is other runs in its zone, as the pod's affinity asks" in made["waiting"][0]["reason"]


def _pod(name: str, *, port: int = 0, gang: str = "") -> dict[str, Any]:
    container: dict[str, Any] = {"name": "main", "image": "i", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    if port:
        container["ports"] = [{"containerPort": port, "hostPort": port}]
    metadata: dict[str, Any] = {"name": name, "namespace": "default"}
    if gang:
        metadata["labels"] = {"gang": gang}
    spec: dict[str, Any] = {"containers": [container]}
    if gang:
        term = {"labelSelector": {"matchLabels": {"gang": gang}}, "topologyKey": ZONE}
        spec["affinity"] = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}
