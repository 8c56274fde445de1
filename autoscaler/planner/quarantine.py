"""A plan in spite of an object that planning breaks on: it is found, left out and told, and the rest is planned.

The planner is a function of plain values, so it can be asked again with parts of the look. What cannot be left out
alone without making something else look idle (a bound pod, a node) is left out with its node and its group: nothing is
bought or terminated there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from autoscaler.config.policy import Policy
from autoscaler.model.actions import IMPOSSIBLE, Memory, Plan, Waiting
from autoscaler.model.cluster import Cluster, Group, Node, Pod, ProvisioningRequest

Planner = Callable[[Cluster, Policy, Memory], Plan]

_AT_MOST: Final = 8
"""Objects that are left out: where planning breaks on more, the defect is no object's."""

Culprit = Pod | Node | Group | ProvisioningRequest


def plan_around(planner: Planner, cluster: Cluster, policy: Policy, memory: Memory) -> Plan:
    """The plan; without the objects that planning breaks on, each with a warning. Raises where none is to blame."""
    try:
        return planner(cluster, policy, memory)
    except Exception as error:  # noqa: BLE001 - whatever breaks, the rest is to be planned
        broken = error
    look, warnings, waiting = cluster, [], []
    for _ in range(_AT_MOST):
        culprit = _culprit(planner, look, policy, memory)
        if culprit is None:
            break
        told = f"planning breaks on it ({type(broken).__name__}: {broken}): it is left out until it changes"
        warnings.append(f"{_named(culprit)}: {told}")
        if isinstance(culprit, Pod) and culprit.node is None:
            waiting.append(Waiting(culprit.key, told, cause=IMPOSSIBLE))
        look = _without(look, culprit)
        try:
            plan = planner(look, policy, memory)
        except Exception as error:  # noqa: BLE001 - as above
            broken = error
            continue
        waits = sorted((*plan.waiting, *waiting), key=lambda one: one.pod)
        return replace(plan, warnings=(*plan.warnings, *warnings), waiting=tuple(waits))
    raise broken


def plan_or_tell(
    planner: Planner,
    cluster: Cluster,
    policy: Policy,
    memory: Memory,
    *,
    broken: Callable[[Exception], None] = lambda _error: None,
) -> Plan:
    """Plans as :func:`plan_around`; where planning breaks on no object alone, a plan that does nothing and says so."""
    try:
        return plan_around(planner, cluster, policy, memory)
    except Exception as error:  # noqa: BLE001 - a defect must not end what cares for running jobs
        broken(error)
        return Plan(memory=memory, warnings=(f"planning breaks ({type(error).__name__}: {error}): nothing is done",))


def _culprit(planner: Planner, cluster: Cluster, policy: Policy, memory: Memory) -> Culprit | None:
    """One object without which fewer things break: found by halving, in each kind of object."""

    def works(look: Cluster) -> bool:
        try:
            planner(look, policy, memory)
        except Exception:  # noqa: BLE001 - that is the question
            return False
        return True

    pods = sorted(cluster.pods, key=lambda pod: pod.key)
    nodes = sorted(cluster.nodes, key=lambda node: node.name)
    groups = sorted(cluster.groups, key=lambda group: group.name)
    kinds: tuple[tuple[Sequence[Any], Callable[[Sequence[Any]], Cluster]], ...] = (
        (pods, lambda kept: replace(cluster, pods=tuple(kept))),
        (nodes, lambda kept: replace(cluster, nodes=tuple(kept))),
        (groups, lambda kept: replace(cluster, groups=tuple(kept))),
        (cluster.provisioning_requests, lambda kept: replace(cluster, provisioning_requests=tuple(kept))),
    )
    for items, look_with in kinds:
        if items and works(look_with(())):
            found: Culprit = _first_that_breaks(items, lambda kept, look=look_with: works(look(kept)))  # type: ignore[misc]
            return found
    return None


def _first_that_breaks(items: Sequence[Any], works: Callable[[Sequence[Any]], bool]) -> Any:
    """The last of the shortest beginning that does not work."""
    fine, broken = 0, len(items)
    while broken - fine > 1:
        middle = (fine + broken) // 2
        if works(items[:middle]):
            fine = middle
        else:
            broken = middle
    return items[broken - 1]


def _without(cluster: Cluster, culprit: Culprit) -> Cluster:
    if isinstance(culprit, Pod):
        rest = replace(cluster, pods=tuple(pod for pod in cluster.pods if pod.key != culprit.key))
        node = next((node for node in cluster.nodes if node.name == culprit.node), None)
        return rest if node is None else _without(rest, node)
    if isinstance(culprit, Node):
        rest = replace(cluster, nodes=tuple(node for node in cluster.nodes if node.name != culprit.name))
        group = next((one for one in cluster.groups if _has(one, culprit)), None)
        return rest if group is None else _without(rest, group)
    if isinstance(culprit, ProvisioningRequest):
        rest_of_them = tuple(one for one in cluster.provisioning_requests if one is not culprit)
        return replace(cluster, provisioning_requests=rest_of_them)
    return replace(cluster, groups=tuple(group for group in cluster.groups if group.name != culprit.name))


def _has(group: Group, node: Node) -> bool:
    return any(instance.id == node.instance_id for instance in group.instances)


def _named(culprit: Culprit) -> str:
    if isinstance(culprit, Pod):
        return f"pod {culprit.key}"
    if isinstance(culprit, ProvisioningRequest):
        return f"ProvisioningRequest {culprit.namespace}/{culprit.name}"
    return f"{'node' if isinstance(culprit, Node) else 'Auto Scaling group'} {culprit.name}"
