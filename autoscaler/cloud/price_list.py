"""What to ask AWS's price list for, and what its answers say."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types_boto3_pricing.type_defs import FilterTypeDef


def on_demand(region: str, **more: str) -> list[FilterTypeDef]:
    """What to ask the price list for: Linux on demand, shared tenancy, nothing installed."""
    wanted = {
        "regionCode": region,
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
        **more,
    }
    return [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in wanted.items()]


def least_usd(product: Mapping[str, Any]) -> float | None:
    """Dollars per hour of an entry of the price list; free dimensions of an offer are not its price."""
    return min((price for price in _usd(product) if price > 0), default=None)


def _usd(product: Mapping[str, Any]) -> Iterator[float]:
    for offer in product.get("terms", {}).get("OnDemand", {}).values():
        for dimension in offer.get("priceDimensions", {}).values():
            with contextlib.suppress(KeyError, ValueError):
                yield float(dimension["pricePerUnit"]["USD"])


def price_list_region(region: str) -> str:
    """The price list is served in few regions: the user guide's "Price List Query API endpoints"."""
    if region.startswith("eu-"):
        return "eu-central-1"
    return "ap-south-1" if region.startswith("ap-") else "us-east-1"
