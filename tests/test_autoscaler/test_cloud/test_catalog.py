"""The catalogue from EC2: types from moto, which has EC2's own data; prices by a script, since moto has none."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.stub import ANY, Stubber
from moto import mock_aws
from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS, InstanceTypeBackend

from autoscaler.cloud.catalog import live_catalog
from autoscaler.cloud.clients import Clients
from autoscaler.inputs.asked import Asked
from autoscaler.inputs.offers import offers_of
from autoscaler.inputs.tables import read_catalog
from autoscaler.model.errors import BadInput, Unavailable
from autoscaler.model.labels import EFA, GPU
from autoscaler.model.resources import CPU
from tests.builders import a_policy, an_entry

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
KEYS: dict[str, Any] = {
    "region_name": "us-east-1",
    "aws_access_key_id": "local",
    "aws_secret_access_key": "local",
}


class Prices:
    """A price list that says what it is told to."""

    def __init__(self) -> None:
        self._client = boto3.client("pricing", **KEYS)
        self.script = Stubber(self._client)
        self.script.activate()
        self.told: list[str] = []

    def are(self, **usd: float) -> None:
        """A dollar amount for each type (``_`` for the dot), one on a page."""
        for number, (kind, price) in enumerate(usd.items()):
            dimensions = {"d": {"pricePerUnit": {"USD": str(price)}}}
            attributes = {"instanceType": kind.replace("_", ".")}
            product = {
                "product": {"attributes": attributes},
                "terms": {"OnDemand": {"o": {"priceDimensions": dimensions}}},
            }
            more = {"NextToken": f"{number}"} if number < len(usd) - 1 else {}
            asked = {"ServiceCode": "AmazonEC2", "Filters": ANY} | ({"NextToken": f"{number - 1}"} if number else {})
            self.script.add_response("get_products", {"PriceList": [json.dumps(product)], **more}, asked)

    def clients(self, region: str) -> Clients:
        """Of a region."""
        assert region == "us-east-1"
        scaling, ec2 = boto3.client("autoscaling", **KEYS), boto3.client("ec2", **KEYS)
        return Clients(autoscaling=scaling, ec2=ec2, pricing=lambda: self._client)

    def catalog(self, region: str = "us-east-1", *, now: datetime = NOW) -> Path:
        """Ask, at that time."""
        path = live_catalog(region, tell=self.told.append, clients=self.clients, now=lambda: now)
        if "from EC2 now" in self.told[-1]:
            os.utime(path, (now.timestamp(), now.timestamp()))
        return path


@pytest.fixture
def prices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Prices]:
    """With an empty cache. EC2 has a few of its types: moto takes 8 s of CPU to write all of them down."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    few = [one for one in InstanceTypeBackend.instance_types if one["InstanceType"].startswith(("c5.", "m5.", "p4d."))]
    monkeypatch.setattr(InstanceTypeBackend, "instance_types", few)
    names = {one["InstanceType"] for one in few}
    for place, regions in INSTANCE_TYPE_OFFERINGS.items():
        there = [one for one in regions["us-east-1"] if one["InstanceType"] in names]
        monkeypatch.setitem(INSTANCE_TYPE_OFFERINGS, place, regions | {"us-east-1": there})
    with mock_aws():
        yield Prices()


def test_types_that_have_a_price_are_in_the_catalogue(prices: Prices) -> None:
    """With what a node of theirs offers to pods; a type that EC2 does not know, or that costs nothing, is left out."""
    prices.are(m5_large=0.096, p4d_24xlarge=21.96, x9_huge=1.0, c5_large=0.0)
    found = {one.instance_type: one for one in read_catalog(prices.catalog()) if one.capacity_type == "on-demand"}
    assert sorted(found) == ["m5.large", "p4d.24xlarge"]
    assert (found["m5.large"].usd, found["m5.large"].arch, found["m5.large"].room[CPU]) == (0.096, "amd64", 1930)
    p4d = found["p4d.24xlarge"]
    assert (p4d.room[GPU], p4d.room[EFA], p4d.vcpus, p4d.memory_mib) == (8, 4, 96, 1179648)
    assert EFA not in found["m5.large"].room
    assert prices.told == ["catalogue of us-east-1: 2 instance types, from EC2 now"]


def test_zones_and_spot_prices_are_in_the_catalogue(prices: Prices) -> None:
    """Of each zone that has the type; a group of a policy costs what its zone and capacity cost, and needs the type."""
    prices.are(p4d_24xlarge=21.96)
    catalog = read_catalog(prices.catalog())
    found = {(one.zone, one.capacity_type): one.usd for one in catalog}
    zones = ["us-east-1a", "us-east-1b", "us-east-1c", "us-east-1d"]
    assert found == {(zone, "on-demand"): 21.96 for zone in zones} | {(zone, "spot"): 0.00001 for zone in zones}
    steady = an_entry("steady", zones=("us-east-1b",))
    cheap = an_entry("cheap", zones=("us-east-1b",), capacity_type="spot")
    assert [offer.price.usd for offer in offers_of(Asked(()), catalog, a_policy(steady, cheap), ())] == [21.96, 0.00001]
    elsewhere = a_policy(an_entry("far", zones=("us-east-1f",)))
    with pytest.raises(BadInput, match=r"group 'far': zone 'us-east-1f' has no 'p4d.24xlarge'.*us-east-1d have"):
        offers_of(Asked(()), catalog, elsewhere, ())


def test_it_is_asked_for_once_a_day(prices: Prices) -> None:
    """And its age is told."""
    prices.are(m5_large=0.096)
    first = prices.catalog().read_text(encoding="utf-8")
    assert prices.catalog(now=NOW + timedelta(hours=3)).read_text(encoding="utf-8") == first
    assert "as EC2 had it 3.0 hours ago" in prices.told[-1]
    prices.are(m5_large=0.1)
    after = read_catalog(prices.catalog(now=NOW + timedelta(hours=25)))
    assert {one.usd for one in after if one.capacity_type == "on-demand"} == {0.1}


def test_an_old_one_is_better_than_none(prices: Prices) -> None:
    """But it is told why there is no newer one; and with none from before, that is an error."""
    prices.script.add_client_error("get_products", "AccessDeniedException", "no right to pricing:GetProducts")
    with pytest.raises((BadInput, Unavailable), match="pricing:GetProducts"):
        prices.catalog()
    prices.are(m5_large=0.096)
    kept = prices.catalog()
    prices.script.add_client_error("get_products", "AccessDeniedException", "no right to pricing:GetProducts")
    assert prices.catalog(now=NOW + timedelta(days=9)) == kept
    assert prices.told[-1].startswith("catalogue of us-east-1: 9 days old, since a newer one cannot be had:")
    assert "pricing:GetProducts" in prices.told[-1]


def test_what_is_no_region_is_refused(prices: Prices) -> None:
    """Before anybody is asked."""
    for wrong in ("", "us-east", "../us-east-1", "us-east-1a"):
        with pytest.raises(BadInput, match="such as ec2:us-east-1"):
            prices.catalog(wrong)
