"""EDL's experiments on a real control plane: API server, scheduler, controllers; KWOK plays the 133 nodes.

A second of :mod:`tests.bench.edl` is a second of the clock here. Jobs are rendered and submitted as users' are. With
``spillway``, the autoscaler runs as its own process and decides; with ``edl``, the published algorithm patches Jobs.
Pods start and end as slowly as in compressed time, but the original's trainers, which end as all others do here.
"""

from __future__ import annotations

import contextlib
import json
import random
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from autoscaler.kube.client import Kube
from autoscaler.model import labels as words
from autoscaler.model.errors import Unavailable
from images.backends.kubernetes import submit
from images.jobs import Job
from stacks.local.kubeapi.client import KubeHttp
from tests.bench.edl import CASES, LEAST, MASTER, MOST, NGINX, POD_MAX, SERVER, SERVERS, TRAINER, Pass
from tests.bench.edl_world import ENDING, MILLI, NODES, STARTING, SYSTEM_CPUS, Pod, World
from tests.bench.fidelity import Ground, ground
from tests.live.hybrid import autoscaler, stand_in_aws, until, write_policy

_PODS: Final = "/api/v1/namespaces/default/pods"
_JOBS: Final = "/apis/batch/v1/namespaces/default/jobs"
_DEPLOYMENTS: Final = "/apis/apps/v1/namespaces/default/deployments"
_CPUS: Final = {"trainer": TRAINER, "ps": SERVER, "master": MASTER, "nginx": NGINX}
_TRAINERS: Final = "worker"
"""What trainers are called in a job file."""
_MERGE: Final = "application/merge-patch+json"
_SYSTEM: Final = int(SYSTEM_CPUS * MILLI / len(NODES))
POLICY: Final = """
cluster: test
groups: [{name: cpu, instance_type: m5.4xlarge, zones: [us-east-1a], max: 1, usd_per_hour: 0.768}]
limits: {usd_per_hour: 0.01}
"""
"""Nothing may be bought."""


def _delay(seconds: tuple[float, float]) -> dict[str, int]:
    least, most = (int(MILLI * one) for one in seconds)
    return {"durationMilliseconds": least, "jitterDurationMilliseconds": most}


DELAYS: Final = {"pod-ready": _delay(STARTING), "pod-delete": _delay(ENDING)}


@dataclass(slots=True)
class LiveWorld(World):
    """The same on a control plane; what is asked of it happens later, as there."""

    kube: KubeHttp = field(kw_only=True)
    door: Kube = field(kw_only=True)
    """What submits jobs."""
    began: float = field(kw_only=True)
    ever: set[str] = field(default_factory=set)
    """Uids of the trainers that have had a node."""
    is_over: bool = False

    def create(self, pods: list[Pod]) -> None:  # type: ignore[override]
        """All pods of one job."""
        counts = {role: sum(pod.role == role for pod in pods) for role in ("trainer", "ps", "master")}
        gang = any(pod.gated for pod in pods)
        trainers: int | str = f"{LEAST}..{MOST}" if gang else counts["trainer"]
        roles = {_TRAINERS: trainers, "ps": counts["ps"], "master": counts["master"]}
        made = {
            role: {"image": "edl:1", "count": count, "cpus": _CPUS[_role(role)] // MILLI, "memory": "64Mi"}
            for role, count in roles.items()
        }
        submit(self.door, Job.model_validate({"name": pods[0].owner, "gang": gang, "roles": made}))

    def end(self, _pods: object) -> None:
        """Everything; that is all that is ended otherwise than by its controller."""
        if not self.is_over:
            for path in (_JOBS, _DEPLOYMENTS):
                self.kube.send("DELETE", f"{path}?propagationPolicy=Background")
        self.is_over = True

    def scale(self, owner: str, role: str, cpu: int, count: int) -> None:
        """Of a Job, or of the deployment."""
        if role == "trainer":
            size = {"spec": {"parallelism": count, "completions": count}}
            self.kube.send("PATCH", f"{_JOBS}/{owner}-{_TRAINERS}", size, content=_MERGE)
        elif self.of(owner):
            size = {"spec": {"replicas": count}}
            self.kube.send("PATCH", f"{_DEPLOYMENTS}/{owner}/scale", size, content=_MERGE)
        else:
            self.kube.send("POST", _DEPLOYMENTS, _deployment(owner, cpu, count))

    def tick(self) -> None:
        """The next second of the clock, and what the API server says in it."""
        self.now += 1
        time.sleep(max(0.0, self.began + self.now - time.monotonic()))
        found = self.kube.get(f"{_PODS}?resourceVersion=0")["items"]
        self.pods = [_pod(one) for one in found if one["status"].get("phase") not in ("Succeeded", "Failed")]
        self.free = [cpus * MILLI - _SYSTEM for cpus in NODES]
        for one, pod in zip(found, self.pods, strict=True):
            if pod.node is not None:
                self.free[pod.node] -= pod.cpu
                if pod.role == "trainer":
                    self.ever.add(one["metadata"]["uid"])


class Bindings:
    """When each pod was seen to have a node first, by a watch: what happens between two samples, too."""

    def __init__(self, door: Kube) -> None:
        self._door = door
        self._ended = threading.Event()
        self._thread = threading.Thread()
        self._of: dict[str, dict[str, tuple[float, bool]]] = {}
        """Job -> uid of a pod of it -> seconds of the monotonic clock, and whether it is a trainer."""

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """From now on, until the ``with`` block ends."""
        version = str(json.loads(self._door.get(_PODS, limit=1))["metadata"]["resourceVersion"])
        self._thread = threading.Thread(target=self._keep, args=(version,), name="bindings", daemon=True)
        self._thread.start()
        try:
            yield
        finally:
            self._ended.set()
            self._door.close()

    def _keep(self, version: str) -> None:
        """A watch ends after some minutes: the next one goes on where it did."""
        while not self._ended.is_set():
            with contextlib.suppress(Unavailable), self._door.watch(_PODS, version) as changes:
                for change in changes:
                    raw = json.loads(bytes(change.object))
                    version = raw["metadata"]["resourceVersion"]
                    marks = raw["metadata"].get("labels", {})
                    if words.JOB in marks and raw["spec"].get("nodeName"):
                        seen = time.monotonic(), marks[words.ROLE] == _TRAINERS
                        self._of.setdefault(marks[words.JOB], {}).setdefault(raw["metadata"]["uid"], seen)

    def of_gangs(self, trainers: int, others: int) -> list[float]:
        """Of each gang, seconds from its first binding to when so many pods of each kind had a node, or until now."""
        assert self._thread.is_alive(), "the watch has failed: what it has seen is not all"
        found = []
        for seen in [tuple(one.values()) for one in tuple(self._of.values())]:
            first = sorted(at for at, is_trainer in seen if is_trainer)[trainers - 1 : trainers]
            rest = sorted(at for at, is_trainer in seen if not is_trainer)[others - 1 : others]
            whole = max(first + rest) if first and rest else time.monotonic()
            found.append(whole - min(at for at, _ in seen))
        return found


@dataclass(slots=True)
class LivePass(Pass):
    """One pass; with ``spillway`` the autoscaler decides by itself."""

    bindings: Bindings = field(kw_only=True)

    def _scale_as_decided(self) -> None:
        """Of those that had a node, the ones that have none any more."""
        world = self.world
        assert isinstance(world, LiveWorld)
        here = sum(pod.role == "trainer" and pod.node is not None and pod.state != "ending" for pod in world.pods)
        self.killed = len(world.ever) - here

    def _figures(self) -> dict[str, Any]:
        """Also of what samples, two seconds apart, may miss."""
        took = self.bindings.of_gangs(self.setup.trainers if self.policy == "off" else LEAST, SERVERS + 1)
        return Pass._figures(self) | {
            "seconds_with_a_gang_in_part": sum(took),
            "longest_binding_of_a_gang_seconds": max(took, default=None),
        }


def live_passes(case: int, policy: str, many: int) -> list[dict[str, Any]]:
    """The figures of so many passes, each on a control plane of its own."""
    return [_one(case, policy) for _ in range(many)]


def _one(case: int, policy: str) -> dict[str, Any]:
    with ground(delays=DELAYS) as on, tempfile.TemporaryDirectory(prefix="spillway-edl-") as place:
        for number, cpus in enumerate(NODES):
            on.kube.send("POST", "/api/v1/nodes", _node(number, cpus * MILLI - _SYSTEM))
        on.kube.send("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", _PRIORITY)
        until(lambda: all(map(_is_ready, on.kube.get("/api/v1/nodes")["items"])))
        with _decider(policy, on, Path(place)):
            world = LiveWorld(
                dice=random.Random(0),  # noqa: S311 - the same every time
                kube=on.kube,
                door=Kube.connect(on.kubeconfig),
                began=time.monotonic(),
            )
            bindings = Bindings(Kube.connect(on.kubeconfig))
            one = LivePass(CASES[case], policy, world, bindings=bindings)
            world.began -= world.now
            with bindings.watched():
                return one.run()


@contextmanager
def _decider(policy: str, on: Ground, directory: Path) -> Iterator[None]:
    """The autoscaler, where it is asked for."""
    if policy != "spillway":
        yield
        return
    file, rules = write_policy(directory, POLICY)
    with stand_in_aws(directory / "aws", kubeconfig=on.kubeconfig) as aws:
        aws.make_groups(rules)
        log = directory / "autoscaler.log"
        with autoscaler(policy=file, env=aws.env, kubeconfig=on.autoscaler_kubeconfig, log=log) as brain:
            until(lambda: "acting as" in brain.texts(), told=brain.texts)
            yield
            assert "Traceback" not in brain.texts(), brain.texts()


def _pod(raw: dict[str, Any]) -> Pod:
    meta, spec = raw["metadata"], raw["spec"]
    marks, node = meta["labels"], spec.get("nodeName")
    home = spec.get("nodeSelector", {}).get(words.HOSTNAME)
    role = _role(marks.get(words.ROLE, "nginx"))
    state = "running" if raw["status"].get("phase") == "Running" else "pending" if node is None else "starting"
    return Pod(
        owner=marks.get(words.JOB, "nginx"),
        role=role,
        index=int(marks.get(words.COMPLETION_INDEX, 0)),
        cpu=_CPUS[role],
        created=0.0,
        gated=bool(spec.get("schedulingGates")),
        wants=None if home is None else _number(home),
        node=None if node is None else _number(node),
        state="ending" if "deletionTimestamp" in meta else state,
    )


def _number(node: str) -> int:
    return int(node.removeprefix("node-"))


def _role(of_job_file: str) -> str:
    return "trainer" if of_job_file == _TRAINERS else of_job_file


def _node(number: int, cpu: int) -> dict[str, Any]:
    name, capacity = f"node-{number}", {"cpu": f"{cpu}m", "memory": "64Gi", "pods": str(POD_MAX)}
    meta = {"annotations": {"kwok.x-k8s.io/node": "fake"}, "labels": {words.HOSTNAME: name}}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, **meta},
        "status": {"allocatable": capacity, "capacity": capacity},
    }


def _is_ready(node: dict[str, Any]) -> bool:
    conditions = node["status"].get("conditions", ())
    return any((one["type"], one["status"]) == ("Ready", "True") for one in conditions)


_PRIORITY: Final = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "nginx"},
    "value": 1,
    "preemptionPolicy": "Never",
}
"""As in 2017, the scheduler ends nothing for it."""


def _deployment(name: str, cpu: int, count: int) -> dict[str, Any]:
    marks = {"app": name}
    container = {"name": "c", "image": "nginx:1", "resources": {"requests": {"cpu": f"{cpu}m", "memory": "64Mi"}}}
    template = {"metadata": {"labels": marks}, "spec": {"containers": [container], "priorityClassName": "nginx"}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"replicas": count, "selector": {"matchLabels": marks}, "template": template},
    }
