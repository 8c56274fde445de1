"""What the stand-in writes down: every call that changed something, and every instance that ever was.

The demo and the benchmark read it: how long a pod waited for its purchase, what was bought twice, what was left behind.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

KEPT: Final = 100_000
"""Requests; the oldest go first."""


@dataclass(frozen=True, slots=True)
class Request:
    """One call that was meant to change something."""

    number: int
    """Counts up from 1: ask for what is ``since`` the last one seen."""
    at: float
    """Seconds of the wall clock when it arrived."""
    at_monotonic: float
    """Seconds of the machine's monotonic clock."""
    took: float
    """Seconds until the answer was ready."""
    service: str
    action: str
    parameters: Mapping[str, Any]
    access_key: str
    user_agent: str
    error: str
    """AWS error code; empty where it was granted."""


@dataclass(frozen=True, slots=True)
class Life:
    """One instance from launch to end. Times are seconds of the wall clock; ``None``: not yet."""

    id: str
    instance_type: str
    zone: str
    group: str
    """Auto Scaling group that launched it; empty where none did."""
    market: str
    """``on-demand`` or ``spot``."""
    launched_at: float
    running_at: float | None = None
    ended_at: float | None = None


class Ledger:
    """Both lists. Safe to use from several threads."""

    def __init__(self, *, wall: Callable[[], float] = time.time) -> None:
        self._wall = wall
        self._lock = threading.Lock()
        self._requests: list[Request] = []
        self._count = 0
        self._lives: dict[str, Life] = {}

    def write(self, **details: Any) -> None:
        """Add a request; ``details`` are its fields but the number."""
        with self._lock:
            self._count += 1
            self._requests.append(Request(number=self._count, **details))
            if len(self._requests) > KEPT:
                del self._requests[: KEPT // 10]

    def requests(self, *, since: int = 0) -> list[dict[str, Any]]:
        """Requests with a higher number, oldest first, as JSON."""
        with self._lock:
            skip = max(since - (self._count - len(self._requests)), 0)
            return [asdict(request) for request in self._requests[skip:]]

    def launched(self, life: Life) -> None:
        """Notes that an instance was launched."""
        with self._lock:
            self._lives[life.id] = replace(life, launched_at=self._wall())

    def running(self, instance: str) -> None:
        """Notes that an instance has left ``pending``."""
        self._mark(instance, running_at=self._wall())

    def ended(self, instance: str) -> None:
        """Notes that an instance was terminated."""
        self._mark(instance, ended_at=self._wall())

    def instances(self) -> list[dict[str, Any]]:
        """Every instance ever, in order of launch, as JSON."""
        with self._lock:
            return [asdict(life) for life in self._lives.values()]

    def _mark(self, instance: str, **times: Any) -> None:
        with self._lock:
            life = self._lives.get(instance)
            if life is not None and life.ended_at is None:
                self._lives[instance] = replace(life, **times)
