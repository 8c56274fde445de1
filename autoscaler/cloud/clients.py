"""boto3's clients for the services that the autoscaler asks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autoscaler.cloud.errors import told_in_words
from autoscaler.cloud.price_list import price_list_region
from autoscaler.model import labels as words

if TYPE_CHECKING:
    from types_boto3_autoscaling.client import AutoScalingClient
    from types_boto3_ec2.client import EC2Client
    from types_boto3_pricing.client import PricingClient


@dataclass(frozen=True, slots=True)
class Clients:
    """boto3's clients, made once."""

    autoscaling: AutoScalingClient
    ec2: EC2Client
    pricing: Callable[[], PricingClient]
    """Made when a price is asked for: the price list is served in few regions."""
    quotas: Callable[[], Any] | None = None
    """Of Service Quotas; ``None``: quotas are not read."""
    sqs: Callable[[], Any] = lambda: None
    """Of SQS, for the queue of interruption notices."""


def connect(region: str) -> Clients:
    """Clients with short patience: a decision waits for them. Region, endpoint and credentials are boto3's own ways."""
    import boto3  # noqa: PLC0415 - slow to import
    from botocore.config import Config  # noqa: PLC0415

    session = boto3.session.Session(region_name=region)
    config = Config(
        retries={"mode": "standard", "total_max_attempts": 3},
        connect_timeout=3,
        read_timeout=10,
        user_agent_extra=words.AUTOSCALER,
    )
    with told_in_words(region):
        return Clients(
            autoscaling=session.client("autoscaling", config=config),
            ec2=session.client("ec2", config=config),
            pricing=lambda: session.client("pricing", region_name=price_list_region(region), config=config),
            quotas=lambda: session.client("service-quotas", config=config),
            sqs=lambda: session.client("sqs", config=config),
        )
