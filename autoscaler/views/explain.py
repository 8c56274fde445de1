"""`spillway autoscale explain`: asked of the replica that acts, of its record, or worked out here."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from autoscaler.acting_policy import of_record
from autoscaler.config.policy import Policy
from autoscaler.kube import client as k8s
from autoscaler.kube.cache import Store
from autoscaler.kube.memory_configmap import MemoryConfigMap
from autoscaler.kube.policy_configmap import PolicyRecord
from autoscaler.model.errors import BadInput, Unavailable
from autoscaler.planner.explanation.explain import explain
from autoscaler.planner.plan import plan
from autoscaler.record.decisions import Decision
from autoscaler.record.reader import decision_at
from autoscaler.replica.acting_replica import acting_replica, asked
from autoscaler.service import Parties


def explained(
    kind: str,
    name: str,
    *,
    kubeconfig: Path | None,
    namespace: str,
    policy: Policy | None = None,
    at: datetime | None = None,
) -> Iterator[str]:
    """Lines about it; where no replica acts, that is the first. ``name`` of a pod or a job: ``namespace/name``.

    ``policy``: what it would come to by that one, worked out here, which is said first where a replica acts. ``at``: by
    the record of the acting replica. Raises ``BadInput`` where there is no such thing, ``Unavailable``.
    """
    kube = k8s.Kube.connect(kubeconfig)
    try:
        replica = acting_replica(kube, namespace=namespace)
    except k8s.Refused as refused:
        raise Unavailable(f"the API server refuses: {refused}") from None
    if not replica.acts:
        yield replica.in_words(datetime.now(UTC))
    if policy is not None:
        if replica.acts:
            yield f"{replica.name} acts by its own policy; by the one that was named:"
        yield from _worked_out(kube, kind, name, policy, namespace)
        return
    if replica.acts and (replica.door or at):
        query = {"at": at.isoformat()} if at else {}
        try:
            yield from asked(kube, replica, "explain", kind, *name.split("/"), namespace=namespace, query=query)[
                "lines"
            ]
        except Unavailable as silent:
            if at:
                raise
            yield f"{silent}; worked out here:"
        else:
            return
    if at:
        raise BadInput("--at is answered by the acting replica: where none acts, name its record (--record FOLDER)")
    yield from _worked_out(kube, kind, name, None, namespace)


def explained_by_record(kind: str, name: str, *, record: Path, at: datetime | None) -> Iterator[str]:
    """Lines by the decision that held at that time, else by the last one. Raises ``BadInput``."""
    found = decision_at(record, at or datetime.max.replace(tzinfo=UTC))
    if found is None:
        raise BadInput(f"{record}: the record begins later")
    yield f"decided at {found.cluster.seen_at:%Y-%m-%d %H:%M:%S} UTC:"
    yield from explain(kind, name, found.cluster, found.policy, found.plan)


def decide_here(kube: k8s.Kube, namespace: str, policy: Policy | None = None) -> Decision:
    """What would be decided now, from what the acting one would see and what it remembers.

    ``policy``: ``None`` is the acting one's. Raises ``BadInput`` where there is none, ``Unavailable``.
    """
    obeyed = policy or _acting_policy(kube, namespace)
    parties = Parties.of(kube, Store(), obeyed, namespace, warn=lambda _line: None)
    parties.look()
    cluster = parties.store.cluster(datetime.now(UTC))
    memory = MemoryConfigMap(parties.kube, namespace=namespace, read_only=True).read()
    held = obeyed.at(cluster.seen_at)
    return Decision(cluster, held, memory, plan(cluster, held, memory))


def _acting_policy(kube: k8s.Kube, namespace: str) -> Policy:
    record = PolicyRecord(kube, namespace).read()
    if record is None:
        raise BadInput(f"no autoscaler has written down its policy in namespace {namespace}: name one (--policy)")
    return of_record(record)


def _worked_out(kube: k8s.Kube, kind: str, name: str, policy: Policy | None, namespace: str) -> tuple[str, ...]:
    found = decide_here(kube, namespace, policy)
    return explain(kind, name, found.cluster, found.policy, found.plan)
