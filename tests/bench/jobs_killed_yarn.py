"""Jobs of ``jobs-killed`` as services of a real YARN in one process, whose containers are processes of this machine."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.bench.jobs_killed_places import Strikes, processes_below, typed
from tests.live.bucket import Bucket
from tests.training.yarn import GOES_ON, Yarn


@dataclass
class YarnServices:
    """Two nodes; either has room for the whole job."""

    yarn: Yarn
    bucket: Bucket | None = None
    python: str = "python3"
    seconds: tuple[float, ...] = (1.0, 8.0)
    more: str = "image: none"
    told: Mapping[str, str] = field(default_factory=dict)
    cuts: frozenset[str] = frozenset()
    """What keeps lines is in a session of its own, which node managers do not kill."""
    _application: str = ""

    def submit(self, file: Path) -> None:
        """Rendered, and by the framework's own client."""
        service = file.with_suffix(".json")
        service.write_text(typed("render", str(file), "--to", "yarn"))
        self._application = self.yarn.ask("submit", service)

    def outcome(self, name: str) -> str:
        """As the resource manager has it."""
        state, end, *_ = self.yarn.ask("application", self._application).split()
        return "running" if state in GOES_ON else end.lower()

    def strikes(self, name: str) -> Strikes:
        """At the service's master, and at a node manager, in whose place another one comes."""
        return {
            "service master": [partial(os.kill, pid, signal.SIGKILL) for pid in self._masters()],
            "node manager": [partial(self.yarn.ask, "replace", number) for number in (0, 1)],
        }

    def held(self) -> list[str]:
        """Nodes with containers."""
        return [one for one in self.yarn.ask("nodes", "used").split() if not one.endswith("=0")]

    def forget(self, name: str) -> None:
        """The framework keeps what it was told of a service."""
        self.yarn.ask("destroy", name)

    def _masters(self) -> list[int]:
        return processes_below(self.yarn.process.pid, _is_master)


def _is_master(command: list[str]) -> bool:
    return any("ServiceMaster" in word for word in command) and command[0].endswith("java")
