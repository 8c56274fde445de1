"""Why a gang found no place, and what would change that, in words for a person who can change it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from autoscaler.config.policy import Policy
from autoscaler.model.actions import (
    BUSY,
    IMPOSSIBLE,
    LIMIT,
    MONEY,
    PAUSED,
    QUOTA,
    REFUSED,
    Waiting,
)
from autoscaler.model.cluster import Cluster, Group
from autoscaler.model.constraints import Taint
from autoscaler.model.feasibility import (
    NODE_NAME,
    Reason,
    amount_in_words,
    sum_up,
    why_no_room,
    why_not_on,
    why_not_tied,
)
from autoscaler.model.labels import GPU, HOSTNAME
from autoscaler.planner.demand.gangs import Gang
from autoscaler.planner.placement.gang_packing import Demand, Placed, pack
from autoscaler.planner.placement.offerings import Ceilings, Market
from autoscaler.planner.supply.candidate_nodes import ATTACHMENTS, Shape
from autoscaler.planner.supply.fleet import Fleet

_Kind = tuple[str, Mapping[str, str], tuple[Taint, ...], Mapping[str, int]]
"""Name, labels, taints, room."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The words, without the pod."""

    because: str
    would_fit_if: str = ""
    cause: str = BUSY


@dataclass(slots=True)
class Unschedulable:
    """Answers for gangs that found no place, after all others have found theirs."""

    cluster: Cluster
    policy: Policy
    fleet: Fleet
    market: Market
    _known: dict[object, tuple[Verdict, Shape | None]] = field(default_factory=dict)
    """With the shape of the pods that keep their gang waiting, where it is theirs alone."""
    _reasons: dict[object, Reason | None] = field(default_factory=dict)
    """What labels and taints have against it: of all that these rules cannot tell apart."""
    _machines: list[_Kind] = field(default_factory=list)
    _distinct: list[_Kind] = field(default_factory=list)

    def explain(self, gang: Gang, demand: Demand) -> list[Waiting]:
        """One ``Waiting`` for each of its pods."""
        key = (tuple(sorted(shape.number for _, shape in demand.pods)), demand.topology, demand.anchor)
        if key not in self._known:
            self._known[key] = self._verdict(demand)
        verdict, shape = self._known[key]
        shapes = dict(demand.pods)
        first = next((pod for pod in gang.waiting if shapes.get(pod.key) is shape), None)
        mates = f"its gang waits for {first.name}: {verdict.because}" if first is not None else verdict.because
        return [
            Waiting(
                pod=pod.key,
                because=verdict.because if shape in (None, shapes.get(pod.key)) else mates,
                would_fit_if=verdict.would_fit_if,
                cause=verdict.cause,
            )
            for pod in gang.waiting
        ]

    def _verdict(self, demand: Demand) -> tuple[Verdict, Shape | None]:
        for shape in sorted({shape for _, shape in demand.pods}, key=lambda shape: shape.rank):
            verdict = self._impossible(shape)
            if verdict is not None:
                return verdict, shape
        return self._too_much(demand) or self._busy(demand), None

    def _impossible(self, shape: Shape) -> Verdict | None:
        """Where not even one pod of the shape could run on an empty machine of any kind."""
        kinds = self._kinds(shape)
        if not kinds:
            return Verdict("there is no machine, and the policy names no group", _ADD_A_GROUP, IMPOSSIBLE)
        amounts = tuple((name, amount) for name, amount in shape.amounts if not name.startswith(ATTACHMENTS))
        shut_out: list[Reason] = []
        too_small: list[tuple[str, Reason]] = []
        for name, labels, taints, room in kinds:
            values = tuple([name if key == NODE_NAME else labels.get(key) for key in shape.asked_keys])
            alike = (shape.affinity, shape.ties, shape.tolerations, taints, values)
            if alike not in self._reasons:
                self._reasons[alike] = why_not_on(
                    affinity=shape.affinity, tolerations=shape.tolerations, labels=labels, taints=taints, name=name
                ) or why_not_tied(shape.ties, labels, name)
            reason, lack = self._reasons[alike], why_no_room(amounts, room)
            if reason is None and lack is None:
                return None
            shut_out += [reason] if reason is not None and lack is None else []
            too_small += [(name, lack)] if lack is not None else []
        if not shut_out:
            return _too_big(too_small)
        words = sum_up(shut_out, "kind of machine", "kinds of machine")
        return Verdict(
            f"no machine that is large enough, here or in the policy, takes it: {words}", _CHANGE, IMPOSSIBLE
        )

    def _kinds(self, shape: Shape) -> list[_Kind]:
        """Every kind of machine that there is or may be, empty. Machines that differ in name only are one kind."""
        if not self._machines:
            for offering in self.market.offerings:
                sample = self.market.sample(offering)
                self._machines.append((offering.group.entry, sample.labels, sample.taints, sample.free))
            self._machines += [(node.name, node.labels, node.taints, node.allocatable) for node in self.cluster.nodes]
        if HOSTNAME in shape.asked_keys or NODE_NAME in shape.asked_keys:
            return self._machines
        if not self._distinct:
            found: dict[object, _Kind] = {}
            for name, labels, taints, room in self._machines:
                alike = frozenset(item for item in labels.items() if item[0] != HOSTNAME)
                found.setdefault((alike, taints, frozenset(room.items())), (name, labels, taints, room))
            self._distinct = list(found.values())
        return self._distinct

    def _too_much(self, demand: Demand) -> Verdict | None:
        """Where EC2 could hold it but for a limit, a maximum or a refusal."""
        ideal = self._without_limits(demand)
        if ideal is None or not ideal.bought:
            return None
        needs = Counter(place.group.name for place in ideal.bought if place.group)
        groups = {place.group.name: place.group for place in ideal.bought if place.group}
        for name, count in sorted(needs.items()):
            verdict = self._closed(groups[name], count)
            if verdict is not None:
                return verdict
        return self._limited(needs, groups)

    def _without_limits(self, demand: Demand) -> Placed | None:
        snapshot = self.market.snapshot
        mark = snapshot.mark()
        free = [replace(offering, buyable=len(demand.pods)) for offering in self.market.offerings]
        found = pack([replace(demand, minimum=None)], Market(snapshot, free, Ceilings(), thorough=False)).placed[
            demand.name
        ]
        snapshot.undo(mark)
        return found

    def _closed(self, group: Group, count: int) -> Verdict | None:
        paused = self.fleet.paused.get(group.name)
        if paused is not None:
            return Verdict(f"needs {_nodes(count, group.entry)}, but {paused}", paused.ends_if, PAUSED)
        closed = self.fleet.closed.get(group.name)
        if closed is None:
            return None
        return Verdict(
            f"needs {_nodes(count, group.entry)}, but {group.instance_type} in {group.zone} is left alone until "
            f"{closed.until:%Y-%m-%d %H:%M:%S} UTC ({closed.code}), and nothing else that may be bought holds it",
            cause=REFUSED,
        )

    def _limited(self, needs: Counter[str], groups: dict[str, Group]) -> Verdict | None:
        """The first ceiling that the purchase would break."""
        left, limits = self.market.ceilings, self.policy.limits
        usd = sum(groups[name].usd_per_hour * count for name, count in needs.items())
        gpus = sum(groups[name].allocatable[GPU] * count for name, count in needs.items())
        entries: Counter[str] = Counter()
        for name, count in needs.items():
            entries[groups[name].entry] += count
        needed = f"needs {' and '.join(_nodes(count, name) for name, count in sorted(entries.items()))} ({usd:.2f} $/h)"
        for name, count in sorted(entries.items()):
            if count > left.entries.get(name, 0):
                return self._over_max(needed, name, count)
        if left.usd is not None and usd > left.usd:
            return Verdict(
                f"{needed}, but limits.usd_per_hour {limits.usd_per_hour:g} leaves {max(0.0, left.usd):.2f}",
                f"limits.usd_per_hour is {(limits.usd_per_hour or 0) + usd - left.usd:.2f} or more, or other work ends",
                MONEY,
            )
        if left.gpus is not None and gpus > left.gpus:
            return Verdict(
                f"{needed} with {gpus} GPUs, but limits.gpus {limits.gpus} leaves {max(0, left.gpus)}",
                f"limits.gpus is {(limits.gpus or 0) + gpus - left.gpus} or more, or other work ends",
                LIMIT,
            )
        if left.nodes is not None and needs.total() > left.nodes:
            return Verdict(
                f"{needed}, but limits.nodes {limits.nodes} leaves {max(0, left.nodes)}",
                f"limits.nodes is {(limits.nodes or 0) + needs.total() - left.nodes} or more, or other work ends",
                LIMIT,
            )
        return self._over_quota(needed, needs, groups) or self._outgrown(needs, groups)

    def _over_quota(self, needed: str, needs: Counter[str], groups: Mapping[str, Group]) -> Verdict | None:
        for code, left in sorted(self.market.ceilings.quotas.items()):
            vcpus = sum(count * groups[name].vcpus for name, count in needs.items() if groups[name].quota == code)
            if vcpus > left:
                return Verdict(
                    f"{needed} with {vcpus} vCPUs, but quota {code} of the AWS account leaves {max(0, left)}",
                    f"AWS raises quota {code} by {vcpus - left} vCPUs or more, or other work ends",
                    QUOTA,
                )
        return None

    def _over_max(self, needed: str, name: str, count: int) -> Verdict:
        entry = self.policy.entry(name)
        left, most = self.market.ceilings.entries.get(name, 0), entry.max if entry else 0
        return Verdict(
            f"{needed}, but max {most} of group {name} leaves {max(0, left)}",
            f"max of group {name} is {most + count - left} or more, or nodes of it become free",
            LIMIT,
        )

    def _outgrown(self, needs: Counter[str], groups: dict[str, Group]) -> Verdict | None:
        for name, count in sorted(needs.items()):
            room = max(0, groups[name].maximum - self.fleet.size_of(groups[name]))
            if count > room:
                return Verdict(
                    f"needs {_nodes(count, name)}, but the MaxSize of this Auto Scaling group leaves {room}",
                    f"MaxSize of {name} is raised (pulumi up with the present policy)",
                    LIMIT,
                )
        return None

    def _busy(self, demand: Demand) -> Verdict:
        """Where only machines that are there could hold it, and they are full or closed."""
        shape = min((shape for _, shape in demand.pods), key=lambda shape: shape.rank)
        words = [sum_up(self.market.snapshot.reasons(shape)) or self._why_no_new_node(shape)]
        shut = Counter(self.fleet.unusable.values())
        words += [f"{count} node{'s' if count > 1 else ''}: {why}" for why, count in sorted(shut.items())]
        many = f"its {len(demand.pods)} pods do not fit together" if len(demand.pods) > 1 else "it fits nowhere now"
        told = "; ".join(one for one in words if one)
        return Verdict(f"{many}, and what may be bought does not change that: {told or 'no node'}", "other work ends")

    def _why_no_new_node(self, shape: Shape) -> str:
        """Where no node is there: what is against a new one."""
        samples = map(self.market.sample, self.market.offerings)
        found = [why for sample in samples if (why := self.market.snapshot.why_not(shape, sample)) is not None]
        return sum_up(found, "kind of machine", "kinds of machine")


_ADD_A_GROUP = "a group is added to the policy"
_CHANGE = "the pod's node selector, affinity or tolerations change, or a group that matches is added to the policy"


def _too_big(lacking: list[tuple[str, Reason]]) -> Verdict:
    """The machine that comes nearest, by the resource that lacks."""
    nearest: dict[str, tuple[int, str, int]] = {}
    for name, (kind, asks, free) in lacking:
        resource = kind.rsplit(" ", 1)[-1]
        if resource not in nearest or free > nearest[resource][0]:
            nearest[resource] = (free, name, asks)
    resource = GPU if GPU in nearest else min(nearest)
    free, name, asks = nearest[resource]
    asked, most = amount_in_words(resource, asks), amount_in_words(resource, free)
    noun = "GPUs" if resource == GPU else resource
    return Verdict(
        f"asks {asked} {resource} on one node; the largest machine has {most} ({name})"
        if free
        else f"asks {asked} {resource}; no machine has any",
        f"the task is split into pods of at most {most} {noun}, or a group of larger instances is added to the policy"
        if free
        else f"a group of instances with {resource} is added to the policy",
        IMPOSSIBLE,
    )


def _nodes(count: int, name: str) -> str:
    return f"{count} more {name} node{'s' if count > 1 else ''}"
