"""Keys of KMS and log groups, as the stand-in for the aws plugin serves them."""

# ruff: noqa: D102 - they are documented once, in `Kind`
# ruff: noqa: S105 - a token is the name of a type here

from __future__ import annotations

from typing import Final

from stacks.local.pulumi_plugins.aws.kinds import Cloud, Kind, Properties, Tags, found, given


class Key(Kind):
    """A key of KMS."""

    token = "aws:kms/key:Key"
    inputs = frozenset({"description", "enableKeyRotation", "deletionWindowInDays", "policy", "tags"})

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        asked = given(wanted, description="Description", policy="Policy")
        made = cloud.client("kms").create_key(**asked, Tags=_listed(tags))
        key: str = made["KeyMetadata"]["KeyId"]
        if wanted.get("enableKeyRotation"):
            cloud.client("kms").enable_key_rotation(KeyId=key)
        return key

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        kms = cloud.client("kms")
        one = found(kms.describe_key, "KeyMetadata", KeyId=key)
        if one is None or one["KeyState"] == "PendingDeletion":
            return None
        tags = kms.list_resource_tags(KeyId=key)["Tags"]
        return {
            "keyId": key,
            "arn": one["Arn"],
            "description": one["Description"],
            "enableKeyRotation": kms.get_key_rotation_status(KeyId=key)["KeyRotationEnabled"],
            "tagsAll": {tag["TagKey"]: tag["TagValue"] for tag in tags},
        }

    def update(self, cloud: Cloud, key: str, old: Properties, new: Properties) -> None:
        kms = cloud.client("kms")
        if old.get("enableKeyRotation") != new.get("enableKeyRotation"):
            (kms.enable_key_rotation if new.get("enableKeyRotation") else kms.disable_key_rotation)(KeyId=key)
        if old.get("description") != new.get("description"):
            kms.update_key_description(KeyId=key, Description=new["description"])
        if new.get("policy") and old.get("policy") != new["policy"]:
            kms.put_key_policy(KeyId=key, PolicyName="default", Policy=new["policy"])

    def tag(self, cloud: Cloud, key: str, tags: Tags) -> None:
        cloud.client("kms").tag_resource(KeyId=key, Tags=_listed(tags))

    def untag(self, cloud: Cloud, key: str, names: list[str]) -> None:
        cloud.client("kms").untag_resource(KeyId=key, TagKeys=names)

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        cloud.client("kms").schedule_key_deletion(KeyId=key, **given(state, deletionWindowInDays="PendingWindowInDays"))


class LogGroup(Kind):
    """A log group of CloudWatch."""

    token = "aws:cloudwatch/logGroup:LogGroup"
    inputs = frozenset({"name", "retentionInDays", "kmsKeyId", "tags"})
    named = "name"

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        logs = cloud.client("logs")
        logs.create_log_group(logGroupName=wanted["name"], tags=dict(tags), **given(wanted, kmsKeyId="kmsKeyId"))
        self.update(cloud, wanted["name"], {}, wanted)
        name: str = wanted["name"]
        return name

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        logs = cloud.client("logs")
        groups = logs.describe_log_groups(logGroupNamePrefix=key)["logGroups"]
        one = next((group for group in groups if group["logGroupName"] == key), None)
        return one and {
            "name": key,
            "arn": one["arn"].removesuffix(":*"),
            "retentionInDays": one.get("retentionInDays"),
            "kmsKeyId": one.get("kmsKeyId"),
            "tagsAll": logs.list_tags_log_group(logGroupName=key)["tags"],
        }

    def update(self, cloud: Cloud, key: str, old: Properties, new: Properties) -> None:
        days = new.get("retentionInDays")
        if days and days != old.get("retentionInDays"):
            cloud.client("logs").put_retention_policy(logGroupName=key, retentionInDays=days)
        if old.get("retentionInDays") and not days:
            cloud.client("logs").delete_retention_policy(logGroupName=key)

    def tag(self, cloud: Cloud, key: str, tags: Tags) -> None:
        cloud.client("logs").tag_log_group(logGroupName=key, tags=dict(tags))

    def untag(self, cloud: Cloud, key: str, names: list[str]) -> None:
        cloud.client("logs").untag_log_group(logGroupName=key, tags=names)

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        cloud.client("logs").delete_log_group(logGroupName=key)


def _listed(tags: Tags) -> list[dict[str, str]]:
    return [{"TagKey": key, "TagValue": value} for key, value in tags.items()]


KINDS: Final = (Key(), LogGroup())
