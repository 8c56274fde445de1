"""How many pods of a workload the autoscalers of pods keep: HorizontalPodAutoscaler, and KEDA's ScaledObject.

A chart that is scaled by one says no ``replicas`` of its own. Pure; no I/O.
https://kubernetes.io/docs/concepts/workloads/autoscaling/horizontal-pod-autoscale/
https://keda.sh/docs/latest/reference/scaledobject-spec/
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from autoscaler.inputs.kube_lists import Written
from autoscaler.kube.schema.core import Json, Meta


class _Target(Json, frozen=True):
    kind: str = "Deployment"
    name: str = ""


class _PodAutoscalerSpec(Json, frozen=True):
    scale_target_ref: _Target = _Target()
    min_replicas: int = 1
    max_replicas: int | None = None


class _PodAutoscaler(Json, frozen=True):
    """autoscalingv2.HorizontalPodAutoscaler."""

    metadata: Meta
    spec: _PodAutoscalerSpec = _PodAutoscalerSpec()

    def range(self) -> tuple[int, int | None]:
        return self.spec.min_replicas, self.spec.max_replicas


class _ScaledObjectSpec(Json, frozen=True):
    scale_target_ref: _Target = _Target()
    min_replica_count: int = 0
    max_replica_count: int = 100


class _ScaledObject(Json, frozen=True):
    metadata: Meta
    spec: _ScaledObjectSpec = _ScaledObjectSpec()

    def range(self) -> tuple[int, int]:
        return self.spec.min_replica_count, self.spec.max_replica_count


_MODELS: Final[dict[tuple[str, str | None], Any]] = {
    ("autoscaling", "HorizontalPodAutoscaler"): _PodAutoscaler,
    ("keda.sh", "ScaledObject"): _ScaledObject,
}


class _Scale(NamedTuple):
    by: str
    least: int
    most: int


@dataclass(slots=True)
class PodAutoscalers:
    """Those of a file, by what they scale."""

    notes: list[str] = field(default_factory=list)
    _scales: dict[tuple[str, str, str], _Scale] = field(default_factory=dict)
    """By namespace, kind and name of the workload."""

    def read(self, one: Written) -> bool:
        """Reads the object if it is an autoscaler of pods; says whether it is."""
        model = _MODELS.get((one.api_group, one.kind))
        if model is None:
            return False
        found = one.read(model)
        least, most = found.range()
        target = found.spec.scale_target_ref
        scale = _Scale(one.named(), least, max(least, least if most is None else most))
        self._scales[found.metadata.namespace, target.kind, target.name] = scale
        return True

    def scaled(self, one: Written, workload: Any) -> Any:
        """The workload with as many pods as it is kept at, at least and at most."""
        meta = workload.metadata
        scale = self._scales.get((meta.namespace, one.kind or "", meta.name))
        if scale is None or not hasattr(workload, "scaled"):
            return workload
        found = workload.scaled(scale.least, scale.most)
        if found != workload:
            self.notes.append(f"{one.named()}: {found.spec.replicas} pods, as {scale.by} keeps")
        return found
