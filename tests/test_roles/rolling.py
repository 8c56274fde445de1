"""A fleet in memory for rolling changes: machines that take a change, break, or refuse it, and their nodes.

``Stage`` keeps the invariants at every effect, and can end the controller before or after any of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from roles.engine.disruption import Disruption
from roles.engine.host_plan import Change, Done, HostPlan
from roles.rollout.executor import Patience, Roll, Rolled
from roles.rollout.journal import Journal
from roles.rollout.model import Outcome, Phase, Resident, Restored, Rules
from roles.rollout.node_state import Seen


class Killed(BaseException):
    """The controller's process is gone; nothing after this point of it runs."""


@dataclass
class Machine:
    """What is on it, what was there before, and how it takes a change."""

    installed: str = "old"
    kept: str | None = None
    owed: bool = False
    disruption: Disruption = Disruption.CONTAINERD_RESTART
    breaks: bool = False
    """With what is wanted it does not work."""
    refuses: bool = False
    also: str = ""
    """A resource that is wanted besides, as soon as the first change is made."""
    alone: str = ""
    """A resource that cannot be changed, which holds up nothing else."""
    left: str = ""
    """What does not come back with the rest."""
    taken_by: str = ""
    """Another controller."""
    answers: bool = True
    vanishes: bool = False
    """It stops answering in the middle of its change."""
    silent_for: int = 0
    """So many looks come before it answers again."""


@dataclass
class Killer:
    """Ends the controller at the nth effect of its life, before or after it."""

    at: int | None = None
    before: bool = True
    effects: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    dead: bool = False

    def around(self, effect: Any) -> Any:
        """Run the effect, or end before or after it."""
        with self.lock:
            if self.dead:
                raise Killed
            self.effects += 1
            if self.at is not None and self.effects >= self.at:
                self.dead = True
                if not self.before:
                    effect()
                raise Killed
            return effect()


class MemoryHosts:
    """The machines' side of a rolling change."""

    def __init__(self, machines: dict[str, Machine], killer: Killer, wanted: str = "new") -> None:
        self.machines, self.killer, self.wanted = machines, killer, wanted
        self.applied: list[str] = []
        self.left: list[str] = []

    def plan(self, names: Iterable[str]) -> Mapping[str, HostPlan]:
        """What is not as wanted."""
        return {name: self._plan(name) for name in names}

    def _plan(self, name: str) -> HostPlan:
        machine = self.machines[name]
        if not machine.answers and machine.silent_for:
            machine.silent_for -= 1
            machine.answers = not machine.silent_for
        if not machine.answers:
            return HostPlan(host=name, unreachable="no route to host")
        beside = [machine.alone] if machine.alone else []
        if machine.installed == self.wanted and not machine.owed:
            beside += [machine.also] if machine.also else []
            return HostPlan(host=name, changes=tuple(Change(resource=one, commands=("set",)) for one in beside))
        diff = f"{machine.installed} -> {self.wanted}"
        first = Change(resource="thing | Version", commands=("set",), disruption=machine.disruption, diff=diff)
        return HostPlan(host=name, changes=(first, *(Change(resource=one, commands=("set",)) for one in beside)))

    def take(self, name: str) -> str:
        """By whom the test says."""
        return self.machines[name].taken_by

    def leave(self, name: str) -> None:
        """Nothing is kept."""
        self.left.append(name)

    def apply(self, name: str, allowed: Disruption) -> Done:
        """Two effects: the file, and the restart that is owed then."""
        plan = self._plan(name)
        machine = self.machines[name]
        if plan.unreachable:
            return Done(host=name, failed=plan.unreachable)
        if plan.disruption > allowed:
            return Done(host=name, held=plan.changes)
        if machine.vanishes:
            machine.answers, machine.vanishes = False, False
            return Done(host=name, failed="the connection broke")
        if machine.refuses:
            return Done(host=name, failed="no space left on device")

        def write() -> None:
            if machine.kept is None:
                machine.kept = machine.installed
            machine.installed, machine.owed = self.wanted, True

        made = tuple(change for change in plan.changes if change.resource != machine.alone)
        if made:
            if machine.also in [change.resource for change in made]:
                machine.also = ""
            self.killer.around(write)
            self.killer.around(lambda: setattr(machine, "owed", False))
            self.applied.append(name)
        alone = {machine.alone: f"{machine.alone}: its file is immutable"} if machine.alone else {}
        return Done(host=name, applied=made, alone=alone, commands=(("install new", True, "done"),) if made else ())

    def why_unhealthy(self, name: str) -> str:
        """Broken by what is wanted."""
        machine = self.machines[name]
        return "containerd does not answer" if machine.breaks and machine.installed == self.wanted else ""

    def restore(self, name: str) -> Restored:
        """What was kept comes back."""
        machine = self.machines[name]
        if not machine.answers:
            return Restored(failed="no route to host")

        def put_back() -> None:
            if machine.kept is not None:
                machine.installed, machine.kept, machine.owed = machine.kept, None, False

        self.killer.around(put_back)
        return Restored(left=machine.left)

    def settle(self, name: str) -> None:
        """Nothing to go back to."""
        self.killer.around(lambda: setattr(self.machines[name], "kept", None))


@dataclass
class MemoryMarks:
    """The nodes' side: what the API server would hold."""

    nodes: dict[str, Seen]
    killer: Killer
    max_down: int
    others: frozenset[str] = frozenset()
    """Nodes that somebody else closed."""
    evicted: list[Resident] = field(default_factory=list)
    worst: int = 0

    def look(self) -> dict[str, Seen]:
        """As it is."""
        return dict(self.nodes)

    def begin(self, name: str, phase: Phase, *, cordon: bool) -> None:
        """Phase and cordon at once."""
        node = self.nodes[name]
        closes = cordon and (not node.is_cordoned or node.is_ours)
        self._set(replace(node, phase=phase, outcome=Outcome.NONE, outcome_of=""), closes=closes)

    def mark(self, name: str, phase: Phase, outcome: str = "") -> None:
        """The next phase."""
        how, _, plan = outcome.partition(":")
        node = replace(self.nodes[name], phase=phase)
        self._set(replace(node, outcome=Outcome(how), outcome_of=plan) if outcome else node)

    def finish(self, name: str, outcome: str | None = None) -> None:
        """Open it where it is ours."""
        how, _, plan = (outcome or "").partition(":")
        node = replace(self.nodes[name], phase=Phase.IDLE, outcome=Outcome(how), outcome_of=plan)
        self._set(replace(node, is_cordoned=False, is_ours=False) if node.is_ours else node)

    def evict(self, pod: Resident) -> str:
        """Gone at once; one that is protected must never be asked."""

        def leave() -> None:
            assert not pod.stays, f"{pod.key} is protected"
            self.evicted.append(pod)
            for name, node in self.nodes.items():
                rest = tuple(one for one in node.residents if one.key != pod.key)
                self.nodes[name] = replace(node, residents=rest)

        self.killer.around(leave)
        return ""

    def _set(self, node: Seen, *, closes: bool = False) -> None:
        def write() -> None:
            self.nodes[node.name] = replace(node, is_cordoned=True, is_ours=True) if closes else node
            self.check()

        self.killer.around(write)

    def check(self) -> None:
        """What must hold after every write."""
        down = [node for node in self.nodes.values() if node.is_cordoned or not node.is_ready]
        by_us = [node for node in down if node.is_ours and node.is_ready]
        assert not by_us or len(down) <= self.max_down, f"{len(down)} nodes are down"
        assert all(self.nodes[name].is_cordoned for name in self.others), "a cordon of somebody else was lifted"
        self.worst = max(self.worst, len(down))


def fleet(size: int, **machine: Any) -> tuple[dict[str, Machine], dict[str, Seen]]:
    """So many machines in racks of four, all with a node."""
    names = [f"n{number:02}" for number in range(size)]
    machines = {name: Machine(**machine) for name in names}
    nodes = {name: Seen(name=name, rack=f"r{number // 4}", is_ready=True) for number, name in enumerate(names)}
    return machines, nodes


class Unwritten(Journal):
    """Keeps nothing: a thousand rollouts need no disk."""

    def write(self, kind: str, **fields: Any) -> str:
        """Nothing."""
        return ""


def roll(
    hosts: Any,
    marks: Any,
    folder: Path | None,
    rules: Rules,
    domains: Mapping[str, str],
    *,
    blocked: Mapping[str, str] | None = None,
    go_on: str = "spillway nodes apply --retry",
    retry: bool = False,
    told: list[str] | None = None,
    why_not: Callable[[], str] = lambda: "",
    **patience: float,
) -> Rolled:
    """One life of a controller, in a time of its own."""
    now = [1_000.0]  # as long after its start as the machine has run: a monotonic clock
    seconds = {"poll": 1.0, "drain": 10.0, "health": 3.0} | patience
    return Roll(
        hosts,
        marks,
        domains=domains,
        rules=rules,
        journal=Journal(folder / "journal.jsonl") if folder else Unwritten(Path()),
        patience=Patience(**seconds),
        tell=(told if told is not None else []).append,
        clock=lambda: now[0],
        sleep=lambda wait: now.__setitem__(0, now[0] + wait),
        why_not=why_not,
        blocked=blocked,
        go_on=go_on,
        retry=retry,
    ).run()
