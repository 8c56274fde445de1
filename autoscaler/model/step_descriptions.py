"""The steps of a plan in words: one line each, for the log, for explanations and for dry runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from autoscaler.model.actions import (
    Admit,
    BeginStep,
    Cancel,
    Cordon,
    DeleteNode,
    EndJob,
    Evict,
    FreeGpus,
    Grow,
    Nominate,
    Recreate,
    Release,
    Remove,
    Reserve,
    Resize,
    SetCondition,
    Step,
    StopStep,
    Uncordon,
    Unreserve,
)
from autoscaler.model.enumeration import counted, few
from autoscaler.model.labels import RESERVED

Placements = Sequence[tuple[str, str]]
"""(pod key ``namespace/name``, node name)."""


def describe(step: Step) -> str:  # noqa: C901, PLR0911, PLR0912 - one line for each kind of step
    """The step in one line, without its reason."""
    match step:
        case Admit(gang=gang, placements=placements):
            return f"start {gang}: {counted(len(placements), 'pod')} on {_nodes(placements)}"
        case Nominate(placements=placements):
            return " and ".join(_nominations(placements))
        case Reserve(placements=placements):
            many = len({node for _, node in placements}) > 1
            return f"let {_pods(placements)} onto {'nodes' if many else 'node'} {_nodes(placements)}"
        case Unreserve(nodes=names):
            return f"take the taint {RESERVED} off {_named('node', names)}"
        case Recreate(pod=pod):
            return f"delete pod {pod}, which never started, for its owner to make anew"
        case Uncordon(node=node):
            return f"uncordon node {node}"
        case Grow(group=group, to=to, by=by, usd_per_hour=usd):
            return f"grow {group} to {counted(to, 'node')} (+{by}, ${usd:.2f} per hour)"
        case Cancel(group=group, to=to, by=by):
            return f"cancel the order of {counted(by, 'node')} in {group}: back to {counted(to, 'node')}"
        case Cordon(node=node):
            return f"cordon node {node}"
        case Evict(node=node, pods=pods):
            return f"evict {_named('pod', pods)} from node {node}"
        case FreeGpus(pods=pods):
            return f"evict {_named('pod', pods)} to free GPUs"
        case Remove(group=group, instance=instance, node=node):
            return f"terminate {instance} of {group}{_node_of(node)}"
        case DeleteNode(node=node, instance=instance):
            return f"delete node {node}, whose instance {instance} is gone"
        case Release(group=group, instance=instance, node=node):
            return f"complete the termination of {instance} of {group}{_node_of(node)}"
        case EndJob(namespace=namespace, name=name):
            return f"end job {namespace}/{name}"
        case BeginStep(namespace=namespace, name=name):
            return f"begin step {namespace}/{name}"
        case StopStep(namespace=namespace, name=name):
            return f"stop step {namespace}/{name}, which was not begun"
        case Resize(namespace=namespace, name=name, was=was, to=to):
            return f"{'grow' if to > was else 'shrink'} job {namespace}/{name} from {was} to {counted(to, 'task')}"
        case SetCondition(namespace=namespace, name=name, condition=condition, status=status):
            return f"tell ProvisioningRequest {namespace}/{name}: {condition}={status}"


def _nominations(placements: Placements) -> Iterator[str]:
    kept = [one for one in placements if one[1]]
    gone = [one for one in placements if not one[1]]
    if kept:
        yield f"nominate {_nodes(kept)} for {_pods(kept)}"
    if gone:
        yield f"take back the nomination of {_pods(gone)}"


def _pods(placements: Placements) -> str:
    return _named("pod", [pod for pod, _ in placements])


def _named(what: str, names: Sequence[str]) -> str:
    """``pod team/a``, ``5 pods (team/a, team/b, team/c and 2 more)``."""
    return f"{what} {names[0]}" if len(names) == 1 else f"{len(names)} {what}s ({few(names)})"


def _nodes(placements: Placements) -> str:
    """All of them; of several those with more than one pod with their number: ``n1 (2), n2``."""
    homes = sorted(Counter(node for _, node in placements).items())
    return ", ".join(f"{node} ({count})" if len(homes) > 1 < count else node for node, count in homes)


def _node_of(node: str | None) -> str:
    return f", node {node}" if node else ""
