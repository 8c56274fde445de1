"""Orphans outside EC2 that have a name, or a text, of their own: found by it, and ours by the cluster's tag alone.

Nothing hangs on what a cut-off creation left: a bucket is deleted only empty, which S3 sees to, and a key is only
scheduled to go, so that it can be had back for a week.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from autoscaler.model import labels as words

Inputs = Mapping[str, Any]
Found = Iterator[tuple[str, Callable[[], object]]]
"""Ids, and how each is taken away."""
Finder = Callable[[Inputs], Found]
_KEY_DAYS = 7
_DRAWN: Final = re.compile(r".+-[0-9a-f]{7}")
"""A name that the engine made up: the resource's own, and seven digits at random."""


class NamedFinder:
    """Looks into one region; ``session`` is boto3's."""

    def __init__(self, session: Any, *, cluster: str) -> None:
        self._session, self._cluster = session, cluster
        self.finders: dict[str, Finder] = {
            "aws:cloudwatch/eventRule:EventRule": self._event_rule,
            "aws:cloudwatch/logGroup:LogGroup": self._log_group,
            "aws:kms/key:Key": self._key,
            "aws:lb/loadBalancer:LoadBalancer": self._balancer,
            "aws:lb/targetGroup:TargetGroup": self._target_group,
            "aws:s3/bucket:Bucket": self._bucket,
            "aws:sqs/queue:Queue": self._queue,
            "aws:ssm/parameter:Parameter": self._parameter,
            "aws:iam/user:User": self._user,
            "aws:iam/accessKey:AccessKey": self._access_key,
        }

    def _event_rule(self, inputs: Inputs) -> Found:
        """One without targets: they are made after it."""
        events, name = self._session.client("events"), inputs["name"]
        try:
            arn = events.describe_rule(Name=name)["Arn"]
        except events.exceptions.ResourceNotFoundException:
            return
        if self._is_ours(mapped(events.list_tags_for_resource(ResourceARN=arn)["Tags"])):
            yield name, partial(events.delete_rule, Name=name)

    def _queue(self, inputs: Inputs) -> Found:
        sqs = self._session.client("sqs")
        try:
            url = sqs.get_queue_url(QueueName=inputs["name"])["QueueUrl"]
        except sqs.exceptions.QueueDoesNotExist:
            return
        if self._is_ours(sqs.list_queue_tags(QueueUrl=url).get("Tags", {})):
            yield url, partial(sqs.delete_queue, QueueUrl=url)

    def _log_group(self, inputs: Inputs) -> Found:
        logs, name = self._session.client("logs"), inputs["name"]
        for one in logs.describe_log_groups(logGroupNamePrefix=name)["logGroups"]:
            if one["logGroupName"] == name and self._is_ours(logs.list_tags_log_group(logGroupName=name)["tags"]):
                yield name, partial(logs.delete_log_group, logGroupName=name)

    def _key(self, inputs: Inputs) -> Found:
        kms = self._session.client("kms")
        for page in kms.get_paginator("list_keys").paginate():
            for key in (one["KeyId"] for one in page["Keys"]):
                about = kms.describe_key(KeyId=key)["KeyMetadata"]
                if about["KeyState"] != "Enabled" or about["Description"] != inputs["description"]:
                    continue
                tags = {one["TagKey"]: one["TagValue"] for one in kms.list_resource_tags(KeyId=key)["Tags"]}
                if self._is_ours(tags):
                    yield key, partial(kms.schedule_key_deletion, KeyId=key, PendingWindowInDays=_KEY_DAYS)

    def _balancer(self, inputs: Inputs) -> Found:
        elb = self._session.client("elbv2")
        for page in elb.get_paginator("describe_load_balancers").paginate():
            for one in page["LoadBalancers"]:
                if one["LoadBalancerName"] == inputs["name"] and self._is_our_balancing(elb, one["LoadBalancerArn"]):
                    arn = one["LoadBalancerArn"]
                    yield arn, partial(elb.delete_load_balancer, LoadBalancerArn=arn)

    def _target_group(self, inputs: Inputs) -> Found:
        elb = self._session.client("elbv2")
        for page in elb.get_paginator("describe_target_groups").paginate():
            for one in page["TargetGroups"]:
                if one["TargetGroupName"] == inputs["name"] and self._is_our_balancing(elb, one["TargetGroupArn"]):
                    yield one["TargetGroupArn"], partial(elb.delete_target_group, TargetGroupArn=one["TargetGroupArn"])

    def _is_our_balancing(self, elb: Any, arn: str) -> bool:
        found = elb.describe_tags(ResourceArns=[arn])["TagDescriptions"]
        return any(self._is_ours(mapped(one["Tags"])) for one in found)

    def _bucket(self, inputs: Inputs) -> Found:
        s3, name = self._session.client("s3"), inputs["bucket"]
        if name not in {one["Name"] for one in s3.list_buckets()["Buckets"]}:
            return
        try:
            tags = mapped(s3.get_bucket_tagging(Bucket=name)["TagSet"])
        except s3.exceptions.ClientError as error:
            if error.response["Error"]["Code"] != "NoSuchTagSet":
                raise
            tags = {}
        # S3 may take a bucket's tags by a second call, which was cut off as well. The name was drawn for this creation
        # alone (list_buckets names those of this account), so that it can be no other's.
        if self._is_ours(tags) or (not tags and _DRAWN.fullmatch(name)):
            yield name, partial(s3.delete_bucket, Bucket=name)

    def _parameter(self, inputs: Inputs) -> Found:
        ssm, name = self._session.client("ssm"), inputs["name"]
        by_name = [{"Key": "Name", "Values": [name]}]
        if not ssm.describe_parameters(ParameterFilters=by_name)["Parameters"]:
            return
        tags = ssm.list_tags_for_resource(ResourceType="Parameter", ResourceId=name)["TagList"]
        if self._is_ours(mapped(tags)):
            yield name, partial(ssm.delete_parameter, Name=name)

    def _user(self, inputs: Inputs) -> Found:
        iam, name = self._session.client("iam"), inputs["name"]
        try:
            found = iam.get_user(UserName=name)["User"]
        except iam.exceptions.NoSuchEntityException:
            return
        if self._is_ours(mapped(found.get("Tags", []))):
            yield name, partial(iam.delete_user, UserName=name)

    def _access_key(self, inputs: Inputs) -> Found:
        """The user is recorded. A key whose secret is lost can only be taken away; one that was used has its owner."""
        iam, user = self._session.client("iam"), inputs["user"]
        for one in iam.list_access_keys(UserName=user)["AccessKeyMetadata"]:
            key = one["AccessKeyId"]
            if "LastUsedDate" not in iam.get_access_key_last_used(AccessKeyId=key)["AccessKeyLastUsed"]:
                yield key, partial(iam.delete_access_key, UserName=user, AccessKeyId=key)

    def _is_ours(self, tags: Mapping[str, str]) -> bool:
        return tags.get(words.TAG_CLUSTER) == self._cluster


def until(holds: Callable[[], bool], *, patience: float = 300.0) -> None:
    """Wait until it does, for so many seconds at most: what uses the thing next says what is wrong then."""
    end = time.monotonic() + patience
    while not holds() and time.monotonic() < end:
        time.sleep(1)


def mapped(tags: list[dict[str, str]]) -> dict[str, str]:
    """Tags as most services list them."""
    return {one["Key"]: one["Value"] for one in tags}
