"""How a machine is named on a network, spelled once for all rooms: an IP address, or a DNS name (RFC 1123)."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection
from typing import Annotated, Final

from pydantic import AfterValidator

_LABEL: Final = r"[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?"
_NAME: Final = re.compile(rf"(?=.{{1,253}}\.?$)({_LABEL}\.)*{_LABEL}\.?")
_THIS_NETWORK: Final = ipaddress.IPv4Network("0.0.0.0/8")
_LOCAL: Final = ("localhost", "localhost.localdomain", "localhost6")
_ADDRESS_SIGNS: Final = frozenset("0123456789.:/")


def is_host(text: str) -> bool:
    """Whether it is an IP address or a DNS name."""
    return is_address(text) or is_dns_name(text)


def is_address(text: str) -> bool:
    """Whether it is an IP address, of either version."""
    try:
        address_of(text)
    except ValueError:
        return False
    return True


def address_of(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The address, of version 4 where it is one of those in version 6's clothes. Raises ``ValueError``."""
    found = ipaddress.ip_address(text)
    return getattr(found, "ipv4_mapped", None) or found


def one_spelling(text: str) -> str:
    """Returns one spelling of an address, of the many that IPv6 and DNS have for it."""
    try:
        return str(address_of(text))
    except ValueError:
        return text.lower().rstrip(".")


def is_dns_name(text: str) -> bool:
    """Whether it is a DNS name, and not an address that is wrongly written (``10.20.0.300``)."""
    return bool(_NAME.fullmatch(text)) and not set(text) <= _ADDRESS_SIGNS


def why_not_reached(text: str, *, allowed: Collection[str] = ()) -> str:
    """Why nobody else is reached at this address, also where it is a name; empty where somebody may be.

    ``allowed``: kinds that may be all the same, of ``loopback``, ``link-local``, ``multicast``, ``reserved``.
    """
    kind = _kind(text)
    return f"is {_KINDS[kind]}" if kind and kind not in allowed else ""


_KINDS: Final = {
    "loopback": "the loopback, by which every machine means itself",
    "link-local": "link-local: it means nothing beyond one cable",
    "multicast": "multicast, which is no machine's",
    "reserved": "no machine's: it is kept for other uses, such as broadcast",
}


def _kind(text: str) -> str:
    try:
        found = address_of(text)
    except ValueError:
        name = text.lower().rstrip(".")
        return "loopback" if name in _LOCAL or name.endswith(".localhost") else ""
    of_no_network = found.version == 4 and (found.is_reserved or found in _THIS_NETWORK)  # noqa: PLR2004 - of IPv6 much is reserved for later
    kinds = {
        "loopback": found.is_loopback,
        "link-local": found.is_link_local,
        "multicast": found.is_multicast,
        "reserved": found.is_unspecified or of_no_network,
    }
    return next((kind for kind, is_it in kinds.items() if is_it), "")


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
