"""Addresses at which nobody is reached, and what cannot stand beside them: told with line, machine, key and value."""

from __future__ import annotations

import ipaddress
import json
import re
from pathlib import Path
from typing import Any

import pytest

from autoscaler.config.hostnames import why_not_reached
from autoscaler.model.errors import BadInput
from roles.adopt import adopt, refuse_one_name
from roles.inventory.hosts import read_machines
from tests.test_roles.test_inventory.test_hosts import A100, JOINS, MACHINE, OUTPUTS, write

OTHER = {"name": "dgx-02", "address": "10.20.0.12", "cpus": 8, "memory": "64Gi"}
NOBODYS = str(ipaddress.IPv4Address(0))
BRIDGE = {"kind": "bridge", "pods": "10.244.7.0/24"}


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.0.1.1", "::1", "::ffff:127.0.0.1", "localhost", "Localhost.", "dgx.localhost"),
        *(NOBODYS, "0.0.0.11", "::", "224.0.0.5", "ff02::1", "169.254.3.4", "fe80::1", "fe80::1%eth0"),
        *("255.255.255.255", "240.0.0.1", "::ffff:0.0.0.0"),
    ],
)
def test_no_machine_is_reached_where_nobody_is(tmp_path: Path, address: str) -> None:
    """Each machine's loopback, nobody's address, many machines' address."""
    with pytest.raises(BadInput) as refused:
        read_machines(write(tmp_path, MACHINE | {"address": address}))
    assert re.match(rf"\S*inventory\.yaml:\d+: .*dgx-01.*address = '{re.escape(address)}': ", str(refused.value))
    assert "such as 10.20.0.11" in str(refused.value)


@pytest.mark.parametrize("address", ["10.20.0.11", "192.0.2.1", "fd00::11", "2001:db8::1", "dgx-01.lab", "8.8.8.8"])
def test_a_machine_is_reached_at_any_other_address(address: str) -> None:
    """Also those of documentation and of private networks."""
    assert why_not_reached(address) == ""


def test_two_machines_have_two_addresses(tmp_path: Path) -> None:
    """However they are written, and whether the file tells of a machine or the stack."""
    with pytest.raises(BadInput, match=r"\[0\] \(dgx-01\) and \[1\] \(dgx-02\) have the address '10\.20\.0\.11'"):
        read_machines(write(tmp_path, MACHINE, OTHER | {"address": "::ffff:10.20.0.11"}))
    file = tmp_path / "outputs.json"
    file.write_text(json.dumps(OUTPUTS | {"machines": [{"name": "dgx-09", "address": "10.20.0.11"}]}), "utf-8")
    with pytest.raises(BadInput, match=r"dgx-09: address = '10\.20\.0\.11': machine dgx-01 has it already"):
        read_machines(write(tmp_path, MACHINE), outputs=file)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"kubelet": JOINS | {"server": "https://0.0.0.0:6443"}}, r"kubelet\.server = .*names 0\.0\.0\.0, which is no"),
        ({"kubelet": JOINS | {"server": "https://224.0.0.1:6443"}}, r"names 224\.0\.0\.1, which is multicast"),
        (
            {"kubelet": JOINS | {"server": "https://255.255.255.255"}},
            r"names 255\.255\.255\.255, which is no machine's",
        ),
        ({"kubelet": JOINS | {"server": "https://[fe80::1]:6443"}}, r"names fe80::1, which is link-local"),
        ({"kubelet": JOINS | {"server": "https://[::]:6443"}}, r"names ::, which is no machine's"),
        ({"kubelet": JOINS | {"server": "https://[1:2]:6443"}}, r"must be https://HOST:PORT"),
        ({"kubelet": JOINS | {"server": "https://10.20.0.300:6443"}}, r"'https://10\.20\.0\.300:6443': must be https:"),
        ({"kubelet": JOINS | {"server": "https://api..lab:6443"}}, r"must be https://HOST:PORT"),
        ({"kubelet": JOINS | {"server": "https://api.lab:٦٤"}}, r"must be https://HOST:PORT"),
        ({"kubelet": JOINS | {"cluster_dns": ["127.0.0.1"]}}, r"cluster_dns: holds '127\.0\.0\.1', which is the loop"),
        ({"kubelet": JOINS | {"cluster_dns": ["::1"]}}, r"cluster_dns: holds '::1', which is the loopback"),
        ({"kubelet": JOINS | {"cluster_dns": [NOBODYS]}}, r"cluster_dns: holds '0\.0\.0\.0', which is no"),
        ({"kubelet": JOINS | {"cluster_dns": ["224.0.0.1"]}}, r"which is multicast.*e\.g\. \[10\.96\.0\.10\]"),
        ({"kubelet": JOINS | {"cluster_dns": ["10.96.0.10"] * 2}}, r"cluster_dns: has 10\.96\.0\.10 twice"),
        (
            {"kubelet": JOINS | {"cluster_dns": [f"10.96.0.1{n}" for n in range(4)]}},
            r"has 4 addresses: a pod asks the first 3",
        ),
        ({"time": {"servers": ["ntp.lab", NOBODYS]}}, r"time\.servers: holds '0\.0\.0\.0', which is no machine's"),
        ({"time": {"servers": ["127.0.0.1"]}}, r"time\.servers: holds '127\.0\.0\.1', which is the loopback"),
        ({"time": {"servers": ["10.20.0.11"]}}, r"time\.servers.*10\.20\.0\.11 is this machine: leave it out"),
        ({"logs": {"ship_to": "0.0.0.0:6514"}}, r"ship_to = '0\.0\.0\.0:6514': names 0\.0\.0\.0, which is no"),
        ({"logs": {"ship_to": "logs.lab:٦٥"}}, r"logs\.ship_to = .*must be HOST:PORT"),
        ({"pod_network": BRIDGE | {"pods": "127.0.0.0/8"}}, r"pods = '127\.0\.0\.0/8' is the loopback"),
        ({"pod_network": BRIDGE | {"pods": "224.0.0.0/8"}}, r"pods = '224\.0\.0\.0/8' is multicast"),
        ({"pod_network": BRIDGE | {"pods": "169.254.0.0/16"}}, r"pods = '169\.254\.0\.0/16' is link-local"),
        (
            {"pod_network": BRIDGE, "kubelet": JOINS | {"server": "https://10.244.7.9:6443"}},
            r"pods = '10\.244\.7\.0/24': kubelet\.server, 10\.244\.7\.9, lies in it",
        ),
        (
            {"pod_network": BRIDGE, "kubelet": JOINS | {"cluster_dns": ["10.244.7.10"]}},
            r"kubelet\.cluster_dns, 10\.244\.7\.10, lies in it, and pods could not reach that",
        ),
        ({"pod_network": BRIDGE | {"pods": "10.20.0.12/30"}}, r"must be this machine's own subnet|holds 4 addresses"),
        ({"pod_network": BRIDGE | {"pods": "10.244.7.0/26"}, "kubelet": JOINS}, r"for 61 pods, and kubelet\.max_pods"),
    ],
)
def test_what_can_never_be_reached_is_no_server(tmp_path: Path, settings: dict[str, Any], told: str) -> None:
    """Of the cluster, of names, of time, of logs; nor have pods addresses that others have."""
    file = write(tmp_path, MACHINE, **settings)
    with pytest.raises(BadInput, match=told) as refused:
        read_machines(file)
    assert re.match(rf"{re.escape(str(file))}:\d+: machine dgx-01: settings: ", str(refused.value))


def test_a_load_balancer_and_a_dns_cache_of_the_machines_own_are_taken(tmp_path: Path) -> None:
    """Both are common: by the loopback, and by an address that means nothing beyond the machine."""
    own = JOINS | {"server": "https://127.0.0.1:6443", "cluster_dns": ["169.254.20.10"]}
    read_machines(write(tmp_path, MACHINE, kubelet=own, logs={"ship_to": "127.0.0.1:6514"}))


def test_pods_have_no_address_of_another_machine(tmp_path: Path) -> None:
    """That machine could not be reached from the pods."""
    pods = {"settings": {"pod_network": BRIDGE | {"pods": "10.20.0.0/24"}}}
    file = write(tmp_path, MACHINE | pods | {"address": "10.30.0.1"}, OTHER)
    with pytest.raises(BadInput, match=r"dgx-01: .*pods = '10\.20\.0\.0/24': the address of machine dgx-02, 10\.20"):
        read_machines(file)


def test_a_machine_leaves_its_pods_something(tmp_path: Path) -> None:
    """What is reserved is less than what its entry says that it has."""
    for resource, amount, has in (("cpu", "8", "8"), ("memory", "64Gi", "64Gi"), ("ephemeral-storage", "1Ti", "500Gi")):
        file = write(tmp_path, MACHINE | {"gpus": A100}, kubelet=JOINS | {"reserved": {resource: amount}})
        told = rf"yaml:\d+: machine dgx-01: settings: kubelet\.reserved: keeps {amount} of {resource} back.*{has}"
        with pytest.raises(BadInput, match=told):
            read_machines(file)
    with pytest.raises(BadInput, match=r"kubelet\.reserved: keeps -1Gi of memory back: must not be less than nothing"):
        read_machines(write(tmp_path, MACHINE, kubelet=JOINS | {"reserved": {"memory": "-1Gi"}}))


@pytest.mark.parametrize(
    ("hosts", "told"),
    [
        (("127.0.0.1",), r"127\.0\.0\.1 is the loopback.*write this machine's own"),
        (("10.20.0.11", NOBODYS), r"0\.0\.0\.0 is no machine's"),
        (
            ("10.20.0.11", "::ffff:10.20.0.11"),
            r"::ffff:10\.20\.0\.11 is 10\.20\.0\.11 once more: name each machine once",
        ),
        (("10.20.0.300",), r"10\.20\.0\.300: is no IP address and no DNS name"),
        (("10.20.0.11:22",), r"10\.20\.0\.11:22: is no IP address and no DNS name.*--port"),
    ],
)
def test_nobody_is_adopted_where_nobody_is(hosts: tuple[str, ...], told: str) -> None:
    """Told before anybody is asked, in words of what was typed."""
    with pytest.raises(BadInput, match=told):
        adopt(hosts=hosts, user="root", key=None, port=22, role="roles.node:prepare", output=None)


def test_machines_that_call_themselves_alike_are_not_adopted() -> None:
    """Installed from one image, or one machine by two addresses: an inventory could not tell them apart."""
    entries = [{"name": "debian", "address": f"10.20.0.1{number}"} for number in (1, 2)]
    with pytest.raises(BadInput, match=r"10\.20\.0\.12: calls itself debian, and so does 10\.20\.0\.11: give each"):
        refuse_one_name(entries)
    refuse_one_name([entries[0], entries[1] | {"name": "dgx-02"}])


def test_a_key_that_is_not_there_adopts_nobody(tmp_path: Path) -> None:
    """Told as what was typed, not as machines that are away."""
    with pytest.raises(BadInput, match=r"--key: .*/id: this controller has no such file"):
        adopt(hosts=("192.0.2.1",), user="root", key=tmp_path / "id", port=22, role="roles.node:prepare", output=None)
