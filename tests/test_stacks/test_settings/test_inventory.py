"""The inventory of on-prem machines: what it accepts, what it becomes, how it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

import stacks.local
from autoscaler.model import labels
from autoscaler.model.errors import BadInput
from autoscaler.model.resources import Resources
from stacks.settings.inventory import read_inventory

LOCAL = Path(str(stacks.local.__path__[0])) / "inventory.yaml"


def test_the_shipped_inventory_has_four_machines_of_eight_gpus() -> None:
    """The ground of the demo."""
    machines = read_inventory(LOCAL).machines
    assert [machine.capacity()[labels.GPU] for machine in machines] == [8, 8, 8, 8]


def test_a_machine_becomes_amounts_and_labels() -> None:
    """In the units and words that all rooms share."""
    machine = read_inventory(LOCAL).machines[0]
    assert machine.capacity() == Resources.parse(
        {"cpu": 128, "memory": "1Ti", "ephemeral-storage": "4Ti", "pods": 110, "nvidia.com/gpu": 8}
    )
    node = machine.node_labels()
    assert node[labels.ORIGIN] == labels.ON_PREM
    assert node[labels.GPU_MEMORY] == str(40 * 1024)
    assert node[labels.RACK] == "r1"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("name: dgx-02", "name: dgx-01"), "[0] (dgx-01) and [1] (dgx-01) have the name 'dgx-01'"),
        (("10.20.0.12", "10.20.0.11"), "[0] (dgx-01) and [1] (dgx-02) have the address '10.20.0.11'"),
        (("10.20.0.11", "10.20.0.411"), "machines[0] (dgx-01).address = '10.20.0.411': is not an IP address"),
        (
            ("10.20.0.11", "lab one"),
            "machines[0] (dgx-01).address = 'lab one': is not an IP address",
        ),
        (("10.20.0.11", "-oProxyCommand=x"), "machines[0] (dgx-01).address = '-oProxyCommand=x': is not an IP address"),
        (("10.20.0.11", "10.20.0.11/24"), "machines[0] (dgx-01).address = '10.20.0.11/24': is not an IP address"),
        (("memory: 1Ti", "memory: -1Ti"), "machines[0] (dgx-01).memory = '-1Ti': must be more than nothing, e.g. 64Gi"),
        (("owner: vision", "ssh: {user: a b}"), "machines[0] (dgx-01).ssh.user = 'a b': should match pattern"),
        (("owner: vision", "? [a, b]\n    : c"), "this inventory file is not YAML: a key must be a word"),
        (("cpus: 128", f"cpus: {'9' * 5000}"), "this inventory file is not YAML: "),
        (("cpus: 128", "cpus: 0"), "machines[0] (dgx-01).cpus = 0: input should be greater than or equal to 1"),
        (("cpus: 128", "cpus: true"), "machines[0] (dgx-01).cpus = True: must be a whole number"),
        (("count: 8", "count: yes"), "machines[0] (dgx-01).gpus.count = True: must be a whole number"),
        (("10.20.0.11", "255.255.255.255"), "is no address by which others reach a machine"),
        (
            ("owner: vision", "labels: {nvidia.com/gpu.count: '4'}"),
            "which follows from gpus.count: leave it out",
        ),
        (("owner: vision", "labels: {kubernetes.io/hostname: x}"), "'kubernetes.io/hostname', which follows from name"),
        (
            ("owner: vision", "taints: [{key: spillway.dev/joining}]"),
            "which Spillway puts on and takes off",
        ),
        (("owner: vision", "taints: [{key: node.kubernetes.io/not-ready}]"), "which Kubernetes puts on and takes off"),
        (("cpus: 128", "cpus: \0"), "yaml:5: this inventory file has the character '\\x00', which YAML does not allow"),
        (("memory: 1Ti", "memory: '64'"), "machines[0] (dgx-01).memory = '64': is in bytes, and few: write its unit"),
        (("memory: 1Ti", "memory: 1Tib"), "memory = '1Tib': '1Tib' is not a quantity"),
        (("count: 8", "count: eight"), "machines[0] (dgx-01).gpus.count = 'eight'"),
        (("rack: r1", "rakc: r1"), "machines[0] (dgx-01).rakc is not a key here; did you mean rack?"),
        (
            ("NVIDIA-A100-SXM4-40GB", "NVIDIA A100"),
            "machines[0] (dgx-01).gpus.product = 'NVIDIA A100': becomes the value of a label",
        ),
        (("rack: r1", "rack: row 1"), "machines[0] (dgx-01).rack = 'row 1': becomes the value of a label: at most 63"),
        (
            ("owner: vision", "ssh: {host_key: ssh-ed25519 AAAA}"),
            "(dgx-01).ssh.host_key = 'ssh-ed25519 AAAA': is not a",
        ),
        (("owner: vision", "labels: {spillway.dev/origin: ec2}"), "labels under spillway.dev/ are Spillway's own"),
        (("owner: vision", "labels: {tier: a b}"), "sets tier to 'a b': at most 63 letters"),
        (("owner: vision", "labels: {a tier: x}"), "sets 'a tier', which is not the key of a label"),
        (("owner: vision", "taints: [{key: x}, {key: x}]"), "has x:NoSchedule twice"),
        (("owner: vision", "taints: [{key: x y}]"), "has x y=: key and value are spelled as those of a label"),
        (("owner: vision", "probe: telnet"), "machines[0] (dgx-01).probe = 'telnet'"),
        (("    address: 10.20.0.11\n", ""), "machines[0] (dgx-01).address is missing: its IP address or DNS name"),
    ],
)
def test_a_wrong_inventory_names_place_and_remedy(tmp_path: Path, change: tuple[str, str], told: str) -> None:
    """One mistake, one line."""
    text = LOCAL.read_text()
    assert change[0] in text
    path = tmp_path / "inventory.yaml"
    path.write_text(text.replace(*change, 1))
    with pytest.raises(BadInput) as refusal:
        read_inventory(path)
    assert told in str(refusal.value)


def test_a_host_key_is_taken_as_the_scanner_prints_it(tmp_path: Path) -> None:
    """Type and base64; whether the base64 is of that type is looked at."""
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGPKSUTyz1HwHReFVvD5obVsALAgJRNarH4TRpNePnAS"
    path = tmp_path / "inventory.yaml"
    path.write_text(LOCAL.read_text().replace("owner: vision", f"ssh: {{host_key: {key}}}", 1))
    assert read_inventory(path).machines[0].ssh.host_key == key
    path.write_text(path.read_text().replace("ssh-ed25519", "ssh-rsa"))
    with pytest.raises(BadInput, match="is not a public host key"):
        read_inventory(path)
