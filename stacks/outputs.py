"""What the programs in ``stacks/`` export: one frozen record, read by ``roles/`` and by whoever wires the autoscaler.

``pulumi stack output --json`` gives it as JSON with the keys of the fields in camelCase; :func:`parse_outputs` reads
that back. Imports no Pulumi.
"""

from __future__ import annotations

from typing import Any

import msgspec

from autoscaler.cluster import CapacityType
from autoscaler.failures import BadInput


class GroupOutput(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One Auto Scaling group: a policy entry in one zone."""

    name: str
    """Name of the Auto Scaling group."""
    entry: str
    """Name of the policy entry (``groups[].name``)."""
    zone: str
    instance_type: str
    capacity_type: CapacityType
    min: int
    max: int


class MachineOutput(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One on-prem machine of the inventory."""

    name: str
    address: str


class StackOutputs(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Everything that a stack tells the rest of the house."""

    cluster: str
    """Name of the cluster: the tag by which the autoscaler knows its groups."""
    region: str
    vpc_id: str
    subnets: dict[str, str]
    """Subnet of the nodes, by zone."""
    node_security_group_id: str
    groups: tuple[GroupOutput, ...] = ()
    machines: tuple[MachineOutput, ...] = ()


def parse_outputs(exported: object) -> StackOutputs:
    """From the JSON object of ``pulumi stack output --json``. Raises ``BadInput`` naming the output that is wrong."""
    try:
        return msgspec.convert(exported, StackOutputs)
    except msgspec.ValidationError as mistake:
        raise BadInput(f"the stack's outputs are not those of this project's programs: {mistake}") from None


def as_exports(outputs: StackOutputs) -> dict[str, Any]:
    """The outputs by exported name, in plain values."""
    exports: dict[str, Any] = msgspec.to_builtins(outputs)
    return exports
