"""What AWS is asked before the first resource: whether what the files name is there, and fits what stands already.

Whatever is refused here would else be refused halfway, with half a cluster made.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pulumi
import pulumi_aws as aws

from stacks.aws.caller import check_caller
from stacks.control_plane.existing_members import check_standing, data_volumes, version_told
from stacks.control_plane.hybrid_nodes import check_expires
from stacks.network.addresses import check_networks, check_room, tell_docker, tell_pods
from stacks.network.existing_vpc import FoundVpc, check_vpc, look_up_vpc, networks_of
from stacks.nodes.bundle import check_architecture
from stacks.nodes.images import Images, MachineImage, image_of_nodes, ubuntu
from stacks.nodes.instance_types import Shape, check_member, check_shapes, look_up_shape, look_up_shapes
from stacks.preflight.eks_versions import check_offered, look_up_offered
from stacks.preflight.endpoint_services import check_services, look_up_services, needed_services
from stacks.preflight.foreign_entries import look_up_entries, tell_foreign_entries
from stacks.preflight.inputs import Plans
from stacks.preflight.open_rules import look_up_rules, tell_open_rules
from stacks.preflight.references import check_gateway_there, check_keys_there, check_stack_there, check_zones_there
from stacks.preflight.removed_zones import check_zones_stay, look_at_zones
from stacks.preflight.requirements import made_by_others
from stacks.preflight.shrinking_groups import sizes_now, tell_shrinking
from stacks.preflight.stack_state import StandingStack
from stacks.settings.control_plane import EksSettings, KubeadmSettings
from stacks.settings.on_prem import WireguardSettings


@dataclass(frozen=True, kw_only=True)
class Ahead:
    """What is there before anything is made."""

    vpc: FoundVpc | None = None
    """One that is there, where the stack file names one."""
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    """Of the policy's instance types, by name."""
    node_images: Mapping[str, MachineImage] = field(default_factory=dict)
    """By the same names."""
    member_image: MachineImage | None = None
    """Of a kubeadm control plane."""
    gateway_image: MachineImage | None = None
    """Of the instance that holds a WireGuard tunnel."""
    control_plane_zones: tuple[str, ...] = ()
    """Where it is, or is to be: EKS takes no further zone to a cluster that stands."""
    gateways: tuple[str, ...] = ()
    """Zones that have a NAT gateway of this stack."""


def look_ahead(
    plans: Plans, parts: Collection[str], *, standing: StandingStack | None, provider: aws.Provider
) -> Ahead:
    """Ask for all that these parts of the programs need. Raises ``BadInput`` or ``Unavailable``."""
    check_caller(region=plans.policy.region, provider=provider)
    images = Images(provider, region=plans.policy.region)
    _look_at_names(plans, parts, provider)
    if "network" in parts:
        look_at_zones(plans.zones, standing, provider=provider)
        _look_at_rules(plans, standing, provider)
    vpc = _look_at_network(plans, provider) if "network" in parts else None
    zones = _look_at_control_plane(plans, standing, provider) if "control-plane" in parts else ()
    shapes = _look_at_types(plans, provider) if "node-pools" in parts else {}
    ahead = Ahead(
        vpc=vpc,
        shapes=shapes,
        control_plane_zones=zones or plans.zones,
        gateways=standing.gateways if standing else (),
        member_image=_member_image(plans, images, provider) if "control-plane" in parts else None,
        gateway_image=_gateway_image(plans, images, provider) if "on-prem" in parts else None,
        node_images={
            name: images.find(
                image_of_nodes(plans.settings, shape),
                where="spillway:nodes.ami",
                instance_type=name,
                architecture=shape.architecture,
            )
            for name, shape in shapes.items()
        },
    )
    for part in made_by_others(plans.settings, plans.inventory):
        check_stack_there(plans, part)
    return ahead


def _look_at_names(plans: Plans, parts: Collection[str], provider: aws.Provider) -> None:
    """What the files name by an id."""
    settings, policy = plans.settings, plans.policy
    if "network" in parts and settings.network.vpc is None:
        source = str(settings.policy_path)
        check_zones_there(plans.zones, region=policy.region, source=source, provider=provider)
    if "on-prem" in parts:
        check_gateway_there(settings, provider=provider)
    check_keys_there(settings, parts=parts, provider=provider)


def _look_at_rules(plans: Plans, standing: StandingStack | None, provider: aws.Provider) -> None:
    """What others let in, where their rules stay; elsewhere each is drift."""
    group = standing.node_security_group if standing else ""
    if group and plans.has_shared_rules:
        rules = look_up_rules(group, provider=provider)
        _warn(tell_open_rules(rules, group=group, cluster=plans.policy.cluster))


def _look_at_network(plans: Plans, provider: aws.Provider) -> FoundVpc | None:
    settings, region = plans.settings.network, plans.policy.region
    if settings.vpc is None:
        found = look_up_services(plans.endpoints, region=region, provider=provider)
        check_services(found, zones=plans.zones, region=region)
        _warn(tell_docker(plans.settings, plans.inventory))
        return None
    services = needed_services(plans.settings) | {"s3": "images and bundles"} if settings.nat == "none" else {}
    vpc = look_up_vpc(settings.vpc, services=tuple(services), region=region, provider=provider)
    check_vpc(vpc, nat=settings.nat, services=services)
    check_networks(plans.settings, plans.inventory, networks_of(vpc))
    _warn(tell_docker(plans.settings, plans.inventory, networks_of(vpc)))
    free = {zone: subnet.free for zone, subnet in vpc.subnets.items()}
    source = str(plans.settings.policy_path)
    check_room(plans.policy, free, source=source, where="spillway:network.vpc.subnets")
    return vpc


def _look_at_control_plane(plans: Plans, standing: StandingStack | None, provider: aws.Provider) -> tuple[str, ...]:
    """Zones that one which stands is in, and stays in."""
    settings, cluster, region = plans.settings.control_plane, plans.policy.cluster, plans.policy.region
    if isinstance(settings, EksSettings):
        offered = look_up_offered(settings, cluster, region=region, provider=provider)
        check_offered(settings, offered)
        if offered.running:
            entries = look_up_entries(cluster, region=region)
            _warn(tell_foreign_entries(entries, cluster=cluster, admins=settings.admins))
        if settings.hybrid:
            check_expires(settings.hybrid, stands=standing.expires if standing else "", now=datetime.now(UTC))
        check_zones_stay(plans.zones, leaving=set(offered.zones) - set(plans.zones), holds=offered.zones)
        return offered.zones
    if isinstance(settings, KubeadmSettings):
        _warn(tell_pods(plans.settings, plans.policy, plans.inventory))
        _look_at_members(settings, cluster, provider=provider)
    return ()


def _look_at_members(settings: KubeadmSettings, cluster: str, *, provider: aws.Provider) -> None:
    """Looks at the members of a control plane that stands already."""
    volumes = data_volumes(cluster, provider=provider)
    running = version_told(cluster, provider=provider) if volumes else None
    check_standing(settings, volumes, running=running)


def _member_image(plans: Plans, images: Images, provider: aws.Provider) -> MachineImage | None:
    settings = plans.settings.control_plane
    if not isinstance(settings, KubeadmSettings):
        return None
    shape = _shape_of(settings, "spillway:control_plane", plans, provider)
    check_member(shape, settings.instance_type, where="spillway:control_plane.instance_type")
    return _image_of(settings, "spillway:control_plane", shape, images)


def _gateway_image(plans: Plans, images: Images, provider: aws.Provider) -> MachineImage | None:
    settings = plans.settings.connectivity
    if not isinstance(settings, WireguardSettings):
        return None
    shape = _shape_of(settings, "spillway:connectivity", plans, provider)
    return _image_of(settings, "spillway:connectivity", shape, images)


def _shape_of(settings: KubeadmSettings | WireguardSettings, key: str, plans: Plans, provider: aws.Provider) -> Shape:
    """Looks up the machines of that section of the stack file."""
    kind, region = settings.instance_type, plans.policy.region
    return look_up_shape(kind, provider=provider, region=region, where=f"{key}.instance_type")


def _image_of(settings: KubeadmSettings | WireguardSettings, key: str, shape: Shape, images: Images) -> MachineImage:
    """What they boot from, Ubuntu's where the section names nothing."""
    ami = settings.ami or ubuntu(shape.architecture)
    return images.find(ami, where=f"{key}.ami", instance_type=settings.instance_type, architecture=shape.architecture)


def _look_at_types(plans: Plans, provider: aws.Provider) -> Mapping[str, Shape]:
    policy, source = plans.policy, str(plans.settings.policy_path)
    shapes = look_up_shapes(policy, provider=provider, source=source)
    check_shapes(policy, shapes, source=source)
    if plans.bundle:
        check_architecture(plans.bundle, {name: shape.architecture for name, shape in shapes.items()})
    sizes = sizes_now(policy, provider=provider)
    _warn(tell_shrinking(policy, sizes, protected=plans.settings.nodes.scale_in_protection, source=source))
    return shapes


def _warn(lines: list[str]) -> None:
    for line in lines:
        pulumi.log.warn(line)
