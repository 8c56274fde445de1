"""A region's catalogue from EC2 and its price list, for ``--catalog ec2:REGION``: kept on disk for a day.

One row for each zone that has a type, on demand and, where there is a price for it, as spot capacity. On demand a type
costs what the price list asks for Linux, shared tenancy, nothing installed; a type without such a price is left out.
A spot price is the one of now. It takes the rights ``ec2:DescribeInstanceTypes``,
``ec2:DescribeInstanceTypeOfferings``, ``ec2:DescribeSpotPriceHistory`` and ``pricing:GetProducts``.
https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeInstanceTypes.html
https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeInstanceTypeOfferings.html
https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeSpotPriceHistory.html
https://docs.aws.amazon.com/aws-cost-management/latest/APIReference/API_pricing_GetProducts.html
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from autoscaler.cloud.clients import Clients, connect
from autoscaler.cloud.errors import told_in_words
from autoscaler.cloud.price_list import least_usd, on_demand
from autoscaler.model.errors import BadInput, Unavailable
from autoscaler.model.instance_types import GIB, MIB, InstanceType, read_instance_type
from autoscaler.model.labels import GPU
from autoscaler.model.resources import CPU, MEMORY, PODS

PREFIX: Final = "ec2:"
COLUMNS: Final = (
    *("instance_type", "arch", "vcpu", "memory_mib", "allocatable_cpu_milli", "allocatable_memory_mib", "max_pods"),
    *("gpu_count", "gpu_model", "gpu_memory_mib", "efa", "usd_per_hour", "zone", "capacity_type"),
)
_Place = tuple[str, str]
"""(instance type, zone)"""
_FRESH: Final = timedelta(days=1)
_REGION: Final = re.compile(r"[a-z]{2,3}(-[a-z]+)+-\d")
_DISK: Final = 100 * GIB
"""Bytes of a node's root volume, of which the catalogue says nothing: a policy does (``disk``)."""


def live_catalog(
    region: str,
    *,
    tell: Callable[[str], None],
    clients: Callable[[str], Clients] = connect,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Path:
    """A CSV file that ``read_catalog`` reads. ``tell`` hears how old it is.

    Raises ``BadInput`` for what is no region, and what the door to EC2 raises where it does not answer and nothing is
    kept from before; what is kept is better than nothing, however old.
    """
    if not _REGION.fullmatch(region):
        raise BadInput(f"--catalog = '{PREFIX}{region}': must be {PREFIX} and a region, such as {PREFIX}us-east-1")
    place = _folder() / f"{region}.csv"
    age = _age(place, now())
    if age is not None and age < _FRESH:
        tell(f"catalogue of {region}: as EC2 had it {_told(age)} ago ({place}; remove it to ask again)")
        return place
    try:
        text, many = _asked(region, clients(region), now())
    except (BadInput, Unavailable) as failure:
        if age is None:
            raise
        tell(f"catalogue of {region}: {_told(age)} old, since a newer one cannot be had: {failure}")
        return place
    _keep(place, text)
    tell(f"catalogue of {region}: {many} instance types, from EC2 now")
    return place


def _folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "spillway" / "catalogs"


def _age(place: Path, now: datetime) -> timedelta | None:
    try:
        return now - datetime.fromtimestamp(place.stat().st_mtime, UTC)
    except FileNotFoundError:
        return None


def _told(age: timedelta) -> str:
    hours = age.total_seconds() / 3600
    return f"{hours / 24:.0f} days" if hours >= 48 else f"{hours:.1f} hours"  # noqa: PLR2004 - two days


def _asked(region: str, clients: Clients, now: datetime) -> tuple[str, int]:
    """The table, and how many types stand in it."""
    with told_in_words(region):
        prices = dict(_prices(region, clients))
        pages = clients.ec2.get_paginator("describe_instance_types").paginate()
        types = [read_instance_type(one) for page in pages for one in page["InstanceTypes"]]
        places, spot = sorted(_places(clients)), _spot(clients, now)
    known = {one.name: one for one in types if one.name in prices}
    rows = [
        row
        for kind, zone in places
        if kind in known
        for row in _rows(known[kind], zone, usd=prices[kind], spot=spot.get((kind, zone)))
    ]
    if not rows:
        raise Unavailable(f"EC2 names no instance type of {region} that its price list has a price for")
    table = io.StringIO()
    writer = csv.DictWriter(table, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return table.getvalue(), len({row["instance_type"] for row in rows})


def _prices(region: str, clients: Clients) -> Iterator[tuple[str, float]]:
    """Dollars per hour by instance type."""
    asked = clients.pricing().get_paginator("get_products")
    pages = asked.paginate(ServiceCode="AmazonEC2", Filters=on_demand(region))
    for page in pages:
        for text in page["PriceList"]:
            product = json.loads(str(text))
            kind = product.get("product", {}).get("attributes", {}).get("instanceType", "")
            usd = least_usd(product)
            if kind and usd is not None:
                yield kind, usd


def _places(clients: Clients) -> Iterator[_Place]:
    """Which zone has which type."""
    asked = clients.ec2.get_paginator("describe_instance_type_offerings")
    for page in asked.paginate(LocationType="availability-zone"):
        for one in page["InstanceTypeOfferings"]:
            yield one["InstanceType"], one["Location"]


def _spot(clients: Clients, now: datetime) -> dict[_Place, float]:
    """Dollars per hour as they are now: of several the newest."""
    asked = clients.ec2.get_paginator("describe_spot_price_history")
    pages = asked.paginate(ProductDescriptions=["Linux/UNIX"], StartTime=now)
    newest = sorted((one for page in pages for one in page["SpotPriceHistory"]), key=lambda one: one["Timestamp"])
    return {(one["InstanceType"], one["AvailabilityZone"]): float(one["SpotPrice"]) for one in newest}


def _rows(one: InstanceType, zone: str, *, usd: float, spot: float | None) -> Iterator[Mapping[str, object]]:
    room = one.allocatable(disk=_DISK)
    size = (room[CPU], room[MEMORY] // MIB, room[PODS], room[GPU])
    cells = (one.name, one.arch, one.vcpus, one.memory_mib, *size, one.gpu_model, one.gpu_memory_mib, one.efas)
    for price, capacity in ((usd, "on-demand"), (spot, "spot")):
        if price is not None:
            yield dict(zip(COLUMNS, (*cells, price, zone, capacity), strict=True))


def _keep(place: Path, text: str) -> None:
    """Whole or not at all."""
    place.parent.mkdir(parents=True, exist_ok=True)
    fresh = place.with_name(f"{place.name}.{os.getpid()}")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(place)
