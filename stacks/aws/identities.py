"""Roles and users of a cluster: under its path in IAM, inside its boundary, with no right but those given."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pulumi
import pulumi_aws as aws

from stacks.aws.boundary import boundary_arn, path_of


class Role:
    """One that is made, and given its rights one by one.

    A policy that somebody adds by hand is no resource of the stack, so no refresh would see it. :meth:`close` declares
    that the rights given so far are all: another one is drift then, and `pulumi up` takes it away.
    """

    name: pulumi.Output[str]
    arn: pulumi.Output[str]

    def __init__(
        self,
        name: str,
        *,
        cluster: str,
        called: pulumi.Input[str],
        trust: pulumi.Input[str] | Mapping[str, Any],
        description: str,
        parent: pulumi.Resource,
    ) -> None:
        """``called``: its name in IAM; ``trust``: the document of what may take it on."""
        self._name, self._child = name, pulumi.ResourceOptions(parent=parent)
        self._inline: list[aws.iam.RolePolicy] = []
        self._attached: list[aws.iam.RolePolicyAttachment] = []
        made = aws.iam.Role(
            name,
            name=called,
            path=path_of(cluster),
            permissions_boundary=boundary(cluster, parent=parent),
            assume_role_policy=json.dumps(trust) if isinstance(trust, Mapping) else trust,
            description=description,
            force_detach_policies=True,  # what others attached must not stop a destroy
            opts=self._child,
        )
        self.name, self.arn = made.name, made.arn

    def grant(
        self,
        name: str,
        policy: str,
        document: pulumi.Input[str] | Mapping[str, Any],
        *,
        parent: pulumi.Resource | None = None,
    ) -> aws.iam.RolePolicy:
        """An inline policy, called ``policy``; ``name`` is the resource's, which stands under the role's own parent."""
        text = json.dumps(document) if isinstance(document, Mapping) else document
        opts = pulumi.ResourceOptions(parent=parent) if parent else self._child
        made = aws.iam.RolePolicy(name, name=policy, role=self.name, policy=text, opts=opts)
        self._inline.append(made)
        return made

    def attach(self, name: str, policy_arn: str) -> aws.iam.RolePolicyAttachment:
        """A policy of AWS's own."""
        made = aws.iam.RolePolicyAttachment(name, role=self.name, policy_arn=policy_arn, opts=self._child)
        self._attached.append(made)
        return made

    def close(self) -> None:
        """Takes away every right that is not given here."""
        aws.iam.RolePoliciesExclusive(
            self._name, role_name=self.name, policy_names=[one.name for one in self._inline], opts=self._child
        )
        aws.iam.RolePolicyAttachmentsExclusive(
            self._name, role_name=self.name, policy_arns=[one.policy_arn for one in self._attached], opts=self._child
        )


def boundary(cluster: str, *, parent: pulumi.Resource) -> pulumi.Output[str]:
    """ARN of the cluster's permissions boundary in the account that is deployed to."""
    caller = aws.get_caller_identity_output(opts=pulumi.InvokeOutputOptions(parent=parent))
    return caller.apply(
        lambda who: boundary_arn(account=who.account_id, partition=who.arn.split(":")[1], cluster=cluster)
    )
