"""Labels by which pods choose machines on other clusters on EC2, made of what a catalogue says of a type.

Those of the cloud provider, of GPU feature discovery, of EKS and of Karpenter. Nodes of a Spillway cluster have them
where their entry's ``labels`` say so; a workload that is planned from files is asked about as it is.
https://karpenter.sh/docs/concepts/scheduling/#well-known-labels
https://docs.aws.amazon.com/eks/latest/userguide/managed-node-groups.html
https://kubernetes.io/docs/reference/labels-annotations-taints/
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Final

from autoscaler.model import labels as words
from autoscaler.model.cluster import Pod
from autoscaler.model.enumeration import counted
from autoscaler.model.instance_types import Price

_OLD_TYPE: Final = "beta.kubernetes.io/instance-type"
_OF_EKS: Final = "eks.amazonaws.com/capacityType"
_OF_KARPENTER: Final = "karpenter.sh/capacity-type"
_STEM: Final = "karpenter.k8s.aws/instance-"
_FAMILY: Final = f"{_STEM}family"
_OF_ONE_PROCESSOR: Final = frozenset({words.INSTANCE_TYPE, _OLD_TYPE, _FAMILY})
"""Labels of which each value belongs to one processor architecture."""
_OTHERS: Final = (_OLD_TYPE, _OF_EKS, _OF_KARPENTER, words.GPU_PRODUCT, words.GPU_MEMORY, words.GPU_COUNT)
_TYPE: Final = re.compile(r"(?P<category>[a-z]+)(-[0-9]+tb)?(?P<generation>[0-9]+)[^.]*\.(?P<size>.+)")
_ZONE: Final = re.compile(r"(?P<region>[a-z]+(-[a-z]+)+-[0-9]+)[a-z]")


def names_processor(pod: Pod) -> bool:
    """Whether the pod says on which processor architecture it runs, or names types, and by them their processor."""
    return any(
        one.key in (words.ARCH, words.OLD_ARCH) or (one.key in _OF_ONE_PROCESSOR and one.operator == "In")
        for term in pod.affinity
        for one in term
    )


def region_of(zone: str) -> str:
    """That of an availability zone; empty where it is named otherwise."""
    found = _ZONE.fullmatch(zone)
    return found["region"] if found else ""


def values_asked(pods: Iterable[Pod], key: str) -> set[str]:
    """Those of this label that some pod names."""
    return {
        value
        for affinity in {pod.affinity for pod in pods}
        for term in affinity
        for one in term
        if one.key == key
        for value in one.values
    }


def region_asked(pods: Iterable[Pod]) -> str:
    """The one region that pods name; empty where they name none or several."""
    named = values_asked(pods, words.REGION)
    return named.pop() if len(named) == 1 else ""


def labels_elsewhere(price: Price, *, region: str) -> dict[str, str]:
    """What a node of the type would be labelled with. ``region``: empty where it is not known."""
    gpus = price.room[words.GPU]
    found = {
        **({words.REGION: region} if region else {}),
        _OLD_TYPE: price.instance_type,
        _OF_EKS: price.capacity_type.upper().replace("-", "_"),
        _OF_KARPENTER: price.capacity_type,
        **({words.GPU_COUNT: str(gpus)} if gpus else {}),
    }
    return found | {f"{_STEM}{key}": value for key, value in _of_karpenter(price).items()}


def _of_karpenter(price: Price) -> dict[str, str]:
    """Returns Karpenter's labels of an instance type, by the end of the label's key."""
    said: dict[str, object] = {"cpu": price.vcpus, "memory": price.memory_mib}
    if price.room[words.GPU] and price.gpu_model:
        said |= {"gpu-count": price.room[words.GPU], "gpu-memory": price.gpu_memory_mib}
        said |= {"gpu-manufacturer": "nvidia", "gpu-name": price.gpu_model.lower().replace(" ", "-")}
    found = {key: str(value) for key, value in said.items() if value}
    named = _TYPE.fullmatch(price.instance_type)
    return found | ({**named.groupdict(), "family": price.instance_type.partition(".")[0]} if named else {})


def notes_on(pods: Iterable[Pod]) -> list[str]:
    """Notes labels that pods ask for and that cannot be known of a node that is to be bought."""
    asked = Counter(
        key
        for pod in pods
        for key in {one.key for term in pod.affinity for one in term}
        if key in _OTHERS or key.startswith(_STEM)
    )
    if not asked:
        return []
    told = ", ".join(f"{key} ({counted(many, 'pod')})" for key, many in sorted(asked.items()))
    return [f"labels read from the catalogue, which nodes of an entry have where its labels say so: {told}"]
