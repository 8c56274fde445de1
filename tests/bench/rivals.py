"""Spillway and Karpenter through the same scripted day, on the same types and prices, each on its own control plane.

Karpenter runs with its KWOK provider, built from the Go module that ``modules/karpenter`` pins. Cluster-autoscaler is
not here: its module (k8s.io/autoscaler/cluster-autoscaler) is not served by the Go module proxy, so that it does not
build.

The day runs ``speed`` times as fast as its clock; boots, idle times and Karpenter's batching windows are made shorter
in proportion, and waiting is told in the day's seconds. Nothing arrives in its last tenth, and what runs at its end is
ended then. Dollars count from when an instance was asked for until it is gone, or the day is over. Karpenter's users
would mark gangs ``karpenter.sh/do-not-disrupt``, so they are.
"""

from __future__ import annotations

import contextlib
import csv
import json
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import yaml

from autoscaler.model import labels as words
from stacks.local.ground.control_plane import BINARIES, apply_manifests, control_plane, wait_for_namespace
from stacks.local.ground.lifecycle import RBAC
from stacks.local.kubeapi.client import KubeHttp, KubeRefusedError
from stacks.local.process.ports import free_ports
from stacks.local.process.supervisor import Process
from stacks.local.toolchain.tools import Tool, ensure_tools
from tests.bench.day import Size, Work, draw, sizes_of
from tests.bench.figure import Figure
from tests.live.hybrid import Aws, autoscaler, kept, stand_in_aws, until, write_policy

BOOT, IDLE = 60.0, 300.0
"""Seconds of the day that an instance takes to join, and that it may stand idle."""
HOURS, PODS_PER_HOUR, SPEED, SEED = 2.0, 2000.0, 12.0, 1
FAMILIES: Final = ("c6a", "m6a", "r6a", "g4dn", "g5", "p3", "p4d")
"""Of the catalogue: general, compute and memory types, and those with GPUs that the trace's pods fit on."""
MARGIN: Final = 5.0
"""Real seconds after its first pod is bound that a gang may still be binding its last one."""
LOOKED, BILLED = 0.5, 3.0
"""Real seconds from one look of the bench at the pods to the next, and at the instances: more often its own questions
to the stand-in for AWS made Spillway's wait, three times as long on a slow machine."""
NODES, PODS = "/api/v1/nodes", "/api/v1/namespaces/default/pods"
SETS = "/apis/apps/v1/namespaces/default/replicasets"
_KARPENTER: Final = Tool(
    name="karpenter",
    module=Path(__file__).with_name("modules") / "karpenter",
    package="sigs.k8s.io/karpenter/kwok",
    version="1.14.1",
    says=r"^Usage of karpenter:$",  # it tells no version
    ask=("-h",),
)


@dataclass(frozen=True, slots=True)
class Type:
    """One instance type of the catalogue."""

    name: str
    cpu_milli: int
    memory_mib: int
    pods: int
    gpus: int
    usd: float


class Rival(Protocol):
    """An autoscaler on the day's control plane."""

    name: str

    def start(self) -> contextlib.AbstractContextManager[None]:
        """Let it run."""

    def pod(self, work: Work) -> dict[str, Any]:
        """What a user of it adds to a pod's metadata and spec: ``{"metadata": ..., "spec": ...}``."""

    def instances(self) -> Counter[str]:
        """How many there are of each type, from when they were asked for."""


@dataclass(slots=True)
class Seen:
    """What became of the work."""

    made: dict[str, float] = field(default_factory=dict)
    bound: dict[str, float] = field(default_factory=dict)
    evictions: int = 0
    in_part: set[str] = field(default_factory=set)
    dollar_seconds: float = 0.0
    """Real ones."""


@dataclass(slots=True)
class Spillway:
    """The real command on the stand-in for AWS."""

    kube: KubeHttp
    kubeconfig: Path
    admin: Path
    directory: Path
    types: Sequence[Type]
    speed: float
    aws: Aws | None = None
    name: str = "Spillway"

    @contextlib.contextmanager
    def start(self) -> Iterator[None]:
        """One group for each type; gangs are held by our gate, as our templates write it."""
        groups = [
            {
                "name": one.name.replace(".", "-"),
                "instance_type": one.name,
                "zones": ["us-east-1a"],
                "max": 500,
                "usd_per_hour": one.usd,
                "resources": _resources(one),
            }
            for one in self.types
        ]
        text = {
            "cluster": "rivals",
            "groups": groups,
            "scale_up": {"boot_timeout": "10m"},
            "scale_down": {"idle_after": f"{max(1, round(IDLE / self.speed))}s"},
        }
        file, rules = write_policy(self.directory, yaml.safe_dump(text))
        boot = f"{max(1, round(BOOT / self.speed))}s"
        with stand_in_aws(self.directory / "aws", kubeconfig=self.admin, boot_delay=boot) as self.aws:
            self.aws.make_groups(rules)
            log = self.directory / "log"
            with autoscaler(policy=file, env=self.aws.env, kubeconfig=self.kubeconfig, log=log) as brain:
                until(lambda: "acting as" in brain.texts(), told=brain.texts)
                yield

    def pod(self, work: Work) -> dict[str, Any]:
        """A gang's pods carry its label, its size and our gate."""
        if not work.is_gang:
            return {"metadata": {}, "spec": {}}
        marks = {"labels": {words.GANG: work.name}, "annotations": {words.GANG_SIZE: str(work.pods)}}
        return {"metadata": marks, "spec": {"schedulingGates": [{"name": words.GATE}]}}

    def instances(self) -> Counter[str]:
        """Those that AWS bills."""
        assert self.aws is not None
        billed = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]
        pages = self.aws.client("ec2").get_paginator("describe_instances").paginate(Filters=billed)
        return Counter(
            one["InstanceType"] for page in pages for group in page["Reservations"] for one in group["Instances"]
        )


@dataclass(slots=True)
class Karpenter:
    """The real binary with its KWOK provider."""

    kube: KubeHttp
    kubeconfig: Path
    directory: Path
    types: Sequence[Type]
    speed: float
    name: str = "Karpenter"

    @contextlib.contextmanager
    def start(self) -> Iterator[None]:
        """Its CRDs, one NodePool over all types, its process."""
        binary = ensure_tools([_KARPENTER.name], progress=_say, known={_KARPENTER.name: _KARPENTER})[_KARPENTER.name]
        module = _module()
        for crd in (*(module / "pkg/apis/crds").glob("*.yaml"), *(module / "kwok/apis/crds").glob("*.yaml")):
            apply_manifests(self.kube, crd.read_text(encoding="utf-8"))
        until(lambda: _answers(self.kube, "/apis/karpenter.sh/v1/nodepools"), within=60)
        until(lambda: _answers(self.kube, "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses"), within=60)
        catalog = self.directory / "types.json"
        catalog.write_text(json.dumps([_karpenter_type(one) for one in self.types]), encoding="utf-8")
        for path, body in _node_pool(self.speed):
            self.kube.send("POST", path, body)
        metrics, health = free_ports(2)
        process = Process(
            name="karpenter",
            argv=(
                str(binary),
                f"--instance-types-file-path={catalog}",
                "--disable-leader-election",
                f"--metrics-port={metrics}",
                f"--health-probe-port={health}",
                f"--batch-idle-duration={1000 / self.speed:.0f}ms",
                f"--batch-max-duration={10000 / self.speed:.0f}ms",
                "--log-level=error",
            ),
            log=str(self.directory / "karpenter.log"),
            env={"KUBECONFIG": str(self.kubeconfig), "SYSTEM_NAMESPACE": "kube-system", "KUBERNETES_MIN_VERSION": "1"},
            ready_url=f"http://127.0.0.1:{health}/healthz",
        )
        place = self.directory / "process"
        place.mkdir()
        with kept([process], directory=place):
            yield

    def pod(self, work: Work) -> dict[str, Any]:
        """A gang's pods are not to be moved."""
        marks = {"annotations": {"karpenter.sh/do-not-disrupt": "true"}} if work.is_gang else {}
        return {"metadata": marks, "spec": {}}

    def instances(self) -> Counter[str]:
        """Its claims, from when each has been launched as a type until it is gone."""
        claims = self.kube.get("/apis/karpenter.sh/v1/nodeclaims")["items"]
        kinds = [one["metadata"].get("labels", {}).get(words.INSTANCE_TYPE) for one in claims]
        return Counter(kind for kind in kinds if kind)


def rivals(
    data: Path, *, seed: int = SEED, hours: float = HOURS, pods_per_hour: float = PODS_PER_HOUR, speed: float = SPEED
) -> Iterator[Figure]:
    """Each through the day, one after the other."""
    types = _types(data / "ec2_us_east_1_2026_07_20.csv")
    most = max(one.gpus for one in types)
    sizes = [one for one in sizes_of(data / "openb_pod_list_default.csv") if one.gpus <= most]
    work = draw(seed, sizes, hours=hours, pods_per_hour=pods_per_hour)
    yield Figure(f"the day (seed {seed}): pods", sum(one.pods for one in work))
    yield Figure("the day: gangs", sum(one.is_gang for one in work))
    yield Figure("cluster-autoscaler: its Go module is not served, so it does not build", 0)
    for kind in (Spillway, Karpenter):
        with _rival(kind, types, speed) as (rival, kube):
            _say(f"{rival.name}: {len(work)} arrivals within {hours * 3600 / speed:.0f} s")
            yield from _told(rival.name, _live(rival, kube, work, types, hours=hours, speed=speed), speed)


@contextlib.contextmanager
def _rival(kind: type[Spillway | Karpenter], types: Sequence[Type], speed: float) -> Iterator[tuple[Rival, KubeHttp]]:
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as place:
        directory = Path(place)
        tools = ensure_tools(BINARIES, progress=_say)
        first, second, third = free_ports(3)
        plane = control_plane(directory, tools=tools, ports=(first, second, third))
        with kept(plane.processes, directory=directory):
            kube = KubeHttp(plane.kubeconfig, connections=32)
            wait_for_namespace(kube)
            apply_manifests(kube, RBAC.read_text(encoding="utf-8"))
            own = directory / "rival"
            own.mkdir()
            rival: Rival
            if kind is Spillway:
                account = plane.autoscaler_kubeconfig
                rival = Spillway(kube, account, admin=plane.kubeconfig, directory=own, types=types, speed=speed)
            else:
                rival = Karpenter(kube, plane.kubeconfig, own, types, speed)
            with rival.start():
                yield rival, kube


def _live(
    rival: Rival, kube: KubeHttp, work: Sequence[Work], types: Sequence[Type], *, hours: float, speed: float
) -> Seen:
    seen, over = Seen(), threading.Event()
    usd = {one.name: one.usd for one in types}
    watcher = threading.Thread(target=_watch, args=(rival, kube, seen, usd, over))
    watcher.start()
    began = time.monotonic()
    end = began + hours * 3600 / speed
    try:
        with ThreadPoolExecutor(max_workers=len(work)) as pool:
            running = []
            for one in work:
                time.sleep(max(0.0, began + one.at / speed - time.monotonic()))
                running.append(pool.submit(_lives, rival, kube, one, seen, speed, end=end))
            for future in running:
                future.result()
    finally:
        over.set()
        watcher.join()
    return seen


def _lives(rival: Rival, kube: KubeHttp, work: Work, seen: Seen, speed: float, *, end: float) -> None:
    """Arrives, lasts, ends; a gang of which a pod fails comes twice."""

    def last(seconds: float) -> None:
        time.sleep(max(0.0, min(seconds / speed, end - time.monotonic())))

    if not work.is_gang:
        body = _replica_set(rival, work)
        kube.send("POST", SETS, body)
        last(work.lasts)
        kube.send("DELETE", f"{SETS}/{work.name}?propagationPolicy=Foreground")
        return
    for attempt in range(2 if work.fails else 1):
        names = [f"{work.name}-{attempt}-{number}" for number in range(work.pods)]
        for name in names:
            pod = _pod(rival, work, name)
            kube.send("POST", PODS, pod)
            seen.made[name] = time.monotonic()
        _wait_all(seen, names, limit=end)
        last(work.lasts / (3 if work.fails and attempt == 0 else 1))
        for name in names:
            with contextlib.suppress(KubeRefusedError):
                kube.send("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")


def _wait_all(seen: Seen, names: Sequence[str], *, limit: float) -> None:
    while time.monotonic() < limit and not all(name in seen.bound for name in names):
        time.sleep(0.1)


def _watch(rival: Rival, kube: KubeHttp, seen: Seen, usd: Mapping[str, float], over: threading.Event) -> None:
    """Looks again and again: which pods are bound, what is paid for, which gang runs in part."""
    billed = time.monotonic()
    known: set[str] = set()
    while not over.wait(LOOKED):
        now = time.monotonic()
        if now - billed >= BILLED:
            billed = _bill(rival, seen, usd, since=billed)
        pods = kube.get(PODS)["items"]
        names = {one["metadata"]["name"] for one in pods}
        for one in pods:
            meta = one["metadata"]
            seen.made.setdefault(meta["name"], now)
            if one["spec"].get("nodeName"):
                seen.bound.setdefault(meta["name"], now)
            if _is_evicted(one) and meta["name"] not in known:
                known.add(meta["name"])
                seen.evictions += 1
        _look_for_parts(seen, names, now)
    _bill(rival, seen, usd, since=billed)


def _bill(rival: Rival, seen: Seen, usd: Mapping[str, float], *, since: float) -> float:
    """Adds what the instances cost since then; returns the time until which they are paid for now."""
    now = time.monotonic()
    seen.dollar_seconds += (now - since) * sum(usd[kind] * many for kind, many in rival.instances().items())
    return now


def _is_evicted(pod: dict[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    return any(one["type"] == "DisruptionTarget" and one["status"] == "True" for one in conditions)


def _look_for_parts(seen: Seen, there: set[str], now: float) -> None:
    gangs: dict[str, list[str]] = {}
    for name in there:
        if name.startswith("gang-"):
            gangs.setdefault(name.rsplit("-", 1)[0], []).append(name)
    for gang, pods in gangs.items():
        times = [seen.bound[name] for name in pods if name in seen.bound]
        if times and len(times) < len(pods) and now - min(times) > MARGIN:
            seen.in_part.add(gang)


def _told(name: str, seen: Seen, speed: float) -> Iterator[Figure]:
    waits = sorted((seen.bound[pod] - made) * speed for pod, made in seen.made.items() if pod in seen.bound)
    yield Figure(f"{name}: dollars", seen.dollar_seconds * speed / 3600, "$")
    for percent in (50, 95, 99):
        rank = min(-(-len(waits) * percent // 100), len(waits)) - 1
        yield Figure(f"{name}: waiting, p{percent}", waits[rank] if waits else 0.0, "s of the day")
    yield Figure(f"{name}: pods never bound", len(seen.made.keys() - seen.bound.keys()))
    yield Figure(f"{name}: gangs that ran in part", len(seen.in_part), "", 0 if name == "Spillway" else None)
    yield Figure(f"{name}: evictions", seen.evictions, "", 0 if name == "Spillway" else None)


def _pod(rival: Rival, work: Work, name: str) -> dict[str, Any]:
    added = rival.pod(work)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", **added["metadata"]},
        "spec": _spec(work.size) | added["spec"],
    }


def _replica_set(rival: Rival, work: Work) -> dict[str, Any]:
    added, labels = rival.pod(work), {"app": work.name}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": work.name, "namespace": "default"},
        "spec": {
            "replicas": work.pods,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {**added["metadata"], "labels": labels},
                "spec": _spec(work.size) | added["spec"],
            },
        },
    }


def _spec(size: Size) -> dict[str, Any]:
    amounts = {"cpu": f"{size.cpu_milli}m", "memory": f"{size.memory_mib}Mi"}
    gpus = {words.GPU: str(size.gpus)} if size.gpus else {}
    return {
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "c", "image": "i", "resources": {"requests": amounts | gpus, "limits": gpus}}],
    }


def _types(table: Path) -> list[Type]:
    with table.open(encoding="utf-8") as rows:
        return [
            Type(
                row["instance_type"],
                int(row["allocatable_cpu_milli"]),
                int(row["allocatable_memory_mib"]),
                int(row["max_pods"]),
                int(row["gpu_count"] or 0),
                float(row["usd_per_hour"]),
            )
            for row in csv.DictReader(rows)
            if row["instance_type"].split(".")[0] in FAMILIES and row["arch"] == "amd64"
        ]


def _resources(one: Type) -> dict[str, str]:
    gpus = {words.GPU: str(one.gpus)} if one.gpus else {}
    return {"cpu": f"{one.cpu_milli}m", "memory": f"{one.memory_mib}Mi", "pods": str(one.pods), **gpus}


def _karpenter_type(one: Type) -> dict[str, Any]:
    requirements = {"karpenter.sh/capacity-type": "on-demand", "topology.kubernetes.io/zone": "us-east-1a"}
    return {
        "name": one.name,
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": _resources(one),
        "offerings": [
            {
                "Price": one.usd,
                "Available": True,
                "Requirements": [
                    {"key": key, "operator": "In", "values": [value]} for key, value in requirements.items()
                ],
            }
        ],
    }


def _node_pool(speed: float) -> list[tuple[str, dict[str, Any]]]:
    group = "karpenter.kwok.sh"
    node_class = {
        "apiVersion": f"{group}/v1alpha1",
        "kind": "KWOKNodeClass",
        "metadata": {"name": "default"},
        "spec": {"nodeRegistrationDelay": f"{max(1, round(BOOT / speed))}s"},
    }
    pool = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "default"},
        "spec": {
            "template": {
                "spec": {
                    "requirements": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}],
                    "nodeClassRef": {"group": group, "kind": "KWOKNodeClass", "name": "default"},
                    "expireAfter": "Never",
                }
            },
            "disruption": {
                "consolidationPolicy": "WhenEmptyOrUnderutilized",
                "consolidateAfter": f"{max(1, round(IDLE / speed))}s",
            },
        },
    }
    return [(f"/apis/{group}/v1alpha1/kwoknodeclasses", node_class), ("/apis/karpenter.sh/v1/nodepools", pool)]


def _answers(kube: KubeHttp, path: str) -> bool:
    try:
        kube.get(path)
    except KubeRefusedError:
        return False
    return True


def _module() -> Path:
    """Where Go keeps the module's files: its CRDs are applied as it ships them."""
    asked = subprocess.run(
        ["go", "list", "-m", "-json", "sigs.k8s.io/karpenter"],
        cwd=_KARPENTER.module,
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(asked.stdout)
    if not found.get("Dir"):
        got = subprocess.run(
            ["go", "mod", "download", "-json", "sigs.k8s.io/karpenter"],
            cwd=_KARPENTER.module,
            capture_output=True,
            text=True,
            check=True,
        )
        found = json.loads(got.stdout)
    return Path(found["Dir"])


def _say(line: str) -> None:
    print(f"  {line}", flush=True)
