"""What a plan is made of: steps to take, demand left waiting, and what to remember until the next look.

Plain values. ``planner/plan.py`` makes them, ``loop.py`` carries them out, ``reporting/report.py`` tells of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple

from autoscaler.model.needed_changes import NeededChange, together

_UNDATED: Final = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class Admit:
    """Lift the scheduling gates of a gang's pods, each pinned to the node that was found for it."""

    gang: str
    """``namespace/name``."""
    placements: tuple[tuple[str, str], ...]
    """(pod key ``namespace/name``, node name); every node is registered and ready."""
    because: str


@dataclass(frozen=True, slots=True)
class Nominate:
    """Tell the scheduler on which node each pod is expected: it tries that one first for it.

    Until they are bound it keeps their room there from others of no higher priority: https://kep.k8s.io/5278 .
    """

    placements: tuple[tuple[str, str], ...]
    """(pod key ``namespace/name``, node name); the node is registered, and need not be ready.

    Empty: it is expected nowhere any more.
    """
    because: str


@dataclass(frozen=True, slots=True)
class Reserve:
    """Let pods onto nodes that are reserved: each of them tolerates the reservation of its own node from now on."""

    placements: tuple[tuple[str, str], ...]
    """(pod key ``namespace/name``, node name); every node is registered and ready."""
    because: str


@dataclass(frozen=True, slots=True)
class Unreserve:
    """Open nodes that were reserved to every pod."""

    nodes: tuple[str, ...]
    because: str


@dataclass(frozen=True, slots=True)
class Recreate:
    """Delete a pod that we pinned to a node where it can never start: its owner makes it anew, gated as it was.

    Carried out only on the very pod, still unbound and unchanged since it was seen.
    """

    pod: str
    """``namespace/name``."""
    because: str


@dataclass(frozen=True, slots=True)
class Uncordon:
    """Lift a cordon of our own: the node is wanted again."""

    node: str
    because: str


@dataclass(frozen=True, slots=True)
class Grow:
    """Order nodes: bring a group from one size to another. Both are absolute, so doing it twice buys once."""

    group: str
    was: int
    """The desired capacity that the step starts from: where it is another by then, nothing is bought."""
    to: int
    """The desired capacity that it sets; more than ``was``."""
    usd_per_hour: float
    """What the step adds to the bill."""
    demand: tuple[str, ...]
    """Keys of the pods it is for."""
    because: str
    at: datetime = field(default=_UNDATED, compare=False)
    """When it was decided: an order that is asked for again keeps it, and is the same order to AWS."""

    @property
    def by(self) -> int:
        """How many nodes are ordered."""
        return self.to - self.was


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel an order that EC2 refused: lower a group's desired capacity. No instance ends by it."""

    group: str
    was: int
    """The desired capacity that the step starts from: where it is another by then, nothing is changed."""
    to: int
    """The desired capacity that it sets: the nodes that the group has; less than ``was``."""
    because: str

    @property
    def by(self) -> int:
        """How many nodes are not wanted any longer."""
        return self.was - self.to


@dataclass(frozen=True, slots=True)
class Cordon:
    """Close a node to new pods, marked as ours with the time: it is idle, is emptied, or its hardware is at fault."""

    node: str
    because: str


@dataclass(frozen=True, slots=True)
class Evict:
    """Evict pods of a node that we have closed: their controllers make them anew where there is room.

    By the eviction API, which refuses what a PodDisruptionBudget forbids and gives the pods their grace.
    """

    node: str
    pods: tuple[str, ...]
    """Pod keys ``namespace/name``."""
    because: str


@dataclass(frozen=True, slots=True)
class FreeGpus:
    """Evict pods that do not use the GPUs that they hold; their node stays open. Otherwise as :class:`Evict`.

    Of several pods, which are a gang's, none is evicted where PodDisruptionBudgets do not let all of them go.
    """

    pods: tuple[str, ...]
    """Pod keys ``namespace/name``."""
    because: str


@dataclass(frozen=True, slots=True)
class Remove:
    """Terminate one instance in its group, lowering the group's desired capacity, and delete its node if it has one.

    ``node`` is ``None`` for an instance that never joined. Carried out only after one more look that finds the node
    still without pods.
    """

    group: str
    instance: str
    node: str | None
    because: str
    is_taken_back: bool = False
    """EC2 takes the instance back at this moment: it ends with what is still on it, also at the minimum."""
    is_dead: bool = False
    """It never joined, or its node has not been ready for too long and may hold pods: it ends also at the minimum."""


@dataclass(frozen=True, slots=True)
class DeleteNode:
    """Delete the Node of an instance that is gone. Carried out only where EC2 says that the instance has ended."""

    node: str
    instance: str
    because: str


@dataclass(frozen=True, slots=True)
class Release:
    """Tell Auto Scaling that a terminating instance need not wait any longer, and delete its node if it has one.

    Carried out only after one more look that finds the node still closed and without pods.
    """

    group: str
    instance: str
    node: str | None
    because: str


@dataclass(frozen=True, slots=True)
class EndJob:
    """Delete a batch/v1 Job (and its pods) that waits for ever though the job it serves has succeeded or failed."""

    namespace: str
    name: str
    because: str


@dataclass(frozen=True, slots=True)
class BeginStep:
    """Resume a suspended batch/v1 Job, the next step of a workflow: all that it depends on has succeeded."""

    namespace: str
    name: str
    because: str


@dataclass(frozen=True, slots=True)
class StopStep:
    """Have a suspended batch/v1 Job fail without a pod: a step that it depends on has failed."""

    namespace: str
    name: str
    because: str


@dataclass(frozen=True, slots=True)
class Resize:
    """Change the number of tasks of an elastic Job: it makes those that it lacks, or ends those of the last indexes.

    Carried out only where the Job has the size that the step starts from. Both are absolute.
    """

    namespace: str
    name: str
    was: int
    to: int
    because: str


@dataclass(frozen=True, slots=True)
class SetCondition:
    """Answer a ProvisioningRequest."""

    namespace: str
    name: str
    condition: Literal["Provisioned", "BookingExpired"]
    status: bool
    because: str


Step = (
    Admit
    | Nominate
    | Reserve
    | Unreserve
    | Recreate
    | Uncordon
    | Grow
    | Cancel
    | Cordon
    | Evict
    | FreeGpus
    | Remove
    | DeleteNode
    | Release
    | EndJob
    | BeginStep
    | StopStep
    | Resize
    | SetCondition
)


STARTING: Final = "starting"
HELD: Final = "held"
PATIENCE: Final = "patience"
IMPOSSIBLE: Final = "impossible"
PAUSED: Final = "paused"
REFUSED: Final = "refused"
MONEY: Final = "money"
LIMIT: Final = "limit"
QUOTA: Final = "quota"
STUCK: Final = "stuck"
BUSY: Final = "busy"
CAUSES: Final[Mapping[str, str]] = {
    IMPOSSIBLE: "no machine here and no group of the policy could hold it",
    PAUSED: "buying is paused, or a budget is spent",
    MONEY: "`limits.usd_per_hour`",
    LIMIT: "`limits.nodes`, `limits.gpus`, `max` of a group or its MaxSize",
    QUOTA: "a quota of the AWS account, or a Capacity Reservation that has no room",
    REFUSED: "EC2 has refused the groups that could hold it, which are left alone for a while",
    STUCK: "it is bound for a node that is gone, or closed, or has no room",
    HELD: "its gang is not whole yet, or it has a gate or a rule that Spillway does not plan for",
    PATIENCE: "it waits for machines that you own, as the policy or its owner says",
    BUSY: "only machines that are there could hold it, and they are full or closed",
    STARTING: "it has a place: its node is on its way, or the scheduler has been told",
}
"""Why a pod waits: what the metrics and `top` count by -> its meaning; what a person can change comes first."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A pod that this plan does not place on a node that is there now."""

    pod: str
    """``namespace/name``."""
    because: str
    changes: tuple[NeededChange, ...] = ()
    """All that has to change for it to have a place, the smallest first; empty where waiting is all it takes."""
    cause: str = BUSY
    """One of ``CAUSES``."""

    @property
    def would_fit_if(self) -> str:
        """The changes in words, for a person who can make them."""
        return together(self.changes)

    @property
    def hopeless(self) -> bool:
        """No machine here and no group that the policy allows could ever hold it as things are."""
        return self.cause == IMPOSSIBLE


class Assignment(NamedTuple):
    """A node that pods were planned on together."""

    node: str
    """Its name, or what the plan called it before it was there."""
    group: str = ""
    """Its Auto Scaling group; empty for a machine that we own."""


class Backoff(NamedTuple):
    """How long a group is left alone, and what was learnt of it."""

    until: datetime
    tries: int
    """Failures one after the other."""
    failed: datetime
    """When the last of them was."""
    code: str
    """What it was, as in ``Refusal``."""


class Unused(NamedTuple):
    """A pod that does not use its GPUs."""

    since: datetime
    seen: datetime
    """When it was seen so last, to some minutes."""
    told: datetime | None = None
    """When its owner was told first."""


class Order(NamedTuple):
    """An order of nodes in a group of which it is not known whether AWS has carried it out."""

    was: int
    to: int
    at: datetime
    """As in :class:`Grow`."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What the next plan should know and the cluster does not show. Losing it costs time, never money or work."""

    backoffs: Mapping[str, Backoff] = field(default_factory=dict)
    """Group name -> how long it is, or was, left alone."""
    assignments: Mapping[str, Assignment] = field(default_factory=dict)
    """Pod key -> where it was last planned, so that it goes where it was bought for."""
    draining: Mapping[str, datetime] = field(default_factory=dict)
    """Name of a node that was emptied of its pods, or is being -> since when."""
    resting: Mapping[str, datetime] = field(default_factory=dict)
    """Name of a node that was opened again before it was empty -> when it was begun with."""
    orders: Mapping[str, Order] = field(default_factory=dict)
    """Group name -> the order that this plan makes in it: written down before it is made."""
    leftovers: frozenset[str] = frozenset()
    """Ids of instances that were bought for part of a gang, and are to be terminated at once."""
    unused: Mapping[str, Unused] = field(default_factory=dict)
    """Key of a pod that does not use its GPUs -> since when."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now, in order."""

    steps: tuple[Step, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    memory: Memory = Memory()
    usd_per_hour: float = 0.0
    """Of all EC2 capacity when the steps are done."""
    lower_bound_usd_per_hour: float = 0.0
    """What no plan that places the same pods can undercut, with the EC2 capacity that is there; as far as is proven."""
    warnings: tuple[str, ...] = ()
    """What an operator should know: nodes that do not answer, limits that are exceeded, in words."""
    wake_at: datetime | None = None
    """When time alone changes the decision (an idle node's end, a back-off's): look again then."""
    kept: Mapping[str, str] = field(default_factory=dict)
    """Name of an EC2 node without pods, or closed by us, that stays -> why, in words."""
    idle_gpus: Mapping[str, str] = field(default_factory=dict)
    """Key of a pod that has not used its GPUs for so long that its owner is told -> what is told."""
