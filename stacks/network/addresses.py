"""Which addresses are whose: zones, the subnets laid over them, and the networks that must not meet.

Two machines that have one address never hear of each other, and nothing says why; so all networks that a stack file
and an inventory name are compared before anything is made.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final, Literal

from autoscaler.config.policy import Policy
from autoscaler.model.errors import BadInput
from stacks.settings.control_plane import NODE_PODS, EksSettings, KubeadmSettings
from stacks.settings.inventory import Inventory
from stacks.settings.network import FEWEST_ZONES, MOST_ZONES
from stacks.settings.stack import Settings

_BLOCKS: Final = 16
_LETTERS: Final = 8
_TAKEN_BY_AWS: Final = 5
"""Addresses of every subnet: https://docs.aws.amazon.com/vpc/latest/userguide/subnet-sizing.html."""
Place = Literal["vpc", "on-prem", "pods", "services", "on-prem pods", "docker"]
_OURS_TO_CHOOSE: Final = ("network.cidr", "control_plane.pod_network", "control_plane.service_network")
"""Keys of networks that are not made yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """A network, where it is, and the words that say where it was written."""

    key: str
    network: ipaddress.IPv4Network
    place: Place

    def __str__(self) -> str:
        """Writes the range as the stack file has it."""
        whole = self.network.prefixlen < self.network.max_prefixlen
        return f"{self.key} = {self.network if whole else self.network.network_address}"


DOCKER: Final = Range(key="Docker's own bridge", network=ipaddress.IPv4Network("172.17.0.0/16"), place="docker")
"""AWS asks not to lay a VPC over it: https://docs.aws.amazon.com/eks/latest/userguide/network-reqs.html."""


def node_block(vpc: ipaddress.IPv4Network, zone: str) -> ipaddress.IPv4Network:
    """Addresses of a zone's nodes."""
    return _block(vpc, _place(zone))


def public_block(vpc: ipaddress.IPv4Network, zone: str) -> ipaddress.IPv4Network:
    """Addresses of a zone's public subnet."""
    return _block(_block(vpc, _BLOCKS - 1), _place(zone))


def check_zones(zones: Sequence[str], *, policy: Policy, source: str) -> None:
    """Whether a network can be laid over these zones for the policy's groups. Raises ``BadInput``."""
    if not FEWEST_ZONES <= len(zones) <= MOST_ZONES:
        raise BadInput(
            f"{source}: the groups are in {', '.join(zones) or 'no zone'}, and a VPC is laid over {FEWEST_ZONES} to "
            f"{MOST_ZONES} zones: name them all in spillway:network.zones of the stack file, or change groups[].zones"
        )
    for zone in zones:
        if not zone.startswith(policy.region):
            raise BadInput(
                f"spillway:network of the stack file names zone {zone}, and {source} is for the region "
                f"{policy.region}: take zones of that region, e.g. {policy.region}a"
            )
    for place, entry in enumerate(policy.groups):
        for zone in entry.zones:
            if zone not in zones:
                raise BadInput(
                    f"{source}: groups[{place}] ({entry.name}).zones names {zone}, where spillway:network of the "
                    f"stack file has no subnet (it has {', '.join(zones)}): add it there, or take it out here"
                )
    places: dict[int, str] = {}
    for zone in zones:
        twin = places.setdefault(_place(zone), zone)
        if twin != zone:
            raise BadInput(
                f"zones {twin} and {zone} end in the same letter, by which a zone gets its addresses: "
                "take one of them out of the policy"
            )


def check_networks(settings: Settings, inventory: Inventory, vpc: Iterable[Range] = ()) -> None:
    """That no two places have an address in common. Raises ``BadInput`` naming each pair, with both keys.

    ``vpc`` are the networks of a VPC that is there, which no file tells.
    """
    known = _known(settings, inventory, vpc)
    wrong = [
        f"{one} ({one.place}) and {other} ({other.place}) overlap: an address must be in one place only; "
        f"{_remedy(one, other, known)}"
        for one, other in combinations(known, 2)
        if one.place != other.place and one.network.overlaps(other.network) and not _is_told(one, other)
    ]
    if wrong:
        raise BadInput("\n".join(wrong))


def tell_docker(settings: Settings, inventory: Inventory, vpc: Iterable[Range] = ()) -> list[str]:
    """A line for each network that stands already and that a machine with Docker on it does not reach."""
    known = _known(settings, inventory, vpc)
    return [
        f"{one} ({one.place}) overlaps {DOCKER}: a machine on which Docker runs with its defaults reaches nothing "
        "there: set `bip` in its /etc/docker/daemon.json, or leave Docker off"
        for one in known
        if one.network.overlaps(DOCKER.network) and _is_told(one, DOCKER)
    ]


def tell_pods(settings: Settings, policy: Policy, inventory: Inventory) -> list[str]:
    """A line where a kubeadm cluster may have more nodes than its network of pods has parts for."""
    wanted = settings.control_plane
    if not isinstance(wanted, KubeadmSettings):
        return []
    parts = 2 ** (NODE_PODS - ipaddress.IPv4Network(wanted.pod_network).prefixlen)
    nodes = wanted.instances + sum(entry.max for entry in policy.groups) + len(inventory.machines)
    if nodes <= parts:
        return []
    told = (
        f"spillway:control_plane.pod_network = {wanted.pod_network!r} has {parts} parts of /{NODE_PODS}, one for a "
        f"node, and members, groups at their max and machines are {nodes}: the last ones get no addresses for pods, "
        "unless the pod network hands out its own, as Calico does; once the cluster is founded it cannot be made wider"
    )
    return [told]


def named_networks(settings: Settings) -> Iterator[Range]:
    """Every network that the stack file names."""
    network, control_plane = settings.network, settings.control_plane
    if not network.vpc:
        yield _range("network.cidr", network.cidr, "vpc")
    yield from _ranges("network.on_prem", network.on_prem, "on-prem")
    if not network.vpc:  # in a VPC that is there, others may be trusted
        yield from _ranges("network.trusted", network.trusted, "on-prem")
    if isinstance(control_plane, EksSettings):
        yield from _ranges("control_plane.remote_node_networks", control_plane.remote_node_networks, "on-prem")
        yield from _ranges("control_plane.remote_pod_networks", control_plane.remote_pod_networks, "on-prem pods")
    if isinstance(control_plane, KubeadmSettings):
        yield _range("control_plane.pod_network", control_plane.pod_network, "pods")
        yield _range("control_plane.service_network", control_plane.service_network, "services")


def machine_addresses(inventory: Inventory, *, source: str) -> Iterator[Range]:
    """Every on-prem machine that is named by an IPv4 address."""
    for place, machine in enumerate(inventory.machines):
        try:
            network = ipaddress.IPv4Network(machine.address)
        except ValueError:
            continue  # a name, or IPv6
        yield Range(key=f"{source}: machines[{place}] ({machine.name}).address", network=network, place="on-prem")


def check_room(policy: Policy, free: Mapping[str, int], *, source: str, where: str) -> None:
    """Whether each zone has an address for every node that the policy may buy there. Raises ``BadInput``.

    ``free`` are the addresses left in each zone's subnet, ``where`` the key that decides them.
    """
    for zone, addresses in free.items():
        wanted = sum(entry.max for entry in policy.groups if zone in entry.zones)
        if wanted > addresses:
            raise BadInput(
                f"{source}: groups[].max come to {wanted} nodes in {zone}, whose subnet has {addresses} addresses "
                f"free: lower them, or give the nodes a larger network ({where})"
            )


def room(vpc: ipaddress.IPv4Network, zones: Iterable[str]) -> dict[str, int]:
    """Addresses for nodes in each zone of a VPC that is yet to be made."""
    return {zone: node_block(vpc, zone).num_addresses - _TAKEN_BY_AWS for zone in zones}


def _known(settings: Settings, inventory: Inventory, vpc: Iterable[Range]) -> list[Range]:
    machines = machine_addresses(inventory, source=settings.inventory or "")
    return [*vpc, *named_networks(settings), *machines, DOCKER]


def _is_told(one: Range, other: Range) -> bool:
    """Whether only a warning is in place: Docker may run nowhere, and a network that stands cannot be chosen."""
    ours = (f"spillway:{key}" for key in _OURS_TO_CHOOSE)
    return other is DOCKER and one is not DOCKER and one.key not in ours


def _ranges(key: str, texts: Iterable[str], place: Place) -> Iterator[Range]:
    return (_range(f"{key}[{position}]", text, place) for position, text in enumerate(texts))


def _range(key: str, text: str, place: Place) -> Range:
    return Range(key=f"spillway:{key}", network=ipaddress.IPv4Network(text), place=place)


def _remedy(one: Range, other: Range, known: Collection[Range]) -> str:
    """A network of the same size that is free, for the first of the two that is not a single machine."""
    moved = next((each for each in (one, other) if each.network.prefixlen < each.network.max_prefixlen), one)
    prefix = max(moved.network.prefixlen, _BLOCKS)
    free = (
        network
        for block in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")
        for network in _parts(ipaddress.IPv4Network(block), prefix)
        if not any(network.overlaps(each.network) for each in known)
    )
    found = next(free, None)
    return f"{found} is free, for example" if found else f"none of /{prefix} is free: write smaller networks"


def _parts(block: ipaddress.IPv4Network, prefix: int) -> Iterator[ipaddress.IPv4Network]:
    return block.subnets(new_prefix=prefix) if prefix >= block.prefixlen else iter(())


def _block(network: ipaddress.IPv4Network, place: int) -> ipaddress.IPv4Network:
    return list(network.subnets(prefixlen_diff=4))[place]


def _place(zone: str) -> int:
    place = ord(zone[-1]) - ord("a")
    if not 0 <= place < _LETTERS:
        raise BadInput(f"zone {zone!r}: the name of a zone ends in a letter from a to h, e.g. us-east-1a")
    return place
