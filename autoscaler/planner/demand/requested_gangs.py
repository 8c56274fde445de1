"""ProvisioningRequests as gangs: all that is asked for has a place, or nothing is bought.

A request whose room is there has it booked for ten minutes. Pods that are created meanwhile, and say that they take the
room of that request, do so one by one; nothing more is bought for those that have not come.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

from autoscaler.model.cluster import FOREVER, Cluster, Pod, ProvisioningRequest
from autoscaler.model.labels import REQUESTED
from autoscaler.planner.demand.gangs import Gang

BOOKED_FOR: Final = timedelta(minutes=10)
"""As in cluster-autoscaler."""
MOST_PODS: Final = 20_000
"""Of one request: it costs nothing to write a larger number, and each of its pods would be planned for."""


def name_of(request: ProvisioningRequest) -> str:
    """Returns the name of the request's gang. No pod and no job has such a name."""
    return f"{request.namespace}/{request.name} (ProvisioningRequest)"


def size_of(request: ProvisioningRequest) -> int:
    """How many pods it asks room for."""
    return sum(one.count for one in request.pod_sets)


def why_not_planned(request: ProvisioningRequest) -> str:
    """What keeps it from being a gang at all; empty where nothing does."""
    if size_of(request) > MOST_PODS:
        return f"it asks for {size_of(request)} pods: at most {MOST_PODS} are planned for"
    return "" if request.is_whole else "a PodTemplate that it names is not there"


def requested_gangs(cluster: Cluster) -> tuple[Gang, ...]:
    """Returns the gang of each request whose templates are there and whose pods have not all come, ordered by name."""
    if not cluster.provisioning_requests:
        return ()
    come: dict[tuple[str, str], list[Pod]] = defaultdict(list)
    for pod in cluster.pods:
        if pod.consumes and not pod.deleting and pod.phase != "Failed":  # else another comes in its place
            come[pod.namespace, pod.consumes].append(pod)
    found = (_gang(one, come[one.namespace, one.name], cluster) for one in cluster.provisioning_requests)
    return tuple(gang for gang in found if gang is not None)


def _gang(request: ProvisioningRequest, come: list[Pod], cluster: Cluster) -> Gang | None:
    if request.provisioned is not None and cluster.seen_at >= request.provisioned + BOOKED_FOR:
        return None
    if why_not_planned(request):
        return None
    asked = [one.pod for one in request.pod_sets if one.pod is not None for _ in range(one.count)]
    pods = [_pod(request, pod, number) for number, pod in enumerate(asked)]
    waiting = tuple(not_come(pods, come))
    if not waiting:
        return None
    return Gang(
        name=name_of(request),
        waiting=waiting,
        nodes=(),
        arrived=len(waiting),
        size=len(waiting),
        enough=len(waiting),
        settled=0,
        unknown_size_source="",
        topology=None,
        priority=max(pod.priority for pod in waiting),
        oldest=request.created,
        is_lone=False,
    )


def _pod(request: ProvisioningRequest, pod: Pod, number: int) -> Pod:
    """No pod has such a name."""
    may_buy = request.may_buy and request.provisioned is None
    return replace(
        pod,
        name=f"{request.name}/{number}",
        uid=f"{request.uid}/{number}",
        created=request.created,
        gang=None,
        gates=(REQUESTED,),
        patience=pod.patience if may_buy else FOREVER,
    )


def not_come(pods: Sequence[Pod], come: Iterable[Pod]) -> list[Pod]:
    """Each pod that has come stands for one that asks the same; one that asks something else for any other."""
    unmatched = Counter(pod.requests for pod in come)
    left = []
    for pod in pods:
        if unmatched[pod.requests]:
            unmatched[pod.requests] -= 1
        else:
            left.append(pod)
    return left[unmatched.total() :]
