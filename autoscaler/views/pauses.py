"""`spillway autoscale pause` and `resume`: what the cluster's ConfigMap of pauses is asked to hold."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from autoscaler.acting_policy import of_record
from autoscaler.kube import client as k8s
from autoscaler.kube.pauses_configmap import change_pauses, read_pauses
from autoscaler.kube.policy_configmap import PolicyRecord
from autoscaler.model.errors import BadInput, Unavailable
from autoscaler.model.pauses import Pause, in_force


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
