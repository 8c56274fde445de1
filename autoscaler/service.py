"""Puts the autoscaler's parts together: as a service, or for one decision."""

from __future__ import annotations

import secrets
import signal
import socket
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from autoscaler.acting_policy import ActingPolicy, OnePolicy, Policies, PolicyReport, parsed
from autoscaler.cloud import autoscaling_groups as aws
from autoscaler.cloud.clients import connect
from autoscaler.cloud.errors import Refused
from autoscaler.config.policy import Policy
from autoscaler.config.policy_file import PolicyFile
from autoscaler.config.signals import on_first_of
from autoscaler.executor import Executor
from autoscaler.kube import client as k8s
from autoscaler.kube.cache import Store
from autoscaler.kube.leader_election import Lease
from autoscaler.kube.ledger_configmaps import LedgerBooks
from autoscaler.kube.memory_configmap import MemoryConfigMap
from autoscaler.kube.pauses_configmap import pauses_kind
from autoscaler.kube.policy_configmap import PREFIX, PolicyConfigMap, PolicyRecord
from autoscaler.kube.watched_kinds import NODES, PODS
from autoscaler.kube.watcher import Observer
from autoscaler.kube.writes import Writes
from autoscaler.loop import Loop
from autoscaler.model import labels as words
from autoscaler.model.errors import Unavailable
from autoscaler.planner.obstacles.answer_cache import AnswerCache
from autoscaler.planner.plan import plan
from autoscaler.planner.sanity_check import Counts
from autoscaler.planner.supply.node_cache import NodeCache
from autoscaler.record.writer import Recorder
from autoscaler.replica.acting_replica import door_of
from autoscaler.replica.answers import answers_of
from autoscaler.replica.door import Answer, Door
from autoscaler.reporting.bookkeeper import Bookkeeper
from autoscaler.reporting.messenger import Messenger
from autoscaler.reporting.notifications import Notifier
from autoscaler.reporting.report import Log, Report
from autoscaler.watches.auto_scaling_groups import GroupWatch
from autoscaler.watches.dcgm_exporter import DcgmExporterWatch
from autoscaler.watches.interruptions import InterruptionWatch

if TYPE_CHECKING:
    from autoscaler.reporting.metrics import Metrics

_LISTED_WITHIN: Final = 5.0
"""Seconds that an answer waits for what the first pods with volumes ask about."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the command line says."""

    policy: str
    """Where it stands: the path of a file, or ``configmap:NAMESPACE/NAME``."""
    kubeconfig: Path | None = None
    namespace: str = words.NAMESPACE
    identity: str | None = None
    dry_run: bool = False
    log_format: Any = None
    metrics_port: int | None = None
    record: Path | None = None
    """Folder in which every decision is written down."""
    record_bytes: int = 256 * 2**20

    def name(self) -> str:
        """Identity in the lease: two autoscalers on one host differ."""
        return self.identity or f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"


def serve(settings: Settings) -> None:
    """Watch and act until SIGTERM or SIGINT. Raises ``BadInput`` or ``Unavailable`` where it cannot begin."""
    _Replica(settings).run()


class _Replica:
    """One process of the service: its parts, each made of those before it. Raises as :func:`serve`."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._identity = settings, settings.name()
        self._metrics, self._door = _metrics(), Door(settings.metrics_port)
        self._log = Log(settings.log_format)
        self._report = Report(self._log, self._metrics)
        self._kube, self._store = _connect(settings), Store()
        self._source = _source(settings.policy, self._kube, self._store)
        self._messenger = Messenger(Writes(self._kube), failed=self._report.outage)
        self._policies = self._acting_policy()
        self._secret = secrets.token_urlsafe()
        self._lease = self._made_lease()
        policy = self._policies.current
        self._log.hears = Notifier(self._messenger, policy=policy, acts=self._lease.is_mine).hear
        self._parties = Parties.of(self._kube, self._store, policy(), settings.namespace, warn=self._report.note)
        self._groups = GroupWatch(ec2=self._parties.ec2, store=self._store, outage=self._report.outage)
        self._dcgm = self._made_dcgm()
        self._watches = self._made_watches()
        self._policies.on_change(self._parties.ec2.obey)
        self._policies.on_change(lambda _policy: self._groups.soon())
        self._bookkeeper = Bookkeeper(
            LedgerBooks(self._kube, namespace=settings.namespace, tell=self._report.outage, read_only=settings.dry_run)
        )
        self._recorder = _recorder(settings, self._identity, self._report, self._metrics)
        self._loop = self._made_loop()

    def run(self) -> None:
        """Runs until a signal ends it, or a defect of ours in one of its threads."""
        self._open_door()
        on_first_of((signal.SIGTERM, signal.SIGINT), self._loop.stop)  # the step at hand is finished first
        broken = _stop_when_a_thread_breaks(self._loop)
        self._report.note(_greeting(self._settings, self._policies.current(), self._kube))
        for watch in self._watches:
            watch.start()
        self._source.start(self._store.wake)
        if not self._settings.dry_run:
            self._lease.start()
        try:
            self._loop.run()
        finally:
            self._stop()
        if broken:
            raise broken[0]

    def _stop(self) -> None:
        """End each part; the lease is given up after all that writes."""
        if self._lease.is_mine():
            self._bookkeeper.close()
        for part in (self._source, *self._watches, self._messenger, self._lease):
            part.stop()
        if self._recorder is not None:
            self._recorder.stop()
        self._report.note("stopped; another autoscaler may act now")

    def _acting_policy(self) -> ActingPolicy:
        """The policy, followed while it is edited; a dry run writes no Events of it."""
        settings, report = self._settings, self._report

        def tell(reason: str, message: str, is_warning: bool) -> None:  # noqa: FBT001 - as the report calls it
            if not settings.dry_run:
                self._messenger.policy(settings.namespace, reason, message, is_warning=is_warning)

        record = PolicyRecord(self._kube, settings.namespace, tell=report.outage, read_only=settings.dry_run)
        told = PolicyReport(self._log, self._metrics, tell=tell)
        return ActingPolicy(self._source, record, report=told, identity=self._identity)

    def _made_lease(self) -> Lease:
        """The lease, with the address of our door; when its holder changes that is logged, and the loop looks again."""

        def changed_hands(line: str) -> None:
            self._report.note(line)
            self._store.wake()

        is_reached_from_afar = self._settings.metrics_port is not None
        return Lease(
            self._kube,
            namespace=self._settings.namespace,
            identity=self._identity,
            door=door_of(self._door.port, self._secret, is_reached_from_afar=is_reached_from_afar),
            on_change=changed_hands,
        )

    def _made_watches(self) -> tuple[Observer | GroupWatch | InterruptionWatch | DcgmExporterWatch, ...]:
        """The threads that follow what is outside."""
        lease, settings, outage = self._lease, self._settings, self._report.outage
        followed = [self._source.kind] if isinstance(self._source, PolicyConfigMap) else []
        return (
            Observer(self._kube, self._store, also=[pauses_kind(settings.namespace), *followed], tell=outage),
            self._groups,
            InterruptionWatch(
                self._parties.ec2.interruption_queue(),
                self._store,
                acts=lambda: lease.is_mine() and not settings.dry_run,
                outage=outage,
                note=self._report.note,
            ),
            self._dcgm,
        )

    def _made_dcgm(self) -> DcgmExporterWatch:
        """The thread that follows the use and the errors of GPUs."""
        return DcgmExporterWatch(
            self._kube,
            self._store,
            policy=self._policies.current,
            acts=lambda: self._lease.is_mine() or self._settings.dry_run,
            outage=self._report.outage,
        )

    def _made_loop(self) -> Loop:
        """What decides; the metrics read its last decision."""
        loop = self._parties.loop(
            self._settings,
            self._policies,
            report=self._report,
            leader=self._lease,
            messenger=self._messenger,
            bookkeeper=self._bookkeeper,
            set_in_motion=self._groups.soon,
            recorder=self._recorder,
        )
        self._metrics.watch(lambda: loop.last)
        return loop

    def _open_door(self) -> None:
        """Serve metrics, health, status and, under a path that only the lease names, the answers of ``explain``."""
        known_for = partial(self._store.known_for, seconds=_LISTED_WITHIN)
        found = answers_of(
            lambda: self._loop.last, self._settings.record, known_for=known_for, devices=self._dcgm.devices
        )
        answers: dict[str, Answer] = {
            "status": lambda _question: self._status(),
            **{f"{self._secret}/{name}": answer for name, answer in found.items()},
        }
        self._door.open(metrics=self._metrics.app(), why_not_alive=self._report.why_not_alive, answers=answers)

    def _status(self) -> dict[str, Any]:
        """Returns what ``/status`` answers."""
        return {
            "identity": self._lease.identity,
            "acting": self._lease.is_mine(),
            "paused": {scope: str(pause) for scope, pause in self._report.pauses.items()},
            "policy": self._policies.status() | {"schedules": self._report.schedules},
        }


def _metrics() -> Metrics:
    """Imported only where an autoscaler runs."""
    from autoscaler.reporting.metrics import Metrics  # noqa: PLC0415

    return Metrics()


def _recorder(settings: Settings, identity: str, report: Report, metrics: Metrics | None = None) -> Recorder | None:
    """What writes decisions down; ``None`` where that is not asked for."""
    if settings.record is None:
        return None

    def written(at: datetime) -> None:
        if metrics is not None:
            metrics.recorded.set(at.timestamp())

    return Recorder(
        settings.record, at_most=settings.record_bytes, identity=identity, tell=report.outage, written=written
    )


def run_once(settings: Settings) -> None:
    """Decides once and carries the plan out.

    Raises ``Unavailable`` where a party does not answer, another autoscaler acts, or a step failed.
    """
    report = Report(Log(settings.log_format))
    kube, store = _connect(settings), Store()
    policy = parsed(_source(settings.policy, kube, store).read())
    parties = Parties.of(kube, store, policy, settings.namespace, warn=report.note)
    parties.look()
    identity = settings.name()
    lease = Lease(parties.kube, namespace=settings.namespace, identity=identity)
    messenger = Messenger(Writes(parties.kube), failed=report.outage)
    recorder = _recorder(settings, identity, report)
    loop = parties.loop(
        settings, OnePolicy(policy), report=report, leader=lease, messenger=messenger, recorder=recorder
    )
    if not settings.dry_run:
        _hold(lease, settings.namespace)
    try:
        decided = loop.once()
    finally:
        messenger.stop()
        if recorder is not None:
            recorder.stop()
        if not settings.dry_run:
            lease.stop()
    if not decided.steps:
        report.note("nothing to do")
    if report.failures:
        raise Unavailable(f"{report.failures} of {len(decided.steps)} steps failed: see the lines above")


_HOLDS_A_NODE: Final = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
"""Pods that are bound and have not finished, as the API server selects them."""


@dataclass(frozen=True, slots=True)
class Parties:
    """Whom we talk to, and the store of what they say."""

    kube: k8s.Kube
    ec2: aws.Ec2
    store: Store
    namespace: str
    """Where the autoscaler's lease and memory are."""

    @classmethod
    def of(
        cls, kube: k8s.Kube, store: Store, policy: Policy, namespace: str, *, warn: Callable[[str], None]
    ) -> Parties:
        """Raises ``BadInput`` or ``Unavailable`` where AWS cannot be reached."""
        return cls(kube, aws.Ec2(policy, connect(policy.region), warn=warn), store, namespace)

    def look(self) -> None:
        """List everything once. Raises ``Unavailable``."""
        try:
            Observer(self.kube, self.store, also=[pauses_kind(self.namespace)]).look_once()
            GroupWatch(ec2=self.ec2, store=self.store, outage=lambda _party, _why: None).look()
        except k8s.Refused as refused:
            raise Unavailable(f"the API server refuses: {refused}") from None
        except Refused as refused:
            raise Unavailable(f"AWS refuses: {refused}") from None

    def counts(self) -> Counts:
        """How many nodes, instances and busy nodes there are, asked anew. Raises ``Unavailable`` or ``Refused``."""
        nodes = sum(len(raws) for raws, _ in self.kube.pages(NODES.path))
        pods = (
            PODS.decode(raw)[1] for raws, _ in self.kube.pages(PODS.path, fieldSelector=_HOLDS_A_NODE) for raw in raws
        )
        busy = {pod.node for pod in pods if not pod.is_daemon}
        return Counts(nodes, sum(len(group.instances) for group in self.ec2.groups()), len(busy))

    def loop(
        self,
        settings: Settings,
        policies: Policies,
        *,
        report: Report,
        leader: Lease,
        messenger: Messenger,
        bookkeeper: Bookkeeper | None = None,
        set_in_motion: Callable[[], None] = lambda: None,
        recorder: Recorder | None = None,
    ) -> Loop:
        """What decides by the store and acts on the parties."""
        self.ec2.writes.may_write = leader.is_mine
        return Loop(
            policies=policies,
            planner=partial(plan, cache=NodeCache(), answers=AnswerCache()),
            store=self.store,
            executor=Executor(kube=Writes(self.kube, may_write=leader.is_mine), ec2=self.ec2, store=self.store),
            confirm=self.counts,
            report=report,
            leader=leader,
            memory_map=MemoryConfigMap(
                self.kube, namespace=settings.namespace, tell=report.outage, read_only=settings.dry_run
            ),
            messenger=messenger,
            bookkeeper=bookkeeper,
            set_in_motion=set_in_motion,
            dry_run=settings.dry_run,
            recorder=recorder,
        )


def _connect(settings: Settings) -> k8s.Kube:
    """Raises ``BadInput`` or ``Unavailable``; where the policy file is bad, that is said before."""
    try:
        return k8s.Kube.connect(settings.kubeconfig)
    except Unavailable:
        if not settings.policy.startswith(PREFIX):
            parsed(PolicyFile(Path(settings.policy)).read())
        raise


def _source(where: str, kube: k8s.Kube, store: Store) -> PolicyFile | PolicyConfigMap:
    return PolicyConfigMap(kube, store, where) if where.startswith(PREFIX) else PolicyFile(Path(where))


def _hold(lease: Lease, namespace: str) -> None:
    try:
        holder = lease.try_once()
    except k8s.Refused as refused:
        raise Unavailable(f"the lease {namespace}/{words.LEASE} cannot be had: {refused}") from None
    if not lease.is_mine():
        raise Unavailable(
            f"{holder} holds the lease {namespace}/{words.LEASE}: one autoscaler acts at a time; "
            "stop it, or use --dry-run"
        )


def _stop_when_a_thread_breaks(loop: Loop) -> list[BaseException]:
    """A defect of ours must not leave half an autoscaler: all of it ends, and what supervises it starts it anew."""
    broken: list[BaseException] = []

    def stop(death: threading.ExceptHookArgs) -> None:
        if death.exc_value is not None:
            broken.append(death.exc_value)
        loop.stop()

    threading.excepthook = stop
    return broken


def _greeting(settings: Settings, policy: Policy, kube: k8s.Kube) -> str:
    entries = ", ".join(f"{group.name} (at most {group.max})" for group in policy.groups)
    return f"watching {kube.url} for cluster {policy.cluster} in {policy.region}; groups: {entries or 'none'}" + (
        "; dry run: nothing is changed" if settings.dry_run else ""
    )
