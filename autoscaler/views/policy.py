"""What `spillway policy` prints: a policy in short, two compared, the one that is obeyed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from autoscaler.config.group_entry import GroupEntry
from autoscaler.config.policy import Policy
from autoscaler.config.policy_changes import PriceOf, changes, most, own_price
from autoscaler.kube.policy_configmap import Record
from autoscaler.model.instance_types import Price
from autoscaler.model.pauses import Pause
from autoscaler.replica.acting_replica import Replica


def in_short(policy: Policy) -> str:
    """Cluster, groups, and what may be spent at most."""
    groups = ", ".join(f"{entry.name} (at most {entry.max})" for entry in policy.groups) or "none"
    return f"cluster {policy.cluster} in {policy.region}; groups: {groups}; {_at_most(most(policy))}"


def compared(old: Policy, new: Policy, *, price_of: PriceOf = own_price) -> Iterator[str]:
    """What an edit from the one to the other changes: what is taken over at once, then what waits; then the money."""
    found = changes(old, new, price_of=price_of)
    if not found:
        yield "nothing changes"
        return
    for effect, head in (("live", "taken over at once:"), ("infrastructure", "pending `pulumi up`:")):
        lines = [f"  {one.path}: {one.words}" for one in found if one.effect == effect]
        yield from (head, *lines) if lines else ()
    yield f"before: {_at_most(most(old, price_of=price_of))}"
    yield f"after: {_at_most(most(new, price_of=price_of))}"


def acting(record: Record | None, *, replica: Replica, now: datetime, pauses: Sequence[Pause] = ()) -> Iterator[str]:
    """Whether an autoscaler acts; by which policy, since when, from where; what was refused, what is pending."""
    yield replica.in_words(now)
    yield from map(str, pauses)
    if record is None:
        yield "policy: none was written down yet"
        return
    about = record.about
    yield f"policy: of {about.origin}, obeyed since {about.since:%Y-%m-%d %H:%M:%S} UTC, written down by {about.by}"
    if about.refused:
        yield f"refused at {about.refused.at:%Y-%m-%d %H:%M:%S} UTC, so that the policy above goes on:"
        yield from (f"  {line}" for line in about.refused.why.splitlines())
    if about.pending:
        yield "pending `pulumi up`:"
        yield from (f"  {line}" for line in about.pending)


def prices_of(catalog: Sequence[Price]) -> PriceOf:
    """What a node of an entry costs: as the entry says, else the dearest of its types in the catalogue."""

    def price(entry: GroupEntry) -> float | None:
        if entry.usd_per_hour is not None:
            return entry.usd_per_hour
        rows = [one for one in catalog if one.capacity_type == entry.capacity_type and one.zone in ("", *entry.zones)]
        known = {one.instance_type: one.usd for one in sorted(rows, key=lambda one: one.usd)}
        return max(known[kind] for kind in entry.types) if set(entry.types) <= known.keys() else None

    return price


def _at_most(usd: float | None) -> str:
    return "no ceiling in dollars that is known" if usd is None else f"{usd:.2f} $/h at most"
