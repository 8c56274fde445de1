"""The next plan in a large cluster: 15,000 nodes with 150,000 running pods, and 500 pods that come at once.

Objects are the JSON that an API server writes, taken page by page and change by change by the real observer into the
real store, and planned for by the real loop in a dry run; only what carries the bytes is a stand-in. A process of its
own, so that its memory is the autoscaler's:

    python -m tests.bench.large NODES PODS NEW

prints what it measured as JSON. Time is CPU time of the whole process, from the first of the new pods' changes to the
first plan that knows all of them; beside it the time by the clock, with the pause in which the loop waits for the rest
of a job.
"""

from __future__ import annotations

import io
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
import uuid
import zlib
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from autoscaler.acting_policy import OnePolicy
from autoscaler.cloud.autoscaling_groups import Ec2
from autoscaler.config.policy import Policy, asg_name, read_policy
from autoscaler.executor import Executor
from autoscaler.kube.cache import Store
from autoscaler.kube.client import Change, Kube
from autoscaler.kube.watcher import Observer
from autoscaler.kube.writes import Writes
from autoscaler.loop import Loop
from autoscaler.model import labels as words
from autoscaler.model.actions import Admit, Plan
from autoscaler.model.cluster import Cluster, Group, Instance
from autoscaler.model.resources import Resources
from autoscaler.planner.obstacles.answer_cache import AnswerCache
from autoscaler.planner.plan import plan
from autoscaler.planner.supply.node_cache import NodeCache
from autoscaler.reporting.report import Log, Report
from tests.bench.figure import Figure
from tests.bench.memory import resident_mib

PAGE: Final = 500
ZONES: Final = ("us-east-1a", "us-east-1b", "us-east-1c")
TYPES: Final = {
    # name: ($/h, cpu, GiB, GPUs)
    "m5.4xlarge": (0.768, 15, 60, 0),
    "m5.24xlarge": (4.608, 95, 370, 0),
    "g5.12xlarge": (5.672, 47, 180, 4),
    "p4d.24xlarge": (21.957642, 95, 1100, 8),
}
SECONDS, LOOK, MIB = 1.0, 0.1, 512.0
EPOCH: Final = datetime(2026, 11, 1, tzinfo=UTC)
_EARLIER: Final = "2026-11-01T00:00:00Z"
_NOT_READY: Final = "node.kubernetes.io/not-ready"
_IMAGES: Final = [{"names": [f"registry/image-{number}:1"], "sizeBytes": 10**9 + number} for number in range(20)]


def large(*, nodes: int = 15_000, pods: int = 150_000, new: int = 500) -> Iterator[Figure]:
    """Time and memory of the next plan."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.large", str(nodes), str(pods), str(new)],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    found = json.loads(done.stdout)
    stem = f"{pods} pods on {nodes} nodes"
    yield Figure(f"{stem}: one new pod while none waits, to the next plan, CPU time", found["alone"], "s", LOOK)
    yield Figure(f"{stem}: {new} new ones, to the next plan, CPU time", found["next"], "s", SECONDS)
    yield Figure(f"{stem}: the same with all waits", found["next in all"], "s")
    yield Figure(f"{stem}: one more beside them, for which all is bought anew", found["again"], "s", SECONDS)
    yield Figure(f"{stem}: memory at its highest", found["mib"], "MiB", MIB)
    yield Figure(f"{stem}: of the {new}, neither placed nor told why", found["forgotten"], "", 0)


@dataclass(slots=True)
class Feed:
    """A stand-in for the API server's side of the connection: pages, then changes as they are handed in."""

    nodes: int
    pods: int
    changes: dict[str, list[bytes]] = field(default_factory=dict)
    more: threading.Condition = field(default_factory=threading.Condition)
    closed: bool = False

    def get(self, _path: str, **_query: str | int) -> bytes:
        """Which API groups are served: none that says a gang's size."""
        return b'{"groups": []}'

    def pages(self, path: str) -> Iterator[tuple[tuple[msgspec.Raw, ...], str]]:
        """Everything of a kind."""
        made = {"/api/v1/nodes": (self.nodes, _node), "/api/v1/pods": (self.pods, self._pod)}
        count, make = made.get(path, (0, _node))
        for start in range(0, max(count, 1), PAGE):
            items = [json.dumps(make(number)).encode() for number in range(start, min(start + PAGE, count))]
            yield tuple(map(msgspec.Raw, items)), str(count)

    @contextmanager
    def watch(self, path: str, _version: str) -> Iterator[Iterator[Change]]:
        """What is handed in, in the order in which it comes."""
        yield self._changes(path)

    def close(self) -> None:
        """End the watches."""
        with self.more:
            self.closed = True
            self.more.notify_all()

    def hand_in(self, path: str, objects: list[dict[str, Any]]) -> None:
        """These are new."""
        lines = [json.dumps({"type": "ADDED", "object": one}).encode() for one in objects]
        with self.more:
            self.changes.setdefault(path, []).extend(lines)
            self.more.notify_all()

    def _changes(self, path: str) -> Iterator[Change]:
        decoder = msgspec.json.Decoder(Change)
        while True:
            with self.more:
                self.more.wait_for(lambda: self.closed or self.changes.get(path))
                if self.closed:
                    return
                lines = self.changes.pop(path)
            yield from map(decoder.decode, lines)

    def _pod(self, number: int) -> dict[str, Any]:
        """Ten to a node: two of DaemonSets, replicas of services, and members of training jobs on GPU nodes."""
        node, seat = number % self.nodes, number // self.nodes
        kind = _kind_of(node)
        if seat < 2:
            return _filled(f"daemon-{seat}-{node}", f"daemon-{seat}", "100m", "200Mi", node=node, owner="DaemonSet")
        gpus = int(bool(TYPES[kind][3]) and seat < 2 + TYPES[kind][3] // 2 + node % 3)
        app = f"train-{node // 4}" if gpus else f"app-{(node * 7 + seat) % 400}"
        pod = _filled(f"pod-{number}", app, f"{500 * (1 + seat % 3)}m", f"{1 + number % 3}Gi", node=node, gpus=gpus)
        if gpus:
            pod["metadata"]["labels"][words.GANG] = app
        return pod


class Listener(Report):
    """Notes each plan, and the CPU time of this process when it was there."""

    def __init__(self) -> None:
        super().__init__(Log("text", io.StringIO()))
        self.plans: list[tuple[float, Plan, int]] = []
        self.came = threading.Condition()

    def decided(self, plan: Plan, cluster: Cluster, *, took: float, doubted: bool = False) -> None:
        """A plan was made."""
        super().decided(plan, cluster, took=took, doubted=doubted)
        with self.came:
            self.plans.append((time.process_time(), plan, len(cluster.pods)))
            self.came.notify_all()

    def knowing(self, pods: int) -> tuple[float, Plan]:
        """When the first plan was there that knew of so many pods, and the plan."""
        with self.came:
            self.came.wait_for(lambda: self.plans and self.plans[-1][2] >= pods, timeout=600)
            return next((at, plan) for at, plan, known in self.plans if known >= pods)


class Always:
    """We may act; only that a dry run does nothing."""

    def is_mine(self) -> bool:
        """Whether we may act now."""
        return True


def measure(*, nodes: int, pods: int, new: int) -> dict[str, float]:
    """Fill, plan once, hand in one pod, plan, hand in the new pods, plan, hand in one more, plan."""
    feed, store, rules, report = Feed(nodes, pods), Store(), _policy(), Listener()
    store.saw_groups(_groups(rules, nodes), asked_at=0.0)
    observer = Observer(cast("Kube", feed), store)
    executor = Executor(kube=cast("Writes", feed), ec2=cast("Ec2", None), store=store)
    loop = Loop(
        policies=OnePolicy(rules),
        planner=partial(plan, cache=NodeCache(), answers=AnswerCache()),
        store=store,
        executor=executor,
        report=report,
        leader=Always(),
        dry_run=True,
    )
    observer.start()
    threading.Thread(target=loop.run, daemon=True).start()
    report.knowing(pods)
    time.sleep(2.0)
    found, known = {"forgotten": 0.0}, pods
    batches = {
        "alone": [_filled("early", "early", "1", "1Gi")],
        "next": list(map(_new, range(new))),
        "again": [_filled("late", "late", "1", "1Gi")],
    }
    for name, batch in batches.items():
        began, known = (time.process_time(), time.monotonic()), known + len(batch)
        feed.hand_in("/api/v1/pods", batch)
        at, decided = report.knowing(known)
        found |= {name: at - began[0], f"{name} in all": time.monotonic() - began[1]}
        found["forgotten"] += len(_gated(batch) - _told(decided))
    loop.stop()
    observer.stop()
    return found | {"mib": resident_mib("self", peak=True)}


def _gated(pods: list[dict[str, Any]]) -> set[str]:
    return {f"default/{pod['metadata']['name']}" for pod in pods if "schedulingGates" in pod["spec"]}


def _told(decided: Plan) -> set[str]:
    """Sent to a node, or told why not."""
    sent = {key for step in decided.steps if isinstance(step, Admit) for key, _ in step.placements}
    return sent | {one.pod for one in decided.waiting}


def _policy() -> Policy:
    groups = [
        {"name": kind.replace(".", "-"), "instance_type": kind, "zones": list(ZONES), "max": 20_000}
        | {"usd_per_hour": usd, "taints": [{"key": words.GPU}] if gpus else []}
        for kind, (usd, _, _, gpus) in TYPES.items()
    ]
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        json.dump({"cluster": "bench", "groups": groups}, file)
        file.flush()
        return read_policy(Path(file.name))


def _groups(rules: Policy, nodes: int) -> Iterator[Group]:
    """With an instance for each node that is EC2's."""
    members: dict[tuple[str, str], list[Instance]] = defaultdict(list)
    for number in range(nodes):
        if not _is_own(number):
            zone = ZONES[number % 3]
            members[_kind_of(number), zone].append(Instance(f"i-{number:017x}", zone, launched=EPOCH))
    for entry in rules.groups:
        for zone in entry.zones:
            found = members[entry.types[0], zone]
            yield Group(
                name=asg_name(rules.cluster, entry.name, zone),
                entry=entry.name,
                instance_type=entry.types[0],
                zone=zone,
                allocatable=Resources.parse(_room(entry.types[0])),
                usd_per_hour=entry.usd_per_hour or 0.0,
                taints=tuple(taint.as_taint() for taint in entry.taints),
                maximum=entry.max,
                desired=len(found),
                instances=tuple(found),
            )


def _room(kind: str) -> dict[str, str | int | float]:
    _, cpu, gib, gpus = TYPES[kind]
    room: dict[str, str | int | float] = {"cpu": cpu, "memory": f"{gib}Gi", "pods": 110, "ephemeral-storage": "90Gi"}
    return room | ({words.GPU: gpus} if gpus else {})


def _kind_of(node: int) -> str:
    return tuple(TYPES)[node // 3 % len(TYPES)]


def _is_own(node: int) -> bool:
    """Every fifth stands in our own rooms."""
    return node % 5 == 0


def _node(number: int) -> dict[str, Any]:
    kind, zone = _kind_of(number), ZONES[number % 3]
    name = _node_name(number)
    origin = words.ON_PREM if _is_own(number) else words.EC2
    labels = {words.HOSTNAME: name, words.ORIGIN: origin, words.ARCH: "amd64", words.OS: "linux"}
    if not _is_own(number):
        labels |= {words.ZONE: zone, words.INSTANCE_TYPE: kind, words.GROUP: kind.replace(".", "-")}
    spec: dict[str, Any] = {} if _is_own(number) else {"providerID": f"aws:///{zone}/i-{number:017x}"}
    if TYPES[kind][3]:
        spec["taints"] = [{"key": words.GPU, "effect": "NoSchedule"}]
    return {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {"name": name, "uid": _uid(number), "resourceVersion": "1", "creationTimestamp": _EARLIER}
        | {"labels": labels, "annotations": {"node.alpha.kubernetes.io/ttl": "0"}},
        "spec": spec,
        "status": {"allocatable": _room(kind), "conditions": [{"type": "Ready", "status": "True"}], "images": _IMAGES},
    }


def _filled(
    name: str, app: str, cpu: str, memory: str, *, node: int | None = None, gpus: int = 0, owner: str = "ReplicaSet"
) -> dict[str, Any]:
    """A pod as the API server writes it, with all that a decision does not need."""
    asks = {"cpu": cpu, "memory": memory} | ({words.GPU: str(gpus)} if gpus else {})
    labels = {"app": app, "pod-template-hash": f"{zlib.crc32(app.encode()):x}", "tier": "work"}
    reference = {"apiVersion": "apps/v1", "kind": owner, "name": app, "uid": _uid(zlib.crc32(app.encode()))}
    spec: dict[str, Any] = {
        "containers": [
            {"name": "main", "image": "registry/main:1", "resources": {"requests": asks, "limits": asks}}
            | {"terminationMessagePath": "/dev/termination-log", "imagePullPolicy": "IfNotPresent"}
        ],
        "restartPolicy": "Always",
        "serviceAccountName": "default",
        "schedulerName": "default-scheduler",
        "tolerations": [{"key": key, "operator": "Exists"} for key in (_NOT_READY, words.GPU)],
    }
    if node is not None:
        spec["nodeName"] = _node_name(node)
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": _uid(zlib.crc32(name.encode())),
            "resourceVersion": "1",
            "creationTimestamp": _EARLIER,
            "labels": labels,
            "ownerReferences": [reference | {"controller": True}],
        },
        "spec": spec,
        "status": {"phase": "Pending" if node is None else "Running", "startTime": _EARLIER}
        | {"containerStatuses": _IMAGES[:2]},
    }


def _new(number: int) -> dict[str, Any]:
    """Half of them in gated gangs of eight on GPUs, the others alone: some choose, keep apart or spread."""
    dice = random.Random(number // 8)  # noqa: S311 - a workload, not a secret
    gang = dice.random() < 0.5
    app, gpus = f"new-{number // 8}", dice.choice((1, 2, 4, 8)) if gang else 0
    pod = _filled(f"new-{number}", app, f"{dice.choice((250, 1000, 3500))}m", f"{dice.choice((1, 3, 12))}Gi", gpus=gpus)
    spec = pod["spec"]
    if gang:
        pod["metadata"]["labels"][words.GANG] = app
        pod["metadata"]["annotations"] = {words.GANG_SIZE: "8"}
        spec["schedulingGates"] = [{"name": words.GATE}]
        return pod
    selector = {"labelSelector": {"matchLabels": {"app": app}}}
    if dice.random() < 0.3:
        spec["nodeSelector"] = {words.ZONE: dice.choice(ZONES)}
    if dice.random() < 0.3:
        term = selector | {"topologyKey": words.HOSTNAME}
        spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    elif dice.random() < 0.3:
        spread = {"maxSkew": 1, "topologyKey": words.ZONE, "whenUnsatisfiable": "DoNotSchedule"}
        spec["topologySpreadConstraints"] = [spread | selector]
    return pod


def _node_name(number: int) -> str:
    return f"ip-10-{number // 65536}-{number // 256 % 256}-{number % 256}.ec2.internal"


def _uid(number: int) -> str:
    return str(uuid.UUID(int=number, version=4))


if __name__ == "__main__":
    print(json.dumps(measure(nodes=int(sys.argv[1]), pods=int(sys.argv[2]), new=int(sys.argv[3]))))
