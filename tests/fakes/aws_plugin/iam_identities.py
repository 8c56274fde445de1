"""Trusted issuers and users of IAM, as the stand-in for the aws plugin serves them."""

# ruff: noqa: D102 - they are documented once, in `Kind`
# ruff: noqa: S105 - a token is the name of a type here

from __future__ import annotations

from typing import ClassVar, Final

from stacks.local.pulumi_plugins.aws.iam import InlinePolicy
from stacks.local.pulumi_plugins.aws.kinds import Cloud, Kind, Properties, Tags, found, given, listed, tags_of


class OpenIdConnectProvider(Kind):
    """An issuer whose tokens roles may trust. Its id is its ARN."""

    token = "aws:iam/openIdConnectProvider:OpenIdConnectProvider"
    inputs = frozenset({"url", "clientIdLists", "thumbprintLists", "tags"})
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
    holder = "user"


class AccessKey(Kind):
    """A key of a user. Its secret is told once, when it is made."""

    token = "aws:iam/accessKey:AccessKey"
    inputs = frozenset({"user"})
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


KINDS: Final = (OpenIdConnectProvider(), User(), UserPolicy(), AccessKey())
