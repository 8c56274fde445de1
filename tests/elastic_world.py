"""A world with elastic Jobs and their controller: see :mod:`tests.world`."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final

import msgspec

from autoscaler.kube.schema.core import JobJson
from autoscaler.kube.schema.jobs import job_from
from autoscaler.kube.watched_kinds import JOBS
from autoscaler.model import labels as words
from autoscaler.model.actions import Admit, Grow, Memory, Plan, Resize, Step
from autoscaler.model.cluster import Cluster, GangRef, Pod
from autoscaler.planner.plan import plan
from tests.builders import a_pod, a_policy, an_on_prem_node
from tests.world import World

TICK: Final = timedelta(seconds=5)
INTERVAL: Final = timedelta(seconds=15)
_DECODER: Final = msgspec.json.Decoder(JobJson)


@dataclass(frozen=True)
class Submitted:
    """A job of one elastic role, perhaps with parameter servers, elastic or not."""

    name: str
    workers: tuple[int, int]
    servers: tuple[int, int] = (0, 0)
    cpu: int = 1
    server_cpu: int = 1
    priority: int = 0
    usd: float = 0.0
    owner: str = ""
    restart: str = ""
    """Spans, as annotations have them."""
    warm_up: str = ""


@dataclass
class ElasticWorld(World):
    """With Jobs and their controller. Pods that are being deleted stay for one tick."""

    asked: dict[str, Submitted] = field(default_factory=dict)
    changed: dict[str, Any] = field(default_factory=dict)
    names: Counter[str] = field(default_factory=Counter)
    admitted: set[str] = field(default_factory=set)
    """Pods that the plan that is being carried out gives a node."""
    resized: list[Resize] = field(default_factory=list)
    remembered: Memory = field(default_factory=Memory)
    """By the last plan."""

    def submit(self, job: Submitted) -> None:
        """Its Jobs begin at their least."""
        self.asked[job.name] = job
        for role, (least, most) in (("worker", job.workers), ("ps", job.servers)):
            if not most:
                continue
            marks = {words.ELASTIC: f"{least}..{most}"} if least < most else {}
            marks |= {words.FOLLOWS: f"{job.name}-worker"} if role == "ps" and marks else {}
            marks |= {words.ELASTIC_USD: f"{job.usd:g}"} if job.usd else {}
            marks |= {words.ELASTIC_RESTART: job.restart} if job.restart else {}
            marks |= {words.ELASTIC_WARM_UP: job.warm_up} if job.warm_up else {}
            self.api.jobs[f"team/{job.name}-{role}"] = {
                "metadata": {
                    "name": f"{job.name}-{role}",
                    "namespace": "team",
                    "uid": f"uid-{job.name}-{role}",
                    "resourceVersion": "1",
                    "creationTimestamp": self.now.isoformat(),
                    "annotations": marks,
                },
                "spec": {"parallelism": least, "completions": least, "completionMode": "Indexed"},
            }
        self.control()

    def control(self) -> None:
        """As the Job controller does: the highest indexes end, what lacks is made."""
        for key in [key for key, pod in self.pods.items() if pod.deleting]:
            del self.pods[key]
        for key, raw in self.api.jobs.items():
            there = {int(pod.labels[words.COMPLETION_INDEX]): pod for pod in self.tasks(key)}
            for index in [index for index in there if index >= raw["spec"]["parallelism"]]:
                pod = self.pods.pop(there[index].key)
                if pod.node:  # others end at once
                    self.pods[pod.key] = replace(pod, deleting=True)
            for index in range(raw["spec"]["parallelism"]):
                if index not in there:
                    self._make(key.partition("/")[2], index)

    def tasks(self, key: str) -> list[Pod]:
        """The pods of a Job that are to stay."""
        owner = f"Job/{key.partition('/')[2]}"
        return [pod for pod in self.pods.values() if pod.owner == owner and not pod.deleting]

    def _make(self, name: str, index: int) -> None:
        job = self.asked[name.rpartition("-")[0]]
        self.names[name] += 1
        needed, size = job.workers[0] + job.servers[0], job.workers[1] + job.servers[1]
        pod = a_pod(
            f"{name}-{index}-{self.names[name]}",
            cpu=job.cpu if name.endswith("-worker") else job.server_cpu,
            created=self.now,
            priority=job.priority,
            labels={words.COMPLETION_INDEX: str(index), words.OWNER: job.owner},
            gang=GangRef("team", job.name, size=size, minimum=needed),
            gates=(words.GATE,),
            owner=f"Job/{name}",
        )
        self.pods[pod.key] = pod

    def look(self) -> Cluster:
        """With the Jobs."""
        found = {}
        for key, raw in self.api.jobs.items():
            told = _DECODER.decode(msgspec.json.encode(raw))
            found["team", key.partition("/")[2]] = (told.metadata.version(), job_from(told))
        self.store.replace(JOBS, found)
        return super().look()

    def _may(self, step: Step) -> None:
        """Sizes stay within what was asked, and change once in an interval."""
        if not isinstance(step, Resize):
            return super()._may(step)
        name, _, role = step.name.rpartition("-")
        job = self.asked[name]
        least, most = job.workers if role == "worker" else job.servers
        assert least <= step.to <= most, step
        assert step.was == self.api.jobs[f"team/{step.name}"]["spec"]["parallelism"] != step.to, step
        last = self.changed.get(step.name)
        assert last is None or self.now - last >= INTERVAL, f"{step} {self.now - last} after the last"
        self.changed[step.name] = self.now
        self.resized.append(step)
        placed = [pod for pod in self.tasks(f"team/{step.name}") if pod.node or pod.key in self.admitted]
        assert step.to < step.was or len(placed) == step.was, f"{step} while some of it have no place"
        return None

    def check_gangs_and_nodes(self) -> None:
        """No gang in part, servers in proportion, and no node above what it has."""
        for job in self.asked.values():
            placed = {
                role: sum(pod.node is not None for pod in self.tasks(f"team/{job.name}-{role}"))
                for role in ("worker", "ps")
            }
            runs = placed["worker"] >= job.workers[0] and placed["ps"] >= job.servers[0]
            assert runs or not any(placed.values()), f"{job.name}: {placed}"
        for name in self.nodes:
            assert min(self._free(name).values()) >= 0, f"{name} is too full"

    def settle(self, ticks: int) -> None:
        """The autoscaler acts, and the others do."""
        for _ in range(ticks):
            self.act()

    def act(self) -> Plan:
        """One look, what it leads to, and what happens until the next."""
        decided = plan(self.look(), self.policy, self.remembered)
        self.remembered = decided.memory
        unpaid = {pod.key for pod in self.pods.values() if self._is_unpaid_growth(pod)}
        for step in decided.steps:
            assert not isinstance(step, Grow) or not {*step.demand} <= unpaid, f"{step} for growth without money"
        self.admitted = {pod for step in decided.steps if isinstance(step, Admit) for pod, _ in step.placements}
        self.carry_out(decided)
        self.control()
        self.check_gangs_and_nodes()
        self.pass_time(TICK)
        return decided

    def _is_unpaid_growth(self, pod: Pod) -> bool:
        job = self.asked.get(pod.gang.name) if pod.gang else None
        if job is None or job.usd:
            return False
        least = job.workers[0] if "-worker-" in pod.name else job.servers[0]
        return int(pod.labels[words.COMPLETION_INDEX]) >= least


def an_elastic_world(*machines: int, groups: tuple[Any, ...] = (), seed: int = 0) -> ElasticWorld:
    """Own machines with so many CPUs."""
    nodes = {f"own-{n}": an_on_prem_node(f"own-{n}", gpus=0, cpu=cpu) for n, cpu in enumerate(machines)}
    return ElasticWorld(a_policy(), {}, nodes, groups, random.Random(seed))  # noqa: S311 - reproducible on purpose


def sizes_of(world: ElasticWorld) -> dict[str, int]:
    """How many tasks of each Job have a node."""
    return {
        key.partition("/")[2]: sum(pod.node is not None for pod in world.tasks(key)) for key in sorted(world.api.jobs)
    }


def arrive(world: ElasticWorld, name: str, pods: int, cpu: int = 1, **given: Any) -> None:
    """A gang of others, behind the gate."""
    for number in range(pods):
        gang, gates = GangRef("team", name, size=pods), (words.GATE,)
        pod = a_pod(f"{name}-{number}", **{"cpu": cpu, "gates": gates, "created": world.now, "gang": gang} | given)
        world.pods[pod.key] = pod
