"""Delivers messages in a thread: Events on pods that cannot be helped and of the policy; posts to webhooks."""

from __future__ import annotations

import heapq
import itertools
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from autoscaler.executor import FAILURES
from autoscaler.kube.writes import Writes
from autoscaler.model import labels as words
from autoscaler.model.actions import Waiting
from autoscaler.model.cluster import Pod
from autoscaler.reporting.report import in_words

HOPELESS: Final = "NoPlaceAnywhere"
"""Reason of the Event on a pod that no machine here and no group of the policy could ever hold."""
UNREAD: Final = "AnnotationNotRead"
"""Reason of the Event on a pod with an annotation of ours that makes no sense."""
IDLE: Final = "GpusNotUsed"
"""Reason of the Event on a pod that has not used its GPUs for too long."""
_PARTY: Final = "API server (events)"


class NotDelivered(Exception):  # noqa: N818 - reads as what it is at the raise site
    """A message was not taken. ``again``: another try may be; ``after``: not before so many seconds."""

    def __init__(self, why: str, *, again: bool = True, after: float | None = None) -> None:
        super().__init__(why)
        self.again = again
        self.after = after


@dataclass(slots=True)
class _Letter:
    """What is to be delivered, and what is called where it was not."""

    deliver: Callable[[], object]
    party: str
    failed: Callable[[], None] = lambda: None
    pauses: tuple[float, ...] = ()
    """Seconds before each further try."""


class Messenger:
    """Delivers messages in a thread: Events on pods, once per pod and reason, and of the policy; and to webhooks."""

    def __init__(
        self,
        kube: Writes,
        *,
        failed: Callable[[str, str], None] = lambda _party, _why: None,
        pauses: tuple[float, ...] = (1.0, 5.0, 30.0, 120.0),
    ) -> None:
        """``failed`` is told what was not delivered, and with no words that it is again. ``pauses``: of a webhook."""
        self._kube = kube
        self._failed = failed
        self._pauses = pauses
        self._told: dict[str, set[str]] = {HOPELESS: set(), UNREAD: set(), IDLE: set()}
        self._letters: queue.SimpleQueue[_Letter | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._deliver, name="events", daemon=True)
        self._thread.start()

    def hopeless(self, waiting: Iterable[Waiting], pod: Callable[[str], Pod | None]) -> None:
        """Writes an Event on each pod that cannot be helped."""
        now = [(pod(one.pod), in_words([one])[one.because]) for one in waiting if one.hopeless]
        self._write(HOPELESS, ((found, message) for found, message in now if found is not None))

    def idle_gpus(self, idle: Mapping[str, str], pod: Callable[[str], Pod | None]) -> None:
        """Tell each pod that does not use its GPUs."""
        self._write(IDLE, ((found, message) for key, message in idle.items() if (found := pod(key)) is not None))

    def unread(self, pods: Iterable[Pod]) -> None:
        """Tell each pod that says something that we cannot read."""
        self._write(UNREAD, ((pod, "; ".join(pod.unread)) for pod in pods if pod.unread))

    def _write(self, reason: str, now: Iterable[tuple[Pod, str]]) -> None:
        """Writes to those not told before; those gone are forgotten."""
        told = self._told[reason]
        uids = set()
        for pod, message in now:
            uids.add(pod.uid)
            if pod.uid not in told:
                told.add(pod.uid)
                deliver = partial(_tell_pod, pod, reason, message, self._kube)
                self._letters.put(_Letter(deliver, _PARTY, partial(told.discard, pod.uid)))
        told.intersection_update(uids)

    def policy(self, namespace: str, reason: str, message: str, *, is_warning: bool) -> None:
        """Tell of the acting policy, on its ConfigMap in the namespace."""
        about = {"namespace": namespace, "name": words.ACTING_POLICY, "reason": reason, "message": message}
        self._letters.put(_Letter(lambda: self._kube.tell_configmap(**about, is_warning=is_warning), _PARTY))

    def post(self, deliver: Callable[[], object], *, party: str) -> None:
        """Have it delivered; tried again for a while where it raises ``NotDelivered``."""
        self._letters.put(_Letter(deliver, party, pauses=self._pauses))

    def stop(self) -> None:
        """Deliver what is written, then end: what waits for another try is lost."""
        self._letters.put(None)
        self._thread.join(timeout=5)

    def _deliver(self) -> None:
        later: list[tuple[float, int, _Letter]] = []
        for number in itertools.count():
            letter = self._next(later)
            if letter is None:
                return
            again = self._try(letter)
            if again is not None:
                heapq.heappush(later, (time.monotonic() + again, number, letter))

    def _next(self, later: list[tuple[float, int, _Letter]]) -> _Letter | None:
        """A new letter, or the one whose next try is due."""
        try:
            return self._letters.get(timeout=max(0.0, later[0][0] - time.monotonic()) if later else None)
        except queue.Empty:
            return heapq.heappop(later)[2]

    def _try(self, letter: _Letter) -> float | None:
        """Deliver it; gives after how many seconds it is to be tried again, where it is."""
        try:
            letter.deliver()
        except (*FAILURES, NotDelivered) as error:
            self._failed(letter.party, str(error))
            if letter.pauses and isinstance(error, NotDelivered) and error.again:
                pause, *rest = letter.pauses
                letter.pauses = tuple(rest)
                return max(pause, error.after or 0.0)
            letter.failed()
        else:
            self._failed(letter.party, "")
        return None


def _tell_pod(pod: Pod, reason: str, message: str, kube: Writes) -> None:
    kube.tell_pod(namespace=pod.namespace, name=pod.name, uid=pod.uid, reason=reason, message=message)
