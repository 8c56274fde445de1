"""What is told, and how often."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from autoscaler.model.actions import (
    IMPOSSIBLE,
    Admit,
    BeginStep,
    Cancel,
    Cordon,
    EndJob,
    Evict,
    Grow,
    Nominate,
    Plan,
    Recreate,
    Release,
    Remove,
    Reserve,
    SetCondition,
    Step,
    StopStep,
    Uncordon,
    Unreserve,
    Waiting,
)
from autoscaler.model.errors import Unavailable
from autoscaler.model.needed_changes import NeededChange
from autoscaler.model.step_descriptions import describe
from autoscaler.reporting.messenger import HOPELESS, UNREAD, Messenger
from autoscaler.reporting.metrics import Metrics
from autoscaler.reporting.report import Log, Report
from tests.builders import a_cluster, a_pod
from tests.test_autoscaler.test_kube.test_watcher import until

GROW = Grow(group="g", was=1, to=2, usd_per_hour=5.672, demand=("team/p",), because="p needs it")


NODES = NeededChange("policy", path="limits.nodes", to=4)
MAX = NeededChange("policy", path="groups[g].max", to=2)


def told(form: Any = "text") -> tuple[Report, io.StringIO]:
    """A report, and where its lines go."""
    out = io.StringIO()
    return Report(Log(form, out)), out


@pytest.mark.parametrize(
    ("step", "line"),
    [
        (
            Admit("team/g", (("team/a", "n1"), ("team/b", "n1"), ("team/c", "n2")), "r"),
            "start team/g: 3 pods on n1 (2), n2",
        ),
        (Admit("team/g", (("team/a", "n1"), ("team/b", "n1")), "r"), "start team/g: 2 pods on n1"),
        (Evict("n", ("team/a",), "r"), "evict pod team/a from node n"),
        (
            Evict("n", tuple(f"team/{one}" for one in "abcd"), "r"),
            "evict 4 pods (team/a, team/b, team/c and 1 more) from node n",
        ),
        (
            Evict("n", tuple(f"team/{one}" for one in "abcde"), "r"),
            "evict 5 pods (team/a, team/b, team/c and 2 more) from node n",
        ),
        (
            Reserve((("team/a", "n1"), ("team/b", "n2"), ("team/c", "n2")), "r"),
            "let 3 pods (team/a, team/b, team/c) onto nodes n1, n2 (2)",
        ),
        (Nominate((("team/a", "n1"), ("team/b", "n1")), "r"), "nominate n1 for 2 pods (team/a, team/b)"),
        (
            Nominate((("team/a", "n1"), ("team/b", "")), "r"),
            "nominate n1 for pod team/a and take back the nomination of pod team/b",
        ),
        (Reserve((("team/a", "n1"), ("team/b", "n1")), "r"), "let 2 pods (team/a, team/b) onto node n1"),
        (Unreserve(("n1",), "r"), "take the taint spillway.dev/reserved off node n1"),
        (Unreserve(("n1", "n2"), "r"), "take the taint spillway.dev/reserved off 2 nodes (n1, n2)"),
        (Recreate("team/a", "r"), "delete pod team/a, which never started, for its owner to make anew"),
        (Uncordon("n", "r"), "uncordon node n"),
        (GROW, "grow g to 2 nodes (+1, $5.67 per hour)"),
        (Cancel("g", 3, 1, "r"), "cancel the order of 2 nodes in g: back to 1 node"),
        (Cordon("n", "r"), "cordon node n"),
        (Remove("g", "i-1", "n", "r"), "terminate i-1 of g, node n"),
        (Remove("g", "i-1", None, "r"), "terminate i-1 of g"),
        (Release("g", "i-1", "n", "r"), "complete the termination of i-1 of g, node n"),
        (Release("g", "i-1", None, "r"), "complete the termination of i-1 of g"),
        (EndJob("team", "ps", "r"), "end job team/ps"),
        (BeginStep("team", "train", "r"), "begin step team/train"),
        (
            SetCondition("team", "ask", "Provisioned", status=True, because="r"),
            "tell ProvisioningRequest team/ask: Provisioned=True",
        ),
        (StopStep("team", "train", "r"), "stop step team/train, which was not begun"),
    ],
)
def test_every_step_reads_as_a_sentence(step: Step, line: str) -> None:
    """Followed by its reason."""
    assert describe(step) == line
    report, out = told()
    report.done(step)
    assert out.getvalue().split(" ", 1)[1] == f"{line}: {step.because}\n"


def test_as_json_a_line_carries_the_step() -> None:
    """For machines: what was done, with its fields."""
    report, out = told("json")
    report.done(GROW)
    record = json.loads(out.getvalue())
    assert (record["event"], record["step"], record["group"], record["to"]) == ("step", "Grow", "g", 2)
    assert record["text"].startswith("grow g to 2 nodes")


def test_lines_are_json_where_nobody_reads_them_on_a_terminal() -> None:
    """Unless it was said otherwise."""
    out = io.StringIO()
    Log(None, out).say("note", "hello")
    assert json.loads(out.getvalue())["text"] == "hello"


def test_waiting_is_told_when_it_changes() -> None:
    """Not at every look; pods that wait for the same reason share a line."""
    report, out = told()
    waiting = [Waiting(f"team/p{number}", "no room", (NODES,)) for number in range(5)]
    report.waiting(waiting)
    report.waiting(waiting)
    assert (
        out.getvalue()
        .splitlines()[0]
        .endswith("team/p0, team/p1, team/p2 and 2 more wait: no room; it would fit if limits.nodes is 4 or more")
    )
    assert len(out.getvalue().splitlines()) == 1
    report.waiting([*waiting[1:], Waiting("team/p0", "its node is on its way")])
    assert out.getvalue().splitlines()[-1].endswith("team/p0 waits: its node is on its way")
    report.waiting([])
    assert out.getvalue().splitlines()[-1].endswith("no pod waits any more")
    report.waiting(waiting[:2])
    report.waiting([], is_there=lambda pod: pod != "team/p1")
    told_last = [line.partition(" ")[2] for line in out.getvalue().splitlines()[-3:]]
    assert told_last == ["team/p0 waits no longer", "team/p1 is gone", "no pod waits any more"]


def test_the_end_of_each_pods_waiting_is_told_by_name_also_while_others_wait() -> None:
    """Whoever greps for one pod finds the end of its story; as JSON every one is named."""
    out = io.StringIO()
    report = Report(Log("json", out))
    waiting = [Waiting(f"team/p{number}", "no room") for number in range(6)]
    report.waiting(waiting)
    report.waiting(waiting[4:], is_there=lambda pod: pod != "team/p3")
    report.waiting(waiting[4:])
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [(one["text"], one["pods"]) for one in lines[1:]] == [
        ("team/p0, team/p1, team/p2 wait no longer", ["team/p0", "team/p1", "team/p2"]),
        ("team/p3 is gone", ["team/p3"]),
    ]


def test_a_line_of_text_has_its_date_in_the_zone_of_all_other_times() -> None:
    """What it says of the time to come is in UTC, too, and a night lies between two lines of a log."""
    out = io.StringIO()
    before = datetime.now(UTC).replace(microsecond=0)
    Log("text", out).say("warning", "it is full")
    at, text = out.getvalue().rstrip().split(" ", 1)
    assert before <= datetime.fromisoformat(at) <= datetime.now(UTC)
    assert (at[-1], text) == ("Z", "it is full")


def test_what_differs_by_its_numbers_only_is_no_news() -> None:
    """How many nodes are full changes with every node that joins."""
    report, out = told()
    for said in (
        "2 nodes: taint x not tolerated; 1 node: not enough cpu (asks 2, 1.5 free)",
        "4 nodes: not enough cpu (asks 2, 1 free); 3 nodes: taint x not tolerated",
        "5 nodes: not enough cpu (asks 2, 1.75 free); 3 nodes: taint x not tolerated",
        "5 nodes: not enough memory (asks 2Gi, 1Gi free)",
    ):
        report.waiting([Waiting("team/p", said)])
    assert len(out.getvalue().splitlines()) == 2


def test_an_outage_is_told_once_and_so_is_its_end() -> None:
    """However often it is met meanwhile."""
    report, out = told()
    for _ in range(3):
        report.outage("AWS", "it does not answer")
    report.outage("AWS", "")
    report.outage("AWS", "")
    lines = [line.split(" ", 1)[1] for line in out.getvalue().splitlines()]
    assert lines == ["AWS: it does not answer", "AWS: answers again"]


def test_a_failure_is_told_once_until_the_step_succeeds() -> None:
    """The same step that fails for the same reason is no news."""
    report, out = told()
    report.failed(GROW, Unavailable("AWS is away"))
    report.failed(GROW, Unavailable("AWS is away"))
    report.failed(GROW, Unavailable("AWS is slow"))
    report.done(GROW)
    report.failed(GROW, Unavailable("AWS is slow"))
    assert [line.split(" ", 1)[1][:16] for line in out.getvalue().splitlines()] == [
        "could not grow g",
        "could not grow g",
        "grow g to 2 node",
        "could not grow g",
    ]


def test_a_dry_run_tells_each_step_once() -> None:
    """Again only after it was not wanted in between."""
    report, out = told()
    report.would([GROW])
    report.would([GROW])
    report.would([])
    report.would([GROW])
    assert len(out.getvalue().splitlines()) == 2
    assert "would grow g to 2 nodes" in out.getvalue()


class Letters:
    """An API server that keeps Events."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, str]] = []
        self.fails = 0

    def tell_pod(self, *, namespace: str, name: str, uid: str, reason: str, message: str) -> bool:
        """One Event."""
        if self.fails:
            self.fails -= 1
            raise Unavailable("connection refused")
        self.told.append((f"{namespace}/{name}", reason, message))
        return True


def test_a_hopeless_pod_is_told_once() -> None:
    """One that only waits is not, and one that is gone cannot be."""
    kube = Letters()
    messenger = Messenger(kube)  # type: ignore[arg-type]
    pods = {"team/a": a_pod("a"), "team/b": a_pod("b")}
    waiting = [
        Waiting("team/a", "too big", (MAX,), cause=IMPOSSIBLE),
        Waiting("team/b", "its node comes"),
        Waiting("team/gone", "too big", cause=IMPOSSIBLE),
    ]
    for _ in range(3):
        messenger.hopeless(waiting, pods.get)
    messenger.stop()
    assert kube.told == [("team/a", HOPELESS, "too big; it would fit if max of group g is 2 or more")]


def test_a_pod_with_an_annotation_that_makes_no_sense_is_told_once() -> None:
    """Its patience counts as absent, which its owner should know; others are left alone."""
    kube = Letters()
    messenger = Messenger(kube)  # type: ignore[arg-type]
    for _ in range(2):
        messenger.unread([a_pod("a", unread=("annotation x is 'soon'",)), a_pod("b")])
    messenger.stop()
    assert kube.told == [("team/a", UNREAD, "annotation x is 'soon'")]


def test_an_event_that_could_not_be_written_is_written_at_the_next_look() -> None:
    """The outage is told."""
    kube, failures = Letters(), []
    kube.fails = 1
    messenger = Messenger(kube, failed=lambda party, _why: failures.append(party))  # type: ignore[arg-type]
    waiting = [Waiting("team/a", "too big", cause=IMPOSSIBLE)]
    messenger.hopeless(waiting, lambda _key: a_pod("a"))
    until(lambda: failures)
    messenger.hopeless(waiting, lambda _key: a_pod("a"))
    messenger.stop()
    assert len(kube.told) == 1


def test_metrics_count_what_happened() -> None:
    """Under names that a dashboard can rely on."""
    registry = CollectorRegistry()
    report = Report(Log("text", io.StringIO()), Metrics(registry))
    waiting = (Waiting("team/a", "r"), Waiting("team/b", "r", cause=IMPOSSIBLE))
    report.decided(Plan(waiting=waiting, usd_per_hour=5.672), a_cluster(), took=0.1)
    report.done(GROW, pods=[a_pod("p")])
    report.failed(GROW, Unavailable("away"))
    report.outage("AWS", "away")
    report.acting(mine=True)
    assert registry.get_sample_value("spillway_pods_waiting", {"cause": "busy"}) == 1
    assert registry.get_sample_value("spillway_pods_hopeless") == 1
    assert registry.get_sample_value("spillway_ec2_usd_per_hour") == 5.672
    assert registry.get_sample_value("spillway_steps_total", {"step": "Grow", "outcome": "done"}) == 1
    assert registry.get_sample_value("spillway_steps_total", {"step": "Grow", "outcome": "failed"}) == 1
    assert registry.get_sample_value("spillway_pending_to_request_seconds_count") == 1
    assert registry.get_sample_value("spillway_outages_total", {"party": "AWS"}) == 1
    assert registry.get_sample_value("spillway_acting") == 1
