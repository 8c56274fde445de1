"""What slurm.conf is told of the policy's groups; a real Slurm reads it in ``training/test_slurm_cloud.py``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autoscaler.config.schedules import Budget, ClusterBudget
from autoscaler.model.errors import BadInput
from autoscaler.slurm.config import check, slurm_conf
from tests.builders import a_group, a_policy, an_entry


def test_a_group_is_a_line_of_nodes_that_come_after_the_own_ones() -> None:
    """With its GPUs; what the policy does not allow to be bought is no node."""
    policy = a_policy(an_entry("gpu-a10g"), an_entry("cpu", max=0))
    groups = (a_group("gpu-a10g"), a_group("cpu"))
    lines = slurm_conf(policy, groups, own="gpu[0-3]", folder=Path("/etc/slurm")).splitlines()
    [nodes] = [line for line in lines if line.startswith("NodeName")]
    said = dict(word.split("=") for word in nodes.split())
    assert (said["NodeName"], said["State"], said["Gres"]) == ("gpu-a10g-us-east-1a-[1-10]", "CLOUD", "gpu:4")
    assert int(said["Weight"]) > 1000
    assert {"SuspendExcNodes=gpu[0-3]", "ResumeProgram=/etc/slurm/spillway-nodes", "SuspendTime=600"} <= set(lines)


@pytest.mark.parametrize(
    ("entry", "policy", "told"),
    [
        ({"budget": Budget(usd_per_day=5)}, {}, "has budget"),
        ({}, {"budget": ClusterBudget(namespaces={"a": Budget(usd_per_day=5)})}, "has budget"),
        ({"headroom": 1}, {}, "has headroom"),
    ],
)
def test_what_nothing_would_obey_is_refused(entry: dict[str, Any], policy: dict[str, Any], told: str) -> None:
    """Rather than passed over."""
    with pytest.raises(BadInput, match=told):
        check(a_policy(an_entry("cpu", **entry), **policy))
