"""How long a group is left alone after a failure: learnt by group, longer each time, ended by a success or by itself.

A failure is a launch that EC2 refused, or an instance that never joined. A refusal by a quota of the account is one of
every group that draws on the same quota with nodes at least as large. The first back-off is the policy's, each further
one is twice as long, up to ten times the first; an instance that was launched since begins anew, and so does a group
that has had no failure for as long as the longest back-off.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

from autoscaler.config.policy import Policy
from autoscaler.model.actions import Backoff
from autoscaler.model.cluster import Cluster, Group, Refusal

QUOTAS: Final = frozenset(
    {"VcpuLimitExceeded", "InstanceLimitExceeded", "MaxSpotInstanceCountExceeded", "ReservationCapacityExceeded"}
)
"""Refusals that are the account's, or a Capacity Reservation's, not those of one pool."""
NEVER_JOINED: Final = "an instance did not join"
LONGEST: Final = 10
"""Times the first back-off."""


def learnt(cluster: Cluster, policy: Policy, lost: Iterable[str], known: Mapping[str, Backoff]) -> dict[str, Backoff]:
    """Group name -> its back-off; also one that is over, until it is forgotten.

    ``lost``: groups in which an instance never joined.
    """
    first, lost = policy.scale_up.refusal_backoff, frozenset(lost)
    quotas = [(one, refusal) for one in cluster.groups for refusal in one.refusals if refusal.code in QUOTAS]
    found = {}
    for group in cluster.groups:
        if group.name in lost:
            failure: Refusal | None = Refusal(cluster.seen_at, NEVER_JOINED)
        else:
            shared = (refusal for other, refusal in quotas if _draw_on_one(group, other))
            failure = max((*group.refusals, *shared), key=lambda one: one.at, default=None)
        before = _remembered(group, known.get(group.name), cluster.seen_at, first)
        now = _longer(before, failure, first) if failure is not None else before
        if now is not None and cluster.seen_at < now.until + LONGEST * first:
            found[group.name] = now
    return found


def _draw_on_one(group: Group, refused: Group) -> bool:
    """Whether what the account's quota refused the other it refuses the group as well."""
    return bool(group.quota) and group.quota == refused.quota and refused.vcpus <= group.vcpus


def _remembered(group: Group, known: Backoff | None, now: datetime, first: timedelta) -> Backoff | None:
    """What is known of it, unless it was forgotten or an instance was launched since."""
    if known is None or now >= known.until + LONGEST * first:
        return None
    since = any(one.launched is not None and one.launched > known.failed for one in group.instances)
    return None if since else known


def _longer(known: Backoff | None, failure: Refusal, first: timedelta) -> Backoff:
    """A failure after the back-off makes it twice as long; one while it lasts is of the same try."""
    if known is None:
        return Backoff(failure.at + first, 1, failure.at, failure.code)
    if failure.at < known.until:
        until, failed = max(known.until, failure.at + first), max(known.failed, failure.at)
        return known._replace(until=until, failed=failed)
    tries = known.tries + 1
    return Backoff(failure.at + min(2 ** (tries - 1), LONGEST) * first, tries, failure.at, failure.code)
