"""The replica that acts: which one it is, whether it does, and what it answers at its door."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import quote, urlencode

import msgspec
import urllib3

from autoscaler.config.documents import span_in_words
from autoscaler.kube.client import Kube, Refused, reason_of
from autoscaler.kube.leader_election import LASTS, Holder, holder_of
from autoscaler.model.errors import BadInput, Unavailable
from autoscaler.replica.door import ERROR, UNAVAILABLE

_POD: Final = "pod:"
_WITHIN: Final = urllib3.Timeout(connect=2, read=10)


@dataclass(frozen=True, slots=True)
class Replica:
    """The replica that holds the lease, or held it last."""

    name: str
    """Empty where the lease is not held."""
    renewed: datetime | None
    door: str
    """Where it answers; empty where it does not."""
    acts: bool

    @classmethod
    def of(cls, found: Holder, now: datetime) -> Replica:
        """The holder as it is seen now: it acts while it renews the lease."""
        age = now - found.renewed if found.renewed else timedelta.max
        return cls(found.name, found.renewed, found.door, acts=bool(found.name) and age <= timedelta(seconds=LASTS))

    def in_words(self, now: datetime) -> str:
        """One line: that it acts, or that none does, and when the last one wrote."""
        if self.acts:
            return f"acting: {self.name}"
        if not self.name:
            return "no autoscaler acts: the lease is not held"
        age = now - self.renewed if self.renewed else None
        ago = f"{span_in_words(timedelta(seconds=round(age.total_seconds())))} ago" if age else "long ago"
        return f"no autoscaler acts: {self.name} held the lease last, and renewed it {ago}"


def acting_replica(kube: Kube, *, namespace: str) -> Replica:
    """The holder of the lease. Raises ``Refused`` or ``Unavailable``."""
    return Replica.of(holder_of(kube, namespace=namespace), datetime.now(UTC))


def door_of(port: int, secret: str, *, is_reached_from_afar: bool) -> str:
    """What a replica with that port writes into its lease: a pod is reached through the API server, a host by name.

    ``secret``: the first part of the path of answers that name pods and nodes; the right to read the lease is the
    right to ask. A port of the loopback alone is of no use in a pod.
    """
    pod = os.environ.get("POD_NAME", "") if "KUBERNETES_SERVICE_HOST" in os.environ else ""
    if pod:
        return f"{_POD}{pod}:{port}/{secret}" if is_reached_from_afar else ""
    return f"http://{socket.gethostname()}:{port}/{secret}"


def asked(
    kube: Kube,
    replica: Replica,
    *path: str,
    namespace: str,
    query: Mapping[str, str] | None = None,
    body: bytes | None = None,
) -> Any:
    """Its answer; ``body``: JSON that goes with the question.

    Raises ``BadInput`` where it says that the question is wrong, ``Unavailable`` where it has no answer yet, or is
    silent.
    """
    if not replica.door:
        raise Unavailable(f"{replica.name} answers nowhere: it was started without --metrics-port")
    where = "/".join(quote(part, safe="") for part in path) + (f"?{urlencode(query)}" if query else "")
    try:
        answer = msgspec.json.decode(_fetched(kube, replica.door, where, namespace, body))
    except (Refused, msgspec.DecodeError, urllib3.exceptions.HTTPError) as error:
        why = reason_of(error) if isinstance(error, urllib3.exceptions.HTTPError) else error
        shown = replica.door.rpartition("/")[0]  # without the secret
        raise Unavailable(f"{replica.name} does not answer at {shown}: {why}") from None
    if isinstance(answer, dict) and ERROR in answer:
        raise BadInput(answer[ERROR])
    if isinstance(answer, dict) and UNAVAILABLE in answer:
        raise Unavailable(answer[UNAVAILABLE])
    return answer


def ask_acting(kube: Kube, *path: str, namespace: str, body: bytes | None = None) -> Any:
    """What the replica that acts now answers.

    Raises ``BadInput`` and ``Unavailable`` as :func:`asked`; ``Unavailable`` also where none acts, or the lease may not
    be read.
    """
    try:
        replica = acting_replica(kube, namespace=namespace)
    except Refused as refused:
        raise Unavailable(f"the API server refuses: {refused}") from None
    if not replica.acts:
        raise Unavailable(replica.in_words(datetime.now(UTC)))
    return asked(kube, replica, *path, namespace=namespace, body=body)


def _fetched(kube: Kube, door: str, where: str, namespace: str, body: bytes | None) -> bytes:
    method = "GET" if body is None else "POST"
    if door.startswith(_POD):
        pod, _, secret = door.removeprefix(_POD).partition("/")
        proxied = f"/api/v1/namespaces/{namespace}/pods/{pod}/proxy/{secret}/{where}"
        return kube.send(method, proxied, None if body is None else msgspec.Raw(body))
    own = f"http://{socket.gethostname()}:"  # a host's own name need not be known to it
    base = door.replace(own, "http://127.0.0.1:", 1)
    with urllib3.PoolManager(retries=False, timeout=_WITHIN) as pool:
        return pool.request(method, f"{base}/{where}", body=body).data
