"""What differs between two policies, key by key, in words and dollars; and what of a policy does not stand yet."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Final

from pydantic import BaseModel

from autoscaler.config.document_keys import Effect, Mark
from autoscaler.config.documents import span_in_words
from autoscaler.config.group_entry import GroupEntry
from autoscaler.config.policy import Policy
from autoscaler.model.cluster import Group
from autoscaler.model.labels import REGION

PriceOf = Callable[[GroupEntry], float | None]
"""Dollars of one node of an entry in an hour; ``None`` where it is not known."""
_SHOWN_OTHERWISE: Final = ("capacity_reservation", "formerly", "min", "zones")
"""Keys of an entry that its groups show by themselves, or that builds nothing."""


@dataclass(frozen=True, slots=True)
class Change:
    """One key, or one group, that differs."""

    path: str
    """``limits.usd_per_hour``, ``groups[gpu-a10g].max``, ``groups[gpu-a10g]``."""
    words: str
    effect: Effect

    def __str__(self) -> str:
        """Writes the change as a line of a report."""
        return f"{self.path}: {self.words}" + (" (pending `pulumi up`)" if self.effect == "infrastructure" else "")


def own_price(entry: GroupEntry) -> float | None:
    """The price that the entry itself says."""
    return entry.usd_per_hour


def changes(old: Policy, new: Policy, *, price_of: PriceOf = own_price) -> tuple[Change, ...]:
    """What an edit from one policy to the other changes: single keys first, then groups that come and go."""
    names = {entry.name for entry in old.groups}
    now = {
        was: entry.name for entry in new.groups for was in entry.formerly if was in names and entry.name not in names
    }
    before, after = dict(_leaves(old, called=now)), dict(_leaves(new))
    names, wanted = {now.get(name, name) for name in names}, {entry.name for entry in new.groups}
    by_name = {entry.name: entry for entry in new.groups}
    found = []
    for path in (*before, *(path for path in after if path not in before)):
        was, will = before.get(path, _NOTHING), after.get(path, _NOTHING)
        if was.value != will.value and _group_in(path) in {"", *(names & wanted)}:
            words = _edit(path, was.value, will.value, by_name, price_of)
            found.append(Change(path, words, (after.get(path) or was).effect))
    found += [_added(entry, price_of) for entry in new.groups if entry.name not in names]
    found += [_removed(entry, price_of) for entry in old.groups if now.get(entry.name, entry.name) not in wanted]
    return tuple(found)


def most(policy: Policy, *, price_of: PriceOf = own_price) -> float | None:
    """Dollars per hour that the policy lets run at most; ``None`` where no limit says so and a price is not known."""
    prices = {entry.name: price_of(entry) for entry in policy.groups}
    known = [price for price in prices.values() if price is not None]
    by_groups = sum((prices[entry.name] or 0.0) * entry.max for entry in policy.groups)
    limits = [policy.limits.usd_per_hour] if policy.limits.usd_per_hour is not None else []
    limits += [by_groups] if len(known) == len(policy.groups) else []
    return min(limits, default=None)


def built_from(entry: GroupEntry, *, region: str, reserved: bool) -> str:
    """A short digest of the keys that an entry's groups are built from; those that the groups show are left out."""
    marks = {name: one for name, field in GroupEntry.model_fields.items() for one in field.metadata}
    names = {name for name, mark in marks.items() if isinstance(mark, Mark) and mark.effect == "infrastructure"}
    said = entry.model_dump(mode="json", include=names - set(_SHOWN_OTHERWISE))
    text = json.dumps([region, reserved, said], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def pending(policy: Policy, groups: Collection[Group]) -> tuple[str, ...]:
    """What of the policy the Auto Scaling groups do not have yet, a line each; ``groups`` are those that stand."""
    named = {entry.name for entry in policy.groups}
    gone = sorted({group.entry for group in groups} - named)
    return (
        *(line for entry in policy.groups for line in _not_yet(policy, entry, groups)),
        *(
            f"groups[{name}]: stands, and is not in the policy: nothing is bought in it, `pulumi up` removes it"
            for name in gone
        ),
    )


def _not_yet(policy: Policy, entry: GroupEntry, groups: Collection[Group]) -> Iterator[str]:
    path = f"groups[{entry.name}]"
    standing = {group.zone: group for group in groups if group.entry == entry.name}
    if not standing:
        yield f"{path}: stands nowhere yet: `pulumi up` makes its Auto Scaling groups"
        return
    for zone in sorted(set(entry.zones) ^ set(standing)):
        yield f"{path}.zones: {zone} is {'not there yet' if zone in entry.zones else 'there still'}"
    for name, wanted, stands in _shown(policy, entry, standing):
        if wanted != stands:
            yield f"{path}.{name}: {_said(stands)} stands, {_said(wanted)} is wanted"
    sizes = [group.max_size for group in standing.values() if group.max_size is not None]
    if sizes and min(sizes) < entry.max:
        yield f"{path}.max: {entry.max} is wanted, MaxSize of what stands is {min(sizes)}"
    one = next(iter(standing.values()))
    digest = built_from(entry, region=policy.region, reserved=policy.scale_up.reserve)
    if one.built_from not in ("", digest) and _looks_alike(policy, entry, standing):
        yield f"{path}: disk, efa, placement, a label that goes or scale_up.reserve differs from what stands"


def _shown(policy: Policy, entry: GroupEntry, standing: Mapping[str, Group]) -> Iterator[tuple[str, Any, Any]]:
    """Each key that groups show: its name, what the policy wants and what stands."""
    one = next(iter(standing.values()))
    yield "instance_types" if entry.instance_types else "instance_type", " or ".join(entry.types), one.instance_type
    yield "capacity_type", entry.capacity_type, one.capacity_type
    yield "capacity_reservation", entry.capacity_reservation or "", one.reservation
    yield "min", entry.min, sum(group.minimum for group in standing.values())
    for key, value in sorted({REGION: policy.region, **entry.labels}.items()):
        yield (
            f"labels[{key}]" if key != REGION else "region",
            value,
            one.labels.get(key, value if key == REGION else ""),
        )
    wanted = {(taint.key, taint.value, taint.effect) for taint in entry.taints}
    stands = {(taint.key, taint.value, taint.effect) for taint in one.taints}
    yield "taints", sorted(wanted), sorted(stands)


def _looks_alike(policy: Policy, entry: GroupEntry, standing: Mapping[str, Group]) -> bool:
    return all(wanted == stands for _, wanted, stands in _shown(policy, entry, standing))


@dataclass(frozen=True, slots=True)
class _Leaf:
    value: Any
    effect: Effect = "live"


_NOTHING: Final = _Leaf(None)


def _leaves(
    model: BaseModel, *, above: str = "", effect: Effect = "live", called: Mapping[str, str] = MappingProxyType({})
) -> Iterator[tuple[str, _Leaf]]:
    """Every key that is said or has a default, by path; groups and schedules stand under what they are ``called``."""
    for name, field in type(model).model_fields.items():
        value, path = getattr(model, name), f"{above}{field.alias or name}"
        own = next((one.effect for one in field.metadata if isinstance(one, Mark)), effect)
        if isinstance(value, BaseModel):
            yield from _leaves(value, above=f"{path}.", effect=own)
        elif name == "groups":
            for one in value:
                yield from _leaves(one, above=f"{path}[{called.get(one.name, one.name)}].", effect=own)
        elif name == "schedules":
            yield from ((f"{path}[{one.name}]", _Leaf(one, own)) for one in value)
        else:
            yield path, _Leaf(value, own)


def _group_in(path: str) -> str:
    """The group that a path is of; empty where it is of none."""
    return path.removeprefix("groups[").partition("]")[0] if path.startswith("groups[") else ""


def _edit(path: str, old: Any, new: Any, entries: Mapping[str, GroupEntry], price_of: PriceOf) -> str:
    words = f"{_said(old)} -> {_said(new)}"
    if path == "limits.usd_per_hour":
        return words + (f": {_more(new - old)}" if old is not None and new is not None else "")
    if path.startswith("groups[") and path.endswith("].max"):
        price = price_of(entries[path.removeprefix("groups[").removesuffix("].max")])
        return words + (f": {_more((new - old) * price)}" if price is not None else "")
    return words


def _added(entry: GroupEntry, price_of: PriceOf) -> Change:
    price = price_of(entry)
    usd = (
        f", {_more(entry.max * price)} ({entry.max} x {price:.2f})" if price is not None else ", at a price to be asked"
    )
    return Change(f"groups[{entry.name}]", f"comes with at most {entry.max} nodes{usd}", "infrastructure")


def _removed(entry: GroupEntry, price_of: PriceOf) -> Change:
    price = price_of(entry)
    usd = f", {_more(-entry.max * price)}" if price is not None else ""
    return Change(f"groups[{entry.name}]", f"goes{usd}: nothing is bought in it from now on", "infrastructure")


def _more(usd: float) -> str:
    return f"up to {abs(usd):.2f} $/h {'more' if usd >= 0 else 'less'}"


def _said(value: Any) -> str:
    """The value as it would stand in the file, in one line."""
    match value:
        case None | "" | () | []:
            words = "none"
        case timedelta():
            words = span_in_words(value)
        case bool():
            words = "true" if value else "false"
        case tuple() | list():
            words = f"[{', '.join(map(_said, value))}]"
        case BaseModel():
            words = _said(value.model_dump(exclude_defaults=True, by_alias=True))
        case dict():
            words = f"{{{', '.join(f'{key}: {_said(one)}' for key, one in value.items())}}}" if value else "none"
        case _:
            words = f"{value:g}" if isinstance(value, float) else str(value)
    return words
