"""What shall go wrong at the stand-in for AWS: a script of faults, read from a file or sent while it runs.

    seed: 1
    faults:
      - {kind: insufficient-capacity, instance_type: p4d.24xlarge, zone: us-east-1a, after: 2, lasts: 30s}
      - {kind: quota, after: 4, late: 20s}
      - {kind: quota, vcpus: 96}
      - {kind: throttle, actions: [SetDesiredCapacity], every: 3}
      - {kind: slow-boot, instance_type: p4d.24xlarge, factor: 4}
      - {kind: never-joins, count: 1}
      - {kind: late-device, by: 10s}
      - {kind: wrong-credentials, begins: 5s, lasts: 20s}
      - {kind: gone, how: reset, lasts: 15s}
      - {kind: eventual-consistency, of: iam, by: 10s}

Times count from the moment the script is put in force. The same script and the same calls give the same faults.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal

from pydantic import Field, model_validator

from autoscaler.config.documents import Document, Span
from stacks.local.wire.aws_protocol import Call, Refused

Kind = Literal[
    "insufficient-capacity",
    "quota",
    "throttle",
    "slow-boot",
    "never-joins",
    "late-device",
    "wrong-credentials",
    "gone",
    "eventual-consistency",
]

_REFUSALS: Final[tuple[Kind, ...]] = ("insufficient-capacity", "quota")
_WHEN: Final = frozenset({"kind", "begins", "lasts"})
_WHERE: Final = frozenset({"instance_type", "zone"})
_KEYS: Final[Mapping[str, frozenset[str]]] = {
    "insufficient-capacity": _WHERE | {"after", "late"},
    "quota": frozenset({"instance_type", "after", "late", "vcpus"}),
    "throttle": frozenset({"actions", "every", "code"}),
    "slow-boot": _WHERE | {"factor", "by"},
    "never-joins": _WHERE | {"count", "share"},
    "late-device": _WHERE | {"by"},
    "wrong-credentials": frozenset(),
    "gone": frozenset({"how"}),
    "eventual-consistency": frozenset({"of", "by"}),
}
_NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    "slow-boot": ("factor", "by"),
    "never-joins": ("count", "share"),
    "late-device": ("by",),
    "eventual-consistency": ("by",),
}
"""At least one of these must be written."""


class Fault(Document):
    """One thing that goes wrong, where, and when."""

    kind: Kind = Field(description="what goes wrong: " + ", ".join(_KEYS))
    begins: Span = Field(default=timedelta(0), description="how long after the start it begins, e.g. 10s")
    lasts: Span | None = Field(default=None, description="how long it lasts, e.g. 30s; absent: until it is lifted")
    instance_type: str | None = Field(default=None, description="only this instance type; absent: every one")
    zone: str | None = Field(default=None, description="only this availability zone; absent: every one")
    after: int = Field(default=0, ge=0, description="instances that are still granted")
    vcpus: int | None = Field(default=None, ge=0, description="vCPUs of the quota, as Service Quotas tells it, e.g. 96")
    late: Span = Field(
        default=timedelta(0), description="so long an Auto Scaling group tries before it fails, e.g. 40s"
    )
    actions: tuple[str, ...] = Field(default=(), description="API calls, e.g. [SetDesiredCapacity]; absent: every one")
    every: int = Field(default=1, ge=1, description="every n-th of these calls is refused")
    code: str | None = Field(default=None, description="the error code; absent: the one that the service uses")
    factor: float = Field(default=1.0, gt=0, description="boot takes so many times as long, e.g. 4")
    by: Span = Field(default=timedelta(0), description="so much later, e.g. 20s")
    count: int | None = Field(default=None, ge=0, description="so many instances, the first ones")
    share: float | None = Field(default=None, ge=0, le=1, description="this share of the instances, e.g. 0.1")
    how: Literal["unavailable", "reset"] = Field(
        default="unavailable", description="unavailable: answers 503; reset: cuts the connection"
    )

    of: Literal["ec2", "iam"] | None = Field(default=None, description="what is seen late; absent: both")

    @model_validator(mode="after")
    def _keys_fit_the_kind(self) -> Fault:
        extra = sorted(self.model_fields_set - _KEYS[self.kind] - _WHEN)
        if extra:
            takes = ", ".join(sorted(_KEYS[self.kind] | (_WHEN - {"kind"})))
            message = f"{self.kind} does not take {extra[0]!r}: its keys are {takes}"
            raise ValueError(message)
        needs = _NEEDS.get(self.kind, ())
        if needs and not self.model_fields_set & set(needs):
            message = f"{self.kind} needs {' or '.join(needs)}"
            raise ValueError(message)
        return self

    def is_in_force(self, seconds: float) -> bool:
        """Says whether it is in force so many seconds after the script's start."""
        begins = self.begins.total_seconds()
        return seconds >= begins and (self.lasts is None or seconds < begins + self.lasts.total_seconds())

    def strikes_at(self, *, instance_type: str, zone: str) -> bool:
        """Whether it is about such an instance."""
        return self.instance_type in (None, instance_type) and self.zone in (None, zone)


class Script(Document):
    """All faults, and the seed for those that strike a share."""

    seed: int = 0
    faults: tuple[Fault, ...] = Field(default=(), description="what goes wrong, one entry each")


@dataclass(frozen=True, slots=True)
class Joining:
    """How a new instance comes to be a node."""

    delay: timedelta | None
    """From launch to node; ``None``: it never joins."""
    devices_later: timedelta = timedelta(0)
    """From node to its GPUs being registered."""


class Faults:
    """The script in force. Safe to use from several threads."""

    def __init__(self, script: Script | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self.put(script or Script())

    def put(self, script: Script) -> None:
        """Put a script in force, in place of the one before; its times begin now."""
        with self._lock:
            self.script = script
            self._began = self._clock()
            self._met = [0] * len(script.faults)
            self._struck = [0] * len(script.faults)
            self._dice = [random.Random(f"{script.seed}/{i}") for i in range(len(script.faults))]  # noqa: S311 - repeatable on purpose

    def as_json(self) -> dict[str, Any]:
        """The script, and how often each fault has struck."""
        with self._lock:
            written = self.script.model_dump(mode="json", exclude_unset=True, exclude={"faults"})
            listed = [
                {**_as_written(fault), "struck": struck}
                for fault, struck in zip(self.script.faults, self._struck, strict=True)
            ]
        return {**written, "faults": listed}

    def gone(self) -> Literal["unavailable", "reset"] | None:
        """Whether the whole service is gone, and how that looks."""
        with self._lock:
            for index, fault in self._in_force("gone"):
                self._struck[index] += 1
                return fault.how
        return None

    def refuse(self, call: Call) -> Refused | None:
        """The error that this call meets, if any."""
        with self._lock:
            for index, _ in self._in_force("wrong-credentials"):
                self._struck[index] += 1
                return _wrong_credentials(call)
            for index, fault in self._in_force("throttle"):
                if fault.actions and call.action not in fault.actions:
                    continue
                self._met[index] += 1
                if self._met[index] % fault.every == 0:
                    self._struck[index] += 1
                    return _throttled(call, fault.code)
        return None

    def refusal(self, *, instance_type: str, zone: str, count: int = 1) -> Fault | None:
        """What keeps EC2 from launching so many more instances; where nothing does, they count as granted."""
        with self._lock:
            about = [
                (index, fault)
                for kind in _REFUSALS
                for index, fault in self._in_force(kind)
                if fault.strikes_at(instance_type=instance_type, zone=zone) and fault.vcpus is None
            ]
            short = [index for index, fault in about if self._met[index] + count > fault.after]
            for index in short:
                self._struck[index] += 1
            for index, _ in about if not short else ():
                self._met[index] += count
        return self.script.faults[short[0]] if short else None

    def quota(self) -> int | None:
        """VCPUs of the quota that is in force, where one says so many."""
        with self._lock:
            return next((fault.vcpus for _, fault in self._in_force("quota") if fault.vcpus is not None), None)

    def seen_after(self, of: Literal["ec2", "iam"]) -> float:
        """Seconds until the rest of AWS sees what is made now: from half of the fault's time to all of it."""
        with self._lock:
            for index, fault in self._in_force("eventual-consistency"):
                if fault.of in (None, of):
                    self._struck[index] += 1
                    return fault.by.total_seconds() * self._dice[index].uniform(0.5, 1)
        return 0.0

    def grants(self, *, instance_type: str, zone: str, count: int = 1) -> bool:
        """Whether nothing keeps EC2 from launching so many more instances."""
        return self.refusal(instance_type=instance_type, zone=zone, count=count) is None

    def joining(self, *, instance_type: str, zone: str, boot_delay: timedelta) -> Joining:
        """How an instance that is launched now comes to be a node."""
        with self._lock:
            delay: timedelta | None = boot_delay
            later = timedelta(0)
            for index, fault in enumerate(self.script.faults):
                if not self._is_in_force(fault) or not fault.strikes_at(instance_type=instance_type, zone=zone):
                    continue
                if fault.kind == "slow-boot":
                    delay = None if delay is None else delay * fault.factor + fault.by
                elif fault.kind == "late-device":
                    later += fault.by
                elif fault.kind == "never-joins" and self._never_joins(index, fault):
                    delay = None
                else:
                    continue
                self._struck[index] += 1
        return Joining(delay=delay, devices_later=later)

    def _never_joins(self, index: int, fault: Fault) -> bool:
        if fault.share is not None and self._dice[index].random() >= fault.share:
            return False
        return fault.count is None or self._struck[index] < fault.count

    def _in_force(self, kind: Kind) -> Iterator[tuple[int, Fault]]:
        for index, fault in enumerate(self.script.faults):
            if fault.kind == kind and self._is_in_force(fault):
                yield index, fault

    def _is_in_force(self, fault: Fault) -> bool:
        return fault.is_in_force(self._clock() - self._began)


def _as_written(fault: Fault) -> dict[str, Any]:
    """Returns the fault with spans as people write them, so that the answer can be put again."""
    written = fault.model_dump(exclude_unset=True)
    return {
        key: f"{value.total_seconds():g}s" if isinstance(value, timedelta) else value for key, value in written.items()
    }


def _throttled(call: Call, code: str | None) -> Refused:
    """https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-throttling.html."""
    if call.service == "ec2":
        return Refused(code or "RequestLimitExceeded", "Request limit exceeded.", status=503)
    usual = "ThrottlingException" if call.json_protocol else "Throttling"
    return Refused(code or usual, "Rate exceeded", status=400)


def _wrong_credentials(call: Call) -> Refused:
    if call.service == "ec2":
        return Refused("AuthFailure", "AWS was not able to validate the provided access credentials", status=401)
    code = "UnrecognizedClientException" if call.json_protocol else "InvalidClientTokenId"
    return Refused(code, "The security token included in the request is invalid.", status=403)
