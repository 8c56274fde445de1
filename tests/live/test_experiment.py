"""Functions of a live prompt as real processes of this machine: launched, mapped, ended early, resumed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from autoscaler.model.errors import BadInput
from images import experiment
from images.backends import local
from images.backends.devices import VISIBLE
from images.experiment import Future, Halving, Search
from tests import ROOT
from tests.live.hybrid import until
from tests.test_images.test_launcher import is_there

pytestmark = pytest.mark.live

PATIENCE = 300.0
BEGUN: list[Search] = []
"""Searches of this test, which begin no more trials once it has ended."""


def mapped(*given: Any, **environment: Any) -> Search:
    """A search, which ends with its test."""
    BEGUN.append(experiment.map(*given, **environment))
    return BEGUN[-1]


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's machine with four GPUs, by what CUDA is told, and no jobs; what is left of them ends at last."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv(VISIBLE, "0,1,2,3")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    while BEGUN:
        search = BEGUN.pop()
        search.cancel()
        search.wait(PATIENCE)
    for job in {state.job for state in local.states()}:
        local.delete(name=job)


def pid_of(future: Future) -> int:
    """The process of its function, which has reported it."""
    reports = until(future.reports, within=PATIENCE, told=lambda: f"{future} {future.lines()}")
    return int(reports[0].values["pid"])


def waiting(go: Path) -> Callable[[int], int]:
    """A trial's work: it says its pid, and goes on until it is let go. Inside, so that it travels by value."""

    def waits(number: int) -> int:
        experiment.report(pid=os.getpid())
        while not go.exists():
            time.sleep(0.05)
        return number

    return waits


def test_a_gang_of_workers_and_a_server_runs_one_function_and_gives_its_gpus_back(machine: Path) -> None:
    """Every task knows the cluster and its own GPU; the server ends with the workers; the prompt lives on."""

    def train() -> Any:
        told = json.loads(os.environ["TF_CONFIG"])
        Path(f"{told['task']['type']}-{told['task']['index']}").touch()
        while told["task"]["type"] == "ps" or len(list(Path().glob("worker-*"))) < 3:  # it needs all of them at once
            time.sleep(0.05)
        return told["task"]["index"], len(told["cluster"]["worker"]), os.environ["CUDA_VISIBLE_DEVICES"]

    future = experiment.launch(train, roles={"worker": 3, "ps": 1}, gpus=1)
    assert len(local.free_gpus()) == 1
    assert future.results(PATIENCE) == {f"worker-{index}": (index, 3, str(index)) for index in range(3)}
    assert len(local.free_gpus()) == 4  # while the prompt lives
    assert (machine / "ps-0").exists()
    assert future.result() == (0, 3, "0")
    assert [state.state for state in local.states()] == ["done", "done"]
    with pytest.raises(BadInput, match="asks for 5 GPUs, and this machine has 4"):
        experiment.launch(train, roles={"worker": 5}, gpus=1)
    holding = experiment.launch(waiting(machine / "never"), args=(0,), roles={"worker": 2}, gpus=1)
    with pytest.raises(BadInput, match="of which 2 of this machine's 4 are free now"):
        experiment.launch(train, roles={"worker": 3}, gpus=1, name="refused")
    assert not (experiment.Local().root / "refused").exists()
    assert holding.cancel()


def test_what_is_raised_in_a_task_is_raised_here() -> None:
    """With where in the task; and what it printed can be read."""

    def fails(rate: float, *, steps: int) -> None:
        print("tried")
        raise ValueError(f"rate {rate} after {steps}")

    future = experiment.launch(fails, args=(0.5,), kwargs={"steps": 3})
    with pytest.raises(ValueError, match=r"rate 0.5 after 3") as caught:
        future.result(PATIENCE)
    assert "in fails" in str(caught.value.__cause__)
    assert future.state == "raised"
    assert isinstance(future.exception(), ValueError)
    assert future.lines()[0] == "tried"
    assert not future.cancel()


def test_what_is_cancelled_ends_and_what_is_killed_is_told(machine: Path) -> None:
    """A cancelled function's process is gone; a killed one left a word of how."""
    future = experiment.launch(waiting(machine / "never"), args=(0,))
    with pytest.raises(TimeoutError):
        future.wait(0.01)
    pid = pid_of(future)
    assert future.cancel()
    assert future.wait(PATIENCE).cancelled()
    assert not is_there(pid)
    with pytest.raises(experiment.CancelledError, match="was cancelled"):
        future.result()

    def dies() -> None:
        print("last words", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

    future = experiment.launch(dies)
    with pytest.raises(experiment.TaskFailed, match=r"ended without a result \(worker-0 with 137\):\nlast words"):
        future.result(PATIENCE)


def running(search: Search) -> list[int]:
    """Numbers of the trials that run."""
    return [trial.number for trial in search if trial.state == "running"]


def test_a_search_grows_from_one_slot_to_four_and_what_runs_goes_on(machine: Path) -> None:
    """Twelve trials, each with a GPU of its own; none is started twice; a slot is free soon after its return."""
    go = machine / "go"
    search = mapped(waiting(go), {"number": range(12)}, slots=1, gpus=1)
    first = pid_of(search[0])
    time.sleep(1)
    assert running(search) == [0]
    search.slots = "1..4"
    until(lambda: len(running(search)) == 4, within=PATIENCE, told=lambda: search)
    pids = {number: pid_of(search[number]) for number in running(search)}
    assert pids[0] == first
    assert local.free_gpus() == []
    with pytest.raises(BadInput, match="is driven by another prompt"):
        experiment.resume(search.name)
    search.slots = 2  # ends none of them
    time.sleep(1)
    assert {number: pid_of(search[number]) for number in running(search)} == pids
    search.slots = 4
    go.touch()
    assert search.results(PATIENCE) == {number: number for number in range(12)}
    assert len(local.free_gpus()) == 4
    attempts = [path.name for path in machine.rglob("worker-0.*.log")]
    assert attempts == ["worker-0.0.log"] * 12
    freed = [trial.freed_after for trial in search]
    assert all(after is not None and after < PATIENCE / 10 for after in freed), freed  # seconds; idle: below one
    assert local.states() == []  # the jobs of trials are cleared away; their lines are kept
    assert all(is_there(pid) is False for pid in pids.values())


def test_the_worst_are_ended_early_and_their_slots_are_used_at_once(machine: Path) -> None:
    """Only two of eight end by themselves: the search can end only if the others are ended."""
    begun = machine / "begun"

    def descend(loss: float) -> float:
        while loss != 0.15 and not begun.exists():  # the first to report goes on, however bad it is
            time.sleep(0.05)
        experiment.report(loss=loss)
        begun.touch()
        while loss > 0.15:
            time.sleep(0.05)
        experiment.report(loss=loss / 2)
        return loss

    losses = [0.15, 0.9, 0.8, 0.7, 0.1, 0.6, 0.5, 0.4]
    rule = Halving("loss", reduction=4, most=16)
    search = mapped(descend, [{"loss": loss} for loss in losses], slots=2, stopping=rule)
    assert search.results(PATIENCE) == {0: 0.15, 4: 0.1}
    assert [trial.state for trial in search if trial.number not in (0, 4)] == ["stopped"] * 6
    assert search.best().keywords == {"loss": 0.1}
    with pytest.raises(experiment.StoppedEarly):
        search[1].result()


def test_a_trial_can_be_cancelled_and_one_that_raises_ends_no_other(machine: Path) -> None:
    """Also before it began."""

    def work(number: int) -> int:
        if number == 1:
            raise ValueError(number)
        while number == 2:
            time.sleep(0.05)
        return number

    search = mapped(work, {"number": range(5)}, slots=1)
    assert search[4].cancel()
    until(lambda: search[2].state == "running", within=PATIENCE, told=lambda: search)
    assert search[2].cancel()
    assert search.results(PATIENCE) == {0: 0, 3: 3}
    assert [trial.state for trial in search] == ["returned", "raised", "cancelled", "returned", "cancelled"]
    with pytest.raises(ValueError, match="1"):
        search[1].result()


PROMPT = """\
import os, sys, time
from pathlib import Path
from images import experiment
def work(number):
    experiment.report(pid=os.getpid())
    while number and not Path("go").exists():
        time.sleep(0.05)
    return number, os.getpid()
search = experiment.map(work, {"number": range(6)}, slots=2, gpus=1, name="hunt")
search.wait()
"""


def test_a_search_whose_prompt_was_killed_goes_on_in_another(machine: Path) -> None:
    """What ran goes on with its pid, what has ended is not run again, what waits is begun."""
    prompt = subprocess.Popen([sys.executable, "-c", PROMPT], env=os.environ | {"PYTHONPATH": str(ROOT)})
    folder = experiment.Local().root / "hunt"
    try:
        until(lambda: len(list(folder.glob("*/reports/worker-0"))) == 3, within=PATIENCE)  # 0 has ended, 1 and 2 run
    finally:
        prompt.kill()
        prompt.wait()
    (folder / "0005" / "started").write_text('{"at": 0}')  # as if it had been killed before this one's job was made
    search = experiment.resume("hunt", slots="1..3")
    BEGUN.append(search)
    before = {number: pid_of(search[number]) for number in range(3)}
    until(lambda: len(running(search)) == 3, within=PATIENCE, told=lambda: search)
    (machine / "go").touch()
    results = search.results(PATIENCE)
    assert {number: value for number, (value, _pid) in results.items()} == {number: number for number in range(6)}
    assert {number: pid for number, (_value, pid) in results.items() if number in before} == before
    assert experiment.resume("hunt").results(PATIENCE) == results  # nothing is run again
    with pytest.raises(BadInput, match="there is no search 'none'"):
        experiment.resume("none")
    with pytest.raises(BadInput, match=r"`resume\('hunt'\)` goes on with it"):
        experiment.map(len, [{}], name="hunt")
