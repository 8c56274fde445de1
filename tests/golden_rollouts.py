"""Rollouts that were made before, in words: two nights of a fleet that a seed makes, with what goes wrong there.

    python -m tests.golden_rollouts

writes ``tests/test_roles/test_rollout/golden_rollouts.txt`` anew. Machines are changed one at a time: lines have one
order.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from roles.engine.disruption import Disruption
from roles.rollout import executor
from roles.rollout.executor import Rolled
from roles.rollout.journal import Journal
from roles.rollout.model import Resident, Rules
from roles.rollout.node_state import Seen
from tests.golden import Golden
from tests.test_roles.rolling import Killer, Machine, MemoryHosts, MemoryMarks, roll

_NIGHTS: Final = 2
_OF_A_CHAIN: Final = {"at", "digest", "before", "kind"}


def rollout(number: int) -> Iterator[str]:
    """Night by night."""
    dice = random.Random(f"rollout {number}")  # noqa: S311 - the same every time
    machines = {f"n{one:02}": _machine(dice) for one in range(dice.randint(2, 6))}
    nodes = {name: _node(name, place, dice) for place, name in enumerate(machines)}
    closed = frozenset(name for name, node in nodes.items() if node.is_cordoned)
    rules = Rules(
        batch=dice.randint(1, 3),
        max_down=dice.randint(1, 3),
        allowed=dice.choice((Disruption.RELOAD, Disruption.CONTAINERD_RESTART)),
        drain=dice.random() < 0.8,
        tolerate=dice.choice((0, 0, 1, 4)),
    )
    marks = MemoryMarks(nodes, Killer(), max_down=rules.max_down, others=closed)
    blocked = {name: "disk: / has 3 MiB free" for name in machines if dice.random() < 0.1}
    hosts = MemoryHosts(machines, Killer())
    with tempfile.TemporaryDirectory() as folder, patch.object(executor, "AT_ONCE", 1):
        for night in range(_NIGHTS):
            yield f"night {night + 1}: {rules}"
            told: list[str] = []
            given: dict[str, Any] = {"blocked": blocked, "retry": dice.random() < 0.3, "told": told}
            seen = len(list(_journal(folder).entries()))
            rolled = roll(hosts, marks, Path(folder), rules, _racks(nodes), **given)
            yield from (f"told: {line}" for line in told)
            yield from (f"written: {_entry(one)}" for one in list(_journal(folder).entries())[seen:])
            yield from _outcome(rolled)
            yield from (f"{name}: {_standing(machines[name], marks.nodes[name])}" for name in sorted(machines))
            _day(hosts, dice)


def _machine(dice: random.Random) -> Machine:
    def happens(share: float) -> bool:
        return dice.random() < share

    return Machine(
        installed="new" if happens(0.2) else "old",
        disruption=dice.choice((Disruption.NONE, Disruption.RELOAD, Disruption.CONTAINERD_RESTART)),
        breaks=happens(0.15),
        refuses=happens(0.15),
        also="thing | Config" if happens(0.15) else "",
        alone="motd | File" if happens(0.15) else "",
        left="these packages are not as they were: a=1" if happens(0.3) else "",
        taken_by="another run" if happens(0.05) else "",
        answers=not happens(0.1),
        vanishes=happens(0.1),
        silent_for=dice.choice((0, 2, 9)),
    )


def _node(name: str, place: int, dice: random.Random) -> Seen:
    stays = dice.choice(("", "", "is part of the running gang train"))
    pods = [Resident(key=f"ml/{name}-{one}", holds_gpu=dice.random() < 0.7, stays=stays) for one in range(3)]
    return Seen(
        name=name,
        rack=f"r{place // 2}",
        is_ready=dice.random() < 0.95,
        is_cordoned=dice.random() < 0.1,
        residents=tuple(pods[: dice.choice((0, 0, 1, 3))]),
    )


def _racks(nodes: dict[str, Seen]) -> dict[str, str]:
    return {name: node.rack for name, node in nodes.items()}


def _journal(folder: str) -> Journal:
    return Journal(Path(folder) / "journal.jsonl")


def _entry(entry: dict[str, Any]) -> str:
    fields = ", ".join(f"{key}={value}" for key, value in sorted(entry.items()) if key not in _OF_A_CHAIN)
    return f"{entry['kind']} {fields}"


def _outcome(rolled: Rolled) -> Iterator[str]:
    yield f"changed: {', '.join(rolled.changed) or 'none'}{rolled.halted and f'; halted: {rolled.halted}'}"
    for what, found in (("held", rolled.held), ("failed", rolled.failed), ("unsettled", rolled.unsettled)):
        yield from (f"{what}: {host}: {why}" for host, why in sorted(found.items()))
    for host, plan in sorted(rolled.plans.items()):
        yield f"left to do: {host}: {plan.unreachable or ', '.join(one.resource for one in plan.changes) or 'nothing'}"


def _standing(machine: Machine, node: Seen) -> str:
    words = (node.phase.value, node.outcome.value, "closed" if node.is_cordoned else "open")
    kept = f", with {machine.kept} kept to go back to" if machine.kept else ""
    return f"{machine.installed}{kept}; {' '.join(filter(None, words))}; {len(node.residents)} pods"


def _day(hosts: MemoryHosts, dice: random.Random) -> None:
    """An operator mends some of it."""
    for machine in hosts.machines.values():
        if dice.random() < 0.5:
            machine.breaks = machine.refuses = False
            machine.answers, machine.alone, machine.taken_by = True, "", ""


GOLDEN: Final = Golden(
    Path(__file__).with_name("test_roles") / "test_rollout" / "golden_rollouts.txt", {"rollout": (rollout, 30)}
)

if __name__ == "__main__":
    GOLDEN.write()
