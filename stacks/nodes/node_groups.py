"""The node groups, read from the policy file that the autoscaler obeys.

Each entry of the policy becomes one launch template, and one Auto Scaling group per zone with its termination hook. The
groups carry tags by which the autoscaler finds them and knows what their nodes will look like while there is none. It
sizes them from then on: the program never sets the desired capacity, and a later ``pulumi up`` leaves it as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import pulumi
import pulumi_aws as aws

from autoscaler.config.group_entry import GroupEntry
from autoscaler.config.policy import asg_name
from autoscaler.config.policy_changes import built_from
from autoscaler.model import labels as words
from autoscaler.model.constraints import Taint
from stacks.aws.boundary import path_of
from stacks.aws.identities import Role
from stacks.aws.trust import trust_of
from stacks.nodes.eks_node_config import EksJoin, render_node_config
from stacks.nodes.launch_templates import launch_template
from stacks.nodes.user_data import Join, NodeSpec, render_user_data
from stacks.settings.outputs import GroupOutput


@dataclass(frozen=True, kw_only=True)
class NodeGroupArgs:
    """What a node group is made from."""

    cluster: str
    region: str
    entry: GroupEntry
    subnets: Mapping[str, pulumi.Input[str]]
    """By zone."""
    security_group_id: pulumi.Input[str]
    instance_profile_arn: pulumi.Input[str]
    image_id: pulumi.Input[str]
    root_device: pulumi.Input[str]
    join: pulumi.Output[Join] | pulumi.Output[EksJoin] | None = None
    """Where the project's own roles, or ``nodeadm``, make nodes of the machines."""
    gpus: int = 0
    """Of one node."""
    reserved: bool = True
    """Nodes join with the taint of reserved nodes (``autoscaler.planner.handoff.reservations``)."""
    kms_key_id: pulumi.Input[str] | None = None
    """Encrypts the volumes; AWS's own key for EBS where none is given."""
    adapters: int = 0
    """Elastic Fabric Adapters of each node."""
    first_adapter_card: int = 0
    """Network card of the first of them."""
    scale_in_protection: bool = True
    termination_wait: timedelta = timedelta(minutes=15)
    """How long an instance that is to end may wait for its jobs."""
    tags: Mapping[str, str]
    """Of instances and volumes: Auto Scaling does not hand the provider's default tags on to them."""


class NodeGroup(pulumi.ComponentResource):
    """One entry of the policy: its launch template, and its Auto Scaling group in each zone."""

    groups: Mapping[str, aws.autoscaling.Group]
    """By zone."""
    described: pulumi.Output[tuple[GroupOutput, ...]]
    """The groups, for the stack's outputs."""

    def __init__(self, name: str, args: NodeGroupArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        before = pulumi.ResourceOptions(aliases=[pulumi.Alias(name=old) for old in args.entry.formerly])
        super().__init__("spillway:nodes:NodeGroup", name, None, pulumi.ResourceOptions.merge(opts, before))
        self._args = args
        template, placement = self._launch_template(name), self._placement_group(name)
        self.groups = {
            zone: self._scaling_group(f"{name}-{zone}", zone, minimum, template, placement)
            for zone, minimum in minimums(args.entry)
        }
        names = pulumi.Output.all(**{zone: group.name for zone, group in self.groups.items()})
        self.described = names.apply(lambda by_zone: describe_groups(args.entry, by_zone))
        self.register_outputs({"groups": names})

    def _launch_template(self, name: str) -> aws.ec2.LaunchTemplate:
        args, entry = self._args, self._args.entry
        own = f"{args.cluster}-{entry.name}"
        return launch_template(
            name,
            physical_name=own,
            entry=entry,
            user_data=self._user_data(),
            image_id=args.image_id,
            root_device=args.root_device,
            instance_profile_arn=args.instance_profile_arn,
            security_group_id=args.security_group_id,
            kms_key_id=args.kms_key_id,
            adapters=args.adapters,
            first_adapter_card=args.first_adapter_card,
            tags={**args.tags, "Name": own, words.TAG_GROUP: entry.name},
            opts=self._named_once,
        )

    def _user_data(self) -> pulumi.Input[str]:
        args = self._args

        def rendered(join: Join | EksJoin | None) -> str:
            return user_data(
                cluster=args.cluster,
                region=args.region,
                entry=args.entry,
                join=join,
                gpus=args.gpus,
                reserved=args.reserved,
            )

        return rendered(None) if args.join is None else args.join.apply(rendered)

    def _placement_group(self, name: str) -> aws.ec2.PlacementGroup | None:
        """Nodes close together on the network: policy entries that ask for it have one zone."""
        args, entry = self._args, self._args.entry
        if entry.placement != "cluster":
            return None
        own = f"{args.cluster}-{entry.name}"
        return aws.ec2.PlacementGroup(name, name=own, strategy="cluster", tags={"Name": own}, opts=self._named_once)

    def _scaling_group(
        self,
        name: str,
        zone: str,
        minimum: int,
        template: aws.ec2.LaunchTemplate,
        placement: aws.ec2.PlacementGroup | None,
    ) -> aws.autoscaling.Group:
        args, entry = self._args, self._args.entry
        version = template.latest_version.apply(str)
        several = len(entry.types) > 1
        group = aws.autoscaling.Group(
            name,
            name=asg_name(args.cluster, entry.name, zone),
            min_size=minimum,
            max_size=entry.max,
            vpc_zone_identifiers=[args.subnets[zone]],
            launch_template=None if several else {"id": template.id, "version": version},
            mixed_instances_policy=mixed_instances_policy(entry, template.id, version) if several else None,
            placement_group=placement.id if placement else None,
            health_check_type="EC2",
            protect_from_scale_in=args.scale_in_protection,
            # Whether instances come is the autoscaler's concern: `up` does not wait for them ...
            wait_for_capacity_timeout="0",
            # ... and `destroy` ends them, protected or not.
            force_delete=True,
            tags=[
                {"key": key, "value": value, "propagate_at_launch": False}
                for key, value in group_tags(args.cluster, args.region, entry, zone, reserved=args.reserved).items()
            ],
            opts=pulumi.ResourceOptions.merge(
                self._named_once, pulumi.ResourceOptions(ignore_changes=["desiredCapacity"])
            ),
        )
        self._termination_hook(name, group)
        return group

    def _termination_hook(self, name: str, group: aws.autoscaling.Group) -> None:
        """An instance that is to end waits until the autoscaler has seen its jobs off, or the time is over."""
        aws.autoscaling.LifecycleHook(
            name,
            name=words.TERMINATION_HOOK,
            autoscaling_group_name=group.name,
            lifecycle_transition="autoscaling:EC2_INSTANCE_TERMINATING",
            default_result="CONTINUE",
            heartbeat_timeout=int(self._args.termination_wait.total_seconds()),
            opts=pulumi.ResourceOptions(parent=self),
        )

    @property
    def _named_once(self) -> pulumi.ResourceOptions:
        """AWS's names cannot be changed: what an entry was called first its resources are called for good.

        Without this a renamed entry's groups would be replaced, with all nodes in them.
        """
        return pulumi.ResourceOptions(parent=self, ignore_changes=["name"])


class NodeIdentity(pulumi.ComponentResource):
    """The role that every node has: pull images, and let Session Manager in; no port is open for it."""

    instance_profile_arn: pulumi.Output[str]
    role: Role
    """Open until the rights to join are given as well."""

    def __init__(self, name: str, *, cluster: str, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("spillway:nodes:NodeIdentity", name, None, opts)
        own = f"{cluster}-node"
        self.role = Role(
            name,
            cluster=cluster,
            called=own,
            trust=trust_of("ec2.amazonaws.com"),
            description=f"Nodes of the cluster {cluster}",
            parent=self,
        )
        self.role.grant(name, "node", NODE_RIGHTS)
        profile = aws.iam.InstanceProfile(
            name, name=own, path=path_of(cluster), role=self.role.name, opts=pulumi.ResourceOptions(parent=self)
        )
        self.instance_profile_arn = profile.arn
        self.register_outputs({"instanceProfileArn": profile.arn})


def describe_groups(entry: GroupEntry, names: Mapping[str, str]) -> tuple[GroupOutput, ...]:
    """The groups of an entry, for the stack's outputs; ``names`` are AWS's, by zone."""
    return tuple(
        GroupOutput(
            name=names[zone],
            entry=entry.name,
            zone=zone,
            instance_type=entry.types[0],
            instance_types=entry.instance_types,
            capacity_type=entry.capacity_type,
            min=minimum,
            max=entry.max,
        )
        for zone, minimum in minimums(entry)
    )


def mixed_instances_policy(
    entry: GroupEntry, template_id: pulumi.Input[str], version: pulumi.Input[str]
) -> aws.autoscaling.GroupMixedInstancesPolicyArgsDict:
    """Returns the policy of a set of types: on demand in the order of the entry, spot where AWS has most to spare.

    No weights: every type counts as one node, as the autoscaler counts it.
    """
    return {
        "instances_distribution": {
            "on_demand_allocation_strategy": "prioritized",
            "on_demand_base_capacity": 0,
            "on_demand_percentage_above_base_capacity": 0 if entry.capacity_type == "spot" else 100,
            "spot_allocation_strategy": "price-capacity-optimized",
        },
        "launch_template": {
            "launch_template_specification": {"launch_template_id": template_id, "version": version},
            "overrides": [{"instance_type": name} for name in entry.types],
        },
    }


def minimums(entry: GroupEntry) -> Iterator[tuple[str, int]]:
    """The entry's minimum spread over its zones, the first zones taking what does not divide."""
    each, rest = divmod(entry.min, len(entry.zones))
    for place, zone in enumerate(entry.zones):
        yield zone, each + (place < rest)


def node_labels(region: str, entry: GroupEntry) -> dict[str, str]:
    """Labels of an entry's nodes, as far as they are the same in every zone and for every type of a set."""
    own = {
        words.ORIGIN: words.EC2,
        words.GROUP: entry.name,
        words.CAPACITY_TYPE: entry.capacity_type,
        **({words.INSTANCE_TYPE: entry.types[0]} if len(entry.types) == 1 else {}),
        words.REGION: region,
        words.OS: "linux",
    }
    return dict(entry.labels) | own


def group_tags(cluster: str, region: str, entry: GroupEntry, zone: str, *, reserved: bool = True) -> dict[str, str]:
    """What the autoscaler reads from a group: whose it is, and what its nodes look like while there is none."""
    labels = node_labels(region, entry) | {words.ZONE: zone}
    taints = [taint.as_taint() for taint in entry.taints]
    return {
        "Name": asg_name(cluster, entry.name, zone),
        words.TAG_CLUSTER: cluster,
        words.TAG_GROUP: entry.name,
        words.TAG_DISK: entry.disk,
        **({words.TAG_RESERVATION: entry.capacity_reservation} if entry.capacity_reservation else {}),
        words.TAG_BUILT_FROM: built_from(entry, region=region, reserved=reserved),
        **{f"{words.TEMPLATE_LABEL}{key}": value for key, value in labels.items()},
        **{f"{words.TEMPLATE_TAINT}{taint.key}": f"{taint.value}:{taint.effect}" for taint in taints},
        **{f"{words.TEMPLATE_RESOURCE}{key}": str(amount) for key, amount in entry.resources.items()},
    }


def user_data(
    *,
    cluster: str,
    region: str,
    entry: GroupEntry,
    join: Join | EksJoin | None = None,
    gpus: int = 0,
    reserved: bool = True,
) -> str:
    """What an entry's machines are told at boot. The zone they know from the instance itself."""
    taints = tuple(Taint(key=one.key, value=one.value, effect=one.effect) for one in entry.taints)
    taints += (Taint(words.RESERVED),) if reserved else ()
    labels = node_labels(region, entry)
    if not isinstance(join, EksJoin):
        return render_user_data(NodeSpec(cluster=cluster, labels=labels, taints=taints, join=join))
    # The roles find GPUs on the machine itself; nodeadm does from Kubernetes 1.35 on, and is told for those before.
    of_gpus = {words.GPU_PRESENT: "true"} if gpus else {}
    max_pods = int(amount) if (amount := entry.resources.get("pods")) is not None else None
    return render_node_config(
        NodeSpec(cluster=cluster, labels=labels | of_gpus, taints=taints), join, max_pods=max_pods
    )


NODE_RIGHTS: Final = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Sid": "PullImages",
            "Effect": "Allow",
            "Action": [
                "ecr:GetAuthorizationToken",
                "ecr:BatchCheckLayerAvailability",
                "ecr:BatchGetImage",
                "ecr:GetDownloadUrlForLayer",
            ],
            "Resource": "*",
        },
        {
            "Sid": "SessionManager",
            "Effect": "Allow",
            "Action": [
                "ssm:UpdateInstanceInformation",
                "ssmmessages:CreateControlChannel",
                "ssmmessages:CreateDataChannel",
                "ssmmessages:OpenControlChannel",
                "ssmmessages:OpenDataChannel",
            ],
            "Resource": "*",
        },
    ],
}
