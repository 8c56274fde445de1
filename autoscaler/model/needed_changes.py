"""What has to change so that a pod that waits finds a place: values that a program can carry out, told in words here.

The kinds are in order, the smallest first: the pod itself, the policy (and what ``pulumi up`` makes of it), money, and
what else has to happen: other work ends, a machine is opened again, EC2 or AWS has more to give.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final, Literal

from autoscaler.model.constraints import NOTHING, PodTerm, Requirement, Term, Toleration
from autoscaler.model.enumeration import few
from autoscaler.model.feasibility import amount_in_words, in_words
from autoscaler.model.instance_types import is_reservation
from autoscaler.model.labels import CAPACITY_BLOCK, DURATION
from autoscaler.model.resources import ATTACHMENTS

Kind = Literal["pod", "policy", "money", "other"]
KINDS: Final[tuple[Kind, ...]] = ("pod", "policy", "money", "other")
USD: Final = "limits.usd_per_hour"
PULUMI_UP: Final = "pulumi up"
RESUME: Final = "spillway autoscale resume"
DELETE_POD: Final = "kubectl delete pod"
UNCORDON: Final = "kubectl uncordon"
WORK_ENDS: Final = "other work ends"
READY: Final = "the node is ready"
WELL: Final = "the node's hardware is well"
POD_RUNS: Final = "a pod runs"
CAPACITY: Final = "EC2 has capacity"
QUOTA_RAISED: Final = "AWS raises a quota"
TIME_COMES: Final = "the time comes"


@dataclass(frozen=True, slots=True)
class NeededChange:
    """One change. Exactly one of ``path``, ``pod``, ``run`` and ``other`` says of what; the others are empty."""

    kind: Kind
    path: str = ""
    """Key of the policy: ``limits.gpus``, ``groups[gpu-a10g].max``; ``groups``: an entry is added."""
    pod: str = ""
    """Part of the pod: ``tolerations``, ``nodeAffinity`` (or its node selector), ``podAffinity``, ``podAntiAffinity``,
    ``topologySpread``, ``hostPorts``, ``topology`` (of its gang), ``split`` (into several pods), ``schedulerName``."""
    run: str = ""
    """A command of the operator."""
    other: str = ""
    """What else has to happen: one of the words above."""
    to: float | int | str | None = None
    """The least value that will do: dollars in whole cents, rounded up; of ``split`` how many pods each becomes; of
    ``nodeAffinity`` the value to ask for in place of what ``requirement`` asks."""
    toleration: Toleration | None = None
    """To be added."""
    requirement: Requirement | None = None
    """To be taken out of the pod, or to be given another value."""
    term: PodTerm | None = None
    """To be taken out of the pod; of ``a pod runs`` what that pod must be like."""
    resources: tuple[tuple[str, int], ...] = ()
    """What a node of an added entry must offer, in the base units of each resource."""
    labels: tuple[tuple[str, str], ...] = ()
    """Of a node of an added entry; of ``a pod runs`` of the node that it runs on."""
    nodes: tuple[str, ...] = ()
    """Names of the nodes that it is about."""
    pods: tuple[str, ...] = ()
    """Keys of the pods whose end makes room."""
    groups: tuple[str, ...] = ()
    """Policy entries, or the code of a quota, that it is about."""
    note: str = ""
    """More for people, behind it."""

    def as_json(self) -> dict[str, Any]:
        """Returns the change for programs, without what is empty."""
        about = {name: getattr(self, name) for name in ("path", "pod", "run", "other") if getattr(self, name)}
        found: dict[str, Any] = about | ({"to": self.to} if self.to is not None else {})
        if self.toleration is not None:
            found["add"] = {
                name: value
                for name in ("key", "operator", "value", "effect")
                if (value := getattr(self.toleration, name))
            }
        if self.requirement is not None:
            one = self.requirement
            found["of" if self.to is not None else "remove"] = {
                "key": one.key,
                "operator": one.operator,
                "values": list(one.values),
            }
        if self.term is not None:
            found["like" if self.other else "remove"] = {
                "topologyKey": self.term.topology_key,
                "namespaces": sorted(self.term.namespaces),
                "matchExpressions": [
                    {"key": one.key, "operator": one.operator, "values": list(one.values)} for one in self.term.selector
                ],
            }
        if self.resources:
            found["add"] = {"resources": dict(self.resources), "labels": dict(self.labels)}
        elif self.labels:
            found["on"] = dict(self.labels)
        found |= {name: list(value) for name in ("nodes", "pods", "groups") if (value := getattr(self, name))}
        return found

    def __str__(self) -> str:
        """Writes the change as what follows "it would fit if"."""
        if self.other == TIME_COMES:
            return self.note
        if self.path:
            words = self._of_policy()
        elif self.pod:
            words = self._of_pod()
        elif self.run:
            words = self._of_operator()
        else:
            words = self._of_others()
        return f"{words} ({self.note})" if self.note else words

    def _of_policy(self) -> str:
        if self.path == "groups":
            amounts = [one for one in self.resources if not one[0].startswith(ATTACHMENTS)]  # any new node takes some
            offer = " and ".join(f"{amount_in_words(name, amount)} {name}" for name, amount in amounts)
            labels = "".join(f", with label {key}={value}" for key, value in self.labels)
            return f"a group of instances with {offer}{labels} is added to the policy"
        value = f"{self.to:.2f}" if self.path == USD else str(self.to)
        whose = self.path.removeprefix("groups[").removesuffix("].max")
        path = f"max of group {whose}" if whose != self.path else self.path
        return f"{path} is {value} or more"

    def _of_pod(self) -> str:  # noqa: PLR0911 - one line for each part of a pod
        match self.pod:
            case "tolerations" if self.toleration is not None:
                one = self.toleration
                if one.key == CAPACITY_BLOCK:
                    return (
                        f"the pod says by {DURATION} that it ends before Capacity Block {one.value} does, or by "
                        f"tolerating {one.key}={one.value} that it may be cut off"
                    )
                value = f"={one.value}" if one.value else ""
                return f"the pod tolerates the taint {one.key}{value}:{one.effect}"
            case "nodeAffinity" if self.requirement is not None:
                asked = in_words(self.requirement)
                return (
                    f"the pod does not ask that {asked}"
                    if self.to is None
                    else f"the pod asks for {self.requirement.key} {self.to} in place of "
                    f"{' or '.join(self.requirement.values)}"
                )
            case "podAffinity" if self.term is not None:
                return f"the pod need not be near to pods of which {selector_in_words(self.term.selector)}"
            case "podAntiAffinity" if self.term is not None:
                return f"the pod need not be apart from pods of which {selector_in_words(self.term.selector)}"
            case "topologySpread":
                return f"the pod need not be spread over {self.to}"
            case "topology":
                return f"its gang may be spread over several values of {self.to}"
            case "split":
                return f"the task is split: {self.to} pods, each asking for a part, in place of one"
            case "schedulerName":
                return f"the pod names {self.to}, or a scheduler that runs"
        return f"the pod's {self.pod} change"

    def _of_operator(self) -> str:
        if self.run == PULUMI_UP:
            return f"`pulumi up` brings the Auto Scaling groups of {few(self.groups)} up to the policy"
        if self.run.startswith(RESUME):
            return f"it is resumed ({self.run})"
        if self.run.startswith(UNCORDON):
            return f"node {few(self.nodes)} is opened again ({self.run})"
        return f"the pod is deleted ({self.run})" if self.run.startswith(DELETE_POD) else f"`{self.run}` is run"

    def _of_others(self) -> str:  # noqa: PLR0911 - one line for each kind
        where = f" on {few(self.nodes)}" if self.nodes else ""
        match self.other:
            case str(what) if what == WORK_ENDS:
                return f"other work{where} ends" + (f" ({few(self.pods)})" if self.pods else "")
            case str(what) if what == READY:
                return f"node {few(self.nodes)} is ready again"
            case str(what) if what == WELL:
                return f"the hardware of node {few(self.nodes)} is well again"
            case str(what) if what == POD_RUNS and self.term is not None:
                there = " and ".join(f"{key} is {value}" for key, value in self.labels)
                return f"a pod of which {selector_in_words(self.term.selector)} runs where {there}"
            case str(what) if what == QUOTA_RAISED:
                if all(map(is_reservation, self.groups)):
                    return f"Capacity Reservation {few(self.groups)} has room for {self.to} vCPUs or more"
                return f"AWS raises quota {few(self.groups)} by {self.to} vCPUs or more"
            case str(what) if what == CAPACITY:
                return f"EC2 has capacity for group {few(self.groups)} again"
        return self.other


def in_order(found: Iterable[NeededChange]) -> tuple[NeededChange, ...]:
    """Each once, the smallest kind first."""
    return tuple(sorted(dict.fromkeys(found), key=lambda one: (KINDS.index(one.kind), one.path, one.pod, one.other)))


def merged(*sets: Iterable[NeededChange]) -> tuple[NeededChange, ...]:
    """All of them: of what is about the same thing one, which is enough for each."""
    found: dict[object, NeededChange] = {}
    for one in chain(*sets):
        key = _about(one)
        found[key] = _both(found[key], one) if key in found else one
    return in_order(found.values())


def _about(one: NeededChange) -> object:
    if one.path and one.path != "groups":
        return one.path
    if one.run.startswith(UNCORDON):
        return UNCORDON
    if one.run == PULUMI_UP or one.other in (WORK_ENDS, READY, WELL, CAPACITY):
        return one.run or one.other
    return (one.other, one.groups) if one.other == QUOTA_RAISED else one


def _both(one: NeededChange, other: NeededChange) -> NeededChange:
    nodes, pods, groups = (
        tuple(sorted({*mine, *theirs}))
        for mine, theirs in ((one.nodes, other.nodes), (one.pods, other.pods), (one.groups, other.groups))
    )
    numbers = [to for to in (one.to, other.to) if isinstance(to, int | float)]
    run = f"{UNCORDON} {' '.join(nodes)}" if one.run.startswith(UNCORDON) else one.run
    return replace(one, to=max(numbers, default=one.to), nodes=nodes, pods=pods, groups=groups, run=run)


def together(changes: Iterable[NeededChange]) -> str:
    """Says all changes in words; empty where there are none."""
    return ", and ".join(map(str, changes))


def selector_in_words(selector: Term) -> str:
    """The pods that a rule between pods means, in words."""
    if not {*NOTHING}.isdisjoint(selector):
        return "no pod is meant"
    return " and ".join(in_words(one) for one in selector) or "nothing is asked"
