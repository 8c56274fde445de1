"""The programs: everything of one cluster as one stack, or each part as a stack of its own."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import msgspec
import pulumi
import pulumi_aws as aws

from autoscaler.config.group_entry import GroupEntry
from autoscaler.config.policy import interruption_queue
from autoscaler.model import labels as words
from stacks.aws.prices import Prices
from stacks.connectivity.component import connect
from stacks.connectivity.routes import ConnectivityArgs
from stacks.control_plane.component import check_reachable, existing_part, make_control_plane
from stacks.network.existing_vpc import ExistingNetwork, networks_of
from stacks.network.parts import ControlPlanePart, NetworkPart
from stacks.network.vpc import Network, NetworkArgs
from stacks.nodes.bundle import NodeBundle
from stacks.nodes.instance_types import adapters_of, first_adapter_card
from stacks.nodes.interruptions import InterruptionQueue
from stacks.nodes.join import NodeAdmission, eks_join_of, instance_tags, join_of, joined_by
from stacks.nodes.node_groups import NodeGroup, NodeGroupArgs, NodeIdentity
from stacks.nodes.on_prem_machines import Machines, MachinesArgs, describe_machine, hybrid_node_configs
from stacks.preflight.aws_lookups import look_ahead
from stacks.preflight.costs import costs, group_maxima, idle_lines, machine_type, tell
from stacks.preflight.inputs import Plans
from stacks.preflight.removals import check_nothing_is_given_up
from stacks.preflight.requirements import stack_of
from stacks.preflight.stack_state import look_up_stack
from stacks.settings.control_plane import EksSettings, ExistingSettings, KubeadmSettings
from stacks.settings.outputs import exported_name

Fields = dict[str, pulumi.Input[Any]]
"""Of the record of outputs, by the names of its fields."""


def check(plans: Plans) -> None:
    """Ask those outside who must be there before anything is made. Raises ``BadInput`` or ``Unavailable``."""
    if plans.settings.program in ("all", "control-plane"):
        check_reachable(plans.settings)


def build(plans: Plans) -> Fields:
    """Declare what the stack's program makes: every part of the cluster, or one; gives what the stack exports."""
    program = plans.settings.program
    parts = tuple(_MAKE) if program == "all" else (program,)
    built = _Built(plans, parts)
    built.tell_costs()
    for part in _MAKE:
        if part in parts:
            _MAKE[part](built)
    return {"cluster": plans.policy.cluster, "region": plans.policy.region, **built.fields}


def export(fields: Fields) -> None:
    """Each field of the record as one output of the stack; what is secret stays so."""
    for name, value in fields.items():
        pulumi.export(exported_name(name), value)


class _Built:
    """The parts that are made, and what they found made by other stacks."""

    def __init__(self, plans: Plans, parts: Collection[str]) -> None:
        self.fields: Fields = {}
        self._plans = plans
        self._network: NetworkPart | None = None
        self._control_plane: ControlPlanePart | None = None
        policy = plans.policy
        self._tags = {**plans.settings.tags, words.TAG_CLUSTER: policy.cluster, "spillway.dev/made-by": "pulumi"}
        standing = look_up_stack()  # before the provider, which would tell the state of another cluster already
        check_nothing_is_given_up(plans, standing, parts=parts)
        self._provider = aws.Provider("aws", region=policy.region, default_tags={"tags": self._tags})
        self._on_aws = pulumi.ResourceOptions(providers=[self._provider])
        self._ahead = look_ahead(plans, parts, standing=standing, provider=self._provider)

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
        if self._ahead.vpc:
            network = ExistingNetwork(
                cluster,
                self._ahead.vpc,
                trusted=settings.trusted,
                has_shared_rules=plans.has_shared_rules or self._members_add_rules,
                opts=self._on_aws,
            )
        else:
            args = NetworkArgs(
                cidr=ipaddress.IPv4Network(settings.cidr),
                zones=plans.zones,
                region=plans.policy.region,
                nat=settings.nat,
                endpoints=plans.endpoints,
                flow_logs=settings.flow_logs,
                trusted=settings.trusted,
                has_shared_rules=plans.has_shared_rules or self._members_add_rules,
                protect=settings.protect,
                gateways=self._ahead.gateways,
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
            zones=self._ahead.control_plane_zones,
            image=self._ahead.member_image,
            opts=self._on_aws,
        )
        self.fields |= self._control_plane.fields()
        if network and network.node_group and self._members_add_rules and not self._plans.has_shared_rules:
            network.node_group.close()

    @property
    def _members_add_rules(self) -> bool:
        """Whether the control plane of this very program gives the nodes' security group one rule more."""
        settings = self._plans.settings
        return settings.program == "all" and isinstance(settings.control_plane, KubeadmSettings)

    def make_node_pools(self) -> None:
        """The groups of the policy, and their role's way into the cluster."""
        plans, policy = self._plans, self._plans.policy
        identity = NodeIdentity(f"{policy.cluster}-node", cluster=policy.cluster, opts=self._on_aws)
        control_plane = self._joined()
        bundle = NodeBundle(policy.cluster, plans.bundle, opts=self._on_aws) if plans.bundle else None
        admission = self._admission(identity, control_plane, bundle)
        identity.role.close()
        join = self._join(control_plane, bundle)
        opts = pulumi.ResourceOptions.merge(
            self._on_aws, pulumi.ResourceOptions(depends_on=[admission] if admission else [])
        )
        node_groups = [
            NodeGroup(entry.name, self._node_group(entry, identity, join), opts=opts) for entry in policy.groups
        ]
        InterruptionQueue(interruption_queue(policy.cluster), cluster=policy.cluster, opts=self._on_aws)
        groups = pulumi.Output.all(*(one.described for one in node_groups)).apply(
            lambda described: [msgspec.to_builtins(group) for groups in described for group in groups]
        )
        self.fields |= {"groups": groups, "node_role_arn": identity.role.arn}

    def _admission(
        self, identity: NodeIdentity, control_plane: ControlPlanePart | None, bundle: NodeBundle | None
    ) -> NodeAdmission | None:
        """What lets the nodes' role into the cluster."""
        if control_plane is None:
            return None
        cluster = self._plans.policy.cluster
        return NodeAdmission(
            f"{cluster}-node-admission",
            cluster=cluster,
            control_plane=control_plane,
            role=identity.role,
            by_roles=joined_by(self._plans.settings) == "roles",
            bundle=bundle,
            opts=self._on_aws,
        )

    def _join(self, control_plane: ControlPlanePart | None, bundle: NodeBundle | None) -> pulumi.Output[Any] | None:
        """What an instance does at its boot to become a node; ``None`` where another party sees to that."""
        settings = self._plans.settings
        by = joined_by(settings)
        if control_plane and by == "roles":
            return join_of(settings, cluster=self._plans.policy.cluster, control_plane=control_plane, bundle=bundle)
        return eks_join_of(control_plane) if control_plane and by == "nodeadm" else None

    def _node_group(self, entry: GroupEntry, identity: NodeIdentity, join: pulumi.Output[Any] | None) -> NodeGroupArgs:
        """An entry of the policy, with what was looked up of its first type."""
        policy, settings, network = self._plans.policy, self._plans.settings, self._where()
        image, shape = self._ahead.node_images[entry.types[0]], self._ahead.shapes[entry.types[0]]
        return NodeGroupArgs(
            cluster=policy.cluster,
            region=policy.region,
            entry=entry,
            reserved=policy.scale_up.reserve,
            subnets=network.subnets,
            security_group_id=network.node_security_group_id,
            instance_profile_arn=identity.instance_profile_arn,
            image_id=image.id,
            root_device=image.root_device,
            join=join,
            gpus=shape.gpus,
            kms_key_id=settings.nodes.kms_key,
            adapters=adapters_of(entry, self._ahead.shapes),
            first_adapter_card=first_adapter_card(entry),
            scale_in_protection=settings.nodes.scale_in_protection,
            termination_wait=settings.nodes.termination_wait,
            tags=self._tags | instance_tags(policy.cluster, by=joined_by(settings)),
        )

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
        settings = plans.settings.network
        vpc = tuple(str(one.network) for one in networks_of(self._ahead.vpc)) if self._ahead.vpc else (settings.cidr,)
        args = ConnectivityArgs(
            cluster=plans.policy.cluster,
            region=plans.policy.region,
            settings=wanted,
            network=self._where(),
            vpc=vpc,
            on_prem=settings.on_prem,
            image_id=self._ahead.gateway_image.id if self._ahead.gateway_image else "",
        )
        self.fields |= connect(f"{plans.policy.cluster}-on-prem", args, opts=self._on_aws)

    def make_release(self) -> None:
        """The autoscaler in the cluster."""
        from stacks.release.component import AutoscalerRelease  # noqa: PLC0415 - Kubernetes' types are slow to import

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


_MAKE: Final[Mapping[str, Callable[[_Built], None]]] = {
    "network": _Built.make_network,
    "control-plane": _Built.make_control_plane,
    "node-pools": _Built.make_node_pools,
    "on-prem": _Built.make_on_prem,
    "release": _Built.make_release,
}
"""What makes each part, in the order in which one needs another."""
