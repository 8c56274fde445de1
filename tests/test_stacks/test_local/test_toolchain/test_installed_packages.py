"""What the language host is told of installed packages is what pip would tell it."""

from __future__ import annotations

import json
import subprocess
import sys

from stacks.local.toolchain.installed_packages import installed_packages


def test_it_is_what_pip_says() -> None:
    """Of each package that may bring a plugin: name, version, and the folder that its `pulumi-plugin.json` is in."""
    command = [sys.executable, "-m", "pip", "list", "-v", "--format", "json"]
    listed = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[0])
    wanted = {(one["name"], one["version"], one["location"]) for one in listed}
    found = {(one["name"], one["version"], one["location"].rstrip("/")) for one in installed_packages()}
    assert {one for one in found if "pulumi" in one[0]} == {one for one in wanted if "pulumi" in one[0]}
    assert {name for name, _, _ in found} == {name for name, _, _ in wanted}
