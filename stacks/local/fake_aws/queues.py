"""Queues as SQS has them, where moto has them otherwise: an attribute that is not named keeps its value.

moto forgets a queue's policy when another attribute is set.
https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SetQueueAttributes.html
"""

from __future__ import annotations

from typing import Any, Final

from moto.sqs.models import Queue

_MOTOS: Final = Queue._set_attributes  # noqa: SLF001 - what is replaced, and called


def set_attributes(queue: Queue, attributes: dict[str, Any], now: float | None = None) -> None:
    """Stands in for ``Queue._set_attributes``; a new queue has no policy to keep."""
    if "Policy" not in attributes and "_policy_json" in vars(queue):
        attributes = attributes | {"Policy": queue.policy}
    _MOTOS(queue, attributes, now)
