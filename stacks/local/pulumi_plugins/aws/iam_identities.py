"""Attached policies, trusted issuers and users of IAM, as the stand-in for the aws plugin serves them."""

# ruff: noqa: ARG002 - every kind has the same methods, whatever it needs of what it is given
# ruff: noqa: D102 - they are documented once, in `Kind`
# ruff: noqa: S105 - a token is the name of a type here

from __future__ import annotations

from typing import ClassVar, Final

from stacks.local.pulumi_plugins.aws.iam import InlinePolicy
from stacks.local.pulumi_plugins.aws.kinds import Cloud, Kind, Properties, Tags, found, given, listed, tags_of


class RolePolicyAttachment(Kind):
    """A policy of AWS, given to a role."""

    token = "aws:iam/rolePolicyAttachment:RolePolicyAttachment"
    inputs = frozenset({"role", "policyArn"})
    fixed = inputs
    tagged = False

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        cloud.iam.attach_role_policy(RoleName=wanted["role"], PolicyArn=wanted["policyArn"])
        return f"{wanted['role']}-{wanted['policyArn']}"

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        role, _, policy = key.partition("-arn:")
        attached = found(cloud.iam.list_attached_role_policies, "AttachedPolicies", RoleName=role) or []
        here = f"arn:{policy}" in [one["PolicyArn"] for one in attached]
        return {"role": role, "policyArn": f"arn:{policy}"} if here else None

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        cloud.iam.detach_role_policy(RoleName=state["role"], PolicyArn=state["policyArn"])


class _Exclusive(Kind):
    """That a role has these policies, and no others. It is nothing in AWS: to delete it changes nothing there."""

    tagged = False
    listed_as: ClassVar[str]
    """The property with what the role has."""

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        key: str = wanted["roleName"]
        self.update(cloud, key, {}, wanted)
        return key

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        if found(cloud.iam.get_role, "Role", RoleName=key) is None:
            return None
        return {"roleName": key, self.listed_as: self.standing(cloud, key)}

    def update(self, cloud: Cloud, key: str, old: Properties, new: Properties) -> None:
        for one in sorted(set(self.standing(cloud, key)) - set(new[self.listed_as])):
            self.take_away(cloud, key, one)

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        """No policy goes."""

    def standing(self, cloud: Cloud, role: str) -> list[str]:
        """What the role has."""
        raise NotImplementedError

    def take_away(self, cloud: Cloud, role: str, policy: str) -> None:
        """One that is not among them."""
        raise NotImplementedError


class RolePoliciesExclusive(_Exclusive):
    """Of those that are written into it, by their names."""

    token = "aws:iam/rolePoliciesExclusive:RolePoliciesExclusive"
    inputs = frozenset({"roleName", "policyNames"})
    fixed = frozenset({"roleName"})
    unordered = frozenset({"policyNames"})
    listed_as = "policyNames"

    def standing(self, cloud: Cloud, role: str) -> list[str]:
        return list(cloud.iam.list_role_policies(RoleName=role)["PolicyNames"])

    def take_away(self, cloud: Cloud, role: str, policy: str) -> None:
        cloud.iam.delete_role_policy(RoleName=role, PolicyName=policy)


class RolePolicyAttachmentsExclusive(_Exclusive):
    """Of those that are attached to it, by their ARNs."""

    token = "aws:iam/rolePolicyAttachmentsExclusive:RolePolicyAttachmentsExclusive"
    inputs = frozenset({"roleName", "policyArns"})
    fixed = frozenset({"roleName"})
    unordered = frozenset({"policyArns"})
    listed_as = "policyArns"

    def standing(self, cloud: Cloud, role: str) -> list[str]:
        attached = cloud.iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"]
        return [one["PolicyArn"] for one in attached]

    def take_away(self, cloud: Cloud, role: str, policy: str) -> None:
        cloud.iam.detach_role_policy(RoleName=role, PolicyArn=policy)


class OpenIdConnectProvider(Kind):
    """An issuer whose tokens roles may trust. Its id is its ARN."""

    token = "aws:iam/openIdConnectProvider:OpenIdConnectProvider"
    inputs = frozenset({"url", "clientIdLists", "thumbprintLists", "tags"})
    fixed = frozenset({"url"})
    unordered = frozenset({"clientIdLists"})

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        made = cloud.iam.create_open_id_connect_provider(
            Url=wanted["url"],
            ClientIDList=wanted["clientIdLists"],
            ThumbprintList=wanted.get("thumbprintLists") or ["0" * 40],  # AWS finds it out itself
            Tags=listed(tags),
        )
        key: str = made["OpenIDConnectProviderArn"]
        return key

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        ask = cloud.iam.get_open_id_connect_provider
        if found(ask, "Url", OpenIDConnectProviderArn=key) is None:
            return None
        one = ask(OpenIDConnectProviderArn=key)
        return {"arn": key, "url": f"https://{one['Url']}", "clientIdLists": one["ClientIDList"], **tags_of(one)}

    def tag(self, cloud: Cloud, key: str, tags: Tags) -> None:
        cloud.iam.tag_open_id_connect_provider(OpenIDConnectProviderArn=key, Tags=listed(tags))

    def untag(self, cloud: Cloud, key: str, names: list[str]) -> None:
        cloud.iam.untag_open_id_connect_provider(OpenIDConnectProviderArn=key, TagKeys=names)

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        cloud.iam.delete_open_id_connect_provider(OpenIDConnectProviderArn=key)


class User(Kind):
    """A user of IAM. Its id is its name."""

    token = "aws:iam/user:User"
    inputs = frozenset({"name", "path", "permissionsBoundary", "tags"})
    fixed = frozenset({"name", "path"})
    named = "name"

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        asked = given(wanted, path="Path", permissionsBoundary="PermissionsBoundary")
        cloud.iam.create_user(UserName=wanted["name"], Tags=listed(tags), **asked)
        name: str = wanted["name"]
        return name

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        one = found(cloud.iam.get_user, "User", UserName=key)
        return one and {
            "name": key,
            "path": one["Path"],
            "arn": one["Arn"],
            "permissionsBoundary": wanted.get("permissionsBoundary"),  # moto keeps none of a user
            **tags_of(one),
        }

    def tag(self, cloud: Cloud, key: str, tags: Tags) -> None:
        cloud.iam.tag_user(UserName=key, Tags=listed(tags))

    def untag(self, cloud: Cloud, key: str, names: list[str]) -> None:
        cloud.iam.untag_user(UserName=key, TagKeys=names)

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        cloud.iam.delete_user(UserName=key)


class UserPolicy(InlinePolicy):
    """What a user may do."""

    token = "aws:iam/userPolicy:UserPolicy"
    inputs = frozenset({"name", "user", "policy"})
    fixed = frozenset({"name", "user"})
    holder = "user"


class AccessKey(Kind):
    """A key of a user. Its secret is told once, when it is made."""

    token = "aws:iam/accessKey:AccessKey"
    inputs = frozenset({"user"})
    fixed = inputs
    tagged = False
    _made: ClassVar[dict[str, str]] = {}
    """Secrets of those that this process made, until they are in the engine's state."""

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        made = cloud.iam.create_access_key(UserName=wanted["user"])["AccessKey"]
        self._made[made["AccessKeyId"]] = made["SecretAccessKey"]
        key: str = made["AccessKeyId"]
        return key

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        keys = found(cloud.iam.list_access_keys, "AccessKeyMetadata", UserName=wanted["user"]) or []
        one = next((one for one in keys if one["AccessKeyId"] == key), None)
        secret = self._made.pop(key, None)
        return one and {"user": one["UserName"], "status": one["Status"], **({"secret": secret} if secret else {})}

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        cloud.iam.delete_access_key(UserName=state["user"], AccessKeyId=key)


KINDS: Final = (
    RolePolicyAttachment(),
    RolePoliciesExclusive(),
    RolePolicyAttachmentsExclusive(),
    OpenIdConnectProvider(),
    User(),
    UserPolicy(),
    AccessKey(),
)
