"""Names and addresses of machines, as every room takes them."""

from __future__ import annotations

import pytest

from autoscaler.config.hostnames import is_address, is_dns_name, is_host


@pytest.mark.parametrize("text", ["dgx-01", "DGX-01.lab.example.org", "logs.lab.", "a", "x" * 63, "1a"])
def test_a_dns_name_is_one(text: str) -> None:
    """With or without a domain, in any letters."""
    assert is_dns_name(text)
    assert is_host(text)
    assert not is_address(text)


@pytest.mark.parametrize("text", ["10.20.0.11", "fd00::7", "2001:db8::1"])
def test_an_address_is_one(text: str) -> None:
    """Of either version, and no name."""
    assert is_address(text)
    assert is_host(text)
    assert not is_dns_name(text)


@pytest.mark.parametrize(
    "text", ["", "10.20.0.300", "10.20.0.0/16", "-lab", "lab-", "a..b", "the lab", "x" * 64, "a_b", f"{'a.' * 127}a"]
)
def test_what_is_neither_is_told_apart(text: str) -> None:
    """Also an address with a slip of the finger, which looks like a name of digits."""
    assert not is_host(text)
