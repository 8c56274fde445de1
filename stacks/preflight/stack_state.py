"""What a stack has made already, as the engine has it in the stack's state: asked before any resource is declared.

The state alone tells what the files said before: a cluster of another name is nothing that AWS could be asked for.

A component stays in the state, with all that it told, until a `pulumi destroy` has come to its end: after one that
failed half-way its words are of things that are gone. So it counts as long as something stands that it speaks of.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import pulumi
import pulumi.runtime

from autoscaler.model import labels as words
from autoscaler.model.errors import Unavailable
from stacks.settings.stack import Kind

Resources = Mapping[str, Mapping[str, Any]]
"""``type`` and ``outputs`` of each resource, by its URN."""

_READ: Final = "pulumi:pulumi:readStackResourceOutputs"
_PAUSES: Final = (0.1, 0.3, 1.0)
"""Seconds. Where the state lies in a file, the engine may be about to write it again, and it is half there."""
_PROVIDER: Final = "pulumi:providers:aws"
_NETWORK: Final = "spillway:network:Network"
_VPC: Final = "aws:ec2/vpc:Vpc"
_EXISTING_NETWORK: Final = "spillway:network:ExistingNetwork"
_EKS_CLUSTER: Final = "aws:eks/cluster:Cluster"
_GATEWAY: Final = "aws:ec2/natGateway:NatGateway"
_KUBEADM: Final = "spillway:control:Kubeadm"
_PARTS: Final = {
    _NETWORK: "network",
    _EXISTING_NETWORK: "network",
    "spillway:control:Existing": "control-plane",
    "spillway:control:Eks": "control-plane",
    _KUBEADM: "control-plane",
    "spillway:nodes:NodeIdentity": "node-pools",
    "spillway:machines:Machines": "on-prem",
    "spillway:release:Autoscaler": "release",
}
_HELD_BY: Final[Mapping[Kind, str]] = {
    "existing": "spillway:control:Existing",
    "eks": _EKS_CLUSTER,
    "kubeadm": "aws:ebs/volume:Volume",
}
"""What of each kind cannot be had again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingStack:
    """What its files said when it was last brought up."""

    cluster: str
    region: str
    parts: frozenset[str] = frozenset()
    """As programs are called: ``network``, ``control-plane`` ..."""
    kind: Kind | None = None
    """Of the control plane."""
    vpc_id: str = ""
    cidr: str = ""
    """Of a VPC that the stack made; empty where it was there before."""
    node_security_group: str = ""
    """Its id."""
    zones: tuple[str, ...] = ()
    """With a subnet of the nodes."""
    gateways: tuple[str, ...] = ()
    """Zones that have a NAT gateway."""
    secrets_key: str = ""
    """ARN of the KMS key of an EKS cluster's Secrets."""
    makes_secrets_key: bool = False
    """Whether that is the stack's own."""
    expires: str = ""
    """Until when on-prem machines of an EKS cluster may register."""
    networks: Mapping[str, str] = field(default_factory=dict)
    """Of pods and services in a kubeadm cluster, by their keys in the stack file."""
    names: tuple[str, ...] | None = None
    """Further ones in the certificate that a kubeadm cluster was founded with; ``None`` where none was founded."""


def look_up_stack() -> StandingStack | None:
    """What this stack's state has; ``None`` where it has made nothing yet. Raises ``Unavailable``."""
    name = f"{pulumi.get_organization()}/{pulumi.get_project()}/{pulumi.get_stack()}"
    pauses = iter(_PAUSES)
    while True:
        try:
            asked = pulumi.runtime.invoke(_READ, {"stackName": name})
        except Exception as error:  # noqa: BLE001 - a failed look-up has no type of its own
            pause = next(pauses, None)
            if pause is None:
                raise Unavailable(f"the engine does not tell what the stack {name} has made: {error}") from None
            time.sleep(pause)
        else:
            return standing_in((asked.value or {}).get("outputs") or {})


def standing_in(resources: Resources) -> StandingStack | None:
    """The same, of such a state."""
    made = {str(one["type"]) for one in resources.values()}
    if not any(one.startswith("aws:") for one in made):
        return None
    cluster, region = _provider_of(resources)
    kind = next((kind for kind, token in _HELD_BY.items() if token in made), None)
    network = next(_outputs(resources, *filter(partial(_holds, resources), (_NETWORK, _EXISTING_NETWORK))), {})
    eks = next(_outputs(resources, _EKS_CLUSTER), {})
    kubeadm = next(_outputs(resources, _KUBEADM), {}) if kind == "kubeadm" else {}
    return StandingStack(
        cluster=cluster,
        region=region,
        parts=frozenset(part for token, part in _PARTS.items() if token in made and _holds(resources, token)),
        kind=kind,
        vpc_id=network.get("vpcId") or "",
        cidr=next(_outputs(resources, _VPC), {}).get("cidrBlock") or "",
        node_security_group=network.get("nodeSecurityGroupId") or "",
        zones=tuple(sorted(network.get("subnets") or {})),
        gateways=tuple(sorted(_name(urn).rpartition("-nat-")[2] for urn in _urns(resources, _GATEWAY))),
        secrets_key=((eks.get("encryptionConfig") or {}).get("provider") or {}).get("keyArn") or "",
        makes_secrets_key=any(_name(urn).endswith("-eks-secrets") for urn in _urns(resources, "aws:kms/key:Key")),
        expires=next(_outputs(resources, "aws:ssm/activation:Activation"), {}).get("expirationDate") or "",
        networks=kubeadm.get("networks") or {},
        names=tuple(kubeadm["names"]) if "names" in kubeadm else None,
    )


def _provider_of(resources: Resources) -> tuple[str, str]:
    """Cluster and region of the one by which all else was made.

    It is in the state as soon as it is declared, also by a program that fails afterwards: so none is declared
    before this was asked.
    """
    for outputs in _outputs(resources, _PROVIDER):
        given = outputs.get("defaultTags")
        tags = (json.loads(given) if isinstance(given, str) else given or {}).get("tags", {})
        if words.TAG_CLUSTER in tags:
            return str(tags[words.TAG_CLUSTER]), str(outputs.get("region", ""))
    return "", ""


def _holds(resources: Resources, component: str) -> bool:
    """Whether anything stands that the component made; of a network of its own, the VPC."""
    chains = [(urn.split("::")[2].split("$"), str(one["type"])) for urn, one in resources.items()]
    below = {token for chain, token in chains if component in chain[:-1] and not token.startswith("spillway:")}
    return _VPC in below if component == _NETWORK else bool(below)


def _urns(resources: Resources, *tokens: str) -> Iterator[str]:
    return (urn for urn, one in sorted(resources.items()) if one["type"] in tokens)


def _outputs(resources: Resources, *tokens: str) -> Iterator[Mapping[str, Any]]:
    return (resources[urn].get("outputs") or {} for urn in _urns(resources, *tokens))


def _name(urn: str) -> str:
    return urn.rpartition("::")[2]
