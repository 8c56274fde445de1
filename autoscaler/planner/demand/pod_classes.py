"""Pods of one *sort* are alike in all that planning looks at: each question is asked once for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autoscaler.model.cluster import Pod


def sorts_of(pods: Sequence[Pod]) -> tuple[list[int], list[Pod]]:
    """For each pod the number of its sort; and of each sort the first pod."""
    numbers: dict[Any, int] = {}
    models: list[Pod] = []
    found = []
    for pod in pods:
        gang = pod.gang
        key = (
            pod.requests,
            pod.affinity,
            pod.tolerations,
            tuple(pod.labels.items()),
            pod.spread,
            pod.apart_from,
            pod.near_to,
            pod.host_ports,
            pod.namespace,
            pod.not_understood,
            pod.claims,
            (gang.name, gang.topology) if gang is not None and gang.topology else None,
        )
        number = numbers.setdefault(key, len(models))
        if number == len(models):
            models.append(pod)
        found.append(number)
    return found, models
