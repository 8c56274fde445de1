"""EDL's case 1 in compressed time, decided by the whole planner: ``python -m tests.bench.edl_planned [--passes 3]``.

:mod:`tests.bench.edl` asks ``sizes`` alone, and its gangs start in the second in which they have room. Here jobs are
resized first and their pods placed a second later, as on a control plane, so that gangs start some seconds later. A
pass takes ten seconds of CPU time.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from autoscaler.model import labels as words
from autoscaler.model.actions import Admit, Memory, Resize
from autoscaler.model.cluster import Cluster, GangRef, Node
from autoscaler.model.cluster import Pod as ClusterPod
from autoscaler.model.jobs import ElasticRole
from autoscaler.model.resources import Resources
from autoscaler.planner.plan import plan
from tests.bench.edl import CASES, EPOCH, LEAST, MOST, POD_MAX, SERVERS, TRAINER, Pass, summary
from tests.bench.edl_world import ENDING, MILLI, NODES, SYSTEM_CPUS, Pod, World
from tests.builders import a_policy, selects

_NODES: Final = tuple(
    Node(
        name=f"node-{number}",
        allocatable=Resources.parse(
            {"cpu": f"{cpus * MILLI - int(SYSTEM_CPUS * MILLI / len(NODES))}m", "memory": "64Gi", "pods": POD_MAX}
        ),
        created=EPOCH,
        labels={words.HOSTNAME: f"node-{number}"},
    )
    for number, cpus in enumerate(NODES)
)


@dataclass(slots=True)
class PlannedPass(Pass):
    """One pass; a plan each second, of which sizes and lifted gates are carried out."""

    memory: Memory = field(default_factory=Memory)
    parallelism: dict[str, int] = field(default_factory=dict)

    def _scale_as_decided(self) -> None:
        for name in self.submitted:
            self.parallelism.setdefault(name, LEAST)
            self._create_missing(name)
        decided = plan(self._cluster(), a_policy(), self.memory)
        self.memory = decided.memory
        pods = {_key(pod): pod for pod in self.world.pods if pod.state != "ending"}
        for step in decided.steps:
            if isinstance(step, Resize):
                self._resize(step)
            elif isinstance(step, Admit):
                for key, node in step.placements:
                    pods[key].gated, pods[key].wants = False, int(node.removeprefix("node-"))

    def _create_missing(self, name: str) -> None:
        """As the Job controller does: an index is made anew when its last pod is gone."""
        there = {pod.index for pod in self.world.pods if (pod.owner, pod.role) == (name, "trainer")}
        missing = [index for index in range(self.parallelism[name]) if index not in there]
        self.world.create(Pod(name, "trainer", index, TRAINER, self.world.now, gated=True) for index in missing)

    def _resize(self, step: Resize) -> None:
        name = step.name.removesuffix("-trainer")
        self.parallelism[name], self.changed[name] = step.to, self.world.now
        surplus = [pod for pod in self.world.of(name, "trainer") if pod.index >= step.to]
        self.killed += sum(pod.node is not None for pod in surplus)
        self.world.end(surplus)

    def _cluster(self) -> Cluster:
        return Cluster(
            seen_at=EPOCH + timedelta(seconds=self.world.now),
            pods=tuple(map(_cluster_pod, self.world.pods)),
            nodes=_NODES,
            elastic=tuple(self._role(name, at) for name, at in self.submitted.items()),
        )

    def _role(self, name: str, at: float) -> ElasticRole:
        changed = self.changed.get(name)
        return ElasticRole(
            "default",
            f"{name}-trainer",
            self.parallelism[name],
            LEAST,
            MOST,
            EPOCH + timedelta(seconds=at),
            changed=None if changed is None else EPOCH + timedelta(seconds=changed),
            warm_up=timedelta(seconds=10),
        )


def _key(pod: Pod) -> str:
    return f"default/{pod.owner}-{pod.role}-{pod.index}"


def _cluster_pod(pod: Pod) -> ClusterPod:
    home = "" if pod.wants is None else f"node-{pod.wants}"
    return ClusterPod(
        namespace="default",
        name=_key(pod).removeprefix("default/"),
        uid=str(id(pod)),
        requests=Resources.parse({"cpu": f"{pod.cpu}m", "memory": "64Mi", "pods": 1}),
        created=EPOCH + timedelta(seconds=pod.created),
        labels={words.COMPLETION_INDEX: str(pod.index)},
        node=None if pod.node is None else f"node-{pod.node}",
        phase="Running" if pod.state in ("running", "ending") else "Pending",
        affinity=(selects(host=home),) if home else (),
        admitted_to=home,
        gang=GangRef("default", pod.owner, size=MOST + SERVERS + 1, minimum=LEAST + SERVERS + 1),
        gates=(words.GATE,) if pod.gated else (),
        owner=f"Job/{pod.owner}-{pod.role}",
        role=pod.role,
        deleting=pod.state == "ending",
    )


def main(argv: Sequence[str]) -> int:
    """Print mean, lowest and highest of each figure."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.edl_planned", description=__doc__)
    parser.add_argument("--passes", type=int, default=3)
    many: int = parser.parse_args(argv).passes
    found: list[dict[str, Any]] = []
    for seed in range(many):
        dice = random.Random(seed)  # noqa: S311 - the same passes every time
        found.append(PlannedPass(CASES[1], "spillway", World(dice, trainers_end=ENDING)).run())
    print(*(f"{name}: {value}" for name, value in summary(found).items()), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
