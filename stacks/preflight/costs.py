"""What a stack may cost: the sum of the groups' maxima, and the cluster with no node in it.

The first is what the policy allows to be bought, at the prices that the autoscaler goes by; the second an estimate at
list prices, without traffic and without what nodes and their disks cost. Pure: ``stacks/aws/prices.py`` asks for
prices.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from autoscaler.config.policy import Policy
from stacks.settings.control_plane import EksSettings, KubeadmSettings
from stacks.settings.outputs import CostOutput, GroupCostOutput
from stacks.settings.stack import Settings

_HOURS_IN_MONTH: Final = 730
_NAT, _ADDRESS, _ENDPOINT, _EKS, _BALANCER, _VPN = 0.045, 0.005, 0.01, 0.10, 0.0225, 0.05
"""Dollars per hour: a NAT gateway and its address, an interface endpoint in one zone, an EKS control plane, a network
load balancer, a VPN connection. https://aws.amazon.com/vpc/pricing, /privatelink/pricing, /eks/pricing,
/elasticloadbalancing/pricing, /vpn/pricing."""
_GATEWAY: Final = 0.0208
"""Dollars per hour of a t3.small, the gateway of a WireGuard tunnel where nothing else is said."""
_GIB_MONTH: Final = 0.08
"""Dollars for a GiB of gp3 in a month: https://aws.amazon.com/ebs/pricing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Some things of one kind that cost the same."""

    what: str
    count: int
    each: float | None
    """Dollars per hour; ``None`` where it is not known."""

    @property
    def usd(self) -> float:
        """Dollars per hour, as far as known."""
        return self.count * (self.each or 0.0)


def group_maxima(policy: Policy, prices: Mapping[str, float | None]) -> tuple[GroupCostOutput, ...]:
    """Each entry of the policy at its maximum, by the price of one node under the entry's name."""
    return tuple(
        GroupCostOutput(
            entry=entry.name,
            capacity_type=entry.capacity_type,
            instance_types=entry.types,
            max=entry.max,
            usd_per_hour=prices.get(entry.name),
        )
        for entry in policy.groups
    )


def machine_type(settings: Settings) -> str | None:
    """The instance type of a control plane of our own, where this stack makes one."""
    control_plane = settings.control_plane
    if settings.program in ("all", "control-plane") and isinstance(control_plane, KubeadmSettings):
        return control_plane.instance_type
    return None


def idle_lines(settings: Settings, *, zones: int, endpoints: int, instance_usd: float | None) -> Iterator[Line]:
    """What stands when there is no node: ``instance_usd`` is the price of one machine of a kubeadm control plane."""
    network, control_plane = settings.network, settings.control_plane
    if settings.program in ("all", "network") and not network.vpc:
        gateways = {"one": 1, "per-zone": zones, "none": 0}[network.nat]
        yield Line(what="NAT gateway with its address", count=gateways, each=_NAT + _ADDRESS)
        yield Line(what="interface endpoint in a zone", count=endpoints * zones, each=_ENDPOINT)
    if settings.program in ("all", "on-prem") and settings.connectivity:
        yield from _CONNECTIONS.get(settings.connectivity.kind, ())
    if settings.program not in ("all", "control-plane"):
        return
    if isinstance(control_plane, EksSettings):
        yield Line(what="EKS control plane", count=1, each=_EKS)
    if isinstance(control_plane, KubeadmSettings):
        gib = control_plane.root_volume_gib + control_plane.data_volume_gib
        what = f"control plane machine ({control_plane.instance_type})"
        yield Line(what=what, count=control_plane.instances, each=instance_usd)
        yield Line(what="its volumes", count=control_plane.instances, each=gib * _GIB_MONTH / _HOURS_IN_MONTH)
        yield Line(what="load balancer", count=1, each=_BALANCER)


_CONNECTIONS: Final = {
    "wireguard": (Line(what="WireGuard gateway (a t3.small) with its address", count=1, each=_GATEWAY + _ADDRESS),),
    "vpn": (Line(what="VPN connection", count=1, each=_VPN),),
}


def costs(groups: Iterable[GroupCostOutput], idle: Iterable[Line]) -> CostOutput:
    """All of it, for the stack's outputs."""
    listed = tuple(groups)
    by_type: dict[str, float] = defaultdict(float)
    for group in listed:
        by_type[group.capacity_type] += group.max * (group.usd_per_hour or 0.0)
    return CostOutput(
        groups=listed,
        max_usd_per_hour=_cents(math.fsum(by_type.values())),
        max_on_demand_usd_per_hour=_cents(by_type["on-demand"]),
        max_spot_usd_per_hour=_cents(by_type["spot"]),
        idle_usd_per_hour=_cents(math.fsum(line.usd for line in idle)),
    )


def tell(cost: CostOutput, idle: Iterable[Line], *, limit: float | None) -> str:
    """Both tables, as a preview and an update show them; ``limit`` is the autoscaler's own, of the policy."""
    lines = list(_maxima(cost, limit=limit)) if cost.groups else []
    shown = [line for line in idle if line.count]
    if shown:
        lines.append("With no node the stack costs, at list prices of us-east-1 and without traffic, about:")
        lines.extend(_row(line) for line in shown)
        total = f"{cost.idle_usd_per_hour:.2f} $/h, {cost.idle_usd_per_hour * _HOURS_IN_MONTH:.0f} $ a month"
        lines.append(_sum(total, prices=[line.each for line in shown]))
    return "\n".join(lines)


def _maxima(cost: CostOutput, *, limit: float | None) -> Iterator[str]:
    yield "If every group is bought up to its max, the nodes cost:"
    for group in cost.groups:
        what = f"{group.entry} ({group.capacity_type}, {' or '.join(group.instance_types)})"
        yield _row(Line(what=what, count=group.max, each=group.usd_per_hour))
    total = (
        f"{cost.max_usd_per_hour:.2f} $/h (on-demand {cost.max_on_demand_usd_per_hour:.2f}, "
        f"spot {cost.max_spot_usd_per_hour:.2f})"
    )
    yield _sum(total, prices=[group.usd_per_hour for group in cost.groups if group.max])
    unknown = [group.entry for group in cost.groups if group.max and group.usd_per_hour is None]
    if unknown:
        yield f"  without {', '.join(unknown)}: write usd_per_hour into its entry of the policy"
    if limit is not None:
        yield f"  the autoscaler buys for {limit:g} $/h at most (limits.usd_per_hour of the policy)"


def _sum(total: str, *, prices: Sequence[float | None]) -> str:
    """The last line of a table: a sum of which a part is not known is a least one, and of nothing known none."""
    if prices and all(price is None for price in prices):
        return "  sum unknown"
    return f"  sum {'at least ' if None in prices else ''}{total}"


def _row(line: Line) -> str:
    each = "price unknown" if line.each is None else f"{line.each:.4f} = {line.usd:.2f} $/h"
    return f"  {line.count:>4} x {line.what}: {each}"


def _cents(usd: float) -> float:
    return round(usd, 4)
