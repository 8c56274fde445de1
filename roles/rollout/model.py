"""A rolling change: a machine as it stands in the fleet, the pods on it, and what an operator allows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from roles.engine.disruption import Disruption


class Phase(StrEnum):
    """Where a machine stands; the words are written on the node."""

    IDLE = ""
    DRAINING = "draining"
    APPLYING = "applying"
    VERIFYING = "verifying"
    RESTORING = "restoring"
    FAILED = "failed"
    """Not healthy with its old files either: a person must look. It stays closed."""


class Outcome(StrEnum):
    """How a plan ended on a machine, for as long as the machine still wants the same plan."""

    NONE = ""
    REFUSED = "refused"
    """The change could not be made (a full disk, a mirror that is down); the machine was put back."""
    FAILED = "failed"
    """The change left the machine unhealthy; it was put back. Nothing else starts until the plan changes, or an
    operator says to try again."""
    UNSETTLED = "unsettled"
    """It was applied and is wanted again: another program writes there too. Only this machine is left alone."""
    PARTLY = "partly"
    """A part of it could not be made, which held up nothing else. On no node: the next run tries again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What became of putting a machine back."""

    failed: str = ""
    """Why it could not be done."""
    left: str = ""
    """What is not as it was, by name, though the rest is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resident:
    """A pod on a machine that is neither a daemon's nor over."""

    key: str
    """namespace/name."""
    holds_gpu: bool
    uid: str = ""
    stays: str = ""
    """Why it may not be evicted; empty where it may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One machine as it is now."""

    name: str
    domain: str = ""
    """What fails together, such as a rack: changed together too, and not beside another."""
    wants: str = ""
    """Identity of its plan; empty where there is nothing to do."""
    needs: Disruption = Disruption.NONE
    has_quiet_part: bool = False
    """Some of its changes may be made beside running GPU pods."""
    is_known: bool = True
    """It answered, and could be planned for."""
    blocked: str = ""
    """Why nothing may be changed on it: what the preflight found."""
    is_lost: bool = False
    """It went silent while it was under way: it counts as down, and is left to the next run."""
    in_cluster: bool = True
    is_ready: bool = True
    is_cordoned: bool = False
    phase: Phase = Phase.IDLE
    outcome: Outcome = Outcome.NONE
    was_refused: bool = False
    """The change that it wants could not be made by an earlier run."""
    residents: tuple[Resident, ...] = ()

    @property
    def is_down(self) -> bool:
        """Takes no work now, for whatever reason. A machine that has not joined yet is no loss."""
        return self.in_cluster and (self.is_cordoned or self.is_lost or not self.is_ready)

    @property
    def is_under_way(self) -> bool:
        """Says whether the machine's change was started and is not finished."""
        return self.phase not in (Phase.IDLE, Phase.FAILED) and not self.is_lost


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What an operator allows of a rolling change."""

    batch: int = 1
    """Machines under way at a time."""
    max_down: int = 1
    """Machines of the cluster that may be down at a time, those that are down anyhow included."""
    allowed: Disruption = Disruption.RELOAD
    """What may happen beside running GPU pods."""
    drain: bool = True
    """Whether pods may be evicted for what disrupts more."""
    tolerate: int = 0
    """Machines on which the change may turn out impossible (a full disk, a mirror that is down); one more halts."""
