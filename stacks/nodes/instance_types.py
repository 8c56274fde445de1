"""What EC2 says of the instance types that a policy names, and whether an entry asks of them what they can do.

Asked of AWS before any resource is declared: a type that is not there, a set that makes no sense, or adapters that a
type does not have are told with file, entry and key, in a preview as in an update.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pulumi
import pulumi_aws as aws

from autoscaler.config.group_entry import GroupEntry
from autoscaler.config.policy import Policy
from autoscaler.model import labels as words
from autoscaler.model.errors import BadInput, Unavailable

_NOT_THERE: Final = ("InvalidInstanceType", "no matching EC2 Instance Type")
_PLAIN_FIRST_CARD: Final = ("p6-b300.",)
"""EC2 lists ``interface`` alone under the first of their ``NetworkCards``, which the plugin's look-up does not tell."""
_MEMBER_VCPUS: Final = 2
_MEMBER_MIB: Final = 1700
"""Below them `kubeadm init` stops in its first checks: ControlPlaneNumCPU, ControlPlaneMem in its constants."""
_TWICE: Final = 2
"""A set in which one type has more than this many times the CPU or memory of another is not of one shape."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One instance type, reduced to what a group depends on."""

    architecture: str
    """As EC2 spells it: ``x86_64``, ``arm64``."""
    vcpus: int
    memory_mib: int
    gpus: int = 0
    gpu: str = ""
    """Its name and memory, e.g. ``A10G of 24576 MiB``; empty without."""
    adapters: int = 0
    """Elastic Fabric Adapters at most: one for each network card."""
    strategies: frozenset[str] = frozenset({"cluster"})
    """Of placement groups."""
    sold_as: frozenset[str] = frozenset({"on-demand", "spot"})


def look_up_shapes(policy: Policy, *, provider: aws.Provider, source: str) -> dict[str, Shape]:
    """Every type that the policy names, asked of EC2.

    Raises ``BadInput`` for one that is not there, ``Unavailable`` where EC2 does not answer.
    """
    shapes: dict[str, Shape] = {}
    for place, entry in enumerate(policy.groups):
        for name in entry.types:
            if name not in shapes:
                where = f"{source}: groups[{place}] ({entry.name}).{_key(entry)}"
                shapes[name] = look_up_shape(name, provider=provider, region=policy.region, where=where)
    return shapes


def look_up_shape(name: str, *, provider: aws.Provider, region: str, where: str) -> Shape:
    """One type, which ``where`` names. Raises as ``look_up_shapes``."""
    try:
        found = aws.ec2.get_instance_type(instance_type=name, opts=pulumi.InvokeOptions(provider=provider))
    except Exception as error:  # noqa: BLE001 - the SDK has no type of its own for a look-up that failed
        if not any(said in str(error) for said in _NOT_THERE):
            raise Unavailable(f"{where}: EC2 does not say what {name} is: {error}") from None
        raise BadInput(
            f"{where}: EC2 has no instance type {name} in {region}: choose one of those that "
            "`aws ec2 describe-instance-types` lists"
        ) from None
    return Shape(
        architecture="arm64" if "arm64" in found.supported_architectures else "x86_64",
        vcpus=found.default_vcpus,
        memory_mib=found.memory_size,
        gpus=sum(gpu.count for gpu in found.gpuses),
        gpu=", ".join(sorted({f"{gpu.name} of {gpu.memory_size} MiB" for gpu in found.gpuses})),
        adapters=min(found.efa_maximum_interfaces, found.maximum_network_cards) if found.efa_supported else 0,
        strategies=frozenset(found.supported_placement_strategies),
        sold_as=frozenset(found.supported_usages_classes),
    )


def check_shapes(policy: Policy, shapes: Mapping[str, Shape], *, source: str) -> None:
    """Each entry against what its types are. Raises ``BadInput`` with every mistake."""
    wrong = [
        f"{source}: groups[{place}] ({entry.name}).{mistake}"
        for place, entry in enumerate(policy.groups)
        for mistake in _mistakes(entry, {name: shapes[name] for name in entry.types})
    ]
    if wrong:
        raise BadInput("\n".join(wrong))


def check_member(shape: Shape, name: str, *, where: str) -> None:
    """Whether kubeadm founds a control plane on it. Raises ``BadInput``."""
    if shape.vcpus < _MEMBER_VCPUS or shape.memory_mib < _MEMBER_MIB:
        raise BadInput(
            f"{where} = {name!r} has {shape.vcpus} vCPU and {shape.memory_mib} MiB of memory: kubeadm wants "
            f"{_MEMBER_VCPUS} and {_MEMBER_MIB} MiB at least, e.g. m6i.large"
        )


def adapters_of(entry: GroupEntry, shapes: Mapping[str, Shape]) -> int:
    """How many Elastic Fabric Adapters the entry's nodes get."""
    return shapes[entry.types[0]].adapters if entry.efa else 0


def first_adapter_card(entry: GroupEntry) -> int:
    """The first network card that takes an adapter: on the types of ``_PLAIN_FIRST_CARD`` not the node's own."""
    return 1 if entry.types[0].startswith(_PLAIN_FIRST_CARD) else 0


def _mistakes(entry: GroupEntry, shapes: Mapping[str, Shape]) -> Iterator[str]:
    for name, shape in shapes.items():
        if entry.efa and not shape.adapters:
            yield f"efa = true: {name} has no Elastic Fabric Adapter: take a type that has, or leave efa out"
        if entry.resources.get(words.GPU, "0") != "0" and not shape.gpus:
            wanted = entry.resources[words.GPU]
            yield f"resources: {words.GPU} = {wanted!r}: {name} has no GPU, and no pod would ever get one there"
        if entry.placement == "cluster" and "cluster" not in shape.strategies:
            yield f"placement = 'cluster': {name} cannot be placed in a cluster placement group: leave placement out"
        kind = entry.capacity_type
        if kind != "on-demand" and kind not in shape.sold_as:
            yield f"capacity_type = '{kind}': {name} is not sold as {kind}: take on-demand"
    yield from _not_of_one_shape(entry, shapes)


def _not_of_one_shape(entry: GroupEntry, shapes: Mapping[str, Shape]) -> Iterator[str]:
    """Pods are promised what every type of a set has: what one has more of is paid for and never counted on."""
    same: list[tuple[str, Callable[[Shape], object], str]] = [
        ("architecture", lambda shape: shape.architecture, "the nodes of a group boot from one image"),
        ("number of GPUs", lambda shape: shape.gpus, "GPUs that only some nodes have could not be promised to a pod"),
        (
            "kind of GPU",
            lambda shape: shape.gpu or "none",
            "a gang could get both, and would train at the slower's pace",
        ),
    ]
    if entry.efa:
        same.append(("number of EFAs", lambda shape: shape.adapters, "a group has one list of network interfaces"))
    for what, of, why in same:
        if len({of(shape) for shape in shapes.values()}) > 1:
            yield f"instance_types: not of one {what} ({_each(shapes, of)}): {why}; write an entry for each"
    sizes: list[tuple[str, Callable[[Shape], int]]] = [
        ("vCPUs", lambda shape: shape.vcpus),
        ("MiB of memory", lambda shape: shape.memory_mib),
    ]
    for unit, amount in sizes:
        amounts = [amount(shape) for shape in shapes.values()]
        if max(amounts) > _TWICE * min(amounts):
            yield (
                f"instance_types: {_each(shapes, amount)} {unit}: pods are promised the least, so more than half of "
                "the largest would never be used; write an entry for each"
            )


def _each(shapes: Mapping[str, Shape], of: Callable[[Shape], object]) -> str:
    return ", ".join(f"{name}: {of(shape)}" for name, shape in shapes.items())


def _key(entry: GroupEntry) -> str:
    return "instance_types" if entry.instance_types else "instance_type"
