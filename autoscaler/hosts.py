"""How a machine is named on a network, spelled once for all rooms: an IP address, or a DNS name (RFC 1123)."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Final

from pydantic import AfterValidator

_LABEL: Final = r"[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?"
_NAME: Final = re.compile(rf"(?=.{{1,253}}\.?$)({_LABEL}\.)*{_LABEL}\.?")
_ADDRESS_SIGNS: Final = frozenset("0123456789.:/")


def is_host(text: str) -> bool:
    """Whether it is an IP address or a DNS name."""
    return is_address(text) or is_dns_name(text)


def is_address(text: str) -> bool:
    """Whether it is an IP address, of either version."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def is_dns_name(text: str) -> bool:
    """Whether it is a DNS name, and not an address that is wrongly written (``10.20.0.300``)."""
    return bool(_NAME.fullmatch(text)) and not set(text) <= _ADDRESS_SIGNS


def _a_host(text: str) -> str:
    if not is_host(text):
        raise ValueError("must be an IP address or a DNS name, e.g. ntp.lab.example.org")
    return text


def _a_dns_name(text: str) -> str:
    if not is_dns_name(text):
        raise ValueError("must be a DNS name, e.g. lab.example.org")
    return text


Host = Annotated[str, AfterValidator(_a_host)]
DnsName = Annotated[str, AfterValidator(_a_dns_name)]
"""Of a file's entries."""
