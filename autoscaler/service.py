"""Puts the autoscaler's parts together: as a service, or for one decision."""

from __future__ import annotations

import secrets
import signal
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from autoscaler.acting_policy import ActingPolicy, OnePolicy, Policies, PolicyReport, of_record, parsed
from autoscaler.acting_replica import acting_replica, door_of
from autoscaler.answers import answers_of
from autoscaler.bookkeeper import Bookkeeper
from autoscaler.cloud import autoscaling_groups as aws
from autoscaler.cloud.errors import Refused
from autoscaler.config.policy import Policy
from autoscaler.config.policy_file import PolicyFile
from autoscaler.config.signals import on_first_of
from autoscaler.door import Answer, Door
from autoscaler.executor import Executor
from autoscaler.gpu_use_watch import GpuUseWatch
from autoscaler.interruption_watch import InterruptionWatch
from autoscaler.kube import client as k8s
from autoscaler.kube.cache import Store
from autoscaler.kube.leader_election import Lease
from autoscaler.kube.ledger_configmaps import LedgerBooks
from autoscaler.kube.memory_configmap import MemoryConfigMap
from autoscaler.kube.pauses_configmap import change_pauses, pauses_kind, read_pauses
from autoscaler.kube.policy_configmap import PREFIX, PolicyConfigMap, PolicyRecord
from autoscaler.kube.watched_kinds import NODES, PODS
from autoscaler.kube.watcher import Observer
from autoscaler.kube.writes import Writes
from autoscaler.loop import GroupWatch, Loop
from autoscaler.messenger import Messenger
from autoscaler.model import labels as words
from autoscaler.model.errors import BadInput, Unavailable
from autoscaler.model.pauses import Pause, in_force
from autoscaler.notifications import Notifier
from autoscaler.planner.obstacles.answer_cache import AnswerCache
from autoscaler.planner.plan import plan
from autoscaler.planner.sanity_check import Counts
from autoscaler.planner.supply.node_cache import NodeCache
from autoscaler.policy_words import acting
from autoscaler.record.writer import Recorder
from autoscaler.report import Log, Report
from autoscaler.spending import By, as_focus, sums

if TYPE_CHECKING:
    from autoscaler.metrics import Metrics


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
    metrics, door = _metrics(), Door(settings.metrics_port)
    log, identity = Log(settings.log_format), settings.name()
    report = Report(log, metrics)
    kube, store = _connect(settings), Store()
    source = _source(settings.policy, kube, store)
    messenger = Messenger(Writes(kube), failed=report.outage)
    told = PolicyReport(log, metrics, tell=_teller(settings, messenger))
    record = PolicyRecord(kube, settings.namespace, tell=report.outage, read_only=settings.dry_run)
    policies = ActingPolicy(source, record, report=told, identity=identity)
    secret = secrets.token_urlsafe()
    address = door_of(door.port, secret, is_reached_from_afar=settings.metrics_port is not None)
    lease = _lease(settings, identity, kube, store, report, door=address)
    log.hears = Notifier(messenger, policy=policies.current, acts=lease.is_mine).hear
    parties = Parties.of(kube, store, policies.current(), settings.namespace, warn=report.note)
    followed = [source.kind] if isinstance(source, PolicyConfigMap) else []
    observer = Observer(kube, store, also=[pauses_kind(settings.namespace), *followed], tell=report.outage)
    groups = GroupWatch(ec2=parties.ec2, store=store, outage=report.outage)
    policies.on_change(parties.ec2.obey)
    policies.on_change(lambda _policy: groups.soon())

    books = LedgerBooks(kube, namespace=settings.namespace, tell=report.outage, read_only=settings.dry_run)
    bookkeeper = Bookkeeper(books)
    recorder = _recorder(settings, identity, report, metrics)
    loop = parties.loop(
        settings,
        policies,
        report=report,
        leader=lease,
        messenger=messenger,
        bookkeeper=bookkeeper,
        set_in_motion=groups.soon,
        recorder=recorder,
    )
    metrics.watch(lambda: loop.last)
    answers: dict[str, Answer] = {
        "status": lambda _question: _status(lease, report, policies),
        **{f"{secret}/{name}": answer for name, answer in answers_of(lambda: loop.last, settings.record).items()},
    }
    door.open(metrics=metrics.app(), why_not_alive=report.why_not_alive, answers=answers)
    interruptions = InterruptionWatch(
        parties.ec2.interruption_queue(),
        store,
        acts=lambda: lease.is_mine() and not settings.dry_run,
        outage=report.outage,
        note=report.note,
    )
    gpu_use = GpuUseWatch(
        kube, store, policy=policies.current, acts=lambda: lease.is_mine() or settings.dry_run, outage=report.outage
    )
    on_first_of((signal.SIGTERM, signal.SIGINT), loop.stop)  # the step at hand is finished first
    broken = _stop_when_a_thread_breaks(loop)
    report.note(_greeting(settings, policies.current(), kube))
    observer.start()
    groups.start()
    interruptions.start()
    gpu_use.start()
    source.start(store.wake)
    if not settings.dry_run:
        lease.start()
    try:
        loop.run()
    finally:
        if lease.is_mine():
            bookkeeper.close()
        for part in (
            source,
            groups,
            interruptions,
            gpu_use,
            observer,
            messenger,
            lease,
            *([recorder] if recorder else []),
        ):
            part.stop()
        report.note("stopped; another autoscaler may act now")
    if broken:
        raise broken[0]


def _lease(settings: Settings, identity: str, kube: k8s.Kube, store: Store, report: Report, *, door: str) -> Lease:
    """The lease; when its holder changes that is logged, and the loop looks again."""

    def changed_hands(line: str) -> None:
        report.note(line)
        store.wake()

    return Lease(kube, namespace=settings.namespace, identity=identity, door=door, on_change=changed_hands)


def _metrics() -> Metrics:
    """Imported only where an autoscaler runs."""
    from autoscaler.metrics import Metrics  # noqa: PLC0415

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


def _teller(settings: Settings, messenger: Messenger) -> Callable[[str, str, bool], None]:
    """What writes Events of the policy; a dry run writes none."""

    def tell(reason: str, message: str, is_warning: bool) -> None:  # noqa: FBT001 - as the report calls it
        if not settings.dry_run:
            messenger.policy(settings.namespace, reason, message, is_warning=is_warning)

    return tell


def _status(lease: Lease, report: Report, policies: ActingPolicy) -> dict[str, Any]:
    """What ``/status`` answers."""
    return {
        "identity": lease.identity,
        "acting": lease.is_mine(),
        "paused": {scope: str(pause) for scope, pause in report.pauses.items()},
        "policy": policies.status() | {"schedules": report.schedules},
    }


def run_once(settings: Settings) -> None:
    """One decision, carried out.

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


def spending(month: str, by: By, *, kubeconfig: Path | None, namespace: str, wants_csv: bool) -> Iterator[str]:
    """Lines that say what nodes have cost in a month (``2026-11``), or FOCUS columns. Raises ``Unavailable``."""
    kube = k8s.Kube.connect(kubeconfig)
    try:
        ledger = LedgerBooks(kube, namespace=namespace, read_only=True).read([month])
        record = PolicyRecord(kube, namespace).read() if wants_csv else None
    except k8s.Refused as refused:
        raise Unavailable(f"the API server refuses: {refused}") from None
    if wants_csv:
        yield as_focus(ledger, region=of_record(record).region if record else "").rstrip("\n")
    else:
        yield from sums(ledger, by)


def acting_policy(kubeconfig: Path | None, *, namespace: str, wants_json: bool) -> Iterator[str]:
    """Lines that say by which policy the acting autoscaler decides, then its text. Raises ``Unavailable``."""
    kube = k8s.Kube.connect(kubeconfig)
    try:
        record = PolicyRecord(kube, namespace).read()
        replica = acting_replica(kube, namespace=namespace)
        pauses = in_force(read_pauses(kube, namespace=namespace), datetime.now(UTC))
    except k8s.Refused as refused:
        raise Unavailable(f"the API server refuses: {refused}") from None
    if wants_json:
        said = {"holder": replica.name, "renewed": replica.renewed, "paused": pauses} | (
            {"text": record.text} if record else {}
        )
        yield msgspec.json.encode(said | (msgspec.to_builtins(record.about) if record else {})).decode()
        return
    yield from acting(record, replica=replica, now=datetime.now(UTC), pauses=pauses)
    if record:
        yield from ("---", record.text.rstrip("\n"))


def pause(wanted: Pause, *, kubeconfig: Path | None, namespace: str) -> Iterator[str]:
    """Have the autoscaler leave something alone. Raises ``BadInput`` for a group that its policy does not have."""
    kube = k8s.Kube.connect(kubeconfig)
    try:
        record = PolicyRecord(kube, namespace).read()
        names = [entry.name for entry in of_record(record).groups] if record else []
        if wanted.group and record and wanted.group not in names:
            raise BadInput(f"--group {wanted.group}: the acting policy has no such group: it has {', '.join(names)}")
        change_pauses(
            kube, lambda found: (*(one for one in found if one.scope != wanted.scope), wanted), namespace=namespace
        )
    except k8s.Refused as refused:
        raise Unavailable(f"the API server refuses: {refused}") from None
    yield str(wanted)


def resume(scope: str, *, kubeconfig: Path | None, namespace: str) -> Iterator[str]:
    """End a pause; says what stays paused."""
    kube, now = k8s.Kube.connect(kubeconfig), datetime.now(UTC)
    try:
        before = {one.scope: one for one in in_force(read_pauses(kube, namespace=namespace), now)}
        left = change_pauses(
            kube, lambda found: tuple(one for one in in_force(found, now) if one.scope != scope), namespace=namespace
        )
    except k8s.Refused as refused:
        raise Unavailable(f"the API server refuses: {refused}") from None
    yield (
        f"{before[scope].what} goes on" if scope in before else f"nothing to resume: {Pause(scope).what} is not paused"
    )
    yield from (f"still: {one}" for one in left)


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
        return cls(kube, aws.Ec2(policy, aws.connect(policy.region), warn=warn), store, namespace)

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
        self.ec2.may_write = leader.is_mine
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
