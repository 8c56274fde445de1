"""A plan is right if the real scheduler then binds it so: random situations, planned, launched, bound, and compared.

:mod:`tests.bench.situations` says what they are like. The autoscaler buys, KWOK nodes join, the real kube-scheduler
binds. Counted are pods that are not bound in the end, pods bound to another kind of node than they were last planned
on, and nodes that stand empty.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import yaml

import stacks.local.ground.control_plane as control_plane_module
from autoscaler.config.policy import asg_name
from autoscaler.model import labels as words
from stacks.local.ground.control_plane import BINARIES, apply_manifests, control_plane, wait_for_namespace
from stacks.local.ground.lifecycle import RBAC
from stacks.local.kubeapi.client import KubeHttp
from stacks.local.process.ports import free_ports
from stacks.local.process.supervisor import Process
from stacks.local.toolchain.tools import ensure_tools
from tests import ROOT
from tests.bench.figure import Figure
from tests.bench.situations import KINDS, Kind, Situation, machine, priority_class, resident, situation
from tests.live.hybrid import Autoscaler, Aws, autoscaler, kept, stand_in_aws, until, write_policy

NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/default/pods"
SETS = "/apis/apps/v1/namespaces/default/statefulsets"
DAEMONS = "/api/v1/namespaces/kube-system/pods"
DAEMON_SETS = "/apis/apps/v1/namespaces/kube-system/daemonsets"
BOOT = "1s"
PACKING = ROOT / "autoscaler" / "packing_scheduler.yaml"
LATE_NODES = {"node-initialize": {"durationMilliseconds": 5000}}
"""KWOK's nodes are ready so long after they have joined; on EC2 it is more: a kubelet first waits for its network."""
STAGES = Path(control_plane_module.__file__).with_name("kwok_stages.yaml")


@dataclass(frozen=True, slots=True)
class Found:
    """What came of it."""

    kind: str
    pods: int
    unbound: int
    elsewhere: int
    """Bound to another kind of node than they were last planned on: bought for, nominated for, or pinned to."""
    moved: int
    """Bound to another kind of node than was last bought for them: planned anew since, where that costs nothing."""
    nodes: int
    empty: int
    usd: float
    """Per hour, of what was bought."""

    @property
    def is_perfect(self) -> bool:
        """All bound as planned, and no node for nothing."""
        return not (self.unbound or self.elsewhere or self.empty)


@dataclass(frozen=True, slots=True)
class Ground:
    """A control plane, for one situation after the other."""

    kube: KubeHttp
    kubeconfig: Path
    autoscaler_kubeconfig: Path


@contextlib.contextmanager
def ground(*, packing: bool = False, delays: Mapping[str, Mapping[str, int]] = LATE_NODES) -> Iterator[Ground]:
    """Everything ends with the ``with`` block. ``packing``: with the scheduler profile that we offer.

    ``delays``: what KWOK waits for before a stage, by the stage's name (https://kwok.sigs.k8s.io/docs/user/stages-configuration/).
    """
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as place:
        directory = Path(place)
        tools = ensure_tools(BINARIES, progress=lambda line: print(f"  {line}", flush=True))
        ports = free_ports(3)
        plane = control_plane(directory, tools=tools, ports=(ports[0], ports[1], ports[2]))
        processes = [_with_delays(one, directory, delays) for one in plane.processes]
        if packing:
            processes = [_packing(one, directory) for one in processes]
        with kept(processes, directory=directory):
            kube = KubeHttp(plane.kubeconfig, connections=32)
            wait_for_namespace(kube)
            apply_manifests(kube, RBAC.read_text(encoding="utf-8"))
            kube.send("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", priority_class())
            yield Ground(kube, plane.kubeconfig, plane.autoscaler_kubeconfig)


def _with_delays(process: Process, directory: Path, delays: Mapping[str, Mapping[str, int]]) -> Process:
    """KWOK with stages that take their time."""
    if process.name != "kwok":
        return process
    stages = list(yaml.safe_load_all(STAGES.read_text(encoding="utf-8")))
    for stage in stages:
        if stage["metadata"]["name"] in delays:
            stage["spec"]["delay"] = dict(delays[stage["metadata"]["name"]])
    file = directory / "stages.yaml"
    file.write_text(yaml.safe_dump_all(stages), encoding="utf-8")
    argv = tuple(f"--config={file}" if one.startswith("--config=") else one for one in process.argv)
    return replace(process, argv=argv)


def _packing(process: Process, directory: Path) -> Process:
    """The scheduler with the profile that we offer, in place of the flags that say the same."""
    if process.name != "kube-scheduler":
        return process
    given = dict(one.lstrip("-").split("=", 1) for one in process.argv[1:])
    config = yaml.safe_load(PACKING.read_text(encoding="utf-8"))
    config["clientConnection"] = {"kubeconfig": given.pop("kubeconfig"), "qps": 500, "burst": 1000}
    config["leaderElection"] = {"leaderElect": False}
    file = directory / "scheduler.yaml"
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    kept_flags = (f"--{name}={value}" for name, value in given.items() if name in ("secure-port", "v"))
    return replace(process, argv=(process.argv[0], f"--config={file}", *kept_flags))


def live_through(on: Ground, given: Situation, *, patience: float = 180.0) -> Found:
    """Plan, launch, bind; then look at what the API server says."""
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as place:
        directory = Path(place)
        file, rules = write_policy(directory, given.policy)
        with stand_in_aws(directory / "aws", kubeconfig=on.kubeconfig, boot_delay=BOOT) as aws:
            aws.make_groups(rules)
            run = partial(
                autoscaler, policy=file, env=aws.env, kubeconfig=on.autoscaler_kubeconfig, log=directory / "log"
            )
            try:
                _set_up(on.kube, given)
                work = [(PODS if one["kind"] == "Pod" else SETS, one) for one in given.work]
                if not given.arrive:
                    _all(on.kube, "POST", work)
                    _wait(lambda: _are_there(on.kube, given), within=60)
                with run() as brain:
                    until(lambda: "acting as" in brain.texts(), told=brain.texts)
                    if given.arrive:
                        _all(on.kube, "POST", work)
                    _wait(lambda: _are_there(on.kube, given) and _is_settled(on.kube, aws), within=patience)
                    prices = {
                        asg_name(rules.cluster, one.name, zone): one.usd_per_hour or 0.0
                        for one in rules.groups
                        for zone in one.zones
                    }
                    return _found(on.kube, given.kind, brain, prices)
            finally:
                _clear(on.kube)


def _set_up(kube: KubeHttp, given: Situation) -> None:
    """What is there before anything waits."""
    for one in given.daemons:
        kube.send("POST", DAEMON_SETS, one)
    _all(kube, "POST", [(NODES, machine(number, gpus)) for number, (gpus, _) in enumerate(given.machines)])
    _all(kube, "POST", [(PODS, resident(number, cpus)) for number, (_, cpus) in enumerate(given.machines) if cpus])
    wanted = len(given.machines) * len(given.daemons)
    _wait(lambda: all(map(_is_ready, kube.get(NODES)["items"])), within=60)
    _wait(lambda: sum("nodeName" in pod["spec"] for pod in kube.get(DAEMONS)["items"]) >= wanted, within=30)


def _are_there(kube: KubeHttp, given: Situation) -> bool:
    """Whether every pod has been made: those of the situation, and the residents of its machines."""
    found = kube.get(f"{PODS}?limit=1")
    many = len(found["items"]) + found["metadata"].get("remainingItemCount", 0)
    return bool(many >= given.pods + sum(bool(cpus) for _, cpus in given.machines))


def _is_settled(kube: KubeHttp, aws: Aws) -> bool:
    """Every pod has a node, every instance that is wanted is one, and none is kept for somebody."""
    if kube.get("/api/v1/pods?fieldSelector=spec.nodeName%3D&limit=1")["items"]:
        return False
    groups = aws.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    nodes = [node for node in kube.get(NODES)["items"] if words.GROUP in node["metadata"]["labels"]]
    keys = {taint["key"] for node in nodes for taint in node["spec"].get("taints", ())}
    return bool(sum(group["DesiredCapacity"] for group in groups) == len(nodes)) and words.RESERVED not in keys


def _found(kube: KubeHttp, kind: str, brain: Autoscaler, prices: dict[str, float]) -> Found:
    groups = {
        node["metadata"]["name"]: _group_of(node)
        for node in kube.get(NODES)["items"]
        if words.GROUP in node["metadata"]["labels"]
    }
    bought: dict[str, str] = {}
    planned: dict[str, str] = {}
    for line in brain.said():
        bought |= dict.fromkeys(line.get("demand", ()), str(line.get("group")))
        planned |= dict.fromkeys(line.get("demand", ()), str(line.get("group")))
        planned |= {pod: groups.get(node, "") for pod, node in line.get("placements", ()) if node}
    pods = kube.get(PODS)["items"]
    homes = {f"default/{pod['metadata']['name']}": pod["spec"].get("nodeName", "") for pod in pods}
    daemons = [pod["spec"].get("nodeName", "") for pod in kube.get(DAEMONS)["items"]]
    return Found(
        kind=kind,
        pods=len(pods),
        unbound=sum(not home for home in (*homes.values(), *daemons)),
        elsewhere=sum(groups.get(homes[pod], "") != group for pod, group in planned.items()),
        moved=sum(groups.get(homes[pod], "") != group for pod, group in bought.items()),
        nodes=len(groups),
        empty=len(groups.keys() - set(homes.values())),
        usd=sum(prices[group] for group in groups.values()),
    )


def fidelity(many: int, first: int = 0) -> Iterator[Figure]:
    """So many situations, one after the other."""
    with ground() as on:
        found = [_told(on, situation(seed), str(seed)) for seed in range(first, first + many)]
    stem = f"{many} situations, {sum(one.pods for one in found)} pods, {sum(one.nodes for one in found)} nodes bought"
    yield Figure(f"{stem}: pods not bound", sum(one.unbound for one in found), "", 0)
    yield Figure("on another kind of node than planned", sum(one.elsewhere for one in found), "", 0)
    yield Figure("nodes that stand empty", sum(one.empty for one in found), "", 0)
    perfect, all_of = Counter(one.kind for one in found if one.is_perfect), Counter(one.kind for one in found)
    for kind in KINDS:
        if all_of[kind]:
            yield Figure(f"{all_of[kind]} {kind} situations: perfect", perfect[kind], "")


def gate(many: int) -> Iterator[Figure]:
    """What the same pods cost without our gate, also where nodes are not reserved, and with a scheduler that packs."""
    usd: Counter[str] = Counter()
    elsewhere: Counter[str] = Counter()
    empty: Counter[str] = Counter()
    ways: Mapping[str, tuple[Kind, bool]] = {
        "behind our gate": ("gated", True),
        "without it": ("ungated", True),
        "without it, nodes not reserved": ("ungated", False),
        "without it, nodes not reserved, packing scheduler": ("ungated", False),
    }
    for packing in (False, True):
        with ground(packing=packing) as on:
            for seed in range(many):
                for name, (kind, reserve) in ways.items():
                    if packing == name.endswith("packing scheduler"):
                        found = _told(on, situation(seed, kind, reserve=reserve), f"{seed}, {name}")
                        usd[name] += found.usd
                        elsewhere[name] += found.elsewhere + found.unbound
                        empty[name] += found.empty
    for name in ways:
        yield Figure(f"{many} situations {name}: bought", usd[name], "$/h")
        yield Figure("  more than behind the gate", 100 * (usd[name] / usd["behind our gate"] - 1), "%")
        yield Figure("  pods on another kind of node than planned", elsewhere[name], "")
        yield Figure("  nodes that stand empty", empty[name], "")


def _told(on: Ground, given: Situation, name: str) -> Found:
    began = time.monotonic()
    found = live_through(on, given)
    print(f"  situation {name}: {found} in {time.monotonic() - began:.0f} s", flush=True)
    return found


def _all(kube: KubeHttp, method: str, requests: Iterable[tuple[str, Any]]) -> None:
    with ThreadPoolExecutor(max_workers=8) as pool:
        list(pool.map(lambda request: kube.send(method, *request), requests))


def _wait(holds: Callable[[], bool], *, within: float) -> None:
    """Until it holds; what does not in time is counted afterwards."""
    end = time.monotonic() + within
    while time.monotonic() < end and not holds():
        time.sleep(0.3)


def _clear(kube: KubeHttp) -> None:
    """A collection of hundreds takes longer than one request may: a hundred at a time."""
    kube.send("DELETE", DAEMON_SETS)
    kube.send("DELETE", SETS)
    for path in (PODS, DAEMONS, NODES):
        end = time.monotonic() + 60
        while kube.get(f"{path}?limit=1")["items"] and time.monotonic() < end:
            kube.send("DELETE", f"{path}?gracePeriodSeconds=0&limit=100")
    kube.send("DELETE", f"/apis/coordination.k8s.io/v1/namespaces/spillway/leases/{words.LEASE}")


def _is_ready(node: dict[str, Any]) -> bool:
    lasting = any(one["key"].startswith("node.kubernetes.io/") for one in node["spec"].get("taints", ()))
    conditions = {one["type"]: one["status"] for one in node["status"].get("conditions", ())}
    return conditions.get("Ready") == "True" and not lasting


def _group_of(node: dict[str, Any]) -> str:
    labels = node["metadata"]["labels"]
    return asg_name("test", labels[words.GROUP], labels[words.ZONE])
