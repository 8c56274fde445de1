"""The README's own example is an inventory that can be used."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from roles.inventory.hosts import read_machines
from tests import ROOT

README = (ROOT / "roles" / "README.md").read_text(encoding="utf-8")


def test_the_readme_opens_with_a_whole_machine(tmp_path: Path) -> None:
    """Every key that a machine's entry may have, in an inventory that is read without a word."""
    (block, *_) = re.findall(r"```yaml\n(.*?)```", README, flags=re.DOTALL)
    assert README.index(block) < README.index("\n## ")
    file = tmp_path / "inventory.yaml"
    file.write_text(block, encoding="utf-8")
    ((name, data),) = read_machines(file)
    (entry,) = yaml.safe_load(block)["machines"]
    assert (name, data["ssh_user"], data["settings"].gpu_count) == ("dgx-01", "ops", 8)
    assert {*entry} >= {"name", "address", "ssh", "cpus", "memory", "disk", "gpus", "rack", "owner", "labels", "taints"}
    assert {*entry["ssh"]} == {"user", "port", "key", "host_key"}


def test_what_is_nobodys_business_is_said() -> None:
    """So that nobody looks for it in a plan."""
    assert "## What is nobody's business" in README
