"""Addresses of network interfaces as EC2 gives them, and targets as a load balancer lets them go.

moto draws the address of an interface from the whole subnet: now and then one that another has, or that AWS keeps.
And it refuses to deregister a target that is not registered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from moto.ec2.models import EC2Backend
from moto.ec2.models.elastic_network_interfaces import NetworkInterfaceBackend
from moto.elbv2.models import FakeTargetGroup

_MAKE: Final[Any] = NetworkInterfaceBackend.create_network_interface
_DELETE: Final[Any] = NetworkInterfaceBackend.delete_network_interface


def create_interface(backend: EC2Backend, subnet: Any, address: Any = None, *rest: Any, **more: Any) -> Any:
    """An interface; without a wish for an address it has one of its subnet that nothing else has."""
    made = _MAKE(backend, subnet, address, *rest, **more)
    if not address and not any(rest[:1]):
        made.private_ip_address = made.subnet.get_available_subnet_ip(made)
        made.private_ip_addresses[0]["PrivateIpAddress"] = made.private_ip_address
    return made


def delete_interface(backend: EC2Backend, eni_id: str) -> None:
    """Delete it; its address is free again."""
    gone = backend.enis.get(eni_id)
    _DELETE(backend, eni_id)
    if gone:
        gone.subnet.del_subnet_ip(gone.private_ip_address)


def deregister(group: FakeTargetGroup, targets: Iterable[Mapping[str, Any]]) -> None:
    """Take targets out; of one that is not in the group the call says nothing."""
    for target in targets:
        found = group.targets.pop(target["Id"], None)
        if found:
            group.deregistered_targets[target["Id"]] = found
