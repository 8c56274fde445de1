"""The on-prem machines in a stack's configuration: ``spillway:machines``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from autoscaler.cluster import parse_quantity
from autoscaler.documents import Document, parse_span


def _a_span(text: str) -> str:
    parse_span(text)
    return text


def _a_quantity(text: str) -> str:
    parse_quantity(text)
    return text


class MachineSettings(Document):
    """How the machines of the inventory are handled."""

    probe: Literal["ssh", "none"] | None = Field(
        default=None, description="for all machines, whatever their entries say; none: they are stand-ins"
    )
    drain_timeout: Annotated[str, AfterValidator(_a_span)] = Field(
        default="10m", description="how long pods may take to leave a machine that is taken out, e.g. 10m"
    )
    min_disk_free: Annotated[str, AfterValidator(_a_quantity)] = Field(
        default="20Gi", description="disk that must be free for images and logs, e.g. 20Gi"
    )
    force_removal: tuple[str, ...] = Field(
        default=(), description="names of machines that are down for good: nobody waits for their pods"
    )
    renew_join: str = Field(default="", description="any new text: every machine gets new join credentials")
