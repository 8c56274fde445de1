"""containerd's configuration as containerd reads it, and the files that take part in it."""

from __future__ import annotations

import shlex
import tomllib
from typing import Any

from pyinfra.api.command import StringCommand
from pyinfra.api.facts import FactBase

from roles.facts.batched import Plain


class ContainerdDump(FactBase[dict[str, Any]]):
    """The main file and every file that it imports, merged by containerd; nothing where there is no containerd."""

    @staticmethod
    def default() -> dict[str, Any]:
        """Returns what a machine without containerd has."""
        return {}

    def command(self) -> StringCommand:
        """Reads files only, not the daemon."""
        return Plain("command -v containerd >/dev/null && containerd config dump 2>/dev/null || true")

    def process(self, output: list[str]) -> dict[str, Any]:
        """TOML. What does not parse, containerd would not read either."""
        try:
            return tomllib.loads("\n".join(output))
        except tomllib.TOMLDecodeError:
            return {}


class UnverifiedRegistries(FactBase[list[str]]):
    """Lines by which containerd takes images from a registry without verifying it: path and line."""

    @staticmethod
    def default() -> list[str]:
        """Returns the value for no output: none."""
        return []

    def command(self, folder: str) -> StringCommand:
        """One file for each registry, below a folder of its name."""
        pattern = "^[^#]*skip_verify[\"']?[[:space:]]*=[[:space:]]*true"
        return Plain(f"grep -D skip -sHE {shlex.quote(pattern)} {folder}/*/hosts.toml; true")

    def process(self, output: list[str]) -> list[str]:
        """Reads lines ``path:line``."""
        return [line for line in output if line]


class DropIns(FactBase[list[str]]):
    """Files beside the main configuration that containerd may import."""

    @staticmethod
    def default() -> list[str]:
        """Returns the value for no output: none."""
        return []

    def command(self) -> StringCommand:
        """Lists both of the folders that tools write into."""
        return Plain("ls -1 /etc/containerd/conf.d/*.toml /etc/containerd/config.d/*.toml 2>/dev/null || true")

    def process(self, output: list[str]) -> list[str]:
        """Reads one path per line."""
        return [line for line in output if line]
