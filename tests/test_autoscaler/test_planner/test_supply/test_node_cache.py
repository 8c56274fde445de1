"""What a look keeps of nodes for the next one: it saves time, and never changes a plan."""

from __future__ import annotations

from dataclasses import fields, replace

from hypothesis import given
from hypothesis import strategies as st

from autoscaler.model import labels as words
from autoscaler.model.actions import Memory
from autoscaler.model.cluster import DaemonSet, Node, NodeCondition, Pod
from autoscaler.model.constraints import Taint
from autoscaler.model.node_index import NodeIndex, NodeRegister
from autoscaler.model.pod_index import PodIndex, Register, pod_index_of
from autoscaler.model.resources import CPU, Resources
from autoscaler.planner.obstacles.answer_cache import AnswerCache
from autoscaler.planner.plan import plan
from autoscaler.planner.supply.candidate_nodes import FillOrder, Place, harm
from autoscaler.planner.supply.fleet import survey
from autoscaler.planner.supply.node_cache import NodeCache
from tests.builders import NOW, a_cluster, a_group, a_pod, a_policy, an_on_prem_node, nodes_of
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


@given(world=worlds(operator=True))
@UNHURRIED
def test_a_plan_is_the_same_with_what_the_last_looks_found(world: World) -> None:
    """Through a morning of trouble."""
    keeper, cache, answers, memory = Keeper(), NodeCache(), AnswerCache(), Memory()
    for tick in range(8):
        look = replace(world.look(), pods=keeper.index(world.pods))
        decided = plan(look, world.policy, memory, cache=cache, answers=answers)
        assert decided == plan(look, world.policy, memory)
        assert decided == plan(look, world.policy, memory, cache=cache)
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
    assert plans[0].memory.assignments


def test_a_node_that_nothing_has_changed_on_keeps_its_place() -> None:
    """No part of it is made anew, also where another node, or the order of all nodes, is another one."""
    cache, group = NodeCache(), a_group("cpu", joined=2)
    cluster = a_cluster(pods=[a_pod()], nodes=[*nodes_of(group), an_on_prem_node("own", gpus=8)], groups=[group])
    cluster = replace(cluster, pods=pod_index_of(cluster.pods))
    before = {place.name: place for place in survey(cluster, a_policy(), {}, cache).places}
    first, *others = cluster.nodes
    closed = replace(first, do_not_disrupt=True)
    after = survey(replace(cluster, nodes=(*others, closed)), a_policy(), {}, cache)
    assert [place.name for place in after.places] == sorted(before)
    assert {place.name for place in after.places if place is not before[place.name]} == {first.name}
    assert after.nodes.named[first.name] is closed


def test_a_place_that_a_plan_has_changed_is_made_anew() -> None:
    """The others are kept; none has a guest at the next look."""
    cache, nodes = NodeCache(), [an_on_prem_node("full", gpus=8), an_on_prem_node("large", gpus=16)]
    cluster = a_cluster(pods=[a_pod(gpus=8)], nodes=nodes)
    cluster = replace(cluster, pods=pod_index_of(cluster.pods))
    before = {place.name: place for place in survey(cluster, a_policy(), {}, cache).places}
    plan(cluster, a_policy(), Memory(), cache=cache)
    after = survey(cluster, a_policy(), {}, cache).places
    assert {place.name for place in after if place is not before[place.name]} == {"full"}
    assert not any(place.guests for place in after)


@given(data=st.data())
@UNHURRIED
def test_an_index_that_is_kept_says_what_a_new_one_says(data: st.DataObject) -> None:
    """Whatever nodes come, change and go."""
    register = NodeRegister()
    there: dict[str, Node] = {}
    for _ in range(6):
        for name in data.draw(st.sets(st.sampled_from("abcdef"))):
            there[name] = data.draw(
                st.builds(a_strange_node, st.just(name), st.booleans(), st.booleans(), st.booleans())
            )
        for name in data.draw(st.sets(st.sampled_from("abcdef"))):
            there.pop(name, None)
        nodes = tuple(data.draw(st.permutations(list(there.values()))))
        kept, anew = register.index(nodes), NodeRegister().index(nodes)
        assert list(kept.named) == sorted(there)
        for one in fields(NodeIndex):
            assert getattr(kept, one.name) == getattr(anew, one.name)


def a_strange_node(name: str, ready: bool, reserved: bool, ours: bool) -> Node:  # noqa: FBT001 - drawn
    """A node with all that an index asks about."""
    return Node(
        name,
        Resources(),
        NOW,
        taints=(Taint(words.RESERVED),) if reserved else (),
        ready=ready,
        cordoned=reserved and ours,
        provider_id=f"aws:///us-east-1a/i-{name}" if not ours else "",
        conditions=(NodeCondition("AcceleratedHardwareReady", "False"),) if ready and ours else (),
    )


@given(data=st.data())
@UNHURRIED
def test_the_order_of_filling_that_is_kept_is_that_of_all_places(data: st.DataObject) -> None:
    """Whatever places come, change and go."""
    order, places = FillOrder(), list[Place]()
    for turn in range(6):
        places = [place for place in places if data.draw(st.booleans())]
        for number in range(data.draw(st.integers(0, 4))):
            free = {CPU: data.draw(st.integers(0, 4000)), "nvidia.com/gpu": data.draw(st.integers(0, 2))}
            places.append(Place(f"{turn}-{number}", {}, (), free, tier=data.draw(st.integers(0, 1))))
        for place in places:
            if data.draw(st.booleans()):
                place.free[CPU] += 500
                place.version += 1
            place.standing = data.draw(st.booleans())
        anew = sorted((harm(place), place.name, place.version, place) for place in places if place.standing)
        assert order.of(places) == anew


def test_the_order_of_filling_is_known_before_a_pod_asks_for_it() -> None:
    """It is found in a look without any, and anew where DaemonSets have changed all nodes."""
    cache, look = NodeCache(), a_cluster(nodes=[an_on_prem_node(), an_on_prem_node("dgx-02")])
    assert cache.order.is_empty
    survey(look, a_policy(), {}, cache)
    before = cache.order
    assert not before.is_empty
    survey(look, a_policy(), {}, cache)
    assert cache.order is before
    agent = DaemonSet("kube-system", "agent", Resources({CPU: 500}))
    survey(replace(look, daemon_sets=(agent,)), a_policy(), {}, cache)
    assert cache.order is not before
    assert not cache.order.is_empty


def test_a_place_is_kept_while_its_group_grows_and_made_anew_where_it_promises_something_else() -> None:
    """It knows the group as it is now."""
    cache, group = NodeCache(), a_group("cpu", joined=1)
    cluster = a_cluster(nodes=nodes_of(group), groups=[group])
    cluster = replace(cluster, pods=pod_index_of(cluster.pods))
    (before,) = survey(cluster, a_policy(), {}, cache).places
    grown = replace(group, desired=3)
    (kept,) = survey(replace(cluster, groups=(grown,)), a_policy(), {}, cache).places
    assert kept is before
    assert kept.group is grown
    labelled = replace(grown, labels={"disk": "fast"})
    (anew,) = survey(replace(cluster, groups=(labelled,)), a_policy(), {}, cache).places
    assert anew is not before
    assert anew.group is labelled


def test_a_node_whose_group_comes_or_goes_is_made_anew() -> None:
    """An Auto Scaling group may be read a look after its nodes, or be deleted before they are gone."""
    cache, group = NodeCache(), a_group("cpu", joined=1)
    with_group = a_cluster(pods=[a_pod()], nodes=nodes_of(group), groups=[group])
    looks = [replace(with_group, pods=pod_index_of(with_group.pods), groups=groups) for groups in ((), (group,), ())]
    for _ in range(2):
        for look in looks:
            (place,) = survey(look, a_policy(), {}, cache).places
            (fresh,) = survey(look, a_policy(), {}).places
            assert (place.group, place.standing) == (fresh.group, fresh.standing)
            assert (place.group is group) is bool(look.groups)


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


def test_members_of_groups_are_found_once_while_nodes_and_groups_stay_the_same() -> None:
    """Anew where there is another group, or one that is not the same object, or another node."""
    group, cache = a_group(joined=1), NodeCache()
    nodes = cache.begin(a_cluster(nodes=nodes_of(group)))
    found = cache.members(nodes, [group])
    assert cache.members(nodes, [group]) is found
    assert cache.members(nodes, [replace(group)]) is not found
    assert cache.members(nodes, [group, a_group(zone="us-east-1b")]).sizes == {group.name: 1}
    other = cache.begin(a_cluster())
    assert cache.members(other, [group]).sizes == {}
