"""What `left_alone` may name: a name that no plan has is told before any machine is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autoscaler.model.errors import BadInput
from roles import commands
from roles.checks.exclusions import names, why_unknown
from tests.test_roles.test_inventory.test_hosts import MACHINE, write


def plan(file: Path, role: str = "roles.node:prepare") -> None:
    """As an operator asks for it."""
    given: dict[str, Any] = {"inventory": file, "outputs": None, "limit": "", "role": role}
    commands.plan(as_json=False, html=None, state=None, **given)


@pytest.mark.parametrize(
    ("name", "like"),
    [
        ("Kubelet | kubelets unit", '"Kubelet | kubelet\'s unit"'),
        ("kubelet's unit", '"Kubelet | kubelet\'s unit"'),
        ("Prepare a node | Kubelet | kubelet's unit", '"Kubelet | kubelet\'s unit"'),
        (
            "NVIDIA driver | driver installed and held",
            "'GPUs | GPU software | NVIDIA driver | driver installed and held'",
        ),
        ("Kubelet | kubelet runns", "'Kubelet | kubelet runs'"),
        ("Reboots | no reboot is owed", "'Reboot | no reboot is owed'"),
        ("Kubelet|kubelet runs", "'Kubelet | kubelet runs'"),
        ("kubelet", "as `spillway nodes plan` shows it, such as '"),
        ("", "as `spillway nodes plan` shows it, such as '"),
        ("*", "as `spillway nodes plan` shows it, such as '"),
    ],
)
def test_a_name_that_means_nothing_is_told_with_those_that_are_like_it(tmp_path: Path, name: str, like: str) -> None:
    """With file, line, machine and place in the list; of one that the fleet shares, once."""
    other = MACHINE | {"name": "dgx-02", "address": "10.20.0.12"}
    file = write(tmp_path, MACHINE, other, left_alone=["Reboot | no reboot is owed", name])
    with pytest.raises(BadInput) as refused:
        plan(file)
    (told,) = str(refused.value).splitlines()
    line = len(file.read_text(encoding="utf-8").splitlines())
    assert told.startswith(
        f"{file}:{line}: machine dgx-01: settings: left_alone[1] = {name!r}: is no resource of a plan"
    )
    assert like in told


@pytest.mark.parametrize(
    "name",
    [
        "Kubelet | kubelet's unit",
        "Kubelet | kubelet 1.35.4",
        "Name, clock, kernel and limits | host name dgx-01",
        "package sources | package sources | no packages from /etc/apt/sources.list.d/ppa.list",
        "GPUs | GPU software | persistence daemon | nvidia-persistenced runs",
        "Accounts and SSH keys | account ada",
    ],
)
def test_a_name_of_a_plan_means_something(name: str) -> None:
    """Also where a role fills a part of it in, and whether or not this machine has it."""
    assert why_unknown(name) == ""


def test_every_role_of_a_node_is_known() -> None:
    """One line at least of each, by the first words of its resources."""
    assert {name.partition(" | ")[0] for name in names()} == {
        *("package sources", "Name, clock, kernel and limits", "Accounts and SSH keys", "containerd and runc", "GPUs"),
        *("containerd can run pods with and without GPUs", "Pod network", "Logs", "Node health check", "Kubelet"),
        *("Interruption notices", "Tools of a control plane", "Reboot"),
    }


def test_what_instances_leave_alone_is_known_as_well(tmp_path: Path) -> None:
    """Told when their bundle is made: at boot nobody reads it."""
    file = write(tmp_path, MACHINE)
    file.write_text(file.read_text(encoding="utf-8") + "ec2_settings:\n  left_alone:\n  - reboot\n", encoding="utf-8")
    line = len(file.read_text(encoding="utf-8").splitlines())
    with pytest.raises(
        BadInput, match=rf"inventory\.yaml:{line}: ec2_settings over settings: left_alone\[0\] = 'reboot'"
    ):
        commands.bundle(file=tmp_path / "nodes.tar.gz", inventory=file)
