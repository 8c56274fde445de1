"""Plans that were made before, in words: what a change of the planner changes is read in the diff of a commit.

    python -m tests.golden_plans

writes ``tests/test_autoscaler/test_planner/golden_plans.txt`` anew. Each plan is of a cluster that a seed makes:

- a cluster in which something keeps pods waiting (:mod:`tests.waiting_cases`): what is bought, and what is told;
- a morning, look by look: gangs come and end, machines of ours are full, EC2 refuses, instances are taken back;
- elastic jobs, look by look: what each has, as others come and go;
- what is explained of each job, node and group of a morning with nodes that are kept free, and what more pods would do.

Purchases for pods of many sizes are not among them: processors of other kinds round differently, and of plans that
cost about the same another may be found.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from autoscaler.config.group_entry import GroupEntry
from autoscaler.config.policy import Consolidation, Faults, Policy
from autoscaler.model.actions import Memory, Plan
from autoscaler.model.cluster import Cluster, GangRef, Pod
from autoscaler.model.step_descriptions import describe
from autoscaler.planner.explanation.explain import explain
from autoscaler.planner.explanation.what_if import impossible, what_if
from autoscaler.planner.plan import plan
from tests.builders import a_gang, a_group, a_pod, a_policy, an_entry, an_on_prem_node, later
from tests.elastic_world import ElasticWorld, Submitted, an_elastic_world, arrive, sizes_of
from tests.golden import Golden
from tests.waiting_cases import case
from tests.world import World

TICK: Final = timedelta(seconds=40)
_TICKS: Final = 9
_LOOKS: Final = 30
_GROUPS: Final = ("gpu-a10g", "gpu-a100", "cpu")


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
    return _where_new(_looks_of_a_morning(number))


def _where_new(looks: Iterable[tuple[str, list[str]]]) -> Iterator[str]:
    """When it was, and the lines, where these are not the last look's."""
    before = list[str]()
    for when, lines in looks:
        if lines != before:
            yield when
            yield from lines
        before = lines


def _looks_of_a_morning(number: int) -> Iterator[tuple[str, list[str]]]:
    dice = random.Random(f"morning {number}")  # noqa: S311 - the same every time
    world = _morning(dice, [an_entry(name, max=dice.randint(1, 5)) for name in _GROUPS])
    memory = Memory()
    for tick in range(_TICKS):
        decided = plan(world.look(), world.policy, memory)
        yield f"after {tick * TICK.total_seconds():.0f} s:", list(in_words(decided))
        world.carry_out(decided)
        memory = decided.memory
        world.pass_time(TICK)
        if tick > _TICKS // 2:
            world.finish(0.5)


def _morning(dice: random.Random, entries: Sequence[GroupEntry]) -> World:
    machines = [an_on_prem_node(f"dgx-{one}", gpus=dice.choice((4, 8))) for one in range(dice.randint(0, 3))]
    pods = [pod for one in range(dice.randint(3, 7)) for pod in _job(one, dice)]
    limits = dice.choice(({}, {"usd_per_hour": 45.0}, {"nodes": 5}, {"gpus": 24}))
    return World(
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


def elastic(number: int) -> Iterator[str]:
    """Look by look."""
    return _where_new(_looks_of_elastic_jobs(number))


def _looks_of_elastic_jobs(number: int) -> Iterator[tuple[str, list[str]]]:
    dice = random.Random(f"elastic {number}")  # noqa: S311 - the same every time
    groups = [a_group("cpu", maximum=2)] if dice.random() < 0.5 else []
    world = an_elastic_world(*(dice.randint(3, 12) for _ in range(dice.randint(1, 4))), groups=tuple(groups))
    offered = {group.entry for group in groups}
    entries = tuple(one for one in world.policy.groups if one.name in offered)
    world.policy = world.policy.model_copy(update={"groups": entries})
    halls = dice.random() < 0.3
    for count, (name, node) in enumerate(world.nodes.items() if halls else ()):
        world.nodes[name] = replace(node, labels={**node.labels, "hall": "ab"[count % 2]})
    arriving = [*(_submitted(one, dice) for one in range(dice.randint(1, 4))), *range(dice.randint(1, 4))]
    dice.shuffle(arriving)
    for tick in range(_LOOKS):
        if tick % 3 == 0 and arriving:
            one = arriving.pop()
            if isinstance(one, Submitted):
                world.submit(one)
            else:
                _others(world, one, dice, topology="hall" if halls else None)
        if tick == _LOOKS * 2 // 3:
            for key in [key for key in world.pods if key.startswith("team/other-0")]:
                del world.pods[key]
        decided = world.act()
        yield f"look {tick}:", [*in_words(decided), f"tasks with a node: {sizes_of(world)}"]


def explained(number: int) -> Iterator[str]:
    """At every third look."""
    dice = random.Random(f"explained {number}")  # noqa: S311 - the same every time
    kept = {"headroom": dice.randint(0, 2)}
    entries = [an_entry(name, max=dice.randint(1, 5), **kept) for name in dice.sample(_GROUPS, 2)]
    world, memory = _morning(dice, entries), Memory()
    for tick in range(_TICKS):
        seen = world.look()
        decided = plan(seen, world.policy, memory)
        if tick % 3 == 1:
            yield f"after {tick * TICK.total_seconds():.0f} s:"
            yield from _told(seen, world.policy, decided)
            gpus, asked = dice.choice((0, 2, 8)), dice.randint(1, 4)
            yield f"{asked} more pods with {gpus} GPUs:"
            yield from _if_there_were(a_gang("more", asked, gpus=gpus), seen, world.policy, memory)
        world.carry_out(decided)
        memory = decided.memory
        world.pass_time(TICK)
        world.finish(0.1)


def _told(seen: Cluster, policy: Policy, decided: Plan) -> Iterator[str]:
    """Each line once, of nodes with their names."""
    jobs = sorted({f"{pod.namespace}/{pod.gang.name}" for pod in seen.pods if pod.gang is not None})
    things = [("job", name) for name in jobs] + [("group", entry.name) for entry in policy.groups]
    for kind, name in (*things, *(("node", node.name) for node in sorted(seen.nodes, key=lambda node: node.name))):
        yield from (f"{kind} {name}: {line}" for line in explain(kind, name, seen, policy, decided))


def _if_there_were(pods: Sequence[Pod], seen: Cluster, policy: Policy, memory: Memory) -> Iterator[str]:
    found = what_if(seen, policy, memory, pods)
    yield from (f"{many} on {node}" for node, many in found.on_nodes.items())
    yield from (f"{many} on nodes of {group} that are on their way" for group, many in found.on_the_way.items())
    yield from (f"{one.nodes} bought of {one.group} at {one.usd_per_hour:.2f} $/h" for one in found.bought)
    yield from (f"{one.pods} wait: {one.because} {one.would_fit_if}" for one in found.waiting)
    for one in impossible(seen, policy, pods):
        yield f"{one.pods} would wait for ever: {one.because} {one.would_fit_if}"


def _submitted(number: int, dice: random.Random) -> Submitted:
    least = dice.randint(1, 3)
    return Submitted(
        f"job{number}",
        workers=(least, least + dice.choice((0, 1, 3, 9, 30))),
        servers=dice.choice(((0, 0), (0, 0), (1, 1), (1, 3))),
        cpu=dice.randint(1, 3),
        priority=dice.choice((0, 0, 5)),
        usd=dice.choice((0.0, 0.0, 1.0, 10.0)),
        restart=dice.choice(("", "", "90s")),
        warm_up=dice.choice(("", "2m")),
    )


def _others(world: ElasticWorld, number: int, dice: random.Random, *, topology: str | None) -> None:
    pods, cpu = dice.randint(1, 4), dice.randint(1, 5)
    gang = GangRef("team", f"other-{number}", size=pods, minimum=dice.choice((None, 1)), topology=topology)
    arrive(world, gang.name, pods, cpu, priority=dice.choice((0, 0, 5)), gang=gang)


GOLDEN: Final = Golden(
    Path(__file__).with_name("test_autoscaler") / "test_planner" / "golden_plans.txt",
    {"waiting": (waiting, 48), "morning": (morning, 12), "elastic": (elastic, 20), "explained": (explained, 14)},
)

if __name__ == "__main__":
    GOLDEN.write()
