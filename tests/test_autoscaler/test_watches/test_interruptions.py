"""From EC2's word to the store: EventBridge's rule and queue in the stand-in for AWS, read through the door to SQS."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from autoscaler.cloud.errors import Refused
from autoscaler.cloud.interruption_queue import InterruptionQueue, notices_in
from autoscaler.config.policy import interruption_queue
from autoscaler.kube.cache import Store
from autoscaler.model.cluster import Notice
from autoscaler.watches.interruptions import InterruptionWatch
from stacks.nodes.interruptions import PATTERN, queue_policy
from tests.builders import a_group
from tests.test_stacks.stand_in import StandIn, client, stand_in

NAME = interruption_queue("lab")


@pytest.fixture(scope="module")
def here() -> Iterator[StandIn]:
    """A stand-in for AWS."""
    with stand_in() as made:
        yield made


@pytest.fixture
def sqs(here: StandIn) -> Iterator[Any]:
    """SQS with the cluster's queue, which EventBridge fills."""
    found, events = client(here.url, "sqs"), client(here.url, "events")
    url = found.create_queue(QueueName=NAME)["QueueUrl"]
    queue = found.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    rule = events.put_rule(Name=NAME, EventPattern=json.dumps(PATTERN))["RuleArn"]
    policy = json.dumps(queue_policy(queue=queue, rule=rule))
    found.set_queue_attributes(QueueUrl=url, Attributes={"Policy": policy})
    events.put_targets(Rule=NAME, Targets=[{"Id": "autoscaler", "Arn": queue}])
    yield found
    events.remove_targets(Rule=NAME, Ids=["autoscaler"])
    events.delete_rule(Name=NAME)
    found.delete_queue(QueueUrl=url)


class Watching:
    """The watch beside a store that knows one group of the stand-in."""

    def __init__(self, sqs: Any, here: StandIn) -> None:
        self.here, self.store, self.now = here, Store(), datetime.now(UTC)
        self.queue = InterruptionQueue(lambda: sqs, cluster="lab", region="us-east-1", waits=0)
        self.group = here.group()
        here.want(self.group, 1)
        (self.instance,) = here.ids(self.group)
        self.knows(self.instance)
        self.watch = self.another()

    def another(self) -> InterruptionWatch:
        """Of the replica that acts next."""
        return InterruptionWatch(
            self.queue,
            self.store,
            acts=lambda: True,
            outage=lambda _party, _why: None,
            note=lambda _line: None,
            now=lambda: self.now,
        )

    def knows(self, *instances: str) -> None:
        """These are of the group."""
        group = a_group(joined=len(instances))
        there = tuple(type(one)(id=found, zone=one.zone) for one, found in zip(group.instances, instances, strict=True))
        self.store.saw_groups([type(group)(**{**_fields(group), "instances": there})], asked_at=0.0)

    def told(self) -> tuple[Notice, ...]:
        """What the store says of it."""
        return self.store.cluster(self.now).notices

    def interrupt(self, **asked: str) -> None:
        """What EC2 is to say."""
        status, answer = self.here.ask("POST", "interruptions", json.dumps({"instance": self.instance} | asked))
        assert status == 200, answer


def _fields(group: Any) -> dict[str, Any]:
    return {name: getattr(group, name) for name in group.__dataclass_fields__}


@pytest.fixture
def made(sqs: Any, here: StandIn) -> Watching:
    """All of it."""
    return Watching(sqs, here)


@pytest.mark.parametrize("kind", ["interruption", "rebalance", "maintenance"])
def test_what_ec2_says_reaches_the_store(made: Watching, kind: str) -> None:
    """Which instance, what, and when it ends."""
    made.interrupt(kind=kind, after="2m")
    made.watch.listen()
    (notice,) = made.told()
    assert (notice.instance, notice.kind) == (made.instance, kind)
    assert abs(notice.told - made.now) < timedelta(minutes=1)
    assert (notice.ends is None) == (kind == "rebalance")
    assert notice.ends is None or timedelta(minutes=1) < notice.ends - notice.told <= timedelta(minutes=2, seconds=1)


def test_the_gravest_word_counts(made: Watching) -> None:
    """A recommendation that comes after the interruption changes nothing."""
    made.interrupt()
    made.interrupt(kind="rebalance")
    made.watch.listen()
    assert [one.kind for one in made.told()] == ["interruption"]


def test_it_is_known_until_its_instance_is_gone(made: Watching) -> None:
    """Then the message is deleted: nobody is told again."""
    made.interrupt()
    made.watch.listen()
    made.watch.listen()
    assert len(made.told()) == 1
    made.knows()
    made.now += timedelta(minutes=6)
    made.watch.listen()
    assert made.told() == ()
    assert _messages(made) == 0


def test_a_notice_of_an_instance_that_is_not_known_yet_is_kept(made: Watching) -> None:
    """The list of the groups may be older than the notice."""
    made.knows()
    made.interrupt(kind="rebalance")
    made.watch.listen()
    assert made.told() == ()
    made.knows(made.instance)
    made.watch.listen()
    assert len(made.told()) == 1


def test_the_replica_that_acts_next_is_told_again(made: Watching, sqs: Any) -> None:
    """What one has received and not deleted comes back when its time in hiding is over."""
    made.interrupt()
    (message,) = made.queue.receive()
    assert made.queue.receive() == [], "hidden"
    url = sqs.get_queue_url(QueueName=NAME)["QueueUrl"]
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=message.receipt, VisibilityTimeout=0)
    made.another().listen()
    assert len(made.told()) == 1


def test_what_is_no_notice_is_deleted(made: Watching, sqs: Any) -> None:
    """Another event of AWS Health, and what is no event at all."""
    url = sqs.get_queue_url(QueueName=NAME)["QueueUrl"]
    for body in ("{", '{"source": "aws.health", "detail-type": "AWS Health Event", "detail": {"service": "RDS"}}'):
        sqs.send_message(QueueUrl=url, MessageBody=body)
    made.watch.listen()
    made.watch.listen()
    assert _messages(made) == 0


@pytest.mark.parametrize("body", ["", "null", "[]", '"x"', '{"detail": null}', '{"detail": {}, "time": "yesterday"}'])
def test_strange_words_say_nothing(body: str) -> None:
    """And break nothing."""
    assert notices_in(body) == ()


def test_a_queue_keeps_its_policy_when_another_attribute_is_set(sqs: Any) -> None:
    """As SQS does: else nothing could be sent to it after an update of the stack."""
    url = sqs.get_queue_url(QueueName=NAME)["QueueUrl"]
    told = partial(sqs.get_queue_attributes, QueueUrl=url, AttributeNames=["Policy", "MessageRetentionPeriod"])
    before = told()["Attributes"]["Policy"]
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"MessageRetentionPeriod": "60"})
    assert told()["Attributes"] == {"Policy": before, "MessageRetentionPeriod": "60"}
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": ""})
    assert "Policy" not in told()["Attributes"]


def test_without_a_queue_that_is_said(here: StandIn) -> None:
    """As AWS's refusal, by its name."""
    queue = InterruptionQueue(lambda: client(here.url, "sqs"), cluster="none", region="us-east-1")
    with pytest.raises(Refused, match=r"NonExistentQueue|QueueDoesNotExist"):
        queue.receive()


def test_an_instance_that_is_taken_back_is_gone_and_its_group_starts_another(made: Watching) -> None:
    """Where nobody ends it before: no hook holds it."""
    made.interrupt(after="2m")
    made.here.pass_time(121)
    made.here.settle()
    assert made.instance not in made.here.ids(made.group)
    assert len(made.here.ids(made.group)) == 1


def test_an_instance_that_no_group_has_cannot_be_interrupted(here: StandIn) -> None:
    """Said by the stand-in."""
    status, answer = here.ask("POST", "interruptions", '{"instance": "i-0"}')
    assert (status, answer) == (400, {"error": "instance: no group has i-0"})


def _messages(made: Watching) -> int:
    sqs = made.queue._sqs
    url = sqs.get_queue_url(QueueName=NAME)["QueueUrl"]
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    shown = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    return sum(map(int, shown.values()))
