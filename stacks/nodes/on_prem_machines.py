"""The on-prem machines as resources: what a program writes. What becomes of them is in ``stacks/on_prem_provider``.

    machines = Machines("lab", MachinesArgs(cluster="lab", inventory=inventory, kubeconfig=kubeconfig))

Type tokens are ``spillway-onprem:index:...``: they stand in the state of every stack, and stay as they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pulumi

from autoscaler.model import labels as words
from autoscaler.model.constraints import Taint
from stacks.network.parts import ControlPlanePart
from stacks.nodes.eks_node_config import render_hybrid_node_config
from stacks.nodes.user_data import NodeSpec
from stacks.settings.inventory import Inventory, Machine
from stacks.settings.on_prem import MachineSettings
from stacks.settings.outputs import MachineOutput, TaintOutput

PACKAGE = "spillway-onprem"


class OnPremProvider(pulumi.ProviderResource):
    """Where the machines are registered: the API server of a kubeconfig (its content, not its path)."""

    def __init__(
        self, name: str, kubeconfig: pulumi.Input[str] | None, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        secret = None if kubeconfig is None else pulumi.Output.secret(kubeconfig)
        super().__init__(PACKAGE, name, {"kubeconfig": secret}, opts)


class _Resource(pulumi.CustomResource):
    """One of the provider's: its outputs have names of this language."""

    def translate_output_property(self, prop: str) -> str:
        """Returns the name of the property below."""
        return {"joinToken": "join_token", "privateKey": "private_key", "publicKey": "public_key"}.get(prop, prop)


class OnPremMachine(_Resource):
    """One machine of the inventory, as a member of the cluster."""

    def __init__(self, name: str, entry: Mapping[str, Any], opts: pulumi.ResourceOptions | None = None) -> None:
        made = {"found": None, "problems": None, "registered": None, "join_token": None}
        options = pulumi.ResourceOptions(additional_secret_outputs=["joinToken"])
        super().__init__(
            f"{PACKAGE}:index:Machine", name, {**entry, **made}, pulumi.ResourceOptions.merge(options, opts)
        )

    @property
    @pulumi.getter
    def found(self) -> pulumi.Output[Mapping[str, Any]]:
        """What it said of itself: os, kernel, gpus, ..."""
        return pulumi.get(self, "found")  # type: ignore[no-any-return]

    @property
    @pulumi.getter
    def problems(self) -> pulumi.Output[list[str]]:
        """What the last refresh found wrong."""
        return pulumi.get(self, "problems")  # type: ignore[no-any-return]

    @property
    @pulumi.getter
    def registered(self) -> pulumi.Output[bool]:
        """Whether its node was there at the last look."""
        return pulumi.get(self, "registered")  # type: ignore[no-any-return]

    @property
    @pulumi.getter(name="joinToken")
    def join_token(self) -> pulumi.Output[str]:
        """Secret: a bootstrap token that is valid for ten minutes after it was issued."""
        return pulumi.get(self, "join_token")  # type: ignore[no-any-return]


class Key(_Resource):
    """A secret that the provider makes. ``rotate``: any new text makes a new one."""

    _kind: str
    _outputs: tuple[str, ...]
    _secret: tuple[str, ...]

    def __init__(self, name: str, *, rotate: str = "", opts: pulumi.ResourceOptions | None = None) -> None:
        properties: dict[str, Any] = {"rotate": rotate, **dict.fromkeys(self._outputs)}
        options = pulumi.ResourceOptions(additional_secret_outputs=list(self._secret))
        super().__init__(f"{PACKAGE}:index:{self._kind}", name, properties, pulumi.ResourceOptions.merge(options, opts))


class WireguardKey(Key):
    """A pair of keys for one end of a tunnel."""

    _kind, _outputs, _secret = "WireguardKey", ("private_key", "public_key"), ("privateKey",)

    @property
    @pulumi.getter(name="privateKey")
    def private_key(self) -> pulumi.Output[str]:
        """Secret, as `wg genkey` writes it."""
        return pulumi.get(self, "private_key")  # type: ignore[no-any-return]

    @property
    @pulumi.getter(name="publicKey")
    def public_key(self) -> pulumi.Output[str]:
        """What the other end is told."""
        return pulumi.get(self, "public_key")  # type: ignore[no-any-return]


class PresharedKey(Key):
    """A key that both ends of a VPN tunnel know."""

    _kind, _outputs, _secret = "PresharedKey", ("key",), ("key",)

    @property
    @pulumi.getter
    def key(self) -> pulumi.Output[str]:
        """The key, kept as a secret."""
        return pulumi.get(self, "key")  # type: ignore[no-any-return]


@dataclass(frozen=True, kw_only=True)
class MachinesArgs:
    """What the on-prem part of a cluster is made from."""

    cluster: str
    inventory: Inventory
    kubeconfig: pulumi.Input[str] | None
    """Content: of an administrator of the cluster that they join; ``None`` where they become no members."""
    settings: MachineSettings = field(default_factory=MachineSettings)
    member: bool = True
    """Whether each becomes the node of its name, as everywhere but on EKS."""


class Machines(pulumi.ComponentResource):
    """Every machine of an inventory."""

    machines: Mapping[str, OnPremMachine]
    """By name."""

    def __init__(self, name: str, args: MachinesArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("spillway:machines:Machines", name, None, opts)
        provider = OnPremProvider(f"{name}-machines", args.kubeconfig, pulumi.ResourceOptions(parent=self))
        self.machines = {
            machine.name: OnPremMachine(
                machine.name,
                entry_of(machine, args),
                pulumi.ResourceOptions(parent=self, provider=provider),
            )
            for machine in args.inventory.machines
        }
        self.register_outputs({"machines": sorted(self.machines)})


def entry_of(machine: Machine, args: MachinesArgs) -> dict[str, Any]:
    """The properties of one machine's resource."""
    written = machine.model_dump(mode="json", exclude_none=True)
    written["ssh"]["hostKey"] = written["ssh"].pop("host_key")
    settings = args.settings
    return {
        **written,
        "probe": settings.probe or machine.probe,
        "cluster": args.cluster,
        "member": args.member,
        "drainTimeout": settings.drain_timeout,
        "minDiskFree": settings.min_disk_free,
        "forceRemoval": machine.name in settings.force_removal,
        "renewJoin": settings.renew_join,
    }


def hybrid_node_configs(
    control_plane: ControlPlanePart, inventory: Inventory, *, cluster: str, region: str
) -> pulumi.Output[str]:
    """Returns for each machine the file for ``nodeadm`` of EKS hybrid nodes, as one JSON object by name; secret."""

    def told(known: Any) -> str:
        about, code = known
        return json.dumps(
            {
                machine.name: render_hybrid_node_config(
                    _node_spec(machine, cluster), region=region, activation=about.hybrid_activation_id, code=code or ""
                )
                for machine in inventory.machines
            }
        )

    return pulumi.Output.secret(
        pulumi.Output.all(control_plane.about, control_plane.hybrid_activation_code).apply(told)
    )


def _node_spec(machine: Machine, cluster: str) -> NodeSpec:
    taints = tuple(Taint(key=one.key, value=one.value, effect=one.effect) for one in machine.taints)
    labels = {key: value for key, value in machine.node_labels().items() if key not in _SELF_GIVEN}
    of_gpus = {words.GPU_PRESENT: "true"} if machine.gpus else {}
    return NodeSpec(cluster=cluster, labels=labels | of_gpus, taints=taints)


_SELF_GIVEN = {words.HOSTNAME, words.ARCH, words.OS}
"""Labels that a kubelet gives its node; of a hybrid node the host name is that of Systems Manager."""


def describe_machine(machine: Machine) -> MachineOutput:
    """What the stack tells of it, to those who prepare it and connect to it."""
    return MachineOutput(
        name=machine.name,
        address=machine.address,
        ssh_user=machine.ssh.user,
        ssh_port=machine.ssh.port,
        ssh_key=machine.ssh.key,
        ssh_host_key=machine.ssh.host_key,
        labels=machine.node_labels(),
        taints=tuple(TaintOutput(key=one.key, value=one.value, effect=one.effect) for one in machine.taints),
        gpu_product=machine.gpus.product if machine.gpus else "",
        gpus=machine.gpus.count if machine.gpus else 0,
        rack=machine.rack,
        owner=machine.owner,
    )
