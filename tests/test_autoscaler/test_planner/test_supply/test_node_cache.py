"""What a look keeps of nodes for the next one: it saves time, and never changes a plan."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given

from autoscaler.model.actions import Memory
from autoscaler.model.cluster import DaemonSet, Pod
from autoscaler.model.pod_index import PodIndex, Register, pod_index_of
from autoscaler.model.resources import CPU, Resources
from autoscaler.planner.plan import plan
from autoscaler.planner.supply.fleet import NodeCache, survey
from tests.builders import a_cluster, a_group, a_pod, a_policy, an_on_prem_node, nodes_of
from tests.test_autoscaler.test_planner.test_plan_properties import TICK, UNHURRIED, worlds
from tests.world import World


class Keeper:
    """Pods taken change by change, as the store takes them: what has not changed stays the same object."""

    def __init__(self) -> None:
        self.pods: dict[str, Pod] = {}
        self.register = Register()

    def index(self, now: dict[str, Pod]) -> PodIndex:
        """As they are now."""
        for key in self.pods.keys() | now.keys():
            before, after = self.pods.get(key), now.get(key)
            if before is not after:
                self.register.change(before, after)
        self.pods = dict(now)
        return self.register.index(tuple(now.values()))


@given(world=worlds())
@UNHURRIED
def test_a_plan_is_the_same_with_what_the_last_looks_found(world: World) -> None:
    """Through a morning of trouble."""
    keeper, cache, memory = Keeper(), NodeCache(), Memory()
    for tick in range(8):
        look = replace(world.look(), pods=keeper.index(world.pods))
        decided = plan(look, world.policy, memory, cache=cache)
        assert decided == plan(look, world.policy, memory)
        world.carry_out(decided)
        memory = decided.memory
        world.pass_time(TICK)
        if tick > 3:
            world.finish(0.5)


def test_what_one_plan_puts_on_a_node_takes_nothing_from_the_next() -> None:
    """The place is a new one in each look, though the node is the same."""
    cache = NodeCache()
    cluster = a_cluster(pods=[a_pod(gpus=8)], nodes=[an_on_prem_node(gpus=8)])
    cluster = replace(cluster, pods=pod_index_of(cluster.pods))
    plans = [plan(cluster, a_policy(), Memory(), cache=cache) for _ in range(3)]
    assert plans[0] == plans[1] == plans[2]
    assert plans[0].memory.meant


def test_another_promise_of_the_group_or_another_daemon_set_is_seen() -> None:
    """Though neither the node nor its pods have changed."""
    cache, group = NodeCache(), a_group("cpu", joined=1)
    cluster = a_cluster(nodes=nodes_of(group), groups=[group])
    (before,) = survey(cluster, a_policy(), {}, cache).places
    agent = DaemonSet("kube-system", "agent", Resources({CPU: 500}))
    (less,) = survey(replace(cluster, daemon_sets=(agent,)), a_policy(), {}, cache).places
    assert less.free[CPU] == before.free[CPU] - 500
    promised = replace(group, allocatable=group.allocatable + Resources({"example.com/nic": 4}))
    (coming,) = survey(replace(cluster, groups=(promised,)), a_policy(), {}, cache).places
    assert coming.free["example.com/nic"] == 4
