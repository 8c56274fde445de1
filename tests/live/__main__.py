"""``python -m tests.live [tools] [folders]``: makes what live tests need before they start, and tells how it goes.

Each test would make for itself what it lacks, unseen, for a test's output is shown only where it fails, and by several
builds in place of one. What this machine or this user cannot have is left out here, and told by the tests that skip.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Final

from autoscaler.model.errors import BadInput, Unavailable
from stacks.local.toolchain.tools import TOOLS, ensure_tools
from tests import conftest  # noqa: F401 - finds the administrator's programs
from tests.live import ubuntu
from tests.live.debian import BenchError, cached_root, why_not

OF_MACHINES: Final = frozenset({"kubelet", "kubeadm", "kubectl", "wireguard-go"})
"""Run on machines and in namespaces, which only root can make."""
_AT_ONCE: Final = 2.0
_REPORT_EVERY: Final = 10.0


def main(parts: Sequence[str]) -> int:
    """Exit status: 0, or as of ``spillway``. Without ``parts`` both are made, one after the other."""
    make = {"tools": make_tools, "folders": make_folders}
    if not make.keys() >= set(parts):
        say(__doc__ or "")
        return 2
    try:
        for part in parts or make:
            make[part]()
    except BadInput as mistake:
        say(f"spillway: {mistake}")
        return 2
    except (Unavailable, BenchError) as outage:
        say(f"spillway: {outage}")
        return 1
    return 0


def make_tools() -> None:
    """The programs that this user's tests start."""
    ensure_tools(tools_for(is_root=os.geteuid() == 0, compiles_c=bool(shutil.which("gcc"))), progress=say)


def make_folders() -> None:
    """The root folders of test machines."""
    if why_not():
        return
    with told("a Debian folder for the tests' machines"):
        cached_root()
    if not ubuntu.has_root() and not ubuntu.why_not():
        with told("an Ubuntu folder for the tests' machines"):
            ubuntu.ubuntu()


def tools_for(*, is_root: bool, compiles_c: bool) -> list[str]:
    """Names of the tools that some test of such a user needs."""
    return [
        name for name, tool in TOOLS.items() if (is_root or name not in OF_MACHINES) and (compiles_c or not tool.cgo)
    ]


@contextlib.contextmanager
def told(what: str) -> Iterator[None]:
    """A line now and then where it takes longer than to find what is there already."""
    began, done = time.monotonic(), threading.Event()

    def tell() -> None:
        if done.wait(_AT_ONCE):
            return
        say(f"making {what}, once for this user")
        while not done.wait(_REPORT_EVERY):
            say(f"  {time.monotonic() - began:4.0f} s: making {what}")

    teller = threading.Thread(target=tell)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()
    if time.monotonic() - began > _AT_ONCE:
        say(f"{what} is made ({time.monotonic() - began:.0f} s)")


def say(line: str) -> None:
    """At once, also into a file."""
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
