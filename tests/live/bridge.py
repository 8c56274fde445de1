"""The network of test machines: one bridge with NAT, and what the kernel does not take away by itself when they end."""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from stacks.local.process.paths import cache_root
from stacks.local.process.supervisor import start_time
from tests.live.debian import run

SUBNETS: Final = tuple(ipaddress.IPv4Network("198.18.0.0/16").subnets(new_prefix=24))
"""RFC 2544: kept for benchmarks of networks, so that nobody's network is hidden by ours."""
_BRIDGE: Final = re.compile(r"spw(\d+)x\d+")
_SHARED_SETTINGS: Final = (
    *("net/ipv4/ip_forward", "vm/overcommit_memory", "vm/panic_on_oom", "vm/max_map_count", "vm/swappiness"),
    *("kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"),
    *(
        "kernel/pid_max",
        "kernel/sysrq",
        "kernel/core_pattern",
        "kernel/core_uses_pid",
        "fs/nr_open",
        "fs/inotify/max_user_watches",
        "fs/inotify/max_user_instances",
        "fs/file-max",
    ),
)
"""Settings of the kernel that machines share with this one, and that roles or a kubelet write."""


def set_up(folder: Path) -> tuple[str, ipaddress.IPv4Network]:
    """A bridge and its subnet, whose first address is this machine. ``folder`` goes when the bridge is taken down."""
    with _alone():
        _sweep()
        bridge, subnet = _free_name(), _free_subnet()
        run("ip", "link", "add", bridge, "type", "bridge")
        _note(bridge).write_text(str(folder), encoding="utf-8")
        _keep_settings()
        run("ip", "addr", "add", f"{subnet[1]}/24", "dev", bridge)
        run("ip", "link", "set", bridge, "up")  # only now there is a route, by which the others see that it is taken
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1", encoding="ascii")
    comment = ("-m", "comment", "--comment", bridge, "-j")
    nat = ("POSTROUTING", "-s", str(subnet), "!", "-d", str(subnet))
    run("iptables", "-w", "-t", "nat", "-A", *nat, *comment, "MASQUERADE")
    for direction in ("-i", "-o"):
        run("iptables", "-w", "-I", "FORWARD", direction, bridge, *comment, "ACCEPT")
    return bridge, subnet


def take_down(bridge: str) -> None:
    """Nothing of it is left."""
    with _alone():
        _take_down(bridge)
        _put_settings_back()


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """One process at a time looks at the bridges of all and changes them."""
    folder = cache_root() / "machines"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _bridges() -> list[str]:
    return [name for name in (one.name for one in Path("/sys/class/net").iterdir()) if _BRIDGE.fullmatch(name)]


def _free_name() -> str:
    return next(name for k in range(100) if (name := f"spw{os.getpid()}x{k}") not in _bridges())


def _free_subnet() -> ipaddress.IPv4Network:
    routes = json.loads(run("ip", "-j", "-4", "route", "show", "table", "all") or "[]")
    taken = [
        ipaddress.ip_network(one["dst"], strict=False) for one in routes if one["dst"] not in ("default", "unreachable")
    ]
    return next(subnet for subnet in SUBNETS if not any(subnet.overlaps(other) for other in taken))


def _sweep() -> None:
    """Undo what benches left whose process was killed."""
    for bridge in _bridges():
        owner = _BRIDGE.fullmatch(bridge)
        if owner and start_time(int(owner[1])) == 0:
            _take_down(bridge)
    _put_settings_back()


def _take_down(bridge: str) -> None:
    for table in ("nat", "filter"):
        for rule in run("iptables", "-w", "-t", table, "-S").splitlines():
            if rule.startswith("-A ") and bridge in rule.split():
                run("iptables", "-w", "-t", table, "-D", *rule.split()[1:])
    if bridge in _bridges():
        run("ip", "link", "del", bridge)
    remove_groups(f"{bridge}-")
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(_note(bridge).read_text(encoding="utf-8"), ignore_errors=True)
        _note(bridge).unlink()


def _note(bridge: str) -> Path:
    """Holds the folder in which the machines on the bridge write."""
    return cache_root() / "machines" / bridge


def remove_groups(prefix: str, *, patience: float = 5.0) -> None:
    """Control groups that dead machines left, deepest first; the last process may still be on its way out."""
    end = time.monotonic() + patience
    while left := [*Path("/sys/fs/cgroup").glob(f"{prefix}*"), *Path("/sys/fs/cgroup").glob(f"*/{prefix}*")]:
        for top in left:
            folders = [folder for folder in top.rglob("*") if folder.is_dir()]
            for folder in (*sorted(folders, key=lambda one: -len(one.parts)), top):
                with contextlib.suppress(OSError):
                    folder.rmdir()
        if time.monotonic() > end:
            return
        time.sleep(0.02)


def _kept_settings() -> Path:
    return cache_root() / "machines" / "settings.json"


def _keep_settings() -> None:
    """What the kernel's settings were before the first bench."""
    if not _kept_settings().exists():
        now = {
            one: Path("/proc/sys", one).read_text(encoding="ascii")
            for one in _SHARED_SETTINGS
            if Path("/proc/sys", one).exists()
        }
        _kept_settings().write_text(json.dumps(now), encoding="ascii")


def _put_settings_back() -> None:
    """Once no bench is left."""
    if _bridges() or not _kept_settings().exists():
        return
    for one, value in json.loads(_kept_settings().read_text(encoding="ascii")).items():
        file = Path("/proc/sys", one)
        if file.read_text(encoding="ascii") != value:
            file.write_text(value, encoding="ascii")
    _kept_settings().unlink()
