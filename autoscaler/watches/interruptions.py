"""Listens for EC2's notices while this replica acts, and tells the store what EC2 is about to take back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from autoscaler.cloud.errors import NotAllowed, Refused
from autoscaler.cloud.interruption_queue import HIDDEN, InterruptionQueue, Message
from autoscaler.kube.cache import Store
from autoscaler.kube.retry_delay import RetryDelay
from autoscaler.model.cluster import Notice
from autoscaler.model.errors import Unavailable

_IDLE: Final = 1.0
"""Seconds between two questions whether this replica acts."""
_NO_QUEUE: Final = 600.0
"""Seconds after which a queue is looked for again that was not there, or that we may not read."""
_STRANGE: Final = timedelta(minutes=5)
"""A notice of an instance that no group has is kept so long: the instance may have been launched a moment ago."""
_LOST: Final = 3 * HIDDEN
"""A message that was not received again for so long is in the queue no more."""


@dataclass(slots=True)
class _Known:
    """A message that is not done with."""

    message: Message
    received: datetime

    def is_done(self, ours: set[str], now: datetime) -> bool:
        """Whether it concerns no instance that is there."""
        notices = self.message.notices
        return not any(one.instance in ours or now < one.told + _STRANGE for one in notices)


class InterruptionWatch:
    """Receives notices and keeps each until its instance is gone, or the notice is of no instance of ours."""

    def __init__(
        self,
        queue: InterruptionQueue,
        store: Store,
        *,
        acts: Callable[[], bool],
        outage: Callable[[str, str], None],
        note: Callable[[str], None],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """``acts``: only then messages are taken. ``note`` is told once of a queue that is missing."""
        self._queue, self._store = queue, store
        self._acts, self._outage, self._note, self._now = acts, outage, note, now
        self._known: dict[str, _Known] = {}
        """By the message's id: it is received again and again until it is deleted, with another receipt."""
        self._told = ""
        self._stopping = threading.Event()

    def start(self) -> None:
        """Listens in a thread until :meth:`stop`."""
        threading.Thread(target=self._keep, name="interruptions", daemon=True).start()

    def stop(self) -> None:
        """End the thread, within the seconds that a question takes."""
        self._stopping.set()

    def _keep(self) -> None:
        delay = RetryDelay(least=1.0)
        while not self._stopping.is_set():
            if not (self._acts() and self._store.knows_groups()):
                self._forget()
                self._stopping.wait(_IDLE)
                continue
            try:
                self.listen()
            except (Refused, NotAllowed) as error:
                self._say(f"interruptions of instances are not known beforehand: {error}")
                self._stopping.wait(_NO_QUEUE)
            except Unavailable as error:
                self._outage("SQS", str(error))
                self._stopping.wait(delay.longer())
            else:
                self._outage("SQS", "")
                self._told = ""
                delay.reset()

    def listen(self) -> None:
        """Receives messages once. Raises ``Refused``, ``NotAllowed`` or ``Unavailable``."""
        received, now = self._queue.receive(), self._now()
        for message in received:
            self._known[message.id] = _Known(message, now)
        groups = self._store.cluster(now).groups
        ours = {one.id for group in groups for one in group.instances if one.state != "terminating"}
        done = [one for one in self._known.values() if one.is_done(ours, now)]
        self._queue.delete(one.message.receipt for one in done)
        self._known = {
            key: one for key, one in self._known.items() if not one.is_done(ours, now) and now < one.received + _LOST
        }
        self._tell(ours)

    def _tell(self, ours: set[str]) -> None:
        """The gravest notice of each instance."""
        notices: dict[str, Notice] = {}
        for one in self._known.values():
            for notice in one.message.notices:
                before = notices.get(notice.instance)
                if notice.instance in ours and (before is None or notice.is_certain):
                    notices[notice.instance] = notice
        self._store.saw_notices(notices.values())

    def _forget(self) -> None:
        """What another replica does now is its business: it receives the messages that we leave."""
        if self._known:
            self._known.clear()
            self._store.saw_notices(())

    def _say(self, line: str) -> None:
        if line != self._told:
            self._note(line)
            self._told = line
