"""The rolling change: look, ask :mod:`roles.rollout.state_machine` what is next, do it, write it down, look again.

Whatever is remembered across steps stands on the nodes and on the machines: a loop that ends anywhere is started again
and goes on. Two of them at a time are prevented by whoever starts it (:mod:`roles.rollout.lock`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from autoscaler.model.errors import Unavailable
from roles.engine.disruption import Disruption
from roles.engine.host_plan import Change, Done, HostPlan, held, identity
from roles.rollout.fleet_state import Standing
from roles.rollout.journal import Journal
from roles.rollout.model import Member, Outcome, Phase, Restored, Rules
from roles.rollout.node_state import Marks
from roles.rollout.state_machine import (
    Apply,
    Cordon,
    Evict,
    Halt,
    Hold,
    Release,
    Rest,
    Restore,
    Start,
    Step,
    Verify,
    Wait,
    allowed_now,
    is_over,
    next_steps,
    phase_after,
)

Tell = Callable[[str], None]
AT_ONCE: Final = 16


class Hosts(Protocol):
    """Machines, real (:class:`roles.rollout.ssh_hosts.SshHosts`) or made up."""

    def plan(self, names: Iterable[str]) -> Mapping[str, HostPlan]:
        """Looks at the machines anew and returns what each would change."""

    def take(self, name: str) -> str:
        """Keep other controllers off it until it is left; gives which one changes it now, empty where none does."""

    def leave(self, name: str) -> None:
        """Leaves the machine to other runs."""

    def apply(self, name: str, allowed: Disruption) -> Done:
        """Plan once more and do it, up to the class allowed."""

    def why_unhealthy(self, name: str) -> str:
        """Empty where the machine passes its health gate."""

    def restore(self, name: str) -> Restored:
        """Put the last good files back and restart what read them."""

    def settle(self, name: str) -> None:
        """What is there now is the last good."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long is waited for each stage, in seconds."""

    poll: float = 5.0
    drain: float = 3600.0
    """A node that cannot be emptied in this time is opened again."""
    health: float = 300.0
    """How long a machine may take to become healthy after a change."""


@dataclass(slots=True)
class Rolled:
    """How the rolling change ended."""

    changed: list[str] = field(default_factory=list)
    held: dict[str, str] = field(default_factory=dict)
    """Machine: why its change, or a part of it, was not made."""
    failed: dict[str, str] = field(default_factory=dict)
    unsettled: dict[str, str] = field(default_factory=dict)
    """Machine: the resource that is wanted again as soon as it is changed."""
    halted: str = ""
    plans: dict[str, HostPlan] = field(default_factory=dict)
    done: list[Done] = field(default_factory=list)


class Roll:
    """One rolling change. ``marks`` is ``None`` where there is no cluster: machines are then no nodes."""

    def __init__(
        self,
        hosts: Hosts,
        marks: Marks | None,
        *,
        domains: Mapping[str, str],
        rules: Rules,
        journal: Journal,
        patience: Patience | None = None,
        tell: Tell = print,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        why_not: Callable[[], str] = lambda: "",
        blocked: Mapping[str, str] | None = None,
        go_on: str = "spillway nodes apply --retry",
        retry: bool = False,
    ) -> None:
        """``domains``: every machine of the rollout, with its failure domain; ``blocked``: those left alone.

        ``why_not``: why this run may not go on, asked before each step; empty where it may. ``go_on``: the command by
        which an operator has a halted rollout go on. ``retry``: that was said.
        """
        self._hosts, self._marks, self._domains = hosts, marks, domains
        before = {} if retry else journal.last_outcomes()
        self._standing = Standing(marks, domains, rules=rules, blocked=blocked or {}, before=before)
        self._rules, self._journal = rules, journal
        self._patience = patience or Patience()
        self._tell, self._clock, self._sleep = tell, clock, sleep
        self._why_not = why_not
        self._since: dict[str, float] = {}
        self._lost_before: set[str] = set()
        """Not Ready before anything was done: no fault of the change if it is not Ready after."""
        self._tried: dict[str, set[str]] = {}
        """Machine: resources that this run has tried to change, or has had a whole change tried for."""
        self._canary_passed, self._go_on_by = False, go_on
        self.rolled = Rolled()

    def run(self, plans: Mapping[str, HostPlan] | None = None) -> Rolled:
        """Go on until nothing is left that could be done. ``plans``: a look that was just taken."""
        self.rolled.plans = dict(plans or self._hosts.plan(self._domains))
        while True:
            members = self._standing.members(self.rolled.plans, failed=self.rolled.failed.keys())
            steps = next_steps(members.values(), self._rules, canary_passed=self._canary_passed)
            steps = tuple(step for step in steps if step.host not in self._standing.abandoned)
            self._report(steps)
            if is_over(steps):
                self._keep_reasons(steps)
                self._journal.write("rollout-over", halted=self.rolled.halted, held=self.rolled.held)
                return self.rolled
            todo = [step for step in steps if not isinstance(step, Hold | Halt | Wait)]
            with ThreadPoolExecutor(max_workers=min(AT_ONCE, len(todo)) or 1) as pool:
                moved = list(pool.map(self._do, todo, [members[step.host] for step in todo]))
            waiting = [step.host for step in steps if isinstance(step, Wait)]
            self._look_again_at(waiting, members)
            self._give_up(waiting + [step.host for step, went in zip(todo, moved, strict=True) if not went], members)
            if not any(moved):
                self._sleep(self._patience.poll)

    def _keep_reasons(self, steps: Sequence[Step]) -> None:
        """Every night anew, near the journal's end, for as long as they hold."""
        for step in steps:
            if isinstance(step, Halt) and (cause := self._journal.last_reason(step.host)):
                self._journal.write("failed", host=step.host, reason=cause)
        for host, ended in self._standing.ends().items():
            self._journal.write("finished", host=host, outcome=ended)

    def _do(self, step: Step, member: Member) -> bool:
        """One step; gives whether it brought anything forward. What goes wrong stays with its machine."""
        if why_not := self._why_not():
            raise Unavailable(f"{why_not}: this run stops; the next goes on where it stood")
        self._journal.write("step", step=type(step).__name__, host=step.host, because=step.because)
        try:
            return self._take(step, member)
        except Unavailable as outage:
            self._tell(f"{step.host}: {outage}")
            return False

    def _take(self, step: Step, member: Member) -> bool:
        match step:
            case Cordon() | Start():
                return self._begin(step, member)
            case Evict():
                return self._evict(step)
            case Apply():
                return self._apply(step, member)
            case Verify():
                return self._verify(step, member)
            case Restore():
                return self._restore(step, member)
            case Release():
                return self._release(step, member)
            case _:
                raise TypeError(f"{type(step).__name__} is nothing to do")

    def _begin(self, step: Step, member: Member) -> bool:
        if other := self._hosts.take(step.host):
            self._standing.block(step.host, f"another controller is changing it: {other}; wait for it to end")
            return True
        self._tell(f"{step.host}: {type(step).__name__.lower()}: {step.because}")
        self._since[step.host] = self._clock()
        if not member.is_ready:
            self._lost_before.add(step.host)
        self._standing.begin(member, phase_after(step, went_well=True), cordon=isinstance(step, Cordon))
        return True

    def _evict(self, step: Evict) -> bool:
        if not self._marks:
            return False
        refusals = [reason for pod in step.pods if (reason := self._marks.evict(pod))]
        for reason in refusals:
            self._tell(f"{step.host}: {reason}")
        return False  # they take their time to leave: look again after a while

    def _apply(self, step: Apply, member: Member) -> bool:
        self._tell(f"{step.host}: apply: {step.because}")
        done = self._hosts.apply(step.host, allowed_now(member, self._rules))
        self._write_down(done)
        self.rolled.done.append(done)
        self._tried.setdefault(step.host, set()).update(done.alone)
        if done.failed:
            self._tell(f"{step.host}: {done.failed}")
            self.rolled.failed[step.host] = done.failed
            self._go_on(step, member, went_well=False, outcome=Outcome.REFUSED)
            return True
        self._since[step.host] = self._clock()
        self._go_on(step, member, went_well=True)
        return True

    def _verify(self, step: Verify, member: Member) -> bool:
        why = self._hosts.why_unhealthy(step.host) or ("" if member.is_ready else "its node is not Ready")
        if why and self._clock() - self._since.setdefault(step.host, self._clock()) < self._patience.health:
            return False
        if why:
            self._tell(f"{step.host}: unhealthy after the change: {why}")
            self.rolled.failed[step.host] = f"unhealthy after the change: {why}"
            self._journal.write("failed", host=step.host, reason=self.rolled.failed[step.host])
            lost = step.host in self._lost_before
            self._go_on(step, member, went_well=False, outcome=Outcome.REFUSED if lost else Outcome.FAILED)
            return True
        return self._conclude(step, member)

    def _conclude(self, step: Verify, member: Member) -> bool:
        """Healthy. What is wanted once more was changed by another program meanwhile."""
        self._hosts.settle(step.host)
        plan = self._hosts.plan([step.host])[step.host]
        self.rolled.plans[step.host] = plan
        again = _again(plan, allowed_now(member, self._rules))
        applied = {change.resource for done in self.rolled.done if done.host == step.host for change in done.applied}
        if back := [change.resource for change in again if change.resource in applied]:
            self.rolled.unsettled[step.host] = back[0]
            self._tell(f"{step.host}: does not settle: {back[0]} is wanted again right after it was changed")
            self._standing.ended[step.host] = Outcome.UNSETTLED
        elif again:
            self._leave_or_try(step.host, {change.resource for change in again})
        else:
            self._canary_passed = True
            if step.host not in self.rolled.changed:
                self.rolled.changed.append(step.host)
        self._finish(member, f"unsettled:{identity(plan)}" if back else None)
        return True

    def _leave_or_try(self, host: str, wanted: set[str]) -> None:
        """What this run has not changed: it came up meanwhile, or an earlier run left off here. Each is tried once."""
        tried = self._tried.setdefault(host, set())
        if wanted <= tried:
            alone = {
                resource: why for one in self.rolled.done if one.host == host for resource, why in one.alone.items()
            }
            first = min(wanted)
            self.rolled.failed[host] = alone.get(first, f"{first}: was not changed, though nothing failed")
            self._tell(f"{host}: {self.rolled.failed[host]}")
            self._standing.ended[host] = Outcome.PARTLY
        tried |= wanted

    def _restore(self, step: Restore, member: Member) -> bool:
        put = self._hosts.restore(step.host)
        why = put.failed or self._hosts.why_unhealthy(step.host)
        if why and self._clock() - self._since.setdefault(step.host, self._clock()) < self._patience.health:
            return False
        self.rolled.plans[step.host] = self._hosts.plan([step.host])[step.host]
        if why and self.rolled.plans[step.host].unreachable:
            self._abandon(step.host)
            return True
        self._tell_restored(step.host, put.left, why)
        if member.was_refused and not why:
            self._finish(member, None)  # an earlier run could not change it: this one tries
            return True
        outcome = member.outcome if member.outcome is not Outcome.NONE else Outcome.FAILED
        self._standing.ended[step.host] = outcome
        if why:
            self._go_on(step, member, went_well=False, outcome=outcome)
        else:
            self._finish(member, f"{outcome.value}:{identity(self.rolled.plans[step.host])}")
        return True

    def _tell_restored(self, host: str, left: str, why: str) -> None:
        but = f", except that {left}" if left else ""
        self._tell(f"{host}: restored{but}{f', and still unhealthy: {why}' if why else ''}")
        if left:
            before = self.rolled.failed.get(host)
            self.rolled.failed[host] = f"{f'{before}; ' if before else ''}put back, except that {left}"
            self._journal.write("failed", host=host, reason=self.rolled.failed[host])

    def _release(self, step: Release, member: Member) -> bool:
        self._tell(f"{step.host}: opened again: {step.because}")
        self._finish(member, None)
        return True

    def _go_on(self, step: Step, member: Member, *, went_well: bool, outcome: Outcome = Outcome.NONE) -> None:
        self._since[step.host] = self._clock()
        self._standing.go_on(member, phase_after(step, went_well=went_well), outcome)

    def _finish(self, member: Member, outcome: str | None) -> None:
        self._hosts.leave(member.name)
        self._standing.finish(member, outcome)
        self._journal.write("finished", host=member.name, outcome=outcome or "done")

    def _look_again_at(self, names: Sequence[str], members: Mapping[str, Member]) -> None:
        """Machines that did not answer may do so now."""
        unknown = [name for name in names if not members[name].is_known]
        if unknown:
            self.rolled.plans |= self._hosts.plan(unknown)

    def _give_up(self, names: Iterable[str], members: Mapping[str, Member]) -> None:
        """Open a node that could not be emptied in time: nothing was changed on it. Leave a silent one as it is."""
        for name in names:
            member = members[name]
            began = self._since.setdefault(name, self._clock())
            if not member.is_known and self._clock() - began > self._patience.health:
                self._abandon(name)
            elif member.phase is Phase.DRAINING and self._clock() - began > self._patience.drain:
                why = f"it could not be emptied in {self._patience.drain:g} s"
                self._tell(f"{name}: {why}: opened again")
                self.rolled.held[name] = why
                self._standing.ended[name] = Outcome.UNSETTLED
                self._finish(member, None)

    def _abandon(self, name: str) -> None:
        self._standing.abandoned.add(name)
        before = self.rolled.failed.get(name)
        silent = "it does not answer; the next run goes on with it"
        self.rolled.failed[name] = f"{before}; {silent}" if before else silent
        self._tell(f"{name}: {silent}")

    def _report(self, steps: Sequence[Step]) -> None:
        held_before = dict(self.rolled.held)
        for step in steps:
            if isinstance(step, Rest) and self._has_a_reason(step.host):
                continue  # what this run saw says more
            if isinstance(step, Hold | Wait):
                self.rolled.held[step.host] = step.because
                if held_before.get(step.host) != step.because:
                    self._tell(f"{step.host}: {type(step).__name__.lower()}: {step.because}")
            elif isinstance(step, Halt):
                self.rolled.halted = self._why_halted(step)
            else:
                self.rolled.held.pop(step.host, None)

    def _why_halted(self, step: Halt) -> str:
        """What stopped it, the cause, what the machine said last, and how to go on: a line each."""
        cause = self.rolled.failed.get(step.host) or self._journal.last_reason(step.host)
        said = self._journal.last_commands(step.host)
        lines = [
            f"{step.host}: {step.because}",
            *([f"cause: {cause}"] if cause else []),
            *(f"journal of {step.host}: {one}" for one in said),
            f"to go on: see to {step.host}, then {self._go_on_by}",
        ]
        return "\n".join(lines)

    def _has_a_reason(self, name: str) -> bool:
        return any(name in found for found in (self.rolled.held, self.rolled.failed, self.rolled.unsettled))

    def _write_down(self, done: Done) -> None:
        for change in done.applied:
            self._journal.write("change", host=done.host, **_plain(change))
        for command, succeeded, said in done.commands:
            self._journal.write("command", host=done.host, command=command, succeeded=succeeded, said=said)
        if done.failed:
            self._journal.write("failed", host=done.host, reason=done.failed)


def _again(plan: HostPlan, allowed: Disruption) -> tuple[Change, ...]:
    """What should have been settled by what was allowed."""
    waiting = held(plan, allowed)
    return tuple(change for change in plan.changes if change not in waiting)


def _plain(change: Change) -> dict[str, Any]:
    return {"resource": change.resource, "disruption": str(change.disruption), "diff": change.diff}
