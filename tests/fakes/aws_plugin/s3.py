"""Buckets and what is set on them, as the stand-in for the aws plugin serves them."""

# ruff: noqa: D102 - they are documented once, in `Kind`
# ruff: noqa: S105 - a token is the name of a type here

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Final
from urllib.parse import urlencode

from botocore.exceptions import ClientError

from stacks.local.pulumi_plugins.aws.kinds import Cloud, Kind, Properties, Tags, camel, listed, mapped, pascal

_UNSET: Final = ("NoSuch", "NotFound", "NotFoundError")
"""How S3 says that a bucket, or what would be set on it, is not there."""
_PAGE: Final = 1000


class Bucket(Kind):
    """A bucket."""

    token = "aws:s3/bucket:Bucket"
    inputs = frozenset({"bucket", "forceDestroy", "tags"})
    named = "bucket"

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        name: str = wanted["bucket"]
        # us-east-1 is where a bucket goes that names no place; S3 refuses to hear it named.
        where = {} if cloud.region == "us-east-1" else {"LocationConstraint": cloud.region}
        cloud.client("s3").create_bucket(Bucket=name, **({"CreateBucketConfiguration": where} if where else {}))
        self.retag(cloud, name, {}, tags)
        return name

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        s3 = cloud.client("s3")
        if _told(s3.head_bucket, key) is None:
            return None
        tags = (_told(s3.get_bucket_tagging, key) or {}).get("TagSet", [])
        return {
            "bucket": key,
            "arn": f"arn:aws:s3:::{key}",
            "bucketRegionalDomainName": f"{key}.s3.{cloud.region}.amazonaws.com",
            "tagsAll": mapped(tags),
        }

    def retag(self, cloud: Cloud, key: str, before: Tags, after: Tags) -> None:
        if after:
            cloud.client("s3").put_bucket_tagging(Bucket=key, Tagging={"TagSet": listed(after)})
        elif before:
            cloud.client("s3").delete_bucket_tagging(Bucket=key)

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        s3 = cloud.client("s3")
        while state.get("forceDestroy"):
            page = s3.list_object_versions(Bucket=key, MaxKeys=_PAGE)
            held = [
                {"Key": one["Key"], "VersionId": one["VersionId"]}
                for kind in ("Versions", "DeleteMarkers")
                for one in page.get(kind, [])
            ]
            if not held:
                break
            s3.delete_objects(Bucket=key, Delete={"Objects": held})
        s3.delete_bucket(Bucket=key)


class BucketObject(Kind):
    """One object, from a file of the program's machine."""

    token = "aws:s3/bucketObjectv2:BucketObjectv2"
    inputs = frozenset({"bucket", "key", "source", "contentType", "tags"})

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        with Path(wanted["source"]["path"]).open("rb") as content:
            cloud.client("s3").put_object(
                Bucket=wanted["bucket"],
                Key=wanted["key"],
                Body=content,
                ContentType=wanted.get("contentType", "binary/octet-stream"),
                Tagging=urlencode(tags),
            )
        return f"{wanted['bucket']}/{wanted['key']}"

    def update(self, cloud: Cloud, key: str, old: Properties, new: Properties) -> None:
        self.create(cloud, new, {})

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        s3, (bucket, _, name) = cloud.client("s3"), key.partition("/")
        found = _told(s3.head_object, bucket, Key=name)
        if found is None:
            return None
        tags = (_told(s3.get_object_tagging, bucket, Key=name) or {}).get("TagSet", [])
        return {"bucket": bucket, "key": name, "contentType": found["ContentType"], "tagsAll": mapped(tags)}

    def retag(self, cloud: Cloud, key: str, before: Tags, after: Tags) -> None:
        bucket, _, name = key.partition("/")
        cloud.client("s3").put_object_tagging(Bucket=bucket, Key=name, Tagging={"TagSet": listed(after)})

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        bucket, _, name = key.partition("/")
        cloud.client("s3").delete_object(Bucket=bucket, Key=name)


class _Setting(Kind):
    """One thing that is set on a bucket: a put, a get and a delete."""

    tagged = False
    put: ClassVar[str]
    get: ClassVar[str]
    unset: ClassVar[str] = ""
    """The call that takes it away; empty where S3 has none."""

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        self.update(cloud, wanted["bucket"], {}, wanted)
        bucket: str = wanted["bucket"]
        return bucket

    def update(self, cloud: Cloud, key: str, old: Properties, new: Properties) -> None:
        getattr(cloud.client("s3"), self.put)(Bucket=key, **self.request(new))

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        answer = _told(getattr(cloud.client("s3"), self.get), key)
        return None if answer is None else {"bucket": key, **self.state(answer)}

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        if self.unset:
            getattr(cloud.client("s3"), self.unset)(Bucket=key)

    def request(self, wanted: Properties) -> dict[str, Any]:
        """What the call takes beside the bucket."""
        raise NotImplementedError

    def state(self, answer: dict[str, Any]) -> Properties:
        """The plugin's properties of what the call says."""
        raise NotImplementedError


class BucketPolicy(_Setting):
    """Who may do what with it."""

    token = "aws:s3/bucketPolicy:BucketPolicy"
    inputs = frozenset({"bucket", "policy"})
    put, get, unset = "put_bucket_policy", "get_bucket_policy", "delete_bucket_policy"

    def request(self, wanted: Properties) -> dict[str, Any]:
        return {"Policy": wanted["policy"]}

    def state(self, answer: dict[str, Any]) -> Properties:
        return {"policy": answer["Policy"]}


class BucketPublicAccessBlock(_Setting):
    """That nobody makes it public."""

    token = "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock"
    _switches: ClassVar = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
    inputs = frozenset({"bucket", *_switches})
    put, get, unset = "put_public_access_block", "get_public_access_block", "delete_public_access_block"

    def request(self, wanted: Properties) -> dict[str, Any]:
        return {"PublicAccessBlockConfiguration": pascal({name: wanted.get(name, False) for name in self._switches})}

    def state(self, answer: dict[str, Any]) -> Properties:
        switches: Properties = camel(answer["PublicAccessBlockConfiguration"])
        return switches


class BucketServerSideEncryptionConfiguration(_Setting):
    """By what its objects are encrypted."""

    token = "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration"
    inputs = frozenset({"bucket", "rules"})
    put, get, unset = "put_bucket_encryption", "get_bucket_encryption", "delete_bucket_encryption"

    def request(self, wanted: Properties) -> dict[str, Any]:
        rules = [
            {
                "ApplyServerSideEncryptionByDefault": {
                    "SSEAlgorithm": rule["applyServerSideEncryptionByDefault"]["sseAlgorithm"],
                    **(
                        {"KMSMasterKeyID": rule["applyServerSideEncryptionByDefault"]["kmsMasterKeyId"]}
                        if rule["applyServerSideEncryptionByDefault"].get("kmsMasterKeyId")
                        else {}
                    ),
                },
                "BucketKeyEnabled": rule.get("bucketKeyEnabled", False),
            }
            for rule in wanted["rules"]
        ]
        return {"ServerSideEncryptionConfiguration": {"Rules": rules}}

    def state(self, answer: dict[str, Any]) -> Properties:
        rules = [
            {
                "applyServerSideEncryptionByDefault": {
                    "sseAlgorithm": rule["ApplyServerSideEncryptionByDefault"]["SSEAlgorithm"],
                    "kmsMasterKeyId": rule["ApplyServerSideEncryptionByDefault"].get("KMSMasterKeyID"),
                },
                "bucketKeyEnabled": rule.get("BucketKeyEnabled", False),
            }
            for rule in answer["ServerSideEncryptionConfiguration"]["Rules"]
        ]
        return {"rules": rules}


class BucketVersioning(_Setting):
    """Whether what is overwritten or deleted is kept."""

    token = "aws:s3/bucketVersioning:BucketVersioning"
    inputs = frozenset({"bucket", "versioningConfiguration"})
    put, get = "put_bucket_versioning", "get_bucket_versioning"

    def request(self, wanted: Properties) -> dict[str, Any]:
        return {"VersioningConfiguration": {"Status": wanted["versioningConfiguration"]["status"]}}

    def state(self, answer: dict[str, Any]) -> Properties:
        return {"versioningConfiguration": {"status": answer.get("Status", "Disabled")}}


class BucketLifecycleConfiguration(_Setting):
    """When its objects go."""

    token = "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration"
    inputs = frozenset({"bucket", "rules"})
    put, get, unset = (
        "put_bucket_lifecycle_configuration",
        "get_bucket_lifecycle_configuration",
        "delete_bucket_lifecycle",
    )

    def request(self, wanted: Properties) -> dict[str, Any]:
        rules = [{"ID" if key == "Id" else key: value for key, value in one.items()} for one in pascal(wanted["rules"])]
        return {"LifecycleConfiguration": {"Rules": rules}}

    def state(self, answer: dict[str, Any]) -> Properties:
        rules = [{"Id" if key == "ID" else key: value for key, value in one.items()} for one in answer["Rules"]]
        return {"rules": camel(rules)}


def _told(call: Any, bucket: str, **more: str) -> dict[str, Any] | None:
    try:
        answer: dict[str, Any] = call(Bucket=bucket, **more)
    except ClientError as error:
        code = error.response["Error"]["Code"]
        if code.startswith(_UNSET) or code.endswith(_UNSET) or code == "404":
            return None
        raise
    return answer


KINDS: Final[tuple[Kind, ...]] = (
    Bucket(),
    BucketObject(),
    BucketPolicy(),
    BucketPublicAccessBlock(),
    BucketServerSideEncryptionConfiguration(),
    BucketVersioning(),
    BucketLifecycleConfiguration(),
)
