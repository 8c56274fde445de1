"""Plans that were made before, in words: what a change of the planner changes is read in the diff of a commit.

    python -m tests.golden_plans

writes ``tests/test_autoscaler/test_planner/golden_plans.txt`` anew. Each plan is of a cluster that a seed makes:

- a cluster in which something keeps pods waiting (:mod:`tests.waiting_cases`): what is bought, and what is told;
- a morning, look by look: gangs come and end, machines of ours are full, EC2 refuses, instances are taken back.

Purchases for pods of many sizes are not among them: processors of other kinds round differently, and of plans that
cost about the same another may be found.
"""

from __future__ import annotations

import random
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from autoscaler.config.policy import Consolidation, Faults
from autoscaler.model.actions import Memory, Plan, describe
from autoscaler.model.cluster import Pod
from autoscaler.planner.plan import plan
from tests.builders import a_gang, a_group, a_pod, a_policy, an_entry, an_on_prem_node, later
from tests.waiting_cases import case
from tests.world import World

FILE: Final = Path(__file__).with_name("test_autoscaler") / "test_planner" / "golden_plans.txt"
TICK: Final = timedelta(seconds=40)
_TICKS: Final = 9
_MANY: Final = {"waiting": 48, "morning": 12}


def in_words(decided: Plan) -> Iterator[str]:
    """Steps, where pods are planned, prices, and why others wait."""
    for step in decided.steps:
        yield f"{describe(step)}: {getattr(step, 'because', '')}"
    homes = Counter(home.node for home in decided.memory.assignments.values())
    if homes:
        yield f"planned: {', '.join(f'{many} on {node}' for node, many in sorted(homes.items()))}"
    yield f"{decided.usd_per_hour:.2f} $/h, at least {decided.lower_bound_usd_per_hour:.2f}"
    reasons: defaultdict[str, list[str]] = defaultdict(list)
    for one in decided.waiting:
        reasons[f"{one.because} [{one.cause}] {one.would_fit_if}"].append(one.pod)
    for reason, pods in sorted(reasons.items()):
        yield f"{len(pods)} wait, {pods[0]} first: {reason}"


def waiting(number: int) -> Iterator[str]:
    """A cluster in which something keeps pods waiting."""
    found = case(2026, number)
    yield f"obstacles: {', '.join(found.kinds)}"
    yield from in_words(plan(found.cluster, found.policy, Memory()))


def morning(number: int) -> Iterator[str]:
    """Look by look."""
    dice = random.Random(f"morning {number}")  # noqa: S311 - the same every time
    entries = tuple(an_entry(name, max=dice.randint(1, 5)) for name in ("gpu-a10g", "gpu-a100", "cpu"))
    machines = [an_on_prem_node(f"dgx-{one}", gpus=dice.choice((4, 8))) for one in range(dice.randint(0, 3))]
    pods = [pod for one in range(dice.randint(3, 7)) for pod in _job(one, dice)]
    limits = dice.choice(({}, {"usd_per_hour": 45.0}, {"nodes": 5}, {"gpus": 24}))
    world = World(
        policy=a_policy(
            *entries,
            limits=limits,
            scale_down={"consolidation": Consolidation(after=TICK, every=TICK)},
            faults=Faults(after=TICK, share=1.0),
        ),
        pods={pod.key: pod for pod in pods},
        nodes={node.name: node for node in machines},
        offered=[a_group(entry.name, zone, maximum=entry.max) for entry in entries for zone in entry.zones],
        chance=dice,
        refuses=dice.choice((0.0, 0.3)),
        never_joins=dice.choice((0.0, 0.2)),
        at_once=dice.random() < 0.7,
        reserves=dice.random() < 0.5,
        guarded=dice.choice((0.0, 0.4)),
        breaks=dice.choice((0.0, 0.05)),
        interrupts=dice.choice((0.0, 0.1)),
    )
    memory, before = Memory(), list[str]()
    for tick in range(_TICKS):
        decided = plan(world.look(), world.policy, memory)
        lines = list(in_words(decided))
        if lines != before:
            yield f"after {tick * TICK.total_seconds():.0f} s:"
            yield from lines
        before = lines
        world.carry_out(decided)
        memory = decided.memory
        world.pass_time(TICK)
        if tick > _TICKS // 2:
            world.finish(0.5)


def _job(number: int, dice: random.Random) -> tuple[Pod, ...]:
    common: dict[str, Any] = {
        "priority": dice.choice((0, 0, 10)),
        "created": later(seconds=dice.randint(-9, 0)),
        "duration": dice.choice((None, 3 * TICK)),
        "patience": dice.choice((None, 2 * TICK)),
        "gpus": dice.choice((0, 1, 2, 4, 8)),
        "cpu": dice.choice((2, 4, 12)),
    }
    if dice.random() < 0.3:
        return (a_pod(f"lone-{number}", owner=dice.choice(("", "ReplicaSet/web")), **common),)
    size = dice.randint(1, 6)
    return a_gang(f"gang-{number}", size, minimum=dice.choice((None, dice.randint(1, size))), **common)


_KINDS: Final[dict[str, Callable[[int], Iterator[str]]]] = {"waiting": waiting, "morning": morning}
NAMES: Final = tuple(f"{kind} {number}" for kind, many in _MANY.items() for number in range(many))


def made(name: str) -> list[str]:
    """The lines of one."""
    kind, number = name.split()
    return list(_KINDS[kind](int(number)))


def kept() -> dict[str, list[str]]:
    """The lines of each that the file has."""
    found: dict[str, list[str]] = {}
    for line in FILE.read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            found[line[2:]] = []
        elif line:
            found[list(found)[-1]].append(line)
    return found


def main() -> int:
    """Write all of them."""
    FILE.write_text("".join(f"# {name}\n" + "".join(f"{line}\n" for line in made(name)) + "\n" for name in NAMES))
    return 0


if __name__ == "__main__":
    sys.exit(main())
