"""What a pod asks for, as kube-scheduler counts it."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from autoscaler.kube.schema.core import (
    PodSpec,
    Quantities,
    ResourceNeeds,
)
from autoscaler.kube.schema.values import same
from autoscaler.model.resources import CPU, MEMORY, PODS, Resources

_POD_LEVEL: Final = (CPU, MEMORY)
"""What pod-level requests may speak of, besides huge pages."""


_Asked = tuple[tuple[str, str | int | float], ...]


def requests_of(spec: PodSpec) -> Resources:
    """What the scheduler counts for a pod, with one of ``pods``.

    The sum of the containers and sidecars, or what the initialisation needs at its peak where that is more; pod-level
    requests in place of both where they are given; plus the overhead of its runtime class.
    https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/#resource-sharing-within-containers
    """
    if not (spec.init_containers or spec.overhead or spec.resources.requests or spec.resources.limits):
        return _sum_of(tuple(_asked(container.resources) for container in spec.containers))
    running = Resources.total(_needs(container.resources) for container in spec.containers)
    sidecars = peak = Resources()
    for container in spec.init_containers:
        needs = _needs(container.resources)
        if container.is_sidecar:
            running, sidecars = running + needs, sidecars + needs
        else:
            peak = _larger(peak, needs + sidecars)
    whole = _pod_level(_larger(running, peak), spec.resources)
    return same(whole + amounts_of(tuple(sorted(spec.overhead.items()))) + _ONE_POD)


_ONE_POD: Final = Resources({PODS: 1})


def _needs(needs: ResourceNeeds) -> Resources:
    """Requests; where there is none, the limit, as the API server fills it in for pods (but not for templates)."""
    return amounts_of(_asked(needs))


def _asked(needs: ResourceNeeds) -> _Asked:
    both: Quantities = {**needs.limits, **needs.requests}
    return tuple(sorted(both.items()))


@lru_cache(maxsize=8192)
def _sum_of(containers: tuple[_Asked, ...]) -> Resources:
    """Sums up the requests of containers and the pod itself; ten thousand pods have a few dozen such sums."""
    return Resources.total((*map(amounts_of, containers), _ONE_POD))


def _pod_level(containers: Resources, needs: ResourceNeeds) -> Resources:
    given = _needs(needs)
    if not given:
        return containers
    said = {name for name in given if name in _POD_LEVEL or name.startswith("hugepages-")}
    return Resources({**containers, **{name: given[name] for name in said}})


@lru_cache(maxsize=4096)
def amounts_of(quantities: _Asked) -> Resources:
    """Returns quantities as numbers, each resource in its own unit."""
    return Resources.parse(dict(quantities))


def _larger(one: Resources, other: Resources) -> Resources:
    return Resources({name: max(one[name], other[name]) for name in {*one, *other}})
