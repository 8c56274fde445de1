"""The policy that is obeyed: edits are taken over between turns, bad ones change nothing, the last good one stays."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import cast

import pytest
from prometheus_client import CollectorRegistry

from autoscaler.acting_policy import ActingPolicy, PolicyReport
from autoscaler.config.policy import Policy
from autoscaler.config.policy_file import Edition, PolicyFile
from autoscaler.kube.client import Refused
from autoscaler.kube.policy_configmap import PolicyRecord, Record
from autoscaler.model.errors import BadInput, Unavailable
from autoscaler.reporting.metrics import Metrics
from autoscaler.reporting.report import Log
from tests.builders import NOW, a_group, later
from tests.test_autoscaler.test_config.test_policy import GOOD

BAD = GOOD.replace("max: 6", "max: -1")
CHEAP = GOOD.replace("usd_per_hour: 100", "usd_per_hour: 1")
LINE = "policy.yaml:7: groups[0] (gpu-a10g).max = -1: input should be greater than or equal to 0"


@dataclass
class Cluster:
    """Where the last good one is kept, for all replicas; ``away`` raises."""

    kept: Record | None = None
    away: bool = False
    forbidden: bool = False
    writes: int = 0

    def read(self) -> Record | None:
        """As the ConfigMap's."""
        if self.away:
            raise Unavailable("the API server does not answer")
        if self.forbidden:
            raise Refused(403, "no")
        return self.kept

    def write(self, record: Record) -> None:
        """As the ConfigMap's: where it says something new."""
        if not self.away and record != self.kept:
            self.kept = record
            self.writes += 1

    def forget(self) -> None:
        """As the ConfigMap's."""


@dataclass
class Replica:
    """One autoscaler's policy, and what it told."""

    cluster: Cluster = field(default_factory=Cluster)
    text: str = GOOD
    name: str = "one"
    now: datetime = NOW
    out: io.StringIO = field(default_factory=io.StringIO)
    events: list[tuple[str, str, bool]] = field(default_factory=list)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    obeyed: list[Policy] = field(default_factory=list)

    def newest(self) -> Edition:
        """What is edited."""
        return Edition("policy.yaml", self.text) if self.text else Edition("policy.yaml", problem="it is gone")

    def start(self) -> ActingPolicy:
        """Begin to run."""
        metrics = Metrics(self.registry)
        report = PolicyReport(Log("text", self.out), metrics, tell=lambda *told: self.events.append(told))
        record = cast("PolicyRecord", self.cluster)
        made = ActingPolicy(self, record, report=report, identity=self.name, now=lambda: self.now)
        made.on_change(self.obeyed.append)
        return made

    def metric(self, name: str, **labels: str) -> float | None:
        """What Prometheus is told."""
        return self.registry.get_sample_value(name, labels)


def test_an_edit_is_taken_over_at_the_next_turn_and_told() -> None:
    """By all that look at the policy, in words and dollars; the cluster keeps it."""
    replica = Replica()
    policy = replica.start()
    policy.refresh(mine=True)
    assert policy.current().limits.usd_per_hour == 100
    replica.text = CHEAP
    policy.refresh(mine=True)
    assert policy.current().limits.usd_per_hour == 1
    assert replica.obeyed == [policy.current()]
    assert "policy.yaml is taken over: limits.usd_per_hour: 100 -> 1: up to 99.00 $/h less" in replica.out.getvalue()
    assert replica.cluster.kept is not None
    assert replica.cluster.kept.text == CHEAP
    assert [event[0] for event in replica.events] == ["PolicyTaken"]
    assert replica.metric("spillway_policy_edits_total", outcome="taken") == 1


def test_a_bad_edit_is_refused_loudly_and_the_last_good_one_goes_on() -> None:
    """Log, Event, metric and status say file, line, key, value and remedy; each once."""
    replica = Replica()
    policy = replica.start()
    policy.refresh(mine=True)
    replica.text = BAD
    for _ in range(3):
        policy.refresh(mine=True)
    assert policy.current().groups[0].max == 6
    assert replica.out.getvalue().count(LINE) == 1
    ((reason, message, is_warning),) = replica.events
    assert (reason, is_warning) == ("PolicyRefused", True)
    assert LINE in message
    assert replica.metric("spillway_policy_refused") == 1
    assert policy.status()["refused"] == LINE
    kept = replica.cluster.kept
    assert kept is not None
    assert kept.text == GOOD
    assert kept.about.refused is not None
    replica.text = GOOD
    policy.refresh(mine=True)
    assert policy.status()["refused"] == ""
    assert replica.metric("spillway_policy_refused") == 0
    assert replica.cluster.kept is not None
    assert replica.cluster.kept.about.refused is None


def test_a_file_that_goes_is_a_bad_edit() -> None:
    """The last good one goes on."""
    replica = Replica()
    policy = replica.start()
    replica.text = ""
    policy.refresh(mine=True)
    assert policy.current().limits.usd_per_hour == 100
    assert policy.status()["refused"] == "it is gone"


def test_a_replica_that_starts_with_a_bad_file_obeys_the_last_good_one_of_the_cluster() -> None:
    """Since when and from where it was, and it says what is wrong with the file."""
    cluster = Cluster()
    before = Replica(cluster)
    before.start().refresh(mine=True)
    again = Replica(cluster, BAD, "two", now=later(hours=1))
    policy = again.start()
    assert policy.current().limits.usd_per_hour == 100
    assert policy.status() == {
        "since": "2026-11-21T09:00:00+00:00",
        "origin": "policy.yaml",
        "refused": LINE,
        "pending": [],
    }
    policy.refresh(mine=True)
    assert [event[0] for event in again.events] == ["PolicyRefused"]
    again.text = CHEAP
    policy.refresh(mine=True)
    assert policy.current().limits.usd_per_hour == 1


@pytest.mark.parametrize("cluster", [Cluster(), Cluster(away=True)])
def test_a_bad_file_and_no_last_good_one_is_refused_at_the_start(cluster: Cluster) -> None:
    """With every mistake; nothing can be obeyed."""
    with pytest.raises(BadInput, match="max = -1"):
        Replica(cluster, BAD).start()


def test_both_replicas_obey_the_same_policy_though_one_never_saw_it_good() -> None:
    """The one that waits began with an older last good one; when it acts, it obeys what was obeyed last."""
    cluster = Cluster()
    first = Replica(cluster)
    acting = first.start()
    acting.refresh(mine=True)
    waiting = Replica(cluster, BAD, "two").start()
    waiting.refresh(mine=False)
    first.text = CHEAP
    acting.refresh(mine=True)
    first.text = BAD
    acting.refresh(mine=True)
    waiting.refresh(mine=True)
    assert waiting.current() == acting.current()
    assert waiting.current().limits.usd_per_hour == 1


def test_the_one_that_waits_writes_nothing_and_tells_no_event() -> None:
    """But it follows the edits."""
    replica = Replica()
    policy = replica.start()
    replica.text = CHEAP
    policy.refresh(mine=False)
    assert policy.current().limits.usd_per_hour == 1
    assert replica.cluster.writes == 0
    assert not replica.events


def test_while_the_cluster_is_away_the_policy_in_hand_goes_on() -> None:
    """And it is written down once the cluster is back."""
    replica = Replica()
    policy = replica.start()
    replica.cluster.away = True
    policy.refresh(mine=True)
    assert policy.current().limits.usd_per_hour == 100
    replica.cluster.away = False
    policy.refresh(mine=True)
    assert replica.cluster.kept is not None


def test_without_the_right_to_the_record_edits_are_taken_over_all_the_same() -> None:
    """A role of an older release must not freeze the policy."""
    replica = Replica(Cluster(forbidden=True))
    policy = replica.start()
    replica.text = CHEAP
    policy.refresh(mine=True)
    assert policy.current().limits.usd_per_hour == 1


def test_since_when_survives_a_restart() -> None:
    """The same text is the same policy."""
    cluster = Cluster()
    Replica(cluster).start().refresh(mine=True)
    again = Replica(cluster, name="two", now=later(hours=1))
    policy = again.start()
    policy.refresh(mine=True)
    assert policy.status()["since"] == "2026-11-21T09:00:00+00:00"


def test_cluster_and_region_stay_those_that_it_was_started_with() -> None:
    """Everything that stands is named by them."""
    replica = Replica()
    policy = replica.start()
    replica.text = GOOD.replace("cluster: lab", "cluster: other")
    policy.refresh(mine=True)
    assert policy.current().cluster == "lab"
    assert "cluster: lab -> other (pending `pulumi up`)" in replica.out.getvalue()


def test_what_waits_for_pulumi_is_told_when_it_changes() -> None:
    """In the log, as a metric, in the status and in the cluster."""
    replica = Replica()
    policy = replica.start()
    policy.refresh(mine=True)
    for _ in range(2):
        policy.compare((a_group("gpu-a10g", taints=()),))
    assert len(policy.status()["pending"]) == 2
    assert replica.out.getvalue().count("pending `pulumi up`: ") == 1
    assert replica.metric("spillway_policy_pending") == 2
    assert replica.cluster.kept is not None
    assert replica.cluster.kept.about.pending == tuple(policy.status()["pending"])


# --- The file ---


def in_place(path: Path, text: str) -> None:
    """As `cat >` does."""
    path.write_text(text)


def by_renaming(path: Path, text: str) -> None:
    """As editors do: a swap file, then a rename over it."""
    swap = path.with_name(f".{path.name}.swp")
    swap.write_text(text)
    swap.replace(path)


def by_a_link(path: Path, text: str) -> None:
    """As the kubelet does: ..data is a link to a folder, which is swapped."""
    folder = path.parent / f"..{abs(hash(text))}"
    folder.mkdir()
    (folder / path.name).write_text(text)
    data, new = path.parent / "..data", path.parent / "..data_tmp"
    new.symlink_to(folder.name)
    new.replace(data)
    path.unlink(missing_ok=True)
    path.symlink_to(f"..data/{path.name}")


@pytest.mark.parametrize("edit", [in_place, by_renaming, by_a_link])
def test_however_a_file_is_edited_the_edit_counts_once_two_looks_saw_it(
    tmp_path: Path, edit: Callable[[Path, str], None]
) -> None:
    """And not before: it could be half of it."""
    path = tmp_path / "policy.yaml"
    edit(path, GOOD)
    file = PolicyFile(path)
    assert not file.look()
    edit(path, CHEAP)
    assert not file.look()
    assert file.newest().text == GOOD
    assert file.look()
    assert file.newest().text == CHEAP
    assert not file.look()


def test_a_file_that_is_written_bit_by_bit_is_taken_when_it_is_whole(tmp_path: Path) -> None:
    """Half of it is a policy without its limits."""
    path = tmp_path / "policy.yaml"
    path.write_text(GOOD)
    file = PolicyFile(path)
    for length in range(0, len(CHEAP), 40):
        path.write_text(CHEAP[:length])
        assert not file.look()
    path.write_text(CHEAP)
    assert [file.look(), file.look()] == [False, True]


def test_a_file_that_is_away_for_a_moment_while_it_is_replaced_is_not_missed(tmp_path: Path) -> None:
    """One that stays away is."""
    path = tmp_path / "policy.yaml"
    path.write_text(GOOD)
    file = PolicyFile(path)
    path.unlink()
    assert not file.look()
    path.write_text(GOOD)
    assert not file.look()
    path.unlink()
    assert [file.look(), file.look()] == [False, True]
    assert "cannot read this policy file" in file.newest().problem
