"""Instances that EC2 is ending and the termination hook of their group still holds: let them go once no job is there.

Every group has the hook (``stacks/nodes/node_groups.py``). It holds what we terminate ourselves only until the next
look; it matters for what EC2 takes away by itself, or a person in the console: their nodes are closed to new pods, and
the jobs there may end as long as the hook's time allows. After that Auto Scaling goes on without us.
"""

from __future__ import annotations

from collections.abc import Iterator

from autoscaler.model.actions import Cordon, Release, Step
from autoscaler.model.cluster import Cluster, Group, Instance, Node
from autoscaler.planner.supply.fleet import Fleet


def release_hooks(cluster: Cluster, fleet: Fleet) -> tuple[Step, ...]:
    """Close the nodes of held instances; release the instances on which nothing runs."""
    if not any(instance.held for several in fleet.stirring.values() for instance in several):
        return ()
    nodes = {instance: fleet.nodes.named[name] for name, instance in fleet.nodes.instances.items()}
    return tuple(
        step
        for group in sorted(cluster.groups, key=lambda group: group.name)
        for instance in fleet.stirring.get(group.name, ())
        if instance.held
        for step in _about(group, instance, nodes.get(instance.id), fleet)
    )


def _about(group: Group, instance: Instance, node: Node | None, fleet: Fleet) -> Iterator[Step]:
    if node is None:
        yield Release(group.name, instance.id, None, f"no node stands for {instance.id} any more")
    elif not node.cordoned:
        yield Cordon(node.name, f"EC2 is ending {instance.id}, on which it stands")
    elif not fleet.residents.get(node.name):
        yield Release(group.name, instance.id, node.name, f"nothing runs on {node.name} any more")
