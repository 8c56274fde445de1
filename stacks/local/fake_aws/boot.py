"""Turns running EC2 instances into nodes of the cluster, and takes the nodes away when the instances end.

On a real cloud the instance boots, its kubelet registers it, and the cloud controller removes the node of an instance
that is gone. Here no machine boots: the node is a record that KWOK keeps alive. What the record says (capacity, labels,
taints, providerID, name) is what the real one would say.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from autoscaler.model import labels as words
from autoscaler.model.errors import Unavailable
from autoscaler.model.instance_types import InstanceType
from autoscaler.model.resources import Resources
from stacks.local.kubeapi.client import KubeHttp, KubeRefusedError
from stacks.local.kubeapi.nodes import delete_node, node_record
from stacks.nodes.user_data import NodeSpec, parse_user_data

RETRY: Final = 0.5
"""Seconds until the API server is tried again after it did not answer."""
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409


@dataclass(frozen=True, slots=True)
class Booted:
    """A running instance that is to be a node."""

    id: str
    type: InstanceType
    zone: str
    region: str
    name: str
    """Private DNS name, which is the node's name."""
    address: str
    user_data: str
    disk: int
    """Bytes of the root volume."""
    joins_at: float
    """Monotonic seconds: when its kubelet registers it."""
    devices_at: float
    """Monotonic seconds: when its device plugin registers the GPUs."""
    differing: Mapping[str, str] = field(default_factory=dict)
    """Allocatable amounts that its group's policy says differ from its type's."""

    @property
    def provider_id(self) -> str:
        """Returns the id of the instance as the cloud provider writes it."""
        return f"aws:///{self.zone}/{self.id}"


@dataclass
class Joined:
    """An instance that has a node."""

    name: str
    has_devices: bool


class Boot:
    """Keeps the cluster's nodes at what the instances are. Each round compares both and mends the difference."""

    def __init__(
        self,
        kubeconfig: Path,
        source: Callable[[], Iterable[Booted]],
        *,
        clock: Callable[[], float] = time.monotonic,
        workers: int = 12,
    ) -> None:
        self._kubeconfig = kubeconfig
        self._source = source
        self._clock = clock
        self._workers = workers
        self._kube: KubeHttp | None = None
        self._joined: dict[str, Joined] = {}
        self._no_nodes: set[str] = set()
        self._wake = threading.Event()
        self._stopping = False

    def changed(self) -> None:
        """Says that there may be something to do."""
        self._wake.set()

    def stop(self) -> None:
        """Ends :meth:`run`."""
        self._stopping = True
        self._wake.set()

    def run(self) -> None:
        """Round after round, until stopped. An API server that does not answer is asked again."""
        silent = False
        while not self._stopping:
            self._wake.clear()
            try:
                due = self.sync()
            except Unavailable as outage:
                if not silent:
                    _say(f"{outage}; trying again until it does")
                silent, due = True, self._clock() + RETRY
            else:
                silent = False
            self._wake.wait(None if due is None else max(due - self._clock(), 0.001))

    def sync(self) -> float | None:
        """One round; gives the monotonic time of the next one that is known. Raises ``Unavailable``."""
        kube = self._connected()
        now, wanted = self._clock(), {booted.id: booted for booted in self._source()}
        tasks = [partial(self._leave, kube, gone) for gone in self._joined.keys() - wanted.keys()]
        for booted in wanted.values():
            joined = self._joined.get(booted.id)
            if joined is None and booted.joins_at <= now and booted.id not in self._no_nodes:
                tasks.append(partial(self._join, kube, booted, now))
            elif joined is not None and not joined.has_devices and booted.devices_at <= now:
                tasks.append(partial(self._add_devices, kube, booted))
        self._do(tasks)
        times = [time for booted in wanted.values() for time in (booted.joins_at, booted.devices_at)]
        return min((time for time in times if time > now), default=None)

    def _connected(self) -> KubeHttp:
        """The API server; at the first contact, nodes of instances that are not ours any more are taken away."""
        if self._kube is None:
            kube = _connect(self._kubeconfig, connections=self._workers)
            known = {booted.provider_id: booted for booted in self._source()}
            for node in kube.get("/api/v1/nodes")["items"]:
                provider_id = node["spec"].get("providerID", "")
                if provider_id.startswith("aws://") and provider_id not in known:
                    delete_node(kube, node["metadata"]["name"])
            self._kube = kube
        return self._kube

    def _do(self, tasks: Sequence[Callable[[], None]]) -> None:
        """All of them, side by side; one that is refused is told and leaves the others alone."""
        if not tasks:
            return
        outages = []
        with ThreadPoolExecutor(min(self._workers, len(tasks))) as pool:
            for result in [pool.submit(task) for task in tasks]:
                try:
                    result.result()
                except KubeRefusedError as refused:
                    _say(f"the API server refused: {refused}")
                    outages.append(Unavailable(str(refused)))
                except Unavailable as outage:
                    outages.append(outage)
        if outages:
            raise outages[0]

    def _join(self, kube: KubeHttp, booted: Booted, now: float) -> None:
        try:
            spec = parse_user_data(booted.user_data)
        except ValueError as reason:
            self._no_nodes.add(booted.id)
            _say(f"{booted.id} does not become a node: {reason}")
            return
        has_devices = booted.devices_at <= now or not booted.type.gpus
        record = record_of(booted, spec, with_devices=has_devices)
        try:
            kube.send("POST", "/api/v1/nodes", record)
        except KubeRefusedError as refused:
            if refused.status != _CONFLICT:
                raise
            standing = kube.get(f"/api/v1/nodes/{booted.name}")
            if standing["spec"].get("providerID") != booted.provider_id:  # an earlier instance had the same address
                delete_node(kube, booted.name)
                kube.send("POST", "/api/v1/nodes", record)
        self._joined[booted.id] = Joined(name=booted.name, has_devices=has_devices)

    def _add_devices(self, kube: KubeHttp, booted: Booted) -> None:
        node = record_of(booted, parse_user_data(booted.user_data), with_devices=True)
        patch = "application/strategic-merge-patch+json"
        path = f"/api/v1/nodes/{booted.name}"
        try:
            kube.send("PATCH", path, {"metadata": {"labels": node["metadata"]["labels"]}}, content=patch)
            status = {key: node["status"][key] for key in ("capacity", "allocatable")}
            kube.send("PATCH", f"{path}/status", {"status": status}, content=patch)
        except KubeRefusedError as refused:
            if refused.status != _NOT_FOUND:
                raise
        self._joined[booted.id].has_devices = True

    def _leave(self, kube: KubeHttp, instance: str) -> None:
        delete_node(kube, self._joined[instance].name)
        del self._joined[instance]


def record_of(booted: Booted, spec: NodeSpec, *, with_devices: bool) -> dict[str, Any]:
    """The node as its kubelet and the cloud would write it."""
    gpus = booted.type.gpus if with_devices else 0
    labels = {
        **spec.labels,
        words.HOSTNAME: booted.name,
        words.ARCH: booted.type.arch,
        words.OS: "linux",
        words.OLD_ARCH: booted.type.arch,
        words.OLD_OS: "linux",
        words.INSTANCE_TYPE: booted.type.name,
        words.ZONE: booted.zone,
        words.REGION: booted.region,
        **({words.GPU_PRESENT: "true"} if booted.type.gpus else {}),
    }
    if gpus:
        labels |= {words.GPU_COUNT: str(gpus), words.GPU_MEMORY: str(booted.type.gpu_memory_mib)}
    capacity, allocatable = booted.type.capacity(disk=booted.disk), booted.type.allocatable(disk=booted.disk)
    differing = Resources.parse(booted.differing)
    return node_record(
        booted.name,
        labels=labels,
        taints=spec.taints,
        provider_id=booted.provider_id,
        address=booted.address,
        capacity=_with(capacity, differing, gpus=gpus, at_least=True),
        allocatable=_with(allocatable, differing, gpus=gpus, at_least=False),
    )


def _with(amounts: Resources, differing: Resources, *, gpus: int, at_least: bool) -> Resources:
    """What the policy says differs goes first; GPUs that are not registered yet are not there."""
    said = {name: max(amount, amounts[name]) if at_least else amount for name, amount in differing.items()}
    together = {**amounts, **said}
    if words.GPU in together and gpus == 0:
        del together[words.GPU]
    return Resources(together)


def _connect(kubeconfig: Path, *, connections: int) -> KubeHttp:
    try:
        return KubeHttp(kubeconfig, connections=connections)
    except (OSError, KeyError, TypeError, ValueError):
        raise Unavailable(f"{kubeconfig}: this kubeconfig cannot be read yet") from None


def _say(line: str) -> None:
    print(f"boot: {line}", file=sys.stderr, flush=True)
