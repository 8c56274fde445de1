"""The journal by itself: each line holds the digest of the one before, and what was last said of a machine is found."""

from __future__ import annotations

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from autoscaler.model.errors import BadInput, Unavailable
from roles.rollout import journal as journal_module
from roles.rollout.journal import FIRST, Journal, why_broken


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """In a folder that is not there yet."""
    return Journal(tmp_path / "state/journal.jsonl")


def lines(journal: Journal) -> list[str]:
    """Of the file."""
    return journal.path.read_text("utf-8").splitlines()


def test_each_line_follows_the_one_before(journal: Journal) -> None:
    """The first follows none; each is told with its digest, and read as it was written."""
    digests = [journal.write("step", host="a", number=number) for number in range(3)]
    found = list(journal.entries())
    assert [entry["before"] for entry in found] == [FIRST, *digests[:2]]
    assert [entry["digest"] for entry in found] == digests
    assert [(entry["kind"], entry["host"], entry["number"]) for entry in found] == [("step", "a", n) for n in range(3)]
    assert why_broken(journal.path) == ""
    assert list(Journal(journal.path.with_name("none")).entries()) == []


def test_several_may_write_at_a_time(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that was cut off from its cluster may still be writing when the next begins: one line after the other."""
    found_end = journal_module._mend

    def slowly(file: Any) -> str:
        digest = found_end(file)
        time.sleep(0.001)  # others have their turn between the look at the end and the line
        return digest

    monkeypatch.setattr(journal_module, "_mend", slowly)
    with ThreadPoolExecutor(max_workers=4) as pool:
        digests = list(pool.map(lambda number: journal.write("step", number=number), range(80)))
    assert why_broken(journal.path) == ""
    assert {entry["digest"] for entry in journal.entries()} == set(digests)


def test_an_entry_is_on_disk_when_it_is_written(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it: what is done on a machine stands in the journal, whatever ends the controller then."""
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_size))
    for number in range(2):
        journal.write("step", number=number)
        assert synced.pop() == journal.path.stat().st_size
    assert synced == []


def test_where_the_chain_breaks_is_told_by_line(journal: Journal) -> None:
    """A line that is changed, left out, put in, or none at all."""
    for number in range(4):
        journal.write("step", number=number)
    whole = lines(journal)
    changed = json.dumps(json.loads(whole[1]) | {"number": 9}, sort_keys=True)
    for bad, why in (
        ([whole[0], changed, *whole[2:]], "line 2 was changed after it was written"),
        ([whole[0], *whole[2:]], "line 2 does not follow line 1: one was changed, left out or put in"),
        ([whole[0], whole[0], *whole[1:]], "line 2 does not follow line 1: one was changed, left out or put in"),
        (whole[1:], "line 1 does not follow line 0: one was changed, left out or put in"),
        ([*whole, "{}"], "line 5 is no entry of a journal"),
        ([*whole, "half"], "line 5 is no entry of a journal"),
        ([*whole, "[]"], "line 5 is no entry of a journal"),
    ):
        journal.path.write_text("".join(f"{line}\n" for line in bad), "utf-8")
        assert why_broken(journal.path) == f"{journal.path}: {why}"
    with pytest.raises(BadInput, match="there is no journal"):
        why_broken(journal.path.with_name("none"))


@pytest.mark.parametrize("half", ["", '{"kind": "st', "x"])
def test_half_a_line_that_a_crash_has_left_is_cut_off(journal: Journal, half: str) -> None:
    """And is no entry meanwhile; the chain goes on from the last whole line."""
    first = journal.write("step", number=1)
    with journal.path.open("a", encoding="utf-8") as file:
        file.write(half)
    assert [entry["digest"] for entry in journal.entries()] == [first]
    assert journal.last_outcomes() == {}
    second = journal.write("step", number=2)
    assert [entry["digest"] for entry in journal.entries()] == [first, second]
    assert why_broken(journal.path) == ""


def test_a_file_of_half_a_line_begins_anew(journal: Journal) -> None:
    """It follows none."""
    journal.path.parent.mkdir()
    journal.path.write_text("half", "utf-8")
    journal.path.chmod(0o600)
    journal.write("step")
    assert why_broken(journal.path) == ""


def test_where_nothing_can_be_written_nothing_is_done(journal: Journal) -> None:
    """A folder is in the way, or a last line that is no entry: the chain would go on from nothing."""
    journal.path.mkdir(parents=True)
    with pytest.raises(Unavailable, match=r"cannot be written \(.+\): nothing is done"):
        journal.write("step")
    journal.path.rmdir()
    for last in ("nothing", "{}", "[]"):
        journal.path.write_text(f"{last}\n", "utf-8")
        journal.path.chmod(0o600)
        with pytest.raises(Unavailable, match=r"\(its last line is no entry of a journal\): nothing is done"):
            journal.write("step")


@pytest.mark.parametrize("half", ["", "x" * 2**20])
def test_a_line_of_any_length_is_followed(journal: Journal, half: str) -> None:
    """Also one that is longer than what is read at first, and half of one behind it."""
    journal.write("step", number=1)
    journal.write("step", said="x" * 2**21)
    with journal.path.open("a", encoding="utf-8") as file:
        file.write(half)
    journal.write("step", number=2)
    assert [entry.get("number") for entry in journal.entries()] == [1, None, 2]
    assert why_broken(journal.path) == ""


def command(journal: Journal, host: str, words: str, said: str = "", *, succeeded: bool = True) -> None:
    """One that ran there."""
    journal.write("command", host=host, command=words, succeeded=succeeded, said=said)


def test_the_last_commands_that_failed_are_told_else_the_last_ones(journal: Journal) -> None:
    """Three at most, in a line each: the start of the command, and the end of what it said."""
    assert journal.last_commands("a") == []
    for number in range(4):
        command(journal, "a", f"do\n  {number}")
        command(journal, "b", "other")
    assert journal.last_commands("a") == ["do 1", "do 2", "do 3"]
    assert journal.last_commands("a", most=1) == ["do 3"]
    command(journal, "a", "x" * 200, "y " * 300 + "end", succeeded=False)
    command(journal, "a", "do 4", "fine")
    (told,) = journal.last_commands("a")
    assert told.startswith("x" * 160 + " failed: ")
    assert told.endswith("y y end")
    assert len(told) == 160 + len(" failed: ") + 160
    command(journal, "c", "do", "it  is\ndone")
    assert journal.last_commands("c") == ["do: it is done"]


def test_the_last_reason_and_the_last_outcomes_are_found(journal: Journal) -> None:
    """Of each machine; what is no entry is passed over, for the chain says that it is broken there."""
    assert (journal.last_reason("a"), journal.last_outcomes()) == ("", {})
    entries: list[tuple[str, dict[str, Any]]] = [
        ("failed", {"host": "d", "reason": "once"}),
        ("failed", {"host": "a", "reason": "first"}),
        ("finished", {"host": "a", "outcome": "failed:1"}),
        ("failed", {"host": "a", "reason": "second"}),
        ("failed", {"host": "b", "reason": "other"}),
        ("finished", {"host": "b"}),
        ("finished", {"outcome": "nobody's"}),
        ("finished", {"host": "a", "outcome": "done"}),
        ("step", {"host": "a"}),
    ]
    for kind, fields in entries:
        journal.write(kind, **fields)
    with journal.path.open("a", encoding="utf-8") as file:
        file.write('[]\nnothing\n{"host": "a"}\n')
    assert [journal.last_reason(host) for host in "abcd"] == ["second", "other", "", "once"]
    assert journal.last_outcomes() == {"a": "done", "b": ""}


def test_only_the_last_part_of_a_long_journal_is_looked_at(journal: Journal) -> None:
    """A line that begins before it is left out as a whole."""
    journal.write("failed", host="a", reason="long ago")
    journal.write("failed", host="b", reason="x" * 2**20)
    assert (journal.last_reason("a"), journal.last_reason("b")) == ("", "")
    journal.write("failed", host="c", reason="now")
    assert journal.last_reason("c") == "now"
    assert why_broken(journal.path) == ""
