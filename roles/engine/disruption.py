"""How much a change hurts what runs on the node: the classes, and the mark that a role puts on its operations.

    with disrupts(Disruption.MODULE_RELOAD):
        apt.packages(...)

An operation outside of any block disrupts nothing. One that knows better (a service that is restarted) says so itself
with :func:`note`; the higher of the two counts. The classes stand in order: what is above the class allowed while GPU
pods run waits until the node is drained.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum, auto
from typing import Final

from pyinfra.api.command import StringCommand
from pyinfra.api.exceptions import OperationError
from pyinfra.api.host import Host
from pyinfra.context import host as current


class Disruption(IntEnum):
    """How much a change disturbs, from harmless to a reboot.

    ``DAEMON_RELOAD`` stands this high because under it running GPU containers lose their devices
    (nvidia-container-toolkit issues 48 and 1227).
    """

    NONE = 0
    RELOAD = auto()
    DAEMON_RELOAD = auto()
    CONTAINERD_RESTART = auto()
    KUBELET_RESTART = auto()
    MODULE_RELOAD = auto()
    REBOOT = auto()

    def __str__(self) -> str:
        """Writes it as reports and the command line do: ``containerd-restart``."""
        return self.name.lower().replace("_", "-")

    @classmethod
    def parse(cls, text: str) -> Disruption:
        """The class of that name. Raises ``ValueError`` that lists the names."""
        try:
            return cls[text.upper().replace("-", "_")]
        except KeyError:
            raise ValueError(f"{text!r} is no disruption class: use one of {', '.join(map(str, cls))}") from None


RESTARTS: Final = {
    # unit: what its restart does to the pods of the node
    "containerd": Disruption.CONTAINERD_RESTART,
    "docker": Disruption.CONTAINERD_RESTART,
    "docker.socket": Disruption.CONTAINERD_RESTART,
    "kubelet": Disruption.KUBELET_RESTART,
    "nvidia-fabricmanager": Disruption.MODULE_RELOAD,
    "daemon-reload": Disruption.DAEMON_RELOAD,
}


def of_restart(unit: str) -> Disruption:
    """What a restart of the unit disrupts; for most units no more than a reload."""
    return RESTARTS.get(unit.removesuffix(".service"), Disruption.RELOAD)


@contextmanager
def disrupts(worst: Disruption) -> Iterator[None]:
    """Give every operation that is added in the block at least this class; in nested blocks the highest counts."""
    before = len(current.op_hash_order)
    yield
    marked = current.connector_data.setdefault("disruption", {})
    for op_hash in current.op_hash_order[before:]:
        marked[op_hash] = max(worst, marked.get(op_hash, Disruption.NONE))


class Waits(OperationError):  # noqa: N818 - reads as what it is at the raise site
    """What an operation found out while it ran is more than may happen now."""

    def __init__(self, worst: Disruption) -> None:
        super().__init__(f"{worst} waits for a drained node")
        self.worst = worst


def note(worst: Disruption) -> None:
    """Say, from within an operation that just found out, what its commands disrupt.

    Raises ``Waits`` where it runs already and that is more than is allowed: it was not planned so.
    """
    if current.state.is_executing and worst > current.connector_data.get("allowed", Disruption.REBOOT):
        raise Waits(worst)
    op_hash = current.current_op_hash
    if op_hash:
        found = current.connector_data.setdefault("disruption_found", {})
        found[op_hash] = max(worst, found.get(op_hash, Disruption.NONE))


class Harmless(StringCommand):
    """A command that changes nothing which a service has read: a mode, an owner, a hold, a pin. It owes no restart."""


def disruption_of(host: Host, op_hash: str) -> Disruption:
    """The class of one operation of a pyinfra host, once its commands were generated."""
    marks: list[dict[str, Disruption]] = [
        host.connector_data.get(key, {}) for key in ("disruption", "disruption_found")
    ]
    return max(mark.get(op_hash, Disruption.NONE) for mark in marks)
