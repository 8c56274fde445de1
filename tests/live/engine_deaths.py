"""Engines that are killed at resources of many kinds, by what they say of themselves: where each death fell."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from stacks.local.process.reaper import leashed
from stacks.local.toolchain.pulumi_engine import EngineSettings, environment

_STEP: Final = re.compile(r"^\s*[-+~=]{0,2}\s*aws:(\S+) (\S+) (creat|updat|delet)(ing|ed)\b")
RECOVER: Final = (sys.executable, "-m", "spillway", "recover", "--stack", "local", "--yes")
"""As a user calls it, in a folder of a project."""
_NOTHING_COMES_LATER: Final = "2s"
"""The stand-in for AWS answers in milliseconds; what AWS has at work for longer is a matter of a test of its own."""
_APART: Final = 12
"""Steps between two deaths at least, so that each run goes on a while."""
_LATER: Final = (0.0, 0.02, 0.06, 0.15)
"""Seconds after a step has begun: before AWS is asked, while it answers, and when the answer is written down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """Where an engine was killed."""

    verb: str
    steps: int
    """That it had begun by then."""
    at: str
    """Kind of the resource that it had just begun with."""
    in_flight: frozenset[str]
    """Kinds of those that it had begun with, and not told the end of."""

    def __str__(self) -> str:
        """As a line of the record."""
        others = sorted(self.in_flight - {self.at})
        return f"{self.verb}: at step {self.steps}, {self.at}" + (f", beside {', '.join(others)}" if others else "")


@dataclass(slots=True)
class _Seen:
    steps: int = 0
    in_flight: dict[str, str] = field(default_factory=dict)
    """Kinds by the names of their resources."""

    def note(self, line: str) -> str | None:
        """The kind of a resource that the engine has begun with; ``None`` where the line says something else."""
        found = _STEP.match(line)
        if not found:
            return None
        kind, name, _, ending = found.groups()
        if ending == "ed":
            self.in_flight.pop(f"{kind} {name}", None)
            return None
        self.steps += 1
        self.in_flight[f"{kind} {name}"] = kind
        return kind


QUIET: Final = ("--non-interactive", "--color", "never")


def started(settings: EngineSettings, verb: str, *, output: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
    """The engine at work on the stack, on a leash as of `stacks.local.toolchain.pulumi_engine`."""
    return subprocess.Popen(
        leashed([str(settings.tools["pulumi"]), verb, "--stack", "local", "--yes", "--skip-preview", *QUIET]),
        cwd=settings.directory / "project",
        env=environment(settings),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def kill(leash: subprocess.Popen[str]) -> bool:
    """The engine itself, not the leash that holds it, which ends what it had started; whether it was still there."""
    children = Path(f"/proc/{leash.pid}/task/{leash.pid}/children").read_text(encoding="utf-8").split()
    if children:
        os.kill(int(children[0]), signal.SIGKILL)
    return bool(children)


def kill_at_a_new_kind(settings: EngineSettings, verb: str, *, known: Collection[str], deaths: int) -> Death | None:
    """Start the engine and kill it at the first resource of a kind that is not ``known``.

    ``deaths`` there were before. ``None`` where it came to its end.
    """
    seen, death = _Seen(), None
    with started(settings, verb, output=subprocess.PIPE) as leash:
        said = []
        for line in leash.stdout or ():
            said.append(line)
            kind = seen.note(line)
            if death is None and kind and kind not in known and seen.steps >= _APART:
                time.sleep(_LATER[deaths % len(_LATER)])
                if kill(leash):
                    death = Death(verb=verb, steps=seen.steps, at=kind, in_flight=frozenset(seen.in_flight.values()))
    assert death or leash.returncode == 0, "".join(said)
    return death


def run(settings: EngineSettings, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`pulumi` as a user calls it."""
    return _in_project(settings, str(settings.tools["pulumi"]), *arguments, *QUIET)


def recover(settings: EngineSettings) -> str:
    """`spillway recover` as a user calls it; what it said."""
    done = _in_project(settings, *RECOVER, "--wait", _NOTHING_COMES_LATER)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _in_project(settings: EngineSettings, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=settings.directory / "project",
        env=environment(settings),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def pending(settings: EngineSettings) -> list[str]:
    """What the state holds as creations that were begun; what was being deleted the engine deletes again by itself."""
    state = json.loads(run(settings, "stack", "export", "--stack", "local").stdout)["deployment"]
    begun = state.get("pending_operations") or ()
    return [one["resource"]["urn"] for one in begun if one["type"] == "creating"]
