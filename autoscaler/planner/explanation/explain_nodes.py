"""Why a node is still there: its state, what is on it and what is to come, and everything that keeps it. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from autoscaler.config.policy import Policy
from autoscaler.model import labels as words
from autoscaler.model import node_states as states
from autoscaler.model.actions import Plan, Step
from autoscaler.model.cluster import Cluster, Pod
from autoscaler.model.enumeration import few
from autoscaler.model.errors import BadInput
from autoscaler.model.step_descriptions import describe
from autoscaler.planner.disruption.consolidation_candidates import why_not_emptied
from autoscaler.planner.explanation.node_states import Standing, Standings, standings


def explain_node(name: str, cluster: Cluster, policy: Policy, plan: Plan) -> Iterator[str]:
    """Lines about the node, or the instance, of that name. Raises ``BadInput`` where there is none."""
    found = standings(cluster, policy, plan)
    one = next((one for one in found.nodes if name and name in (one.name, one.node and one.node.instance_id)), None)
    if one is None:
        raise BadInput(f"there is no node {name!r}, nor an instance of that id: see `kubectl get nodes`")
    yield f"{one.name} is {one.state}: {one.why}{_until(one)}"
    yield _what(one)
    yield from _pods(one, plan)
    yield from (f"next step: {describe(step)}: {step.because}" for step in plan.steps if _is_about(step, one))
    yield from _why_it_stays(one, found, cluster, policy, plan)


def _until(one: Standing) -> str:
    return f" (until {one.until:%Y-%m-%d %H:%M:%S} UTC at the latest)" if one.until is not None else ""


def _what(one: Standing) -> str:
    if one.group is not None:
        bought = "" if one.group.capacity_type == "on-demand" else f", {one.group.capacity_type}"
        kind = f"{one.group.name}, {one.group.instance_type}{bought}"
        return f"of group {one.group.entry} ({kind}): {one.usd_per_hour:.2f} $/h"
    if one.node is not None and one.node.labels.get(words.ORIGIN) == words.EC2:
        return "on EC2, and of no Auto Scaling group of this cluster"
    return "a machine that you own: it is never terminated"


def _pods(one: Standing, plan: Plan) -> Iterator[str]:
    if one.residents:
        yield f"on it: {few([pod.key for pod in one.residents])}{_ends(one.residents)}"
    assignments = sorted(pod for pod, home in plan.memory.assignments.items() if home.node == one.name)
    if assignments:
        yield f"planned on it: {few(assignments)}"


def _ends(pods: tuple[Pod, ...]) -> str:
    ends = [pod.started + pod.duration if pod.started and pod.duration else None for pod in pods]
    known = [end for end in ends if end is not None]
    return f", expected to end at {max(known):%Y-%m-%d %H:%M:%S} UTC" if known and len(known) == len(ends) else ""


def _is_about(step: Step, one: Standing) -> bool:
    """Whether the step names the node or its instance."""
    ids = {one.name, one.node.instance_id if one.node is not None else None}
    named = {getattr(step, "node", None), getattr(step, "instance", None), *getattr(step, "nodes", ())}
    return bool((ids & named) - {None, ""})


def _why_it_stays(one: Standing, found: Standings, cluster: Cluster, policy: Policy, plan: Plan) -> Iterator[str]:
    node, group = one.node, one.group
    kept = plan.kept.get(one.name, "")
    if kept and kept not in one.why:
        yield f"it stays: {kept}"
    if node is None or group is None:
        return
    if node.do_not_disrupt:
        yield f"it is marked {words.DO_NOT_DISRUPT}: it is not drained"
    if one.state in (states.BUSY, states.UNDER_USED):
        why = why_not_emptied(node, cluster, policy, found.fleet, plan.memory, wanted=_wanted(plan))
        yield f"it is not emptied to save its price: {why}"


def _wanted(plan: Plan) -> set[str]:
    return {home.node for home in plan.memory.assignments.values()}
