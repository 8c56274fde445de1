"""The kinds of node that let pods in, by labels and taints: feasibility, but for room and rules between pods."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from autoscaler.model.feasibility import NODE_NAME
from autoscaler.model.labels import ZONE
from autoscaler.planner.cutting_stock.cutting_plan import Want
from autoscaler.planner.placement.offerings import Market
from autoscaler.planner.supply.candidate_nodes import Place


class FeasibleKinds:
    """Which kinds of node let pods in, by labels and taints; asked once of shapes that no rule tells apart."""

    def __init__(self, market: Market, samples: Mapping[str, Place]) -> None:
        self._market, self._samples = market, samples
        self._alike: dict[tuple[str, ...], dict[object, list[str]]] = {}
        self._known: dict[object, frozenset[str] | None] = {}

    def of(self, want: Want) -> frozenset[str] | None:
        """Names of kinds; ``None``: all of them."""
        shape = want.shape
        key = (shape.affinity, shape.ties, shape.tolerations, shape.asked_keys, want.zone)
        if key not in self._known:
            self._known[key] = self._asked(want)
        return self._known[key]

    def _asked(self, want: Want) -> frozenset[str] | None:
        names: list[str] = []
        keys = (*want.shape.asked_keys, *((ZONE,) if want.zone else ()))
        for several in self._classes(keys).values():
            sample = self._samples[several[0]]
            if want.zone in ("", sample.labels.get(ZONE)) and self._market.snapshot.suits(want.shape, sample):
                names += several
        return None if len(names) == len(self._samples) else frozenset(names)

    def _classes(self, keys: tuple[str, ...]) -> dict[object, list[str]]:
        """Kinds with the same taints and the same values of these labels."""
        known = self._alike.get(keys)
        if known is None:
            known = self._alike[keys] = defaultdict(list)
            for name, sample in self._samples.items():
                values = tuple([sample.name if key == NODE_NAME else sample.labels.get(key) for key in keys])
                known[sample.taints, values].append(name)
        return known
