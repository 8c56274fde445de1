"""Jobs of ``jobs-killed`` as compose files: Docker Compose, and Podman on one machine as its engine."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, Self

from stacks.local.toolchain.tools import ensure_tools
from tests.bench.jobs_killed_places import BACK, LAUNCHERS, Strikes, typed
from tests.live.bucket import Bucket
from tests.live.machines import Bench, Host
from tests.live.python_image import spillway_image
from tests.training.podman import compose, podman_system

IMAGE: Final = "lab.local/python:1"
_RESTARTS: Final = 4
"""Of the job's file."""


def compose_program() -> Path:
    """Docker Compose, built where it is missing."""
    return ensure_tools(["docker-compose"], progress=lambda line: print(line, file=sys.stderr))["docker-compose"]


@dataclass
class Compose:
    """One engine, whose owner brings the file up again where the machine has lost its power."""

    bench: Bench
    host: Host
    program: Path
    home: Path
    bucket: Bucket | None = None
    python: str = "python3"
    seconds: tuple[float, ...] = (1.0, 8.0)
    told: Mapping[str, str] = field(default_factory=dict)
    cuts = LAUNCHERS | {BACK}
    more: str = field(init=False)
    _file: Path = field(init=False)

    def __post_init__(self) -> None:
        """Tasks see the folder as it is."""
        self.more = f"image: {IMAGE}, volumes: [{{mount: {self.home}, host: {self.home}}}]"
        self._file = self.home / "compose.yaml"

    @classmethod
    def on(cls, bench: Bench, *, home: Path, program: Path) -> Self:
        """A machine that has the image."""
        spillway_image(home / "python.tar", IMAGE)
        (host,) = bench.machines("engine", system=podman_system())
        host.run(f"podman load --quiet --input {home}/python.tar", timeout=300)
        return cls(bench=bench, host=host, program=program, home=home)

    def submit(self, file: Path) -> None:
        """Rendered, and brought up."""
        self._file.write_text(typed("render", str(file), "--to", "compose"))
        self._compose("up", "--detach", "--no-color")

    def outcome(self, name: str) -> str:
        """``running`` while any container runs or is started again; there are so many more starts as the file says."""
        states = self._containers(name)
        if any(one["State"]["Status"] != "exited" or _is_started_again(one) for one in states):
            return "running"
        return "done" if all(one["State"]["ExitCode"] == 0 for one in states) else "failed"

    def strikes(self, name: str) -> Strikes:
        """At the engine, and its machine."""
        return {
            "the engine": [partial(self._end_engine)],
            BACK: [partial(self._restart)] if self._containers(name) else [],
        }

    def held(self) -> list[str]:
        """Containers that have not ended."""
        return self.host.run("podman ps --format '{{.Names}} {{.Status}}'").stdout.splitlines()

    def forget(self, name: str) -> None:
        """Containers and their network go."""
        self._compose("down")
        assert not self.host.run("podman ps --all --quiet").stdout, name

    def _compose(self, *words: str) -> None:
        compose(self.host, self.program, self._file, *words)

    def _containers(self, name: str) -> list[dict[str, dict[str, object]]]:
        asked = f"podman ps --all --quiet --filter name=^{name}- | xargs -r podman inspect"
        found: list[dict[str, dict[str, object]]] = json.loads(self.host.run(asked, check=False).stdout or "[]")
        return found

    def _end_engine(self) -> None:
        """It is started again when it is asked for something."""
        if self.host.run("systemctl kill --kill-who=main --signal=KILL podman.service", check=False).returncode:
            raise ProcessLookupError

    def _restart(self) -> None:
        self.host = self.bench.restart(self.host)
        self._compose("up", "--detach", "--no-color")


def _is_started_again(container: Mapping[str, object]) -> bool:
    state, times = container["State"], container["RestartCount"]
    assert isinstance(state, dict)
    assert isinstance(times, int)
    return state["ExitCode"] != 0 and times < _RESTARTS
