"""Rules of the policy on what is told outside the cluster, and where: a webhook in Slack's form for each."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Final, Literal, get_args

from pydantic import Field

from autoscaler.config.document_keys import live
from autoscaler.config.documents import Document, Span
from autoscaler.config.labels_and_taints import Name

Event = Literal[
    "warning",
    "waiting",
    "bought",
    "terminated",
    "idle-gpus",
    "freed",
    "failed",
    "outage",
    "recovered",
    "defect",
    "paused",
    "resumed",
    "schedules",
    "policy-taken",
    "policy-refused",
    "policy-pending",
]
"""As the log names its lines; of its steps, purchases and terminations."""
EVENTS: Final[tuple[Event, ...]] = get_args(Event)
_USUAL: Final[tuple[Event, ...]] = ("warning", "waiting", "idle-gpus", "freed", "outage", "defect", "policy-refused")


class Notification(Document):
    """What is posted to one webhook."""

    name: Annotated[Name, live()] = Field(description="a short name for this rule, e.g. ops")
    webhook_file: Annotated[str, live()] = Field(
        min_length=1,
        description="path of a file with the webhook's address, e.g. of a mounted Secret: it is no part of the policy",
    )
    events: Annotated[tuple[Event, ...], live()] = Field(
        default=_USUAL, min_length=1, description=f"what is told: {', '.join(EVENTS)}"
    )
    namespaces: Annotated[tuple[str, ...], live()] = Field(
        default=(), description="only what is about pods of these; absent: everything"
    )
    channel: Annotated[str | None, live()] = Field(
        default=None, description="channel, where the webhook does not say it, e.g. #gpu-cluster"
    )
    again_after: Annotated[Span, live("time")] = Field(
        default=timedelta(hours=1), description="the same is told again so long after it was told"
    )
