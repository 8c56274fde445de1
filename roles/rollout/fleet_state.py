"""Where each machine of a rolling change stands: what its node bears, what its plan says, what this run knows of it.

A machine that is no node bears nothing: its marks are kept here, how its change ended in the journal. It has no pods
to lose.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from roles.engine.host_plan import HostPlan, held, identity
from roles.rollout.model import Member, Outcome, Phase, Rules
from roles.rollout.node_state import Marks, Seen


class Standing:
    """The state of every machine, and of the cluster's other nodes. ``domains`` and ``blocked`` as in ``Roll``."""

    def __init__(
        self,
        marks: Marks | None,
        domains: Mapping[str, str],
        *,
        rules: Rules,
        blocked: Mapping[str, str],
        before: Mapping[str, str],
    ) -> None:
        """``before``: how the last change of machines ended, as :meth:`finish` is told."""
        self._marks, self._domains = marks, domains
        self._rules, self._blocked = rules, dict(blocked)
        self._own = {name: _left(name, before.get(name, "")) for name in domains}
        """The marks of machines that are no nodes."""
        self.ended: dict[str, Outcome] = {}
        """How a plan ended in this run."""
        self.abandoned: set[str] = set()
        """Went silent under way: the next run goes on with them."""

    def members(self, plans: Mapping[str, HostPlan], *, failed: Collection[str]) -> dict[str, Member]:
        """What the API server and the last looks say; ``failed`` are those on which this run could not change all."""
        nodes = self._marks.look() if self._marks else {}
        found = {}
        for name, domain in self._domains.items():
            own = self._own[name]
            seen = nodes.get(name, own)
            if own.phase is not Phase.IDLE:  # it was no node when its change began, and has joined since
                seen = replace(seen, phase=own.phase, outcome=own.outcome, outcome_of=own.outcome_of)
            member = self._member(seen, plans[name], in_cluster=name in nodes, has_failed=name in failed)
            found[name] = replace(member, domain=domain or seen.rack)
        strangers = [seen for name, seen in nodes.items() if name not in self._domains]
        for seen in strangers:  # they count against the budget, and are left alone
            found[seen.name] = Member(
                name=seen.name, domain=seen.rack, is_ready=seen.is_ready, is_cordoned=seen.is_cordoned
            )
        return found

    def block(self, name: str, why: str) -> None:
        """Keeps this run from changing it, for a reason that was found out only now."""
        self._blocked[name] = why

    def begin(self, member: Member, phase: Phase, *, cordon: bool) -> None:
        """Marks the machine as under change."""
        if self._marks and member.in_cluster:
            self._marks.begin(member.name, phase, cordon=cordon)
        else:
            self._own[member.name] = Seen(name=member.name, phase=phase)

    def go_on(self, member: Member, phase: Phase, outcome: Outcome = Outcome.NONE) -> None:
        """The next phase; ``outcome`` where the plan has ended there."""
        if self._marks and self._is_marked(member):
            self._marks.mark(member.name, phase, f"{outcome.value}:{member.wants}" if outcome else "")
            return
        own = self._own[member.name]
        self._own[member.name] = replace(own, phase=phase, outcome=outcome, outcome_of=member.wants)

    def finish(self, member: Member, outcome: str | None) -> None:
        """It is over there; ``None``: it went well."""
        if self._marks and self._is_marked(member):
            self._marks.finish(member.name, outcome)
        else:
            self._own[member.name] = _left(member.name, outcome or "")

    def ends(self) -> dict[str, str]:
        """Returns how the change ended that they still want, of the machines whose marks are kept here."""
        return {name: f"{own.outcome.value}:{own.outcome_of}" for name, own in self._own.items() if own.outcome}

    def _is_marked(self, member: Member) -> bool:
        """Its phase stands on its node: it was one when its change began."""
        return member.in_cluster and self._own[member.name].phase is Phase.IDLE

    def _member(self, seen: Seen, plan: HostPlan, *, in_cluster: bool, has_failed: bool) -> Member:
        wants = identity(plan) if plan.changes else ""
        marked = seen.outcome if seen.outcome_of == wants or seen.phase is not Phase.IDLE else Outcome.NONE
        was_refused = marked is Outcome.REFUSED and not has_failed  # by an earlier run
        if was_refused or not (wants or seen.phase is not Phase.IDLE):
            marked = Outcome.NONE
        return Member(
            name=seen.name,
            wants=wants,
            needs=plan.disruption,
            has_quiet_part=len(held(plan, self._rules.allowed)) < len(plan.changes),
            is_known=not (plan.unreachable or plan.failed),
            blocked=self._blocked.get(seen.name, ""),
            is_lost=seen.name in self.abandoned,
            in_cluster=in_cluster,
            is_ready=seen.is_ready or not in_cluster,
            is_cordoned=seen.is_cordoned,
            phase=seen.phase,
            outcome=self.ended.get(seen.name) or marked,
            was_refused=was_refused,
            residents=seen.residents,
        )


def _left(name: str, ended: str) -> Seen:
    """A machine that is not under way, as the last run left it."""
    outcome, _, plan = ended.partition(":")
    return Seen(name=name, outcome=Outcome(outcome) if outcome in set(Outcome) else Outcome.NONE, outcome_of=plan)
