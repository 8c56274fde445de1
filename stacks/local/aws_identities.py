"""Attached policies, trusted issuers and users of IAM, as the stand-in for the aws plugin serves them."""

# ruff: noqa: ARG002 - every kind has the same methods, whatever it needs of what it is given
# ruff: noqa: D102 - they are documented once, in `Kind`
# ruff: noqa: S105 - a token is the name of a type here

from __future__ import annotations

import json
from typing import ClassVar, Final

from stacks.local.aws_kinds import Cloud, Kind, Properties, Tags, found, given, listed, tags_of


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

    def retag(self, cloud: Cloud, key: str, before: Tags, after: Tags) -> None:
        gone = [name for name in before if name not in after]
        if gone:
            cloud.iam.untag_open_id_connect_provider(OpenIDConnectProviderArn=key, TagKeys=gone)
        if after:
            cloud.iam.tag_open_id_connect_provider(OpenIDConnectProviderArn=key, Tags=listed(after))

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        cloud.iam.delete_open_id_connect_provider(OpenIDConnectProviderArn=key)


class User(Kind):
    """A user of IAM. Its id is its name."""

    token = "aws:iam/user:User"
    inputs = frozenset({"name", "path", "tags"})
    fixed = frozenset({"name", "path"})
    named = "name"

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        cloud.iam.create_user(UserName=wanted["name"], Tags=listed(tags), **given(wanted, path="Path"))
        name: str = wanted["name"]
        return name

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        one = found(cloud.iam.get_user, "User", UserName=key)
        return one and {"name": key, "path": one["Path"], "arn": one["Arn"], **tags_of(one)}

    def retag(self, cloud: Cloud, key: str, before: Tags, after: Tags) -> None:
        gone = [name for name in before if name not in after]
        if gone:
            cloud.iam.untag_user(UserName=key, TagKeys=gone)
        if after:
            cloud.iam.tag_user(UserName=key, Tags=listed(after))

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        cloud.iam.delete_user(UserName=key)


class UserPolicy(Kind):
    """What a user may do, written into the user."""

    token = "aws:iam/userPolicy:UserPolicy"
    inputs = frozenset({"name", "user", "policy"})
    fixed = frozenset({"name", "user"})
    named = "name"
    tagged = False

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        self.update(cloud, "", {}, wanted)
        return f"{wanted['user']}:{wanted['name']}"

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        user, _, name = key.partition(":")
        document = found(cloud.iam.get_user_policy, "PolicyDocument", UserName=user, PolicyName=name)
        return document and {"user": user, "name": name, "policy": json.dumps(document)}

    def update(self, cloud: Cloud, key: str, old: Properties, new: Properties) -> None:
        cloud.iam.put_user_policy(UserName=new["user"], PolicyName=new["name"], PolicyDocument=new["policy"])

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        user, _, name = key.partition(":")
        cloud.iam.delete_user_policy(UserName=user, PolicyName=name)


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


KINDS: Final = (RolePolicyAttachment(), OpenIdConnectProvider(), User(), UserPolicy(), AccessKey())
