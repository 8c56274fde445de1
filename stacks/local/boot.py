"""Turns running EC2 instances into nodes of the cluster, and takes the nodes away when the instances end.

On a real cloud the instance boots, its kubelet registers it, and the cloud controller removes the node of an instance
that is gone. Here no machine boots: the node is a record that KWOK keeps alive. What the record says (capacity, labels,
taints, providerID, name) is what the real one would say.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Booted:
    """A running instance that is to be a node."""

    id: str
    instance_type: str
    zone: str
    region: str
    name: str
    """Private DNS name, which is the node's name."""
    address: str
    user_data: str
    disk: int
    """Bytes of the root volume."""
    joins_at: float
    """Monotonic seconds: when its kubelet registers it."""
    devices_at: float
    """Monotonic seconds: when its device plugin registers the GPUs."""
