"""A rolling change: never more down than allowed, nothing protected evicted, and an end in every case."""

from __future__ import annotations

import contextlib
import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.model.errors import BadInput, Unavailable
from roles.engine.disruption import Disruption
from roles.engine.host_plan import Done, identity
from roles.operations.files import restore_kept
from roles.rollout.journal import Journal
from roles.rollout.lock import own_name
from roles.rollout.model import Member, Outcome, Phase, Resident, Restored, Rules
from roles.rollout.node_state import Seen
from roles.rollout.ssh_hosts import _RESTORE, SshHosts, leaving, taking, what_is_left
from roles.rollout.state_machine import (
    Apply,
    Cordon,
    Evict,
    Halt,
    Hold,
    Release,
    Rest,
    Restore,
    Start,
    Step,
    Verify,
    Wait,
    allowed_now,
    next_steps,
    parse_batch,
    phase_after,
)
from tests import examples
from tests.test_roles.rolling import Killed, Killer, MemoryHosts, MemoryMarks, fleet, roll


def member(name: str, **fields: object) -> Member:
    """A machine that wants a restart of containerd."""
    return Member(**{"name": name, "domain": "r0", "wants": "p", "needs": Disruption.CONTAINERD_RESTART} | fields)


def test_the_first_machine_comes_alone() -> None:
    """The canary, whatever the batch."""
    steps = next_steps([member("a"), member("b")], Rules(batch=2, max_down=2), canary_passed=False)
    assert steps[0] == Cordon("a", "containerd-restart needs it free of pods that hold GPUs")
    assert steps[1] == Hold("b", "the first machine must come through before")


def test_a_rack_is_finished_before_the_next_begins() -> None:
    """What fails together is changed together."""
    racks = [member("a"), member("b", domain="r1"), member("c")]
    steps = next_steps(racks, Rules(batch=3, max_down=3), canary_passed=True)
    assert [type(step) for step in steps] == [Cordon, Cordon, Hold]
    assert steps[2] == Hold("b", "r0 is under way")


def test_nodes_that_are_down_anyhow_count_against_the_budget() -> None:
    """One may be down, and one is."""
    lost = Member(name="lost", is_ready=False)
    steps = next_steps([member("a"), lost], Rules(batch=2, max_down=1), canary_passed=True)
    assert steps == (Hold("a", "1 may be down at a time, and lost is"),)


def test_a_running_gang_is_waited_for_and_named() -> None:
    """The node is not closed meanwhile: others may use it."""
    pod = Resident(key="ml/worker-0", holds_gpu=True, stays="is part of the running gang train")
    steps = next_steps([member("a", residents=(pod,))], Rules(), canary_passed=True)
    assert steps == (Hold("a", "containerd-restart waits: ml/worker-0 is part of the running gang train"),)


@pytest.mark.parametrize(("pods", "more"), [(3, ""), (4, "1 more"), (5, "2 more")])
def test_three_pods_are_named_and_the_others_counted(pods: int, more: str) -> None:
    """Of those that stay, and of those that a drain would end."""
    stay = tuple(Resident(key=f"ml/worker-{one}", holds_gpu=True, stays="is part of a gang") for one in range(pods))
    (step,) = next_steps([member("a", residents=stay)], Rules(), canary_passed=True)
    assert isinstance(step, Hold)
    named = "; ".join(f"{pod.key} is part of a gang" for pod in stay[:3])
    assert step.because == f"containerd-restart waits: {named}" + (f"; {more}" if more else "")
    leave = tuple(replace(pod, stays="") for pod in stay)
    (step,) = next_steps([member("a", residents=leave)], Rules(drain=False), canary_passed=True)
    assert isinstance(step, Hold)
    named = ", ".join(pod.key for pod in leave[:3]) + (f" and {more}" if more else "")
    assert f"and {named} would lose GPUs" in step.because


def test_without_a_drain_what_disrupts_waits_and_the_rest_is_done() -> None:
    """The nightly run evicts nobody."""
    pod = Resident(key="ml/notebook", holds_gpu=True)
    rules = Rules(drain=False)
    (step,) = next_steps([member("a", residents=(pod,))], rules, canary_passed=True)
    assert isinstance(step, Hold)
    assert (
        "containerd-restart is more than reload, and ml/notebook would lose GPUs: it waits for a drain" in step.because
    )
    (step,) = next_steps([member("a", residents=(pod,), has_quiet_part=True)], rules, canary_passed=True)
    assert isinstance(step, Start)


def test_a_machine_without_gpu_pods_is_closed_before_it_is_disrupted() -> None:
    """Else a pod could land in between."""
    (step,) = next_steps([member("a")], Rules(drain=False), canary_passed=True)
    assert isinstance(step, Cordon)


def test_nothing_begins_where_the_preflight_found_an_error() -> None:
    """Not even what would disturb nobody; a node that was closed for it is opened again, the others go on."""
    blocked = member("a", blocked="disk: full", has_quiet_part=True, needs=Disruption.NONE)
    closed = member("b", blocked="disk: full", phase=Phase.DRAINING, is_cordoned=True)
    steps = next_steps([blocked, closed, member("c")], Rules(max_down=2, batch=2), canary_passed=True)
    assert steps[0] == Release("b", "disk: full")
    assert steps[1] == Hold("a", "disk: full")
    assert isinstance(steps[2], Cordon)


def test_a_blocked_machine_is_released_and_never_changed() -> None:
    """Though its node was closed by a run before."""
    machines, nodes = fleet(2)
    nodes["n00"] = replace(nodes["n00"], phase=Phase.DRAINING, is_cordoned=True, is_ours=True)
    hosts, marks = MemoryHosts(machines, Killer()), MemoryMarks(nodes, Killer(), max_down=1)
    rolled = roll(hosts, marks, None, Rules(), dict.fromkeys(machines, ""), blocked={"n00": "disk: full"})
    assert hosts.applied == ["n01"]
    assert rolled.held == {"n00": "disk: full"}
    assert not any(node.is_cordoned for node in marks.nodes.values())


def test_a_run_whose_lease_another_has_taken_does_no_more() -> None:
    """It is asked before each step; what was begun stands as it is, and the other goes on with it."""
    machines, nodes = fleet(3)
    hosts, marks = MemoryHosts(machines, Killer()), MemoryMarks(nodes, Killer(), max_down=1)
    lost = iter(["", "", "other has taken the lease"])
    with pytest.raises(Unavailable, match="other has taken the lease: this run stops"):
        roll(hosts, marks, None, Rules(), dict.fromkeys(machines, ""), why_not=lambda: next(lost))
    assert hosts.applied == ["n00"]
    assert roll(hosts, marks, None, Rules(), dict.fromkeys(machines, "")).changed == ["n00", "n01", "n02"]


def test_a_change_that_was_refused_is_tried_again_by_the_next_run() -> None:
    """A disk was full, a mirror down: that passes. Only where pods would have to leave for it, an operator decides."""
    machines, nodes = fleet(1, refuses=True)
    marks = MemoryMarks(nodes, Killer(), max_down=1)
    rolled = roll(MemoryHosts(machines, Killer()), marks, None, Rules(tolerate=3), {"n00": ""})
    assert rolled.failed == {"n00": "no space left on device"}
    machines["n00"].refuses = False
    assert nodes["n00"].outcome is Outcome.REFUSED
    assert roll(MemoryHosts(machines, Killer()), marks, None, Rules(), {"n00": ""}).changed == ["n00"]
    pod = Resident(key="ml/notebook", holds_gpu=True)
    (step,) = next_steps([member("a", was_refused=True, residents=(pod,))], Rules(), canary_passed=True)
    assert "ml/notebook would leave for nothing, unless --retry" in step.because


@pytest.mark.parametrize("phase", [Phase.IDLE, Phase.FAILED, Phase.DRAINING, Phase.APPLYING, Phase.RESTORING])
@pytest.mark.parametrize("outcome", list(Outcome))
@pytest.mark.parametrize("known", [True, False])
def test_a_machine_that_has_drifted_has_a_reason_or_a_step(phase: Phase, outcome: Outcome, *, known: bool) -> None:
    """However an earlier run ended there, none is left without a word."""
    drifted = member("a", phase=phase, outcome=outcome, is_known=known)
    steps = next_steps([drifted, member("b")], Rules(tolerate=3), canary_passed=True)
    assert all(step.because for step in steps if step.host == "a")
    assert [step for step in steps if step.host == "a" and not isinstance(step, Halt)]


def test_every_night_says_again_why_a_machine_stays_as_it_is() -> None:
    """The same plan that did not settle is not tried, and not forgotten either."""
    machines, nodes = fleet(1)
    hosts, marks = MemoryHosts(machines, Killer()), MemoryMarks(nodes, Killer(), max_down=1)
    nodes["n00"] = replace(nodes["n00"], outcome=Outcome.UNSETTLED, outcome_of=identity(hosts.plan(["n00"])["n00"]))
    for _ in range(2):
        rolled = roll(hosts, marks, None, Rules(), {"n00": ""})
        assert "did not settle" in rolled.held["n00"]
    assert hosts.applied == []


def test_a_retry_makes_the_change_and_claims_none_before() -> None:
    """What --retry leaves of a machine that failed: it is looked at first, and then changed."""
    machines, nodes = fleet(1)
    nodes["n00"] = replace(nodes["n00"], phase=Phase.VERIFYING, is_cordoned=True, is_ours=True)
    hosts, marks = MemoryHosts(machines, Killer()), MemoryMarks(nodes, Killer(), max_down=1)
    rolled = roll(hosts, marks, None, Rules(), {"n00": ""})
    assert (rolled.unsettled, rolled.changed, hosts.applied) == ({}, ["n00"], ["n00"])


def test_what_this_run_has_not_changed_is_not_said_to_come_back() -> None:
    """It came up while the change was made: it is made as well, and nothing is unsettled."""
    machines, nodes = fleet(1, also="users | Keys")
    hosts, marks = MemoryHosts(machines, Killer()), MemoryMarks(nodes, Killer(), max_down=1)
    rolled = roll(hosts, marks, None, Rules(), {"n00": ""})
    assert (rolled.unsettled, rolled.failed, rolled.changed) == ({}, {}, ["n00"])
    assert hosts.applied == ["n00", "n00"]


def test_what_could_not_be_made_on_its_own_is_told_with_its_reason_and_tried_again_the_next_night() -> None:
    """It halts nothing, is no other writer's doing, and costs the machine one step."""
    machines, nodes = fleet(2, alone="users | Keys")
    hosts, marks = MemoryHosts(machines, Killer()), MemoryMarks(nodes, Killer(), max_down=1)
    for _ in range(2):
        rolled = roll(hosts, marks, None, Rules(), dict.fromkeys(machines, ""))
        assert (rolled.unsettled, rolled.halted) == ({}, "")
        assert rolled.failed == dict.fromkeys(machines, "users | Keys: its file is immutable")
    assert {machine.installed for machine in machines.values()} == {"new"}
    assert {node.outcome for node in marks.nodes.values()} == {Outcome.NONE}
    for machine in machines.values():
        machine.alone = ""
    assert roll(hosts, marks, None, Rules(), dict.fromkeys(machines, "")).failed == {}


def test_what_comes_back_after_it_was_changed_is_unsettled() -> None:
    """Another writer's: said of that resource alone."""
    machines, nodes = fleet(1, also="users | Keys")
    hosts, marks = MemoryHosts(machines, Killer()), MemoryMarks(nodes, Killer(), max_down=1)
    apply = hosts.apply

    def undone(name: str, allowed: Disruption) -> Done:
        done = apply(name, allowed)
        machines[name].installed = "old"
        return done

    hosts.apply = undone  # type: ignore[method-assign]  # somebody else's program
    rolled = roll(hosts, marks, None, Rules(), {"n00": ""})
    assert (rolled.unsettled, rolled.changed) == ({"n00": "thing | Version"}, [])


@pytest.mark.parametrize(("starts_for", "looks"), [(0, 1), (2, 3), (9, 4)])
def test_a_machine_that_was_put_back_has_its_time_to_be_well_again(starts_for: int, looks: int) -> None:
    """Its kubelet starts anew, too. What does not come up in time is told."""
    machines, nodes = fleet(1, breaks=True)
    hosts, marks = MemoryHosts(machines, Killer()), MemoryMarks(nodes, Killer(), max_down=1)
    restored, put_back, broken = list[str](), hosts.restore, hosts.why_unhealthy

    def restore(name: str) -> Restored:
        restored.append(name)
        return put_back(name)

    def why_unhealthy(name: str) -> str:
        return broken(name) or ("the kubelet starts" if 0 < len(restored) <= starts_for else "")

    hosts.restore, hosts.why_unhealthy = restore, why_unhealthy  # type: ignore[method-assign]
    told = list[str]()
    rolled = roll(hosts, marks, None, Rules(), {"n00": ""}, told=told, health=3.0)
    assert len(restored) == looks
    assert any("the kubelet starts" in line for line in told) is (starts_for > 3)
    assert rolled.halted


def test_the_banner_of_a_halt_stays_with_its_cause_until_it_is_resolved(tmp_path: Path) -> None:
    """On every later night, with the command of the run that it is about."""
    machines, nodes = fleet(3, breaks=True)
    hosts, marks = MemoryHosts(machines, Killer()), MemoryMarks(nodes, Killer(), max_down=1)
    command = "spillway nodes apply --inventory 'my lab.yaml' --limit 'dgx-*' --retry"
    journal = Journal(tmp_path / "journal.jsonl")
    for _ in range(3):
        known = len(list(journal.entries()))
        rolled = roll(hosts, marks, tmp_path, Rules(), dict.fromkeys(machines, ""), go_on=command)
        again = [entry["host"] for entry in [*journal.entries()][known:] if entry["kind"] == "failed"]
        assert "n01" in again  # near the end, where the next run looks for it
        lines = rolled.halted.split("\n")
        assert "cause: unhealthy after the change: containerd does not answer" in lines
        assert lines[-1] == f"to go on: see to n01, then {command}"
    hosts.wanted = "old"
    assert roll(hosts, marks, tmp_path, Rules(), dict.fromkeys(machines, ""), go_on=command).halted == ""


def test_a_line_of_the_journal_that_somebody_garbled_ends_no_run(tmp_path: Path) -> None:
    """The chain says so; what the other lines say of how changes ended still counts."""
    machines, _ = fleet(3, breaks=True)
    hosts, names = MemoryHosts(machines, Killer()), dict.fromkeys(machines, "")
    assert roll(hosts, None, tmp_path, Rules(), names).halted
    journal = tmp_path / "journal.jsonl"
    lines = journal.read_text(encoding="utf-8").splitlines(keepends=True)
    journal.write_text("".join(["garbled\n", "[]\n", *lines]), encoding="utf-8")
    assert "cause: unhealthy after" in roll(hosts, None, tmp_path, Rules(), names).halted
    assert hosts.applied == ["n00", "n01"]


def test_a_halt_of_machines_that_are_no_nodes_stays_as_well(tmp_path: Path) -> None:
    """They bear no marks: without a record each night would break two of them anew."""
    machines, _ = fleet(3, breaks=True)
    hosts, names = MemoryHosts(machines, Killer()), dict.fromkeys(machines, "")
    for _ in range(3):
        assert "cause: unhealthy after" in roll(hosts, None, tmp_path, Rules(), names).halted
    assert hosts.applied == ["n00", "n01"]
    machines["n00"].breaks = machines["n01"].breaks = machines["n02"].breaks = False
    assert roll(hosts, None, tmp_path, Rules(), names, retry=True).changed == list(names)
    assert roll(hosts, None, tmp_path, Rules(), names).held == {}


def test_a_canary_that_stays_down_and_takes_up_the_budget_is_told_in_the_banner() -> None:
    """With one node down at most no second one can be closed: a halt that says so, with what would do."""
    ill = member("a", outcome=Outcome.FAILED, is_ready=False)
    steps = next_steps([ill, member("b")], Rules(max_down=1), canary_passed=False)
    assert [type(step) for step in steps] == [Halt, Hold, Rest]
    assert "no second machine may be closed beside it to be tried (--max-down 1; 2 would do)" in steps[0].because
    assert steps[1] == Hold("b", "1 may be down at a time, and a is")
    quiet = member("b", needs=Disruption.NONE)
    assert [type(step) for step in next_steps([ill, quiet], Rules(max_down=1), canary_passed=False)] == [Start, Rest]
    two = next_steps([ill, member("b")], Rules(max_down=2), canary_passed=False)
    assert [type(step) for step in two] == [Cordon, Rest]


@pytest.mark.parametrize(("refuse", "halts"), [(0, False), (3, False), (4, True)])
def test_a_rollout_goes_on_past_as_many_refusals_as_are_tolerated(refuse: int, halts: bool) -> None:  # noqa: FBT001
    """Three full disks are three machines' trouble; a fourth is the change's own."""
    machines, nodes = fleet(6)
    for number in range(refuse):
        machines[f"n{number:02}"].refuses = True
    hosts, marks = MemoryHosts(machines, Killer()), MemoryMarks(nodes, Killer(), max_down=1)
    rolled = roll(hosts, marks, None, Rules(tolerate=3), dict.fromkeys(machines, ""))
    assert bool(rolled.halted) is halts
    assert len(rolled.failed) == refuse
    assert len(rolled.changed) == (0 if halts else 6 - refuse)


@pytest.mark.parametrize("breaks", [True, False])
def test_what_is_not_back_is_named_though_the_machine_is_healthy(breaks: bool) -> None:  # noqa: FBT001
    """A driver stayed new under a full disk, and the report said that the machine was put back."""
    machines, nodes = fleet(1, breaks=breaks, refuses=not breaks, left="these packages are not as they were: a=1")
    hosts, marks = MemoryHosts(machines, Killer()), MemoryMarks(nodes, Killer(), max_down=1)
    rolled = roll(hosts, marks, None, Rules(tolerate=1), {"n00": ""})
    cause = "unhealthy after the change: containerd does not answer" if breaks else "no space left on device"
    assert rolled.failed["n00"] == f"{cause}; put back, except that these packages are not as they were: a=1"


@pytest.mark.parametrize(
    ("machine", "lines"),
    [
        ({"refuses": True}, ["no space left on device", "restored"]),
        ({"breaks": True}, ["unhealthy after the change: containerd does not answer", "restored"]),
        (
            {"breaks": True, "left": "a=1 stays"},
            ["unhealthy after the change: containerd does not answer", "restored, except that a=1 stays"],
        ),
        ({"vanishes": True}, ["it does not answer; the next run goes on with it"]),
    ],
)
def test_what_goes_wrong_is_told_while_it_goes_on(machine: dict[str, Any], lines: list[str]) -> None:
    """A run takes hours: whoever looks on need not wait for its end."""
    machines, nodes = fleet(1, **machine)
    told: list[str] = []
    marks = MemoryMarks(nodes, Killer(), max_down=1)
    roll(MemoryHosts(machines, Killer()), marks, None, Rules(), {"n00": ""}, told=told)
    assert [line for line in told if line in [f"n00: {one}" for one in lines]] == [f"n00: {one}" for one in lines], told


def test_an_outage_is_told_with_the_machine_that_waits_for_it_and_gone_on_after() -> None:
    """The step is taken again; nothing of it is a failure of the machine."""

    class Away(MemoryHosts):
        away = 2

        def take(self, name: str) -> str:
            """By no other controller, once the API server answers."""
            if self.away:
                self.away -= 1
                raise Unavailable("the API server does not answer")
            return super().take(name)

    machines, nodes = fleet(1)
    told: list[str] = []
    marks = MemoryMarks(nodes, Killer(), max_down=1)
    rolled = roll(Away(machines, Killer()), marks, None, Rules(), {"n00": ""}, told=told)
    assert told[:2] == ["n00: the API server does not answer"] * 2
    assert (list(rolled.changed), rolled.failed) == (["n00"], {})


def test_what_the_script_of_a_restoration_could_not_put_back_is_read(tmp_path: Path) -> None:
    """Packages, and files to which the way is no longer root's alone."""
    kept, open_folder = tmp_path / "kept", tmp_path / "open"
    (kept / "files" / str(open_folder).lstrip("/")).mkdir(parents=True)
    (kept / "files" / str(open_folder).lstrip("/") / "a.conf").write_text("old\n", encoding="ascii")
    open_folder.mkdir()
    (open_folder / "a.conf").write_text("new\n", encoding="ascii")
    open_folder.chmod(0o777)
    packages = "echo 'these packages are not as they were: driver=1 '"
    script = _RESTORE.format(files=restore_kept(str(kept)), packages=packages, module="", owed=tmp_path / "owed")
    said = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout
    assert f"{open_folder}/a.conf stays as it is: others than root may change the way there" in what_is_left(said)
    assert "these packages are not as they were: driver=1" in what_is_left(said)
    assert (open_folder / "a.conf").read_text(encoding="ascii") == "new\n"


def test_a_machine_that_another_controller_changes_is_left_to_it() -> None:
    """With the name of that one; the others go on."""
    machines, nodes = fleet(3)
    machines["n01"].taken_by = "night-0a1b2c3d"
    hosts, marks = MemoryHosts(machines, Killer()), MemoryMarks(nodes, Killer(), max_down=1)
    rolled = roll(hosts, marks, None, Rules(), dict.fromkeys(machines, ""))
    assert rolled.held == {"n01": "another controller is changing it: night-0a1b2c3d; wait for it to end"}
    assert (hosts.applied, hosts.left) == (["n00", "n02"], ["n00", "n02"])
    assert not any(node.is_cordoned for node in marks.nodes.values())


def test_whoever_waits_for_apt_is_told_which_process_holds_its_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the change begins, which was silent for minutes."""
    told: list[str] = []
    said = "held by process 812 (apt-get)\nheld by process 813 (dpkg)\n"
    hosts = SshHosts([], lambda: None, tell=told.append)
    monkeypatch.setattr(hosts, "_shell", lambda _name, _script: (True, said))
    hosts._tell_lock("n00")
    assert told == ["n00: waits for apt's lock, process 812 (apt-get) and process 813 (dpkg)"]
    monkeypatch.setattr(hosts, "_shell", lambda _name, _script: (True, ""))
    hosts._tell_lock("n00")
    assert len(told) == 1


def test_two_controllers_are_kept_apart_on_the_machine(tmp_path: Path) -> None:
    """One takes it and goes on with it; another is told by name; one that died keeps it for a while and no longer."""
    folder = str(tmp_path / "run")

    def sh(script: str) -> str:
        return subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout.strip()

    assert sh(taking(folder, "day")) == ""
    assert sh(taking(folder, "day")) == ""
    assert sh(taking(folder, "night 2")) == "day"
    sh(leaving(folder, "night 2"))
    assert sh(taking(folder, "night 2")) == "day"
    sh(leaving(folder, "day"))
    assert sh(taking(folder, "night 2")) == ""
    assert sh(taking(folder, "day")) == "night 2"
    (tmp_path / "run" / "controller").write_text("0 night 2\n", encoding="ascii")  # it died, and its time is over
    assert sh(taking(folder, "day")) == ""
    assert own_name(tmp_path) == own_name(tmp_path) != own_name(tmp_path / "run")


def test_a_machine_that_is_lost_under_way_is_left_to_the_next_run() -> None:
    """It counts against the budget and holds up nobody else; its node stays closed until it is back."""
    machines, nodes = fleet(3)
    marks = MemoryMarks(nodes, Killer(), max_down=2)
    machines["n00"].vanishes = True
    hosts, domains = MemoryHosts(machines, Killer()), dict.fromkeys(machines, "")
    rolled = roll(hosts, marks, None, Rules(max_down=2, tolerate=1), domains)
    assert rolled.changed == ["n01", "n02"]
    assert "it does not answer; the next run goes on with it" in rolled.failed["n00"]
    assert nodes["n00"].is_cordoned
    machines["n00"].answers = True
    rolled = roll(hosts, marks, None, Rules(), domains)
    assert (rolled.halted, rolled.changed) == ("", ["n00"])
    assert not nodes["n00"].is_cordoned


def test_a_reboot_needs_everybody_to_have_left() -> None:
    """A node that was emptied of GPU pods for a lesser change is not rebooted under the others."""
    closed = member("a", is_cordoned=True, residents=(Resident(key="ml/cpu-job", holds_gpu=False),))
    assert allowed_now(closed, Rules()) is Disruption.MODULE_RELOAD
    asked = replace(closed, needs=Disruption.REBOOT)
    assert allowed_now(asked, Rules()) is Disruption.RELOAD
    assert allowed_now(replace(asked, residents=()), Rules()) is Disruption.REBOOT
    assert allowed_now(replace(closed, in_cluster=False), Rules()) is Disruption.REBOOT


def test_a_machine_that_is_no_node_yet_needs_no_budget() -> None:
    """It is nobody's loss."""
    (step,) = next_steps([member("a", in_cluster=False)], Rules(max_down=0), canary_passed=True)
    assert isinstance(step, Start)


def test_two_unhealthy_machines_halt_what_has_not_begun() -> None:
    """What is under way is brought to its end."""
    ill = [member(name, outcome=Outcome.FAILED) for name in ("a", "d")]
    racks = [*ill, member("b", phase=Phase.APPLYING, is_cordoned=True), member("c")]
    steps = next_steps(racks, Rules(batch=3, max_down=3), canary_passed=True)
    assert [type(step) for step in steps] == [Apply, Halt, Hold, Rest, Rest]
    assert steps[1].because.startswith("the change left it unhealthy, as it did a,")


def test_after_one_unhealthy_canary_a_second_one_is_tried() -> None:
    """One at a time until one came through; a machine that is broken for good halts at once, as does a lone one."""
    ill = member("a", outcome=Outcome.FAILED)
    steps = next_steps([ill, member("b"), member("c")], Rules(batch=3, max_down=3), canary_passed=False)
    assert [type(step) for step in steps] == [Cordon, Hold, Rest]
    assert [type(step) for step in next_steps([ill], Rules(), canary_passed=False)] == [Halt, Rest]
    broken = member("a", phase=Phase.FAILED, outcome=Outcome.FAILED)
    assert isinstance(next_steps([broken, member("b")], Rules(max_down=3), canary_passed=True)[0], Halt)


@pytest.mark.parametrize(("text", "machines", "count"), [("10%", 40, 4), ("10%", 5, 1), ("3", 5, 3), ("100%", 7, 7)])
def test_a_batch_is_a_number_or_a_share(text: str, machines: int, count: int) -> None:
    """At least one machine."""
    assert parse_batch(text, machines=machines) == count


@pytest.mark.parametrize("text", ["0", "-1", "ten", "5%%", "101%", ""])
def test_a_batch_that_is_none_is_told(text: str) -> None:
    """With what would be right."""
    with pytest.raises(BadInput, match="such as 10%"):
        parse_batch(text, machines=10)


def test_a_change_goes_through_the_fleet(tmp_path: Path) -> None:
    """Every machine changed, every node open, pods that may leave asked to."""
    machines, nodes = fleet(8)
    pod = Resident(key="ml/notebook", holds_gpu=True)
    nodes["n03"] = replace(nodes["n03"], residents=(pod,))
    killer = Killer()
    hosts, marks = MemoryHosts(machines, killer), MemoryMarks(nodes, killer, max_down=2)
    rolled = roll(hosts, marks, tmp_path, Rules(batch=3, max_down=2), dict.fromkeys(machines, ""))
    assert sorted(rolled.changed) == sorted(machines)
    assert {machine.installed for machine in machines.values()} == {"new"}
    assert not any(node.is_cordoned for node in marks.nodes.values())
    assert marks.evicted == [pod]
    assert marks.worst == 2


def test_a_canary_with_troubles_of_its_own_does_not_keep_the_others_back(tmp_path: Path) -> None:
    """It is put back and told; all the others are changed, tonight and tomorrow."""
    machines, nodes = fleet(4)
    machines["n00"].breaks = True
    killer = Killer()
    hosts, marks = MemoryHosts(machines, killer), MemoryMarks(nodes, killer, max_down=1)
    for changed in (["n01", "n02", "n03"], []):
        rolled = roll(hosts, marks, tmp_path, Rules(), dict.fromkeys(machines, ""))
        assert (rolled.halted, sorted(rolled.changed)) == ("", changed)
        assert "n00" in {**rolled.failed, **rolled.held}
    assert machines["n00"].installed == "old"
    assert not any(node.is_cordoned for node in marks.nodes.values())


def test_a_change_that_breaks_a_machine_stops_there(tmp_path: Path) -> None:
    """The canary and a second one are put back and opened; no third is touched, and the next run tries none again."""
    machines, nodes = fleet(4, breaks=True)
    killer = Killer()
    hosts, marks = MemoryHosts(machines, killer), MemoryMarks(nodes, killer, max_down=1)
    for _ in range(2):
        rolled = roll(hosts, marks, tmp_path, Rules(), dict.fromkeys(machines, ""))
        lines = rolled.halted.split("\n")
        assert lines[0] == "n01: the change left it unhealthy, as it did n00, and last good files were put back"
        assert lines[-1] == "to go on: see to n01, then spillway nodes apply --retry"
    assert hosts.applied == ["n00", "n01"]
    assert {machine.installed for machine in machines.values()} == {"old"}
    assert not any(node.is_cordoned for node in marks.nodes.values())
    machines["n00"].breaks = False
    hosts.wanted = "newer"  # another plan: the mark of the old one counts no more
    for machine in machines.values():
        machine.breaks = False
    assert len(roll(hosts, marks, tmp_path, Rules(), dict.fromkeys(machines, "")).changed) == 4


def test_a_machine_that_refuses_leaves_the_others_alone(tmp_path: Path) -> None:
    """A full disk is one machine's trouble, where some are tolerated."""
    machines, nodes = fleet(4)
    machines["n00"].refuses = True
    killer = Killer()
    hosts, marks = MemoryHosts(machines, killer), MemoryMarks(nodes, killer, max_down=1)
    rolled = roll(hosts, marks, tmp_path, Rules(tolerate=1), dict.fromkeys(machines, ""))
    assert rolled.failed == {"n00": "no space left on device"}
    assert rolled.changed == ["n01", "n02", "n03"]
    machines["n00"].refuses = False
    hosts.wanted = "newer"
    assert len(roll(hosts, marks, tmp_path, Rules(), dict.fromkeys(machines, "")).changed) == 4


def test_a_silent_machine_is_left_and_gone_on_with_later(tmp_path: Path) -> None:
    """It went down in the middle of its change: the others go on, and the next run finishes it."""
    machines, nodes = fleet(3)
    machines["n01"].answers = False
    nodes["n01"] = replace(nodes["n01"], phase=Phase.APPLYING, is_cordoned=True, is_ours=True)
    killer = Killer()
    hosts, marks = MemoryHosts(machines, killer), MemoryMarks(nodes, killer, max_down=2)
    rolled = roll(hosts, marks, tmp_path, Rules(batch=2, max_down=2), dict.fromkeys(machines, ""))
    assert rolled.failed == {"n01": "it does not answer; the next run goes on with it"}
    machines["n01"].answers = True
    roll(hosts, marks, tmp_path, Rules(batch=2, max_down=2), dict.fromkeys(machines, ""))
    assert {machine.installed for machine in machines.values()} == {"new"}
    assert not any(node.is_cordoned for node in marks.nodes.values())


def test_a_machine_that_answers_again_is_gone_on_with_in_the_same_run(tmp_path: Path) -> None:
    """A cable, a switch that came back: nobody is called for it."""
    machines, nodes = fleet(2)
    machines["n00"].answers, machines["n00"].silent_for = False, 3
    nodes["n00"] = replace(nodes["n00"], phase=Phase.APPLYING, is_cordoned=True, is_ours=True)
    killer = Killer()
    hosts, marks = MemoryHosts(machines, killer), MemoryMarks(nodes, killer, max_down=1)
    rolled = roll(hosts, marks, tmp_path, Rules(), dict.fromkeys(machines, ""), health=60)
    assert (sorted(rolled.changed), rolled.failed) == (["n00", "n01"], {})
    assert not any(node.is_cordoned for node in marks.nodes.values())


class Joining(MemoryHosts):
    """A change makes the machine a node."""

    marks: MemoryMarks

    def apply(self, name: str, allowed: Disruption) -> Done:
        """It has joined by the end."""
        done = super().apply(name, allowed)
        self.marks.nodes.setdefault(name, Seen(name=name, rack="r0", is_ready=True))
        return done


def test_a_machine_that_joins_in_its_change_is_not_marked_in_the_middle_of_it(tmp_path: Path) -> None:
    """Its phase was never written on the node, which is not marked in the middle of a change."""
    machines, nodes = fleet(2)
    del nodes["n01"]
    killer = Killer()
    hosts, marks = Joining(machines, killer), MemoryMarks(nodes, killer, max_down=1)
    hosts.marks = marks
    marks.mark = lambda *marked: pytest.fail(f"{marked}")  # type: ignore[method-assign]
    rolled = roll(hosts, marks, tmp_path, Rules(), {"n01": ""})
    assert (rolled.changed, rolled.failed) == (["n01"], {})
    assert marks.nodes["n01"] == Seen(name="n01", rack="r0", is_ready=True)


def test_every_change_and_every_command_is_in_the_journal(tmp_path: Path) -> None:
    """With what the machine said: what a person looks for on the day after."""
    machines, nodes = fleet(1)
    killer = Killer()
    roll(MemoryHosts(machines, killer), MemoryMarks(nodes, killer, max_down=1), tmp_path, Rules(), {"n00": ""})
    lines = [json.loads(line) for line in (tmp_path / "journal.jsonl").read_text(encoding="utf-8").splitlines()]
    told = {line["kind"]: {key: line[key] for key in line if key not in ("at", "before", "digest")} for line in lines}
    assert told["change"]["diff"] == "old -> new"
    assert told["command"] == {
        "kind": "command",
        "host": "n00",
        "command": "install new",
        "succeeded": True,
        "said": "done",
    }


PODS = st.sampled_from(["", "", "may leave", "gang"])


@settings(max_examples=examples(150), deadline=None)
@given(
    pods=st.lists(PODS, min_size=2, max_size=9),
    cordoned=st.sets(st.integers(0, 8), max_size=2),
    lost=st.sets(st.integers(0, 8), max_size=1),
    breaks=st.sets(st.integers(0, 8), max_size=1),
    max_down=st.integers(1, 3),
    batch=st.integers(1, 4),
    drain=st.booleans(),
    deaths=st.lists(st.tuples(st.integers(1, 12), st.booleans()), max_size=12),
)
def test_whatever_happens_and_whenever_the_controller_dies(  # noqa: PLR0917 - what hypothesis draws
    pods: list[str],
    cordoned: set[int],
    lost: set[int],
    breaks: set[int],
    max_down: int,
    batch: int,
    drain: bool,  # noqa: FBT001 - as above
    deaths: list[tuple[int, bool]],
) -> None:
    """The invariants hold at every write (``MemoryMarks.check``), and at the end no node is closed by us."""
    machines, nodes = fleet(len(pods))
    names = list(machines)
    for number, kind in enumerate(pods):
        resident = Resident(key=f"ml/p{number}", holds_gpu=True, stays="is a running gang's" if kind == "gang" else "")
        name = names[number]
        nodes[name] = replace(
            nodes[name],
            residents=(resident,) if kind else (),
            is_cordoned=number in cordoned,
            is_ready=number not in lost,
        )
        machines[name].breaks = number in breaks
    others = frozenset(names[number] for number in cordoned if number < len(names))
    rules = Rules(batch=batch, max_down=max_down, drain=drain)
    marks = MemoryMarks(nodes, Killer(), max_down=max_down, others=others)
    for at, before in deaths:
        marks.killer = Killer(at=at, before=before)
        with contextlib.suppress(Killed):
            roll(MemoryHosts(machines, marks.killer), marks, None, rules, dict.fromkeys(names, ""))
    marks.killer = Killer()
    rolled = roll(MemoryHosts(machines, marks.killer), marks, None, rules, dict.fromkeys(names, ""))
    assert not any(node.is_ours for node in marks.nodes.values()), "a node was left closed"
    assert all(node.phase is Phase.IDLE for node in marks.nodes.values())
    for name in names:
        gang = any(pod.stays for pod in marks.nodes[name].residents)
        assert machines[name].installed == "new" or name in rolled.held or name in rolled.failed or rolled.halted
        assert machines[name].installed == "old" or not gang


class Clinging(MemoryMarks):
    """Pods stay: their budget lets none go."""

    def evict(self, pod: Resident) -> str:
        """Refused, in the API server's words."""
        return f"{pod.key}: Cannot evict pod as it would violate the pod's disruption budget."


def test_a_node_that_cannot_be_emptied_in_time_is_opened_again_and_the_next_one_follows() -> None:
    """Nothing is changed on it. It is given the whole time, and no more; a third that waits is told of as well."""
    killer = Killer()
    machines, nodes = fleet(3)
    gang = Resident(key="ml/worker-0", holds_gpu=True, stays="is part of the running gang train")
    nodes["n02"] = replace(nodes["n02"], residents=(gang,))
    nodes["n00"] = replace(nodes["n00"], residents=(Resident(key="ml/web", holds_gpu=True),))
    marks, told = Clinging(nodes, killer, max_down=1), list[str]()
    hosts = MemoryHosts(machines, killer)
    rolled = roll(hosts, marks, None, Rules(), dict.fromkeys(machines, "r0"), told=told)
    assert rolled.held["n00"] == "it could not be emptied in 10 s"
    assert gang.stays in rolled.held["n02"]
    assert "n00: it could not be emptied in 10 s: opened again" in told
    assert (
        len([line for line in told if "disruption budget" in line]) == 12
    )  # it is asked once a second, at either end too
    assert not marks.nodes["n00"].is_cordoned
    assert (machines["n00"].installed, rolled.changed) == ("old", ["n01"])


@pytest.mark.parametrize("step", [Cordon, Start, Apply, Verify, Restore, Release])
def test_where_a_machine_stands_after_each_step_that_is_taken(step: type[Step]) -> None:
    """What went wrong is taken back; where that goes wrong, too, an operator is needed."""
    ends = {
        Cordon: (Phase.DRAINING, Phase.DRAINING),
        Start: (Phase.APPLYING, Phase.APPLYING),
        Apply: (Phase.VERIFYING, Phase.RESTORING),
        Verify: (Phase.IDLE, Phase.RESTORING),
        Restore: (Phase.IDLE, Phase.FAILED),
        Release: (Phase.IDLE, Phase.IDLE),
    }
    taken = step("a", "because")
    assert tuple(phase_after(taken, went_well=well) for well in (True, False)) == ends[step]


def test_of_a_closed_machine_a_gang_that_came_meanwhile_is_waited_for_and_others_are_asked_to_leave() -> None:
    """In this order: a pod that stays holds the change up anyway."""
    gang = Resident(key="ml/worker-0", holds_gpu=True, stays="is part of the running gang train")
    lone = Resident(key="ml/notebook", holds_gpu=True)
    closed = member("a", phase=Phase.DRAINING, is_cordoned=True)

    def step(*residents: Resident) -> Step:
        (found,) = next_steps([replace(closed, residents=residents)], Rules(), canary_passed=True)
        return found

    assert step(lone, gang) == Wait("a", "ml/worker-0 is part of the running gang train")
    assert step(lone) == Evict("a", "1 pods are in the way", (lone,))
    assert step() == Apply("a", "it is free for the change")
