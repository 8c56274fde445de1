"""What happened, told: log lines for people or as JSON, metrics, Events on pods that cannot be helped.

A line is told when something changes, not at every look.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal, TextIO

from autoscaler.model.actions import Grow, Plan, Step, Waiting
from autoscaler.model.cluster import Cluster, Pod
from autoscaler.model.enumeration import few
from autoscaler.model.needed_changes import NeededChange, merged, together
from autoscaler.model.pauses import Pause
from autoscaler.model.step_descriptions import describe

if TYPE_CHECKING:
    from autoscaler.reporting.metrics import Metrics

STANDS_STILL: Final = 300.0
"""Seconds after which a loop that has begun no turn hangs: the longest plan takes a part of that."""
_NUMBERS: Final = re.compile(r"\d+([.:]\d+)*")
_REMEMBERED: Final = 1000

LogFormat = Literal["text", "json"]


class Log:
    """One line per thing told."""

    def __init__(self, form: LogFormat | None = None, stream: TextIO | None = None) -> None:
        """``form``: as given, else text on a terminal and JSON elsewhere."""
        self._stream = stream or sys.stdout
        self._form: LogFormat = form or ("text" if self._stream.isatty() else "json")
        self._lock = threading.Lock()
        self.hears: Callable[[str, str, Mapping[str, object]], None] = lambda _event, _text, _details: None
        """Is told of each line, too."""

    def say(self, event: str, text: str, **details: object) -> None:
        """``event`` names the kind of line for machines, ``text`` is for people."""
        now = datetime.now(UTC)
        if self._form == "json":
            record = {"time": now.isoformat(timespec="milliseconds"), "event": event, "text": text, **details}
            line = json.dumps(record, default=str)
        else:
            line = f"{now:%Y-%m-%dT%H:%M:%SZ} {text}"
        with self._lock:
            print(line, file=self._stream, flush=True)
        self.hears(event, text, details)


class Report:
    """Told everything by the loop; tells people what is new. Safe to use from several threads."""

    def __init__(
        self, log: Log, metrics: Metrics | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._log = log
        self._clock = clock
        self._turned_at = clock()
        self._metrics = metrics
        self._outages: dict[str, str] = {}
        self._failures: dict[tuple[str, str], str] = {}
        self._waiting: dict[str, str] = {}
        self._would: frozenset[Step] = frozenset()
        self._warnings: frozenset[str] = frozenset()
        self._idle_gpus: Mapping[str, str] = {}
        self.pauses: Mapping[str, Pause] = {}
        """What is paused now, by scope."""
        self.schedules: tuple[str, ...] = ()
        """Names of the schedules in force."""
        self.failures = 0
        """Steps that failed, each time counted."""
        self._lock = threading.Lock()

    def note(self, line: str) -> None:
        """Something a person may want to know."""
        self._log.say("note", line)

    def paused(self, pauses: Iterable[Pause]) -> None:
        """Operators have paused this now: what begins and what ends is told."""
        now = {pause.scope: pause for pause in pauses}
        for scope, pause in now.items():
            if self.pauses.get(scope) != pause:
                self._log.say("paused", str(pause), scope=scope, until=pause.until, by=pause.by)
            if self._metrics:
                self._metrics.paused.labels(scope).set(1)
        for scope in self.pauses.keys() - now.keys():
            self._log.say("resumed", f"{self.pauses[scope].what} goes on", scope=scope)
            if self._metrics:
                self._metrics.paused.labels(scope).set(0)
        self.pauses = now

    def scheduled(self, names: Sequence[str]) -> None:
        """Says which schedules of the policy are in force, when that changes."""
        if tuple(names) != self.schedules:
            self.schedules = tuple(names)
            told = f"schedules in force: {', '.join(names)}" if names else "no schedule is in force any more"
            self._log.say("schedules", told, names=list(names))

    def broken(self, error: Exception) -> None:
        """A defect of ours: with its traceback."""
        if self._metrics:
            self._metrics.defects.inc()
        self._log.say("defect", "".join(traceback.format_exception(error)).rstrip())

    def turned(self) -> None:
        """The loop has begun a turn: it is alive."""
        self._turned_at = self._clock()

    def why_not_alive(self) -> str:
        """Empty while the loop turns; else since when it does not, in words."""
        stood = self._clock() - self._turned_at
        return "" if stood < STANDS_STILL else f"the loop has stood still for {stood:.0f} s\n"

    def acting(self, *, mine: bool) -> None:
        """Whether we hold the lease."""
        if self._metrics:
            self._metrics.acting.set(mine)
            if not mine:
                self._metrics.stand_by()

    def outage(self, party: str, why: str) -> None:
        """A party is out of reach (told once), or answers again (``why`` is empty)."""
        if not why and party not in self._outages:  # the usual case, without the lock
            return
        with self._lock:
            before = self._outages.pop(party, "")
            if why:
                self._outages[party] = why
        if why and why != before:
            self._log.say("outage", f"{party}: {why}", party=party)
            if self._metrics:
                self._metrics.outages.labels(party).inc()
        elif before and not why:
            self._log.say("recovered", f"{party}: answers again", party=party)

    def decided(self, plan: Plan, cluster: Cluster, *, took: float, doubted: bool = False) -> None:
        """A plan was made in so many seconds; one that does nothing where the look was ``doubted``."""
        if self._metrics:
            self._metrics.decided(plan, cluster, took=took, doubted=doubted)
        self._warn(plan.warnings)

    def _warn(self, warnings: Iterable[str]) -> None:
        """Each is told when it is new."""
        now = frozenset(warnings)
        for line in sorted(now - self._warnings):
            self._log.say("warning", line)
        self._warnings = now
        if self._metrics:
            self._metrics.warnings.set(len(now))

    def idle_gpus(self, idle: Mapping[str, str]) -> None:
        """Pods that do not use their GPUs, and what is told of each: told when it is new."""
        for pod in sorted(idle.keys() - self._idle_gpus.keys()):
            self._log.say("idle-gpus", f"{pod}: {idle[pod]}", pods=[pod])
        self._idle_gpus = idle

    def done(self, step: Step, *, pods: Iterable[Pod] = ()) -> None:
        """A step was taken; ``pods``: those that a purchase is for."""
        self._failures.pop(_target(step), None)
        self._log.say("step", f"{describe(step)}: {step.because}", **_details(step))
        if self._metrics:
            self._metrics.steps.labels(type(step).__name__, "done").inc()
            if isinstance(step, Grow):
                self._metrics.ordered(step, oldest=min((pod.created for pod in pods), default=None))

    def failed(self, step: Step, why: Exception) -> None:
        """A step could not be taken; the same failure is told once."""
        self.failures += 1
        if self._metrics:
            self._metrics.steps.labels(type(step).__name__, "failed").inc()
        if len(self._failures) > _REMEMBERED:
            self._failures.clear()
        if self._failures.get(_target(step)) != str(why):
            self._failures[_target(step)] = str(why)
            self._log.say("failed", f"could not {describe(step)}: {why}", **_details(step))

    def would(self, steps: Iterable[Step]) -> None:
        """A dry run: what would be done, when it is not what was told last."""
        now = frozenset(steps)
        for step in steps:
            if step not in self._would:
                self._log.say("would", f"would {describe(step)}: {step.because}", **_details(step))
        self._would = now

    def waiting(self, waiting: Iterable[Waiting], *, is_there: Callable[[str], bool] = lambda _pod: True) -> None:
        """One line for each reason that is new, for the pods that wait no longer, and for those that are gone."""
        waiting = list(waiting)
        told = in_words(waiting)
        now = {one.pod: told[one.because] for one in waiting}
        causes = {told[one.because]: one.cause for one in waiting}
        news: dict[str, list[str]] = {}
        for pod, reason in now.items():
            if pod not in self._waiting or gist(self._waiting[pod]) != gist(reason):
                news.setdefault(reason, []).append(pod)
        for reason, pods in news.items():
            verb = "waits" if len(pods) == 1 else "wait"
            self._log.say("waiting", f"{few(pods)} {verb}: {reason}", pods=pods, cause=causes[reason])
        over = [pod for pod in self._waiting if pod not in now]
        gone = [pod for pod in over if not is_there(pod)]
        self._over([pod for pod in over if pod not in gone], "waits no longer", "wait no longer")
        self._over(gone, "is gone", "are gone")
        if over and not now:
            self._log.say("waiting", "no pod waits any more", pods=[])
        self._waiting = now

    def _over(self, pods: list[str], one: str, several: str) -> None:
        """The end of their waiting."""
        if pods:
            self._log.say("waiting", f"{few(pods)} {one if len(pods) == 1 else several}", pods=pods)


def in_words(waiting: Iterable[Waiting]) -> dict[str, str]:
    """Each reason, and behind it what would change that for all that wait for it."""
    changes: dict[str, dict[tuple[NeededChange, ...], None]] = {}
    for one in waiting:
        changes.setdefault(one.because, {})[one.changes] = None
    found = {because: together(merged(one for some in many for one in some)) for because, many in changes.items()}
    return {because: f"{because}; it would fit if {change}" if change else because for because, change in found.items()}


def gist(reason: str) -> frozenset[str]:
    """What it says but for its numbers and their order: how many nodes are full changes with every node."""
    return frozenset(re.split(r"[:;] ", re.sub(r"\bnodes\b", "node", _NUMBERS.sub("#", reason))))


def _target(step: Step) -> tuple[str, str]:
    """What a step is about: failures of the same step are the same news."""
    return type(step).__name__, describe(step)


def _details(step: Step) -> Mapping[str, object]:
    fields = {name: getattr(step, name) for name in step.__dataclass_fields__}
    return {"step": type(step).__name__, **fields}
