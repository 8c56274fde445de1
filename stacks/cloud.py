"""The program: everything of one cluster on AWS, as one stack."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from autoscaler import labels as words
from autoscaler.policy import Policy, read_policy
from stacks.config import Settings
from stacks.inventory import Inventory, read_inventory
from stacks.network import Network, NetworkArgs, check_zones
from stacks.node_groups import NodeGroup, NodeGroupArgs, NodeIdentity, check_groups, describe_groups
from stacks.outputs import MachineOutput, StackOutputs, as_exports


@dataclass(frozen=True, kw_only=True)
class Plans:
    """The files that a stack is made from, read and checked."""

    settings: Settings
    policy: Policy
    inventory: Inventory

    @property
    def zones(self) -> tuple[str, ...]:
        """All zones that the policy names, in order."""
        return tuple(sorted({zone for entry in self.policy.groups for zone in entry.zones}))


def read_plans(settings: Settings) -> Plans:
    """Read all files, and check them against each other before anything is made. Raises ``BadInput``."""
    policy = read_policy(settings.policy_path)
    path = settings.inventory_path
    inventory = read_inventory(path) if path else Inventory(machines=())
    plans = Plans(settings=settings, policy=policy, inventory=inventory)
    check_groups(policy, source=str(settings.policy_path))
    check_zones(plans.zones)
    return plans


def build(plans: Plans) -> pulumi.Output[StackOutputs]:
    """Declare every resource of the cluster; gives what the stack exports."""
    policy, settings = plans.policy, plans.settings
    tags = {**settings.tags, words.TAG_CLUSTER: policy.cluster, "spillway.dev/made-by": "pulumi"}
    provider = aws.Provider("aws", region=policy.region, default_tags={"tags": tags})
    on_aws = pulumi.ResourceOptions(providers=[provider])
    network = Network(
        policy.cluster,
        NetworkArgs(
            cidr=ipaddress.IPv4Network(settings.network.cidr),
            zones=plans.zones,
            nat=settings.network.nat,
            trusted=settings.network.trusted,
        ),
        opts=on_aws,
    )
    identity = NodeIdentity(f"{policy.cluster}-node", cluster=policy.cluster, opts=on_aws)
    image_id, root_device = _image(settings.nodes.ami, provider=provider)
    for entry in policy.groups:
        NodeGroup(
            entry.name,
            NodeGroupArgs(
                cluster=policy.cluster,
                region=policy.region,
                entry=entry,
                subnets=network.subnets,
                security_group_id=network.node_security_group_id,
                instance_profile_arn=identity.instance_profile_arn,
                image_id=image_id,
                root_device=root_device,
                scale_in_protection=settings.nodes.scale_in_protection,
                tags=tags,
            ),
            opts=on_aws,
        )
    return _outputs(plans, network)


def export(outputs: pulumi.Output[StackOutputs]) -> None:
    """Each field of the record as one output of the stack."""
    plain = outputs.apply(as_exports)
    for name in StackOutputs.__struct_encode_fields__:
        pulumi.export(name, plain[name])


def _image(ami: str, *, provider: aws.Provider) -> tuple[pulumi.Output[str], pulumi.Output[str]]:
    """The image's id, and the name of its root device, without which a launch template adds a second disk."""
    options = pulumi.InvokeOutputOptions(provider=provider)
    image_id: pulumi.Output[str] = pulumi.Output.from_input(ami)
    if ami.startswith("ssm:"):
        image_id = aws.ssm.get_parameter_output(name=ami.removeprefix("ssm:"), opts=options).value
    by_id = image_id.apply(lambda one: [aws.ec2.GetAmiFilterArgs(name="image-id", values=[one])])
    image = aws.ec2.get_ami_output(filters=by_id, opts=options)
    return image_id, image.root_device_name


def _outputs(plans: Plans, network: Network) -> pulumi.Output[StackOutputs]:
    policy = plans.policy
    return pulumi.Output.all(
        vpc_id=network.vpc_id,
        subnets=pulumi.Output.all(**network.subnets),
        node_security_group_id=network.node_security_group_id,
    ).apply(
        lambda known: StackOutputs(
            cluster=policy.cluster,
            region=policy.region,
            groups=tuple(group for entry in policy.groups for group in describe_groups(policy.cluster, entry)),
            machines=tuple(
                MachineOutput(name=machine.name, address=machine.address) for machine in plans.inventory.machines
            ),
            **known,
        )
    )
