"""Task groups of Apache YuniKorn: for each of their members it makes a placeholder, in whose place a pod goes.

https://yunikorn.apache.org/docs/user_guide/gang_scheduling/ . Pure; no I/O.
"""

from __future__ import annotations

from typing import Final

import msgspec

from autoscaler.kube.schema.core import Affinity, Json, Meta, PodSpec, Quantities, SpreadConstraint, TolerationJson
from autoscaler.model.cluster import YUNIKORN

TASK_GROUPS, TASK_GROUP = "yunikorn.apache.org/task-groups", "yunikorn.apache.org/task-group-name"
PLACEHOLDER: Final = ("internal.yunikorn.apache.org/placeholder", "yunikorn.apache.org/placeholder")
"""The second up to YuniKorn 1.5."""
APPLICATION: Final = ("yunikorn.apache.org/app-id", "spark-app-selector", "applicationId")


class TaskGroup(Json, frozen=True):
    """One of an application's."""

    name: str = ""
    min_member: int = 0
    min_resource: Quantities = msgspec.field(default_factory=dict)
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    tolerations: tuple[TolerationJson, ...] = ()
    affinity: Affinity = Affinity()
    topology_spread_constraints: tuple[SpreadConstraint, ...] = ()


_DECODER: Final = msgspec.json.Decoder(tuple[TaskGroup, ...])


def task_groups(meta: Meta) -> tuple[TaskGroup, ...]:
    """Those that the pod names; none where what it says makes no sense, as YuniKorn makes no placeholders then."""
    try:
        return _DECODER.decode(meta.annotations.get(TASK_GROUPS, "[]"))
    except msgspec.DecodeError:
        return ()


def is_in_task_group(meta: Meta, spec: PodSpec) -> bool:
    """Whether the pod is a placeholder, or takes the place of one."""
    return spec.scheduler_name == YUNIKORN and (TASK_GROUP in meta.annotations or is_placeholder(meta))


def is_placeholder(meta: Meta) -> bool:
    """Whether YuniKorn made it to keep room."""
    return any(meta.annotations.get(key) == "true" for key in PLACEHOLDER)


def application_of(meta: Meta) -> str:
    """Its id; empty where the pod names none."""
    return next((meta.labels[key] for key in APPLICATION if meta.labels.get(key)), "") or meta.annotations.get(
        APPLICATION[0], ""
    )
