"""What to do next in a rolling change: a pure function of what is seen of the fleet.

    idle -> draining -> applying -> verifying -> idle
    applying, verifying -> restoring -> idle (the plan marked as refused or failed), or failed (and closed)

A node's phase is written on the node itself, so that a controller that ends at any step and starts again sees where
each node stands. Nothing else is remembered but whether a first machine, the canary, came through since the start.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from autoscaler.model.enumeration import few
from autoscaler.model.errors import BadInput
from roles.engine.disruption import Disruption
from roles.rollout.model import Member, Outcome, Phase, Resident, Rules


@dataclass(frozen=True, slots=True)
class Step:
    """One machine's next step, and why."""

    host: str
    because: str


class Start(Step):
    """Begin a change that needs no closed node."""


class Cordon(Step):
    """Close the node and begin."""


@dataclass(frozen=True, slots=True)
class Evict(Step):
    """Ask these pods to leave, by the eviction API."""

    pods: tuple[Resident, ...] = ()


class Apply(Step):
    """Make the machine's change."""


class Release(Step):
    """Open a node again on which nothing was changed."""


class Verify(Step):
    """Ask whether the machine is healthy and still; if it is, finish."""


class Restore(Step):
    """Put the last good files back, and look whether that helped."""


class Wait(Step):
    """Under way, and something must happen first."""


class Hold(Step):
    """Do not begin, for a reason that the report says."""


class Rest(Hold):
    """Do not try again, for how an earlier try of the same plan ended."""


class Halt(Step):
    """Begin no further change."""


def next_steps(members: Iterable[Member], rules: Rules, *, canary_passed: bool) -> tuple[Step, ...]:
    """What to do now, at most one step for each machine. Only ``Wait``, ``Hold`` and ``Halt`` left: nothing to do."""
    fleet = sorted(members, key=lambda member: member.name)
    steps = [_advance(member, rules) for member in fleet if member.is_under_way]
    candidates = [one for one in fleet if one.wants and one.phase is Phase.IDLE and one.outcome is Outcome.NONE]
    halted = _why_halted(fleet, rules)
    rests = [_rest(one) for one in fleet if _rests(one)]
    if halted:
        return (*steps, halted, *(Hold(one.name, "the rollout is halted") for one in candidates), *rests)
    begun = _begin(fleet, candidates, rules, canary_passed=canary_passed)
    if not canary_passed and (crowded := _why_no_second(fleet, candidates, [*steps, *begun], rules)):
        begun = [crowded, *begun]
    return (*steps, *begun, *rests)


def phase_after(step: Step, *, went_well: bool) -> Phase:
    """Where a machine stands after a step of this kind."""
    match step:
        case Cordon():
            return Phase.DRAINING
        case Start():
            return Phase.APPLYING
        case Apply():
            return Phase.VERIFYING if went_well else Phase.RESTORING
        case Verify():
            return Phase.IDLE if went_well else Phase.RESTORING
        case Restore():
            return Phase.IDLE if went_well else Phase.FAILED
        case Release():
            return Phase.IDLE
        case _:
            raise TypeError(f"{type(step).__name__} leaves a machine where it stands")


def is_over(steps: Sequence[Step]) -> bool:
    """No machine is under way, and none can begin."""
    return all(isinstance(step, Hold | Halt) for step in steps)


def allowed_now(member: Member, rules: Rules) -> Disruption:
    """What may be done to a machine as it stands: everything once it is closed and free, or not a member yet.

    A closed node is free of pods that hold GPUs; of all others only where a reboot was planned.
    """
    if not member.in_cluster:
        return Disruption.REBOOT
    if _must_leave(member, rules) or not member.is_cordoned:
        return rules.allowed
    return Disruption.REBOOT if member.needs is Disruption.REBOOT else max(rules.allowed, Disruption.MODULE_RELOAD)


def parse_batch(text: str, *, machines: int) -> int:
    """``3`` or ``10%`` of so many machines, at least one. Raises ``BadInput``."""
    number, percent, rest = text.strip().partition("%")
    if not number.isdigit() or rest or int(number) < 1 or (percent and int(number) > 100):  # noqa: PLR2004 - percent
        raise BadInput(
            f"--batch: {text!r} is neither a number of machines, such as 3, nor a share of them, such as 10%"
        )
    return max(1, math.floor(machines * int(number) / 100)) if percent else int(number)


def _advance(member: Member, rules: Rules) -> Step:
    """The next step of a machine that is under way."""
    if not member.is_known:
        return Wait(member.name, "it does not answer")
    match member.phase:
        case Phase.DRAINING if member.blocked:
            return Release(member.name, member.blocked)
        case Phase.DRAINING:
            return _drain(member, rules)
        case Phase.APPLYING if member.wants:
            return Apply(member.name, "it is free for the change")
        case Phase.RESTORING:
            return Restore(member.name, "the change failed, or left it unhealthy")
        case _:
            return Verify(member.name, "the change is made")


def _rests(member: Member) -> bool:
    ended = member.phase is Phase.FAILED or (member.phase is Phase.IDLE and member.outcome is not Outcome.NONE)
    return bool(member.wants) and ended and not member.is_lost


def _rest(member: Member) -> Rest:
    """Why a machine that has drifted is left as it is: its plan ended so, and nothing in it has changed since."""
    if member.phase is Phase.FAILED:
        return Rest(member.name, "it is not healthy with its last good files either: see to it, then --retry")
    why = {
        Outcome.UNSETTLED: "the same changes did not settle there before: find the other writer, then --retry",
        Outcome.FAILED: "the same changes left it unhealthy before: see to it, then --retry",
        Outcome.REFUSED: "the same changes could not be made there: see to it, then --retry",
        Outcome.PARTLY: "a part of the change could not be made: the next run tries it again",
    }
    return Rest(member.name, why[member.outcome])


def _drain(member: Member, rules: Rules) -> Step:
    if not member.is_cordoned and member.in_cluster:
        return Cordon(member.name, "somebody has opened it again before it was free")
    leaving = _must_leave(member, rules)
    staying = [pod for pod in leaving if pod.stays]
    if staying:
        return Wait(member.name, _staying(staying))
    if leaving:
        return Evict(member.name, f"{len(leaving)} pods are in the way", tuple(leaving))
    return Apply(member.name, "it is free for the change")


def _must_leave(member: Member, rules: Rules) -> list[Resident]:
    """The pods that the change would hurt: those that hold GPUs, and at a reboot all."""
    if member.needs <= rules.allowed:
        return []
    return [pod for pod in member.residents if pod.holds_gpu or member.needs is Disruption.REBOOT]


def _why_halted(fleet: list[Member], rules: Rules) -> Halt | None:
    """One machine that the change left unhealthy may have troubles of its own: another is tried. Two have not."""
    refused = [member.name for member in fleet if member.outcome is Outcome.REFUSED]
    failed = [member.name for member in fleet if member.outcome is Outcome.FAILED and member.phase is not Phase.FAILED]
    for member in fleet:
        if member.phase is Phase.FAILED:
            return Halt(member.name, "it is not healthy with its last good files either: see to it")
    if len(failed) > 1:
        told = (
            f"the change left it unhealthy, as it did {', '.join(failed[:-1][:5])}, and last good files were put back"
        )
        return Halt(failed[-1], told)
    if failed and len(fleet) == 1:
        return Halt(failed[0], "the change left it unhealthy, and its last good files were put back")
    if len(refused) > rules.tolerate:
        return Halt(refused[0], f"the change could not be made on {', '.join(refused[:5])}")
    return None


def _why_no_second(fleet: list[Member], candidates: list[Member], steps: Sequence[Step], rules: Rules) -> Halt | None:
    """A first machine that stays down may take up the whole budget: then none is left to close another one by."""
    ill = [member.name for member in fleet if member.outcome is Outcome.FAILED and member.is_down]
    needed = any(not _is_quiet(member, rules) for member in candidates)
    if not (ill and needed and is_over(steps) and _spare(fleet, rules) < 1):
        return None
    return Halt(
        ill[0],
        f"the change left it unhealthy, and it is down: no second machine may be closed beside it to be tried"
        f" (--max-down {rules.max_down}; {rules.max_down + 1} would do)",
    )


def _spare(fleet: list[Member], rules: Rules) -> int:
    """Nodes that may be closed now."""
    return rules.max_down - sum(member.is_down for member in fleet)


def _begin(fleet: list[Member], candidates: list[Member], rules: Rules, *, canary_passed: bool) -> list[Step]:
    """The machines that start now, one failure domain at a time; and those that do not, with the reason."""
    under_way = [member for member in fleet if member.is_under_way]
    room = (rules.batch if canary_passed else min(rules.batch, 1)) - len(under_way)
    spare, down = _spare(fleet, rules), [member.name for member in fleet if member.is_down]
    domain = under_way[0].domain if under_way else None
    steps: list[Step] = []
    for member in sorted(candidates, key=lambda one: (one.domain, one.name)):
        quiet = _is_quiet(member, rules)
        why_not = _why_not(member, rules, spare=spare, down=down)
        if why_not and member.is_known and member.has_quiet_part and not member.blocked:
            quiet, why_not = True, ""  # what may be done beside the pods; the rest is held once that is done
        if not why_not and domain not in (None, member.domain):
            why_not = f"{domain or 'another failure domain'} is under way"
        if not why_not and room < 1:
            why_not = "its turn comes" if canary_passed else "the first machine must come through before"
        if why_not:
            steps.append(Hold(member.name, why_not))
            continue
        room, domain = room - 1, member.domain
        if quiet:
            steps.append(Start(member.name, "what is changed disturbs no pod there"))
            continue
        spare -= not member.is_down
        down += [] if member.is_down else [member.name]
        steps.append(Cordon(member.name, f"{member.needs} needs it free of pods that hold GPUs"))
    return steps


def _is_quiet(member: Member, rules: Rules) -> bool:
    return member.needs <= rules.allowed or not member.in_cluster


def _why_not(member: Member, rules: Rules, *, spare: int, down: Sequence[str]) -> str:
    """Why a machine cannot begin, whoever else does."""
    if member.blocked or not member.is_known:
        return member.blocked or "it does not answer"
    if _is_quiet(member, rules):
        return ""
    if why := _why_they_stay(member, rules):
        return why
    if not member.is_down and spare < 1:
        told = f", and {', '.join(down[:5])} {'are' if down[1:] else 'is'}" if down else ""
        return f"{rules.max_down} may be down at a time{told}"
    return ""


def _why_they_stay(member: Member, rules: Rules) -> str:
    """Why the pods that would have to leave are not asked to."""
    leaving = _must_leave(member, rules)
    if staying := [pod for pod in leaving if pod.stays]:
        return f"{member.needs} waits: {_staying(staying)}"
    if leaving and member.was_refused:
        return f"the change could not be made there before: {_names(leaving)} would leave for nothing, unless --retry"
    if leaving and not rules.drain:
        return (
            f"{member.needs} is more than {rules.allowed}, and {_names(leaving)} {_lose(leaving)}: it waits for a drain"
        )
    return ""


def _lose(pods: list[Resident]) -> str:
    return "would lose GPUs" if all(pod.holds_gpu for pod in pods) else "would end"


def _staying(pods: list[Resident]) -> str:
    return "; ".join(f"{pod.key} {pod.stays}" for pod in pods[:3]) + (f"; {len(pods) - 3} more" if pods[3:] else "")


def _names(pods: list[Resident]) -> str:
    return few(pod.key for pod in pods)
