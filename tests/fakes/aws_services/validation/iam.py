"""What IAM refuses: names, sizes and documents of policies; and misspelt rights, which IAM itself takes without a word.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_grammar.html
https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html
"""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final

from botocore.exceptions import UnknownServiceError

from stacks.local.wire.aws_protocol import Refused
from tests.fakes.aws_services.validation.lookups import Known

_TRUST_SIZE, _INLINE_SIZE, _MANAGED_SIZE = 2048, 10240, 6144
"""Characters without white space."""
_VERSIONS: Final = ("2012-10-17", "2008-10-17")
_KEYS: Final = frozenset(
    {"Sid", "Effect", "Action", "NotAction", "Resource", "NotResource", "Principal", "NotPrincipal", "Condition"}
)
_NAME: Final = re.compile(r"[\w+=,.@-]+")
_SID: Final = re.compile(r"[0-9A-Za-z]*")
_ACTION: Final = re.compile(r"\*|[a-z0-9-]+:[A-Za-z0-9*?]+")
_ARN: Final = re.compile(r"\*|arn:[^:]*:[^:]*:[^:]*:[^:]*:.+")
_SERVICE: Final = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)*\.amazonaws\.com(\.cn)?")
_NOT_OPERATIONS: Final[Mapping[str, frozenset[str]]] = {
    # Rights of services whose names are not those of an API operation:
    # https://docs.aws.amazon.com/service-authorization/latest/reference
    "ecr": frozenset({"BatchImportUpstreamImage"}),  # what a pull-through cache does
    "ec2": frozenset({"RunInstances"}),
    "iam": frozenset({"PassRole"}),
    "logs": frozenset({"CreateLogDelivery", "DeleteLogDelivery"}),  # of flow logs that go to S3
    "s3": frozenset(
        {
            *("ListBucket", "ListBucketVersions", "ListAllMyBuckets", "PutLifecycleConfiguration"),
            *("PutEncryptionConfiguration", "PutBucketPublicAccessBlock", "DeleteObjectVersion"),
            *("TagResource", "UntagResource"),  # operations of S3 Control
        }
    ),
    "kms": frozenset({"ReEncryptFrom", "ReEncryptTo"}),
    "ssm": frozenset(
        {
            *("UpdateInstanceInformation", "GetManifest", "PutConfigurePackageResult", "PutInventory"),
            *("ListInstanceAssociations", "UpdateInstanceAssociationStatus"),
        }
    ),
    "eks": frozenset({"AccessKubernetesApi"}),
}
_NO_API: Final = frozenset({"ssmmessages", "ec2messages"})
"""Services that have rights and no public API."""


def check_iam(action: str, asked: Mapping[str, Any]) -> None:
    """Raise ``Refused`` where IAM would, or where a right is granted that no service has."""
    check = _CHECKS.get(action)
    if check is not None:
        check(asked)


def check_trust(action: str, asked: Mapping[str, Any], known: Known) -> None:
    """Raise ``Refused`` where a role would be trusted to a principal that there is not."""
    trust = asked.get("PolicyDocument" if action == "UpdateAssumeRolePolicy" else "AssumeRolePolicyDocument")
    if trust and action in ("CreateRole", "UpdateAssumeRolePolicy"):
        _principals_there(_statements(str(trust)), known)


def check_resource_policy(text: str, known: Known, *, code: str) -> None:
    """Raise ``Refused`` with this code for a policy of a key or a bucket that the service would not take."""
    try:
        statements = list(_statements(text))
        for statement in statements:
            if "Principal" not in statement and "NotPrincipal" not in statement:
                raise _malformed("Missing required field Principal")
            if ("Resource" in statement) == ("NotResource" in statement):
                raise _malformed("Missing required field Resource")
            _principals(statement.get("Principal"))
        _principals_there(statements, known)
    except Refused as wrong:
        raise Refused(code, str(wrong)) from None


def check_key_policy(asked: Mapping[str, Any], known: Known) -> None:
    """Of KMS; without one a key has AWS's own."""
    if asked.get("Policy"):
        check_resource_policy(str(asked["Policy"]), known, code="MalformedPolicyDocumentException")


def _principals_there(statements: Iterable[Mapping[str, Any]], known: Known) -> None:
    """A role or a user that is gone, or that is not there yet, is no principal; those of other accounts are not known.

    https://docs.aws.amazon.com/IAM/latest/UserGuide/troubleshoot_roles.html
    """
    for statement in statements:
        principal = statement.get("Principal")
        for arn in _strings(principal.get("AWS", [])) if isinstance(principal, Mapping) else ():
            if not known.has_principal(arn):
                raise _malformed(f'Invalid principal in policy: "AWS":"{arn}"')


def _create_role(asked: Mapping[str, Any]) -> None:
    _name(asked.get("RoleName"), where="roleName", most=64)
    _between(asked.get("MaxSessionDuration"), where="maxSessionDuration", least=3600, most=43200)
    if len(str(asked.get("Description", ""))) > 1000:
        raise _invalid("description", "Member must have length less than or equal to 1000")
    _trust(str(asked.get("AssumeRolePolicyDocument", "")))


def _update_trust(asked: Mapping[str, Any]) -> None:
    _trust(str(asked.get("PolicyDocument", "")))


def _put_role_policy(asked: Mapping[str, Any]) -> None:
    _name(asked.get("PolicyName"), where="policyName", most=128)
    text = str(asked.get("PolicyDocument", ""))
    if _size(text) > _INLINE_SIZE:
        message = f"Maximum policy size of {_INLINE_SIZE} bytes exceeded for role {asked.get('RoleName', '')}"
        raise Refused("LimitExceeded", message, status=409)
    _rights(text)


def _create_policy(asked: Mapping[str, Any]) -> None:
    _name(asked.get("PolicyName"), where="policyName", most=128)
    text = str(asked.get("PolicyDocument", ""))
    if _size(text) > _MANAGED_SIZE:
        raise Refused("LimitExceeded", f"Cannot exceed quota for PolicySize: {_MANAGED_SIZE}", status=409)
    _rights(text)


def _create_profile(asked: Mapping[str, Any]) -> None:
    _name(asked.get("InstanceProfileName"), where="instanceProfileName", most=128)


def _trust(text: str) -> None:
    """Who may take the role on: names principals, no resource."""
    if _size(text) > _TRUST_SIZE:
        raise Refused("LimitExceeded", f"Cannot exceed quota for ACLSizePerRole: {_TRUST_SIZE}", status=409)
    for statement in _statements(text):
        if "Resource" in statement or "NotResource" in statement:
            raise _malformed("Has prohibited field Resource")
        if "Principal" not in statement and "NotPrincipal" not in statement:
            raise _malformed("Missing required field Principal")
        for action in _actions(statement):
            if not action.startswith("sts:"):
                raise _malformed("AssumeRole policy may only specify STS AssumeRole actions.")
        _principals(statement.get("Principal"))


def _rights(text: str) -> None:
    """What whoever has the policy may do: names resources, no principal."""
    for statement in _statements(text):
        if "Principal" in statement or "NotPrincipal" in statement:
            raise _malformed("Policy document should not specify a principal.")
        if ("Resource" in statement) == ("NotResource" in statement):
            raise _malformed("Policy statement must contain resources.")
        for resource in _strings(statement.get("Resource", statement.get("NotResource"))):
            if not _ARN.fullmatch(resource):
                raise _malformed(f'Resource {resource} must be in ARN format or "*".')
        for action in _actions(statement):
            _check_action(action)


def _statements(text: str) -> Iterator[Mapping[str, Any]]:
    try:
        document = json.loads(text)
    except ValueError:
        raise _malformed("This policy contains invalid Json") from None
    if not isinstance(document, dict) or document.get("Version", _VERSIONS[1]) not in _VERSIONS:
        raise _malformed("The policy must contain a valid version string")
    listed = document.get("Statement")
    statements = [listed] if isinstance(listed, dict) else listed
    if not statements or not all(isinstance(one, dict) for one in statements):
        raise _malformed("Syntax errors in policy.")
    sids = [one["Sid"] for one in statements if one.get("Sid")]
    if len(set(sids)) != len(sids):
        raise _malformed("Statement IDs (SID) in a single policy must be unique.")
    for statement in statements:
        _check_form(statement)
        yield statement


def _check_form(statement: Mapping[str, Any]) -> None:
    if statement.keys() - _KEYS:
        raise _malformed("Syntax errors in policy.")
    if statement.get("Effect") not in ("Allow", "Deny"):
        raise _malformed("Invalid effect: " + str(statement.get("Effect")))
    if not _SID.fullmatch(str(statement.get("Sid", ""))):
        raise _malformed("Statement IDs (SID) must be alpha-numeric. Check that your input satisfies [0-9A-Za-z]*.")
    if ("Action" in statement) == ("NotAction" in statement) or not _actions(statement):
        raise _malformed("Policy statement must contain actions.")
    for action in _actions(statement):
        if not _ACTION.fullmatch(action):
            raise _malformed("Actions/Conditions must be prefaced by a vendor, e.g., iam, sdb, ec2, etc.")


def _principals(principal: Any) -> None:
    if not isinstance(principal, Mapping):
        if principal != "*":
            raise _malformed("Invalid principal in policy.")
        return
    for service in _strings(principal.get("Service", [])):
        if not _SERVICE.fullmatch(service):
            raise _malformed(f'Invalid principal in policy: "SERVICE":"{service}"')


def _check_action(action: str) -> None:
    """IAM stores a right that no service has; it grants nothing, and is missed in production."""
    service, _, name = action.partition(":")
    if action == "*" or service in _NO_API:
        return
    known = rights_of(service)
    if not any(fnmatch.fnmatchcase(one.lower(), name.lower()) for one in known):
        raise _malformed(f"{action} is no right of {service} (IAM itself would take it, and grant nothing by it)")


@cache
def rights_of(service: str) -> frozenset[str]:
    """Names of a service's API operations, which its rights are named after, with those that differ."""
    import botocore.session  # noqa: PLC0415 - slow to import

    by_prefix = {
        "elasticloadbalancing": "elbv2",
        "monitoring": "cloudwatch",
        "ecr": "ecr",
        "servicequotas": "service-quotas",
    }
    try:
        model = botocore.session.get_session().get_service_model(by_prefix.get(service, service))
    except UnknownServiceError:
        return frozenset()
    return frozenset(model.operation_names) | _NOT_OPERATIONS.get(service, frozenset())


def _actions(statement: Mapping[str, Any]) -> list[str]:
    return _strings(statement.get("Action", statement.get("NotAction", [])))


def _strings(value: Any) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else [str(value)]


def _size(text: str) -> int:
    return len("".join(text.split()))


def _name(name: Any, *, where: str, most: int) -> None:
    if not _NAME.fullmatch(str(name or "")):
        raise _invalid(where, "It must contain only alphanumeric characters and/or the following: +=,.@_-")
    if len(str(name)) > most:
        raise _invalid(where, f"Member must have length less than or equal to {most}")


def _between(value: Any, *, where: str, least: int, most: int) -> None:
    if value is not None and not least <= int(value) <= most:
        raise _invalid(where, f"Member must have value between {least} and {most}")


def _invalid(where: str, why: str) -> Refused:
    message = f"1 validation error detected: Value at '{where}' failed to satisfy constraint: {why}"
    return Refused("ValidationError", message)


def _malformed(message: str) -> Refused:
    return Refused("MalformedPolicyDocument", message)


_CHECKS: Final[Mapping[str, Callable[[Mapping[str, Any]], None]]] = {
    "CreateInstanceProfile": _create_profile,
    "CreatePolicy": _create_policy,
    "CreateRole": _create_role,
    "PutRolePolicy": _put_role_policy,
    "UpdateAssumeRolePolicy": _update_trust,
}
