"""Files as a cluster: what pods, prices, machines and a policy from files say, as one look that the planner takes.

Every price, or every group of the policy in each of its zones, is an Auto Scaling group at zero. No scheduler and no
kubelet is there: pods count as tried by the scheduler, machines as ready where the file does not say otherwise.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from autoscaler.config.group_entry import GroupEntry
from autoscaler.config.policy import Policy, asg_name
from autoscaler.inputs.asked import Asked
from autoscaler.inputs.labels_elsewhere import names_processor
from autoscaler.inputs.offers import Offer, nodes_beside_daemons, offers_of
from autoscaler.model import labels as words
from autoscaler.model.cluster import Cluster, Group, Node, Pod
from autoscaler.model.constraints import Taint, Toleration
from autoscaler.model.enumeration import counted
from autoscaler.model.errors import BadInput
from autoscaler.model.instance_types import Price
from autoscaler.model.resources import CPU, MEMORY, Resources

_TRIED: Final = timedelta(minutes=1)
"""After the last pod was created the scheduler has tried all of them."""
_NEXT: Final = timedelta(microseconds=1)
"""Of pods that were created at the same time the first in the file comes first."""
_ZONE: Final = "us-east-1a"
"""Where no zone is named, and none matters."""
_COMMON: Final = "amd64"
_ANY_TYPE: Final = "any.type"
"""A policy wants its types spelled as EC2 spells them; the group has the catalogue's own word."""


def cluster_of(
    asked: Asked,
    prices: Sequence[Price],
    nodes: Sequence[Node] = (),
    *,
    policy: Policy | None = None,
    zones: Sequence[str] = (),
) -> tuple[Cluster, Policy]:
    """One look, and the policy to plan it by. ``zones``: to buy in, where neither prices nor a policy name any.

    A pod that names no processor wants the common one: others are tainted, and tolerated by pods that name one.
    """
    if policy is None and not any(map(names_processor, asked.pods)):
        prices = [price for price in prices if price.arch == _COMMON]
    offers = offers_of(asked, prices, policy, zones)
    for offer in offers:
        if offer.price.room[CPU] <= 0 or offer.price.room[MEMORY] <= 0:
            raise BadInput(f"catalog: instance type {offer.price.instance_type}: has no cpu or no memory for pods")
    asked = replace(asked, pods=tuple(map(_with_huge_pages, asked.pods))) if policy is None else asked
    pods = [
        replace(_tolerant(pod) if names_processor(pod) else pod, created=pod.created + number * _NEXT, scheduler="")
        for number, pod in enumerate(asked.pods)
    ]
    most = len(pods)
    if policy is None:
        names = list(_names(offers))
        first = dict(zip(reversed(names), reversed(offers), strict=True))
        entries = tuple(_entry(name, offer, most=most) for name, offer in first.items())
        policy = Policy(cluster="files", groups=entries)
    else:
        names = [offer.entry for offer in offers]
    maxima = {entry.name: entry.max for entry in policy.groups}
    groups = [_group(policy.cluster, name, offer, most=maxima[name]) for name, offer in zip(names, offers, strict=True)]
    latest = max((pod.created for pod in pods), default=datetime(2026, 1, 1, tzinfo=UTC))
    look = Cluster(
        seen_at=latest + _TRIED,
        pods=tuple(pods),
        nodes=tuple(nodes_beside_daemons(nodes, asked.daemon_sets, pods)),
        groups=tuple(groups),
        daemon_sets=tuple(asked.daemon_sets),
        storage=asked.storage,
    )
    return look, policy


def note_on_huge_pages(pods: Iterable[Pod]) -> list[str]:
    """What is assumed of them."""
    many = sum(any(map(_is_huge_pages, pod.requests)) for pod in pods)
    told = f"hugepages of {counted(many, 'pod')} are taken from memory: nodes have to be made with them"
    return [told] if many else []


def _with_huge_pages(pod: Pod) -> Pod:
    """The pod, its huge pages counted as memory: which part of a node's is set aside its configuration says."""
    huge = {name: amount for name, amount in pod.requests.items() if _is_huge_pages(name)}
    if not huge:
        return pod
    rest = {name: amount for name, amount in pod.requests.items() if name not in huge}
    return replace(pod, requests=Resources(rest | {MEMORY: pod.requests[MEMORY] + sum(huge.values())}))


def _is_huge_pages(resource: str) -> bool:
    return resource.startswith("hugepages-")


def _tolerant(pod: Pod) -> Pod:
    return replace(pod, tolerations=(*pod.tolerations, Toleration(key=words.ARCH, operator="Exists")))


def _names(offers: Sequence[Offer]) -> Iterator[str]:
    """Yields the name of each offer's entry, spelled as a policy's entries are: one type is one entry in all zones."""
    used: Counter[tuple[str, str]] = Counter()
    for offer in offers:
        kind = f"{offer.price.instance_type} {offer.price.capacity_type}"
        stem = re.sub(r"[^a-z0-9]+", "-", kind.lower()).strip("-")[:50] or "type"
        used[stem, offer.zone] += 1
        several = used[stem, offer.zone]
        yield stem if several == 1 else f"{stem}-x{several}"


def _entry(name: str, offer: Offer, *, most: int) -> GroupEntry:
    kind = offer.price.instance_type
    return GroupEntry(
        name=name,
        instance_type=kind if re.fullmatch(r"[a-z0-9-]+\.[a-z0-9-]+", kind) else _ANY_TYPE,
        zones=(_ZONE,),
        max=most,
        usd_per_hour=offer.price.usd,
    )


def _group(cluster: str, entry: str, offer: Offer, *, most: int) -> Group:
    foreign = () if offer.price.arch == _COMMON else (Taint(words.ARCH, offer.price.arch),)
    return Group(
        name=asg_name(cluster, entry, offer.zone or _ZONE),
        entry=entry,
        instance_type=offer.price.instance_type,
        zone=offer.zone or _ZONE,
        allocatable=offer.price.room,
        usd_per_hour=offer.price.usd,
        capacity_type=offer.price.capacity_type,  # type: ignore[arg-type]  # read_catalog takes no other
        labels=offer.labels,
        taints=(*offer.taints, *foreign),
        maximum=most,
        mixed=" " in offer.price.instance_type,
    )
