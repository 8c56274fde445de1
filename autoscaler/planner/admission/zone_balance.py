"""Topology spread by zone among those who are served, where others are not: zones were given out to all of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from autoscaler.model.labels import ZONE
from autoscaler.planner.demand.pod_rules import Key, Neighbours, spreads


class Evenness:
    """How many each spread counts in each zone."""

    def __init__(
        self,
        rules: Neighbours,
        sorts: Sequence[int],
        zone_of: Mapping[int, str],
        allowed: Callable[[int], frozenset[str]],
    ) -> None:
        """``sorts``: of each pod by number. ``allowed``: the zones for a sort, which are those that count for it."""
        self._rules, self._sorts, self._zone_of = rules, sorts, zone_of
        self._counts: dict[Key, Counter[str]] = defaultdict(Counter)
        self._own: dict[int, list[Key]] = {}
        """The spreads of each sort."""
        self._most: dict[Key, list[tuple[int, frozenset[str]]]] = defaultdict(list)
        """Of each spread how uneven it may be, over which zones; where these are too few, over one that is empty."""
        for sort, pod in enumerate(rules.models):
            for one in spreads(pod, ZONE):
                key, zones = rules.spread_key(pod, one), allowed(sort)
                self._own.setdefault(sort, []).append(key)
                lacks = one.min_domains is not None and len(zones) < one.min_domains
                self._most[key].append((one.max_skew, zones | {""} if lacks else zones))

    def join(self, pods: Iterable[int], *, times: int = 1) -> None:
        """These are served; ``times``: -1, if they are not any more."""
        if not self._own:
            return
        for (sort, zone), many in Counter((self._sorts[one], self._zone_of.get(one, "")) for one in pods).items():
            for key in self._rules.counted_by_zone(sort) if zone else ():
                self._counts[key][zone] += many * times

    def admits(self, pods: Sequence[int]) -> bool:
        """Whether, if all of these were served, too, nobody's spread were broken in their zones."""
        if not self._own:
            return True
        self.join(pods)
        kept = all(
            self._is_kept(key, self._zone_of[one])
            for one in pods
            if one in self._zone_of
            for key in (*self._rules.counted_by_zone(self._sorts[one]), *self._own.get(self._sorts[one], ()))
        )
        self.join(pods, times=-1)
        return kept

    def kept(self, gangs: Sequence[list[int]], *, core: Mapping[int, int]) -> list[list[int]]:
        """Of these gangs, which are served, those that still are when the last ones whose spread is broken are not.

        ``core``: of pods that an elastic gang could do without one that it cannot; they go with it.
        """
        kept, many = list(gangs), -1
        while self._own and len(kept) != many:
            many, lost = len(kept), set[int]()
            for gang in reversed(kept):
                if not all(
                    self._is_kept(key, self._zone_of[one])
                    for one in gang
                    if one in self._zone_of
                    for key in self._own.get(self._sorts[one], ())
                ):
                    self.join(gang, times=-1)
                    lost.update(gang)
            for gang in kept if lost else ():
                if core.get(gang[0]) in lost and gang[0] not in lost:
                    self.join(gang, times=-1)
                    lost.update(gang)
            kept = [gang for gang in kept if gang[0] not in lost]
        return kept

    def _is_kept(self, key: Key, zone: str) -> bool:
        there = self._counts[key]
        return all(
            there[zone] - min(there[other] for other in zones) <= most
            for most, zones in self._most[key]
            if zone in zones
        )
