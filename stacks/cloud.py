"""The programs: everything of one cluster as one stack, or each part as a stack of its own."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import pulumi
import pulumi_aws as aws

from autoscaler import labels as words
from autoscaler.policy import Policy, read_policy
from stacks.addresses import check_networks, check_room, check_zones, room
from stacks.config import Settings
from stacks.connectivity import ConnectivityArgs, check_connectivity, connect
from stacks.control_plane import check_reachable, check_settings, existing_part, make_control_plane
from stacks.control_plane_settings import EksSettings, ExistingSettings, KubeadmSettings
from stacks.costs import costs, group_maxima, idle_lines, machine_type, tell
from stacks.existing_vpc import ExistingNetwork, FoundVpc, check_vpc, look_up_vpc, networks_of
from stacks.inventory import Inventory, read_inventory
from stacks.join import NodeAdmission, check_join, eks_join_of, instance_tags, join_of, joined_by
from stacks.limits import check_limits
from stacks.machine_images import Images, image_of_nodes
from stacks.machines import Machines, MachinesArgs, describe_machine, hybrid_node_configs
from stacks.needs import check_needs, stack_of
from stacks.network import Network, NetworkArgs
from stacks.node_bundle import BundleFile, NodeBundle, check_architecture, read_bundle
from stacks.node_groups import NodeGroup, NodeGroupArgs, NodeIdentity, check_groups
from stacks.outputs import exported_name
from stacks.parts import ControlPlanePart, NetworkPart
from stacks.prices import Prices
from stacks.shapes import Shape, adapters_of, check_shapes, first_adapter_card, look_up_shapes
from stacks.shrinking import sizes_now, tell_shrinking
from stacks.standing_members import check_standing, data_volumes, tell_fewer

_PARTS: Final = ("network", "control-plane", "node-pools", "on-prem", "release")
"""In the order in which one needs another."""


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


def read_plans(settings: Settings) -> Plans:
    """Read all files, and check them against each other before anything is made. Raises ``BadInput``."""
    policy = read_policy(settings.policy_path)
    path = settings.inventory_path
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


def _check_network(plans: Plans) -> None:
    settings, source = plans.settings, str(plans.settings.policy_path)
    check_networks(settings, plans.inventory)
    _check_connectivity(settings)
    if settings.program not in ("all", "network"):
        return  # whose network is another stack's
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


Fields = dict[str, pulumi.Input[Any]]
"""Of the record of outputs, by the names of its fields."""


def check(plans: Plans) -> None:
    """Ask those outside who must be there before anything is made. Raises ``BadInput`` or ``Unavailable``."""
    if plans.settings.program in ("all", "control-plane"):
        check_reachable(plans.settings)


def build(plans: Plans) -> Fields:
    """Declare what the stack's program makes: every part of the cluster, or one; gives what the stack exports."""
    program = plans.settings.program
    parts = _PARTS if program == "all" else (program,)
    built = _Built(plans)
    if "network" in parts:
        built.check_vpc()
    if "control-plane" in parts:
        built.check_members()
    if "node-pools" in parts:
        built.check_types()
    built.tell_costs()
    for part in _PARTS:
        if part in parts:
            getattr(built, f"make_{part.replace('-', '_')}")()
    return {"cluster": plans.policy.cluster, "region": plans.policy.region, **built.fields}


def export(fields: Fields) -> None:
    """Each field of the record as one output of the stack; what is secret stays so."""
    for name, value in fields.items():
        pulumi.export(exported_name(name), value)


class _Built:
    """The parts that are made, and what they found made by other stacks."""

    def __init__(self, plans: Plans) -> None:
        self.fields: Fields = {}
        self._plans = plans
        self._network: NetworkPart | None = None
        self._control_plane: ControlPlanePart | None = None
        policy = plans.policy
        self._tags = {**plans.settings.tags, words.TAG_CLUSTER: policy.cluster, "spillway.dev/made-by": "pulumi"}
        self._provider = aws.Provider("aws", region=policy.region, default_tags={"tags": self._tags})
        self._on_aws = pulumi.ResourceOptions(providers=[self._provider])
        self._images = Images(self._provider)
        self._shapes: dict[str, Shape] = {}
        self._found: FoundVpc | None = None

    def check_types(self) -> None:
        """The instance types of the policy, asked of EC2 before the first resource. Raises ``BadInput``."""
        policy, source = self._plans.policy, str(self._plans.settings.policy_path)
        self._shapes = look_up_shapes(policy, provider=self._provider, source=source)
        check_shapes(policy, self._shapes, source=source)
        if self._plans.bundle:
            architectures = {name: shape.architecture for name, shape in self._shapes.items()}
            check_architecture(self._plans.bundle, architectures)
        sizes = sizes_now(policy, provider=self._provider)
        protected = self._plans.settings.nodes.scale_in_protection
        for line in tell_shrinking(policy, sizes, protected=protected, source=source):
            pulumi.log.warn(line)

    def check_vpc(self) -> None:
        """A VPC that is there, asked of EC2 before the first resource. Raises ``BadInput``."""
        plans, settings = self._plans, self._plans.settings.network
        if settings.vpc is None:
            return
        services = (*plans.endpoints, "s3") if settings.nat == "none" else ()
        found = look_up_vpc(settings.vpc, services=services, region=plans.policy.region, provider=self._provider)
        check_vpc(found, nat=settings.nat, services=services)
        check_networks(plans.settings, plans.inventory, networks_of(found))
        free = {zone: subnet.free for zone, subnet in found.subnets.items()}
        source = str(plans.settings.policy_path)
        check_room(plans.policy, free, source=source, where="spillway:network.vpc.subnets")
        self._found = found

    def check_members(self) -> None:
        """A kubeadm control plane that stands already, asked of EC2 before the first resource. Raises ``BadInput``."""
        settings, cluster = self._plans.settings.control_plane, self._plans.policy.cluster
        if not isinstance(settings, KubeadmSettings):
            return
        volumes = data_volumes(cluster, provider=self._provider)
        check_standing(settings, volumes)
        for line in tell_fewer(settings, volumes):
            pulumi.log.warn(line)

    def tell_costs(self) -> None:
        """What the stack may cost: shown by every preview and update, and exported."""
        plans, settings = self._plans, self._plans.settings
        policy, prices = plans.policy, Prices(region=plans.policy.region, provider=self._provider)
        has_groups = settings.program in ("all", "node-pools")
        machine = machine_type(settings)
        idle = tuple(
            idle_lines(
                settings,
                zones=len(plans.zones),
                endpoints=len(plans.endpoints),
                instance_usd=prices.of_type(machine) if machine else None,
            )
        )
        cost = costs(group_maxima(policy, prices.of_groups(policy)) if has_groups else (), idle)
        told = tell(cost, idle, limit=policy.limits.usd_per_hour)
        if told:
            pulumi.log.info(told)
            self.fields["cost"] = msgspec.to_builtins(cost)

    def make_network(self) -> None:
        """VPC, subnets, and the ways out."""
        plans, settings = self._plans, self._plans.settings.network
        cluster = plans.policy.cluster
        network: Network | ExistingNetwork
        if self._found:
            network = ExistingNetwork(cluster, self._found, trusted=settings.trusted, opts=self._on_aws)
        else:
            args = NetworkArgs(
                cidr=ipaddress.IPv4Network(settings.cidr),
                zones=plans.zones,
                region=plans.policy.region,
                nat=settings.nat,
                endpoints=plans.endpoints,
                flow_logs=settings.flow_logs,
                trusted=settings.trusted,
                protect=settings.protect,
            )
            network = Network(cluster, args, opts=self._on_aws)
        self._network = NetworkPart.made(network)
        self.fields |= self._network.fields()

    def make_control_plane(self) -> None:
        """The one that is configured."""
        settings, policy = self._plans.settings, self._plans.policy
        if settings.control_plane is None:
            return
        network = None if settings.control_plane.kind == "existing" else self._where()
        self._control_plane = make_control_plane(
            settings,
            cluster=policy.cluster,
            region=policy.region,
            network=network,
            zones=self._plans.zones,
            image=lambda ami: self._images.find(ami).id,
            tags=self._tags,
            opts=self._on_aws,
        )
        self.fields |= self._control_plane.fields()

    def make_node_pools(self) -> None:
        """The groups of the policy, and their role's way into the cluster."""
        plans, policy = self._plans, self._plans.policy
        settings, network = plans.settings, self._where()
        identity = NodeIdentity(f"{policy.cluster}-node", cluster=policy.cluster, opts=self._on_aws)
        control_plane = self._joined()
        file = plans.bundle
        bundle = NodeBundle(policy.cluster, file, opts=self._on_aws) if file else None
        by = joined_by(settings)
        admission = (
            NodeAdmission(
                f"{policy.cluster}-node-admission",
                cluster=policy.cluster,
                control_plane=control_plane,
                role_name=identity.role_name,
                role_arn=identity.role_arn,
                by_roles=by == "roles",
                bundle=bundle,
                opts=self._on_aws,
            )
            if control_plane
            else None
        )
        join: pulumi.Output[Any] | None = None
        if control_plane and by == "roles":
            join = join_of(settings, cluster=policy.cluster, control_plane=control_plane, bundle=bundle)
        if control_plane and by == "nodeadm":
            join = eks_join_of(control_plane)
        shapes = {entry.name: self._shapes[entry.types[0]] for entry in policy.groups}
        images = {name: self._images.find(image_of_nodes(settings, shape)) for name, shape in shapes.items()}
        node_groups = [
            NodeGroup(
                entry.name,
                NodeGroupArgs(
                    cluster=policy.cluster,
                    region=policy.region,
                    entry=entry,
                    subnets=network.subnets,
                    security_group_id=network.node_security_group_id,
                    instance_profile_arn=identity.instance_profile_arn,
                    image_id=images[entry.name].id,
                    root_device=images[entry.name].root_device,
                    join=join,
                    gpus=shapes[entry.name].gpus,
                    kms_key_id=settings.nodes.kms_key,
                    adapters=adapters_of(entry, self._shapes),
                    first_adapter_card=first_adapter_card(entry),
                    scale_in_protection=settings.nodes.scale_in_protection,
                    termination_wait=settings.nodes.termination_wait,
                    tags=self._tags | instance_tags(policy.cluster, by=by),
                ),
                opts=pulumi.ResourceOptions.merge(
                    self._on_aws, pulumi.ResourceOptions(depends_on=[admission] if admission else [])
                ),
            )
            for entry in policy.groups
        ]
        groups = pulumi.Output.all(*(one.described for one in node_groups)).apply(
            lambda described: [msgspec.to_builtins(group) for groups in described for group in groups]
        )
        self.fields |= {"groups": groups, "node_role_arn": identity.role_arn}

    def make_on_prem(self) -> None:
        """The machines of the inventory."""
        plans, machines = self._plans, self._plans.inventory.machines
        self.fields |= {"machines": msgspec.to_builtins([describe_machine(machine) for machine in machines])}
        self._connect()
        control_plane = self._joined() if machines else None
        if control_plane is None:
            return
        member = control_plane.kind != "eks"  # whose hybrid nodes come in by Systems Manager, under its names
        made = Machines(
            plans.policy.cluster,
            MachinesArgs(
                cluster=plans.policy.cluster,
                inventory=plans.inventory,
                kubeconfig=control_plane.kubeconfig if member else None,
                settings=plans.settings.machines,
                member=member,
            ),
        )
        tokens = {name: machine.join_token for name, machine in made.machines.items()}
        self.fields |= {"join_tokens": pulumi.Output.json_dumps(tokens)} if member else {}  # secret, as each of them
        wanted = plans.settings.control_plane
        if isinstance(wanted, EksSettings) and wanted.hybrid:
            self.fields["hybrid_node_configs"] = hybrid_node_configs(
                control_plane, plans.inventory, cluster=plans.policy.cluster, region=plans.policy.region
            )

    def _connect(self) -> None:
        plans, wanted = self._plans, self._plans.settings.connectivity
        if wanted is None:
            return
        ami = self._images.find(wanted.ami).id if wanted.kind == "wireguard" else ""
        settings = plans.settings.network
        vpc = tuple(str(one.network) for one in networks_of(self._found)) if self._found else (settings.cidr,)
        args = ConnectivityArgs(
            cluster=plans.policy.cluster,
            region=plans.policy.region,
            settings=wanted,
            network=self._where(),
            vpc=vpc,
            on_prem=settings.on_prem,
            image_id=ami,
        )
        self.fields |= connect(f"{plans.policy.cluster}-on-prem", args, opts=self._on_aws)

    def make_release(self) -> None:
        """The autoscaler in the cluster."""
        from stacks.autoscaler_release import AutoscalerRelease  # noqa: PLC0415 - Kubernetes' types are slow to import

        settings, policy = self._plans.settings, self._plans.policy
        control_plane = self._joined()
        if settings.release is None or control_plane is None:
            return
        release = AutoscalerRelease(
            policy.cluster,
            settings.release,
            cluster=policy.cluster,
            region=policy.region,
            policy=settings.policy_path.read_text(encoding="utf-8"),
            control_plane=control_plane,
            approves_nodes=settings.nodes.roles != "none",
            opts=self._on_aws,
        )
        self.fields |= {"release": release.about.apply(msgspec.to_builtins)}

    def _where(self) -> NetworkPart:
        """The network: made here, or by the stack that is named."""
        if self._network is None:
            stack = stack_of(self._plans.settings, "network")
            self._network = NetworkPart.referred(stack, zones=self._plans.zones)
        return self._network

    def _joined(self) -> ControlPlanePart | None:
        """The control plane: made here, or by the stack that is named; ``None`` where none is configured."""
        wanted = self._plans.settings.control_plane
        if self._control_plane is None and isinstance(wanted, ExistingSettings):
            self._control_plane = existing_part(wanted, cluster=self._plans.policy.cluster)
        if self._control_plane is None and wanted is not None:
            stack = stack_of(self._plans.settings, "control_plane")
            self._control_plane = ControlPlanePart.referred(stack, kind=wanted.kind)
        return self._control_plane
