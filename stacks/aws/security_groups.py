"""A security group with its rules, each a resource of its own, and nobody else's beside them once it is closed."""

from __future__ import annotations

from typing import Any

import pulumi
import pulumi_aws as aws


class SecurityGroup:
    """One that is made, and filled rule by rule.

    A rule that somebody adds in the console is no resource of the stack, so no refresh would see it. :meth:`close`
    declares that the rules given so far are all: another one is drift then, and `pulumi up` revokes it.
    """

    id: pulumi.Output[str]

    def __init__(self, name: str, description: str, *, vpc_id: pulumi.Input[str], opts: pulumi.ResourceOptions) -> None:
        self._name, self._opts = name, opts
        self._ingress: list[pulumi.Output[str]] = []
        self._egress: list[pulumi.Output[str]] = []
        self.id = aws.ec2.SecurityGroup(
            name,
            description=description,
            vpc_id=vpc_id,
            revoke_rules_on_delete=True,
            tags={"Name": name},
            opts=opts,
        ).id

    def let_in(
        self, name: str, description: str, *, port: int | None = None, protocol: str = "", **source: Any
    ) -> None:
        """Lets in ``cidr_ipv4`` or ``referenced_security_group_id``, on one port, or on all.

        Where no protocol is named, by TCP on one port, and by every protocol on all.
        """
        rule = aws.vpc.SecurityGroupIngressRule(
            name,
            security_group_id=self.id,
            ip_protocol=protocol or ("tcp" if port else "-1"),
            from_port=port,
            to_port=port,
            description=description,
            opts=self._opts,
            **source,
        )
        self._ingress.append(rule.id)

    def let_out(self, name: str, description: str | None = None, **target: Any) -> None:
        """Lets out to ``cidr_ipv4`` or ``referenced_security_group_id``, on every port."""
        rule = aws.vpc.SecurityGroupEgressRule(
            name,
            security_group_id=self.id,
            ip_protocol="-1",
            description=description,
            opts=self._opts,
            **target,
        )
        self._egress.append(rule.id)

    def close(self) -> None:
        """Takes away every rule that is not made here."""
        aws.ec2.VpcSecurityGroupRulesExclusive(
            self._name,
            security_group_id=self.id,
            ingress_rule_ids=self._ingress,
            egress_rule_ids=self._egress,
            opts=self._opts,
        )
