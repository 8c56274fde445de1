"""Which gangs are served where limits leave room for some: in order, none in part, and as many as there is room for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.model.actions import Grow, Memory, Plan
from autoscaler.model.cluster import Pod
from autoscaler.planner.cutting_stock.search_limits import SearchLimits
from autoscaler.planner.plan import plan
from tests import examples
from tests.builders import TOLERATES_GPU, a_cluster, a_gang, a_group, a_pod, a_policy, an_entry, an_on_prem_node

USUAL = SearchLimits()
ASKING_FIRST = SearchLimits(asked_whether_all=0)
MANY = 1_000


def decide(*pods: Pod, owned: int = 0, search: SearchLimits = USUAL, **limits: Any) -> Plan:
    """The plan for them, with 4-GPU and 8-GPU nodes and such without GPUs to buy within the limits."""
    entries = [an_entry(name, max=MANY) for name in ("gpu-a10g", "gpu-a100", "cpu")]
    groups = [a_group(entry.name, zone, maximum=MANY) for entry in entries for zone in entry.zones]
    there = [an_on_prem_node(f"dgx-{number}", gpus=4) for number in range(owned)]
    look = a_cluster(pods=pods, nodes=there, groups=groups)
    return plan(look, a_policy(*entries, limits=limits), Memory(), limits=search)


def bought(decided: Plan) -> int:
    """Nodes."""
    return sum(step.by for step in decided.steps if isinstance(step, Grow))


def test_the_first_are_served_and_one_that_is_too_large_keeps_none_back() -> None:
    """Of twelve GPUs the first gang takes four, the second wants sixteen and waits, the others take the rest."""
    pods = [*a_gang("a", 2, gpus=2), *a_gang("b", 2, gpus=8), *a_gang("c", 4, gpus=2), *a_gang("d", 1, gpus=1)]
    served = {key.split("/")[1].split("-")[0] for key in decide(*pods, gpus=12).memory.assignments}
    assert served == {"a", "c"}


@pytest.mark.parametrize("limits", [{"gpus": 40}, {"nodes": 10}, {"usd_per_hour": 60.0}], ids=str)
def test_what_takes_nothing_that_is_scarce_is_served_behind_what_is_refused(limits: dict[str, Any]) -> None:
    """Forty GPUs' worth of the hundred that are asked for; pods without GPUs go on the nodes of the others at least."""
    gpu = [a_pod(f"gpu-{number:03}", gpus=1, cpu=1) for number in range(100)]
    small = [a_pod(f"zz-{number:03}", cpu=1, tolerations=(TOLERATES_GPU,)) for number in range(40)]
    decided = decide(*gpu, *small, **limits)
    served = sorted(key.split("/")[1] for key in decided.memory.assignments)
    assert served[:40] == [pod.name for pod in gpu[:40]]
    assert sum(name.startswith("zz") for name in served) >= 30
    assert decided.lower_bound_usd_per_hour >= 0.9 * decided.usd_per_hour


@settings(deadline=None, max_examples=examples(40))
@given(data=st.data())
def test_within_limits_no_gang_is_torn_and_nothing_is_exceeded(data: st.DataObject) -> None:
    """Whatever is asked; and the same is decided where it is asked first whether limits leave room for all."""
    sizes = st.tuples(st.integers(1, 4), st.sampled_from([0, 0, 1, 2, 4, 8]), st.sampled_from([1, 4, 12]))
    gangs = data.draw(st.lists(sizes, min_size=1, max_size=12))
    limits = {
        "gpus": data.draw(st.none() | st.integers(0, 40)),
        "nodes": data.draw(st.none() | st.integers(0, 8)),
        "usd_per_hour": data.draw(st.none() | st.sampled_from([1.0, 10.0, 50.0])),
    }
    pods = [
        pod for number, (many, gpus, cpu) in enumerate(gangs) for pod in a_gang(f"g{number}", many, gpus=gpus, cpu=cpu)
    ]
    owned = data.draw(st.integers(0, 2))
    decided = decide(*pods, owned=owned, **limits)
    assert decided == decide(*pods, owned=owned, search=ASKING_FIRST, **limits)
    served = [key.split("/")[1].split("-")[0] for key in decided.memory.assignments]
    assert all(served.count(f"g{number}") in (0, many) for number, (many, _, _) in enumerate(gangs))
    gpus = sum(
        step.by * (4 if "a10g" in step.group else 8)
        for step in decided.steps
        if isinstance(step, Grow) and "gpu" in step.group
    )
    assert limits["gpus"] is None or gpus <= limits["gpus"]
    assert limits["nodes"] is None or bought(decided) <= limits["nodes"]
    assert limits["usd_per_hour"] is None or decided.usd_per_hour <= limits["usd_per_hour"] + 1e-6
