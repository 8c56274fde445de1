"""Looks and changes with a fault in each, in the patched process that they need: ``python -m tests.live.nodes_faults``.

Reads machines, and the command that cuts the first one off, from standard input; prints what came of it as JSON.
"""

from gevent import monkey

monkey.patch_all()

import json  # noqa: E402 - the patch comes first
import subprocess  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable  # noqa: E402
from typing import Any  # noqa: E402

import gevent  # noqa: E402
from pyinfra.context import host  # noqa: E402
from pyinfra.facts.server import Command  # noqa: E402
from pyinfra.operations import server  # noqa: E402

from roles.engine import batched_facts  # noqa: E402
from roles.engine.fleet import connected, looking  # noqa: E402
from tests.test_roles.small_role import prepare  # noqa: E402

Machines = list[tuple[str, dict[str, Any]]]


def commands_of_a_look(machines: Machines) -> list[int]:
    """How often each machine was asked for a plan."""
    counts = dict.fromkeys((name for name, _ in machines), 0)
    with connected(machines, prepare) as fleet:
        for one in fleet.inventory:
            real = looking(one).behind.run_shell_command

            def counted(*words: Any, _name: str = one.name, _real: Callable[..., Any] = real, **options: Any) -> Any:
                counts[_name] += 1
                return _real(*words, **options)

            looking(one).behind.run_shell_command = counted  # type: ignore[method-assign]
        fleet.plan()
    return list(counts.values())


def fact_that_hangs(machines: Machines) -> dict[str, str]:
    """Reported, with its command."""
    batched_facts.LOOK_SECONDS = 2
    try:
        with connected(machines, lambda: host.get_fact(Command, command="sleep 777")) as fleet:
            return {name: plan.failed for name, plan in fleet.plan().items()}
    finally:
        batched_facts.LOOK_SECONDS = 60


def command_that_hangs(machines: Machines) -> list[str]:
    """Ended on the machine."""
    with connected(machines, lambda: server.shell(commands=["sleep 778"], _timeout=2)) as fleet:
        fleet.plan()
        return [done.failed for done in fleet.apply([name for name, _ in machines])]


def machine_that_is_cut_off(machines: Machines, cut: list[str]) -> dict[str, str]:
    """In the middle of a command; the others go on."""
    batched_facts.CUT_AFTER_MS = 3000
    with connected(machines, lambda: server.shell(commands=["sleep 5; touch /run/went-on"], _timeout=8)) as fleet:
        fleet.plan()
        gevent.spawn_later(1, subprocess.run, cut, check=True)
        return {done.host: done.failed for done in fleet.apply([name for name, _ in machines])}


def main() -> None:
    """All of it, with the seconds that each took."""
    given = json.load(sys.stdin)
    machines = [(name, data) for name, data in given["machines"]]
    found: dict[str, Any] = {"asked": commands_of_a_look(machines)}
    for name, fault in (("fact", fact_that_hangs), ("command", command_that_hangs)):
        began = time.monotonic()
        found[name] = fault(machines)
        found[f"{name} seconds"] = time.monotonic() - began
    found["cut"] = machine_that_is_cut_off(machines, given["cut"])
    print(json.dumps(found))


main()
