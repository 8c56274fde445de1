"""Pods from a Kubernetes List, with the sizes of their gangs as other objects in the same List say them.

``kubectl get pods,podgroups,jobs -o json`` writes such a List. A PodGroup, Workload, JobSet, training job or Indexed
Job that is not in it says nothing; its pods then are a gang of those that are there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from autoscaler.cluster import GangSize, Pod
from autoscaler.dialects import may_be_alone
from autoscaler.failures import BadInput
from autoscaler.gang_sizes import SERVED, Api, Said
from autoscaler.lists import Written
from autoscaler.nouns import job_from, pod_from
from autoscaler.objects import JobJson, PodJson

_Sizes = dict[tuple[str, str], GangSize]


def pods_in(objects: Iterable[Written], source: str) -> tuple[Pod, ...]:
    """All pods. Raises :class:`BadInput` for an object that is neither a pod nor says a gang's size."""
    pods: list[Pod] = []
    sizes: _Sizes = {}
    for one in objects:
        kind = one.kind or "Pod" if one.is_object else None
        if kind == "Pod":
            pods.append(one.made(PodJson, pod_from))
        elif kind == "Job":
            job = job_from(one.read(JobJson))
            sizes |= {(job.namespace, told_by): size for told_by, size in job.gang_sizes}
        elif kind is not None and (api := _api(one)) is not None:
            parsed = one.read(api.model)
            sizes |= {(parsed.metadata.namespace, told_by): size for told_by, size in _said(api, parsed)}
        else:
            raise BadInput(
                f"{source}: holds {one.told()}: only pods, and objects that say the size of a gang (PodGroup, "
                "Workload, JobSet, Job, training jobs), are read here"
            )
    return tuple(_sized(pod, sizes) for pod in pods)


def _api(one: Written) -> Api | None:
    group, resource = one.api_version.rpartition("/")[0], f"{(one.kind or '').lower()}s"
    return next((api for api in SERVED if (api.group, api.resource) == (group, resource)), None)


def _said(api: Api, parsed: Any) -> Said:
    return api.says(parsed)


def _sized(pod: Pod, sizes: _Sizes) -> Pod:
    ref = pod.gang
    if ref is None:
        return pod
    said = sizes.get((ref.namespace, ref.told_by))
    if said is None:
        return replace(pod, gang=None) if may_be_alone(ref) else pod
    if said.one_by_one:
        return replace(pod, gang=None)
    return replace(pod, gang=replace(ref, size=ref.size or said.size, minimum=ref.minimum or said.minimum))
