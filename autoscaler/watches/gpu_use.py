"""Asks the pods of the DCGM exporter how much GPUs are used, while this replica acts and the policy wants to know it.

Directly, by the address of each pod: a right to the API server's proxy would be one to every pod's ports. Format:
https://github.com/NVIDIA/dcgm-exporter and https://prometheus.io/docs/instrumenting/exposition_formats/ .
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
import urllib3

from autoscaler.config.policy import Policy
from autoscaler.kube.cache import Store
from autoscaler.kube.client import Kube, Refused, reason_of
from autoscaler.kube.schema.core import Json, Meta
from autoscaler.model.cluster import GpuUse
from autoscaler.model.errors import Unavailable

EVERY: Final = 30.0
"""Seconds between two rounds: the exporter itself collects as often."""
_OFF: Final = 2.0
"""Seconds between two looks at whether the policy wants it."""
_STALE: Final = timedelta(minutes=5)
"""What was measured so long ago is not known any more."""
_PORT: Final = 9400
"""The exporter's own choice, where its pod does not name one."""
_WITHIN: Final = urllib3.Timeout(connect=2, read=5)
_AT_ONCE: Final = 16
_LINE: Final = re.compile(
    r"^DCGM_FI_DEV_GPU_UTIL\{(?P<labels>.*)\}\s+(?P<value>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)(\s+\d+)?\s*$", re.MULTILINE
)
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_OK: Final = 200


class _Port(Json, frozen=True):
    name: str = ""
    container_port: int = 0


class _Container(Json, frozen=True):
    ports: tuple[_Port, ...] = ()


class _Spec(Json, frozen=True):
    node_name: str = ""
    containers: tuple[_Container, ...] = ()


class _Status(Json, frozen=True):
    phase: str = ""
    pod_ip: str = msgspec.field(name="podIP", default="")


class _Exporter(Json, frozen=True):
    """A pod of the exporter."""

    metadata: Meta
    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def url(self) -> str:
        """Where it serves."""
        ports = [port.container_port for one in self.spec.containers for port in one.ports if port.name == "metrics"]
        host = f"[{self.status.pod_ip}]" if ":" in self.status.pod_ip else self.status.pod_ip
        return f"http://{host}:{next(iter(ports), _PORT)}/metrics"


def uses_in(text: str, *, node: str) -> Iterator[GpuUse]:
    """How much each pod of a node uses its busiest GPU, to a percent, as an exporter there says it."""
    busiest: dict[str, float] = {}
    for line in _LINE.finditer(text):
        labels = dict(_LABEL.findall(line["labels"]))
        if labels.get("pod") and labels.get("namespace"):
            key = f"{labels['namespace']}/{labels['pod']}"
            busiest[key] = max(busiest.get(key, 0.0), min(1.0, round(float(line["value"])) / 100))
    return (GpuUse(pod, node, share) for pod, share in busiest.items())


class GpuUseWatch:
    """A thread that tells the store how much pods use their GPUs."""

    def __init__(
        self,
        kube: Kube,
        store: Store,
        *,
        policy: Callable[[], Policy],
        acts: Callable[[], bool],
        outage: Callable[[str, str], None],
        every: float = EVERY,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """``every``: seconds between two rounds."""
        self._kube, self._store = kube, store
        self._policy, self._acts, self._outage, self._every, self._now = policy, acts, outage, every, now
        self._known: dict[str, tuple[datetime, tuple[GpuUse, ...]]] = {}
        """By node: when it was measured, and what."""
        self._stopping = threading.Event()
        self._http = urllib3.PoolManager(retries=False, timeout=_WITHIN, maxsize=_AT_ONCE)

    def start(self) -> None:
        """Ask until :meth:`stop`."""
        threading.Thread(target=self._keep, name="use of GPUs", daemon=True).start()

    def stop(self) -> None:
        """End the thread, within the seconds that a question takes."""
        self._stopping.set()

    def _keep(self) -> None:
        while not self._stopping.is_set():
            is_wanted = self._acts() and self._policy().idle_gpus.enabled
            if is_wanted:
                self.ask()
            elif self._known:
                self._known.clear()
                self._store.saw_gpu_use(())
            self._stopping.wait(self._every if is_wanted else _OFF)

    def ask(self) -> None:
        """One round. What does not answer is told, and counts as it was for some minutes."""
        try:
            exporters = list(self._exporters(self._policy().idle_gpus.exporter))
        except (Unavailable, Refused) as error:
            self._outage("the DCGM exporter", str(error))
            return
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            answers = list(pool.map(self._read, exporters))
        silent = [
            f"{one.spec.node_name} ({answer})"
            for one, answer in zip(exporters, answers, strict=True)
            if isinstance(answer, str)
        ]
        self._outage("the DCGM exporter", _in_words(silent, len(exporters)))
        now = self._now()
        self._known |= {
            one.spec.node_name: (now, answer)
            for one, answer in zip(exporters, answers, strict=True)
            if not isinstance(answer, str)
        }
        self._known = {node: one for node, one in self._known.items() if now < one[0] + _STALE}
        self._store.saw_gpu_use(use for _, uses in self._known.values() for use in uses)

    def _exporters(self, selector: str) -> Iterator[_Exporter]:
        for raws, _ in self._kube.pages("/api/v1/pods", labelSelector=selector):
            for raw in raws:
                found = msgspec.json.decode(raw, type=_Exporter)
                if found.status.phase == "Running" and found.status.pod_ip and found.spec.node_name:
                    yield found

    def _read(self, exporter: _Exporter) -> tuple[GpuUse, ...] | str:
        """What it says, or in words why it does not."""
        try:
            answer = self._http.request("GET", exporter.url)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            return reason_of(error)
        if answer.status != _OK:
            return f"it answers {answer.status}"
        return tuple(uses_in(answer.data.decode(errors="replace"), node=exporter.spec.node_name))


def _in_words(silent: Iterable[str], many: int) -> str:
    silent = sorted(silent)
    if not many:
        return "no pod of it runs (idle_gpus.exporter of the policy selects none): no use of GPUs is known"
    return f"{len(silent)} of {many} do not answer: {silent[0]}" if silent else ""
