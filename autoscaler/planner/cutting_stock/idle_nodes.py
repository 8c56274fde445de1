"""Nodes that cost nothing more and hold nothing yet, the readiest and smallest first."""

from __future__ import annotations

import numpy as np

from autoscaler.planner.placement.offerings import Market
from autoscaler.planner.placement.room_table import RoomTable
from autoscaler.planner.supply.candidate_nodes import Place, Shape, harm


class IdleNodes:
    """Fresh nodes that cost nothing more: those that pods were planned on, or others.

    A cluster has few of them beside many pods, so a node that is too small for a shape once is not asked again.
    """

    def __init__(self, market: Market, *, kept: bool = False) -> None:
        """``kept``: those that pods were planned on before."""
        self._market = market
        nodes = [
            place
            for offering in market.offerings
            for place in market.at_hand(offering)
            if market.is_kept(place) == kept
        ]
        resources = {name for shape in market.snapshot.shapes for name, _ in shape.amounts} if nodes else ()
        self._nodes = sorted(nodes, key=lambda place: (harm(place), place.name))
        self._table = RoomTable([place.free for place in self._nodes], resources)
        self._with_room: dict[int, list[Place]] = {}

    def __bool__(self) -> bool:
        """Says whether there are any idle nodes."""
        return bool(self._nodes)

    def first(self, shape: Shape) -> Place | None:
        """The first that may take a pod of the shape and is not open yet."""
        nodes = self._with_room.get(shape.number)
        if nodes is None:
            enough = np.nonzero(self._table.enough(shape.amounts))[0].tolist() if self._nodes else []
            nodes = self._with_room[shape.number] = [self._nodes[one] for one in enough]
        return next(
            (one for one in nodes if not one.standing and self._market.snapshot.why_not(shape, one) is None), None
        )
