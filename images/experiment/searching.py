"""``map``: a function over many settings, each a trial of its own in one of so many slots; it can be resumed."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO, Any, Self, Unpack

import cloudpickle

from autoscaler.model.cluster import FOREVER
from autoscaler.model.errors import BadInput, Unavailable
from images.experiment import calls
from images.experiment.environment import Environment
from images.experiment.futures import Call, Future
from images.experiment.halving import Halving, Report, losers
from images.experiment.launching import lay, prepared, unique
from images.experiment.places import Local, Place
from images.experiment.slots import ENDED, Slots, Word, moves
from images.jobs import Job, as_data


class Trial(Future):
    """One setting of a search."""

    def __init__(self, call: Call, *, number: int, keywords: Mapping[str, Any]) -> None:
        super().__init__(call)
        self.number = number
        self.keywords = keywords
        """What the function is called with."""
        self.seen: Word = "waiting"
        self.failed: BaseException | None = None
        """What made its search stop."""
        self.is_told = False
        """Whether its job was asked to end by this prompt."""
        self._reports: list[Report] | None = None

    @property
    def state(self) -> Word:
        """Returns the state that its search saw last. Raises what made the search stop, if anything did."""
        if self.failed is not None:
            raise self.failed
        return self.seen

    def cancel(self) -> bool:
        """End it, or do not begin it; returns whether it had not ended."""
        if self.done():
            return False
        self.call.mark("asked", word="cancelled")
        return True

    def reports(self) -> list[Report]:
        """Returns what the trial has reported."""
        if self._reports is not None:
            return self._reports
        has_ended = self.seen in ENDED  # before the look
        found = self.call.reports(self.number)
        if has_ended:
            self._reports = found
        return found

    @property
    def freed_after(self) -> float | None:
        """Seconds from the function's return until its slot was seen to be free; ``None`` where it did not return."""
        result = self.call.results().get(self.call.main_task)
        end = self.call.marked("end")
        return end["at"] - result.at if result and end else None


def map(  # noqa: A001 - in a namespace of its own, as multiprocessing's and submitit's
    function: Callable[..., Any],
    grid: Mapping[str, Iterable[Any]] | Iterable[Mapping[str, Any]],
    *,
    slots: int | str = "1..8",
    stopping: Halving | None = None,
    roles: Mapping[str, object] | None = None,
    name: str | None = None,
    place: Place | None = None,
    **environment: Unpack[Environment],
) -> Search:
    """Call the function with each setting, as many at once as slots allow, and return the search at once.

    ``grid``: keyword arguments, each with its values, of which all combinations are tried; or the settings one by one.
    ``slots``: MIN..MAX; what is above the least takes free machines of one's own alone. ``stopping``: by what the
    function reports, the worst are ended early. Other words are those of ``launch``. It goes on while this prompt
    lives; ``resume`` goes on with it in another.
    """
    place, name, among = place or Local(), name or unique(function), Slots.parse(slots)
    settings = _settings(grid)
    folder = place.root / name
    if folder.exists():
        raise BadInput(f"{folder} is there already: `resume({name!r})` goes on with it, or choose another name")
    packs = [calls.pack(function, (), keywords, path=place.path) for keywords in settings]
    made = [
        prepared(packed, f"{name}-{number}", place, roles, environment, folder=folder / f"{number:04d}")
        for number, packed in enumerate(packs)
    ]
    if not made:
        raise BadInput("there is no setting to be tried: give keyword arguments with their values, or settings")
    place.check(made[0].job)
    trials = []
    for number, (call, packed, keywords) in enumerate(zip(made, packs, settings, strict=True)):
        lay(call, packed)
        calls.write_whole(call.folder / "keywords", cloudpickle.dumps(dict(keywords)))
        calls.write_whole(call.folder / "job", json.dumps(as_data(call.job)).encode())
        trials.append(Trial(call, number=number, keywords=keywords))
    said = {"slots": str(among), "stopping": asdict(stopping) if stopping else None}
    calls.write_whole(folder / "search", json.dumps(said).encode())
    return Search(folder, trials, place=place, slots=among, stopping=stopping)


def resume(name: str, *, slots: int | str | None = None, place: Place | None = None) -> Search:
    """Go on with a search whose prompt has ended: what ran meanwhile went on, and what has ended is not run again.

    Raises ``BadInput`` where there is none, or another prompt drives it.
    """
    place = place or Local()
    folder = place.root / name
    try:
        said = json.loads((folder / "search").read_bytes())
    except FileNotFoundError:
        raise BadInput(f"there is no search {name!r} in {place.root}: was it made there, and completely?") from None
    trials = []
    for number, path in enumerate(sorted(folder.glob("[0-9]*"), key=lambda path: int(path.name))):
        job = Job.model_validate_json((path / "job").read_bytes())
        keywords = cloudpickle.loads((path / "keywords").read_bytes())
        trials.append(Trial(Call(place=place, job=job, folder=path), number=number, keywords=keywords))
    stopping = Halving(**said["stopping"]) if said["stopping"] else None
    return Search(folder, trials, place=place, slots=Slots.parse(slots or said["slots"]), stopping=stopping)


def _settings(grid: Mapping[str, Iterable[Any]] | Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    if isinstance(grid, Mapping):
        values = [list(one) for one in grid.values()]
        return [dict(zip(grid, one, strict=True)) for one in itertools.product(*values)]
    return list(grid)


class Search:
    """Its trials, and a thread that begins and ends them while this prompt lives."""

    def __init__(
        self, folder: Path, trials: list[Trial], *, place: Place, slots: Slots, stopping: Halving | None
    ) -> None:
        self.trials = trials
        self._folder, self._place, self._slots, self._stopping = folder, place, slots, stopping
        self._lock = _only_driver(folder)
        for trial in trials:
            _forget_what_never_began(trial.call)
        self._thread = threading.Thread(target=self._drive, name=f"search {folder.name}", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        """Writes the search as a prompt shows it."""
        states = [trial.state for trial in self.trials]
        counts = ", ".join(f"{states.count(word)} {word}" for word in dict.fromkeys(states))
        return f"<search {self.name}: {counts}; slots {self._slots}>"

    def __iter__(self) -> Iterator[Trial]:
        """Iterates over the trials, by number."""
        return iter(self.trials)

    def __len__(self) -> int:
        """How many trials there are."""
        return len(self.trials)

    def __getitem__(self, number: int) -> Trial:
        """The trial of that number."""
        return self.trials[number]

    @property
    def name(self) -> str:
        """Returns the name by which it is resumed."""
        return self._folder.name

    @property
    def slots(self) -> str:
        """How many trials run at once, MIN..MAX; may be set at any time: what runs goes on."""
        return str(self._slots)

    @slots.setter
    def slots(self, given: int | str) -> None:
        self._slots = Slots.parse(given)
        said = json.loads((self._folder / "search").read_bytes()) | {"slots": str(self._slots)}
        calls.write_whole(self._folder / "search", json.dumps(said).encode())

    def done(self) -> bool:
        """Whether every trial has ended. Raises what made the search stop, if anything did."""
        return all(trial.done() for trial in self.trials)

    def wait(self, timeout: float | None = None) -> Self:
        """Return when every trial has ended. Raises ``TimeoutError`` where that takes longer."""
        end = None if timeout is None else time.monotonic() + timeout
        while not self.done():
            if end is not None and time.monotonic() > end:
                raise TimeoutError(f"{self!r} has not ended after {timeout:g} s")
            time.sleep(self._place.every)
        self._thread.join()
        return self

    def results(self, timeout: float | None = None) -> dict[int, Any]:
        """What the trials returned that did, by number; ``search[number].result()`` says what became of the others."""
        return {trial.number: trial.result() for trial in self.wait(timeout) if trial.state == "returned"}

    def best(self, metric: str | None = None, mode: str | None = None) -> Trial:
        """The trial with the best value ever reported; the metric and mode of ``stopping``, unless given."""
        metric = metric or (self._stopping.metric if self._stopping else "loss")
        sign = -1 if (mode or (self._stopping.mode if self._stopping else "min")) == "max" else 1
        seen = [(sign * one.values[metric], one.trial) for one in self.reports() if metric in one.values]
        seen = [one for one in seen if not math.isnan(one[0])]
        if not seen:
            raise BadInput(f"no trial of {self.name} has reported {metric} yet")
        return self.trials[min(seen)[1]]

    def reports(self) -> list[Report]:
        """What all trials have reported."""
        return [one for trial in self.trials for one in trial.reports()]

    def cancel(self) -> None:
        """End what runs, and begin nothing any more."""
        for trial in self.trials:
            trial.cancel()

    def _drive(self) -> None:
        try:
            while not all(trial.done() for trial in self.trials):
                has_begun = False
                with contextlib.suppress(Unavailable):  # it is asked again
                    has_begun = self._step()
                time.sleep(0 if has_begun else self._place.every)
        except BaseException as failed:  # noqa: BLE001 - it is raised in the prompt
            for trial in self.trials:
                trial.failed = failed
        finally:
            self._lock.close()

    def _step(self) -> bool:
        """Look at all trials once, end what is to end, and begin one; returns whether one has begun.

        One at a time, as that takes a moment: what ends meanwhile is seen before the next.
        """
        for trial in self.trials:
            if not trial.done():
                trial.seen = _seen(trial)
        rule = self._stopping
        lost = losers(self.reports(), rule) if rule else frozenset()
        states = [trial.seen for trial in self.trials]
        running = [trial for trial in self.trials if trial.seen in ("running", "stopping")]
        bought_for = sum(bool(trial.call.marked("started").get("guaranteed")) for trial in running)
        room = self._place.room(self.trials[0].call.job) if "waiting" in states else 0
        todo = moves(states, slots=self._slots, room=room, losers=lost, guaranteed=bought_for)
        for number in todo.stop:
            self.trials[number].call.mark("asked", word="stopped")
            self.trials[number].seen = _seen(self.trials[number])
        return any(_begin(self.trials[number], guaranteed=number in todo.guaranteed) for number in todo.start[:1])


def _seen(trial: Trial) -> Word:
    """How the trial stands; carries out what its prompt has asked, and clears away a job that has ended."""
    call = trial.call
    word = call.look()
    asked = call.marked("asked")
    if word == "waiting" and asked:
        call.mark("end", word="cancelled")
        return "cancelled"
    if word == "stopping" and not trial.is_told:
        call.place.stop(call.job)
        trial.is_told = True
    if word in ENDED:
        call.place.remove(call.job)
    return word


def _begin(trial: Trial, *, guaranteed: bool) -> bool:
    call = trial.call
    if not guaranteed:
        call = replace(call, job=call.job.model_copy(update={"patience": FOREVER}))
    try:
        call.begin(guaranteed=guaranteed)
    except BadInput:
        if call.place.room(call.job) == 0:  # another job has taken it meanwhile
            return False
        raise
    trial.seen = "running"
    return True


def _only_driver(folder: Path) -> IO[bytes]:
    """Held while this prompt drives the search; its end frees it."""
    lock = (folder / "lock").open("wb")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise BadInput(f"the search {folder.name!r} is driven by another prompt: end that one first") from None
    return lock


def _forget_what_never_began(call: Call) -> None:
    """Where a prompt died between the mark and the job: it is to be begun."""
    if call.marked("started") and not call.marked("end") and not call.results():
        with contextlib.suppress(Unavailable):
            if call.place.outcome(call.job) == "gone":
                (call.folder / "started").unlink()
