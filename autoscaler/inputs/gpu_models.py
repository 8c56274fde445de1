"""Which GPU models a pod takes, as affinity to what machines and types have.

A table says it in its column ``gpu_spec``, an object of Kubernetes by the label of NVIDIA's feature discovery. The
Alibaba trace writes a model and, after an M, its memory in GiB (``V100M16|V100M32``); the catalogue has a model and its
memory in MiB; feature discovery labels nodes ``Tesla-V100-SXM2-32GB`` and ``nvidia.com/gpu.memory``.
https://github.com/NVIDIA/k8s-device-plugin/blob/main/docs/gpu-feature-discovery/README.md
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from autoscaler.inputs.asked import Asked
from autoscaler.model import labels as words
from autoscaler.model.cluster import Node, Pod
from autoscaler.model.constraints import Requirement, Term
from autoscaler.model.enumeration import counted
from autoscaler.model.instance_types import Price

_SPEC: Final = re.compile(r"(?P<model>[a-z]+[0-9]+[a-z]*?)(?:m(?P<gib>[0-9]+))?")
_GIB_WORD: Final = re.compile(r"([0-9]+)gi?b")
_MIB_IN_A_GIB: Final = 1024
_NEAR: Final = 0.12
"""Of memory: 24 GB are 22,888 MiB in EC2's words."""
_PARTS: Final = frozenset({"mig", "shared", "vgpu"})
"""In the label of a GPU that is divided: the catalogue has whole ones."""


@dataclass(frozen=True, slots=True)
class _Gpu:
    """A kind of GPU of a machine or type, as labels say it."""

    product: str
    memory: str
    """MiB; empty where it is not said."""

    def is_one_of(self, spec: str) -> bool:
        return any(self._is(one) for one in alternatives(spec))

    def _is(self, one: str) -> bool:
        asked = _SPEC.fullmatch(one.lower())
        if asked is None:
            return one.lower() == self.product.lower()
        models, gib = self.names_and_gib()
        if asked["model"] not in models:
            return False
        return asked["gib"] is None or (gib is not None and _is_near(gib, int(asked["gib"])))

    def is_labelled(self, label: str) -> bool:
        """Whether feature discovery may call it so: ``Tesla-V100-SXM2-32GB`` is a v100 of 32 GiB."""
        names, asked = _Gpu(label, "").names_and_gib()
        _, gib = self.names_and_gib()
        if self.product.lower() not in names or not _PARTS.isdisjoint(names):
            return False
        return asked is None or gib is None or _is_near(gib, asked)

    def names_and_gib(self) -> tuple[set[str], float | None]:
        """What its model may be called, and GiB of memory."""
        parts = re.split(r"[-_ /]+", self.product.lower())
        own = _SPEC.fullmatch(self.product.lower())
        gib = [float(found[1]) for part in parts if (found := _GIB_WORD.fullmatch(part))]
        if own is not None and own["gib"]:
            gib.append(float(own["gib"]))
        if self.memory.isdecimal():
            gib.append(int(self.memory) / _MIB_IN_A_GIB)
        return {*parts, *((own["model"],) if own else ())}, gib[-1] if gib else None


def _is_near(gib: float, asked: float) -> bool:
    return abs(gib - asked) <= _NEAR * asked


def alternatives(spec: str) -> list[str]:
    """The models that a ``gpu_spec`` names."""
    return [one.strip() for one in re.split(r"[|;,]", spec) if one.strip()]


def with_gpu_models(asked: Asked, prices: Iterable[Price], nodes: Iterable[Node]) -> Asked:
    """The same pods, each tied to the GPU models that it takes; a note says which models there are none of.

    A pod that asks for a product as feature discovery calls it takes also types that the catalogue says to have it.
    """
    sold = {_Gpu(price.gpu_model, str(price.gpu_memory_mib or "")) for price in prices if price.gpu_model}
    asked = _with_products(asked, sorted(sold, key=str))
    if not asked.gpu_specs:
        return asked
    supply = sold | {
        _Gpu(node.labels[words.GPU_PRODUCT], node.labels.get(words.GPU_MEMORY, ""))
        for node in nodes
        if words.GPU_PRODUCT in node.labels
    }
    terms = {spec: _terms(spec, sorted(supply, key=str)) for spec in set(asked.gpu_specs.values())}
    pods = tuple(_tied(pod, terms.get(asked.gpu_specs.get(pod.key, ""))) for pod in asked.pods)
    return replace(asked, pods=pods, gpu_specs={}, notes=(*asked.notes, *_unknown(asked.gpu_specs, terms, supply)))


def _with_products(asked: Asked, sold: Sequence[_Gpu]) -> Asked:
    """Pods that name a product take types with it as well as nodes that have the label."""
    wider = {affinity: _widened(affinity, sold) for affinity in {pod.affinity for pod in asked.pods}}
    pods = tuple(
        pod if (affinity := wider[pod.affinity]) == pod.affinity else replace(pod, affinity=affinity)
        for pod in asked.pods
    )
    return replace(asked, pods=pods)


def _widened(affinity: tuple[Term, ...], sold: Sequence[_Gpu]) -> tuple[Term, ...]:
    """Each term, and after it one for each kind of GPU that one of its products may be and none that it excludes."""
    found: list[Term] = []
    for term in affinity:
        wanted = [one for one in term if one.key == words.GPU_PRODUCT and one.operator == "In"]
        excluded = [one for one in term if one.key == words.GPU_PRODUCT and one.operator == "NotIn"]
        others = tuple(one for one in term if one not in wanted and one not in excluded)
        kept = [gpu for gpu in sold if not any(gpu.is_labelled(value) for one in excluded for value in one.values)]
        lost = sorted({gpu.product for gpu in sold if gpu not in kept})
        but = (*excluded, *((Requirement(words.GPU_PRODUCT, "NotIn", tuple(lost)),) if lost else ()))
        found.append((*others, *wanted, *but))
        # Of a model that is excluded with one size of memory the others are not.
        may_be = [
            gpu
            for gpu in kept
            if (wanted or gpu.product in lost) and all(any(map(gpu.is_labelled, one.values)) for one in wanted)
        ]
        found += [(*others, *_that_are(gpu)) for gpu in may_be if _that_are(gpu) != tuple(wanted)]
    return tuple(found)


def _that_are(gpu: _Gpu) -> Term:
    return (
        Requirement(words.GPU_PRODUCT, "In", (gpu.product,)),
        *((Requirement(words.GPU_MEMORY, "In", (gpu.memory,)),) if gpu.memory else ()),
    )


def _terms(spec: str, supply: Sequence[_Gpu]) -> tuple[Term, ...]:
    """One term for each kind of GPU that will do; one that nothing fulfils where there is none."""
    found = [gpu for gpu in supply if gpu.is_one_of(spec)]
    if not found:
        return ((Requirement(words.GPU_PRODUCT, "In", tuple(alternatives(spec))),),)
    return tuple(map(_that_are, found))


def _tied(pod: Pod, terms: tuple[Term, ...] | None) -> Pod:
    if not terms or not pod.requests[words.GPU]:
        return pod
    return replace(pod, affinity=tuple((*own, *term) for own in pod.affinity or ((),) for term in terms))


def _unknown(specs: Mapping[str, str], terms: Mapping[str, tuple[Term, ...]], supply: set[_Gpu]) -> list[str]:
    pods = Counter(specs.values())
    return [
        f"gpu_spec {spec} of {counted(pods[spec], 'pod')}: no machine, and no type in the catalogue, has such a GPU"
        for spec in sorted(terms)
        if not any(gpu.is_one_of(spec) for gpu in supply)
    ]
