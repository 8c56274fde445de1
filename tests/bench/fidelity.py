"""A plan is right if the real scheduler then binds it so: random situations, planned, launched, bound, and compared.

Each has its own on-prem machines, partly in use, its own policy and at least 500 pods in gangs of one to forty, all
behind our gate: with and without GPUs, some in one zone of their choice, some that keep apart from each other on hosts,
some that tolerate no taint.
The autoscaler buys, KWOK nodes join, the real kube-scheduler binds. Counted are pods that are not bound in the end,
pods bound to another kind of node than was last bought for them, and nodes that stand empty.
"""

from __future__ import annotations

import contextlib
import random
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from autoscaler import labels as words
from stacks.local.control_plane import BINARIES, apply_manifests, control_plane, wait_for_namespace
from stacks.local.ground import RBAC
from stacks.local.keeper import free_ports
from stacks.local.kube_http import KubeHttp
from stacks.local.tools import ensure_tools
from tests.bench.figure import Figure
from tests.live.hybrid import Aws, autoscaler, kept, stand_in_aws, until, write_policy

LEAST: Final = 500
APART_AT_MOST: Final = 8
TYPES: Final = {
    # name: ($/h, GPUs)
    "m5.4xlarge": (0.768, 0),
    "c5.9xlarge": (1.53, 0),
    "r5.8xlarge": (2.016, 0),
    "m5.24xlarge": (4.608, 0),
    "g4dn.xlarge": (0.526, 1),
    "g4dn.12xlarge": (3.912, 4),
    "g5.12xlarge": (5.672, 4),
    "p4d.24xlarge": (21.957642, 8),
}
NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/default/pods"


@dataclass(frozen=True, slots=True)
class Situation:
    """What there is, what may be bought, and what waits."""

    policy: str
    machines: tuple[tuple[int, int], ...]
    """GPUs of each on-prem machine, and how many CPUs of it are taken already."""
    pods: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Found:
    """What came of it."""

    pods: int
    unbound: int
    elsewhere: int
    """Bound to another kind of node than was last bought for them."""
    nodes: int
    empty: int


@dataclass(frozen=True, slots=True)
class Ground:
    """A control plane, for one situation after the other."""

    kube: KubeHttp
    kubeconfig: Path
    autoscaler_kubeconfig: Path


def situation(seed: int) -> Situation:
    """The same one for the same seed."""
    dice = random.Random(seed)  # noqa: S311 - reproducible on purpose
    chosen = ["p4d.24xlarge", "m5.24xlarge", *dice.sample(sorted(TYPES), dice.randint(1, 5))]
    zones = ["us-east-1a", "us-east-1b"][: dice.randint(1, 2)]
    groups = [
        {
            "name": kind.replace(".", "-"),
            "instance_type": kind,
            "zones": zones,
            "max": 400,
            "usd_per_hour": TYPES[kind][0],
            **({"taints": [{"key": words.GPU}]} if TYPES[kind][1] else {}),
        }
        for kind in sorted(set(chosen))
    ]
    policy = {"cluster": "test", "groups": groups, "scale_down": {"idle_after": "1h"}}
    pods: list[dict[str, Any]] = []
    while len(pods) < LEAST:
        pods += _gang(f"g{len(pods)}", dice, zones)
    machines = tuple((dice.choice((0, 4, 8)), dice.choice((0, 0, 20, 50))) for _ in range(dice.randint(0, 8)))
    return Situation(policy=yaml.safe_dump(policy), machines=machines, pods=tuple(pods))


@contextlib.contextmanager
def ground() -> Iterator[Ground]:
    """Everything ends with the ``with`` block."""
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as place:
        directory = Path(place)
        tools = ensure_tools(BINARIES, progress=lambda line: print(f"  {line}", flush=True))
        ports = free_ports(3)
        plane = control_plane(directory, tools=tools, ports=(ports[0], ports[1], ports[2]))
        with kept(plane.processes, directory=directory):
            kube = KubeHttp(plane.kubeconfig, connections=32)
            wait_for_namespace(kube)
            apply_manifests(kube, RBAC.read_text(encoding="utf-8"))
            yield Ground(kube, plane.kubeconfig, plane.autoscaler_kubeconfig)


def live_through(on: Ground, given: Situation, *, patience: float = 180.0) -> Found:
    """Plan, launch, bind; then look at what the API server says."""
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as place:
        directory = Path(place)
        file, rules = write_policy(directory, given.policy)
        with stand_in_aws(directory / "aws", kubeconfig=on.kubeconfig, boot_delay="2s") as aws:
            aws.make_groups(rules)
            try:
                return _live(on, given, aws, file, directory / "log", patience)
            finally:
                _delete_all(on.kube, PODS)
                _delete_all(on.kube, NODES)
                on.kube.send("DELETE", f"/apis/coordination.k8s.io/v1/namespaces/spillway/leases/{words.LEASE}")
                until(lambda: not on.kube.get(PODS)["items"], within=60)


def _live(on: Ground, given: Situation, aws: Aws, policy: Path, log: Path, patience: float) -> Found:  # noqa: PLR0917
    with ThreadPoolExecutor(max_workers=8) as pool:
        gpus = [gpus for gpus, _ in given.machines]
        list(pool.map(partial(on.kube.send, "POST", NODES), map(_machine, range(len(gpus)), gpus)))
        there = [_resident(number, cpus) for number, (_, cpus) in enumerate(given.machines) if cpus]
        list(pool.map(partial(on.kube.send, "POST", PODS), (*there, *given.pods)))
    with autoscaler(policy=policy, env=aws.env, kubeconfig=on.autoscaler_kubeconfig, log=log) as brain:
        with contextlib.suppress(AssertionError):  # what is not bound then is counted
            until(lambda: not _unbound(on.kube), within=patience)
        planned = {
            pod: str(line["group"])
            for line in brain.said()
            if line.get("step") == "Grow" or "demand" in line
            for pod in line["demand"]
        }
    groups = {
        node["metadata"]["name"]: _group_of(node)
        for node in on.kube.get(NODES)["items"]
        if words.GROUP in node["metadata"]["labels"]
    }
    pods = on.kube.get(PODS)["items"]
    homes = {f"default/{pod['metadata']['name']}": pod["spec"].get("nodeName", "") for pod in pods}
    return Found(
        pods=len(pods),
        unbound=sum(not home for home in homes.values()),
        elsewhere=sum(groups.get(homes[pod]) != group for pod, group in planned.items()),
        nodes=len(groups),
        empty=len(groups.keys() - set(homes.values())),
    )


def fidelity(many: int) -> Iterator[Figure]:
    """So many situations, one after the other."""
    found = []
    with ground() as on:
        for seed in range(many):
            found.append(live_through(on, situation(seed)))
            print(f"  situation {seed}: {found[-1]}", flush=True)
    stem = f"{many} situations, {sum(one.pods for one in found)} pods, {sum(one.nodes for one in found)} nodes bought"
    yield Figure(f"{stem}: pods not bound", sum(one.unbound for one in found), "", 0)
    yield Figure("on another kind of node than planned", sum(one.elsewhere for one in found), "", 0)
    yield Figure("nodes that stand empty", sum(one.empty for one in found), "", 0)


def _delete_all(kube: KubeHttp, path: str) -> None:
    """One by one: a collection of hundreds takes longer than one request may."""
    names = [one["metadata"]["name"] for one in kube.get(path)["items"]]
    with ThreadPoolExecutor(max_workers=8) as pool:
        list(pool.map(lambda name: kube.send("DELETE", f"{path}/{name}?gracePeriodSeconds=0"), names))


def _unbound(kube: KubeHttp) -> bool:
    return bool(kube.get(f"{PODS}?fieldSelector=spec.nodeName%3D&limit=1")["items"])


def _group_of(node: dict[str, Any]) -> str:
    labels = node["metadata"]["labels"]
    return f"test-{labels[words.GROUP]}-{labels[words.ZONE]}"


def _gang(name: str, dice: random.Random, zones: list[str]) -> list[dict[str, Any]]:
    """One job: workers that are alike and perhaps a parameter server; perhaps with a rule."""
    size = dice.choice((1, 1, 2, 3, 4, 8, 16, 40))
    gpus = dice.choice((0, 0, 0, 1, 1, 2, 4, 8)) if size < 16 else dice.choice((0, 0, 1))
    cpu = dice.choice((250, 500, 1000, 2000, 3500, 6000))
    memory = dice.choice((512, 1024, 4096, 7000, 12_000))
    shapes = [(cpu, memory, gpus)] * size
    if size > 2 and dice.random() < 0.5:
        shapes[-1] = (1000, 2048, 0)
    rules: dict[str, Any] = {}
    match dice.randint(0, 9):
        case 0:
            rules["nodeSelector"] = {words.ZONE: dice.choice(zones)}
        case 1 if size <= APART_AT_MOST:
            term = {"labelSelector": {"matchLabels": {words.GANG: name}}, "topologyKey": words.HOSTNAME}
            rules["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        case 2 if not gpus:
            rules["tolerations"] = []
    return [_pod(name, number, len(shapes), shape, rules) for number, shape in enumerate(shapes)]


def _resident(number: int, cpus: int) -> dict[str, Any]:
    """What runs on an on-prem machine already."""
    pod = _pod(f"there{number}", 0, 1, (cpus * 1000, 4096, 0), {"nodeName": f"dgx-{number}"})
    del pod["spec"]["schedulingGates"]
    return pod


def _pod(gang: str, number: int, size: int, shape: tuple[int, int, int], rules: dict[str, Any]) -> dict[str, Any]:
    cpu, memory, gpus = shape
    asks = {"cpu": f"{cpu}m", "memory": f"{memory}Mi", **({words.GPU: str(gpus)} if gpus else {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{gang}-{number}",
            "namespace": "default",
            "labels": {words.GANG: gang},
            "annotations": {words.GANG_SIZE: str(size)},
        },
        "spec": {
            "containers": [{"name": "c", "image": "i", "resources": {"requests": asks, "limits": asks}}],
            "tolerations": [{"key": words.GPU, "operator": "Exists"}],
            "schedulingGates": [{"name": words.GATE}],
            "terminationGracePeriodSeconds": 0,
        }
        | rules,
    }


def _machine(number: int, gpus: int) -> dict[str, Any]:
    name = f"dgx-{number}"
    capacity = {"cpu": "64", "memory": "256Gi", "pods": "110", **({words.GPU: str(gpus)} if gpus else {})}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {words.HOSTNAME: name, words.ORIGIN: words.ON_PREM},
        },
        "status": {"allocatable": capacity, "capacity": capacity},
    }
