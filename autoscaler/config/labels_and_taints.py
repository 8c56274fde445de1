"""Names, labels and taints as people write them in the policy and the inventory: spelled as Kubernetes takes them."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, WithJsonSchema

from autoscaler.config.documents import Document
from autoscaler.model.constraints import Taint
from autoscaler.model.labels import PREFIX

LABEL_KEY = r"(?:[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
LABEL_VALUE = r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?"
LABEL_VALUE_IS = "at most 63 letters, digits, dashes, dots and underscores, a letter or digit at either end"
NAME_PATTERN = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\Z"


def _named_well(name: str) -> str:
    if not re.match(NAME_PATTERN, name):
        message = (
            "must be lower-case letters, digits and dashes (at most 63), beginning and ending with a letter or digit"
        )
        raise ValueError(message)
    return name


def _spelled(labels: dict[str, str]) -> dict[str, str]:
    for key, value in labels.items():
        if key.startswith(f"{PREFIX}/"):
            message = f"sets {key!r}, but labels under {PREFIX}/ are Spillway's own: choose another prefix"
            raise ValueError(message)
        if not re.fullmatch(LABEL_KEY, key):
            message = f"sets {key!r}, which is not the key of a label: write one such as example.com/tier"
            raise ValueError(message)
        if not re.fullmatch(LABEL_VALUE, value):
            message = f"sets {key} to {value!r}: {LABEL_VALUE_IS}"
            raise ValueError(message)
    return labels


Name = Annotated[
    str,
    AfterValidator(_named_well),
    WithJsonSchema({"type": "string", "pattern": NAME_PATTERN.replace(r"\Z", "$")}),
]
NodeLabels = Annotated[dict[str, str], AfterValidator(_spelled)]
"""Labels that a person gives to nodes, as Kubernetes takes them."""


class TaintEntry(Document):
    """A taint on every node of a group."""

    key: str = Field(description="the taint's key, e.g. nvidia.com/gpu")
    value: str = Field(default="", description="its value, e.g. a100; empty: none")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = Field(
        default="NoSchedule", description="what becomes of pods that do not tolerate it"
    )

    def as_taint(self) -> Taint:
        """Returns the taint as the planner knows it."""
        return Taint(key=self.key, value=self.value, effect=self.effect)


def _tainted(taints: tuple[TaintEntry, ...]) -> tuple[TaintEntry, ...]:
    seen = set()
    for taint in taints:
        if not re.fullmatch(LABEL_KEY, taint.key) or not re.fullmatch(LABEL_VALUE, taint.value):
            message = f"has {taint.key}={taint.value}: key and value are spelled as those of a label"
            raise ValueError(message)
        if (taint.key, taint.effect) in seen:
            message = f"has {taint.key}:{taint.effect} twice: one taint of that key and effect is enough"
            raise ValueError(message)
        seen.add((taint.key, taint.effect))
    return taints


Taints = Annotated[tuple[TaintEntry, ...], AfterValidator(_tainted)]
