"""Two live replicas through a day in four scenes, while they die at their doors; what must be true all the same.

The day: a gang that one's own machine holds in part, a pod that must stay, gangs up to the limit in dollars and one
beyond it, which waits; a job that ends, so that the waiting one starts where it was; services that are moved together
when jobs end; and nothing but these left. After each scene the cluster and AWS are to be in the one state that the
same day without faults leads to, with as many instances launched: what was bought twice would be one too many.
"""

from __future__ import annotations

import contextlib
import json
import random
import signal
import struct
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from autoscaler.config.policy import read_policy
from autoscaler.model import labels as words
from autoscaler.model.errors import Unavailable
from stacks.local.kubeapi.client import KubeHttp, KubeRefusedError
from tests.live.conftest import Plane
from tests.live.doors import Points, Proxy, Target, When, proxied
from tests.live.hybrid import Aws, gpu_pod, make_pod, stand_in_aws
from tests.live.zygote import SPILLWAY, Child, Zygote

PODS: Final = "/api/v1/namespaces/default/pods"
DEPLOYMENTS: Final = "/apis/apps/v1/namespaces/default/deployments"
BUDGETS: Final = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/spillway/leases"
USD: Final = 5.672
AT_MOST: Final = 4
"""Nodes that the limit in dollars allows."""
POLICY: Final = f"""
cluster: test
groups:
  - name: gpu
    instance_type: g5.12xlarge
    zones: [us-east-1a]
    max: 8
    usd_per_hour: {USD}
    taints: [{{key: nvidia.com/gpu}}]
limits: {{usd_per_hour: {AT_MOST * USD + 1}}}
scale_up: {{boot_timeout: 10m}}
scale_down: {{idle_after: 10m}}
"""
THRIFTY: Final = POLICY.replace(
    "idle_after: 10m", "idle_after: 1s, consolidation: {after: 2s, every: 2s}, drains: {share: 0.5, every: 2s}"
)
PATIENCE: Final = 240.0

Point = tuple[str, When, int]
"""Kind of a call, when, and which of its kind since the day began."""


@dataclass
class Day:
    """What came of one."""

    died: list[Point] = field(default_factory=list)
    unmet: list[Point] = field(default_factory=list)
    harm: list[str] = field(default_factory=list)


class Replica:
    """A live autoscaler with proxies at its doors; one that was killed is started anew, as a kubelet does."""

    def __init__(self, name: str, day: _Places, points: Points, *, clock: Path | None = None) -> None:
        """``clock``: the library by which its wall clock can be moved."""
        self.name, self._day = name, day
        self._shift = day.folder / f"{name}.shift"
        self.set_clock(0)
        self._over = threading.Event()
        self._stack = contextlib.ExitStack()
        config = yaml.safe_load(day.plane.autoscaler_kubeconfig.read_text(encoding="utf-8"))
        authority = (day.plane.kubeconfig.parent / "certificates" / "ca.crt").read_text(encoding="ascii")
        self.kube = self._stack.enter_context(proxied(Target.of(day.plane.url, authority=authority), points.hook(self)))
        self.aws = self._stack.enter_context(proxied(Target.of(day.aws.url), points.hook(self)))
        config["clusters"][0]["cluster"] = {"server": self.kube.url}
        self._config = day.folder / f"{name}.kubeconfig"
        self._config.write_text(yaml.safe_dump(config), encoding="utf-8")
        self.log = day.folder / f"{name}.log"
        self._identity, self.lives = name, 0
        shifted = {"LD_PRELOAD": str(clock), "CLOCK_SHIFT": str(self._shift)} if clock else {}
        doors = {"AWS_ENDPOINT_URL": self.aws.url, "KUBECONFIG": str(self._config)}
        self._zygote = Zygote(SPILLWAY, day.aws.env | doors | shifted)
        self._process = self._start()
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()

    @property
    def doors(self) -> tuple[Proxy, Proxy]:
        """Both."""
        return self.kube, self.aws

    def kill(self, *, moves: bool = False) -> None:
        """As the kernel would. It comes back under its own name; or, where it ``moves``, as a new pod does."""
        if moves:
            self._identity = f"{self.name}-{self.lives}"
        self._process.send_signal(signal.SIGKILL)

    def freeze(self, seconds: float) -> None:
        """Stop it where it stands, and let it go on later."""
        frozen = self._process
        frozen.send_signal(signal.SIGSTOP)

        def thaw() -> None:
            self._over.wait(seconds)
            frozen.send_signal(signal.SIGCONT)

        threading.Thread(target=thaw, daemon=True).start()

    def set_clock(self, ahead: int) -> None:
        """Its wall clock is so many seconds ahead from now on, or behind."""
        with self._shift.open("r+b" if self._shift.exists() else "wb") as file:
            file.write(struct.pack("l", ahead))

    def close(self) -> None:
        """End it and its proxies."""
        self._over.set()
        self._process.send_signal(signal.SIGKILL)
        self._thread.join(timeout=30)
        self._zygote.close()
        self._stack.close()

    def _keep(self) -> None:
        while not self._over.is_set():
            self._process.wait()
            if not self._over.is_set():
                self._process = self._start()

    def _start(self) -> Child:
        self.lives += 1
        line = ("autoscale", "run", "--policy", str(self._day.policy), "--log-format", "json")
        return self._zygote.start(*line, "--identity", self._identity, log=self.log)


@dataclass(frozen=True, slots=True)
class _Places:
    """What the replicas of one day share."""

    plane: Plane
    aws: Aws
    scaling: Any
    """A client of its Auto Scaling."""
    policy: Path
    folder: Path


Weather = Callable[["Sky"], contextlib.AbstractContextManager[None]]
"""What goes on beside the deaths, for the length of the day."""


@dataclass(frozen=True, slots=True)
class Sky:
    """What weather has to do with."""

    plane: Plane
    aws: Aws
    replicas: tuple[Replica, ...]
    points: Points
    chance: random.Random


def live(
    plane: Plane,
    folder: Path,
    *,
    deaths: Sequence[Point],
    weather: Weather | None = None,
    chance: random.Random,
    moves: float = 0.0,
    points: Points | None = None,
    clock: Path | None = None,
) -> Day:
    """One day with these deaths. Gives what of it broke a rule.

    ``moves``: share of the dead that come back under another name, so that their lease has to run out first;
    ``points`` counts the calls.
    """
    folder.mkdir(parents=True)
    points, day = points or Points(), Day()
    policy = folder / "policy.yaml"
    policy.write_text(POLICY, encoding="utf-8")
    with _cleared(plane.kube), stand_in_aws(folder / "aws", kubeconfig=plane.kubeconfig, boot_delay="500ms") as aws:
        aws.make_groups(read_policy(policy))
        plane.fake_node("dgx", gpu="4")
        places = _Places(plane=plane, aws=aws, scaling=aws.client("autoscaling"), policy=policy, folder=folder)
        for kind, when, nth in deaths:
            points.arm(kind, when, nth, _death((kind, when, nth), day, moves=chance.random() < moves))
        with _replicas(places, points, clock) as replicas, _watched(plane.kube, day) as mine:
            sky = Sky(plane=plane, aws=aws, replicas=replicas, points=points, chance=chance)
            with contextlib.suppress(DayLostError), weather(sky) if weather else contextlib.nullcontext():
                _scenes(places, day, mine)
            day.unmet = points.unmet()
            points.disarm()
        day.harm += _too_many(aws)
    return day


def _death(point: Point, day: Day, *, moves: bool) -> Callable[[Replica], bool]:
    def die(replica: Replica) -> bool:
        day.died.append(point)
        replica.kill(moves=moves)
        return True

    return die


@contextlib.contextmanager
def _replicas(places: _Places, points: Points, clock: Path | None) -> Iterator[tuple[Replica, ...]]:
    made: list[Replica] = []
    try:
        made.extend(Replica(name, places, points, clock=clock) for name in ("one", "two"))
        yield tuple(made)
    finally:
        for one in made:
            one.close()


# --- The day ---

_EVERY: Final = ("a-0", "a-1", "b", "c-0", "c-1", "d-0", "d-1")
_LIMIT_REACHED: Final = {"bound": {"a-0", "a-1", "b", "c-0", "c-1"}, "desired": 4}
_NEXT_ONE_STARTS: Final = {"bound": {"b", "c-0", "c-1", "d-0", "d-1"}, "desired": 4, "web": 2}
_MOVED_TOGETHER: Final = {"bound": {"b", "d-0", "d-1"}, "desired": 2, "web": 2}
_NOTHING_LEFT: Final = {"bound": set[str](), "desired": 0, "web": 2, "nodes": {"dgx"}, "marks": list[str]()}


def _scenes(places: _Places, day: Day, mine: set[str]) -> None:
    kube = places.plane.kube
    _gang(kube, "a")
    _is_as_wanted(places, day, {"bound": {"a-0", "a-1"}, "desired": 1}, launched=1)
    make_pod(kube, gpu_pod("b", annotations={words.DO_NOT_DISRUPT: "true"}))
    _gang(kube, "c")
    _is_as_wanted(places, day, _LIMIT_REACHED, launched=AT_MOST)
    _gang(kube, "d")
    kube.send("POST", DEPLOYMENTS, _WEB)
    kube.send("POST", BUDGETS, _WEB_BUDGET)
    _end(kube, mine, "a-0", "a-1")
    _is_as_wanted(places, day, _NEXT_ONE_STARTS, launched=AT_MOST)
    _end(kube, mine, "c-0", "c-1")
    places.policy.write_text(THRIFTY, encoding="utf-8")
    _is_as_wanted(places, day, _MOVED_TOGETHER, launched=AT_MOST)
    _end(kube, mine, "b", "d-0", "d-1")
    _is_as_wanted(places, day, _NOTHING_LEFT, launched=AT_MOST)


def _gang(kube: KubeHttp, name: str) -> None:
    for number in range(2):
        pod = gpu_pod(f"{name}-{number}", labels={words.GANG: name}, annotations={words.GANG_SIZE: "2"})
        pod["spec"]["schedulingGates"] = [{"name": words.GATE}]
        make_pod(kube, pod)


_RATHER: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_WITH_C: Final = {"topologyKey": words.HOSTNAME, "labelSelector": {"matchLabels": {words.GANG: "c"}}}
"""On a node that is not needed once the gang ``c`` has ended."""
_WEB: Final = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web"},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {
                "affinity": {"podAffinity": {_RATHER: [{"weight": 100, "podAffinityTerm": _WITH_C}]}},
                "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "6"}}}],
                "tolerations": [{"key": words.GPU, "operator": "Exists"}],
                "terminationGracePeriodSeconds": 0,
            },
        },
    },
}
_WEB_BUDGET: Final = {
    "apiVersion": "policy/v1",
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "web"},
    "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}},
}


def _end(kube: KubeHttp, mine: set[str], *names: str) -> None:
    """The test ends these pods itself."""
    mine.update(names)
    for name in names:
        kube.send("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")


def _is_as_wanted(places: _Places, day: Day, wanted: dict[str, Any], *, launched: int) -> None:
    """Wait for that state; what never comes is harm, and ends the day."""
    end = time.monotonic() + PATIENCE
    while (found := _state(places)) != found | wanted:
        if time.monotonic() > end:
            day.harm.append(f"{found} where {wanted} was to be")
            raise DayLostError
        time.sleep(0.3)
    known = len(_instances(places.aws))
    if known != launched:
        day.harm.append(f"{known} instances were launched, {launched} were needed")


class DayLostError(Exception):
    """The scenes cannot go on."""


def _state(places: _Places) -> dict[str, Any]:
    kube = places.plane.kube
    pods, nodes = (kube.get(path)["items"] for path in (PODS, "/api/v1/nodes"))
    [group] = places.scaling.describe_auto_scaling_groups()["AutoScalingGroups"]
    ready = {pod["metadata"]["name"] for pod in pods if pod["status"].get("phase") == "Running"}
    return {
        "bound": {one for one in ready if one in _EVERY},
        "desired": group["DesiredCapacity"],
        "web": sum(one.startswith("web-") for one in ready),
        "nodes": {one["metadata"]["name"] for one in nodes},
        "marks": sorted(mark for node in nodes for mark in _marks(node)),
    }


def _marks(node: dict[str, Any]) -> Iterator[str]:
    """What must not be left on a node."""
    if node["spec"].get("unschedulable"):
        yield "closed"
    if words.CORDONED_BY in node["metadata"].get("annotations", {}):
        yield words.CORDONED_BY
    yield from (taint["key"] for taint in node["spec"].get("taints", ()) if taint["key"] == words.RESERVED)


def _instances(aws: Aws) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"{aws.url}/spillway/instances", timeout=10) as answer:  # noqa: S310 - our own
        return list(json.load(answer)["instances"])


def _too_many(aws: Aws) -> Iterator[str]:
    """Moments at which more ran than the limit allows."""
    lives = _instances(aws)
    for one in lives:
        at = one["launched_at"]
        there = sum(life["launched_at"] <= at < (life["ended_at"] or at + 1) for life in lives)
        if there > AT_MOST:
            yield f"{there} instances at a time, {AT_MOST} are allowed"


# --- What is watched all day ---


@contextlib.contextmanager
def _watched(kube: KubeHttp, day: Day) -> Iterator[set[str]]:
    """Every event of pods: none of the jobs' may go that is not in the set that this gives."""
    mine: set[str] = set()
    over = threading.Event()
    thread = threading.Thread(target=_follow, args=(kube, day, mine, over), daemon=True)
    thread.start()
    try:
        yield mine
    finally:
        over.set()
        thread.join(timeout=10)


def _follow(kube: KubeHttp, day: Day, mine: set[str], over: threading.Event) -> None:
    gone: set[str] = set()
    while not over.is_set():
        with contextlib.suppress(Unavailable, KubeRefusedError):
            version = kube.get(PODS)["metadata"]["resourceVersion"]
            for event in kube.stream(f"{PODS}?watch=1&timeoutSeconds=2&resourceVersion={version}"):
                if event["type"] == "ERROR":  # what it was to go on from is forgotten
                    break
                pod = event["object"]["metadata"]
                leaves = event["type"] == "DELETED" or pod.get("deletionTimestamp")
                if leaves and pod["name"] in _EVERY and not over.is_set() and pod["name"] not in mine | gone:
                    gone.add(pod["name"])
                    day.harm.append(f"{pod['name']} was made to go")


@contextlib.contextmanager
def _cleared(kube: KubeHttp) -> Iterator[None]:
    """For the next day, which begins without a lease: once no replica runs that would write one again."""
    yield
    for path in (
        f"{DEPLOYMENTS}/web",
        f"{BUDGETS}/web",
        f"{PODS}?gracePeriodSeconds=0",
        "/api/v1/nodes",
        f"{LEASES}/{words.LEASE}",
        "/api/v1/namespaces/spillway/configmaps",
    ):
        with contextlib.suppress(KubeRefusedError, Unavailable):
            kube.send("DELETE", path)
