"""What is posted to a webhook: by which rules, how often, and what becomes of it where the receiver fails."""

from __future__ import annotations

import io
import json
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, get_args

import pytest

from autoscaler.config.documents import parse_document
from autoscaler.config.notifications import EVENTS, Event
from autoscaler.config.policy import Policy
from autoscaler.config.policy_changes import changes
from autoscaler.model.actions import BUSY, MONEY, Cordon, Grow, Waiting
from autoscaler.model.errors import BadInput
from autoscaler.reporting.messenger import Messenger
from autoscaler.reporting.notifications import Notifier
from autoscaler.reporting.report import Log, Report
from tests import ROOT
from tests.test_autoscaler.test_kube.test_watcher import until
from tests.test_autoscaler.test_reporting.test_report import Letters

GROW = Grow(group="g", was=1, to=2, usd_per_hour=5.672, demand=("team/p",), because="p needs it")


@dataclass
class Receiver:
    """A webhook's server in this process: answers as it is told, 200 then."""

    url: str = ""
    got: queue.SimpleQueue[dict[str, Any]] = field(default_factory=queue.SimpleQueue)
    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    calls: int = 0

    def texts(self, many: int) -> list[str]:
        """So many messages, when they are there; and no more."""
        found = [self.got.get(timeout=20)["text"] for _ in range(many)]
        assert self.got.empty()
        return found


@contextmanager
def receiver() -> Iterator[Receiver]:
    """For the length of a ``with`` block."""
    made = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            made.calls += 1
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status, headers = made.answers.pop(0) if made.answers else (200, {})
            if status == 200:
                made.got.put(json.loads(body))
            self.send_response(status)
            for name, value in {"Content-Length": "2", **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        made.url = f"http://127.0.0.1:{server.server_port}/services/T0/SECRET"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield made
        finally:
            server.shutdown()
            thread.join()


def a_policy(file: Path, **rule: Any) -> Policy:
    """With one rule."""
    rules = [{"name": "ops", "webhook_file": str(file), **rule}]
    return parse_document(
        json.dumps({"cluster": "lab", "groups": [], "notifications": rules}), Policy, what="policy", source="p"
    )


@dataclass
class Desk:
    """A report whose lines are heard."""

    policy: Policy
    acts: bool = True
    out: io.StringIO = field(default_factory=io.StringIO)
    now: float = 0.0
    failures: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Put together as the service does."""
        log = Log("json", self.out)
        self.report = Report(log)
        self.messenger = Messenger(Letters(), failed=self.failed, pauses=(0.0, 0.0))  # type: ignore[arg-type]
        notifier = Notifier(self.messenger, policy=lambda: self.policy, acts=lambda: self.acts, clock=lambda: self.now)
        log.hears = notifier.hear

    def failed(self, party: str, why: str) -> None:
        """As the report is told."""
        self.failures.append((party, why))
        self.report.outage(party, why)


@pytest.fixture
def hook() -> Iterator[Receiver]:
    """A receiver."""
    with receiver() as made:
        yield made


@pytest.fixture
def file(tmp_path: Path, hook: Receiver) -> Path:
    """With its address, as a mounted Secret has it."""
    path = tmp_path / "slack"
    path.write_text(f"{hook.url}\n")
    return path


def test_what_a_rule_asks_for_is_posted_in_slacks_form(hook: Receiver, file: Path) -> None:
    """With the cluster, and the channel where the webhook does not say it."""
    desk = Desk(a_policy(file, channel="#gpu", events=["warning", "bought"]))
    desk.report._warn(["node n does not answer"])
    assert hook.got.get(timeout=20) == {"text": "*lab* warning: node n does not answer", "channel": "#gpu"}
    desk.report.done(GROW)
    desk.report.done(Cordon("n", "idle"))
    desk.report.outage("AWS", "away")
    desk.messenger.stop()
    assert hook.texts(1) == ["*lab* bought: grow g to 2 nodes (+1, $5.67 per hour): p needs it"]


def test_the_same_is_told_again_only_after_a_while(hook: Receiver, file: Path) -> None:
    """Though its numbers differ; another thing is told at once."""
    desk = Desk(a_policy(file, events=["outage"], again_after="10m"))
    for now, why in ((0, "away for 1 s"), (60, "away for 2 s"), (61, "refused"), (601, "away for 3 s")):
        desk.now = now
        desk.report.outage("AWS", why)
    desk.messenger.stop()
    assert hook.texts(3) == [f"*lab* outage: AWS: {why}" for why in ("away for 1 s", "refused", "away for 3 s")]


def test_a_receiver_that_fails_is_tried_again_and_that_is_told_once(hook: Receiver, file: Path) -> None:
    """Then that it answers again; the address, which is a secret, is told nowhere."""
    hook.answers = [(500, {}), (429, {"Retry-After": "0"})]
    desk = Desk(a_policy(file, events=["warning", "outage", "recovered"]))
    desk.report._warn(["w"])
    assert hook.got.get(timeout=20)["text"] == "*lab* warning: w"
    until(lambda: ("the webhook of notifications ops", "") in desk.failures)
    desk.messenger.stop()
    assert hook.calls == 3, "its own failure is not posted"
    said = desk.out.getvalue()
    assert "the webhook of notifications ops: it answers 500" in said
    assert "the webhook of notifications ops: answers again" in said
    assert "SECRET" not in said


def test_what_another_try_does_not_change_is_not_tried_again(hook: Receiver, file: Path) -> None:
    """A webhook that was taken away; then the next message is posted all the same."""
    hook.answers = [(404, {})]
    desk = Desk(a_policy(file))
    desk.report._warn(["one"])
    until(lambda: desk.failures)
    desk.report._warn(["two"])
    desk.messenger.stop()
    assert hook.texts(1) == ["*lab* warning: two"]
    assert hook.calls == 2


def test_a_receiver_that_stays_away_is_given_up(hook: Receiver, file: Path) -> None:
    """After its tries: what comes later is not held up by it."""
    hook.answers = [(500, {})] * 3
    desk = Desk(a_policy(file))
    desk.report._warn(["one"])
    until(lambda: hook.calls == 3)
    desk.report._warn(["two"])
    desk.messenger.stop()
    assert hook.texts(1) == ["*lab* warning: two"]


@pytest.mark.parametrize(("text", "why"), [(None, "cannot be read"), ("not an address", "has no address such as")])
def test_a_file_without_an_address_is_told(tmp_path: Path, text: str | None, why: str) -> None:
    """By its path; what stands in it is told nowhere."""
    path = tmp_path / "slack"
    if text is not None:
        path.write_text(text)
    desk = Desk(a_policy(path))
    desk.report._warn(["w"])
    until(lambda: any(why in said for _, said in desk.failures))
    desk.messenger.stop()
    assert "not an address" not in desk.out.getvalue()


def test_pods_that_a_person_must_help_are_told_to_their_namespaces(hook: Receiver, file: Path) -> None:
    """Those that only wait for other work are not."""
    desk = Desk(a_policy(file, namespaces=["team"], events=["waiting", "warning"]))
    desk.report.waiting([Waiting("team/a", "too dear", cause=MONEY), Waiting("team/b", "full", cause=BUSY)])
    desk.report.waiting([Waiting("other/a", "too dear as well", cause=MONEY)])
    desk.report._warn(["of no pod"])
    desk.messenger.stop()
    assert hook.texts(1) == ["*lab* waiting: team/a waits: too dear"]


def test_a_replica_that_does_not_act_posts_nothing(hook: Receiver, file: Path) -> None:
    """The one that acts says the same."""
    desk = Desk(a_policy(file), acts=False)
    desk.report._warn(["w"])
    desk.messenger.stop()
    assert hook.calls == 0


def test_rules_are_live_and_named_once(tmp_path: Path) -> None:
    """An edit of one says so; a mistake names what would be right."""
    old, new = a_policy(tmp_path / "a"), a_policy(tmp_path / "a", events=["defect"])
    assert {change.effect for change in changes(old, new)} == {"live"}
    with pytest.raises(BadInput, match="'nonsense'"):
        a_policy(tmp_path / "a", events=["nonsense"])
    twice = {"name": "a", "webhook_file": "f"}
    text = json.dumps({"cluster": "lab", "groups": [], "notifications": [twice, twice]})
    with pytest.raises(BadInput, match="two rules are named 'a'"):
        parse_document(text, Policy, what="policy", source="p")


def test_every_event_of_a_rule_is_one_that_the_log_has() -> None:
    """A rule for what is never told would be silent for ever."""
    code = "".join(
        (ROOT / "autoscaler" / name).read_text(encoding="utf-8") for name in ("reporting/report.py", "acting_policy.py")
    )
    said = {event for event in EVENTS if f'say("{event}"' in code}
    assert set(get_args(Event)) - said == {"bought", "freed", "terminated"}
