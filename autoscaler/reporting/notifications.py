"""Posts what the log tells to webhooks in Slack's form, by the rules of the policy: the same not again and again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import urllib3

from autoscaler.config.notifications import Event, Notification
from autoscaler.config.policy import Policy
from autoscaler.kube.client import reason_of
from autoscaler.model.actions import BUSY, HELD, PATIENCE, STARTING
from autoscaler.reporting.messenger import Messenger, NotDelivered
from autoscaler.reporting.report import gist

PARTY: Final = "the webhook of notifications"
_STEPS: Final[Mapping[str, Event]] = {"Grow": "bought", "Remove": "terminated", "FreeGpus": "freed"}
_PASSES: Final = frozenset({STARTING, HELD, PATIENCE, BUSY})
"""Causes of waiting that end by themselves: no message is sent for these."""
_MOST: Final = 3000
"""Characters of a message: a traceback is longer."""
_REMEMBERED: Final = 1000
_WITHIN: Final = urllib3.Timeout(connect=3, read=5)
_TOO_MANY: Final = 429
_OURS_TO_MEND: Final = range(400, 500)
"""Statuses that another try does not change."""


@dataclass(frozen=True, slots=True)
class News:
    """One line of the log."""

    event: str
    text: str
    details: Mapping[str, object]

    @property
    def kind(self) -> str:
        """Returns the kind as the rules name it; empty for what none is told of."""
        if self.event == "step":
            return _STEPS.get(str(self.details.get("step")), "")
        if self.event == "waiting" and self.details.get("cause", STARTING) in _PASSES:
            return ""
        return "" if str(self.details.get("party", "")).startswith(PARTY) else self.event

    @property
    def namespaces(self) -> frozenset[str]:
        """Returns the namespaces of the pods that it is about."""
        pods = cast("tuple[str, ...]", self.details.get("pods") or self.details.get("demand") or ())
        return frozenset(pod.partition("/")[0] for pod in pods)


class Notifier:
    """Hears every line of the log. Safe to use from several threads."""

    def __init__(
        self,
        messenger: Messenger,
        *,
        policy: Callable[[], Policy],
        acts: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``acts``: whether this replica does; another one's log says the same."""
        self._messenger = messenger
        self._policy = policy
        self._acts = acts
        self._clock = clock
        self._told: dict[tuple[str, str, frozenset[str]], float] = {}
        self._lock = threading.Lock()

    def hear(self, event: str, text: str, details: Mapping[str, object]) -> None:
        """Sends a line of the log to those that the policy names for its event."""
        policy = self._policy()
        if not policy.notifications or not self._acts():
            return
        news = News(event, text, details)
        for rule in self._due(news, policy):
            body = {"text": f"*{policy.cluster}* {news.kind}: {text[:_MOST]}"}
            body |= {"channel": rule.channel} if rule.channel else {}
            self._messenger.post(partial(_post, rule, body), party=f"{PARTY} {rule.name}")

    def _due(self, news: News, policy: Policy) -> Iterator[Notification]:
        """Rules by which it is told, and has not been told lately."""
        for rule in policy.notifications:
            if news.kind not in rule.events or (rule.namespaces and not news.namespaces & set(rule.namespaces)):
                continue
            key, now = (rule.name, news.kind, gist(news.text)), self._clock()
            with self._lock:
                last = self._told.get(key)
                if last is not None and now - last < rule.again_after.total_seconds():
                    continue
                if len(self._told) >= _REMEMBERED:
                    self._told.clear()
                self._told[key] = now
            yield rule


def _post(rule: Notification, body: Mapping[str, Any]) -> None:
    """Raises ``NotDelivered``; no message of it has the address, which is a secret."""
    try:
        url = Path(rule.webhook_file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise NotDelivered(f"{rule.webhook_file} cannot be read: {error}") from None
    if not url.startswith(("https://", "http://")) or len(url.split()) != 1:
        raise NotDelivered(f"{rule.webhook_file} has no address such as https://hooks.slack.com/services/...")
    try:
        with urllib3.PoolManager(retries=False, timeout=_WITHIN) as pool:
            answer = pool.request("POST", url, json=body)
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise NotDelivered(f"it does not answer ({reason_of(error)})") from None
    if answer.status >= _OURS_TO_MEND.start:
        wait = answer.headers.get("Retry-After", "")
        raise NotDelivered(
            f"it answers {answer.status}: {answer.data[:100].decode(errors='replace')}",
            again=answer.status not in _OURS_TO_MEND or answer.status == _TOO_MANY,
            after=float(wait) if wait.isdecimal() else None,
        )
