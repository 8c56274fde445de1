"""The queue in which EventBridge puts what EC2 says of instances that it is going to take back: read, and cleared.

``stacks/nodes/interruptions.py`` makes queue and rules. A message is hidden from other readers for a while after it
was received, and deleted only when nothing is to be done about it any more: what one autoscaler has not finished the
next one is told again. https://docs.aws.amazon.com/eventbridge/latest/ref/events-ref-ec2.html
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Final

from autoscaler.cloud.errors import told_in_words
from autoscaler.config.policy import interruption_queue
from autoscaler.model.cluster import Notice

HIDDEN: Final = timedelta(seconds=30)
"""A message that was received is received again after it, by whatever acts then."""
_POLL: Final = 5
"""Seconds that SQS waits for a message: well below the client's patience."""
_AT_ONCE: Final = 10
"""Messages in one answer or deletion: SQS allows no more."""
_SPOT_LEAVES: Final = timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class Message:
    """What was received, and what it is deleted by."""

    id: str
    """The same each time that it is received."""
    receipt: str
    notices: tuple[Notice, ...]
    """None where it says nothing that concerns instances."""


class InterruptionQueue:
    """One cluster's queue."""

    def __init__(self, connect: Callable[[], Any], *, cluster: str, region: str, waits: int = _POLL) -> None:
        """``connect``: makes boto3's client of SQS, at its first use. ``waits``: seconds for a message."""
        self._connect, self._name, self._region = connect, interruption_queue(cluster), region
        self._waits = waits
        self._sqs: Any = None
        self._url = ""

    def receive(self) -> list[Message]:
        """The next messages, waiting some seconds for the first.

        Raises ``Refused`` (also where there is no such queue), ``NotAllowed`` or ``Unavailable``.
        """
        with told_in_words(self._region):
            self._sqs = self._sqs or self._connect()
            self._url = self._url or self._sqs.get_queue_url(QueueName=self._name)["QueueUrl"]
            found = self._sqs.receive_message(
                QueueUrl=self._url,
                MaxNumberOfMessages=_AT_ONCE,
                WaitTimeSeconds=self._waits,
                VisibilityTimeout=int(HIDDEN.total_seconds()),
            )
        return [
            Message(one["MessageId"], one["ReceiptHandle"], notices_in(one["Body"]))
            for one in found.get("Messages", ())
        ]

    def delete(self, receipts: Iterable[str]) -> None:
        """Deletes messages that were acted on; raises as :meth:`receive` does."""
        receipts = list(receipts)
        for first in range(0, len(receipts), _AT_ONCE):
            entries = [
                {"Id": str(number), "ReceiptHandle": receipt}
                for number, receipt in enumerate(receipts[first : first + _AT_ONCE])
            ]
            with told_in_words(self._region):
                self._sqs.delete_message_batch(QueueUrl=self._url, Entries=entries)


def notices_in(body: str) -> tuple[Notice, ...]:
    """What an event of EventBridge says of instances; nothing where it is another event, or none."""
    try:
        event = json.loads(body)
        return tuple(_notices(event, event["detail"], datetime.fromisoformat(event["time"]).astimezone(UTC)))
    except (KeyError, TypeError, ValueError, AttributeError):
        return ()


def _notices(event: dict[str, Any], detail: dict[str, Any], told: datetime) -> Iterator[Notice]:
    match event["source"], event["detail-type"]:
        case "aws.ec2", "EC2 Spot Instance Interruption Warning":
            yield Notice(detail["instance-id"], "interruption", told, told + _SPOT_LEAVES)
        case "aws.ec2", "EC2 Instance Rebalance Recommendation":
            yield Notice(detail["instance-id"], "rebalance", told)
        case "aws.health", "AWS Health Event":
            if detail["service"] == "EC2" and detail["eventTypeCategory"] == "scheduledChange":
                ends = parsedate_to_datetime(detail["startTime"]).astimezone(UTC)
                for entity in detail["affectedEntities"]:
                    yield Notice(entity["entityValue"], "maintenance", told, ends)
