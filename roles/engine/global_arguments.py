"""pyinfra's thirty global arguments (``_sudo``, ``_env``, ...), worked out once for each deploy.

pyinfra works them out anew for every operation and every fact, from six layers of data: half of a plan's time. Most
calls give none of their own but a name, and a fact takes those of its operation.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from inspect import signature
from typing import Any, Final

from pyinfra.api import arguments
from pyinfra.api.host import Host
from pyinfra.api.state import State

Popped = tuple[dict[str, Any], list[str]]
_POP: Final[Callable[..., Any]] = arguments.pop_global_arguments
_ALL: Final = arguments.all_global_arguments
KEYS: Final = frozenset(key for key, _ in _ALL())
_KNOWN: Final = "global_arguments"


def remember() -> None:
    """Remembers them from now on, in this process."""
    arguments.all_global_arguments = cache(_ALL)
    for name in ("pyinfra.api.facts", "pyinfra.api.operation"):  # each has a name of its own for it
        vars(sys.modules[name])["pop_global_arguments"] = pop
    vars(sys.modules["pyinfra.api.operation"])["signature"] = cache(signature)  # it checks arguments with each call


def pop(state: State, host: Host, kwargs: dict[str, Any]) -> Popped:
    """Takes the global arguments out of ``kwargs``, as pyinfra's own; returns all of them, and which were given."""
    given = KEYS & kwargs.keys()
    if given <= {"name"}:
        known = _of_the_deploy(state, host)
        return (known | {"name": kwargs.pop("name")}, ["name"]) if given else (dict(known), [])
    here: Any = host.current_op_global_arguments
    if here is not None and given == here.keys() and all(kwargs[key] is here[key] for key in given):
        for key in given:
            del kwargs[key]
        return _of_the_deploy(state, host) | here, list(given)
    popped: Popped = _POP(state, host, kwargs)
    return popped


def current(state: State, host: Host) -> dict[str, Any]:
    """Those of the operation that runs, else those of its deploy: what a fact without any of its own is asked with."""
    of_the_operation: Any = host.current_op_global_arguments
    return _of_the_deploy(state, host) | (of_the_operation or {})


def forget(host: Host) -> None:
    """Forgets them before a new walk: the machine's data may have changed."""
    host.connector_data.pop(_KNOWN, None)


def _of_the_deploy(state: State, host: Host) -> dict[str, Any]:
    deploy, known = host.connector_data.get(_KNOWN, (None, None))
    if known is None or deploy is not host.current_deploy_kwargs:
        known = _POP(state, host, {})[0]
        host.connector_data[_KNOWN] = (host.current_deploy_kwargs, known)
    return dict(known)
