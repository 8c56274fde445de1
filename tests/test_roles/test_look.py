"""One look: what is asked is gathered into one script, and each fact gets its own lines back."""

from __future__ import annotations

import subprocess
from pathlib import Path

from pyinfra.api.command import StringCommand

from roles.facts.files import FILES, FileState
from roles.facts.many import About
from roles.facts.services import UNITS, UnitState
from roles.look import Ask, _answers, _distribute, _parts, _section

MARK = "--mark--"


def look(asks: list[Ask]) -> dict[str, tuple[bool, tuple[str, ...]]]:
    """As a machine would answer."""
    parts = _parts(asks)
    script = "\n".join(_section(MARK, number, shell) for number, (shell, _, _) in enumerate(parts))
    said = subprocess.run(["sh", "-s"], input=script, capture_output=True, text=True, check=False).stdout
    answered = _answers(said.rstrip("\n"), MARK)
    found = {}
    for number, (_, kind, members) in enumerate(parts):
        found |= _distribute(kind, members, answered[number])
    return found


def ask(command: StringCommand | str) -> Ask:
    """As the machine's own user."""
    return Ask(command if isinstance(command, StringCommand) else StringCommand(command), ())


def test_each_fact_gets_its_own_lines() -> None:
    """Whatever it prints, however it ends, and even where it is no shell."""
    asks = [
        ask("echo a; echo b"),
        ask("printf 'no newline'"),
        ask("true"),
        ask("echo x; exit 3"),
        ask("if"),
        ask("cat"),
    ]
    answers = look(asks)
    assert [answers[one.key] for one in asks[:4]] == [
        (True, ("a", "b")),
        (True, ("no newline",)),
        (True, ()),
        (False, ("x",)),
    ]
    assert answers[asks[4].key][0] is False
    assert answers[asks[5].key] == (True, ())  # it reads nothing of the script


def test_many_files_are_asked_in_one_command(tmp_path: Path) -> None:
    """Each gets what is said of it, and one that is not there gets nothing."""
    paths = [tmp_path / name for name in ("a file", "b", "none")]
    paths[0].write_text("x", encoding="utf-8")
    paths[1].symlink_to(paths[0])
    asks = [ask(About(FILES, str(path))) for path in paths]
    assert len(_parts(asks)) == 1
    answers = look(asks)
    found = [FileState().process(list(answers[one.key][1])) for one in asks]
    assert found[0]
    assert found[0].is_file
    assert found[0].sha256.startswith("2d711642b726b044")  # printf x | sha256sum
    assert found[1]
    assert found[1].kind == "symbolic link"
    assert found[2] is None


def test_many_units_fall_apart_in_the_order_asked() -> None:
    """An empty line stands between two."""
    lines = ["LoadState=loaded", "ActiveState=active", "", "LoadState=not-found", "ActiveState=inactive"]
    split = UNITS.split(lines, ["ssh", "none"])
    assert UnitState().process(split["ssh"]).is_running
    assert UnitState().process(split["none"]).load == "not-found"


def test_a_look_that_was_cut_off_says_where() -> None:
    """What has no end mark was not answered."""
    text = f"\n{MARK} 0\na\n\n{MARK} end 0\n\n{MARK} 1\nhalf"
    assert list(_answers(text, MARK)) == [0]
