"""`spillway policy show`: the policy that the cluster's autoscaler decides by."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from autoscaler.kube import client as k8s
from autoscaler.kube.pauses_configmap import read_pauses
from autoscaler.kube.policy_configmap import PolicyRecord
from autoscaler.model.errors import Unavailable
from autoscaler.model.pauses import in_force
from autoscaler.replica.acting_replica import acting_replica
from autoscaler.views.policy import acting


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
