"""The parts put together: what one decision ends with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autoscaler import service
from autoscaler.model.errors import Unavailable
from tests.live.hybrid import write_policy
from tests.test_autoscaler.test_loop import GROW, Bench, bench


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
