"""What a function that runs elsewhere will give: ``result``, ``wait``, ``done``, ``cancel``, in submitit's manner.

An experiment's folder says how it stands, so that another prompt can go on with it:

    call, task.py            what runs
    started, asked, end      marks, JSON: its job was begun; it was told to end, and why; how it ended
    results/, reports/       what its tasks wrote
    JOB/RUN/logs/            what they printed
"""

from __future__ import annotations

import concurrent.futures
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from autoscaler.model.errors import Unavailable
from images.experiment import calls
from images.experiment.calls import Result, TaskFailed
from images.experiment.halving import Report
from images.experiment.places import Place
from images.experiment.slots import ENDED, Word
from images.jobs import Job

CancelledError = concurrent.futures.CancelledError
_LAST_LINES: Final = 5


class StoppedEarly(CancelledError):  # noqa: N818 - as its base in words
    """The trial was among the worst of its search."""


@dataclass(frozen=True)
class Call:
    """A function's run as a job."""

    place: Place
    job: Job
    folder: Path

    @property
    def main_task(self) -> str:
        """The one whose value is the result."""
        return f"{self.job.main_role}-0"

    def mark(self, name: str, **said: Any) -> None:
        """Write down that something is so."""
        calls.write_whole(self.folder / name, json.dumps({"at": time.time(), **said}).encode())

    def marked(self, name: str) -> Mapping[str, Any]:
        """What was written down; empty where nothing was."""
        try:
            said: Mapping[str, Any] = json.loads((self.folder / name).read_bytes())
        except FileNotFoundError:
            return {}
        return said

    def begin(self, **said: Any) -> None:
        """Start its job. The mark comes first: what looks afterwards finds the job by it, or that it did not start."""
        self.mark("started", **said)
        try:
            self.place.start(self.job)
        except BaseException:
            (self.folder / "started").unlink()
            raise

    def ask_to_end(self, why: Word) -> None:
        """Begins to end the call."""
        self.mark("asked", word=why)
        self.place.stop(self.job)

    def look(self) -> Word:
        """How it stands; an end is written down, and stays as it is."""
        if end := self.marked("end"):
            word: Word = end["word"]
            return word
        if not self.marked("started"):
            return "waiting"
        asked = self.marked("asked")
        outcome = self.place.outcome(self.job)  # before the look at what was written: that was written before the end
        self.place.collect(self.job, self.folder)
        if outcome == "running":
            return "stopping" if asked else "running"
        results = self.results()
        word = _word(outcome == "done", self.main_task in results, results, asked.get("word"))
        if word == "lost" and not self._is_overdue():
            return "running"
        self.mark("end", word=word, job=outcome)
        return word

    def _is_overdue(self) -> bool:
        """Whether what is missing will not come: a shared directory may show it late."""
        seen = self.marked("unseen").get("at")
        if seen is None and self.place.patience:
            self.mark("unseen")
            return False
        return seen is None or time.time() - seen >= self.place.patience

    def results(self) -> dict[str, Result]:
        """Returns the results of the tasks that have given one, by name, e.g. ``worker-0``."""
        tasks = [f"{role}-{index}" for role in self.job.essential for index in range(self.job.roles[role].most)]
        found = {task: calls.read_result(self.folder, task) for task in tasks}
        return {task: result for task, result in found.items() if result is not None}

    def reports(self, number: int = 0) -> list[Report]:
        """Returns what the call's main task has reported."""
        return calls.read_reports(self.folder, self.main_task, number=number)


def _word(is_done: bool, has_result: bool, results: Mapping[str, Result], asked: Word | None) -> Word:  # noqa: FBT001
    raised = any(result.word == "raised" for result in results.values())
    if is_done and has_result and not raised:
        return "returned"
    if raised:
        return "raised"
    return asked or "lost"


class Future:
    """What the function will give."""

    def __init__(self, call: Call) -> None:
        self.call = call

    def __repr__(self) -> str:
        """Writes the call as a prompt shows it."""
        return f"<{self.name}: {self.state}>"

    @property
    def name(self) -> str:
        """Returns the name of its job, as in ``spillway jobs list``."""
        return self.call.job.name

    @property
    def state(self) -> Word:
        """Says how the call stands now."""
        return self.call.look()

    def done(self) -> bool:
        """Whether it has ended, however."""
        return self.state in ENDED

    def cancelled(self) -> bool:
        """Whether it was ended by ``cancel``."""
        return self.state == "cancelled"

    def cancel(self) -> bool:
        """End it; returns whether it is ending: what has ended stays as it is."""
        if self.done():
            return False
        self.call.ask_to_end("cancelled")
        return True

    def wait(self, timeout: float | None = None) -> Self:
        """Return when it has ended. Raises ``TimeoutError`` where that takes longer; a silent place is asked on."""
        end = None if timeout is None else time.monotonic() + timeout
        while not self._has_ended():
            if end is not None and time.monotonic() > end:
                raise TimeoutError(f"{self.name} has not ended after {timeout:g} s")
            time.sleep(self.call.place.every)
        return self

    def _has_ended(self) -> bool:
        try:
            return self.done()
        except Unavailable:
            return False

    def result(self, timeout: float | None = None) -> Any:
        """What task 0 of the main role returned. Raises what it raised, with where in the task that was as the cause.

        ``TaskFailed`` where it ended without a result, ``CancelledError`` after ``cancel``.
        """
        return self._given(self.wait(timeout).call.results())[self.call.main_task].get()

    def results(self, timeout: float | None = None) -> dict[str, Any]:
        """What each task that does the work returned, by name, e.g. ``worker-0``. Raises as ``result`` does."""
        given = self._given(self.wait(timeout).call.results())
        return {task: result.get() for task, result in given.items()}

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What ``result`` would raise; ``None`` where it would return."""
        self.wait(timeout)
        try:
            self.result()
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is given
            return error
        return None

    def _given(self, results: dict[str, Result]) -> dict[str, Result]:
        state = self.state
        if state == "returned":
            return results
        if state == "raised":
            next(result for result in results.values() if result.word == "raised").get()
        if state == "stopped":
            raise StoppedEarly(f"{self.name} was among the worst of its search")
        if state == "cancelled":
            raise CancelledError(f"{self.name} was cancelled")
        raise TaskFailed(self._why_lost())

    def _why_lost(self) -> str:
        exits = sorted(self.call.folder.glob(f"{self.name}/*/exits/*"))
        said = ", ".join(f"{path.name} with {json.loads(path.read_text())['status']}" for path in exits)
        last = "\n".join(self.lines()[-_LAST_LINES:])
        return f"{self.name} ended without a result ({said or 'killed, or its machine lost'})" + (last and f":\n{last}")

    def lines(self, role: str | None = None, index: int = 0) -> list[str]:
        """What a task has printed so far; the main one unless another is named."""
        return self.call.place.lines(self.call.job, self.call.folder, role or self.call.job.main_role, index)

    def reports(self) -> list[Report]:
        """What its main task has reported."""
        return self.call.reports()
