"""The policy that is obeyed now: taken over from where it is edited, without a restart; a bad edit changes nothing.

What is edited is read by a source (a file, or a ConfigMap that is watched). The loop asks :meth:`ActingPolicy.refresh`
between two turns, and decides by :meth:`ActingPolicy.current`, a plain value. The last good one is kept in the cluster:
an autoscaler that starts while the edited one is bad obeys that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from autoscaler.config.documents import parse_document
from autoscaler.config.policy import Policy
from autoscaler.config.policy_changes import changes, pending
from autoscaler.config.policy_file import Edition
from autoscaler.kube.client import Refused
from autoscaler.kube.policy_configmap import About, PolicyRecord, Record, Refusal
from autoscaler.model.cluster import Cluster, Group
from autoscaler.model.errors import BadInput, Unavailable
from autoscaler.reporting.report import Log

if TYPE_CHECKING:
    from autoscaler.reporting.metrics import Metrics

Tell = Callable[[str, str, bool], None]
"""Writes an Event: its reason, its message, and whether it is a warning."""


class PolicySource(Protocol):
    """Where the policy is edited."""

    def newest(self) -> Edition:
        """Returns the policy as it was written last. Raises ``Unavailable``."""


class Policies(Protocol):
    """What the loop asks for its policy."""

    def refresh(self, *, mine: bool) -> None:
        """Take over what was edited since; ``mine``: this autoscaler acts."""

    def current(self) -> Policy:
        """Returns the policy that is obeyed now."""

    def compare(self, groups: Sequence[Group]) -> None:
        """Tells what of the policy the groups do not have yet."""


@dataclass(frozen=True, slots=True)
class OnePolicy:
    """A policy for a single decision."""

    policy: Policy

    def refresh(self, *, mine: bool) -> None:
        """Reads nothing: the policy stays as it was given."""

    def current(self) -> Policy:
        """Returns the policy that was given."""
        return self.policy

    def compare(self, groups: Sequence[Group]) -> None:
        """Compares nothing: a policy that was given for one run is checked before it."""


class PolicyReport:
    """Tells of edits: in the log, as metrics, as Events where this autoscaler acts."""

    def __init__(self, log: Log, metrics: Metrics | None = None, *, tell: Tell = lambda *_: None) -> None:
        self._log = log
        self._metrics = metrics
        self._tell = tell
        self.acts = False

    def taken(self, origin: str, news: Sequence[str]) -> None:
        """A policy was taken over; ``news``: what it changes."""
        line = f"{origin} is taken over: {'; '.join(news) or 'it changes nothing'}"
        self._log.say("policy-taken", line, changes=list(news))
        self._count("taken", refused=False)
        self._event("PolicyTaken", line, is_warning=False)

    def refused(self, why: str, *, goes_on: str) -> None:
        """An edit was refused; ``goes_on``: by which policy it is acted."""
        self._log.say("policy-refused", f"the policy is not taken over, {goes_on} goes on: {why}")
        self._count("refused", refused=True)
        self.remind(why, goes_on=goes_on)

    def remind(self, why: str, *, goes_on: str) -> None:
        """The Event alone: this autoscaler begins to act."""
        self._event("PolicyRefused", f"{goes_on} goes on: {why}", is_warning=True)

    def pending(self, lines: Sequence[str]) -> None:
        """What waits for ``pulumi up`` is this now."""
        line = f"pending `pulumi up`: {'; '.join(lines)}" if lines else "nothing of the policy waits for `pulumi up`"
        self._log.say("policy-pending", line, pending=list(lines))
        if self._metrics:
            self._metrics.unbuilt.set(len(lines))
        self._event("PolicyPending" if lines else "PolicyBuilt", line, is_warning=False)

    def _count(self, outcome: str, *, refused: bool) -> None:
        if self._metrics:
            self._metrics.edits.labels(outcome).inc()
            self._metrics.refused.set(refused)

    def _event(self, reason: str, message: str, *, is_warning: bool) -> None:
        if self.acts:
            self._tell(reason, message, is_warning)


class ActingPolicy:
    """The policy of one running autoscaler. Used by the loop's thread alone, but for :meth:`status`."""

    def __init__(
        self,
        source: PolicySource,
        record: PolicyRecord,
        *,
        report: PolicyReport,
        identity: str,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Raises ``BadInput`` where the policy is bad and the cluster has no last good one, ``Unavailable``."""
        self._source = source
        self._record = record
        self._report = report
        self._identity = identity
        self._now = now
        self._listeners: list[Callable[[Policy], None]] = []
        self._seen = source.newest()
        self._refused: Refusal | None = None
        self._pending: tuple[str, ...] = ()
        self._compared: tuple[Policy, Sequence[Group]] | None = None
        self._was_mine = False
        try:
            self._policy, self._text = parsed(self._seen), self._seen.text
        except BadInput as bad:
            kept = self._kept(str(bad))
            self._policy, self._text = of_record(kept), kept.text
            self._since, self._origin = kept.about.since, kept.about.origin
            self._refuse(str(bad))
        else:
            self._since, self._origin = now(), self._seen.origin

    def on_change(self, obey: Callable[[Policy], None]) -> None:
        """Call ``obey`` too with each policy that is taken over from now on."""
        self._listeners.append(obey)

    def current(self) -> Policy:
        """Returns the last policy without mistakes."""
        return self._policy

    def refresh(self, *, mine: bool) -> None:
        """Take over what was edited since the last call. What is bad is told, and the last good one goes on.

        An autoscaler that begins to act while its edit is bad obeys the last good policy of the one that acted before.
        """
        try:
            edition = self._source.newest()
            if mine and not self._was_mine:
                self._begin_to_act()
        except Unavailable:  # the watch tells it; the next turn asks again
            return
        self._was_mine = self._report.acts = mine
        if edition != self._seen:
            self._seen = edition
            self._take(edition)
        if mine:
            self._record.write(Record(self._text, self._about()))

    def compare(self, groups: Sequence[Group]) -> None:
        """Tell what of the policy the groups that stand do not have yet, when that changes."""
        if self._compared == (self._policy, groups):
            return
        self._compared = (self._policy, groups)
        found = pending(self._policy, groups)
        if found != self._pending:
            self._pending = found
            self._report.pending(found)
            if self._was_mine:
                self._record.write(Record(self._text, self._about()))

    def status(self) -> dict[str, Any]:
        """What is obeyed, since when, from where; what was refused and what is pending."""
        about = self._about()
        return {
            "since": about.since.isoformat(timespec="seconds"),
            "origin": about.origin,
            "refused": about.refused.why if about.refused else "",
            "pending": list(about.pending),
        }

    def _about(self) -> About:
        return About(self._since, self._origin, self._identity, self._refused, self._pending)

    def _take(self, edition: Edition) -> None:
        try:
            wanted = parsed(edition)
        except BadInput as bad:
            self._refuse(str(bad))
            return
        fixed = {"cluster": self._policy.cluster, "region": self._policy.region}
        news = [str(change) for change in changes(self._policy, wanted)]
        self._obey(wanted.model_copy(update=fixed), edition.text, origin=edition.origin, since=self._now())
        self._refused = None
        self._report.taken(edition.origin, news)

    def _obey(self, policy: Policy, text: str, *, origin: str, since: datetime) -> None:
        self._policy, self._text, self._origin, self._since = policy, text, origin, since
        for obey in self._listeners:
            obey(policy)

    def _refuse(self, why: str) -> None:
        self._refused = Refusal(self._now(), why)
        self._report.refused(why, goes_on=self._goes_on())

    def _goes_on(self) -> str:
        return f"that of {self._origin}, since {self._since:%Y-%m-%d %H:%M:%S} UTC,"

    def _begin_to_act(self) -> None:
        self._record.forget()
        self._inherit()
        if self._refused is not None:
            self._report.acts = True
            self._report.remind(self._refused.why, goes_on=self._goes_on())

    def _inherit(self) -> None:
        """Takes over from the one that acted before since when the policy is obeyed, or the policy if ours is bad."""
        try:
            kept = self._record.read()
        except Refused:  # by rights of an older release, which the first write tells
            return
        if kept is None:
            return
        if kept.text == self._text:
            self._since = kept.about.since
        elif self._refused is not None:
            try:
                policy = of_record(kept)
            except BadInput:
                return
            self._obey(policy, kept.text, origin=kept.about.origin, since=kept.about.since)
            self._report.taken(f"the last good policy, of {kept.about.by},", [])

    def _kept(self, why: str) -> Record:
        """The last good policy of the cluster. Raises ``BadInput`` with ``why`` where there is none."""
        try:
            kept = self._record.read()
        except (Unavailable, Refused) as error:
            raise BadInput(f"{why}\nand the last good policy cannot be read from the cluster: {error}") from None
        if kept is None:
            raise BadInput(why)
        return kept


def parsed(edition: Edition) -> Policy:
    """The policy of an edition. Raises ``BadInput`` with every mistake."""
    if edition.problem:
        raise BadInput(edition.problem)
    return parse_document(edition.text, Policy, what="policy", source=edition.origin)


def of_record(record: Record) -> Policy:
    """The policy that was written down. Raises ``BadInput``."""
    return parse_document(record.text, Policy, what="policy", source=record.about.origin)


def as_priced(cluster: Cluster, policy: Policy) -> Cluster:
    """The look with the prices that the policy says now: AWS is asked only now and then."""
    prices = {
        (entry.name, " or ".join(entry.types)): entry.usd_per_hour
        for entry in policy.groups
        if entry.usd_per_hour is not None
    }
    groups = tuple(
        group if price in (None, group.usd_per_hour) else replace(group, usd_per_hour=price)
        for group in cluster.groups
        for price in (prices.get((group.entry, group.instance_type)),)
    )
    return cluster if groups == cluster.groups else replace(cluster, groups=groups)
