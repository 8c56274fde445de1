"""Random clusters in which something keeps pods waiting, each by a seed: half of them have two obstacles or more.

A world is made in which every pod is placed or bought for; then obstacles are put into it, each of which alone keeps a
pod waiting (that is tried). Worlds without a plan, in which limits, taints, selectors and machines meet by chance, are
among them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from autoscaler.config.group_entry import GroupEntry
from autoscaler.config.labels_and_taints import TaintEntry
from autoscaler.config.policy import Policy
from autoscaler.config.schedules import Limits
from autoscaler.model import labels as words
from autoscaler.model.actions import Memory, Plan
from autoscaler.model.cluster import Cluster, GangRef, Group, Node, Pod, Refusal
from autoscaler.model.constraints import PodTerm, Requirement, Taint, Toleration
from autoscaler.model.pauses import BUYING, Pause
from autoscaler.model.resources import Resources
from autoscaler.planner.plan import plan
from autoscaler.planner.supply.node_places import labels_of
from tests.builders import NOW, TYPES, ZONES, a_group, a_pod, an_entry, an_on_prem_node, later, nodes_of

OLD: Final = later(minutes=-30)
SITE: Final = "example.com/site"
TEAM: Final = "example.com/team"
FPGA: Final = "example.com/fpga"
WILD: Final = "by chance"
_PRICES: Final = {entry: TYPES[kind][1] for entry, kind in (("gpu-a10g", "g5.12xlarge"), ("cpu", "m5.4xlarge"))} | {
    "gpu-a100": TYPES["p4d.24xlarge"][1]
}


@dataclass(slots=True)
class World:
    """What a case is made of; obstacles change it."""

    owned: bool
    """Its pods go to machines that are there; else they are bought for."""
    entries: dict[str, GroupEntry]
    groups: dict[str, Group]
    nodes: dict[str, Node]
    residents: dict[str, Pod]
    pods: dict[str, Pod]
    limits: dict[str, float | int] = field(default_factory=dict)
    pauses: tuple[Pause, ...] = ()
    namespaces: Mapping[str, Mapping[str, str]] | None = None

    def look(self) -> tuple[Cluster, Policy]:
        """As the planner takes it."""
        cluster = Cluster(
            seen_at=NOW,
            pods=(*self.residents.values(), *self.pods.values()),
            nodes=tuple(self.nodes.values()),
            groups=tuple(self.groups.values()),
            pauses=self.pauses,
        )
        limits = Limits.model_validate(self.limits)
        return cluster, Policy(cluster="local", groups=tuple(self.entries.values()), limits=limits)

    def change_pods(self, change: Callable[[Pod], Pod]) -> None:
        """Those that wait."""
        self.pods = {key: change(pod) for key, pod in self.pods.items()}


@dataclass(frozen=True, slots=True)
class Case:
    """One of them."""

    seed: int
    number: int
    kinds: tuple[str, ...]
    """The obstacles that were put into it; ``by chance``: whatever came about."""
    cluster: Cluster
    policy: Policy


def cases(many: int, *, seed: int) -> Iterator[Case]:
    """So many."""
    for number in range(many):
        yield case(seed, number)


def case(seed: int, number: int) -> Case:
    """One, always the same."""
    for again in range(1000):
        dice = random.Random(f"{seed} {number} {again}")  # noqa: S311 - the same cases every time
        found = _wild(dice) if number % 4 == 0 else _planted(dice, obstacles=1 if number % 4 == 1 else 2 + number % 2)
        if found is not None:
            kinds, world = found
            return Case(seed, number, kinds, *world.look())
    raise AssertionError(f"no case of seed {seed} and number {number}")


def unplaced(decided: Plan, cluster: Cluster) -> set[str]:
    """Keys of the pods that wait, and are neither planned on a node that is there nor bought for."""
    return {
        pod.key
        for pod in cluster.pods
        if pod.node is None
        and (pod.key not in decided.memory.assignments or (pod.scheduler and not pod.unschedulable_because))
    }


def _waits(world: World) -> bool:
    cluster, policy = world.look()
    return bool(unplaced(plan(cluster, policy, Memory()), cluster))


def _planted(dice: random.Random, *, obstacles: int) -> tuple[tuple[str, ...], World] | None:
    stem = dice.random()
    owned = dice.random() < 0.35

    def made() -> World:
        return _world(random.Random(f"{stem} world"), owned=owned)  # noqa: S311

    if _waits(made()):
        return None
    may = [name for name in OBSTACLES if name not in (_FOR_BOUGHT if owned else _FOR_OWNED)]
    kinds = tuple(sorted(dice.sample(may, obstacles)))

    def with_these(names: tuple[str, ...]) -> World | None:
        world = made()
        for name in OBSTACLES:
            if name in names and not OBSTACLES[name](world, random.Random(f"{stem} {name}")):  # noqa: S311
                return None
        return world

    whole = with_these(kinds)
    if whole is None or not _waits(whole):
        return None
    for kind in kinds if len(kinds) > 1 else ():
        alone = with_these((kind,))
        if alone is None or not _waits(alone):
            return None
    return kinds, whole


def _world(dice: random.Random, *, owned: bool) -> World:
    """Every pod of it is placed, or bought for."""
    priced = {
        name: an_entry(
            name,
            max=dice.randint(6, 12),
            usd_per_hour=round(usd * dice.uniform(0.8, 1.2), 6),
            taints=(TaintEntry(key=words.GPU),) if name != "cpu" else (),
        )
        for name, usd in _PRICES.items()
    }
    groups = [_group(entry, zone, dice) for entry in priced.values() for zone in ZONES]
    nodes = {
        one.name: replace(one, labels=labels_of(group, one.name) | one.labels)
        for group in groups
        for one in nodes_of(group, created=OLD)
    }
    machines = [_machine(f"dgx-{number}", dice) for number in range(dice.randint(1, 4))]
    nodes |= {one.name: one for one in machines}
    gpus = dice.choice((0, 1, 1, 2, 4, 8))
    pods = _pods(dice, gpus=gpus, many=dice.choice((1, 1, 1, 2, 3, 4, 6)), name="job")
    if dice.random() < 0.3:
        pods += _pods(dice, gpus=dice.choice((0, 1, 4)), many=dice.choice((1, 2, 3)), name="second")
    residents = {}
    for node in nodes.values():
        room = owned and node.name.startswith("dgx")
        if not room or dice.random() < 0.3:
            for one in _residents(node, dice):
                residents[one.key] = one
    world = World(
        owned=owned,
        entries=priced,
        groups={group.name: group for group in groups},
        nodes=nodes,
        residents=residents,
        pods={pod.key: pod for pod in pods},
    )
    if owned:
        at_home = Requirement(SITE, "In", ("lab",))
        world.change_pods(lambda pod: replace(pod, affinity=((at_home,),)))
    return world


def _group(entry: GroupEntry, zone: str, dice: random.Random) -> Group:
    joined = dice.choice((0, 0, 0, 1, 2))
    group = a_group(entry.name, zone, joined=joined, usd_per_hour=entry.usd_per_hour, maximum=entry.max)
    quota = {"gpu-a10g": ("L-DB2E81BA", 48), "gpu-a100": ("L-417A185B", 96), "cpu": ("L-1216C47A", 16)}[entry.name]
    return replace(group, quota=quota[0], vcpus=quota[1], max_size=entry.max)


def _machine(name: str, dice: random.Random) -> Node:
    gpus = dice.choice((0, 4, 8, 8))
    labels = {SITE: "lab", TEAM: dice.choice(("vision", "speech")), words.ZONE: "lab"}
    taints = {} if dice.random() < 0.6 or not gpus else {"taints": ()}
    return an_on_prem_node(name, gpus=gpus, labels=labels, created=OLD, **taints)


def _pods(dice: random.Random, *, gpus: int, many: int, name: str) -> list[Pod]:
    """One, some that stand alone, or a gang."""
    cpu = dice.choice((1, 2, 4, 10)) if not gpus else dice.choice((1, 4))
    given: dict[str, Any] = {"cpu": cpu, "memory": f"{dice.choice((1, 4, 8))}Gi", "created": OLD}
    given["labels"] = {"app": name}
    if many > 1 and dice.random() < 0.6:
        given["gang"] = GangRef(namespace="team", name=name, size=many)
        given["gates"] = (words.GATE,)
    return [a_pod(f"{name}-{number}", gpus=gpus, priority=dice.choice((0, 0, 10)), **given) for number in range(many)]


def _residents(node: Node, dice: random.Random) -> Iterator[Pod]:
    """Pods that leave no GPU and hardly a CPU of it, or nearly."""
    left = dict(node.allocatable.items())
    for number in range(dice.choice((1, 2, 3))):
        gpus = left.get(words.GPU, 0)
        cpu = left["cpu"] // 1000
        last = number == 2 or dice.random() < 0.5
        amounts: dict[str, Any] = {
            "cpu": cpu if last else cpu // 2,
            "memory": "1Gi",
            "pods": 1,
        }
        if gpus:
            amounts[words.GPU] = gpus if last else gpus // 2
        requests = Resources.parse({key: value for key, value in amounts.items() if value})
        yield a_pod(
            f"on-{node.name}-{number}",
            requests=requests,
            node=node.name,
            phase="Running",
            created=OLD,
            started=OLD,
            labels={"app": "resident"},
        )
        for key, value in requests.items():
            left[key] = left.get(key, 0) - value
        if last:
            return


# --- Obstacles: each changes the world; ``False``: it has none of what it would change --------------------------------


def _no_toleration(world: World, dice: random.Random) -> bool:
    """The pod does not tolerate the GPU nodes' taint, or one that all nodes have."""
    if any(pod.requests[words.GPU] for pod in world.pods.values()) and dice.random() < 0.7:
        world.change_pods(lambda pod: replace(pod, tolerations=()))
        return True
    taint = Taint("example.com/dedicated", dice.choice(("", "research")))
    own = TaintEntry(key=taint.key, value=taint.value)
    world.entries = {name: one.model_copy(update={"taints": (*one.taints, own)}) for name, one in world.entries.items()}
    world.groups = {name: replace(one, taints=(*one.taints, taint)) for name, one in world.groups.items()}
    world.nodes = {name: replace(one, taints=(*one.taints, taint)) for name, one in world.nodes.items()}
    return True


def _selector(world: World, dice: random.Random) -> bool:
    """It selects what no node has."""
    asked = dice.choice(
        (
            Requirement(TEAM, "In", ("visoin",)),
            Requirement(words.ZONE, "In", ("us-east-1f",)),
            Requirement(words.GPU_PRODUCT, "In", ("NVIDIA-B200",)),
            Requirement(words.OS, "NotIn", ("linux",)),
            Requirement("example.com/nvlink", "Exists"),
        )
    )
    if asked.operator == "NotIn" and world.owned:
        return False
    world.change_pods(lambda pod: replace(pod, affinity=tuple((*term, asked) for term in pod.affinity) or ((asked,),)))
    return True


def _partner(world: World, dice: random.Random) -> bool:
    """It must be near to pods that are not there."""
    key = dice.choice((words.HOSTNAME, words.ZONE))
    world.change_pods(lambda pod: replace(pod, near_to=(near_db(key),)))
    return True


def near_db(key: str) -> PodTerm:
    """A rule that means pods of ``app: db``, of which there is none."""
    return PodTerm(key, (Requirement("app", "In", ("db",)),), frozenset({"team"}))


def _too_big(world: World, dice: random.Random) -> bool:
    """It asks for more than any machine has."""
    gpus = any(pod.requests[words.GPU] for pod in world.pods.values())
    more = {words.GPU: dice.choice((16, 12))} if gpus else {"cpu": dice.choice((150, 200, 300))}
    first = min(world.pods)
    pod = world.pods[first]
    amounts = dict(pod.requests.items()) | dict(Resources.parse(more).items())
    world.pods[first] = replace(pod, requests=Resources(amounts))
    return True


def _unknown_resource(world: World, _dice: random.Random) -> bool:
    """It asks for a device that nothing has."""
    first = min(world.pods)
    pod = world.pods[first]
    world.pods[first] = replace(pod, requests=pod.requests + Resources({FPGA: 1}))
    return True


def _limit(key: str) -> Callable[[World, random.Random], bool]:
    def obstacle(world: World, dice: random.Random) -> bool:
        """The limit leaves a part of what is needed."""
        cluster, policy = world.look()
        before = plan(replace(cluster, pods=tuple(world.residents.values())), policy, Memory()).usd_per_hour
        after = plan(cluster, policy, Memory())
        grown = {step.group: step.by for step in after.steps if type(step).__name__ == "Grow"}
        held = {name: group.desired for name, group in world.groups.items()}
        uses = {name: 1 if key == "nodes" else group.allocatable[words.GPU] for name, group in world.groups.items()}
        need = sum(uses[name] * many for name, many in grown.items())
        if key == "usd_per_hour":
            bought = after.usd_per_hour - before
            world.limits[key] = max(0.01, round(before + bought * dice.choice((0.0, 0.3, 0.9, 0.9999)), 2))
            return bought > 0
        if need < 1:
            return False
        world.limits[key] = sum(uses[name] * many for name, many in held.items()) + dice.randrange(need)
        return True

    return obstacle


def _maximum(world: World, dice: random.Random) -> bool:
    """The entries leave a part of what is needed."""
    cluster, policy = world.look()
    grown = {s.group: s.by for s in plan(cluster, policy, Memory()).steps if type(s).__name__ == "Grow"}
    if not grown:
        return False
    for name, entry in world.entries.items():
        own = [group for group in world.groups.values() if group.entry == name]
        held = sum(group.desired for group in own)
        need = sum(grown.get(group.name, 0) for group in own)
        world.entries[name] = entry.model_copy(update={"max": held + dice.randrange(need) if need else held})
    return True


def _max_size(world: World, _dice: random.Random) -> bool:
    """The policy's maximum was raised, and ``pulumi up`` has not been run."""
    world.groups = {
        name: replace(group, maximum=group.desired, max_size=group.desired) for name, group in world.groups.items()
    }
    return True


def _no_group(world: World, dice: random.Random) -> bool:
    """Entries of the policy have no Auto Scaling group yet: in one zone, or in none."""
    known = dice.random() < 0.5
    kept = {name: group for name, group in world.groups.items() if group.desired or (known and group.zone == ZONES[1])}
    if len(kept) == len(world.groups):
        return False
    world.groups = {name: replace(group, maximum=group.desired, max_size=group.desired) for name, group in kept.items()}
    return True


def _cordoned(world: World, _dice: random.Random) -> bool:
    """Somebody closed the machines that have room."""
    world.nodes = {
        name: replace(node, cordoned=True, cordoned_by="") if name.startswith("dgx") else node
        for name, node in world.nodes.items()
    }
    return True


def _not_ready(world: World, _dice: random.Random) -> bool:
    """The machines that have room do not answer."""
    world.nodes = {
        name: replace(node, ready=False, unready_since=OLD) if name.startswith("dgx") else node
        for name, node in world.nodes.items()
    }
    return True


def _busy(world: World, dice: random.Random) -> bool:
    """The machines are full."""
    for node in world.nodes.values():
        if node.name.startswith("dgx") and not any(pod.node == node.name for pod in world.residents.values()):
            for one in _residents(node, dice):
                world.residents[one.key] = one
    return True


def _scheduler(world: World, _dice: random.Random) -> bool:
    """Another scheduler is to bind it, and has not so much as tried."""
    world.change_pods(lambda pod: replace(pod, scheduler="my-scheduler", gates=(), gang=None))
    return True


def _paused(world: World, dice: random.Random) -> bool:
    """Buying is paused."""
    world.pauses = (Pause(BUYING, "audit", "ada", OLD, dice.choice((None, later(hours=2)))),)
    return True


def _refused(world: World, dice: random.Random) -> bool:
    """EC2 has refused of late."""
    code = dice.choice(("InsufficientInstanceCapacity", "VcpuLimitExceeded"))
    refusal = Refusal(later(minutes=-1), code)
    world.groups = {name: replace(group, refusals=(refusal,)) for name, group in world.groups.items()}
    return True


def _quota(world: World, dice: random.Random) -> bool:
    """A quota of the account leaves less than is needed."""
    left = dice.choice((0, 20))
    world.groups = {name: replace(group, quota_left=min(left, group.vcpus - 1)) for name, group in world.groups.items()}
    return True


def _apart(world: World, _dice: random.Random) -> bool:
    """It must be apart, by zone, from what runs in all of them."""
    term = PodTerm(words.ZONE, (Requirement("app", "In", ("resident",)),), frozenset({"team"}))
    there = {world.nodes[pod.node].labels.get(words.ZONE) for pod in world.residents.values() if pod.node}
    if not {*ZONES, "lab"} <= there:
        return False
    world.change_pods(lambda pod: replace(pod, apart_from=(term,)))
    return True


OBSTACLES: Final[Mapping[str, Callable[[World, random.Random], bool]]] = {
    "usd_per_hour": _limit("usd_per_hour"),
    "gpus": _limit("gpus"),
    "nodes": _limit("nodes"),
    "max": _maximum,
    "toleration": _no_toleration,
    "selector": _selector,
    "partner": _partner,
    "apart": _apart,
    "split": _too_big,
    "device": _unknown_resource,
    "MaxSize": _max_size,
    "no group": _no_group,
    "cordoned": _cordoned,
    "not ready": _not_ready,
    "busy": _busy,
    "scheduler": _scheduler,
    "paused": _paused,
    "refused": _refused,
    "quota": _quota,
}
"""In the order in which they are put in: limits first, which are measured on what is bought without the others."""
_FOR_BOUGHT: Final = frozenset(
    {"usd_per_hour", "gpus", "nodes", "max", "MaxSize", "no group", "paused", "refused", "quota"}
)
_FOR_OWNED: Final = frozenset({"cordoned", "not ready", "busy", "scheduler"})


def _wild(dice: random.Random) -> tuple[tuple[str, ...], World] | None:
    """Machines, taints, selectors and limits as they come."""
    world = _world(dice, owned=False)
    for name in list(world.residents):
        if dice.random() < 0.3:
            del world.residents[name]
    for name, node in world.nodes.items():
        if dice.random() < 0.15:
            world.nodes[name] = replace(node, taints=(*node.taints, Taint("example.com/dedicated", "research")))
    gone = [name for name in world.groups if dice.random() < 0.25 and not world.groups[name].desired]
    for name in gone:
        del world.groups[name]
    usd = sum(group.usd_per_hour * group.desired for group in world.groups.values())
    nodes = sum(group.desired for group in world.groups.values())
    gpus = sum(group.allocatable[words.GPU] * group.desired for group in world.groups.values())
    for key, least, more in (
        ("usd_per_hour", usd, dice.uniform(0.5, 30)),
        ("nodes", nodes, dice.randint(0, 3)),
        ("gpus", gpus, dice.randint(0, 12)),
    ):
        if dice.random() < 0.4:
            world.limits[key] = round(least + more, 2) if key == "usd_per_hour" else least + more
    for name, entry in world.entries.items():
        held = sum(group.desired for group in world.groups.values() if group.entry == name)
        if dice.random() < 0.5:
            world.entries[name] = entry.model_copy(update={"max": held + dice.randint(0, 3)})
    _wild_pods(world, dice)
    return ((WILD,), world) if _waits(world) else None


def _wild_pods(world: World, dice: random.Random) -> None:
    for key, pod in world.pods.items():
        changed = pod
        if pod.gang is None and dice.random() < 0.3:
            asked = dice.choice(
                (
                    Requirement(TEAM, "In", (dice.choice(("vision", "speech")),)),
                    Requirement(words.ZONE, "In", (dice.choice((*ZONES, "lab")),)),
                    Requirement(words.GROUP, "In", (dice.choice(tuple(world.entries)),)),
                    Requirement(SITE, "DoesNotExist"),
                )
            )
            changed = replace(changed, affinity=((asked,),))
        if dice.random() < 0.2:
            changed = replace(changed, tolerations=dice.choice(((), (Toleration(operator="Exists"),))))
        world.pods[key] = changed
