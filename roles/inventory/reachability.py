"""Whether machines can be reached at the addresses that an inventory gives them, and their pods beside them.

What one setting alone cannot tell: it needs the machine's own entry, or the other machines.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from typing import Any, Final

from autoscaler.config.hostnames import address_of, is_host, one_spelling, why_not_reached
from autoscaler.model.errors import BadInput
from roles.settings.addresses import host_of
from roles.settings.machine import MachineSettings
from roles.settings.source_lines import Written

_OF_A_BRIDGE: Final = 3
"""Addresses of a bridge's subnet that no pod gets: the subnet's own, the bridge's, the broadcast's."""
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def refuse_unreachable(machines: Iterable[MachineSettings], *, source: str, written: Written) -> None:
    """Raise ``BadInput`` with file, line, machine, key and value of the first that cannot be."""
    machines = list(machines)
    taken: dict[str, MachineSettings] = {}
    for machine in machines:
        spelled = one_spelling(machine.address)
        why = why_not_reached(machine.address)
        if why:
            why = f"{why}: write this machine's own, such as 10.20.0.11"
        elif spelled in taken:
            why = f"machine {taken[spelled].name} has it already: each must have its own"
        if why:
            line = written.line("address", machine=machine.name)
            raise BadInput(f"{source}{line}: machine {machine.name}: address = {machine.address!r}: {why}")
        taken[spelled] = machine
        _refuse_asking_itself(machine, source=source, written=written)
    _refuse_subnets(machines, source=source, written=written)


def refuse_nowhere(hosts: Iterable[str]) -> None:
    """The same of addresses as they are typed. Raises ``BadInput``."""
    taken: dict[str, str] = {}
    for host in hosts:
        spelled = one_spelling(host)
        if not is_host(host):
            raise BadInput(f"{host}: is no IP address and no DNS name, e.g. 10.20.0.11; a port is said by --port")
        if why := why_not_reached(host):
            raise BadInput(f"{host} {why}: write this machine's own, such as 10.20.0.11")
        if spelled in taken:
            raise BadInput(f"{host} is {taken[spelled]} once more: name each machine once")
        taken[spelled] = host


def _refuse_asking_itself(machine: MachineSettings, *, source: str, written: Written) -> None:
    for server in machine.time.servers:
        if one_spelling(server) == one_spelling(machine.address):
            line = written.line_of_setting("time", "servers", machine=machine.name)
            entry = f"{source}{line}: machine {machine.name}: settings: time.servers"
            raise BadInput(
                f"{entry}: {server} is this machine: leave it out, or write service: none where others ask it"
            )


def _refuse_subnets(machines: list[MachineSettings], *, source: str, written: Written) -> None:
    """Pods of two machines with one address reach each other at times, and at times themselves."""
    addresses = [(f"the address of machine {one.name}", _address(one.address)) for one in machines]
    bridged = [machine for machine in machines if machine.pod_network.kind == "bridge"]
    for number, machine in enumerate(bridged):
        pods = ipaddress.ip_network(machine.pod_network.pods)
        others = ((one.name, ipaddress.ip_network(one.pod_network.pods)) for one in bridged[:number])
        why = next(_why_no_subnet(machine, pods, others=others, addresses=addresses), "")
        if why:
            line = written.line_of_setting("pod_network", "pods", machine=machine.name)
            entry = f"{source}{line}: machine {machine.name}: settings: pod_network.pods"
            raise BadInput(f"{entry} = {machine.pod_network.pods!r}: {why}")


def _why_no_subnet(
    machine: MachineSettings,
    pods: Network,
    *,
    others: Iterable[tuple[str, Network]],
    addresses: Iterable[tuple[str, Any]],
) -> Iterator[str]:
    if (own := _address(machine.address)) and own in pods:
        yield f"the machine's own address {machine.address} lies in it: take another subnet"
    for name, subnet in others:
        if subnet.version == pods.version and subnet.overlaps(pods):
            yield f"machine {name} has {subnet}, and each needs a subnet of its own"
    kubelet = machine.kubelet
    beside = (
        [("kubelet.server", host_of(kubelet.server)), *(("kubelet.cluster_dns", one) for one in kubelet.cluster_dns)]
        if kubelet
        else []
    )
    for what, address in (*addresses, *((what, _address(text)) for what, text in beside)):
        if address and address in pods:
            yield f"{what}, {address}, lies in it, and pods could not reach that: take another subnet"
    room = pods.num_addresses - _OF_A_BRIDGE
    if kubelet and room < kubelet.max_pods:
        yield (
            f"has addresses for {room} pods, and kubelet.max_pods lets in {kubelet.max_pods}: take a larger subnet, or"
            f" write kubelet.max_pods: {room}"
        )


def _address(text: str) -> Any:
    """Returns the address; nothing for a DNS name."""
    try:
        return address_of(text)
    except ValueError:
        return None
