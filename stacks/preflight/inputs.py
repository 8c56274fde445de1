"""The files that a stack is made from: read, and checked against each other before anybody is asked anything."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path

from autoscaler.config.policy import Policy, read_policy
from autoscaler.model.errors import BadInput
from stacks.connectivity.component import check_connectivity
from stacks.control_plane.component import check_settings
from stacks.network.addresses import check_networks, check_room, check_zones, room
from stacks.nodes.bundle import BundleFile, read_bundle
from stacks.nodes.join import check_join, joined_by
from stacks.preflight.endpoint_services import check_endpoints, check_prices
from stacks.preflight.group_limits import check_groups
from stacks.preflight.requirements import check_needs
from stacks.preflight.settings_limits import check_limits
from stacks.settings.inventory import Inventory, read_inventory
from stacks.settings.stack import Settings


@dataclass(frozen=True, kw_only=True)
class Plans:
    """The files that a stack is made from, read and checked."""

    settings: Settings
    policy: Policy
    inventory: Inventory
    bundle: BundleFile | None = None
    """Of the roles, which nodes fetch."""

    @property
    def zones(self) -> tuple[str, ...]:
        """All zones that have a subnet, in order: those that the stack file names, else those of the policy."""
        network = self.settings.network
        named = network.vpc.subnets if network.vpc else network.zones
        return tuple(sorted(named or {zone for entry in self.policy.groups for zone in entry.zones}))

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Services of AWS that have an interface endpoint in the VPC."""
        control_plane = self.settings.control_plane
        return self.settings.network.interface_endpoints(eks=control_plane is not None and control_plane.kind == "eks")

    @property
    def has_shared_rules(self) -> bool:
        """Whether others write rules of the nodes' security group too.

        So does EKS's part of the programs, in a stack of its own maybe, and so do controllers in most of its clusters.
        """
        kind = self.settings.control_plane.kind if self.settings.control_plane else None
        own = self.settings.program == "all" and kind != "eks"
        return (self.settings.network.rules or ("own" if own else "shared")) == "shared"


def read_plans(settings: Settings) -> Plans:
    """Read all files, and check them against each other before anything is made. Raises ``BadInput``."""
    _check_there("policy", settings.policy, settings.policy_path)
    policy = read_policy(settings.policy_path)
    path = settings.inventory_path
    _check_there("inventory", settings.inventory, path)
    inventory = read_inventory(path) if path else Inventory(machines=())
    file = settings.bundle_path if settings.program in ("all", "node-pools") else None
    bundle = read_bundle(file) if file else None
    plans = Plans(settings=settings, policy=policy, inventory=inventory, bundle=bundle)
    check_groups(policy, source=str(settings.policy_path), joined_by=joined_by(settings))
    check_join(settings)
    check_needs(settings, inventory)
    check_limits(settings, policy, inventory, source=str(settings.policy_path))
    _check_network(plans)
    check_settings(settings, zones=plans.zones, source=str(settings.policy_path))
    return plans


def _check_there(key: str, said: str | None, path: Path | None) -> None:
    """Whether a file that the stack file names can be read."""
    try:
        if path:
            path.open("rb").close()
    except OSError as error:
        raise BadInput(
            f"spillway:{key} = {said!r}: cannot be read: {error.strerror}: {path} (paths start at the folder of "
            "Pulumi.yaml)"
        ) from None


def _check_network(plans: Plans) -> None:
    settings, source = plans.settings, str(plans.settings.policy_path)
    check_networks(settings, plans.inventory)
    _check_connectivity(settings)
    if settings.program not in ("all", "network"):
        return  # whose network is another stack's
    check_endpoints(settings)
    check_prices(settings, plans.policy, source=source)
    check_zones(plans.zones, policy=plans.policy, source=source)
    if not settings.network.vpc:
        free = room(ipaddress.IPv4Network(settings.network.cidr), plans.zones)
        check_room(plans.policy, free, source=source, where="spillway:network.cidr")


def _check_connectivity(settings: Settings) -> None:
    network = settings.network
    check_connectivity(
        settings.connectivity,
        vpc=() if network.vpc else (network.cidr,),
        on_prem=network.on_prem,
        public=network.vpc is None and network.nat != "none",
    )
