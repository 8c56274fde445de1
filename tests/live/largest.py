"""The largest example, as the benchmark times it and as engines are killed at it.

It has every option of a node group, a bundle of the roles, a kubeadm control plane of three members, three zones with
a NAT gateway each, endpoints, flow logs and a VPN.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from tests.test_stacks.test_nodes.test_bundle import bundle

_ZONES: Final = ["us-east-1a", "us-east-1b", "us-east-1c"]
GROUPS: Final[list[dict[str, Any]]] = [
    {"name": "gpu-a10g", "instance_type": "g5.12xlarge", "zones": _ZONES, "max": 8},
    {"name": "gpu-a100", "instance_type": "p4d.24xlarge", "zones": _ZONES, "max": 8},
    {"name": "gpu-l4", "instance_type": "g6.12xlarge", "zones": _ZONES, "max": 8, "capacity_type": "spot"},
    {"name": "set", "instance_types": ["g5.12xlarge", "g5.24xlarge"], "zones": _ZONES, "max": 8},
    {"name": "fabric", "instance_type": "p4d.24xlarge", "zones": _ZONES[:1], "max": 4, "efa": True},
    {"name": "close", "instance_type": "p4d.24xlarge", "zones": _ZONES[1:2], "max": 4, "placement": "cluster"},
    {"name": "cpu", "instance_type": "m5.4xlarge", "zones": _ZONES, "max": 20},
]
_NETWORK: Final = {
    "nat": "per-zone",
    "flow_logs": {"to": "s3"},
    "endpoints": ["ecr.api", "ecr.dkr", "sts"],
    "on_prem": ["10.80.0.0/16"],
}
_IMAGE: Final = "ami-12c6146b"
_CONTROL_PLANE: Final = {"kind": "kubeadm", "ami": _IMAGE, "instances": 3}
_VPN: Final = {"kind": "vpn", "address": "198.51.100.7"}


def overrides(folder: Path) -> dict[str, Any]:
    """Its stack file, but for the policy; the bundle is written into ``folder``."""
    return {
        "spillway:network": _NETWORK,
        "spillway:connectivity": _VPN,
        "spillway:control_plane": _CONTROL_PLANE,
        "spillway:nodes": {"ami": _IMAGE, "roles": "bundle", "bundle": str(bundle(folder))},
    }
