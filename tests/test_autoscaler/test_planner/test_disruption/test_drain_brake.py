"""Two brakes: nodes are taken from their pods in shares of an interval, idle ones go together."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.config.policy import Consolidation, Drains, Policy
from autoscaler.kube.memory_configmap import as_memory, as_text
from autoscaler.model import labels as words
from autoscaler.model.actions import Cordon, Evict, Memory, Plan, Remove
from autoscaler.model.cluster import Cluster, Group, Node, Notice, Pod
from autoscaler.planner.disruption.drain_brake import DrainBrake
from autoscaler.planner.plan import plan
from tests.builders import NOW, TOLERATES_GPU, a_cluster, a_group, a_pod, a_policy, an_on_prem_node, later, nodes_of

EVERY = timedelta(minutes=10)
OURS: dict[str, Any] = {"cordoned": True, "cordoned_by": words.AUTOSCALER, "cordoned_at": NOW}
MANY = 20


def braked(share: float = 0.1, **consolidation: Any) -> Policy:
    """A policy with this share in ten minutes."""
    rules = Consolidation.model_validate({"every": EVERY, "timeout": EVERY} | consolidation)
    return a_policy(scale_down={"drains": Drains(share=share, every=EVERY), "consolidation": rules})


def service(node: Node, **given: Any) -> Pod:
    """A pod that may be moved, and has run for long."""
    ordinary = {"owner": "ReplicaSet/web", "phase": "Running", "started": NOW, "tolerations": (TOLERATES_GPU,)}
    return a_pod(f"on-{node.name}", node=node.name, **ordinary | given)


def silent(many: int = MANY) -> tuple[Group, tuple[Node, ...]]:
    """Nodes that have all not been ready for 20 minutes at 11:00."""
    group = a_group(joined=many)
    return group, nodes_of(group, ready=False, created=NOW, unready_since=later(minutes=40))


def look_at(group: Group, nodes: tuple[Node, ...], **given: Any) -> Cluster:
    """At 11:00 with a pod on each."""
    pods = [a_pod(f"on-{node.name}", gpus=1, node=node.name, phase="Running") for node in nodes]
    return a_cluster(**{"pods": pods, "nodes": nodes, "groups": [group], "seen_at": later(hours=1)} | given)


def drained(done: Plan) -> set[str]:
    """Nodes that are taken from their pods."""
    of_pods = {step.node for step in done.steps if isinstance(step, Evict)}
    return of_pods | {step.node for step in done.steps if isinstance(step, Remove) and step.is_dead and step.node}


def closed(done: Plan) -> list[str]:
    """Nodes that are cordoned."""
    return [step.node for step in done.steps if isinstance(step, Cordon)]


def test_of_nodes_that_fall_silent_together_a_share_is_replaced_in_each_interval() -> None:
    """As when the network is cut: two of twenty, no more by looking again or by another replica, the next two later."""
    group, nodes = silent()
    nodes = tuple(sorted(nodes, key=lambda node: node.name))
    first = plan(look_at(group, nodes), braked(), Memory())
    assert closed(first) == [nodes[0].name, nodes[1].name]
    held = [line for line in first.warnings if nodes[2].name in line]
    assert "scale_down.drains lets 2 of 20 EC2 nodes be drained in 10m, and 2 were begun with" in held[0]
    assert first.wake_at == later(hours=1, minutes=10)

    theirs = tuple(replace(node, **OURS) if node.name in closed(first) else node for node in nodes)
    remembered = as_memory(as_text(first.memory))
    again = plan(look_at(group, theirs, seen_at=later(hours=1, minutes=9)), braked(), remembered)
    assert (drained(again), closed(again)) == ({nodes[0].name, nodes[1].name}, [])

    left = {node.instance_id for node in nodes[2:]}
    gone = replace(group, instances=tuple(one for one in group.instances if one.id in left), desired=MANY - 2)
    after = plan(look_at(gone, nodes[2:], seen_at=later(hours=1, minutes=10)), braked(), again.memory)
    assert closed(after) == [nodes[2].name]  # 0.1 of the 18 that are left


def test_a_node_whose_time_is_over_to_the_second_is_held_back_by_the_brake_all_the_same() -> None:
    """And is told why, not that its instance ends now."""
    group, nodes = silent(2)
    end = later(minutes=40) + braked().scale_down.unready_after
    done = plan(look_at(group, nodes, seen_at=end), braked(), Memory())
    first, second = sorted(node.name for node in nodes)
    assert closed(done) == [first]
    [held] = [line for line in done.warnings if second in line]
    assert "scale_down.drains lets 1 of 2 EC2 nodes be drained in 10m" in held


def test_the_brake_eases_when_the_first_of_those_that_count_is_old_enough() -> None:
    """One whose interval is over counts no more; where another may be begun with, nothing has to be waited for."""
    begun = {"first": later(minutes=52), "second": later(minutes=55), "long ago": later(minutes=50)}
    rules = Drains(share=0.1, every=EVERY)
    assert DrainBrake(rules, MANY, later(hours=1), begun, {}).eases_at == later(hours=1, minutes=2)
    assert DrainBrake(rules, 2 * MANY, later(hours=1), begun, {}).eases_at is None


def test_one_node_may_always_be_drained_and_an_edit_lets_more() -> None:
    """A share of nothing is one node; all is all."""
    group, nodes = silent(5)
    assert len(closed(plan(look_at(group, nodes), braked(0), Memory()))) == 1
    assert len(closed(plan(look_at(group, nodes), braked(1), Memory()))) == 5


def test_idle_nodes_of_a_finished_job_go_together() -> None:
    """No pod is harmed: no share holds them back."""
    group = a_group(joined=MANY)
    nodes = nodes_of(group, **OURS)
    done = plan(a_cluster(nodes=nodes, groups=[group], seen_at=later(hours=1)), braked(0), Memory())
    assert len([step for step in done.steps if isinstance(step, Remove)]) == MANY
    assert done.memory.draining == {}


@pytest.mark.parametrize(("kind", "emptied"), [("rebalance", 2), ("interruption", MANY)])
def test_warnings_of_many_interruptions_empty_a_share_and_real_ones_all(kind: Any, emptied: int) -> None:
    """All are closed to new pods in any case."""
    group = a_group(joined=MANY)
    nodes = nodes_of(group)
    notices = [Notice(instance=one.id, kind=kind, told=later(hours=1)) for one in group.instances]
    look = look_at(group, nodes, pods=[service(node) for node in nodes], notices=tuple(notices))
    done = plan(look, braked(), Memory())
    assert (len(drained(done)), len(closed(done))) == (emptied, MANY)
    assert len([line for line in done.warnings if "its pods stay for now" in line]) == MANY - emptied


def test_what_is_emptied_to_save_its_price_shares_the_brake() -> None:
    """Whatever its own budget allows."""
    group = a_group(joined=2)
    nodes = nodes_of(group)
    look = look_at(group, (*nodes, an_on_prem_node(gpus=0)), pods=[service(node) for node in nodes])
    assert len(drained(plan(look, braked(nodes=2), Memory()))) == 1
    assert drained(plan(look, braked(nodes=2), Memory(draining={"another": later(minutes=55)}))) == set()
    assert len(drained(plan(look, braked(nodes=2), Memory(draining={"another": later(minutes=45)})))) == 1


MINUTES = st.integers(1, 15)
KINDS = st.sampled_from(["silent", "warned", "service"])


@given(
    share=st.sampled_from([0.0, 0.1, 0.25, 0.5]),
    looks=st.lists(st.tuples(MINUTES, st.lists(KINDS, min_size=1, max_size=12)), min_size=2, max_size=8),
    obeys=st.booleans(),
)
def test_whatever_the_looks_no_interval_drains_more_than_the_share(
    *, share: float, looks: list[tuple[int, list[str]]], obeys: bool
) -> None:
    """Nodes come, go, fall silent and are warned of between looks; what is drained ends at once or not at all."""
    policy, memory, now = braked(share, after=timedelta(0), nodes=3), Memory(), later(hours=1)
    begun: dict[str, datetime] = {}
    gone: set[str] = set()
    for minutes, kinds in looks:
        now += timedelta(minutes=minutes)
        look = some_nodes(kinds, now, gone=gone if obeys else set())
        done = plan(look, policy, memory)
        news = [name for name in (*drained(done), *_taken(done, look)) if now >= begun.get(name, NOW) + EVERY]
        begun |= dict.fromkeys(news, now)
        counted = [since for since in begun.values() if now < since + EVERY]
        there = sum(node.instance_id is not None for node in look.nodes)
        assert not news or len(counted) <= max(1, int(share * there))
        gone |= drained(done)
        memory = as_memory(as_text(done.memory))


def _taken(done: Plan, look: Cluster) -> set[str]:
    """Silent nodes with pods that are closed, to be ended."""
    return {node.name for node in look.nodes if not node.ready} & set(closed(done))


def some_nodes(kinds: list[str], now: datetime, *, gone: set[str]) -> Cluster:
    """A node with a pod on it of each kind, and room for all pods on a machine that we own."""
    group = a_group(joined=len(kinds))
    nodes, notices = [], []
    for node, instance, kind in zip(nodes_of(group), group.instances, kinds, strict=True):
        if node.name in gone:
            continue
        nodes.append(replace(node, ready=kind != "silent", unready_since=NOW if kind == "silent" else None))
        notices += [Notice(instance.id, "rebalance", told=now)] if kind == "warned" else []
    there = {node.instance_id for node in nodes}
    left = tuple(one for one in group.instances if one.id in there)
    return a_cluster(
        pods=[service(node) for node in nodes],
        nodes=(*nodes, an_on_prem_node(gpus=0)),
        groups=[replace(group, instances=left, desired=len(left))],
        notices=tuple(notices),
        seen_at=now,
    )
