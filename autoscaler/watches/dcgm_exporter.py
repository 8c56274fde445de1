"""Asks the pods of the DCGM exporter how much GPUs are used and which errors they had, while this replica acts.

Only where the policy wants to know it, and directly, by the address of each pod: a right to the API server's proxy
would be one to every pod's ports. Format: https://github.com/NVIDIA/dcgm-exporter and
https://prometheus.io/docs/instrumenting/exposition_formats/ . Fields:
https://docs.nvidia.com/datacenter/dcgm/latest/dcgm-api/dcgm-api-field-ids.html .
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

import msgspec
import urllib3

from autoscaler.config.policy import Policy
from autoscaler.kube.cache import Store
from autoscaler.kube.client import Kube, Refused, reason_of
from autoscaler.kube.schema.core import Json, Meta
from autoscaler.model.cluster import GpuHealth, GpuUse
from autoscaler.model.errors import Unavailable
from autoscaler.model.gpu_devices import GpuDevice

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
    r"^DCGM_FI_DEV_(?P<field>\w+)\{(?P<labels>.*)\}\s+(?P<value>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)(\s+\d+)?\s*$",
    re.MULTILINE,
)
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_USE: Final = "GPU_UTIL"
_XID: Final = "XID_ERRORS"
"""The last one since the driver was loaded or the GPU was reset; 0: none."""
_ERRORS: Final = {
    "ECC_DBE_VOL_TOTAL": "uncorrectable ECC errors",
    "ROW_REMAP_FAILURE": "a row of its memory could not be remapped",
}
"""What is an error of the GPU where it is counted at all."""
_BLANK: Final = 2.0**53
"""DCGM has numbers far above it for what has no value."""
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
        """Returns where the exporter serves its metrics."""
        ports = [port.container_port for one in self.spec.containers for port in one.ports if port.name == "metrics"]
        host = f"[{self.status.pod_ip}]" if ":" in self.status.pod_ip else self.status.pod_ip
        return f"http://{host}:{next(iter(ports), _PORT)}/metrics"


@dataclass(frozen=True, slots=True)
class Answer:
    """What an exporter says of the GPUs of its node."""

    uses: tuple[GpuUse, ...]
    """How much each pod uses its busiest GPU, to a percent."""
    errors: str
    """In words, by the number of the GPU; empty: none."""
    devices: tuple[GpuDevice, ...] = ()


def read_metrics(text: str, *, node: str, xids: Collection[int]) -> Answer:
    """What an exporter's text says. ``xids``: those that are a fault of the GPU, not of a program."""
    busiest: dict[str, float] = {}
    errors: list[tuple[int, str]] = []
    devices: list[GpuDevice] = []
    for line in _LINE.finditer(text):
        field, value, labels = line["field"], float(line["value"]), dict(_LABEL.findall(line["labels"]))
        use = min(1.0, round(value) / 100)
        key = f"{labels['namespace']}/{labels['pod']}" if labels.get("pod") and labels.get("namespace") else ""
        number = int(labels["gpu"]) if labels.get("gpu", "").isdecimal() else None
        if field == _USE and key:
            busiest[key] = max(busiest.get(key, 0.0), use)
        if field == _USE and number is not None:
            devices.append(GpuDevice(node, number, labels.get("UUID", ""), key, labels.get("container", ""), use))
        what = f"Xid {value:.0f}" if field == _XID and value in xids else ""
        what = what or (_ERRORS.get(field, "") if 0 < value < _BLANK else "")
        if what and number is not None:
            errors.append((number, what))
    return Answer(
        uses=tuple(GpuUse(pod, node, share) for pod, share in busiest.items()),
        errors="; ".join(f"GPU {number}: {what}" for number, what in sorted(set(errors))),
        devices=tuple(sorted(devices, key=lambda one: (one.number, one.pod))),
    )


@dataclass(frozen=True, slots=True)
class _Known:
    """The last answer of a node's exporter."""

    at: datetime
    answer: Answer
    since: datetime
    """It has told of errors, or of none, since then."""


class DcgmExporterWatch:
    """A thread that tells the store what the exporters measure."""

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
        self._known: dict[str, _Known] = {}
        """By node."""
        self._is_told = False
        """The store knows of a round."""
        self._devices: tuple[GpuDevice, ...] | None = None
        self._stopping = threading.Event()
        self._http = urllib3.PoolManager(retries=False, timeout=_WITHIN, maxsize=_AT_ONCE)

    def start(self) -> None:
        """Asks the exporters in a thread until :meth:`stop`."""
        threading.Thread(target=self._keep, name="DCGM exporters", daemon=True).start()

    def stop(self) -> None:
        """End the thread, within the seconds that a question takes."""
        self._stopping.set()

    def _keep(self) -> None:
        while not self._stopping.is_set():
            policy = self._policy()
            is_wanted = self._acts() and (policy.idle_gpus.enabled or policy.faults.dcgm)
            if is_wanted:
                self.ask()
            elif self._is_told:
                self._known.clear()
                self._devices = None
                self._tell((), None)
            self._stopping.wait(self._every if is_wanted else _OFF)

    def devices(self) -> tuple[GpuDevice, ...] | None:
        """Each GPU of which exporters told in the last round; ``None`` where none was made."""
        return self._devices

    def ask(self) -> None:
        """One round. What does not answer is told, and counts as it was for some minutes."""
        policy = self._policy()
        try:
            exporters = list(self._exporters(policy.dcgm_exporter))
        except (Unavailable, Refused) as error:
            self._outage("the DCGM exporter", str(error))
            return
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            answers = list(pool.map(partial(self._read, xids=policy.faults.xids), exporters))
        silent = [
            f"{one.spec.node_name} ({answer})"
            for one, answer in zip(exporters, answers, strict=True)
            if isinstance(answer, str)
        ]
        self._outage("the DCGM exporter", _in_words(silent, len(exporters)))
        now = self._now()
        for one, answer in zip(exporters, answers, strict=True):
            if isinstance(answer, Answer):
                before = self._known.get(one.spec.node_name)
                is_as_before = before is not None and bool(before.answer.errors) == bool(answer.errors)
                since = before.since if before is not None and is_as_before else now
                self._known[one.spec.node_name] = _Known(now, answer, since)
        self._known = {node: one for node, one in self._known.items() if now < one.at + _STALE}
        self._devices = self._with_idleness(now)
        uses = [use for one in self._known.values() for use in one.answer.uses]
        health = [GpuHealth(node, one.answer.errors, one.since) for node, one in self._known.items()]
        silent_long = {one.spec.node_name for one in exporters} - self._known.keys()
        self._tell(
            uses if policy.idle_gpus.enabled else (),
            [*health, *(GpuHealth(node, None) for node in silent_long)] if policy.faults.dcgm else None,
        )

    def _with_idleness(self, now: datetime) -> tuple[GpuDevice, ...]:
        before = {(one.node, one.number, one.pod): one.idle_since for one in self._devices or ()}
        return tuple(
            device
            if device.use
            else replace(device, idle_since=before.get((device.node, device.number, device.pod)) or now)
            for _, one in sorted(self._known.items())
            for device in one.answer.devices
        )

    def _tell(self, uses: Sequence[GpuUse], health: Sequence[GpuHealth] | None) -> None:
        self._store.saw_gpus(uses, health)
        self._is_told = bool(uses) or health is not None

    def _exporters(self, selector: str) -> Iterator[_Exporter]:
        for raws, _ in self._kube.pages("/api/v1/pods", labelSelector=selector):
            for raw in raws:
                found = msgspec.json.decode(raw, type=_Exporter)
                if found.status.phase == "Running" and found.status.pod_ip and found.spec.node_name:
                    yield found

    def _read(self, exporter: _Exporter, *, xids: Collection[int]) -> Answer | str:
        """What it says, or in words why it does not."""
        try:
            answer = self._http.request("GET", exporter.url)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            return reason_of(error)
        if answer.status != _OK:
            return f"it answers {answer.status}"
        return read_metrics(answer.data.decode(errors="replace"), node=exporter.spec.node_name, xids=xids)


def _in_words(silent: Iterable[str], many: int) -> str:
    silent = sorted(silent)
    if not many:
        return "no pod of it runs (dcgm_exporter of the policy selects none): nothing is known of GPUs"
    return f"{len(silent)} of {many} do not answer: {silent[0]}" if silent else ""
