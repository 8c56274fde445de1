"""What pyinfra takes for current: of one machine at a time, and each greenlet's own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import gevent
import pytest
from pyinfra.api.config import Config
from pyinfra.api.inventory import Inventory
from pyinfra.api.state import State
from pyinfra.context import ctx_config, ctx_host, ctx_state

from roles.engine.pyinfra_context import MergedData, current, one_state_each


@pytest.fixture
def state() -> State:
    """Of one machine."""
    return State(Inventory((["@local"], {}), group=(["@local"], {"size": 1})), Config(SUDO=True))


def now() -> list[Any]:
    """What is current."""
    return [ctx_state.get(), ctx_config.get(), ctx_host.get()]


def test_what_is_current_is_put_back(state: State) -> None:
    """After an exception too; the configuration is a copy, which a deploy may change."""
    (host,) = state.inventory
    before = now()
    inside: list[Any] = []

    def break_within() -> None:
        with current(state, host):
            inside.extend(now())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        break_within()
    assert [inside[0], inside[2]] == [state, host]
    assert inside[1].SUDO
    assert inside[1] is not state.config
    assert all(one is was for one, was in zip(now(), before, strict=True))


def test_each_greenlet_has_a_state_of_its_own(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for twice, it is the same as once: nothing that is current gets lost."""
    monkeypatch.setattr(ctx_state.context, "_container", SimpleNamespace(module=None))
    one_state_each()
    ctx_state.set(state)
    one_state_each()
    assert ctx_state.get() is state
    assert gevent.spawn(ctx_state.isset).get() is False
    assert ctx_state.get() is state


def test_the_data_of_a_machine_are_those_of_its_groups_and_its_own(state: State) -> None:
    """What is not there is told as pyinfra expects it, and what a deploy lays over it counts."""
    (host,) = state.inventory
    data = MergedData(host)
    assert data.size == 1
    assert data.get("size") == 1
    with pytest.raises(AttributeError):
        _ = data.nothing
    data.size = 2
    assert data.size == 2
    data.other = 3
    assert data.other == 3
