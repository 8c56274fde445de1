"""Amounts: quantities as Kubernetes writes them, sums and comparisons."""

from __future__ import annotations

from decimal import Decimal

import pytest

from autoscaler.model.resources import Resources, parse_quantity


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("500m", "0.5"),
        ("4", "4"),
        (4, "4"),
        ("1.5Gi", str(3 * 2**29)),
        ("2e3", "2000"),
        ("2E3", "2000"),
        ("1E", str(10**18)),
        ("100k", "100000"),
        ("100Ki", "102400"),
        ("-1", "-1"),
        ("3u", "0.000003"),
        (" 8 ", "8"),
    ],
)
def test_a_quantity_is_read_as_kubernetes_reads_it(text: str | int, value: str) -> None:
    """Decimal and binary suffixes, and exponents."""
    assert parse_quantity(text) == Decimal(value)


@pytest.mark.parametrize("text", ["", "Gi", "four", "4 Gi", "1.2.3", "4GiB", "1_000", "NaN", "Infinity", "0x10"])
def test_what_is_no_quantity_is_refused_by_name(text: str) -> None:
    """The message shows the text."""
    with pytest.raises(ValueError, match="is not a quantity"):
        parse_quantity(text)


def test_fractions_of_a_unit_are_rounded_up() -> None:
    """As the API server does."""
    assert Resources.parse({"cpu": "0.1m", "memory": "1.5"}) == Resources({"cpu": 1, "memory": 2})


@pytest.mark.parametrize("text", ["9223372036854775807", "9Ei", "1e999", "-1e30"])
def test_an_amount_that_no_machine_has_stays_one_that_can_be_counted(text: str) -> None:
    """The API server takes these; one pod that asks for as much must not end the planning for all."""
    many = Resources.total([Resources.parse({"cpu": text, "memory": text})] * 1000)
    assert all(abs(amount) < 2**63 for amount in many.values())
    assert abs(many["memory"]) > 2**60


def test_a_wrong_amount_names_its_resource() -> None:
    """So that a file's mistake can be found."""
    with pytest.raises(ValueError, match=r"^memory: 'lots' is not"):
        Resources.parse({"cpu": 1, "memory": "lots"})


def test_nothing_of_a_resource_is_the_same_as_not_naming_it() -> None:
    """Equal amounts are equal values, with equal hashes."""
    assert Resources({"cpu": 1, "nvidia.com/gpu": 0}) == Resources({"cpu": 1})
    assert len({Resources({"cpu": 1, "memory": 0}), Resources({"cpu": 1})}) == 1


def test_a_resource_is_in_it_only_where_there_is_some() -> None:
    """Asking for an amount gives zero; asking whether it is there says no."""
    amounts = Resources({"cpu": 1})
    assert ("cpu" in amounts, "nvidia.com/gpu" in amounts, amounts["nvidia.com/gpu"]) == (True, False, 0)


def test_amounts_add_up_and_may_go_below_zero() -> None:
    """A node may be over-committed."""
    one, two = Resources({"cpu": 1000, "memory": 5}), Resources({"cpu": 3000})
    assert one + two == Resources({"cpu": 4000, "memory": 5})
    assert one - two == Resources({"cpu": -2000, "memory": 5})
    assert two * 2 == Resources.total((two, two)) == Resources({"cpu": 6000})


def test_only_what_is_asked_for_must_be_there() -> None:
    """A shortage of something else does not matter."""
    room = Resources({"cpu": 1000, "memory": -1})
    assert Resources({"cpu": 1000}).fits_in(room)
    assert not Resources({"cpu": 1001}).fits_in(room)


def test_amounts_read_as_people_write_them() -> None:
    """Cores, binary sizes, plain numbers."""
    amounts = Resources.parse({"cpu": "1500m", "memory": "1536Mi", "nvidia.com/gpu": 8})
    assert str(amounts) == "1.5 cpu, 1.5Gi memory, 8 nvidia.com/gpu"
    assert str(Resources()) == "nothing"
