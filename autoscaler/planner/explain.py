"""Why a pod waits and what would change it, or where it is or goes: one line, worked out from a plan. Pure."""

from __future__ import annotations

from autoscaler.model.actions import Admit, Grow, Plan, describe
from autoscaler.model.cluster import Cluster, Pod
from autoscaler.model.errors import BadInput


def explain_pod(cluster: Cluster, plan: Plan, key: str) -> str:
    """One line about the pod ``namespace/name``. Raises ``BadInput`` where there is none."""
    pod = next((pod for pod in cluster.pods if pod.key == key), None)
    if pod is None:
        namespace, _, name = key.partition("/")
        raise BadInput(f"there is no pod {name!r} in namespace {namespace!r}: see `kubectl get pods -n {namespace}`")
    return _whereabouts(pod) or _with_caveats(_future(pod, plan), pod)


def _whereabouts(pod: Pod) -> str:
    if pod.is_finished:
        return f"{pod.key} has {'succeeded' if pod.phase == 'Succeeded' else 'failed'} on {pod.node or 'no node'}"
    if pod.deleting:
        return f"{pod.key} is being deleted"
    return f"{pod.key} is on node {pod.node}" if pod.node else ""


def _future(pod: Pod, plan: Plan) -> str:
    for step in plan.steps:
        if isinstance(step, Admit):
            for key, node in step.placements:
                if key == pod.key:
                    return f"{key} starts on node {node} next: {step.because}"
    bought = next((step for step in plan.steps if isinstance(step, Grow) and pod.key in step.demand), None)
    waits = next((one for one in plan.waiting if one.pod == pod.key), None)
    if bought is not None:
        return f"{pod.key} waits; the next step is for it: {describe(bought)}: {bought.because}"
    if waits is None:
        return f"{pod.key} has a place on a node that is there: the scheduler binds it next"
    change = f"; it would fit if {waits.would_fit_if}" if waits.would_fit_if else ""
    return f"{pod.key} {'cannot run as things are' if waits.hopeless else 'waits'}: {waits.because}{change}"


def _with_caveats(line: str, pod: Pod) -> str:
    """What is not planned for, where the line does not say it already, and what could not be read."""
    strange = [rule for rule in pod.not_understood if rule not in line]
    line += f" (not looked at by Spillway: {'; '.join(strange)})" if strange else ""
    return line + (f" ({'; '.join(pod.unread)})" if pod.unread else "")
