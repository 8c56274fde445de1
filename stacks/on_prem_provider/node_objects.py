"""A machine's Node object: made before its kubelet first reports, and kept at what the inventory says.

The node is there, not ready, from the moment that the machine is known: its labels, taints and owner are set by whoever
may, not by the machine itself. A kubelet that finds its Node takes it over as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from autoscaler.config.node_registration import Declared, place, places
from autoscaler.model import labels as words
from autoscaler.model.errors import Unavailable
from stacks.on_prem_provider.kube import CONFLICT, MERGE, Kube, RefusedError
from stacks.on_prem_provider.machine_args import MachineArgs

CORDONER: Final = "spillway-onprem"
"""Whose cordon it is: the autoscaler lifts none but its own."""
_TRIES: Final = 5
Taints = Sequence[Mapping[str, str]]


def node_path(name: str) -> str:
    """Returns the path of the Node object."""
    return f"/api/v1/nodes/{name}"


def kept_labels(args: MachineArgs) -> dict[str, str]:
    """Those that are mended when they are gone. What the GPUs are, GPU feature discovery says later."""
    return {
        words.ORIGIN: words.ON_PREM,
        **({words.RACK: args.rack} if args.rack else {}),
        **({words.OWNER: args.owner} if args.owner else {}),
        **args.labels,
    }


def kept_taints(args: MachineArgs) -> list[dict[str, str]]:
    """Returns the taints as the API writes them."""
    return [taint.model_dump(exclude_defaults=True) | {"effect": taint.effect} for taint in args.taints]


def register(kube: Kube, args: MachineArgs, *, stack: str = "", before: MachineArgs | None = None) -> None:
    """Have the machine's Node with its labels and taints; what ``before`` said and ``args`` does not is taken off.

    Raises ``Unavailable`` where a Node of that name is another machine's, or another stack's than ``stack``.
    """
    for _ in range(_TRIES):
        node = kube.find(node_path(args.name))
        try:
            if node is None:
                kube.send("POST", "/api/v1/nodes", _signed(new_node(args), stack))
            else:
                check_is_ours(node, args.name)
                if before is None and (other := other_stack(node, stack)):
                    raise Unavailable(
                        f"the machine {args.name} is in the stack {other} already: take it out of that one's inventory "
                        f"first, or of this one's ({stack})"
                    )
                patch = _signed(changes(node, args, before=before), stack)
                kube.send("PATCH", node_path(args.name), patch, content=MERGE)
        except RefusedError as refused:
            if refused.status != CONFLICT:
                raise Unavailable(f"the API server refused the node {args.name}: {refused}") from None
        else:
            return
    raise Unavailable(f"node {args.name} changes faster than it can be written: try again")


def new_node(args: MachineArgs) -> dict[str, Any]:
    """The Node as it is registered."""
    labels = {**args.node_labels(), **kept_labels(args)}
    declared = Declared(frozenset(labels), places(kept_taints(args)))
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": args.name, "labels": labels, "annotations": declared.annotation()},
        "spec": {"providerID": provider_id(args.name), "taints": kept_taints(args)},
    }


def other_stack(node: Mapping[str, Any], stack: str) -> str:
    """The stack that the Node was registered by, where it is another one than ``stack``; else nothing."""
    by = str((node["metadata"].get("annotations") or {}).get(words.STACK, ""))
    return by if by != stack else ""


def _signed(node: dict[str, Any], stack: str) -> dict[str, Any]:
    if stack:
        node["metadata"]["annotations"][words.STACK] = stack
    return node


def provider_id(name: str) -> str:
    """Which machine a Node is."""
    return f"onprem://{name}"


def check_is_ours(node: Mapping[str, Any], name: str) -> None:
    """Raise ``Unavailable`` where the Node is another machine's."""
    stands = node["spec"].get("providerID", "")
    if stands not in ("", provider_id(name)):
        raise Unavailable(
            f"there is a node {name} already, which is {stands} and not this machine: give the machine another name"
        )


def changes(node: Mapping[str, Any], args: MachineArgs, *, before: MachineArgs | None) -> dict[str, Any]:
    """A merge patch of what was seen: refused where the node changed in between.

    Taints of others (not ready, cordoned, under pressure) are left where they are. What was declared stands on the node
    itself, as ``roles/`` writes it too: either takes away what the inventory says no more, and neither the other's.
    """
    gone = (kept_labels(before).keys() if before else set()) - kept_labels(args).keys()
    now = places(kept_taints(args))
    ours = now | (places(kept_taints(before)) if before else frozenset())
    others = [taint for taint in node["spec"].get("taints") or () if place(taint) not in ours]
    stands = Declared.on(node)
    ledger = Declared((stands.labels - gone) | kept_labels(args).keys(), (stands.taints - ours) | now)
    return {
        "metadata": {
            "resourceVersion": node["metadata"]["resourceVersion"],
            "labels": {**dict.fromkeys(gone), **kept_labels(args)},
            "annotations": ledger.annotation(),
        },
        "spec": {"taints": [*others, *kept_taints(args)], "providerID": provider_id(args.name)},
    }


def standing(node: Mapping[str, Any], args: MachineArgs) -> dict[str, Any]:
    """Returns what the node has of what the inventory says, in the inventory's own words."""
    labels = node["metadata"].get("labels") or {}
    taints = node["spec"].get("taints") or ()
    found = {place(taint): taint for taint in taints}
    kept = [found[place(taint)] for taint in kept_taints(args) if place(taint) in found]
    return {
        "labels": {key: labels[key] for key in args.labels if key in labels},
        "rack": labels.get(words.RACK, "") if args.rack else "",
        "owner": labels.get(words.OWNER, "") if args.owner else "",
        "taints": [{"key": one["key"], "value": one.get("value", ""), "effect": one["effect"]} for one in kept],
    }


def cordon(kube: Kube, name: str) -> None:
    """Cordons the node: nothing new is placed there, and the autoscaler does not open it again."""
    marks = {words.CORDONED_BY: CORDONER, words.CORDONED_AT: datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}
    body = {"metadata": {"annotations": marks}, "spec": {"unschedulable": True}}
    kube.send("PATCH", node_path(name), body, content=MERGE)


def is_ready(node: Mapping[str, Any]) -> bool:
    """Whether its kubelet reports, and that all is well."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
