"""Which of several autoscalers acts: the one that holds a Lease (coordination.k8s.io), renewed every 1.5 seconds.

A lease lasts 10 s, and its holder gives up when it could not renew it for 7 s, so that none acts in between. Times are
compared on our own clock only: how long a record stood unchanged before us. Another looks again at the moment when the
record has stood for long enough, so that after a SIGKILL it acts within ``RETRY + LASTS``: the last renewal was seen at
most ``RETRY`` after it was written.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec

from autoscaler.kube.client import Kube, Refused
from autoscaler.model import labels as words
from autoscaler.model.errors import Unavailable

LASTS: Final = 10.0
RENEW_WITHIN: Final = 7.0
RETRY: Final = 1.5
_A_MOMENT: Final = 0.01
_LOOK: Final = 0.1
_NOT_FOUND: Final = 404

Tell = Callable[[str], None]


class Lease:
    """The autoscaler's lease in one namespace: a thread gets and keeps it; ask ``is_mine`` before each act."""

    def __init__(
        self,
        kube: Kube,
        *,
        namespace: str,
        identity: str,
        name: str = words.LEASE,
        door: str = "",
        on_change: Tell = lambda _line: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``on_change`` is told in words which replica holds the lease, whenever that changes.

        ``door``: where we answer, for those that ask the holder.
        """
        self.identity = identity
        self._kube = kube
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._namespace = namespace
        self._name = name
        self._door = door
        self._on_change = on_change
        self._clock = clock
        self._renewed = float("-inf")
        self._seen: tuple[str, str] = ("", "")
        self._seen_at = float("-inf")
        self._stale_at = float("inf")
        """When another's record will have stood for too long."""
        self._told = ""
        self._lost_to: str | None = None
        """Another that holds it, or has held it, after us: empty where it has let go again."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)

    def is_mine(self) -> bool:
        """Whether we may act now."""
        return self._clock() - self._renewed < RENEW_WITHIN

    def why_not_mine(self, *, within: float) -> str:
        """Why we may not go on with what we began: empty where it was ours all the time, and is.

        While it cannot be renewed, as the API server does not answer, that is waited for, so many seconds at most.
        """
        end = self._clock() + within
        while not self.is_mine() and self._lost_to is None and self._clock() < end and not self._stopping.is_set():
            self._stopping.wait(_LOOK)
        if self._lost_to is not None:
            return f"{self._lost_to or 'another run'} has taken the lease {self._namespace}/{self._name}"
        if self.is_mine():
            return ""
        return f"the lease {self._namespace}/{self._name} could not be renewed for {within:g} s"

    def start(self) -> None:
        """Try to get it, and keep it, until :meth:`stop`."""
        self._thread.start()

    def stop(self) -> None:
        """Stop renewing, and let another have it at once."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout=RENEW_WITHIN)
        if self.is_mine():
            self._release()
        self._renewed = float("-inf")

    def try_once(self) -> str:
        """One attempt to get or renew it; gives the holder."""
        began = self._clock()
        try:
            lease = msgspec.json.decode(self._kube.get(f"{self._path}/{self._name}"))
        except Refused as refused:
            if refused.status != _NOT_FOUND:  # 404: it is not made yet
                raise
            return self._write("POST", self._path, {"metadata": {"name": self._name}}, began)
        spec = lease.get("spec", {})
        holder = str(spec.get("holderIdentity") or "")
        if holder != self.identity and self._renewed > float("-inf"):
            self._lost_to = holder
        if holder not in ("", self.identity) and not self._is_stale(holder, spec):
            return holder
        return self._write("PUT", f"{self._path}/{self._name}", lease, began)

    def _is_stale(self, holder: str, spec: dict[str, Any]) -> bool:
        """The record stood unchanged before us for as long as it says that it lasts."""
        record = (holder, str(spec.get("renewTime")))
        if record != self._seen:
            self._seen, self._seen_at = record, self._clock()
        self._stale_at = self._seen_at + float(spec.get("leaseDurationSeconds") or LASTS)
        return self._clock() > self._stale_at

    def _write(self, method: str, path: str, lease: dict[str, Any], began: float) -> str:
        """Write ourselves into the record that was read: refused where somebody was faster."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = lease.get("spec", {})
        if spec.get("holderIdentity") != self.identity:
            spec |= {"acquireTime": now, "leaseTransitions": int(spec.get("leaseTransitions") or 0) + 1}
        spec |= {"holderIdentity": self.identity, "leaseDurationSeconds": int(LASTS), "renewTime": now}
        metadata = lease["metadata"]
        marks = (metadata.get("annotations") or {}) | {words.DOOR: self._door}
        try:
            self._kube.send(method, path, lease | {"metadata": metadata | {"annotations": marks}, "spec": spec})
        except Refused as refused:
            if refused.status != 409:  # noqa: PLR2004 - another autoscaler wrote in between
                raise
            return "another autoscaler"
        self._renewed = began
        return self.identity

    def _release(self) -> None:
        try:
            lease = msgspec.json.decode(self._kube.get(f"{self._path}/{self._name}"))
            if lease["spec"].get("holderIdentity") == self.identity:
                lease["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1}
                self._kube.send("PUT", f"{self._path}/{self._name}", lease)
        except (Refused, Unavailable, KeyError):
            return  # it runs out by itself

    def _keep(self) -> None:
        while not self._stopping.is_set():
            self._say(self._attempt())
            self._stopping.wait(self.pause())

    def pause(self) -> float:
        """Seconds until the next attempt."""
        left = self._stale_at + _A_MOMENT - self._clock()
        return min(RETRY, left) if left > 0 and not self.is_mine() else RETRY

    def _attempt(self) -> str:
        """What came of it, in words."""
        lease = f"the lease {self._namespace}/{self._name}"
        try:
            holder = self.try_once()
        except (Refused, Unavailable) as error:
            if self.is_mine():
                return ""
            mend = ": apply autoscaler/rbac.yaml" if isinstance(error, Refused) and error.status == _NOT_FOUND else ""
            return f"{lease} is out of reach, nothing is done until it is not: {error}{mend}"
        if holder == self.identity:
            return f"acting as {self.identity}, which holds {lease}"
        return f"waiting: {holder} holds {lease}; one autoscaler acts at a time"

    def _say(self, line: str) -> None:
        if line and line != self._told:
            self._told = line
            self._on_change(line)


class Holder(NamedTuple):
    """The holder of a lease."""

    name: str = ""
    """Empty where it is not held."""
    renewed: datetime | None = None
    """By the holder's clock."""
    door: str = ""
    """Where the holder answers; empty where it does not."""


def holder_of(kube: Kube, *, namespace: str, name: str = words.LEASE) -> Holder:
    """The holder of the lease.

    Raises ``Refused`` or ``Unavailable``.
    """
    try:
        found = kube.get(f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}")
    except Refused as refused:
        if refused.status != _NOT_FOUND:
            raise
        return Holder()
    lease = msgspec.json.decode(found)
    spec, marks = lease.get("spec", {}), lease.get("metadata", {}).get("annotations") or {}
    renewed = spec.get("renewTime")
    return Holder(
        str(spec.get("holderIdentity") or ""),
        datetime.fromisoformat(renewed) if renewed else None,
        str(marks.get(words.DOOR, "")),
    )
