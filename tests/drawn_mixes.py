"""Pods of a few or of hundreds of sizes, over a drawn part of EC2's families: mixes that no budget was found on."""

from __future__ import annotations

import operator
import random
from dataclasses import dataclass, replace
from typing import Final

from autoscaler.config.group_entry import GroupEntry
from autoscaler.config.policy import Policy
from autoscaler.model import labels as words
from autoscaler.model.cluster import Cluster, Group, Pod
from autoscaler.model.resources import CPU, MEMORY, PODS, Resources
from autoscaler.planner.cutting_stock.search_limits import SearchLimits
from tests.builders import GPU_TAINT, a_cluster, a_gang, a_pod, a_policy, an_entry

_FAMILIES: Final = {"c5": (2, 0.0425), "m5": (4, 0.048), "r5": (8, 0.063), "c6i": (2, 0.04), "r6i": (8, 0.061)}
"""GiB and $/h of a vCPU."""
_HALF: Final = 0.5
_SIZES: Final = {"large": 2, "xlarge": 4, "2xlarge": 8, "4xlarge": 16, "8xlarge": 32, "12xlarge": 48, "24xlarge": 96}
_WITH_GPUS: Final = {
    # name: ($/h, vCPUs, GiB, GPUs)
    "g4dn.xlarge": (0.526, 4, 16, 1),
    "g4dn.8xlarge": (2.176, 32, 128, 1),
    "g4dn.12xlarge": (3.912, 48, 192, 4),
    "g5.xlarge": (1.006, 4, 16, 1),
    "g5.12xlarge": (5.672, 48, 192, 4),
    "g5.48xlarge": (16.288, 192, 768, 8),
    "p3.2xlarge": (3.06, 8, 61, 1),
    "p4d.24xlarge": (21.957642, 96, 1152, 8),
}


@dataclass(frozen=True, slots=True)
class Mix:
    """One look at it, nothing running yet."""

    words: str
    cluster: Cluster
    policy: Policy


def drawn_mix(seed: int) -> Mix:
    """50 to 1,000 pods, none, some or all of them with GPUs, by themselves or in gangs; the same for a seed."""
    dice = random.Random(seed)  # noqa: S311 - the same mixes every time
    sizes, many = dice.choice((3, 10, 40, 150)), dice.choice((50, 150, 300, 1000))
    with_gpus, in_gangs = dice.choice((0.0, 0.3, 1.0)), dice.choice((0.0, 0.0, 0.5))
    requests = [_requests(dice, with_gpus) for _ in range(sizes)]
    pods = list[Pod]()
    while len(pods) < many:
        asked = dice.choice(requests)
        if dice.random() < in_gangs:
            pods += a_gang(f"g{len(pods)}", dice.choice((2, 4, 8, 16)), **asked)
        else:
            pods.append(a_pod(f"p{len(pods)}", **asked))
    rooms = _rooms(dice, with_gpus)
    groups = [group_of(kind, usd, _room(*room), most=len(pods)) for kind, (usd, *room) in rooms.items()]
    said = f"{len(pods)} pods of up to {sizes} sizes, {with_gpus:.0%} with GPUs, over {len(groups)} types"
    return Mix(said, a_cluster(pods=pods, groups=groups), a_policy(*map(entry_of, groups)))


def mix_of_many_sizes(seed: int) -> Mix:
    """200 to 1,000 pods without GPUs, hardly two of a size, over most of the families; the same for a seed."""
    dice = random.Random(seed)  # noqa: S311 - the same mixes every time
    many, most = dice.choice((200, 400, 1000)), dice.choice((2000, 8000, 32_000))
    uniform = dice.random() < _HALF
    pods = list[Pod]()
    for number in range(many):
        cpu, memory = (
            (dice.randrange(50, most), dice.randrange(64, 4 * most))
            if uniform
            else (int(50 * (most / 50) ** dice.random()), int(64 * (most / 16) ** dice.random()))
        )
        pods.append(a_pod(f"p{number}", cpu=f"{cpu}m", memory=f"{memory}Mi"))
    rooms = _rooms(dice, 0.0) | {kind: room for seed in "ab" for kind, room in _rooms(dice, 0.0).items()}
    groups = [group_of(kind, usd, _room(*room), most=len(pods)) for kind, (usd, *room) in rooms.items()]
    said = f"{many} pods of up to {most} mCPU, {'uniform' if uniform else 'logarithmic'}, over {len(groups)} types"
    return Mix(said, a_cluster(pods=pods, groups=groups), a_policy(*map(entry_of, groups)))


def best_fit_decreasing(mix: Mix) -> float:
    """What a simple packing costs, $/h: on nodes of one type each pod where least is left over.

    Each node is then of the cheapest type that holds its pods; of all types to begin with the best is taken.
    """
    names = (CPU, MEMORY, PODS)
    sizes = sorted(tuple(pod.requests[name] + (name == PODS) for name in names) for pod in mix.cluster.pods)
    kinds = [([group.allocatable[name] for name in names], group.usd_per_hour or 0.0) for group in mix.cluster.groups]
    costs = []
    for room, _ in kinds:
        nodes = _filled(sizes, room)
        if nodes is not None:
            costs.append(
                sum(
                    min(usd for other, usd in kinds if all(map(operator.le, used, other)))
                    for used in ([whole - free for whole, free in zip(room, node, strict=True)] for node in nodes)
                )
            )
    return min(costs)


def _filled(sizes: list[tuple[int, ...]], room: list[int]) -> list[list[int]] | None:
    """What is free on each node; ``None``: a pod does not fit."""
    nodes = list[list[int]]()
    shares = [max(one / whole for one, whole in zip(size, room, strict=True)) for size in sizes]
    if max(shares) > 1:
        return None
    for _, size in sorted(zip(shares, sizes, strict=True), reverse=True):
        fitting = [node for node in nodes if all(map(operator.le, size, node))]
        if not fitting:
            fitting = [list(room)]
            nodes += fitting
        node = min(fitting, key=lambda node: sum(free / whole for free, whole in zip(node, room, strict=True)))
        node[:] = map(operator.sub, node, size)
    return nodes


def _requests(dice: random.Random, with_gpus: float) -> dict[str, object]:
    cpu = dice.choice((dice.randrange(100, 2000), dice.randrange(1000, 9000, 500), dice.randrange(4000, 48_000, 1000)))
    memory = int(cpu * dice.choice((1, 2, 4, 8)) * dice.uniform(0.5, 1.2))
    gpus = dice.choice((1, 1, 2, 4, 8)) if dice.random() < with_gpus else 0
    return {"cpu": f"{cpu}m", "memory": f"{memory}Mi", "gpus": gpus}


def _rooms(dice: random.Random, with_gpus: float) -> dict[str, tuple[float, int, int, int]]:
    ordinary = {
        f"{family}.{size}": (usd * vcpus, vcpus, gib * vcpus, 0)
        for family, (gib, usd) in _FAMILIES.items()
        for size, vcpus in _SIZES.items()
    }
    large = {"r5.24xlarge": ordinary["r5.24xlarge"]} | (_WITH_GPUS if with_gpus else {})  # hold whatever is drawn
    some = dict(dice.sample(sorted(ordinary.items()), dice.choice((3, 10, 30)))) | large
    return {kind: (round(usd * dice.uniform(0.8, 1.2), 4), *room) for kind, (usd, *room) in some.items()}


def _room(vcpus: int, gib: int, gpus: int) -> Resources:
    return Resources({CPU: vcpus * 970, MEMORY: int(gib * 0.93) * 2**30, PODS: 110, words.GPU: gpus})


def group_of(kind: str, usd: float, room: Resources, *, most: int) -> Group:
    """An empty group of one type, in one zone."""
    return Group(
        name=kind,
        entry=kind.replace(".", "-"),
        instance_type=kind,
        zone="us-east-1a",
        allocatable=room,
        usd_per_hour=usd,
        taints=(GPU_TAINT,) if room[words.GPU] else (),
        maximum=most,
    )


def entry_of(group: Group) -> GroupEntry:
    """What the policy says of it."""
    return an_entry(group.entry, instance_type=group.name, zones=(group.zone,), max=group.maximum)


def with_ten_times_the_work(limits: SearchLimits) -> SearchLimits:
    """What a look could find that took ten times as long."""
    return replace(
        limits,
        work=10 * limits.work,
        work_of_few=10 * limits.work_of_few,
        work_of_first=10 * limits.work_of_first,
        work_per_pod=10 * limits.work_per_pod,
        more_work=10 * limits.more_work,
        more_work_per_row=10 * limits.more_work_per_row,
        near=1e-3,
    )
