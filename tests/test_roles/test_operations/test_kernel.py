"""Files that others write too: what is theirs stays, byte for byte, and no line of theirs is taken for another."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from typing import Final

import pytest

from tests.test_roles.sandbox import Sandbox

HOSTS: Final = b"127.0.0.1 localhost\n# Caf\xe9\n192.0.2.7 mirror.lab\n"
FSTAB: Final = b"UUID=1 / ext4 defaults 0 1\n# Auslagerung f\xfcr sp\xe4ter\n/swap none swap sw 0 0\n"
NO_SWAPOFF: Final = "printf '#!/bin/sh\\n' > /usr/sbin/swapoff; chmod 755 /usr/sbin/swapoff; "


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """One for all tests here."""
    with Sandbox(tmp_path_factory.mktemp("sandbox")) as made:
        yield made


def octal(text: bytes) -> str:
    """For printf(1)."""
    return "".join(f"\\{byte:03o}" for byte in text)


def test_a_table_that_is_not_in_utf_8_keeps_the_lines_of_others(sandbox: Sandbox) -> None:
    """It was taken for an empty one: every host that a lab had written there was gone, and swap came back at boot."""
    plant = f"{NO_SWAPOFF}printf '{octal(HOSTS)}' > /etc/hosts; printf '{octal(FSTAB)}' > /etc/fstab"
    found = sandbox.run({"plant": plant, "tables": True, "watch": ["/etc/hosts", "/etc/fstab"]})
    named = HOSTS + f"192.0.2.1 {platform.node()}\n".encode()
    assert found["after"]["/etc/hosts"].endswith(repr(named))
    assert found["after"]["/etc/fstab"].endswith(repr(FSTAB.replace(b"/swap none swap sw 0 0\n", b"")))
    assert "<byte E9>" in "".join(found["diffs"])
    assert (found["again"], found["failed"], found["unknown"]) == ([], "", "")


def test_a_table_that_cannot_be_read_is_refused_and_stays(sandbox: Sandbox) -> None:
    """Larger than any such file."""
    plant = f"{NO_SWAPOFF}truncate -s 2M /etc/hosts; truncate -s 2M /etc/fstab"
    found = sandbox.run({"plant": plant, "tables": True, "watch": []})
    assert len(found["refused"]) == 2
    assert all("mend it by hand" in reason for reason in found["refused"].values())
    assert found["changes"] == []


def test_a_later_file_that_writes_an_interface_in_another_way_is_seen(sandbox: Sandbox) -> None:
    """A dot in an interface's name is a slash between dots. Of two such files both are named."""
    ours = "/etc/sysctl.d/99-zz-spillway.conf"
    plant = (
        f"mkdir -p /etc/sysctl.d /usr/local/lib/sysctl.d; echo 'net.ipv4.conf.eth0/100.rp_filter = 1' > {ours}"
        "; echo 'net/ipv4/conf/eth0.100/rp_filter=2' > /etc/sysctl.d/99-zzz.conf"
        "; echo 'net.ipv4.conf.eth0/100.rp_filter=0' > /usr/local/lib/sysctl.d/99-zzz-lab.conf"
        "; echo 'net.ipv4.conf.eth0.100.rp_filter=0' > /etc/sysctl.d/99-zzzz.conf"  # of the interface "100" of eth0
    )
    found = sandbox.run({"plant": plant, "sysctl": {"net.ipv4.conf.eth0/100.rp_filter": "1"}, "watch": []})
    (reason,) = found["refused"].values()
    assert "/etc/sysctl.d/99-zzz.conf sets net.ipv4.conf.eth0/100.rp_filter = 2" in reason
    assert "/usr/local/lib/sysctl.d/99-zzz-lab.conf sets" in reason
    assert "99-zzzz" not in reason


@pytest.mark.parametrize("folder", ["/etc", "/run", "/usr/local/lib"])
def test_a_unit_that_brings_swap_is_refused_by_name(sandbox: Sandbox, folder: str) -> None:
    """It was unseen, and the kubelet would not have started after the next boot. One that is masked brings none."""
    units = f"{folder}/systemd/system"
    clean = "rm -f /etc/systemd/system/*.swap /run/systemd/system/*.swap /usr/local/lib/systemd/system/*.swap"
    plant = f"{NO_SWAPOFF}{clean}; mkdir -p {units}; printf '[Swap]\\nWhat=/swap\\n' > {units}/swap.swap"
    found = sandbox.run({"plant": f"{plant}; : > /etc/hosts; : > /etc/fstab", "tables": True})
    (reason,) = found["refused"].values()
    assert reason.startswith(f"{units}/swap.swap brings swap at the next boot")
    masked = f"{clean}; mkdir -p {units}; ln -s /dev/null {units}/swap.swap"
    assert sandbox.run({"plant": masked, "tables": True})["refused"] == {}
