"""Situations for the fidelity benchmark: what there is, what may be bought, and what waits. The same for the same seed.

Each has its own on-prem machines, partly in use, its own policy, DaemonSets on every node, and at least 500 pods in
jobs of one to forty. Rules: a zone of their choice, evenly over zones, together in one zone, apart from each other on
hosts, apart from another job on hosts, a host port, a kind of node by its label, a taint of a team's nodes that only
its pods tolerate, no toleration at all, priorities. The situations are in turn of three kinds, by who decides where
pods go: all behind our gate; each job with or without it; none behind it, as plain pods of any other source are. In
every second one the pods come while the autoscaler runs, else they are there when it starts. Jobs behind the gate are
made by controllers, which make a pod anew that was deleted before it could start; the other pods are nobody's.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Final, Literal

import yaml

from autoscaler.model import labels as words

Kind = Literal["gated", "mixed", "ungated"]
KINDS: Final[tuple[Kind, ...]] = ("gated", "mixed", "ungated")
LEAST: Final = 500
FEW: Final = 8
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
FOR_ALL: Final = ("p4d.24xlarge", "m5.24xlarge")
"""In every policy: whatever waits fits one of these."""
JOB: Final = "app"
SET: Final = "set"
TEAM: Final = {"key": "team", "value": "vision"}
URGENT: Final = "urgent"


@dataclass(frozen=True, slots=True)
class Situation:
    """What there is, what may be bought, and what waits."""

    kind: Kind
    policy: str
    machines: tuple[tuple[int, int], ...]
    """GPUs of each on-prem machine, and how many CPUs of it are taken already."""
    daemons: tuple[dict[str, Any], ...]
    work: tuple[dict[str, Any], ...]
    """Pods, and what makes pods, in the order in which they come."""
    pods: int
    """How many there are in all."""
    arrive: bool
    """The pods come while the autoscaler runs."""


def situation(seed: int, kind: Kind | None = None, *, reserve: bool = True) -> Situation:
    """The same one for the same seed; of ``kind``, else of the one whose turn it is. ``reserve``: as in the policy."""
    dice = random.Random(seed)  # noqa: S311 - reproducible on purpose
    kind = kind or KINDS[seed % len(KINDS)]
    zones = ["us-east-1a", "us-east-1b"][: dice.randint(1, 2)]
    more = [name for name in sorted(TYPES) if name not in FOR_ALL]
    groups = [_entry(name, zones, dice) for name in sorted({*FOR_ALL, *dice.sample(more, dice.randint(1, 4))})]
    policy = {
        "cluster": "test",
        "groups": groups,
        "scale_up": {"reserve": reserve},
        "scale_down": {"idle_after": "1h"},
    }
    pods = 0
    work: list[dict[str, Any]] = []
    jobs: list[str] = []
    while pods < LEAST:
        jobs.append(f"j{len(jobs)}")
        gated = kind == "gated" or (kind == "mixed" and dice.random() < 0.5)
        theirs = _job(jobs, dice, zones, gated=gated)
        pods += len(theirs)
        work += _made_by_controllers(theirs) if gated else theirs
    return Situation(
        kind=kind,
        policy=yaml.safe_dump(policy),
        machines=tuple((dice.choice((0, 4, 8)), dice.choice((0, 0, 20, 50))) for _ in range(dice.randint(0, 8))),
        daemons=tuple(_daemon_set(number, dice) for number in range(dice.randint(0, 2))),
        work=tuple(work),
        pods=pods,
        arrive=bool(seed % 2),
    )


def resident(number: int, cpus: int) -> dict[str, Any]:
    """What runs on an on-prem machine already."""
    return _pod(f"there{number}", 0, 1, (cpus * 1000, 4096, 0), {"nodeName": f"dgx-{number}"}, gated=False)


def machine(number: int, gpus: int) -> dict[str, Any]:
    """An on-prem machine."""
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


def priority_class() -> dict[str, Any]:
    """It goes first and sends nobody away: who is sent away does not come back without a Job that makes it anew."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": URGENT},
        "value": 1000,
        "preemptionPolicy": "Never",
    }


def _entry(name: str, zones: list[str], dice: random.Random) -> dict[str, Any]:
    usd, gpus = TYPES[name]
    taints = [{"key": words.GPU}] if gpus else []
    if name not in FOR_ALL and dice.random() < 0.3:
        taints.append(TEAM)
    return {
        "name": name.replace(".", "-"),
        "instance_type": name,
        "zones": zones,
        "max": 400,
        "usd_per_hour": usd,
        "taints": taints,
    }


def _daemon_set(number: int, dice: random.Random) -> dict[str, Any]:
    asks = {"cpu": dice.choice(("50m", "250m", "500m")), "memory": dice.choice(("64Mi", "500Mi"))}
    name = f"daemon-{number}"
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": "kube-system"},
        "spec": {
            "selector": {"matchLabels": {JOB: name}},
            "template": {
                "metadata": {"labels": {JOB: name}},
                "spec": {
                    "containers": [{"name": "c", "image": "i", "resources": {"requests": asks}}],
                    "tolerations": [{"operator": "Exists"}] if number == 0 else [],
                    "terminationGracePeriodSeconds": 0,
                },
            },
        },
    }


def _job(jobs: list[str], dice: random.Random, zones: list[str], *, gated: bool) -> list[dict[str, Any]]:
    """The last of the jobs: workers that are alike and perhaps a parameter server; perhaps with a rule."""
    size = dice.choice((1, 1, 2, 3, 4, 8, 16, 40))
    gpus = dice.choice((0, 0, 0, 1, 1, 2, 4, 8)) if size <= FEW else dice.choice((0, 0, 1))
    cpu = dice.choice((250, 500, 1000, 2000, 3500, 6000))
    memory = dice.choice((512, 1024, 4096, 7000, 12_000))
    shapes = [(cpu, memory, gpus)] * size
    if size > 2 and dice.random() < 0.5:
        shapes[-1] = (1000, 2048, 0)
    rules, notes = _rules(jobs, dice, zones, small=size <= FEW, gpus=gpus)
    return [
        _pod(jobs[-1], number, size, shape, rules, gated=gated, notes=notes if gated else {})
        for number, shape in enumerate(shapes)
    ]


def _made_by_controllers(pods: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """StatefulSets of which each makes the pods that are alike: they give their pods the same names again."""
    asked = [one["spec"]["containers"][0]["resources"]["requests"] for one in pods]
    workers = [one for one, shape in zip(pods, asked, strict=True) if shape == asked[0]]
    others = [one for one, shape in zip(pods, asked, strict=True) if shape != asked[0]]
    job = pods[0]["metadata"]["labels"][JOB]
    return [_set(name, alike) for name, alike in ((job, workers), (f"{job}-ps", others)) if alike]


def _set(name: str, pods: list[dict[str, Any]]) -> dict[str, Any]:
    meta = pods[0]["metadata"]
    labels = {SET: name}
    template = {
        "metadata": {"labels": meta["labels"] | labels, "annotations": meta["annotations"]},
        "spec": pods[0]["spec"],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": len(pods),
            "podManagementPolicy": "Parallel",
            "serviceName": name,
            "selector": {"matchLabels": labels},
            "template": template,
        },
    }


def _rules(  # noqa: C901, PLR0911 - one for each rule
    jobs: list[str], dice: random.Random, zones: list[str], *, small: bool, gpus: int
) -> tuple[dict[str, Any], dict[str, str]]:
    """What the spec of the pods says more, and their annotations."""
    me = {"labelSelector": {"matchLabels": {JOB: jobs[-1]}}}
    match dice.randint(0, 15):
        case 0:
            return {"nodeSelector": {words.ZONE: dice.choice(zones)}}, {}
        case 1 if small:
            return {"affinity": _apart(me)}, {}
        case 2 if not gpus:
            return {"tolerations": []}, {}
        case 3:
            even = {"maxSkew": dice.randint(1, 2), "topologyKey": words.ZONE, "whenUnsatisfiable": "DoNotSchedule"}
            return {"topologySpreadConstraints": [even | me]}, {}
        case 4 if small and len(jobs) > 1:
            return {"affinity": _apart({"labelSelector": {"matchLabels": {JOB: dice.choice(jobs[:-1])}}})}, {}
        case 5 if small:
            return {"hostPort": 8000 + dice.randint(0, 3)}, {}
        case 6:
            return {"nodeSelector": {words.GROUP: FOR_ALL[0 if gpus else 1].replace(".", "-")}}, {}
        case 7:
            return {"tolerations": [{"key": words.GPU, "operator": "Exists"}, TEAM]}, {}
        case 8:
            return {"priorityClassName": URGENT}, {}
        case 9 if small:
            return {}, {words.GANG_ZONE: words.ZONE}
    return {}, {}


def _apart(term: dict[str, Any]) -> dict[str, Any]:
    kept = [term | {"topologyKey": words.HOSTNAME}]
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": kept}}


def _pod(
    job: str,
    number: int,
    size: int,
    shape: tuple[int, int, int],
    rules: dict[str, Any],
    *,
    gated: bool,
    notes: dict[str, str] | None = None,
) -> dict[str, Any]:
    cpu, memory, gpus = shape
    asks = {"cpu": f"{cpu}m", "memory": f"{memory}Mi", **({words.GPU: str(gpus)} if gpus else {})}
    rules = dict(rules)
    port = rules.pop("hostPort", None)
    container: dict[str, Any] = {"name": "c", "image": "i", "resources": {"requests": asks, "limits": asks}}
    container |= {"ports": [{"containerPort": port, "hostPort": port}]} if port else {}
    meta: dict[str, Any] = {"name": f"{job}-{number}", "namespace": "default", "labels": {JOB: job}}
    spec: dict[str, Any] = {
        "containers": [container],
        "tolerations": [{"key": words.GPU, "operator": "Exists"}],
        "terminationGracePeriodSeconds": 0,
    }
    if gated:
        meta["labels"][words.GANG] = job
        meta["annotations"] = {words.GANG_SIZE: str(size)} | (notes or {})
        spec["schedulingGates"] = [{"name": words.GATE}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec | rules}
