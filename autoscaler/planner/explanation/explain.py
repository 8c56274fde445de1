"""Why something is as it is: a pod, a job, a node or a group, in lines worked out from one look and its plan. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from autoscaler.config.policy import Policy
from autoscaler.model import labels as words
from autoscaler.model.actions import Admit, Grow, Plan, Resize
from autoscaler.model.cluster import Cluster, Group, Pod, ProvisioningRequest
from autoscaler.model.enumeration import counted, few
from autoscaler.model.errors import BadInput
from autoscaler.model.jobs import WaitingStep, succeeded
from autoscaler.model.needed_changes import NeededChange, merged
from autoscaler.model.step_descriptions import describe
from autoscaler.planner.demand.requested_gangs import BOOKED_FOR, size_of, why_not_planned
from autoscaler.planner.explanation.explain_groups import explain_group
from autoscaler.planner.explanation.explain_nodes import explain_node


@dataclass(frozen=True, slots=True)
class Coming:
    """Nodes of one group that pods wait for and that are not ready yet."""

    instance_type: str
    zone: str
    nodes: int
    launched: int
    """How many of them EC2 has launched, as far as is seen."""
    usd_per_hour: float
    """Of all of them."""


def coming(key: str, cluster: Cluster, plan: Plan) -> tuple[Coming, ...]:
    """Nodes that are bought, or bought next, for pods of the job ``namespace/name``, by group."""
    ready = [node for node in cluster.nodes if node.ready]
    waiting = [pod.key for pod in cluster.pods if _is_of(pod, key) and not pod.node]
    places = {plan.memory.assignments[pod] for pod in waiting if pod in plan.memory.assignments}
    wanted = Counter(place.group for place in places if place.node not in {node.name for node in ready})
    joined = {node.instance_id for node in ready}
    return tuple(_coming(group, wanted[group.name], joined) for group in cluster.groups if wanted[group.name])


def _coming(group: Group, nodes: int, joined: set[str | None]) -> Coming:
    launched = sum(one.id not in joined and one.state != "terminating" for one in group.instances)
    return Coming(group.instance_type, group.zone, nodes, min(nodes, launched), group.usd_per_hour * nodes)


def explain(kind: str, name: str, cluster: Cluster, policy: Policy, plan: Plan) -> tuple[str, ...]:
    """Lines about it. ``kind``: one of ``KINDS``; ``name`` of a pod or job: ``namespace/name``.

    Raises ``BadInput`` where there is no such thing.
    """
    return tuple(KINDS[kind](name, cluster, policy, plan))


def explain_pod(cluster: Cluster, plan: Plan, key: str) -> str:
    """One line about the pod ``namespace/name``. Raises ``BadInput`` where there is none."""
    pod = next((pod for pod in cluster.pods if pod.key == key), None)
    if pod is None:
        namespace, _, name = key.partition("/")
        raise BadInput(f"there is no pod {name!r} in namespace {namespace!r}: see `kubectl get pods -n {namespace}`")
    return f"{pod.key} {_said(pod, plan)}"


def changes_for(kind: str, key: str, cluster: Cluster, plan: Plan) -> tuple[NeededChange, ...]:
    """All that has to change for the pod, or for every pod of the job, ``namespace/name``; of other kinds none."""
    asked = {
        pod.key for pod in cluster.pods if (kind == "pod" and pod.key == key) or (kind == "job" and _is_of(pod, key))
    }
    return merged(*{one.changes: None for one in plan.waiting if one.pod in asked})


def _of_pod(key: str, cluster: Cluster, _policy: Policy, plan: Plan) -> Iterator[str]:
    yield explain_pod(cluster, plan, key)


def _of_job(key: str, cluster: Cluster, _policy: Policy, plan: Plan) -> Iterator[str]:
    """A line for each thing that is to be said of its pods, the pods that it holds for first."""
    pods = sorted((pod for pod in cluster.pods if _is_of(pod, key)), key=lambda pod: (len(pod.name), pod.name))
    namespace, _, name = key.partition("/")
    steps = [one for one in cluster.workflow_steps if one.namespace == namespace and name in (one.of, one.name)]
    requests = [one for one in cluster.provisioning_requests if f"{one.namespace}/{one.name}" == key]
    yield from (_requested(one, plan) for one in requests)
    if requests and not pods:
        return
    if not pods and not steps:
        raise BadInput(f"no pod in namespace {namespace!r} is of a job or gang {name!r}")
    said: dict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        said[_said(pod, plan)].append(pod)
    ref = next((pod.gang for pod in pods if pod.gang is not None), None)
    sizes = list(_sizes(key, pods, cluster, plan))
    wanted = ref.size if ref is not None and not sizes else None
    missing = f", of {wanted} that it is to have" if wanted is not None and wanted > len(pods) else ""
    yield f"{key} has {counted(len(pods), 'pod')}{missing}"
    yield from sizes
    for line, alike in sorted(said.items(), key=lambda one: (-len(one[1]), one[0])):
        yield f"{few(pod.name for pod in alike)}: {line}"
    for step in steps:
        yield f"{step.name}: {_turn_of(step)}"


def _requested(request: ProvisioningRequest, plan: Plan) -> str:
    key, many = f"{request.namespace}/{request.name}", counted(size_of(request), "pod")
    if request.provisioned is not None:
        until = request.provisioned + BOOKED_FOR
        return f"ProvisioningRequest {key} has its room, which is kept until {until:%H:%M:%S} UTC: it is for {many}"
    why = why_not_planned(request) or next((one.because for one in plan.waiting if one.pod.startswith(f"{key}/")), "")
    return f"ProvisioningRequest {key} asks room for {many}: {why or 'all of it is there, and it is told next'}"


def _turn_of(step: WaitingStep) -> str:
    if step.failed:
        return f"is given up next, for {step.failed} has failed"
    return f"begins when {succeeded(step.left)}" if step.left else f"begins next, for {succeeded(step.after)}"


def _sizes(key: str, pods: list[Pod], cluster: Cluster, plan: Plan) -> Iterator[str]:
    """Yields how many tasks each of its elastic roles has, and why that changes next."""
    namespace, owners = key.partition("/")[0], {pod.owner for pod in pods}
    next_steps = {(step.namespace, step.name): step for step in plan.steps if isinstance(step, Resize)}
    for role in cluster.elastic:
        if role.namespace == namespace and role.owner in owners:
            since = f" since {role.changed:%Y-%m-%d %H:%M:%S} UTC" if role.changed else ""
            step = next_steps.get((role.namespace, role.name))
            change = f"; next: {describe(step)}: {step.because}" if step is not None else ""
            yield f"{role.name} has {role.size} of {role.minimum} to {role.maximum} tasks{since}{change}"


def _is_of(pod: Pod, key: str) -> bool:
    namespace, _, name = key.partition("/")
    gang = pod.gang.name if pod.gang is not None else ""
    return pod.namespace == namespace and name in (gang, pod.labels.get(words.JOB), pod.owner.partition("/")[2])


def _said(pod: Pod, plan: Plan) -> str:
    return _location(pod) or _with_caveats(_future(pod, plan), pod)


def _location(pod: Pod) -> str:
    if pod.is_finished:
        return f"has {'succeeded' if pod.phase == 'Succeeded' else 'failed'} on {pod.node or 'no node'}"
    if pod.deleting:
        return "is being deleted"
    return f"is on node {pod.node}" if pod.node else ""


def _future(pod: Pod, plan: Plan) -> str:
    for step in plan.steps:
        if isinstance(step, Admit):
            for key, node in step.placements:
                if key == pod.key:
                    return f"starts on node {node} next: {step.because}"
    bought = next((step for step in plan.steps if isinstance(step, Grow) and pod.key in step.demand), None)
    waits = next((one for one in plan.waiting if one.pod == pod.key), None)
    if bought is not None:
        return f"waits; the next step is for it: {describe(bought)}: {bought.because}"
    if waits is None:
        return "has a place on a node that is there: the scheduler binds it next"
    change = f"; it would fit if {waits.would_fit_if}" if waits.would_fit_if else ""
    return f"{'cannot run as things are' if waits.hopeless else 'waits'}: {waits.because}{change}"


def _with_caveats(line: str, pod: Pod) -> str:
    """What is not planned for, where the line does not say it already, and what could not be read."""
    strange = [rule for rule in pod.not_understood if rule not in line]
    line += f" (not looked at by Spillway: {'; '.join(strange)})" if strange else ""
    return line + (f" ({'; '.join(pod.unread)})" if pod.unread else "")


KINDS: Final[Mapping[str, Callable[[str, Cluster, Policy, Plan], Iterator[str]]]] = {
    "pod": _of_pod,
    "job": _of_job,
    "node": explain_node,
    "group": explain_group,
}
