"""One look: what is asked is gathered into one script, and each fact gets its own lines back."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import shlex
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyinfra.api.command import StringCommand
from pyinfra.api.exceptions import OperationError, PyinfraError
from pyinfra.api.facts import FactBase
from pyinfra.connectors.util import CommandOutput, OutputLine
from pyinfra.facts.files import Directory, File, Link, Sha256File

from roles import facts
from roles.engine import batched_facts
from roles.engine.batched_facts import Ask, Hung, Looking, _answers, _distribute, _parts, _script
from roles.facts.apt_candidates import Sources
from roles.facts.batched import About, Plain
from roles.facts.files import FILES, FileState
from roles.facts.pyinfra_files import asked_together
from roles.facts.services import UNITS, UnitState

MARK = "--mark--"
_ATIME = re.compile(r"atime=\d+")
"""Following a link is an access."""


def look(asks: list[Ask]) -> dict[str, tuple[bool, tuple[str, ...]]]:
    """As a machine would answer."""
    parts = _parts(asks)
    said = subprocess.run(["sh", "-s"], input=_script(MARK, parts), capture_output=True, text=True, check=False).stdout
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


def test_what_is_roots_is_asked_under_one_sudo_and_what_is_anothers_is_not() -> None:
    """Two commands on the machine at most; an account's question keeps its own sudo, within that of root's or not."""
    roots = Ask(StringCommand("true"), (("_sudo", True),))
    adas = Ask(StringCommand("true"), (("_sudo", True), ("_sudo_user", "ada")))
    own = Ask(StringCommand("true"), ())
    assert [one.is_root for one in (roots, adas, own)] == [True, False, False]
    assert (roots.shell(), own.shell()) == ("true", "true")
    assert "sudo" in adas.shell()
    assert "ada" in adas.shell()
    in_folder = Ask(StringCommand("true"), (("_chdir", "/srv"), ("_sudo", True)))
    assert "/srv" in in_folder.shell()
    assert "sudo" not in in_folder.shell()
    ran: list[bool] = []

    def run(command: StringCommand, *, _sudo: bool, _stdin: list[str], **_: Any) -> tuple[bool, CommandOutput]:
        ran.append(_sudo)
        marks = re.findall(r"--[0-9a-f]{16}--", _stdin[0])
        assert command.get_raw_value().startswith("/usr/bin/timeout -k 5 60")
        return True, CommandOutput([OutputLine("stdout", line) for mark in marks for line in ("", f"{mark} 0")])

    looking = Looking(SimpleNamespace(state=None, host=None, data=None, run_shell_command=run))  # type: ignore[arg-type]
    looking.gather([roots, in_folder, own])
    assert ran == [True, False]
    assert looking.seen.answers.keys() == {roots.key, in_folder.key, own.key}
    assert all(succeeded for succeeded, _ in looking.seen.answers.values())


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
    text = f"\n{MARK} 0\na\n\n{MARK} 0\nhalf"
    assert list(_answers(text, MARK)) == [0]


def test_an_account_whose_shell_runs_no_command_is_told_as_that() -> None:
    """It was told as a question that hung, with the beginning of the script."""
    said = CommandOutput([OutputLine("stdout", "This account is currently not available.")])
    behind = SimpleNamespace(state=None, host=None, data=None, run_shell_command=lambda *_, **__: (False, said))
    with pytest.raises(PyinfraError, match=r"runs no command, it says: This account .*getent passwd") as told:
        Looking(behind).gather([ask("true")])  # type: ignore[arg-type]  # a stand-in
    assert not isinstance(told.value, Hung)


def test_what_stock_facts_ask_about_paths_is_asked_together(tmp_path: Path) -> None:
    """In one process, with the same answers as one by one; what only looks like it is asked alone."""
    (tmp_path / "a|file").write_text("x", encoding="utf-8")
    (tmp_path / "folder").mkdir()
    (tmp_path / "it's a link").symlink_to("a|file")
    kinds = {"a|file": File, "folder": Directory, "it's a link": Link, "none": File}
    commands = {name: kind().command(str(tmp_path / name)) for name, kind in kinds.items()}
    asks = {name: ask(asked_together(command)) for name, command in commands.items()}
    assert len(_parts([*asks.values()])) == 1
    answers = look([*asks.values()])
    for name, command in commands.items():
        alone = subprocess.run(["sh", "-c", command.get_raw_value()], capture_output=True, text=True, check=True).stdout
        together = list(answers[asks[name].key][1])
        assert [_ATIME.sub("", line) for line in together] == [_ATIME.sub("", line) for line in alone.splitlines()]
    assert Link().process(list(answers[asks["it's a link"].key][1]))["link_target"] == "a|file"
    for other in (StringCommand("! (test -e a || test -L b ) || true"), Sha256File().command("/etc/passwd")):
        assert asked_together(other) is other


def test_what_runs_without_a_process_of_its_own_harms_no_other(tmp_path: Path) -> None:
    """Every such fact parses by itself, and leaves the shell alive, where it was, and with its own options."""
    given: dict[str, Any] = {"packages": ("none",), "folder": str(tmp_path), "server": "https://127.0.0.1:1"}
    given["sources"] = Sources(exclusive=True)
    tried = 0
    for module in pkgutil.iter_modules(facts.__path__, "roles.facts."):
        for name, kind in vars(importlib.import_module(module.name)).items():
            if not (isinstance(kind, type) and issubclass(kind, FactBase) and kind.__module__ == module.name):
                continue
            asked_of = inspect.signature(kind().command).parameters
            command = kind().command(**{one: given.get(one, "none") for one in asked_of})
            if isinstance(command, Plain):
                shell = command.get_raw_value()
                subprocess.run(["sh", "-n"], input=shell, text=True, check=True)
                alive = f"{{\n{shell}\necho; pwd; echo $-\n}} </dev/null"
                done = subprocess.run(["sh"], input=alive, cwd=tmp_path, capture_output=True, text=True, check=True)
                assert done.stdout.splitlines()[-2:] == [str(tmp_path), "s"], name
                tried += 1
    assert tried > 20


class Machine:
    """Stands for a machine's own connector: runs what it is asked by a shell of this machine, without sudo."""

    def __init__(self, *, executing: bool = False) -> None:
        self.state = SimpleNamespace(is_executing=executing)
        self.host = self.data = None
        self.asked: list[tuple[list[str], dict[str, Any]]] = []
        self.breaks: type[OSError] | None = None
        self.answers_until = 10**6
        """Of the script's parts so many are run before the connection is cut."""

    def run_shell_command(self, command: StringCommand, **arguments: Any) -> tuple[bool, CommandOutput]:
        """By ``sh``."""
        self.asked.append((shlex.split(command.get_raw_value()), arguments))
        if self.breaks:
            raise self.breaks
        script = (arguments.get("_stdin") or [""])[0]
        mark = re.search(r"--[0-9a-f]{16}--", script)
        done = subprocess.run(
            ["sh", "-c", command.get_raw_value()], input=script, capture_output=True, text=True, check=False
        )
        lines = done.stdout.splitlines()
        if mark:
            ends = [number for number, line in enumerate(lines) if line.startswith(mark[0])]
            lines = lines[: ends[min(self.answers_until, len(ends) - 1)] + 1]
        said = [OutputLine("stdout", line) for line in lines]
        return done.returncode == 0, CommandOutput(said + [OutputLine("stderr", one) for one in done.stderr.split()])

    def put_file(self, *_: Any, **__: Any) -> bool:
        """Fine."""
        return True

    get_file = put_file


def test_a_question_that_hangs_costs_itself_and_the_others_are_asked_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The look ended at it: each that has no answer is asked alone, under a time of its own."""
    machine = Machine()
    machine.answers_until = 1
    looking = Looking(machine)  # type: ignore[arg-type]  # a stand-in
    asks = [ask("echo first"), ask("true"), ask("echo last"), ask("exit 4"), ask(About(FILES, "/proc/self/none"))]
    tried = machine.run_shell_command

    def cut_once(*words: Any, **arguments: Any) -> tuple[bool, CommandOutput]:
        came = tried(*words, **arguments)
        machine.answers_until = 10**6
        return came

    monkeypatch.setattr(machine, "run_shell_command", cut_once)
    looking.gather(asks)
    words = [line for line, _ in machine.asked]
    assert [line[3] for line in words] == [str(batched_facts.LOOK_SECONDS), "85"]
    assert looking.seen.answers[asks[0].key] == (True, ("first",))
    assert looking.seen.answers[asks[2].key] == (True, ("last",))
    assert looking.seen.answers[asks[3].key][0] is False
    assert looking.seen.hung == {}
    assert "echo first" not in machine.asked[1][1]["_stdin"][0], "what has answered is not asked again"


def test_of_what_hangs_the_plan_is_told_and_the_rest_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The step that asks it is refused, by the name of what does not answer; it is not asked again."""
    monkeypatch.setattr(batched_facts, "ALONE_SECONDS", 1)
    machine = Machine()
    looking = Looking(machine)  # type: ignore[arg-type]
    hangs, fine = ask("sleep 9"), ask("echo fine")
    parts = batched_facts._alone([hangs, fine])
    looking._gather(parts, as_root=False, seconds=30)
    assert looking.answer(fine) == ("fine",)
    with pytest.raises(OperationError, match=r"`sleep 9` does not answer: the look waited 1 s"):
        looking.answer(hangs)
    assert looking.seen.unknown() == []


def test_a_machine_that_is_cut_off_twice_is_given_up() -> None:
    """By the question at which it ended."""
    machine = Machine()
    machine.answers_until = 1
    with pytest.raises(Hung, match=r"did not get past .*echo c.* within 85 s: it ended well"):
        Looking(machine).gather([ask("echo a"), ask("echo b"), ask("echo c")])  # type: ignore[arg-type]


def test_what_could_not_be_read_is_told_but_not_of_an_account_that_may_not_be_there_yet() -> None:
    """The account is made by the very plan."""
    looking = Looking(Machine())  # type: ignore[arg-type]
    failed, adas, good = ask("false"), Ask(StringCommand("id"), (("_sudo_user", "ada"),)), ask("true")
    for one in (failed, adas, good):
        assert looking.answer(one) == ()
    assert looking.seen.unknown() == [failed, adas, good]
    looking.seen.answers |= {failed.key: (False, ("x",)), adas.key: (False, ()), good.key: (True, ("y",))}
    assert looking.seen.unreadable() == ["false"]
    assert [looking.answer(one) for one in (failed, good)] == [(), ("y",)]
    assert looking.seen.unknown() == []


def test_only_operations_that_run_touch_the_machine() -> None:
    """While a plan is made a command is a question, and a file is not written at all."""
    machine = Machine()
    looking = Looking(machine)  # type: ignore[arg-type]
    done, output = looking.run_shell_command("echo a", _sudo=False)
    assert (done, output.stdout_lines, machine.asked) == (True, [], [])
    for moves in (looking.put_file, looking.get_file):
        with pytest.raises(PyinfraError, match="while a plan is made"):
            moves("here", "there")
    assert looking.executed == []
    machine.state.is_executing = True
    looking.seen.answers[looking.ask("echo a", ()).key] = (True, ("as seen",))
    assert looking.run_shell_command("echo a")[1].stdout_lines == ["as seen"]
    assert looking.put_file("here", "there")
    assert looking.run_shell_command("echo a")[1].stdout_lines == ["a"], "something has changed since"
    assert [(what, fine) for what, fine, _ in looking.executed] == [("put there", True), ("echo a", True)]


def test_a_command_ends_on_the_machine_before_the_controller_gives_up() -> None:
    """By its own limit where it has one; what broke the connection is in the journal, with the end of what was said."""
    machine = Machine(executing=True)
    looking = Looking(machine)  # type: ignore[arg-type]
    assert looking.shell("seq 30; exit 2", seconds=7)[0] is False
    looking.run_shell_command("true")
    (short, with_limit), (ordinary, without) = machine.asked
    assert (short[:4], with_limit["_timeout"]) == (["/usr/bin/timeout", "-k", "10", "7"], 22)
    assert (ordinary[3], without["_timeout"]) == ("900", 915)
    assert looking.executed[0] == ("seq 30; exit 2", False, "\n".join(map(str, range(11, 31))))
    machine.breaks = ConnectionResetError
    with pytest.raises(ConnectionResetError):
        looking.run_shell_command("reboot")
    assert looking.executed[-1] == ("reboot", False, "the connection broke: ConnectionResetError")


def test_what_a_command_says_that_fails_before_it_has_read_its_input_is_not_lost() -> None:
    """A folder that may not be written is told as that, not as a connection that broke."""

    class Channel(Machine):
        """Closes with the command, as that of a connection does: more input is an error."""

        def run_shell_command(self, command: StringCommand, **arguments: Any) -> tuple[bool, CommandOutput]:
            with subprocess.Popen(
                ["sh", "-c", command.get_raw_value()], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            ) as process:
                assert process.stdin
                assert process.stderr
                for line in arguments["_stdin"]:
                    process.stdin.write(line)
                process.stdin.close()
                said = [OutputLine("stderr", line.strip()) for line in process.stderr]
            return process.returncode == 0, CommandOutput(said)

    looking = Looking(Channel(executing=True))  # type: ignore[arg-type]
    fails = StringCommand("echo no room >&2; exit 3", _stdin=["line\n"] * 2**16)
    done, output = looking.run_shell_command(fails, **fails.connector_arguments)
    assert (done, output.stderr_lines) == (False, ["no room"])
