"""The states of a node, as a table: the words that `top`, `explain`, `gpus`, the metrics and the log have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

JOINING: Final = "joining"
READY: Final = "ready"
RESERVED: Final = "reserved"
BUSY: Final = "busy"
UNDER_USED: Final = "under-used"
MINIMUM: Final = "minimum"
IDLE: Final = "idle"
DRAINING: Final = "draining"
REPAIRING: Final = "repairing"
INTERRUPTED: Final = "interrupted"
DETACHED: Final = "detached"
DEAD: Final = "dead"
GONE: Final = "gone"


@dataclass(frozen=True, slots=True)
class NodeState:
    """One state: what begins it, what ends it, how long it may last, and where it is told."""

    name: str
    begins: str
    ends: str
    lasts: str
    told: str


_STATES: Final = (
    NodeState(
        JOINING,
        "its instance was asked for, or launched; or its kubelet or its devices are not ready yet",
        "ready; dead",
        "`scale_up.boot_timeout`",
        "log (the order)",
    ),
    NodeState(READY, "ready and open, without pods", "busy; on EC2: idle when no pod is to come", "none", "-"),
    NodeState(
        RESERVED,
        "ready, with the taint `spillway.dev/reserved`",
        "busy, when the pods are there that it was bought for",
        "`scale_up.boot_timeout`",
        "log (which pods are let in)",
    ),
    NodeState(BUSY, "a pod runs on it that is no daemon and has not finished", "its last pod ends", "none", "-"),
    NodeState(
        UNDER_USED,
        "busy on EC2, and all its pods may be moved",
        "draining, when they have room elsewhere or on a cheaper node; busy",
        "none: at the earliest after `scale_down.consolidation.after`",
        "-",
    ),
    NodeState(
        MINIMUM,
        "on EC2, without pods, and its group has no more than `min` nodes",
        "busy; `min` is lowered",
        "none",
        "-",
    ),
    NodeState(
        IDLE,
        "on EC2, without pods, and closed by the autoscaler",
        "its instance is terminated; opened again when a pod needs it",
        "`scale_down.idle_after`, or that of its group; at once above a limit, or left over of a gang",
        "log (the cordon, then the end)",
    ),
    NodeState(
        DRAINING,
        "closed by the autoscaler, and its pods are evicted",
        "idle; opened again",
        "`scale_down.consolidation.timeout`",
        "log (the cordon, the evictions)",
    ),
    NodeState(
        REPAIRING,
        "closed, and not by the autoscaler: by a person, or by `spillway nodes`; or closed by the autoscaler since a "
        "condition says that its hardware is at fault (`faults` of the policy)",
        "the one that closed it opens it; after a fault the autoscaler does, once the condition is well for "
        "`faults.after`, or on EC2 its instance is terminated when no pod is on it",
        "none",
        "log and `spillway_warnings`, of a fault",
    ),
    NodeState(
        INTERRUPTED,
        "EC2 says that it takes its instance back, or is likely to: a spot interruption, a rebalance recommendation, "
        "scheduled maintenance; or something else than Spillway ends it",
        "gone: its pods are evicted, and its instance is terminated before EC2 does; ended by others: when its "
        "pods have ended or the termination hook is over",
        "what EC2 says: two minutes of an interruption; an hour of a recommendation; that of the termination hook",
        "log (the cordon, the evictions, the end)",
    ),
    NodeState(
        DETACHED,
        "it has the label of a group, and no Auto Scaling group has its instance",
        "its instance is attached again, or ended by the one that detached it",
        "none: the autoscaler leaves it alone",
        "-",
    ),
    NodeState(
        DEAD,
        "not ready for too long, or never joined",
        "its instance is terminated; a machine that you own is left alone",
        "with pods on it `scale_down.unready_after`; one that never joined goes at once",
        "log and `spillway_warnings`, with its pods",
    ),
    NodeState(
        GONE,
        "its instance is terminated, or has been",
        "its Node is deleted",
        "the next look",
        "log (the Node is deleted)",
    ),
)

STATES: Final[Mapping[str, NodeState]] = {state.name: state for state in _STATES}
"""By name, in the order of a node's life."""


_BEGIN: Final = "<!-- begin of what `autoscaler.model.node_states` has -->\n"
_END: Final = "<!-- end of it -->\n"


def with_table(page: str) -> str:
    """The page with the table between its two marks made anew."""
    head, _, rest = page.partition(_BEGIN)
    _, _, tail = rest.partition(_END)
    return f"{head}{_BEGIN}{as_markdown()}{_END}{tail}"


def as_markdown() -> str:
    """The table of the documentation."""
    head = "| state | begins when | ends with | lasts at most | told |\n|---|---|---|---|---|\n"
    rows = (f"| {one.name} | {one.begins} | {one.ends} | {one.lasts} | {one.told} |\n" for one in _STATES)
    return head + "".join(rows)
