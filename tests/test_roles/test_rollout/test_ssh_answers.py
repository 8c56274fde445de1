"""What a machine answers over SSH, as a rollout is told of it: the machine is a stand-in here."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from pyinfra.api.exceptions import PyinfraError

from roles.checks.findings import APT_LOCK
from roles.engine.disruption import Disruption
from roles.engine.host_plan import Change, Done, HostPlan
from roles.operations.files import STAYS
from roles.operations.packages import NOT_BACK
from roles.rollout import health_gate, ssh_hosts
from roles.rollout.model import Restored
from roles.rollout.ssh_hosts import SshHosts

ACTIVE = "==spillway== kubelet-unit\nactive\n"
FAILED = "==spillway== kubelet-unit\nfailed\n"


@dataclass
class Answers:
    """Machines that say this to any script, and what they were asked."""

    said: tuple[bool, str] | BaseException = (True, "")
    unreachable: dict[str, str] = field(default_factory=dict)
    changes: tuple[Change, ...] = ()
    connected: list[list[str]] = field(default_factory=list)
    asked: list[tuple[str, str, int]] = field(default_factory=list)
    applied: list[tuple[list[str], Disruption]] = field(default_factory=list)

    @contextlib.contextmanager
    def connect(self, machines: Sequence[tuple[str, Any]], _role: object) -> Iterator[Answers]:
        """In the place of :func:`roles.engine.fleet.connected`."""
        self.names = [name for name, _ in machines]
        self.connected.append(self.names)
        yield self

    def plan(self) -> dict[str, HostPlan]:
        """The same changes for each."""
        return {name: HostPlan(host=name, changes=self.changes) for name in self.names}

    def apply(self, names: list[str], *, allowed: Disruption) -> list[Done]:
        """All of it."""
        self.applied.append((names, allowed))
        return [Done(host=name, applied=self.changes) for name in names]

    def shell(self, name: str, script: str, *, seconds: int) -> tuple[bool, str]:
        """What they say."""
        self.asked.append((name, script, seconds))
        if isinstance(self.said, BaseException):
            raise self.said
        return self.said


class Pods:
    """A cluster in which the smoke pod is in a phase."""

    def __init__(self, phase: str) -> None:
        self.phase = phase
        self.done: list[tuple[str, Any]] = []

    def pod_phase(self, _namespace: str, _name: str) -> str:
        """Always the same."""
        return self.phase

    def remove_pod(self, namespace: str, name: str) -> None:
        """Noted."""
        self.done.append(("removed", f"{namespace}/{name}"))

    def run_pod(self, body: Any) -> None:
        """Noted."""
        self.done.append(("run", body))


Told = Callable[..., tuple[SshHosts, Answers, list[str]]]


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> Told:
    """Makes hosts with two machines, ``a`` and ``b``, that answer so; and what an operator is told."""

    def made(said: Any = (True, ""), *, pods: Any = None, **given: Any) -> tuple[SshHosts, Answers, list[str]]:
        answers = Answers(said)
        told: list[str] = []
        monkeypatch.setattr(ssh_hosts, "connected", answers.connect)
        machines: Any = [(name, {"state_directory": "/s", "run_directory": "/r"}) for name in "ab"]
        return SshHosts(machines, lambda: None, marks=pods, tell=told.append, **given), answers, told

    return made


def test_only_the_machines_that_are_asked_for_are_looked_at(hosts: Told) -> None:
    """Side by side: in one connection."""
    found, answers, _ = hosts()
    assert list(found.plan(["b"])) == ["b"]
    assert list(found.plan(["a", "b"])) == ["a", "b"]
    assert answers.connected == [["b"], ["a", "b"]]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ((True, ACTIVE), ""),
        ((True, FAILED), "the kubelet is failed"),
        ((True, ""), ""),
        ((False, "no route to host"), "no route to host"),
        ((False, ""), "it does not answer"),
        (PyinfraError("not\n  connected"), "not connected"),
        (TimeoutError(), "TimeoutError"),
        (EOFError(), "EOFError"),
        (OSError(), "OSError"),
    ],
)
def test_why_a_machine_is_unhealthy(hosts: Told, said: Any, why: str) -> None:
    """What its gate says, or that it says nothing; the script is the gate's, and two minutes are enough for it."""
    found, answers, _ = hosts(said)
    assert found.why_unhealthy("a") == why
    ((name, script, seconds),) = answers.asked
    assert (name, script.startswith(health_gate.SCRIPT), seconds) == ("a", True, 120)


def test_a_machine_that_cannot_be_connected_to_is_asked_nothing(hosts: Told) -> None:
    """The words of the attempt are told."""
    found, answers, _ = hosts()
    answers.unreachable["a"] = "connection refused"
    assert (found.why_unhealthy("a"), answers.asked) == ("connection refused", [])
    assert found.why_unhealthy("b") == ""


@pytest.mark.parametrize(
    ("phase", "why", "done"),
    [
        ("", "has not ended yet", ["run"]),
        ("Pending", "has not ended yet", []),
        ("Succeeded", "", ["removed"]),
        ("Failed", "failed", ["removed"]),
    ],
)
def test_a_smoke_pod_runs_to_its_end_on_a_machine_that_is_healthy_otherwise(
    hosts: Told, phase: str, why: str, done: list[str]
) -> None:
    """It is made once, and taken away when it has ended; an unhealthy machine gets none."""
    pods = Pods(phase)
    found, _, _ = hosts((True, ACTIVE), pods=pods, smoke="lab/smoke")
    said = found.why_unhealthy("a")
    assert said == (f"the smoke pod spillway-nodes-smoke-a {why}" if why else "")
    assert [what for what, _ in pods.done] == done
    pods = Pods(phase)
    found, _, _ = hosts((True, FAILED), pods=pods, smoke="lab/smoke")
    assert (found.why_unhealthy("a"), pods.done) == ("the kubelet is failed", [])


def test_without_an_image_or_a_cluster_no_smoke_pod_is_run(hosts: Told) -> None:
    """The gate alone says."""
    pods = Pods("")
    assert hosts((True, ACTIVE), pods=pods)[0].why_unhealthy("a") == ""
    assert hosts((True, ACTIVE), smoke="lab/smoke")[0].why_unhealthy("a") == ""
    assert pods.done == []


def test_a_machine_is_taken_under_the_name_of_the_controller(hosts: Told) -> None:
    """Without one nothing is asked; one that does not answer is told of when it is planned for."""
    found, answers, _ = hosts((True, "another\n"), controller="ours")
    assert found.take("a") == "another"
    found.leave("a")
    assert ["ours" in script for _, script, _ in answers.asked] == [True, True]
    assert hosts((False, "no route to host"), controller="ours")[0].take("a") == ""
    found, answers, _ = hosts((True, "another"))
    assert found.take("a") == ""
    found.leave("a")
    assert answers.asked == []


APT = Change(resource="packages", commands=("apt-get install x",))
FILE = Change(resource="file", commands=("put /etc/x",))


@pytest.mark.parametrize(
    ("changes", "said", "told"),
    [
        (
            (FILE, APT),
            (True, "held by process 8 (apt)\nheld by process 9\n"),
            ["a: waits for apt's lock, process 8 (apt) and process 9"],
        ),
        ((FILE, APT), (True, "\n"), []),
        ((FILE, APT), (False, "held by process 8"), []),
        ((FILE,), (True, "held by process 8"), []),
        ((), (True, "held by process 8"), []),
    ],
)
def test_apt_that_waits_for_its_lock_is_told_of(
    hosts: Told, changes: tuple[Change, ...], said: tuple[bool, str], told: list[str]
) -> None:
    """Where it is about to be called; the change is made in any case."""
    found, answers, lines = hosts(said)
    answers.changes = changes
    assert found.apply("a", Disruption.KUBELET_RESTART).applied == changes
    assert (lines, answers.applied) == (told, [(["a"], Disruption.KUBELET_RESTART)])
    assert [script for _, script, _ in answers.asked] == ([APT_LOCK] if APT in changes else [])


@pytest.mark.parametrize(
    ("said", "failed", "told"),
    [
        ("held by process 8 (apt)\n", "E: Unable to acquire the dpkg frontend lock", "by process 8 (apt)"),
        ("held by process 8 (apt)\n", "E: Could not get lock /var/lib/dpkg/lock", "by process 8 (apt)"),
        ("held by process 8 (apt)\n", "E: Broken packages", ""),
        ("", "E: Unable to acquire the dpkg frontend lock", ""),
    ],
)
def test_a_change_that_waited_for_apts_lock_in_vain_names_its_holder(
    hosts: Told, monkeypatch: pytest.MonkeyPatch, said: str, failed: str, told: str
) -> None:
    """Whatever apt itself says; another failure has nothing to do with it."""
    found, answers, _ = hosts((True, said))
    answers.changes = (APT,)
    monkeypatch.setattr(Answers, "apply", lambda _self, names, **_: [Done(host=name, failed=failed) for name in names])
    reason = found.apply("a", Disruption.NONE).failed
    assert reason == failed + (f"; before, apt's lock was held {told}" if told else "")


def test_what_is_left_of_a_restoration_is_told_by_name(hosts: Told) -> None:
    """In its own words; nothing where all is back. It may take a quarter of an hour, for packages are fetched."""
    found, answers, _ = hosts((True, f"/etc/x\n {NOT_BACK} runc \nother\n/etc/y {STAYS} immutable\n{NOT_BACK} libc"))
    left = f"/etc/y {STAYS} immutable; {NOT_BACK} libc"
    assert found.restore("a") == Restored(left=left)
    ((name, script, seconds),) = answers.asked
    assert (name, "/s" in script, "/r" in script, seconds) == ("a", True, True, 900)
    assert hosts((True, "/etc/x\n"))[0].restore("a") == Restored()
    long = "x" * 500
    failed = hosts((False, f"first {long}"))[0].restore("a")
    assert failed == Restored(failed=f"its last good files could not be put back: {'x' * 400}")


def test_a_machine_that_is_settled_is_told_so(hosts: Told) -> None:
    """By one script, on that machine alone."""
    found, answers, _ = hosts()
    found.settle("b")
    assert [(name, "/s" in script) for name, script, _ in answers.asked] == [("b", True)]
    assert answers.connected == [["b"]]
