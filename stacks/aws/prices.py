"""What one node costs in an hour: as the policy says, else as AWS does; the autoscaler asks in the same two places.

A price that cannot be read holds nothing up: it is shown as unknown, and the guardrails count it as a mistake.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any, Final

import pulumi
import pulumi_aws as aws

from autoscaler.config.group_entry import GroupEntry
from autoscaler.config.policy import Policy

_PRICE_LISTS: Final = {"eu": "eu-central-1", "ap": "ap-south-1"}
"""The price list is served in few regions: the user guide's "Price List Query API endpoints"."""


class Prices:
    """Asks for prices; the provider for the price list is made when the first of them is wanted."""

    def __init__(self, *, region: str, provider: aws.Provider) -> None:
        self._region = region
        self._provider = provider
        self._price_list: aws.Provider | None = None

    def of_groups(self, policy: Policy) -> dict[str, float | None]:
        """The price of one node by the entry's name; of a set of types the dearest: it holds whichever comes."""
        return {entry.name: self._of_entry(entry) for entry in policy.groups}

    def of_type(self, kind: str) -> float | None:
        """Returns the price on demand: Linux, shared tenancy, nothing installed."""
        if self._price_list is None:
            region = _PRICE_LISTS.get(self._region.partition("-")[0], "us-east-1")
            self._price_list = aws.Provider("price-list", region=region)
        wanted = {
            "instanceType": kind,
            "regionCode": self._region,
            "operatingSystem": "Linux",
            "tenancy": "Shared",
            "preInstalledSw": "NA",
            "capacitystatus": "Used",
        }
        with contextlib.suppress(Exception):  # a price list that does not answer
            product = aws.pricing.get_product(
                service_code="AmazonEC2",
                filters=[aws.pricing.GetProductFilterArgs(field=key, value=value) for key, value in wanted.items()],
                opts=pulumi.InvokeOptions(provider=self._price_list),
            )
            return min((price for price in _usd(json.loads(product.result)) if price > 0), default=None)
        return None

    def _of_entry(self, entry: GroupEntry) -> float | None:
        if entry.usd_per_hour is not None:
            return entry.usd_per_hour
        if entry.capacity_type == "spot":
            prices = [self._spot(kind, zone) for kind in entry.types for zone in entry.zones]
        else:
            prices = [self.of_type(kind) for kind in entry.types]
        known = [price for price in prices if price is not None]
        return max(known) if len(known) == len(prices) else None

    def _spot(self, kind: str, zone: str) -> float | None:
        with contextlib.suppress(Exception):  # as above
            found = aws.ec2.get_spot_price(
                instance_type=kind,
                availability_zone=zone,
                filters=[aws.ec2.GetSpotPriceFilterArgs(name="product-description", values=["Linux/UNIX"])],
                opts=pulumi.InvokeOptions(provider=self._provider),
            )
            return float(found.spot_price)
        return None


def _usd(product: dict[str, Any]) -> Iterator[float]:
    """Dollars per hour of an entry of the price list."""
    for offer in product.get("terms", {}).get("OnDemand", {}).values():
        for dimension in offer.get("priceDimensions", {}).values():
            with contextlib.suppress(KeyError, ValueError):
                yield float(dimension["pricePerUnit"]["USD"])
