"""pyinfra's notion of what is current, for machines that are planned and changed side by side in one process."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from gevent.local import local
from pyinfra.api.host import Host, HostData
from pyinfra.api.state import State
from pyinfra.context import ctx_config, ctx_host, ctx_state


@contextlib.contextmanager
def current(state: State, host: Host) -> Iterator[None]:
    """Have these as pyinfra's notion of what is current; put back after an exception too."""
    before = ctx_state.get(), ctx_config.get(), ctx_host.get()
    ctx_state.set(state)
    ctx_config.set(state.config.copy())
    ctx_host.set(host)
    try:
        yield
    finally:
        for context, value in zip((ctx_state, ctx_config, ctx_host), before, strict=True):
            context.set(value)


class _Current(local):  # type: ignore[misc]
    """What pyinfra takes for current, for each greenlet."""

    module = None


def one_state_each() -> None:
    """Machines are applied to side by side, each with a state of its own; pyinfra holds one for the whole process."""
    if not isinstance(ctx_state.context._container, _Current):  # noqa: SLF001 - pyinfra has no other way in
        ctx_state.context._container = _Current()  # noqa: SLF001
        ctx_state.set(None)


class MergedData(HostData):
    """The data of a machine in one dictionary: pyinfra asks it for thirty keys, in six layers, for each operation."""

    def __init__(self, host: Host) -> None:
        merged = host.data.dict()
        super().__init__(host, merged, host.get_deploy_data)
        self.__dict__["merged"] = merged

    def __getattr__(self, key: str) -> Any:
        """Straight out of it, unless a deploy or an operation lays its own over it."""
        if key in self.__dict__["merged"] or self.__dict__["override_datas"] or self.__dict__["host"].in_deploy:
            return super().__getattr__(key)
        raise AttributeError(key)
