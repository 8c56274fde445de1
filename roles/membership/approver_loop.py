"""`spillway nodes approve`: rounds of :mod:`roles.membership.approver` until it is told to stop; of several, one acts.

An outside party that is away is told once, and asked again, a little later each time.
"""

from __future__ import annotations

import signal
import socket
import sys
import threading
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError

from autoscaler.config.signals import on_first_of
from autoscaler.kube.client import Kube
from autoscaler.kube.leader_election import Lease
from autoscaler.model import labels as words
from autoscaler.model.errors import BadInput, Unavailable
from roles.membership.approver import Approver, Round

EVERY: Final = 3.0
LONGEST_WAIT: Final = 60.0
Tell = Callable[[str], None]


def approve(
    *, cluster: str, region: str, kubeconfig: Path | None, namespace: str, identity: str | None, once: bool
) -> int:
    """Let instances in, until SIGTERM or SIGINT; ``once``: one round, whoever else acts."""
    kube = _connected(kubeconfig, patient=not once)
    ec2, ssm = _client("ec2", region), _client("ssm", region)
    approver, teller = Approver(kube, ec2=ec2, ssm=ssm, cluster=cluster), Teller(_print)
    if once:
        teller.tell(approver.round())
        return 0
    name = identity or f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"
    lease = Lease(kube, namespace=namespace, identity=name, name=words.APPROVER, on_change=_print)
    over = threading.Event()
    on_first_of((signal.SIGTERM, signal.SIGINT), over.set)
    lease.start()
    try:
        rounds(approver.round, teller=teller, may=lease.is_mine, over=over)
    finally:
        lease.stop()
    return 0


def rounds(round_: Callable[[], Round], *, teller: Teller, may: Callable[[], bool], over: threading.Event) -> None:
    """One after the other, while we may, until it is over. What is out of reach is asked again, later and later."""
    wait = EVERY
    while not over.wait(wait):
        if not may():
            wait = EVERY
            continue
        try:
            done = round_()
        except Unavailable as outage:
            teller.outage(str(outage))
            wait = min(LONGEST_WAIT, wait * 2)
            continue
        teller.tell(done)
        wait = EVERY


class Teller:
    """Says each thing once, for as long as it stays the same."""

    def __init__(self, say: Tell) -> None:
        self._say, self._outage = say, ""
        self._problems: dict[str, str] = {}
        self._refused: set[str] = set()

    def outage(self, why: str) -> None:
        """Says once that a party cannot be reached."""
        if why != self._outage:
            self._say(f"no node is let in: {why}")
        self._outage = why

    def tell(self, done: Round) -> None:
        """Says what a round did."""
        if self._outage:
            self._say("all parties answer again")
        self._outage = ""
        for line in done.told:
            self._say(line)
        for one in done.verdicts:
            if not one.refused_because:
                self._say(f"{one.node}: certificate {one.request} approved")
            elif one.request not in self._refused:
                self._say(f"{one.node}: certificate {one.request} is not approved: {one.refused_because}")
        for instance, why in done.problems.items():
            if self._problems.get(instance) != why:
                self._say(f"{instance}: {why}")
        self._refused = {one.request for one in done.verdicts if one.refused_because}
        self._problems = dict(done.problems)


def _connected(kubeconfig: Path | None, *, patient: bool) -> Kube:
    """Connects; as a service it may come up before the API server is there, and ``rounds`` waits for it."""
    if not patient:
        return Kube.connect(kubeconfig)
    from autoscaler.kube.credentials import Account  # noqa: PLC0415 - what connect() does, without asking

    return Kube(Account(kubeconfig))


def _client(service: str, region: str) -> Any:
    config = Config(retries={"mode": "standard", "max_attempts": 3}, connect_timeout=5, read_timeout=20)
    make: Any = boto3.client  # its types know one signature per service
    try:
        return make(service, region_name=region, config=config)
    except (BotoCoreError, ValueError) as error:
        raise BadInput(f"--region {region}: {error}") from None


def _print(line: str) -> None:
    print(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {line}", file=sys.stdout, flush=True)
