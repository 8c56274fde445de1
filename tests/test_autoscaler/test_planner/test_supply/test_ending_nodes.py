"""Nodes on which everything ends soon are filled last, and never a reason to buy."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from autoscaler.config.policy import Policy
from autoscaler.model.actions import Grow, Memory
from autoscaler.model.cluster import Cluster, Node, Pod
from autoscaler.planner.plan import plan
from autoscaler.planner.supply.fleet import survey
from autoscaler.planner.supply.node_cache import NodeCache
from tests.builders import NOW, a_cluster, a_gang, a_group, a_pod, a_policy, an_on_prem_node, later, nodes_of
from tests.test_autoscaler.test_planner.test_supply.test_node_cache import Keeper

HOUR = timedelta(hours=1)
GROUP = a_group(joined=2)
ENDS, STAYS = nodes_of(GROUP)
WAITS = a_pod("new", gpus=1)


def runs(name: str, node: Node, **given: Any) -> Pod:
    """A pod with 4 of its node's 8 GPUs, since 12:00."""
    return a_pod(name, **{"gpus": 4, "node": node.name, "phase": "Running", "started": NOW} | given)


FULLER = runs("fuller", ENDS, gpus=6, duration=HOUR)
"""Its node has less room: a pod of one GPU would go there for that."""


def look(*pods: Pod, minutes: float = 55, nodes: tuple[Node, ...] = (ENDS, STAYS), **given: Any) -> Cluster:
    """Minutes after noon."""
    return a_cluster(**{"pods": pods, "nodes": nodes, "groups": [GROUP], "seen_at": later(minutes=minutes)} | given)


def home(cluster: Cluster, policy: Policy | None = None, pod: str = "team/new") -> str:
    """Where the pod is planned; nothing is bought."""
    done = plan(cluster, policy or a_policy(), Memory())
    assert not [step for step in done.steps if isinstance(step, Grow)]
    return done.memory.assignments[pod].node


@pytest.mark.parametrize("waits", [WAITS, replace(WAITS, duration=timedelta(days=1))], ids=["unknown", "long"])
def test_a_node_on_which_all_ends_soon_is_not_filled_with_a_long_job(waits: Pod) -> None:
    """Another EC2 node with room takes it."""
    assert home(look(FULLER, runs("stays", STAYS), waits)) == STAYS.name


def test_the_pods_of_a_gang_go_elsewhere_too() -> None:
    """Placed jointly or one by one."""
    gang = a_gang("g", pods=2, gpus=1)
    done = plan(look(FULLER, runs("stays", STAYS), *gang), a_policy(), Memory())
    assert {home.node for home in done.memory.assignments.values()} == {STAYS.name}


@pytest.mark.parametrize(
    ("pods", "minutes", "enabled"),
    [
        ((FULLER,), 45, True),
        ((FULLER,), 61, True),
        ((replace(FULLER, duration=None),), 55, True),
        ((replace(FULLER, requests=runs("x", ENDS, gpus=5).requests), runs("more", ENDS, gpus=1)), 55, True),
        ((FULLER,), 55, False),
    ],
    ids=["later than the idle time", "overdue", "not said", "one of them does not say", "no node goes"],
)
def test_else_it_is_filled_as_others_are(*, pods: tuple[Pod, ...], minutes: float, enabled: bool) -> None:
    """The fuller node first."""
    policy = a_policy(scale_down={"enabled": enabled})
    assert home(look(*pods, runs("stays", STAYS), WAITS, minutes=minutes), policy) == ENDS.name


def test_it_is_filled_before_a_node_is_bought() -> None:
    """A new one costs no less than to keep it."""
    full = runs("full", STAYS, gpus=8)
    assert home(look(FULLER, full, WAITS)) == ENDS.name


def test_a_machine_of_ours_is_none() -> None:
    """It stays whatever ends on it, and is filled first."""
    own = an_on_prem_node()
    ends = runs("own", own, duration=HOUR)
    assert home(look(FULLER, ends, runs("stays", STAYS), WAITS, nodes=(ENDS, STAYS, own))) == own.name


def test_what_a_look_keeps_of_nodes_knows_that_time_passes() -> None:
    """And that the idle time is edited."""
    keeper, cache = Keeper(), NodeCache()
    pods = keeper.index({pod.key: pod for pod in (FULLER, runs("stays", STAYS), WAITS)})
    for minutes, idle in ((30, 10), (55, 10), (55, 1), (59.5, 1), (60, 10), (61, 10)):
        policy = a_policy(scale_down={"idle_after": timedelta(minutes=idle)})
        at = replace(look(minutes=minutes), pods=pods)
        tiers = [place.tier for place in survey(at, policy, {}, cache).places]
        assert tiers == [place.tier for place in survey(at, policy, {}).places]
        assert plan(at, policy, Memory(), cache=cache) == plan(at, policy, Memory())
