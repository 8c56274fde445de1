"""Queues of SQS, and rules of EventBridge with their targets, as the stand-in for the aws plugin serves them."""

# ruff: noqa: ARG002 - every kind has the same methods, whatever it needs of what it is given
# ruff: noqa: D102 - they are documented once, in `Kind`

from __future__ import annotations

from typing import Any, Final

from stacks.local.pulumi_plugins.aws.kinds import Cloud, Kind, Properties, Tags, found, given, listed, mapped

_ATTRIBUTES: Final = {
    "messageRetentionSeconds": "MessageRetentionPeriod",
    "sqsManagedSseEnabled": "SqsManagedSseEnabled",
}


class Queue(Kind):
    """A queue. Its id is its URL."""

    token = "aws:sqs/queue:Queue"  # noqa: S105 - the name of a type
    inputs = frozenset({"name", *_ATTRIBUTES, "tags"})
    named = "name"

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        made = cloud.client("sqs").create_queue(QueueName=wanted["name"], Attributes=_said(wanted), tags=dict(tags))
        key: str = made["QueueUrl"]
        return key

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        shown = _attributes(cloud, key)
        if shown is None:
            return None
        tags = cloud.client("sqs").list_queue_tags(QueueUrl=key).get("Tags", {})
        return {
            "name": shown["QueueArn"].rpartition(":")[2],
            "messageRetentionSeconds": int(shown["MessageRetentionPeriod"]),
            "sqsManagedSseEnabled": shown.get("SqsManagedSseEnabled", "true") == "true",
            "arn": shown["QueueArn"],
            "url": key,
            "tagsAll": tags,
        }

    def update(self, cloud: Cloud, key: str, old: Properties, new: Properties) -> None:
        changed = {name: value for name, value in new.items() if old.get(name) != value}
        if _said(changed):
            cloud.client("sqs").set_queue_attributes(QueueUrl=key, Attributes=_said(changed))

    def tag(self, cloud: Cloud, key: str, tags: Tags) -> None:
        cloud.client("sqs").tag_queue(QueueUrl=key, Tags=dict(tags))

    def untag(self, cloud: Cloud, key: str, names: list[str]) -> None:
        cloud.client("sqs").untag_queue(QueueUrl=key, TagKeys=names)

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        cloud.client("sqs").delete_queue(QueueUrl=key)


class QueuePolicy(Kind):
    """What may send to a queue. Its id is the queue's."""

    token = "aws:sqs/queuePolicy:QueuePolicy"  # noqa: S105 - the name of a type
    inputs = frozenset({"queueUrl", "policy"})
    tagged = False

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        key: str = wanted["queueUrl"]
        self.update(cloud, key, {}, wanted)
        return key

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        shown = _attributes(cloud, key)
        return {"queueUrl": key, "policy": shown["Policy"]} if shown and shown.get("Policy") else None

    def update(self, cloud: Cloud, key: str, old: Properties, new: Properties) -> None:
        cloud.client("sqs").set_queue_attributes(QueueUrl=key, Attributes={"Policy": new["policy"]})

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        cloud.client("sqs").set_queue_attributes(QueueUrl=key, Attributes={"Policy": ""})


class EventRule(Kind):
    """A rule on the default bus. Its id is its name."""

    token = "aws:cloudwatch/eventRule:EventRule"  # noqa: S105 - the name of a type
    inputs = frozenset({"name", "description", "eventPattern", "tags"})
    named = "name"

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        self._put(cloud, wanted, Tags=listed(tags))
        key: str = wanted["name"]
        return key

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        events = cloud.client("events")
        try:
            shown = events.describe_rule(Name=key)
        except events.exceptions.ResourceNotFoundException:
            return None
        tags = events.list_tags_for_resource(ResourceARN=shown["Arn"])["Tags"]
        return {
            "name": key,
            "description": shown.get("Description"),
            "eventPattern": shown["EventPattern"],
            "arn": shown["Arn"],
            "tagsAll": mapped(tags),
        }

    def update(self, cloud: Cloud, key: str, old: Properties, new: Properties) -> None:
        self._put(cloud, new)

    def tag(self, cloud: Cloud, key: str, tags: Tags) -> None:
        cloud.client("events").tag_resource(ResourceARN=self._arn(cloud, key), Tags=listed(tags))

    def untag(self, cloud: Cloud, key: str, names: list[str]) -> None:
        cloud.client("events").untag_resource(ResourceARN=self._arn(cloud, key), TagKeys=names)

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        cloud.client("events").delete_rule(Name=key)

    def _put(self, cloud: Cloud, wanted: Properties, **more: Any) -> None:
        asked = given(wanted, name="Name", description="Description", eventPattern="EventPattern")
        cloud.client("events").put_rule(**asked, **more)

    def _arn(self, cloud: Cloud, key: str) -> str:
        arn: str = cloud.client("events").describe_rule(Name=key)["Arn"]
        return arn


class EventTarget(Kind):
    """Where a rule sends what it matches. Its id is the rule's name with its own."""

    token = "aws:cloudwatch/eventTarget:EventTarget"  # noqa: S105 - the name of a type
    inputs = frozenset({"rule", "arn", "targetId"})
    tagged = False

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        self.update(cloud, "", {}, wanted)
        return f"{wanted['rule']}-{wanted['targetId']}"

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        targets = found(cloud.client("events").list_targets_by_rule, "Targets", Rule=wanted["rule"]) or []
        shown = next((one for one in targets if one["Id"] == wanted["targetId"]), None)
        return shown and {"rule": wanted["rule"], "arn": shown["Arn"], "targetId": shown["Id"]}

    def update(self, cloud: Cloud, key: str, old: Properties, new: Properties) -> None:
        cloud.client("events").put_targets(Rule=new["rule"], Targets=[{"Id": new["targetId"], "Arn": new["arn"]}])

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        cloud.client("events").remove_targets(Rule=state["rule"], Ids=[state["targetId"]])


def _said(wanted: Properties) -> dict[str, str]:
    """Returns the attributes as SQS takes them: text."""
    return {field: str(value).lower() for field, value in given(wanted, **_ATTRIBUTES).items()}


def _attributes(cloud: Cloud, key: str) -> dict[str, str] | None:
    sqs = cloud.client("sqs")
    try:
        shown: dict[str, str] = sqs.get_queue_attributes(QueueUrl=key, AttributeNames=["All"])["Attributes"]
    except sqs.exceptions.QueueDoesNotExist:
        return None
    return shown


KINDS: Final = (Queue(), QueuePolicy(), EventRule(), EventTarget())
