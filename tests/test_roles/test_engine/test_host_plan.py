"""What a look comes to, in values: what waits, in which state a machine is, and the exit status of all."""

from __future__ import annotations

import pytest

from roles.engine.disruption import Disruption
from roles.engine.host_plan import Change, HostPlan, Refusal, as_json, exit_status, held, identity, state

HARMLESS = Change(resource="ssh | Banner", commands=("put /etc/banner",))
RESTART = Change(resource="containerd | Configuration", commands=("a",), disruption=Disruption.CONTAINERD_RESTART)
AFTER = Change(resource="containerd | Service", commands=("b",))
REFUSED = Refusal("driver | Package", "there is no such version")
CLEAN = HostPlan(host="clean")
DRIFTED = HostPlan(host="drifted", changes=(HARMLESS, RESTART, AFTER), refused=(REFUSED,))
AWAY = HostPlan(host="away", unreachable="no route")
UNREAD = HostPlan(host="unread", failed="could not be read")
WITHOUT_A_ROLE = Change(resource="boot reboot", commands=(), disruption=Disruption.REBOOT)


@pytest.mark.parametrize(
    ("plans", "status"),
    [
        ([CLEAN], 0),
        ([CLEAN, DRIFTED], 2),
        ([HostPlan(host="refused", refused=(REFUSED,))], 2),
        ([CLEAN, AWAY], 3),
        ([UNREAD], 3),
        ([DRIFTED, UNREAD], 4),
    ],
)
def test_the_exit_status_tells_drift_and_what_is_not_known(plans: list[HostPlan], status: int) -> None:
    """One of several is enough."""
    assert exit_status(iter(plans)) == status


@pytest.mark.parametrize(
    ("resource", "role"),
    [("containerd | Service", "containerd"), ("gpus | Driver | Package", "gpus | Driver"), ("driver", "driver")],
)
def test_the_role_of_drift_is_what_comes_before_the_last_bar(resource: str, role: str) -> None:
    """Of what is changed and of what is refused."""
    assert Change(resource=resource, commands=()).role == Refusal(resource, "held").role == role


def test_what_is_held_holds_what_its_role_does_after_it() -> None:
    """The service is not started with a configuration that is not there; what other roles do is done."""
    plan = HostPlan(host="a", changes=(AFTER, RESTART, AFTER, HARMLESS, WITHOUT_A_ROLE, WITHOUT_A_ROLE))
    assert held(plan, Disruption.DAEMON_RELOAD) == (RESTART, AFTER, WITHOUT_A_ROLE, WITHOUT_A_ROLE)
    assert held(plan, Disruption.CONTAINERD_RESTART) == (WITHOUT_A_ROLE, WITHOUT_A_ROLE)
    assert held(plan, Disruption.REBOOT) == ()


def test_a_machine_has_one_state() -> None:
    """Clean is only one of which all is known, and with nothing to do."""
    refused = HostPlan(host="refused", refused=(REFUSED,))
    found = {state(one): one.is_clean for one in (CLEAN, DRIFTED, refused, AWAY, UNREAD)}
    assert found == {"clean": True, "drifted": False, "refused": False, "unreachable": False, "unknown": False}


def test_a_plan_as_json_names_the_worst_and_the_reason() -> None:
    """Classes by their names."""
    drifted, away, unread = as_json([DRIFTED, AWAY, UNREAD])
    assert (drifted["state"], drifted["disruption"], drifted["reason"]) == ("drifted", "containerd-restart", "")
    assert [one["disruption"] for one in drifted["changes"]] == ["none", "containerd-restart", "none"]
    assert drifted["refused"] == [{"resource": "driver | Package", "reason": "there is no such version"}]
    assert [one["reason"] for one in (away, unread)] == ["no route", "could not be read"]
    assert away["disruption"] == "none"


def test_two_plans_are_the_same_where_they_would_do_the_same() -> None:
    """Whichever machine they are for; another diff of the same file is another plan."""
    other = Change(resource=HARMLESS.resource, commands=HARMLESS.commands, diff="+x")
    assert identity(HostPlan(host="a", changes=(HARMLESS,))) == identity(HostPlan(host="b", changes=(HARMLESS,)))
    assert identity(HostPlan(host="a", changes=(HARMLESS,))) != identity(HostPlan(host="a", changes=(other,)))
