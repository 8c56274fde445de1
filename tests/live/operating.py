"""`spillway nodes` as an operator calls it, for machines of a bench: each call is a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from tests import ROOT
from tests.live.machines import Host

_ROLLING: Final = ("apply", "reconcile")


class Operator:
    """Has an inventory of these machines, a folder for the state, and a role."""

    def __init__(
        self,
        hosts: Mapping[str, Host],
        folder: Path,
        *,
        role: str,
        rolling: Sequence[str] = ("--no-cluster", "--health-seconds", "0"),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """``rolling``: options of every command that changes machines."""
        self.hosts = dict(hosts)
        self.folder, self.inventory = folder, folder / "inventory.yaml"
        self._role, self._rolling = role, tuple(rolling)
        self.environment = dict(environment or {})
        self.write_inventory()

    def write_inventory(self, **addresses: str) -> None:
        """The machines with their host keys."""
        known = next(iter(self.hosts.values())).known_hosts
        keys = dict(line.split(" ", 1) for line in known.read_text(encoding="ascii").splitlines())
        machines = [
            {
                "name": name,
                "address": addresses.get(name, host.address),
                "ssh": {"key": str(host.key), "host_key": keys[host.address].strip()},
                "cpus": 2,
                "memory": "1Gi",
                "rack": "r1",
            }
            for name, host in self.hosts.items()
        ]
        self.inventory.write_text(yaml.safe_dump({"machines": machines}), encoding="utf-8")

    def start(self, command: str, *options: str) -> subprocess.Popen[str]:
        """A running command."""
        words = [sys.executable, "-m", "spillway", "nodes", command, "-i", str(self.inventory), "--role", self._role]
        words += ["--state", str(self.folder / "state"), *options]
        words += self._rolling if command in _ROLLING else ()
        pipe = subprocess.PIPE
        return subprocess.Popen(
            words,
            cwd=ROOT,
            env=os.environ | self.environment,
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            text=True,
        )

    def call(self, command: str, *options: str) -> tuple[int, str]:
        """Exit status, and all that it said."""
        process = self.start(command, *options)
        out, err = process.communicate(timeout=240)
        return process.returncode, out + err

    def record(self, command: str, *options: str) -> tuple[int, dict[str, Any]]:
        """Exit status, and the record of the run."""
        return ended(self.start(command, "--json", *options))


def ended(process: subprocess.Popen[str]) -> tuple[int, dict[str, Any]]:
    """The same of a command that was started with ``--json``."""
    out, err = process.communicate(timeout=240)
    assert out, err
    return process.returncode, json.loads(out)
