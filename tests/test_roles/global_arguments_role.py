"""A role whose calls give global arguments in every way: ``python -m tests.test_roles.global_arguments_role``.

Prints, as JSON, for each call whether pyinfra itself would have worked out the same.
"""

from gevent import monkey

monkey.patch_all()

import json  # noqa: E402 - the patch comes first
from typing import Any  # noqa: E402

from pyinfra.api.deploy import deploy  # noqa: E402
from pyinfra.api.host import Host  # noqa: E402
from pyinfra.api.state import State  # noqa: E402
from pyinfra.context import host  # noqa: E402
from pyinfra.facts.server import Command  # noqa: E402
from pyinfra.operations import files as stock  # noqa: E402

from roles.engine import global_arguments  # noqa: E402
from roles.engine.fleet import connected  # noqa: E402

SAME: list[bool] = []
quick, of_a_fact = global_arguments.pop, global_arguments.current


def compared(state: State, one: Host, kwargs: dict[str, Any]) -> Any:
    """Both ways, on kwargs of their own."""
    before = dict(kwargs)
    theirs = global_arguments._POP(state, one, before)
    ours = quick(state, one, kwargs)
    SAME.append(ours[0] == theirs[0] and sorted(ours[1]) == sorted(theirs[1]) and kwargs == before)
    return ours


def compared_for_a_fact(state: State, one: Host) -> Any:
    """Both ways, for a fact that is asked without any of its own."""
    current: Any = one.current_op_global_arguments
    ours = of_a_fact(state, one)
    SAME.append(ours == global_arguments._POP(state, one, dict(current or {}))[0])
    return ours


@deploy("inner")
def inner() -> None:
    """With arguments of its caller."""
    stock.directory("/etc", name="plain")
    stock.directory("/etc", name="with a variable", _env={"A": "1"})
    host.get_fact(Command, command="true", _timeout=3)


def role() -> None:
    """Outside of a deploy, in one, in one with arguments."""
    stock.directory("/etc")
    stock.directory("/etc", name="named", _chdir="/")
    host.get_fact(Command, command="true")
    inner()
    inner(_env={"B": "2"})


global_arguments.pop, global_arguments.current = compared, compared_for_a_fact
with connected([("@local", {"_shell_executable": "sh"})], role) as fleet:
    plan = fleet.plan()["@local"]
print(json.dumps({"failed": plan.failed, "same": SAME}))
