"""Why nodes of a group are not bought: everything that stands in the way, and what there is of the group. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from autoscaler.config.group_entry import GroupEntry
from autoscaler.config.policy import Policy
from autoscaler.model.actions import Grow, Plan
from autoscaler.model.cluster import Cluster, Group
from autoscaler.model.errors import BadInput
from autoscaler.model.instance_types import quota_in_words
from autoscaler.model.labels import GPU
from autoscaler.model.step_descriptions import describe
from autoscaler.planner.explanation.node_states import Standings, standings
from autoscaler.planner.placement.available_offerings import affordable
from autoscaler.planner.placement.offerings import CENT, Ceilings


def explain_group(name: str, cluster: Cluster, policy: Policy, plan: Plan) -> Iterator[str]:
    """Lines about a policy entry, or about one Auto Scaling group. Raises ``BadInput`` where there is none."""
    groups = [group for group in cluster.groups if name in (group.entry, group.name)]
    if not groups and policy.entry(name) is None:
        known = ", ".join(entry.name for entry in policy.groups)
        raise BadInput(f"there is no group {name!r}: the policy has {known or 'none'}")
    if not groups:
        yield f"{name} is in the policy, and AWS has no Auto Scaling group of it: run `pulumi up`"
        return
    found = standings(cluster, policy, plan)
    left, bought = affordable(cluster, policy, found.fleet), found.fleet.bought_by(plan.steps, cluster.groups)
    for group in cluster.groups:
        left.take(group, bought[group.name])
    for group in sorted(groups, key=lambda group: group.name):
        yield _what(group, found)
        if group.block is not None:
            yield (
                f"  Capacity Block {group.reservation}: from {group.block.starts:%Y-%m-%d %H:%M:%S} UTC, until EC2 "
                f"takes back what is in it at {group.block.taken_back:%Y-%m-%d %H:%M:%S} UTC"
            )
        orders = (one for one in plan.steps if isinstance(one, Grow) and one.group == group.name)
        yield from (f"  next step: {describe(one)}: {one.because}" for one in orders)
        nothing = "nothing more" if bought[group.name] else "nothing"
        whys = list(_whys(group, policy, found, left, bought=bought[group.name]))
        yield from (f"  {nothing} is bought: {why}" for why in whys)
        if not whys:
            yield "  nothing stands in the way: a node is bought when a pod needs it and no cheaper group has room"


def _what(group: Group, found: Standings) -> str:
    ours = Counter(one.state for one in found.nodes if one.group is not None and one.group.name == group.name)
    have = ", ".join(f"{many} {state}" for state, many in sorted(ours.items())) or "no node"
    bought = "" if group.capacity_type == "on-demand" else f"{group.capacity_type}, "
    return f"{group.name} ({group.instance_type}, {bought}{group.usd_per_hour:.2f} $/h a node): {have}"


def _whys(group: Group, policy: Policy, found: Standings, left: Ceilings, *, bought: int) -> Iterator[str]:
    """Each thing that alone keeps one more node from being bought, beside those that the plan buys."""
    fleet, entry = found.fleet, policy.entry(group.entry)
    if entry is None:
        yield f"the policy has no entry {group.entry} any more"
    closed = fleet.closed.get(group.name)
    if closed is not None:
        again = f"failed {closed.tries} times, last" if closed.tries > 1 else "failed"
        yield (
            f"it {again} at {closed.failed:%Y-%m-%d %H:%M:%S} UTC ({closed.code}), and is left alone until "
            f"{closed.until:%Y-%m-%d %H:%M:%S} UTC{_said(group, closed.code)}"
        )
    yield from map(str, fleet.paused.get(group.name, ()))
    yield from _limits(group, policy, left)
    if entry is not None and group.maximum - fleet.size_of(group) - bought < 1:
        yield from _full(group, entry)


def _full(group: Group, entry: GroupEntry) -> Iterator[str]:
    if group.max_size is not None and group.maximum < group.max_size:
        yield "the price of its nodes is not known: write usd_per_hour into its policy entry"
    elif group.maximum < entry.max:
        yield f"the MaxSize of the Auto Scaling group is {group.maximum}: `pulumi up` brings that of the policy"


def _said(group: Group, code: str) -> str:
    message = next((one.message for one in group.refusals if one.code == code and one.message), "")
    return f": {message}" if message else ""


def _limits(group: Group, policy: Policy, left: Ceilings) -> Iterator[str]:
    limits, entry = policy.limits, policy.entry(group.entry)
    if entry is not None and left.entries.get(group.entry, 1) < 1:
        yield f"max of group {group.entry} is {entry.max}, and as many run or were asked for"
    if left.usd is not None and group.usd_per_hour > left.usd + CENT:
        yield f"limits.usd_per_hour is {limits.usd_per_hour:g}, which leaves {max(left.usd, 0.0):.4f} $/h"
    if left.nodes is not None and left.nodes < 1:
        yield f"limits.nodes is {limits.nodes}, which leaves none"
    if left.gpus is not None and group.allocatable[GPU] > left.gpus:
        of_node = group.allocatable[GPU]
        yield f"limits.gpus is {limits.gpus}, which leaves {max(left.gpus, 0)} of the {of_node} of a node"
    quota = left.quotas.get(group.quota)
    if quota is not None and group.vcpus > quota:
        yield f"{quota_in_words(group.quota)} leaves {max(quota, 0)} of the {group.vcpus} vCPUs of a node"
