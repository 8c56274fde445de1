"""Ports on 127.0.0.1 for processes that are started later: free now, and given out again only after all others."""

from __future__ import annotations

import fcntl
import os
import secrets
import socket

from autoscaler.model.errors import Unavailable
from stacks.local.process.paths import cache_root, written_in_cache

_PORTS = range(20_000, 32_000)
"""Below those that the kernel gives to outgoing connections (ip(7), ``ip_local_port_range``)."""


def free_ports(count: int) -> list[int]:
    """Ports on 127.0.0.1 that are free now; all different.

    A port may be bound long after it was given, so processes of one user take turns: each gets what lies behind the
    port given last, and none comes a second time before all of the others. Raises ``Unavailable``.
    """
    with written_in_cache():
        cache_root().mkdir(parents=True, exist_ok=True)
        told = os.open(cache_root() / "last-port", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(told, fcntl.LOCK_EX)
        given = _free_behind(_last(os.pread(told, 16, 0)), count)
        os.ftruncate(told, 0)
        os.pwrite(told, str(given[-1] if given else "").encode(), 0)
        return given
    finally:
        os.close(told)


def _last(noted: bytes) -> int:
    """The port given last. Without a note any: users have caches of their own."""
    return int(noted) if noted.isdigit() and int(noted) in _PORTS else secrets.choice(_PORTS)


def _free_behind(last: int, count: int) -> list[int]:
    found: list[int] = []
    for step in range(1, len(_PORTS) + 1):
        if len(found) == count:
            break
        port = _PORTS[(last - _PORTS.start + step) % len(_PORTS)]
        if _is_free(port):
            found.append(port)
    if len(found) < count:
        raise Unavailable(f"no {count} free ports between {_PORTS.start} and {_PORTS.stop} on 127.0.0.1")
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
