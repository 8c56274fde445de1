"""The record on a disk: bounded, read past what is torn, and never in the way of deciding."""

from __future__ import annotations

import random
import resource
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from autoscaler.cli.autoscale import _moment
from autoscaler.model.actions import Memory, Plan
from autoscaler.model.errors import BadInput
from autoscaler.record import writer
from autoscaler.record.decisions import Decision
from autoscaler.record.reader import decision_at, moment, read_record
from autoscaler.record.writer import Recorder, files_in
from tests.builders import NOW, a_cluster, a_pod, a_policy, later

ONE = Decision(a_cluster(), a_policy(), Memory(), Plan())


def at(second: int, *, noise: int = 0) -> Decision:
    """A decision then, of a cluster with a pod whose name cannot be compressed."""
    dice = random.Random(second)  # noqa: S311 - the same each time
    name = f"p{dice.getrandbits(8 * noise or 8):x}"
    return replace(ONE, cluster=replace(ONE.cluster, seen_at=later(seconds=second), pods=(a_pod(name),)))


def seconds(found: Iterator[Decision | str]) -> list[int | str]:
    """When each decision was made."""
    return [one if isinstance(one, str) else round((one.cluster.seen_at - NOW).total_seconds()) for one in found]


def recorded(folder: Path, *decisions: Decision, at_most: int = 2**20, told: list[str] | None = None) -> Recorder:
    """A recorder that was stopped after these."""
    heard = [] if told is None else told
    one = Recorder(folder, at_most=at_most, identity="a/b", tell=lambda _party, why: heard.append(why))
    for decision in decisions:
        one.decided(decision)
    one.stop()
    return one


def test_decisions_are_read_in_order_with_what_came_of_them(tmp_path: Path) -> None:
    """Two processes after one another write into one folder."""
    first = Recorder(tmp_path, at_most=2**20)
    first.decided(at(1))
    first.came_of(("done", "failed: no"))
    first.decided(at(2))
    first.stop()
    recorded(tmp_path, at(3))
    assert seconds(read_record(tmp_path)) == [1, 2, 3]
    found = [one for one in read_record(tmp_path) if isinstance(one, Decision)]
    assert [one.outcomes for one in found] == [("done", "failed: no"), (), ()]
    assert seconds(read_record(files_in(tmp_path)[1])) == [3]


def test_the_folder_never_holds_more_than_its_bound(tmp_path: Path) -> None:
    """The oldest go first; what is left is whole."""
    bound = 200_000
    one = Recorder(tmp_path, at_most=bound)
    for second in range(300):
        one.decided(at(second, noise=4000))
        while not one._letters.empty():
            threading.Event().wait(0.001)
        assert sum(map(_size, files_in(tmp_path))) <= bound
    one.stop()
    left = seconds(read_record(tmp_path))
    assert left == list(range(int(left[0]), 300))
    assert 0 < len(left) < 300


def _size(path: Path) -> int:
    """Nothing where the writer's thread has deleted it meanwhile."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8, 0.99])
def test_a_torn_last_entry_is_read_past_and_said(tmp_path: Path, share: float) -> None:
    """As SIGKILL leaves it in the midst of a write: every entry before it is there."""
    recorded(tmp_path, *(at(second, noise=300) for second in range(10)))
    [path] = files_in(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    recorded(tmp_path, at(99))
    *before, said, after = seconds(read_record(tmp_path))
    assert before == list(range(len(before)))
    assert "was not written to its end" in str(said)
    assert after == 99


def test_a_file_whose_bytes_are_others_is_read_up_to_there(tmp_path: Path) -> None:
    """A disk that lies."""
    recorded(tmp_path, *(at(second, noise=300) for second in range(10)))
    [path] = files_in(tmp_path)
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 100] = bytes(100)
    path.write_bytes(bytes(data))
    *before, said = seconds(read_record(tmp_path))
    assert before == list(range(len(before)))
    assert isinstance(said, str)
    assert "left out" in said


@pytest.fixture
def full_disk() -> Iterator[None]:
    """No file may be larger than 4 kB: the kernel refuses the write, as it does on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.usefixtures("full_disk")
def test_a_full_disk_is_told_and_loses_the_record_alone(tmp_path: Path) -> None:
    """In the midst of an entry; what was written before can be read."""
    told: list[str] = []
    recorded(tmp_path, *(at(second, noise=1500) for second in range(8)), told=told)
    assert any("File too large" in why and "deciding goes on" in why for why in told)
    *found, said = seconds(read_record(tmp_path))
    assert found == list(range(len(found)))
    assert "was not written to its end" in str(said)


def test_when_the_disk_has_room_again_the_record_goes_on(tmp_path: Path) -> None:
    """With a new file, and that is told; until then the disk is tried now and then only."""
    told: list[str] = []
    clock = [0.0]
    folder = tmp_path / "record"
    folder.write_text("a file where a folder should be")
    one = Recorder(folder, at_most=2**20, tell=lambda _party, why: told.append(why), clock=lambda: clock[0])
    one.decided(at(1))
    until_empty(one, told)
    folder.unlink()
    clock[0] += 60
    one.decided(at(2))
    one.stop()
    assert "File exists" in told[0]
    assert told[-1] == ""
    assert seconds(read_record(folder)) == [2]


def until_empty(one: Recorder, told: list[str]) -> None:
    """Until the writer has told something."""
    while not told:
        threading.Event().wait(0.001)
    assert one._thread.is_alive()


def test_a_disk_that_hangs_does_not_hold_up_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for it: the write does not return. More decisions than may wait are lost, which is told."""
    told: list[str] = []
    begun, go_on = threading.Event(), threading.Event()

    def hang(_self: object, _line: bytes) -> None:
        begun.set()
        go_on.wait(60)

    monkeypatch.setattr(writer._File, "write", hang)
    one = Recorder(tmp_path, at_most=2**20, tell=lambda _party, why: told.append(why))
    one.decided(at(0))
    begun.wait(60)
    for second in range(200):
        one.decided(at(second))
    assert len(told) == 200 - writer._WAITING
    assert "too slow" in told[0]
    go_on.set()
    one.stop()


def test_what_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    """A defect of ours: a value that is not known."""
    told: list[str] = []
    broken = replace(ONE, cluster=replace(ONE.cluster, pauses=(object(),)))  # type: ignore[arg-type]
    recorded(tmp_path, broken, told=told)
    assert "is not recorded" in told[0]


def test_the_decision_that_held_at_a_time(tmp_path: Path) -> None:
    """The last one that was made by then, in whichever file."""
    recorded(tmp_path, at(10), at(20))
    recorded(tmp_path, at(30))
    held = {second: decision_at(tmp_path, later(seconds=second)) for second in (5, 10, 29, 31)}
    assert {second: one and (one.cluster.seen_at - NOW).seconds for second, one in held.items()} == {
        5: None,
        10: 10,
        29: 20,
        31: 30,
    }


def test_where_there_is_no_record_that_is_said(tmp_path: Path) -> None:
    """With what to name."""
    with pytest.raises(BadInput, match="there is no record: name the folder"):
        list(read_record(tmp_path))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("14:02", datetime(2026, 11, 21, 14, 2, tzinfo=UTC)),
        ("15:30:31", datetime(2026, 11, 20, 15, 30, 31, tzinfo=UTC)),
        ("2026-11-23T14:02", datetime(2026, 11, 23, 14, 2, tzinfo=UTC)),
        ("2026-11-23T14:02+01:00", datetime(2026, 11, 23, 13, 2, tzinfo=UTC)),
    ],
)
def test_a_time_is_written_as_people_do(text: str, expected: datetime) -> None:
    """A time of day that has not come yet is yesterday's."""
    assert moment(text, NOW + timedelta(hours=6)) == expected


def test_a_time_on_the_command_line_is_utc_wherever_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the log tells it, so that a line's time can be asked for."""
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        assert _moment("2026-11-23T14:02") == datetime(2026, 11, 23, 14, 2, tzinfo=UTC)
    time.tzset()


@pytest.mark.parametrize("text", ["noon", "25:00", "2026-13-01", ""])
def test_what_is_no_time_is_refused(text: str) -> None:
    """With one that is."""
    with pytest.raises(ValueError, match="write one such as 14:02"):
        moment(text, NOW)
