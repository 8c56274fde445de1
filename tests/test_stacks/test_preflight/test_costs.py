"""What a preview tells of costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autoscaler.config.policy import Policy
from stacks.preflight.costs import costs, group_maxima, idle_lines, tell
from stacks.programs import build, export
from stacks.settings.stack import Settings, read_settings
from tests.test_stacks.declared import Recorder, group, plans, policy
from tests.test_stacks.graph import Graph, graph

KUBEADM = {"kind": "kubeadm", "ami": "ami-0123456789abcdef0"}
EKS = {"kind": "eks", "admins": ["arn:aws:iam::123456789012:role/admin"]}


def settings(**configured: Any) -> Settings:
    """A stack file's, with these keys under ``spillway:``."""
    return read_settings({"spillway:policy": "p.yaml"} | {f"spillway:{k}": v for k, v in configured.items()}, stack="s")


def two_groups() -> Policy:
    """One bought on demand, one as spot."""
    return policy(group(name="gpu", max=6), group(name="cheap", max=10, capacity_type="spot"))


def run(folder: Path, *groups: dict[str, Any], mocks: Recorder | None = None, **configured: Any) -> Graph:
    """The program, as an engine runs it in a preview."""
    these = plans(folder, *groups, **configured)
    return graph(lambda: export(build(these)), preview=True, mocks=mocks)


def test_the_sum_is_each_groups_max_at_its_price() -> None:
    """By capacity type, since spot comes and goes."""
    cost = costs(group_maxima(two_groups(), {"gpu": 5.672, "cheap": 1.5}), ())
    assert cost.max_usd_per_hour == pytest.approx(6 * 5.672 + 10 * 1.5)
    assert (cost.max_on_demand_usd_per_hour, cost.max_spot_usd_per_hour) == (34.032, 15.0)


def test_the_table_names_group_count_and_price() -> None:
    """And what the autoscaler itself keeps to."""
    told = tell(costs(group_maxima(two_groups(), {"gpu": 5.672, "cheap": 1.5}), ()), (), limit=40.0)
    assert "6 x gpu (on-demand, g5.12xlarge): 5.6720 = 34.03 $/h" in told
    assert "10 x cheap (spot, g5.12xlarge): 1.5000 = 15.00 $/h" in told
    assert "sum 49.03 $/h (on-demand 34.03, spot 15.00)" in told
    assert "the autoscaler buys for 40 $/h at most" in told


def test_a_sum_of_unknown_prices_is_unknown() -> None:
    """And one of which a part is unknown is a least one, in both tables."""
    nothing = {"gpu": None, "cheap": None}
    assert "sum unknown" in tell(costs(group_maxima(two_groups(), nothing), ()), (), limit=None)
    one = costs(group_maxima(two_groups(), {**nothing, "gpu": 5.672}), ())
    assert "sum at least 34.03 $/h" in tell(one, (), limit=None)
    idle = tuple(idle_lines(settings(control_plane=KUBEADM), zones=1, endpoints=0, instance_usd=None))
    assert "sum at least 0." in tell(costs((), idle), idle, limit=None)


def test_an_unknown_price_is_told_and_not_taken_as_free() -> None:
    """With the key that mends it."""
    told = tell(costs(group_maxima(two_groups(), {"gpu": 5.672, "cheap": None}), ()), (), limit=None)
    assert "10 x cheap (spot, g5.12xlarge): price unknown" in told
    assert "without cheap: write usd_per_hour into its entry of the policy" in told


def test_an_entry_that_is_switched_off_needs_no_price() -> None:
    """With ``max: 0`` nothing of it is bought."""
    off = policy(group(name="gpu", max=6), group(name="cheap", max=0))
    told = tell(costs(group_maxima(off, {"gpu": 5.672, "cheap": None}), ()), (), limit=None)
    assert "sum 34.03 $/h" in told
    assert "write usd_per_hour" not in told


@pytest.mark.parametrize(
    ("configured", "endpoints", "usd"),
    [
        ({}, 0, 0.05),
        ({"network": {"nat": "per-zone"}}, 0, 0.10),
        ({"network": {"nat": "none"}}, 8, 0.16),
        ({"control_plane": EKS}, 0, 0.15),
        ({"control_plane": {**KUBEADM, "instances": 3}}, 0, 0.05 + 3 * 0.096 + 3 * 60 * 0.08 / 730 + 0.0225),
        ({"program": "node-pools"}, 0, 0.0),
        ({"connectivity": {"kind": "vpn", "address": "198.51.100.7"}}, 0, 0.10),
        ({"connectivity": {"kind": "wireguard", "address": "198.51.100.7"}}, 0, 0.0758),
        ({"connectivity": {"kind": "routed"}}, 0, 0.05),
        (
            {"network": {"vpc": {"id": "vpc-01234567", "subnets": {f"us-east-1{z}": "subnet-01234567" for z in "ab"}}}},
            0,
            0,
        ),
    ],
)
def test_the_idle_cluster(configured: dict[str, Any], endpoints: int, usd: float) -> None:
    """Over two zones, at list prices."""
    lines = idle_lines(settings(**configured), zones=2, endpoints=endpoints, instance_usd=0.096)
    assert costs((), lines).idle_usd_per_hour == pytest.approx(usd, abs=1e-4)


def test_a_preview_shows_both_and_exports_them(tmp_path: Path) -> None:
    """Nothing of it waits for AWS to make something."""
    made = run(tmp_path, network={"nat": "one"})
    [told] = [line for line in made.said if "sum" in line]
    assert "sum 22.69 $/h (on-demand 22.69, spot 0.00)" in told  # 4 nodes, at the price list's 5.672
    assert "1 x NAT gateway with its address: 0.0500 = 0.05 $/h" in told
    assert made.exports["cost"]["maxUsdPerHour"] == 22.688
    assert made.exports["cost"]["groups"][0]["usdPerHour"] == 5.672


def test_prices_come_from_the_policy_first_then_from_aws(tmp_path: Path) -> None:
    """As the autoscaler takes them."""
    entry = {"instance_type": "g5.12xlarge", "zones": ["us-east-1a"], "max": 1}
    made = run(
        tmp_path,
        entry | {"name": "said", "usd_per_hour": 7.5},
        entry | {"name": "listed"},
        entry | {"name": "spot", "capacity_type": "spot"},
    )
    prices = {one["entry"]: one["usdPerHour"] for one in made.exports["cost"]["groups"]}
    assert prices == {"said": 7.5, "listed": 5.672, "spot": 1.7016}


def test_a_price_list_that_does_not_answer_holds_nothing_up(tmp_path: Path) -> None:
    """The cluster comes up; the price is shown as unknown."""

    class Silent(Recorder):
        def call(self, args: Any) -> Any:
            if args.token.endswith("getProduct"):
                raise RuntimeError("no route to the price list")
            return super().call(args)

    made = run(tmp_path, mocks=Silent())
    assert any("price unknown" in line for line in made.said)
    assert "Group gpu-us-east-1a" in {str(node) for node in made.nodes}
