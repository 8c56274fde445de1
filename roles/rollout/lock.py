"""One run at a time: a lock of this machine, and a Lease of the cluster where there is one.

Two controllers that share neither are kept apart on each machine, by the name that :func:`own_name` gives.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

from autoscaler.kube.client import Kube, Refused
from autoscaler.kube.leader_election import LASTS, Lease
from autoscaler.model.errors import Unavailable
from autoscaler.model.labels import NAMESPACE
from roles.settings.own_files import open_alone, write_whole

T = TypeVar("T")
LEASE: Final = "spillway-nodes"
RENEWED_WITHIN: Final = 300.0
"""Seconds for which an API server may not answer, as while a control plane is upgraded, until a run stops."""
_NOT_FOUND: Final = 404


@contextlib.contextmanager
def only_run(folder: Path, kube: Kube | None) -> Iterator[Lease | None]:
    """Hold both for the block. Raises ``Unavailable`` that says who runs.

    Ask :func:`why_not` of the lease that comes back before each act: a controller that was cut off waits until it has
    renewed its lease, and stops where another has taken that meanwhile.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = open_alone(folder / "lock")
    except OSError as error:
        raise Unavailable(f"{folder / 'lock'}: cannot be locked: {error.strerror}: remove it") from None
    with os.fdopen(descriptor, "a+", encoding="ascii") as file:
        _lock(file.fileno(), folder / "lock")
        file.seek(0)
        before = file.read().strip()
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        try:
            with _leased(kube, before) if kube else contextlib.nullcontext() as lease:
                yield lease
        finally:
            file.truncate(0)  # a number that is left says that its run died


def why_not(lease: Lease | None) -> str:
    """Why a run may not go on: empty where its lease is its own still, or there is none."""
    return lease.why_not_mine(within=RENEWED_WITHIN) if lease else ""


def own_name(folder: Path) -> str:
    """The name of the controller with this state folder: the same for all of its runs, wherever they are started."""
    file = folder / "controller"
    if not file.is_file():
        write_whole(file, f"{socket.gethostname()}-{secrets.token_hex(4)}\n")
    return file.read_text(encoding="utf-8").strip()


@contextlib.contextmanager
def _leased(kube: Kube, before: str) -> Iterator[Lease]:
    identity = _identity(os.getpid())
    lease = Lease(kube, namespace=NAMESPACE, identity=identity, name=LEASE)
    _namespace(kube)
    _give_back(kube, before)
    holder = _ask(lease.try_once)
    until = time.monotonic() + LASTS + 2
    while holder != identity and time.monotonic() < until:  # whoever died without a word holds it for a while
        time.sleep(1)
        holder = _ask(lease.try_once)
    if holder != identity:
        raise Unavailable(f"{holder} holds the lease {NAMESPACE}/{LEASE}: another run is under way; wait for it")
    lease.start()
    try:
        yield lease
    finally:
        lease.stop()


def _identity(process: int) -> str:
    return f"{socket.gethostname()}-{process}"


def _give_back(kube: Kube, before: str) -> None:
    """What the run before this one, process ``before`` of this machine, still holds: it is dead, we have its lock."""
    if not before.isdigit() or int(before) == os.getpid() or _is_alive(int(before)):
        return
    dead = Lease(kube, namespace=NAMESPACE, identity=_identity(int(before)), name=LEASE)
    if _ask(dead.try_once) == dead.identity:
        dead.stop()


def _is_alive(process: int) -> bool:
    """Says whether the process runs, also where another has that number by now: its lease would have the same name."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # another user's
    return True


def _namespace(kube: Kube) -> None:
    """Make the namespace of the lease where it is not there yet: a new cluster has none."""
    try:
        kube.get(f"/api/v1/namespaces/{NAMESPACE}")
    except Refused as refused:
        if refused.status != _NOT_FOUND:
            return  # a user that may not look may still hold the lease
        _ask(lambda: kube.send("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}}))


def _ask(do: Callable[[], T]) -> T:
    try:
        return do()
    except Refused as refused:
        mend = "apply roles/nightly/cronjob.yaml, which brings namespace and rights"
        raise Unavailable(f"the lease {NAMESPACE}/{LEASE} is refused ({refused}): {mend}") from None


def _lock(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        held_by = path.read_text(encoding="ascii").strip() or "another process"
        raise Unavailable(f"{path}: process {held_by} is running already: wait for it, or end it") from None
