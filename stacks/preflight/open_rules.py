"""Rules of the nodes' security group that others wrote and that let the whole internet in: told, where they may stay.

With ``network.rules: own`` such a rule is drift, and goes. With ``shared`` controllers write rules there, which stay;
so one that opens a port to the world is told on every preview.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import pulumi
import pulumi_aws as aws

from autoscaler.model import labels as words

_WORLD: Final = {4: 8, 6: 16}
"""By version: a network with a shorter prefix is the world, also where it is written in two halves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One that lets something in."""

    id: str
    source: str
    """A network; empty where it is a group or a list."""
    ports: str
    cluster: str = ""
    """Whose tag it carries: the stack's own rules carry the cluster's."""


def look_up_rules(group: str, *, provider: aws.Provider) -> list[Rule]:
    """The ways in of a security group."""
    asked = pulumi.InvokeOptions(provider=provider)
    by_group = [{"name": "group-id", "values": [group]}]
    found = aws.vpc.get_security_group_rules(filters=by_group, opts=asked)  # type: ignore[arg-type]
    rules = [aws.vpc.get_security_group_rule(security_group_rule_id=one, opts=asked) for one in found.ids]
    return [_read(rule) for rule in rules if not rule.is_egress]


def tell_open_rules(rules: Iterable[Rule], *, group: str, cluster: str) -> list[str]:
    """One line for each that the whole internet may use and that the stack has not made."""
    return [
        f"{group}, the nodes' security group, has {rule.id}, which opens {rule.ports} to {rule.source}, the whole "
        "internet, and is not this stack's: take it away, or narrow it where it was written (aws ec2 "
        f"revoke-security-group-ingress --group-id {group} --security-group-rule-ids {rule.id})"
        for rule in rules
        if rule.cluster != cluster and _is_world(rule.source)
    ]


def _read(rule: aws.vpc.GetSecurityGroupRuleResult) -> Rule:
    every = str(rule.ip_protocol) == "-1"
    ports = "every port" if every else f"ports {rule.from_port} to {rule.to_port} ({rule.ip_protocol})"
    cluster = (rule.tags or {}).get(words.TAG_CLUSTER, "")
    return Rule(
        id=rule.security_group_rule_id, source=rule.cidr_ipv4 or rule.cidr_ipv6 or "", ports=ports, cluster=cluster
    )


def _is_world(source: str) -> bool:
    if not source:
        return False
    network = ipaddress.ip_network(source, strict=False)
    return network.prefixlen < _WORLD[network.version]
