"""The parts put together: what one decision ends with."""

from __future__ import annotations

import io
import random
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from autoscaler import service
from autoscaler.acting_policy import OnePolicy
from autoscaler.cloud.autoscaling_groups import Ec2
from autoscaler.cloud.errors import NotLeader
from autoscaler.cloud.purchases import Bought
from autoscaler.kube.cache import Store
from autoscaler.kube.client import Kube
from autoscaler.model.actions import Order
from autoscaler.model.errors import Unavailable
from autoscaler.planner.sanity_check import Counts
from autoscaler.reporting.report import Log, Report
from tests.builders import NOW, a_group, a_policy
from tests.cloud import Cloud
from tests.live.hybrid import write_policy
from tests.test_autoscaler.fake_api import Answer, fake_api
from tests.test_autoscaler.test_loop import GROW, Bench, Leads, bench

if TYPE_CHECKING:
    from autoscaler.kube.leader_election import Lease
    from autoscaler.reporting.messenger import Messenger


class Held:
    """A lease that is ours."""

    def __init__(self, *_given: Any, **_named: Any) -> None:
        pass

    def is_mine(self) -> bool:
        """It is."""
        return True

    def try_once(self) -> str:
        """Got."""
        return "us"

    def stop(self) -> None:
        """Given back."""


def once(monkeypatch: pytest.MonkeyPatch, made: Bench, directory: Path) -> None:
    """`spillway autoscale run --once` on the bench's doors."""

    class Parties:
        kube = None

        @classmethod
        def of(cls, *_given: Any, **_named: Any) -> Parties:
            return cls()

        def look(self) -> None:
            made.knows_aws()

        def loop(self, _settings: service.Settings, _policies: Any, *, report: Any, **_named: Any) -> Any:
            return made.loop(report=report)

    monkeypatch.setattr(service, "Parties", Parties)
    monkeypatch.setattr(service, "Lease", Held)
    monkeypatch.setattr(service, "_connect", lambda _settings: None)
    path, _ = write_policy(directory)
    service.run_once(service.Settings(policy=str(path)))


def test_once_fails_where_a_step_failed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A cron job that runs it would see success; the command ends with 1 for ``Unavailable``."""
    made = bench(GROW)
    made.fakes.failures["grow"] = Unavailable("AWS does not answer")
    with pytest.raises(Unavailable, match="1 of 1 steps failed"):
        once(monkeypatch, made, tmp_path)


def test_once_succeeds_where_every_step_was_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And says nothing more."""
    made = bench(GROW)
    once(monkeypatch, made, tmp_path)
    assert made.did() == ["grow"]


def test_a_fresh_list_counts_nodes_that_hold_a_pod(tmp_path: Path) -> None:
    """Of its own, past the watch; what came with a node, and what has finished, keeps none."""
    daemon = {"ownerReferences": [{"kind": "DaemonSet", "name": "d", "controller": True, "apiVersion": "apps/v1"}]}
    pods = [
        {"metadata": {"name": f"p{number}", "namespace": "n", "uid": str(number)} | more, "spec": {"nodeName": node}}
        for number, (node, more) in enumerate([("a", {}), ("a", {}), ("b", {}), ("c", daemon)])
    ]
    with fake_api() as api:
        listed = {"/api/v1/pods": pods, "/api/v1/nodes": [{}, {}, {}]}
        api.answer = lambda asked: Answer(body={"metadata": {}, "items": listed.get(asked.path, [])})
        kube = Kube.connect(api.kubeconfig(tmp_path))
        there = SimpleNamespace(groups=lambda: (a_group(joined=2),))
        counts = service.Parties(kube, cast("Any", there), Store(), "kube-system").counts()
        kube.close()
    assert counts == Counts(nodes=3, instances=2, busy=2)
    assert [one.query.get("fieldSelector") for one in api.asked if one.path == "/api/v1/pods"] == [
        "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
    ]


def test_what_aws_is_asked_to_change_hangs_on_the_lease() -> None:
    """The same one that the loop asks; it is asked anew before each write."""
    chance = random.Random(1)  # noqa: S311 - reproducible on purpose
    cloud = Cloud.of([a_group()], cluster="local", now=NOW, chance=chance)
    parties = service.Parties(cast("Kube", None), Ec2(a_policy(), cloud.clients()), Store(), "spillway")
    lease = Leads()
    parties.loop(
        service.Settings(policy=""),
        OnePolicy(a_policy()),
        report=Report(Log("text", io.StringIO())),
        leader=cast("Lease", lease),
        messenger=cast("Messenger", None),
    )
    name = a_group().name
    lease.mine = False
    assert isinstance(parties.ec2.grow({name: Order(0, 1, NOW)})[name], NotLeader)
    lease.mine = True
    assert isinstance(parties.ec2.grow({name: Order(0, 1, NOW)})[name], Bought)
