"""One look: everything that the roles ask of a machine, in one command.

pyinfra asks fact by fact: about two round trips for each operation, 2,200 for 40 machines with 25. Here a connector
stands between it and the machine. While a plan is made it answers from what is known and writes down what is not;
what was written down is then asked in one script, once for all, and the plan is made anew until nothing new is asked.
Nothing is ever written on a machine that way. When operations run, the same connector lets them through, each under a
time limit at the machine's end, so that a connection that breaks leaves no orphan behind.
"""

from __future__ import annotations

import contextlib
import itertools
import secrets
import shlex
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyinfra.api.command import QuoteString, StringCommand
from pyinfra.api.exceptions import OperationError, PyinfraError
from pyinfra.connectors.base import BaseConnector
from pyinfra.connectors.util import CommandOutput, OutputLine, make_unix_command

from roles.facts.batched import About, Kind, Plain
from roles.facts.pyinfra_files import asked_together

Answer = tuple[bool, tuple[str, ...]]
"""Whether the command succeeded, and its lines."""

LOOK_SECONDS: Final = 60
"""How long a look may last on the machine; a fact that hangs is named in the error."""
ALONE_SECONDS: Final = 5
"""How long each question may last when they are asked one by one, because the look hung."""
_MOST_HUNG: Final = 5
"""So many may hang before the machine is given up."""
_HUNG: Final = "spillway: this question hung"
COMMAND_SECONDS: Final = 900
"""How long one command of an operation may last on the machine, unless its ``_timeout`` says otherwise."""
PATH: Final = "/usr/sbin:/usr/bin:/sbin:/bin"
"""Where root finds programs on a machine, whatever its login says: packages put theirs nowhere else."""
_ENVIRONMENT: Final = ("/usr/bin/env", "-u", "POSIXLY_CORRECT", f"PATH={PATH}")
"""Beside PATH, what would have programs read their options in another way: systemctl for one."""
_TO_THE_END: Final = ("sh", "-c", QuoteString('"$@"; status=$?; /usr/bin/cat >/dev/null; exit $status'), "sh")
"""Reads what a command leaves of its input. Where a command fails before it has read that, writing the rest would raise
an error of the connection, and the output of the command be lost."""
GRACE: Final = 15
"""Seconds that the controller waits beyond the machine's own limit."""
CUT_AFTER_MS: Final = 20_000
"""Milliseconds without an acknowledgement after which the kernel gives a connection up."""

RunAs = tuple[tuple[str, Any], ...]
_RUN_AS: Final = ("_chdir", "_doas", "_dzdo", "_env", "_shell_executable", "_su_user", "_sudo", "_sudo_user")
_PLAIN: Final = {"_shell_executable": "sh"}


class Hung(PyinfraError):  # noqa: N818 - reads as what it is at the raise site
    """A machine did not finish its look in time: the message says at which fact."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One command of a fact, and as whom it is to run."""

    command: StringCommand
    run_as: RunAs
    key: str = field(init=False)
    """What makes two asks the same."""

    def __post_init__(self) -> None:
        """Worked out once: it is looked up in every round."""
        object.__setattr__(self, "key", f"{self.command.get_raw_value()}\0{self.run_as!r}")

    @property
    def is_root(self) -> bool:
        """Through sudo to root: these share one sudo."""
        return ("_sudo", True) in self.run_as and "_sudo_user" not in dict(self.run_as)

    def shell(self) -> str:
        """The command as a script of the machine's user, or of root where all of the script runs under sudo."""
        run_as = {key: value for key, value in self.run_as if not (self.is_root and key == "_sudo")}
        return (
            str(make_unix_command(self.command, **run_as).get_raw_value()) if run_as else self.command.get_raw_value()
        )


@dataclass(slots=True)
class Seen:
    """What is known of one machine, and what a plan still asks."""

    answers: dict[str, Answer] = field(default_factory=dict)
    asked: dict[str, Ask] = field(default_factory=dict)
    hung: dict[str, str] = field(default_factory=dict)
    """What never answered, in words, by the key of the ask."""

    def unknown(self) -> list[Ask]:
        """What was asked and not answered yet."""
        return [ask for key, ask in self.asked.items() if key not in self.answers and key not in self.hung]

    def unreadable(self) -> list[str]:
        """The commands that failed on the machine, but for those of a user who may not exist yet."""
        failed = [ask for key, ask in self.asked.items() if key in self.answers and not self.answers[key][0]]
        return [str(ask.command) for ask in failed if not {"_sudo_user", "_su_user"} & dict(ask.run_as).keys()]


class Looking(BaseConnector):
    """Stands before a machine's own connector."""

    handles_execution = True

    def __init__(self, behind: BaseConnector) -> None:
        self.state, self.host, self.data = behind.state, behind.host, behind.data
        self.behind = behind
        self.seen = Seen()
        self.executed: list[tuple[str, bool, str]] = []
        """Every command let through: as written in a journal, whether it succeeded, the end of its output."""

    @staticmethod
    def make_names_data(name: str) -> Any:
        """Refuses: this is no connector that an inventory can name."""
        raise NotImplementedError(name)

    def connect(self) -> None:
        """Connect, without Nagle's delay of 40 ms on every command, and notice soon when the machine is cut off."""
        self.behind.connect()
        client = getattr(self.behind, "client", None)
        if client is not None:
            transport = client.get_transport()
            transport.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            transport.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, CUT_AFTER_MS)
            transport.sock.settimeout(1)  # how often its thread looks up, which is ten times a second by itself
            transport.set_keepalive(5)

    def disconnect(self) -> None:
        """Close the transport too: pyinfra leaves it open. Its thread is told, else it would look up a second later."""
        self.behind.disconnect()
        client = getattr(self.behind, "client", None)
        if client is None:
            return
        if (transport := client.get_transport()) is not None:
            with contextlib.suppress(OSError, AttributeError):  # cut off already; or a command in place of a socket
                transport.sock.shutdown(socket.SHUT_RDWR)
        client.close()

    def run_shell_command(
        self,
        command: StringCommand | str,
        print_output: bool = False,  # noqa: FBT001, FBT002, ARG002 - the signature is the connector's
        print_input: bool = False,  # noqa: FBT001, FBT002, ARG002 - as above
        **arguments: Any,
    ) -> tuple[bool, CommandOutput]:
        """While planning: the known answer, or an empty one and a note to ask. While executing: the command itself."""
        ask = self.ask(command, self.run_as(arguments))
        if not self.state.is_executing:
            return _output((True, self.answer(ask)))
        known = self.seen.answers.get(ask.key)
        if known and not self.executed:
            return _output(known)  # nothing has changed since the look
        return self._execute(StringCommand(command) if isinstance(command, str) else command, **arguments)

    @staticmethod
    def ask(command: StringCommand | str, run_as: RunAs) -> Ask:
        """A question; some facts say it plainly."""
        return Ask(asked_together(StringCommand(command) if isinstance(command, str) else command), run_as)

    @staticmethod
    def run_as(arguments: Mapping[str, Any]) -> RunAs:
        """Returns a connector's arguments that set the user and the folder of a command."""
        given = ((key, arguments[key]) for key in _RUN_AS if arguments.get(key))
        return tuple((key, value) for key, value in given if _PLAIN.get(key) != value)

    def answer(self, ask: Ask) -> tuple[str, ...]:
        """While planning: what is known, or nothing and a note to ask.

        Raises ``OperationError`` where the machine never answered it: that costs the step that asks, and no other.
        """
        self.seen.asked.setdefault(ask.key, ask)
        if hung := self.seen.hung.get(ask.key):
            raise OperationError(
                f"{hung} does not answer: the look waited {ALONE_SECONDS} s for it. See whether a mount is dead there"
                " (findmnt, dmesg), and unmount it (umount -l)"
            )
        known = self.seen.answers.get(ask.key)
        return known[1] if known and known[0] else ()

    def gather(self, asks: Iterable[Ask]) -> None:
        """Ask all of it: one command on the machine (two where some of it runs as root and some does not)."""
        asks = list(asks)
        for as_root in (True, False):
            mine = [ask for ask in asks if ask.is_root is as_root]
            try:
                self._gather(_parts(mine), as_root=as_root, seconds=LOOK_SECONDS)
            except Hung:
                left = [ask for ask in mine if ask.key not in self.seen.answers]
                self._gather(_alone(left), as_root=as_root, seconds=LOOK_SECONDS + _MOST_HUNG * ALONE_SECONDS)

    def put_file(self, filename_or_io: Any, remote_filename: str, *rest: Any, **arguments: Any) -> bool:
        """Operations of this project send files on standard input; the stock ones may."""
        self._must_be_executing(f"writing {remote_filename}")
        self.executed.append((f"put {remote_filename}", True, ""))
        return bool(self.behind.put_file(filename_or_io, remote_filename, *rest, **arguments))

    def get_file(self, remote_filename: str, filename_or_io: Any, *rest: Any, **arguments: Any) -> bool:
        """Fetches the file, as the connector behind does."""
        self._must_be_executing(f"fetching {remote_filename}")
        return bool(self.behind.get_file(remote_filename, filename_or_io, *rest, **arguments))

    def shell(self, script: str, *, seconds: int = COMMAND_SECONDS, sudo: bool = False) -> tuple[bool, str]:
        """Run a script outside of any operation, under the same limits and with the same record."""
        done, output = self._execute(StringCommand(script), _sudo=sudo, _timeout=seconds)
        return done, output.stdout

    def _execute(self, command: StringCommand, **arguments: Any) -> tuple[bool, CommandOutput]:
        limit = int(arguments.pop("_timeout", None) or COMMAND_SECONDS)
        bounded = StringCommand(
            *(_TO_THE_END if arguments.get("_stdin") else ()),
            *("/usr/bin/timeout", "-k", "10", str(limit), *_ENVIRONMENT, "sh", "-c", QuoteString(command)),
        )
        written = str(command)
        try:
            done, output = self.behind.run_shell_command(
                bounded, print_output=False, print_input=False, _timeout=limit + GRACE, **arguments
            )
        except (TimeoutError, OSError) as error:
            self.executed.append((written, False, f"the connection broke: {type(error).__name__}"))
            raise
        self.executed.append((written, done, "\n".join(output.output_lines[-20:])))
        return done, output

    def _gather(self, parts: list[Part], *, as_root: bool, seconds: int) -> None:
        if not parts:
            return
        mark = f"--{secrets.token_hex(8)}--"
        done, output = self.behind.run_shell_command(
            StringCommand("/usr/bin/timeout", "-k", "5", str(seconds), *_ENVIRONMENT, "sh", "-s"),
            _sudo=as_root,
            _shell_executable=None,  # type: ignore[arg-type]  # pyinfra takes it for none: a login has a shell already
            _stdin=[_script(mark, parts)],
            _timeout=seconds + GRACE,
            print_output=False,
            print_input=False,
        )
        text = "\n".join(output.stdout_lines)
        if f"{mark} " not in text:  # not even what comes before the first question
            said = " ".join((output.stderr_lines or output.stdout_lines)[-3:]) or "nothing"
            raise PyinfraError(
                f"it lets us in and runs no command, it says: {said}. See which shell the account has that logs in"
                " (getent passwd), and what that starts"
            )
        answered = _answers(text, mark)
        for number, (_, kind, members) in enumerate(parts):
            if number not in answered:
                continue
            if answered[number][1][-1:] == (_HUNG,):
                self.seen.hung |= {ask.key: _subject(ask) or f"`{str(ask.command)[:200]}`" for ask in members}
            else:
                self.seen.answers |= _distribute(kind, members, answered[number])
        missing = next((parts[number][0] for number in range(len(parts)) if number not in answered), None)
        if missing is not None:
            reason = "\n".join(output.stderr_lines[-3:]) or f"it ended {'well' if done else 'with an error'}"
            raise Hung(f"the look did not get past `{missing[:200]}` within {seconds} s: {reason}")

    def _must_be_executing(self, what: str) -> None:
        if not self.state.is_executing:
            raise PyinfraError(f"{what} while a plan is made: an operation must only read then")


Part = tuple[str, Kind | None, list[Ask]]


def _parts(asks: list[Ask]) -> list[Part]:
    """The scripts to run: one for all asks of a kind, one for each other ask.

    A process of its own keeps a script that does not parse, or that ends its shell, from harming the others. It costs
    as much as what most facts do, so what is known to be harmless runs without.
    """
    parts: list[Part] = []
    kinds: dict[tuple[str, Any], tuple[Kind, list[Ask]]] = {}
    for ask in asks:
        as_it_is = set(dict(ask.run_as)) <= {"_sudo"}
        if isinstance(ask.command, About) and as_it_is:
            kinds.setdefault((ask.command.kind.name, ask.run_as), (ask.command.kind, []))[1].append(ask)
        elif isinstance(ask.command, Plain) and as_it_is:
            parts.append((ask.shell(), None, [ask]))
        else:
            parts.append((f"( eval {shlex.quote(ask.shell())} )", None, [ask]))
    for kind, members in kinds.values():
        parts.append((kind.shell([_subject(ask) for ask in members]), kind, members))
    return parts


def _alone(asks: list[Ask]) -> list[Part]:
    """The same questions, each in a process of its own that ends: one that hangs is found, and the others answer."""
    parts = [part for ask in asks for part in _parts([ask])]
    ends = f"timeout -k 1 {ALONE_SECONDS} sh -c"
    told = f"case $s in 124|137) echo; echo {shlex.quote(_HUNG)} ;; esac; [ $s = 0 ]"
    return [(f"{ends} {shlex.quote(shell)}; s=$?; {told}", kind, members) for shell, kind, members in parts]


def _subject(ask: Ask) -> str:
    return ask.command.subject if isinstance(ask.command, About) else ""


def _script(mark: str, parts: Iterable[Part]) -> str:
    """Each part after a mark, which says how the part before it ended. A part reads nothing of the script."""
    end = f"printf '\\n{mark} %s\\n' $?"
    lines = [end, *(f"{shell}\n{end}" for shell, _, _ in parts)]
    return "\n".join(("{", *lines, "} </dev/null 2>/dev/null"))


def _answers(text: str, mark: str) -> dict[int, Answer]:
    """Returns the answers by the number of their part; one that was cut off is not there."""
    pieces = text.split(f"\n{mark} ")[1:]
    found: dict[int, Answer] = {}
    for number, (piece, after) in enumerate(itertools.pairwise(pieces)):
        body = piece.partition("\n")[2]
        lines = tuple(body.removesuffix("\n").split("\n")) if body else ()
        found[number] = (after.split("\n", 1)[0] == "0", lines)
    return found


def _distribute(kind: Kind | None, members: list[Ask], answer: Answer) -> dict[str, Answer]:
    if kind is None:
        return {members[0].key: answer}
    split = kind.split(list(answer[1]), [_subject(ask) for ask in members])
    return {ask.key: (True, tuple(split[_subject(ask)])) for ask in members}


def _output(answer: Answer) -> tuple[bool, CommandOutput]:
    return answer[0], CommandOutput([OutputLine("stdout", line) for line in answer[1]])
