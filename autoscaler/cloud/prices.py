"""What a group's nodes cost by the hour: by its entry of the policy, by EC2's price list, or by the spot market."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from autoscaler.cloud.clients import Clients
from autoscaler.cloud.errors import one_failure_alone
from autoscaler.cloud.price_list import least_usd, on_demand
from autoscaler.config.group_entry import GroupEntry
from autoscaler.model.cluster import CapacityType

_UNKNOWN_PRICE_SECONDS: Final = 600.0
"""A price list that does not answer must not hold up every look at the groups."""


class Prices:
    """Prices that AWS has told, each asked for once."""

    def __init__(self, clients: Clients, region: str, *, warn: Callable[[str], None]) -> None:
        self._clients = clients
        self._region = region
        self._warn = warn
        self._known: dict[tuple[str, str, str], float] = {}
        self._of_groups: dict[tuple[str, tuple[str, ...]], float] = {}
        """Of each group and the types that stood when its price was last told."""
        self._ask_again_at: dict[tuple[str, str, str], float] = {}

    def of_group(
        self,
        name: str,
        types: tuple[str, ...],
        *,
        zone: str,
        capacity: CapacityType,
        entry: GroupEntry | None,
        stands: bool,
    ) -> float | None:
        """That of the types that stand. What the entry says is theirs unless an edit of what it buys is pending."""
        if stands:
            price = self._dearest(types, zone=zone, capacity=capacity, entry=entry)
        else:
            price = self._of_groups.get((name, types))
        if price is None:
            price = self._dearest(types, zone=zone, capacity=capacity, entry=None)
        if price is None and entry is not None:
            price = entry.usd_per_hour
        if price is not None:
            self._of_groups[name, types] = price
        return price

    def _dearest(
        self, types: tuple[str, ...], *, zone: str, capacity: CapacityType, entry: GroupEntry | None
    ) -> float | None:
        """Returns the highest price of the types, so that limits hold whichever comes; ``None``: one is unknown."""
        prices = [self._price(kind, zone=zone, capacity=capacity, entry=entry) for kind in types]
        known = [price for price in prices if price is not None]
        return max(known) if len(known) == len(prices) else None

    def _price(self, kind: str, *, zone: str, capacity: CapacityType, entry: GroupEntry | None) -> float | None:
        if entry is not None and entry.usd_per_hour is not None:
            return entry.usd_per_hour
        key = (kind, zone, capacity)
        if key not in self._known and time.monotonic() > self._ask_again_at.get(key, 0.0):
            self._ask_again_at[key] = time.monotonic() + _UNKNOWN_PRICE_SECONDS
            ask = self._spot_price if capacity == "spot" else self._list_price
            with one_failure_alone(self._warn, f"the price of {kind}"):
                price = ask(kind, zone)
                if price is not None:
                    self._known[key] = price
        return self._known.get(key)

    def _spot_price(self, kind: str, zone: str) -> float | None:
        """The price now, which is the newest of its history."""
        answer = self._clients.ec2.describe_spot_price_history(
            InstanceTypes=[kind],  # type: ignore[list-item]
            AvailabilityZone=zone,
            ProductDescriptions=["Linux/UNIX"],
            StartTime=datetime.now(UTC),
        )
        prices = [float(one["SpotPrice"]) for one in answer["SpotPriceHistory"]]
        return max(prices) if prices else None

    def _list_price(self, kind: str, _zone: str) -> float | None:
        """Linux, shared tenancy, nothing installed, in the region."""
        filters = on_demand(self._region, instanceType=kind)
        answer = self._clients.pricing().get_products(ServiceCode="AmazonEC2", Filters=filters)
        prices = [price for text in answer["PriceList"] if (price := least_usd(json.loads(str(text)))) is not None]
        return min(prices, default=None)
