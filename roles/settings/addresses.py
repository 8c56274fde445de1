"""Addresses that settings name: of web servers, of API servers, and those at which nothing is reached."""

from __future__ import annotations

import re
from typing import Final

from autoscaler.config.hostnames import is_host

LAST_PORT: Final = 65535
_URL: Final = re.compile(
    r"https?://(?:[^/\s@]+@)?(?:\[(?P<six>[0-9a-fA-F:.]+)\]|(?P<host>[^/\s:@\[\]]+))(?::(?P<port>[0-9]{1,5}))?(?:/\S*)?"
)


def host_of(url: str) -> str:
    """The name or address in an address of the web; empty where it is none that could be asked."""
    found = _URL.fullmatch(url)
    if not found or not 0 < int(found["port"] or 80) <= LAST_PORT:
        return ""
    host: str = found["six"] or found["host"]
    return host if is_host(host.replace("_", "-")) else ""  # no DNS name has one, and many a name server does


def is_port(text: str) -> bool:
    """Whether it is the number of a port, in digits that every program reads."""
    return re.fullmatch(r"[0-9]{1,5}", text) is not None and 0 < int(text) <= LAST_PORT
