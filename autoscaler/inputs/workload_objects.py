"""Workload objects as the pods that their controllers make, also those within a CronJob or an AppWrapper.

What each kind makes is in ``workload_kinds.py``. Pure; no I/O.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from autoscaler.inputs.kube_lists import NAMESPACE, Written, object_of
from autoscaler.inputs.workload_kinds import WORKLOADS, Replicas
from autoscaler.kube.schema.constraints import own_claims
from autoscaler.kube.schema.convert import pod_from
from autoscaler.kube.schema.core import Json, Meta, OwnerReference, PodJson, PodSpec
from autoscaler.kube.schema.storage import ClaimJson
from autoscaler.model.cluster import Pod


class _CronJobSpec(Json, frozen=True):
    job_template: dict[str, Any] = msgspec.field(default_factory=dict)


class _CronJob(Json, frozen=True):
    """batchv1.CronJob, and what others made like it."""

    spec: _CronJobSpec = _CronJobSpec()


class _Component(Json, frozen=True):
    template: dict[str, Any] = msgspec.field(default_factory=dict)


class _AppWrapperSpec(Json, frozen=True):
    components: tuple[_Component, ...] = ()


class _AppWrapper(Json, frozen=True):
    metadata: Meta = Meta()
    spec: _AppWrapperSpec = _AppWrapperSpec()


def unwrapped(one: Written) -> Iterator[Written]:
    """The object itself; of a CronJob or RayCronJob the job of one run, of an AppWrapper the objects in it.

    AppWrapper: https://project-codeflare.github.io/appwrapper/.
    """
    if one.kind == "CronJob" and one.api_group in ("batch", "batch.volcano.sh"):
        yield _of_one_run(one, "Job", spec=one.read(_CronJob).spec.job_template.get("spec"))
    elif (one.api_group, one.kind) == ("ray.io", "RayCronJob"):
        yield _of_one_run(one, "RayJob", spec=one.read(_CronJob).spec.job_template)
    elif (one.api_group, one.kind) == ("workload.codeflare.dev", "AppWrapper"):
        wrapper = one.read(_AppWrapper)
        namespace = wrapper.metadata.namespace or NAMESPACE
        for component in wrapper.spec.components:
            yield from unwrapped(object_of(component.template, one.source, namespace=namespace))
    else:
        yield one


def _of_one_run(one: Written, kind: str, *, spec: Any) -> Written:
    return Written(one.source, kind, one.api_version, {"metadata": one.plain().get("metadata"), "spec": spec})


def model_of(one: Written) -> Any | None:
    """The class that reads it; ``None`` where it is of no kind whose pods are known."""
    return WORKLOADS.get((one.api_group, one.kind or ""))


@dataclass(frozen=True, slots=True)
class PodMade:
    """A pod that a controller makes, and the volume claims that are made with it."""

    pod: Pod
    spec: PodSpec
    meta: Meta
    """As its controller writes it, the pod's own name aside."""
    claims: tuple[ClaimJson, ...] = ()


def own_claims_of(pod: PodJson) -> Iterator[ClaimJson]:
    """Those that are made for a pod's ephemeral volumes; none where the pod has no name yet."""
    for volume, one in own_claims(pod.spec) if pod.metadata.name else ():
        yield _claim(f"{pod.metadata.name}-{volume}", pod.metadata, one)


def pods_made_by(one: Written, workload: Any) -> Iterator[PodMade]:
    """All its pods, none of them bound; ``workload`` is read as ``model_of`` says."""
    for replicas in workload.pods():
        yield from _pods(replicas, workload.metadata, one.kind or "")


def _pods(replicas: Replicas, owner: Meta, kind: str) -> Iterator[PodMade]:
    if replicas.count <= 0:
        return
    given, spec = replicas.template.metadata, replicas.template.spec
    meta = Meta(
        name=replicas.name,
        namespace=owner.namespace,
        labels={**given.labels, **replicas.labels},
        annotations={**given.annotations, **replicas.annotations},
        owner_references=(OwnerReference(kind=kind, name=owner.name, controller=True),),
    )
    model = pod_from(PodJson(metadata=meta, spec=spec))
    own = dict(own_claims(spec))
    named = tuple(name for name in model.claims if name.removeprefix(f"{replicas.name}-") not in own)
    for number in range(replicas.count):
        name = f"{replicas.name}-{number}" if replicas.count > 1 else replicas.name
        claims = (
            *(_claim(f"{one.metadata.name}-{name}", owner, one) for one in replicas.claims),
            *(_claim(f"{name}-{volume}", owner, one) for volume, one in own.items()),
        )
        pod = replace(model, name=name, claims=(*named, *(one.metadata.name for one in claims)))
        yield PodMade(pod, spec, meta, claims)


def _claim(name: str, owner: Meta, template: ClaimJson) -> ClaimJson:
    return ClaimJson(metadata=Meta(name=name, namespace=owner.namespace), spec=template.spec)


_OF_THE_CLUSTER: Final = frozenset({
    *("", "admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "autoscaling"),
    *("certificates.k8s.io", "coordination.k8s.io", "discovery.k8s.io", "flowcontrol.apiserver.k8s.io"),
    *("kind.x-k8s.io", "kueue.x-k8s.io", "networking.k8s.io", "node.k8s.io", "policy"),
    *("rbac.authorization.k8s.io", "resource.k8s.io", "scheduling.k8s.io", "storage.k8s.io"),
})  # fmt: skip
"""API groups of which objects of other kinds than those known make no pods by themselves."""
_SIGNS: Final = frozenset({
    *("container", "containers", "image", "imageName", "podSets", "podTemplate", "steps"),
    *("executor", "instances", "numNodes", "predictor", "replicas"),
})  # fmt: skip
"""Keys that an object has that runs something."""


def makes_no_pods(one: Written) -> bool:
    """Whether it is of an API group whose other kinds make none by themselves."""
    return bool(one.api_version) and one.api_group in _OF_THE_CLUSTER


def runs_something(one: Written) -> bool:
    """Whether an object of a kind that is not known here looks as if pods were made of it."""
    return _has_signs(one.plain())


def _has_signs(value: Any) -> bool:
    if isinstance(value, dict):
        return bool(_SIGNS & value.keys()) or _asks(value.get("resources")) or any(map(_has_signs, value.values()))
    return isinstance(value, list) and any(map(_has_signs, value))


def _asks(resources: Any) -> bool:
    return isinstance(resources, dict) and not resources.keys().isdisjoint(("limits", "requests"))
