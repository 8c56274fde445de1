"""Zones that the files no longer name, while something stands in them: refused, since the engine would end it.

Asked of AWS before any resource is declared, and only where a zone leaves.
"""

from __future__ import annotations

from collections.abc import Collection

import pulumi
import pulumi_aws as aws

from autoscaler.model.errors import BadInput, Unavailable
from stacks.control_plane.existing_members import data_volumes
from stacks.preflight.eks_versions import look_up_cluster
from stacks.preflight.shrinking_groups import groups_of, sizes_of
from stacks.preflight.stack_state import StandingStack


def look_at_zones(zones: Collection[str], standing: StandingStack | None, *, provider: aws.Provider) -> None:
    """Whether those of a network that stands may leave it. Raises ``BadInput`` or ``Unavailable``."""
    leaving = set(standing.zones) - set(zones) if standing else set()
    if not standing or not leaving:
        return
    opts = pulumi.InvokeOptions(provider=provider)
    try:
        _, holds = look_up_cluster(standing.cluster, opts)
        there = groups_of(standing.cluster, opts)
        sizes = sizes_of((name for name in there if name.endswith(tuple(leaving))), opts)
    except Exception as error:  # noqa: BLE001 - a failed look-up has no type of its own
        raise Unavailable(f"AWS does not tell what stands in {', '.join(sorted(leaving))}: {error}") from None
    if data_volumes(standing.cluster, provider=provider):
        holds = standing.zones  # by its load balancer, and maybe by a member
    check_zones_stay(zones, leaving=leaving, holds=holds, nodes=sum(sizes.values()))


def check_zones_stay(
    zones: Collection[str], *, leaving: Collection[str], holds: Collection[str], nodes: int = 0
) -> None:
    """Whether a zone may lose its subnet: not while a control plane or nodes are in it. Raises ``BadInput``.

    ``holds`` are the zones that the control plane is in; ``nodes`` are those of this cluster in the zones that leave.
    """
    key, named = "spillway:network", ", ".join(zones)
    held = sorted(set(leaving) & set(holds))
    if held:
        raise BadInput(
            f"{key} names {named}, and no longer {', '.join(held)}, where the control plane is, which does not leave a "
            f"zone: name it in {key}.zones (or {key}.vpc.subnets), even where no group of the policy is in it"
        )
    if leaving and nodes:
        raise BadInput(
            f"{key} names {named}, and no longer {', '.join(sorted(leaving))}, where {nodes} nodes are, which would "
            f"end with their jobs: name it in {key}.zones, cordon them, and take it out once they are gone"
        )
