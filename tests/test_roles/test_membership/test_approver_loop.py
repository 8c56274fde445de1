"""`spillway nodes approve` as a service: when it asks again, and what it says of it."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autoscaler.kube.client import Kube
from autoscaler.model.errors import BadInput, Unavailable
from autoscaler.model.labels import APPROVER
from roles.membership import approver_loop
from roles.membership.approver import Round
from roles.membership.approver_loop import EVERY, LONGEST_WAIT, Teller, approve, rounds
from roles.membership.bootstrap import Verdict
from tests.test_autoscaler.fake_api import Answer, fake_api


class Over(threading.Event):
    """Never set by itself: notes how long each wait is, and ends after so many."""

    def __init__(self, turns: int) -> None:
        super().__init__()
        self.waits: list[float] = []
        self._turns = turns

    def wait(self, timeout: float | None = None) -> bool:
        """At once."""
        assert timeout is not None
        self.waits.append(timeout)
        return len(self.waits) > self._turns


def test_a_party_that_is_away_is_asked_later_and_later_and_told_once() -> None:
    """Up to a minute; then as often as before, and that it answers again is told once, too."""
    said: list[str] = []
    over, turns = Over(8), iter(range(8))

    def round_() -> Round:
        if next(turns) < 6:
            raise Unavailable("AWS: no answer")
        return Round(told=["i-1 may join as a"])

    rounds(round_, teller=Teller(said.append), may=lambda: True, over=over)
    assert over.waits == [EVERY, 6, 12, 24, 48, LONGEST_WAIT, LONGEST_WAIT, EVERY, EVERY]
    assert said == [
        "no node is let in: AWS: no answer",
        "all parties answer again",
        *["i-1 may join as a"] * 2,
    ]


def test_another_outage_is_told_of_its_own() -> None:
    """Its cause is another."""
    said: list[str] = []
    teller = Teller(said.append)
    for why in ("AWS: a", "AWS: a", "the API server: b"):
        teller.outage(why)
    assert said == ["no node is let in: AWS: a", "no node is let in: the API server: b"]


def test_of_several_the_one_that_may_not_does_nothing() -> None:
    """It looks again as soon as ever, also after an outage: the lease may have become its own."""
    may = iter([True, False, True])
    asked: list[int] = []

    def round_() -> Round:
        asked.append(1)
        raise Unavailable("AWS: no answer")

    over = Over(3)
    rounds(round_, teller=Teller(lambda _line: None), may=lambda: next(may), over=over)
    assert (len(asked), over.waits) == (2, [EVERY, 2 * EVERY, EVERY, 2 * EVERY])


def test_what_stays_the_same_is_told_once() -> None:
    """A refusal and a problem; one that went away and comes again is told again."""

    def told() -> Iterator[list[str]]:
        said: list[str] = []
        teller = Teller(said.append)
        refused = Verdict("csr-1", "a", "its token was used")
        for done in (
            Round(verdicts=[refused], problems={"i-1": "no rights"}),
            Round(verdicts=[refused], problems={"i-1": "no rights"}),
            Round(verdicts=[Verdict("csr-2", "a", "")], problems={"i-1": "throttled"}),
            Round(verdicts=[Verdict("csr-2", "a", "it has its certificate")], problems={"i-1": "throttled"}),
            Round(verdicts=[refused], problems={"i-1": "no rights"}),
        ):
            said.clear()
            teller.tell(done)
            yield list(said)

    both = ["a: certificate csr-1 is not approved: its token was used", "i-1: no rights"]
    later = ["a: certificate csr-2 is not approved: it has its certificate"]
    assert list(told()) == [both, [], ["a: certificate csr-2 approved", "i-1: throttled"], later, both]


class Led:
    """The lease of a service: what was done with it, and who asked."""

    def __init__(self, kube: object, **given: object) -> None:
        self.given, self.did = given | {"kube": kube}, ["made"]

    def start(self) -> None:
        """Noted."""
        self.did.append("started")

    def stop(self) -> None:
        """Noted."""
        self.did.append("stopped")

    def is_mine(self) -> bool:
        """It is."""
        return True


class Approves:
    """An approver that was made with these, and has let somebody in."""

    def __init__(self, kube: object, **given: object) -> None:
        self.given = given | {"kube": kube}

    def round(self) -> Round:
        """One."""
        return Round(told=[f"i-1 may join {self.given['cluster']}"])


@pytest.fixture
def parties(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """Those outside, and what was asked of them."""
    seen: dict[str, object] = {}
    monkeypatch.setattr(approver_loop, "Approver", Approves)
    monkeypatch.setattr(approver_loop, "_client", lambda service, region: f"{service} in {region}")
    monkeypatch.setattr(approver_loop, "_connected", lambda path, *, patient: f"{path} {patient}")

    def lease(kube: object, **given: object) -> Led:
        seen["lease"] = Led(kube, **given)
        return seen["lease"]  # type: ignore[return-value]

    monkeypatch.setattr(approver_loop, "Lease", lease)
    return seen


def approved(**given: object) -> int:
    """The exit status."""
    usual = {"cluster": "lab", "region": "eu", "kubeconfig": None, "namespace": "ns", "identity": None, "once": False}
    return approve(**usual | given)  # type: ignore[arg-type]


def test_one_round_asks_for_no_lease(parties: dict[str, object], capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever else acts; an API server that is not there ends it."""
    assert approved(once=True) == 0
    assert parties == {}
    assert capsys.readouterr().out.endswith("Z i-1 may join lab\n")


def test_a_service_may_come_up_before_its_api_server(tmp_path: Path) -> None:
    """It is asked in the first round. A single round needs it at once."""
    with fake_api() as api:
        api.answer = lambda _asked: Answer(body={})
        kubeconfig = api.kubeconfig(tmp_path)
        assert isinstance(approver_loop._connected(kubeconfig, patient=False), Kube)
    assert isinstance(approver_loop._connected(kubeconfig, patient=True), Kube)
    with pytest.raises(Unavailable):
        approver_loop._connected(kubeconfig, patient=False)


@pytest.mark.parametrize("fails", [False, True])
def test_a_service_holds_its_lease_until_it_is_told_to_stop(
    parties: dict[str, object], monkeypatch: pytest.MonkeyPatch, *, fails: bool
) -> None:
    """And gives it back whatever happens; either signal ends it."""
    stops: list[object] = []

    def on_first_of(signals: object, stop: Callable[[], None]) -> None:
        stops.append(signals)
        stop()

    def rounds_(
        round_: Callable[[], Round], *, may: Callable[[], bool], over: threading.Event, **_more: object
    ) -> None:
        lease = parties["lease"]
        assert isinstance(lease, Led)
        assert (over.is_set(), may(), lease.did) == (True, True, ["made", "started"])
        assert round_().told == ["i-1 may join lab"]
        if fails:
            raise Unavailable("x")

    monkeypatch.setattr(approver_loop, "on_first_of", on_first_of)
    monkeypatch.setattr(approver_loop, "rounds", rounds_)
    with pytest.raises(Unavailable) if fails else contextlib.nullcontext():
        assert approved() == 0
    lease = parties["lease"]
    assert isinstance(lease, Led)
    assert lease.did == ["made", "started", "stopped"]
    assert stops == [(signal.SIGTERM, signal.SIGINT)]
    assert (lease.given["kube"], lease.given["namespace"], lease.given["name"]) == ("None True", "ns", APPROVER)
    assert str(lease.given["identity"]).startswith(f"{socket.gethostname()}-")


def test_a_service_may_be_named(parties: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    """As its pod is."""
    monkeypatch.setattr(approver_loop, "on_first_of", lambda _signals, _stop: None)
    monkeypatch.setattr(approver_loop, "rounds", lambda _round, **_more: None)
    assert approved(identity="pod-1") == 0
    lease = parties["lease"]
    assert isinstance(lease, Led)
    assert lease.given["identity"] == "pod-1"


def test_a_region_that_is_none_is_named() -> None:
    """By the option that says it."""
    with pytest.raises(BadInput, match="--region not a region: "):
        approver_loop._client("ec2", "not a region")
    assert approver_loop._client("ec2", "eu-central-1").meta.region_name == "eu-central-1"
