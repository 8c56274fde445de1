"""What an instance hears from EC2's metadata service, and what it tells of it; live/test_node_boot.py has it run."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from http.server import ThreadingHTTPServer

import pytest

from roles.deploys import interruption_watch
from roles.deploys.interruption_watch import Notice, notice_from, session, value_of
from tests.live.amazon import Metadata

ACTION = '{"action": "terminate", "time": "2026-08-01T10:02:00Z"}'
EVENTS = """[{"NotBefore": "21 Aug 2026 09:00:43 GMT", "Code": "system-reboot", "State": "active"},
 {"NotBefore": "20 Aug 2026 09:00:43 GMT", "Code": "system-reboot", "State": "canceled"},
 {"NotBefore": "22 Aug 2026 09:00:43 GMT", "Code": "instance-retirement", "State": "active"}]"""
REBALANCE = '{"noticeTime": "2026-08-01T10:00:00Z"}'
SPOT, MAINTENANCE = "meta-data/spot/instance-action", "meta-data/events/maintenance/scheduled"
RISK = "meta-data/events/recommendations/rebalance"


@pytest.fixture
def says(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """What the metadata service says by path; on loopback, and only to those with a session."""
    found: dict[str, str] = {}
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Metadata, found))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setattr(interruption_watch, "METADATA", f"127.0.0.1:{server.server_port}")
    yield found
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize(
    ("told", "notice"),
    [
        ({}, None),
        ({SPOT: ACTION}, ("interruption", "2026-08-01T10:02:00Z")),
        ({RISK: REBALANCE}, ("rebalance", "")),
        ({MAINTENANCE: EVENTS}, ("maintenance", "2026-08-21T09:00:43Z")),
        ({MAINTENANCE: "[]"}, None),
        ({RISK: REBALANCE, SPOT: ACTION, MAINTENANCE: EVENTS}, ("interruption", "2026-08-01T10:02:00Z")),
        ({RISK: REBALANCE, MAINTENANCE: EVENTS}, ("maintenance", "2026-08-21T09:00:43Z")),
    ],
)
def test_the_gravest_notice_counts(says: dict[str, str], told: dict[str, str], notice: Notice | None) -> None:
    """Of events that are scheduled the first that still stands."""
    says.update(told)
    assert notice_from(session()) == notice


def test_a_service_that_does_not_answer_takes_no_notice_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an outage, and not the word that there is nothing."""
    monkeypatch.setattr(interruption_watch, "METADATA", "127.0.0.1:9")
    with pytest.raises(OSError, match="refused"):
        session()


def test_the_annotation_says_since_when_and_until_when() -> None:
    """Its end only where EC2 says it; without a notice it goes."""
    kind, told, ends = str(value_of(("interruption", "2026-08-01T10:02:00Z"))).split()
    assert (kind, ends) == ("interruption", "2026-08-01T10:02:00Z")
    assert datetime.now(UTC) - datetime.fromisoformat(told) < timedelta(minutes=1)
    assert len(str(value_of(("rebalance", ""))).split()) == 2
    assert value_of(None) is None
