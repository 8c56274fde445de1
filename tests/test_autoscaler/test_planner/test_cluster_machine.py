"""A cluster that hypothesis runs step by step for as long as it likes, through the autoscaler's own doors.

Each step is one thing that happens: a job comes or ends, time passes, EC2 refuses or takes back, hardware breaks, the
autoscaler looks and acts, is killed at a write, or starts anew. After each of them :class:`tests.world.World` holds
dollars, nodes, GPUs and gangs against the policy, and every step of a plan against what may be done to pods.
``python -m tests.bench model --steps 1000000`` runs longer ones.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import ClassVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from autoscaler.model.actions import Memory
from autoscaler.planner.obstacles.answer_cache import AnswerCache
from autoscaler.planner.plan import plan
from tests import examples
from tests.builders import a_pod
from tests.test_autoscaler.test_planner.test_plan_properties import gangs, turn, worlds
from tests.world import World, job_of

CROWDED = 24
"""Pods beyond which no more jobs come."""
WEATHER = (
    *(("refuses", share) for share in (0.0, 0.3, 1.0)),
    *(("interrupts", share) for share in (0.0, 0.0, 0.1)),
    *(("breaks", share) for share in (0.0, 0.0, 0.05)),
    *(("guarded", share) for share in (0.0, 0.5, 1.0)),
)
"""What changes of a world, and the share that it is from then on."""


class ClusterMachine(RuleBasedStateMachine):
    """Its steps; a subclass may keep ``tally``."""

    tally: ClassVar[Counter[str]] = Counter()

    @initialize(world=worlds(room=2), killed=st.booleans())
    def begin(self, *, world: World, killed: bool) -> None:
        """A world; and whether processes are killed in it, or forget what they knew."""
        self.world, self.killed = world, killed
        self.memory, self.answers = Memory(), AnswerCache()
        self.jobs = 100

    @rule()
    def look(self) -> None:
        """The autoscaler decides and acts."""
        self.memory = turn(self.world, self.memory, self.answers, killed=self.killed)

    @rule(seconds=st.sampled_from((1, 10, 30, 60, 300)), looks=st.sampled_from((True, True, False)))
    def wait(self, *, seconds: int, looks: bool) -> None:
        """Launches come through or fail, nodes join, the scheduler binds; as a rule the autoscaler looks after that."""
        self.world.pass_time(timedelta(seconds=seconds))
        if looks:
            self.look()

    @precondition(lambda self: len(self.world.pods) < CROWDED)
    @rule(data=st.data())
    def submit(self, data: st.DataObject) -> None:
        """A job comes."""
        self.jobs += 1
        for pod in data.draw(gangs(self.jobs)):
            self.world.pods[pod.key] = replace(pod, created=self.world.now)

    @precondition(lambda self: len(self.world.pods) < CROWDED)
    @rule(cpu=st.sampled_from((1, 4, 12)))
    def serve(self, cpu: int) -> None:
        """A pod of a service comes, which may be moved."""
        self.jobs += 1
        pod = a_pod(f"web-{self.jobs}", cpu=cpu, owner="ReplicaSet/web", created=self.world.now)
        self.world.pods[pod.key] = pod

    @rule(share=st.sampled_from((0.3, 1.0)))
    def finish(self, share: float) -> None:
        """Jobs end."""
        self.world.finish(share)

    @precondition(lambda self: len(self.world.pods) >= CROWDED)
    @rule()
    def withdraw(self) -> None:
        """Owners of jobs of which nothing runs give up: without it, jobs that never fit would be all there is."""
        running = {job_of(pod) for pod in self.world.pods.values() if pod.node}
        self.world.pods = {key: pod for key, pod in self.world.pods.items() if job_of(pod) in running}

    @rule(to=st.sampled_from(WEATHER))
    def change(self, to: tuple[str, float]) -> None:
        """EC2 has less or more from now on, or takes instances back; hardware breaks; budgets forbid evictions."""
        what, share = to
        setattr(self.world.cloud if what == "refuses" else self.world, what, share)

    @precondition(lambda self: not self.killed)
    @rule()
    def restart(self) -> None:
        """Another process, which knows nothing."""
        self.memory, self.answers = Memory(), AnswerCache()
        self.world.begin()

    def teardown(self) -> None:
        """Nodes are kept for no pod when a new machine would have been given up."""
        if not hasattr(self, "world"):
            return
        self.world.pass_time(self.world.policy.scale_up.boot_timeout)
        for _ in range(2):
            self.world.carry_out(plan(self.world.look(), self.world.policy, self.memory))
        assert not self.world.reserved_too_long(), self.world.nodes
        self.tally.update(self.world.tally)


ClusterMachine.TestCase.settings = settings(
    deadline=None,
    max_examples=examples(15),
    stateful_step_count=30,
    suppress_health_check=list(HealthCheck),
)
TestClusterMachine = ClusterMachine.TestCase
