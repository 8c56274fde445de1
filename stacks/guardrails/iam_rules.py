"""The rules for IAM: policies that give too much, and roles that anything may take on. No Pulumi is imported."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

_POLICIES: Final = frozenset(
    {
        *("aws:iam/rolePolicy:RolePolicy", "aws:iam/userPolicy:UserPolicy", "aws:iam/groupPolicy:GroupPolicy"),
        *("aws:iam/policy:Policy", "aws:ssoadmin/permissionSetInlinePolicy:PermissionSetInlinePolicy"),
    }
)
_ROLE: Final = "aws:iam/role:Role"
_ATTACHMENTS: Final = frozenset(
    {
        *("aws:iam/rolePolicyAttachment:RolePolicyAttachment", "aws:iam/userPolicyAttachment:UserPolicyAttachment"),
        *("aws:iam/groupPolicyAttachment:GroupPolicyAttachment", "aws:iam/policyAttachment:PolicyAttachment"),
    }
)
_ALL_OF_IT: Final = ("AdministratorAccess", "PowerUserAccess", "IAMFullAccess")
_LOOKING: Final = ("Describe", "Get", "List", "Check", "BatchGet", "BatchCheck")
_SECRETS: Final = ("s3:GetObject", "ssm:GetParameter", "secretsmanager:GetSecretValue", "sts:GetFederationToken")
"""Begin like looking, and hand over what is kept."""
_NEVER_NARROWED: Final = (
    *("ec2messages:", "ssmmessages:", "ssm:UpdateInstanceInformation", "ssm:UpdateInstanceAssociationStatus"),
    *("ssm:UpdateAssociationStatus", "ssm:PutInventory", "ssm:PutComplianceItems", "cloudwatch:PutMetricData"),
)
"""Writes of Session Manager's agent and the like, for which AWS knows no resource."""


def rights_without_bounds(kind: str, inputs: Mapping[str, Any]) -> Iterator[str]:
    """A policy of every action or on every resource, and a role that anything may take on."""
    attached = [inputs.get("policyArn")] if kind in _ATTACHMENTS else []
    attached += inputs.get("managedPolicyArns") or () if kind == _ROLE else ()
    for arn in attached:
        if str(arn).endswith(tuple(f"/{name}" for name in _ALL_OF_IT)):
            yield f"{arn} is attached, whose rights have no bounds: name the actions and resources that are needed"
    texts = [inputs.get("policy", inputs.get("inlinePolicy"))] if kind in _POLICIES else []
    if kind == _ROLE:
        texts = [one.get("policy") for one in inputs.get("inlinePolicies") or ()]
        for statement in _statements(inputs.get("assumeRolePolicy")):
            yield from _too_trusting(statement)
    for text in texts:
        for number, statement in enumerate(_statements(text)):
            yield from _too_wide(statement, str(statement.get("Sid") or number))


def _too_trusting(statement: Mapping[str, Any]) -> Iterator[str]:
    principal = statement.get("Principal")
    named = _listed(principal.get("AWS")) if isinstance(principal, Mapping) else _listed(principal)
    if "NotPrincipal" in statement or "*" in named:
        yield (
            "assumeRolePolicy trusts everything (Principal '*'): name the service, the account or the role that may "
            "take it on"
        )


def _too_wide(statement: Mapping[str, Any], sid: str) -> Iterator[str]:
    if "NotAction" in statement or "NotResource" in statement:
        yield f"statement {sid} allows whatever it does not name (NotAction, NotResource): name what it allows"
        return
    actions, everything = _listed(statement.get("Action")), "*" in _listed(statement.get("Resource"))
    for action in actions:
        if action in ("*", "*:*") or action.lower() == "iam:*":
            yield f"statement {sid} allows {action}: name the actions that are needed"
        elif everything and not statement.get("Condition") and not _only_looks(action):
            yield f"statement {sid} allows {action} on every resource: name the resources, or bind it by a Condition"


def _only_looks(action: str) -> bool:
    if any(action.startswith(one) for one in _NEVER_NARROWED):
        return True
    verb = action.partition(":")[2]
    hands_over = any(secret.startswith(action.rstrip("*")) or action.startswith(secret) for secret in _SECRETS)
    return (verb.startswith(_LOOKING) and not hands_over) or action in _WITHOUT_RESOURCE


_WITHOUT_RESOURCE: Final = ("ecr:GetAuthorizationToken", "ecr:GetDownloadUrlForLayer", "logs:CreateLogDelivery")


def _statements(text: Any) -> list[Mapping[str, Any]]:
    """Those that allow; none of a text that is not known yet, or is no policy, which AWS refuses."""
    try:
        document = json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return []
    found = document.get("Statement") if isinstance(document, Mapping) else None
    listed = [found] if isinstance(found, Mapping) else found or []
    return [one for one in listed if isinstance(one, Mapping) and one.get("Effect") == "Allow"]


def _listed(value: Any) -> list[str]:
    if value is None:
        return []
    return [str(one) for one in value] if isinstance(value, list) else [str(value)]
