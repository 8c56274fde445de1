"""One plan of many machines in a process of its own: ``python -m tests.bench.nodes_look ours|pyinfra|snapshot FILE``.

Prints seconds from the first connection to the last plan, seconds of processor time, and how many would change.
``snapshot`` gives our engine the role of stock operations.
"""

from gevent import monkey

monkey.patch_all()

import json  # noqa: E402 - the patch comes first
import sys  # noqa: E402
import time  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import gevent  # noqa: E402
from pyinfra.api.config import Config  # noqa: E402
from pyinfra.api.connect import connect_all  # noqa: E402
from pyinfra.api.host import Host  # noqa: E402
from pyinfra.api.inventory import Inventory  # noqa: E402
from pyinfra.api.state import State  # noqa: E402
from pyinfra.context import ctx_config, ctx_host, ctx_state  # noqa: E402

from roles.engine.fleet import connected  # noqa: E402
from tests.bench import node_role  # noqa: E402

Machines = list[tuple[str, dict[str, Any]]]


def by_us(machines: Machines, *, stock: bool, mend: bool) -> int:
    """Our engine; ``mend``: make the machines what they should be."""
    with connected(machines, node_role.of_pyinfra if stock else node_role.ours) as fleet:
        plans = fleet.plan()
        if mend:
            done = fleet.apply([name for name, _ in machines])
            assert not any(one.failed for one in done), done
    return sum(not plan.is_clean for plan in plans.values())


def by_pyinfra(machines: Machines) -> int:
    """As an embedding of pyinfra does it that plans all hosts side by side (its own command line takes longer)."""
    state = State(Inventory((machines, {})), Config(CONNECT_TIMEOUT=10), check_for_changes=True)
    connect_all(state)

    def plan(host: Host) -> bool:
        with ctx_config.use(state.config.copy()), ctx_host.use(host):
            node_role.of_pyinfra()
        return any(state.ops[host][one].operation_meta.will_change for one in host.op_hash_order)

    with ctx_state.use(state):
        found = [state.pool.spawn(plan, host) for host in state.inventory.get_active_hosts()]
        gevent.joinall(found, raise_error=True)
    return sum(one.value for one in found)


def main() -> None:
    """One measurement."""
    kind, file, *_ = sys.argv[1:]
    machines = [(name, data) for name, data in json.loads(Path(file).read_text(encoding="utf-8"))]
    began, used = time.perf_counter(), time.process_time()
    if kind == "pyinfra":
        changed = by_pyinfra(machines)
    else:
        changed = by_us(machines, stock=kind == "snapshot", mend=kind == "mend")
    seconds, busy = time.perf_counter() - began, time.process_time() - used
    print(json.dumps({"seconds": seconds, "busy": busy, "changed": changed}))


main()
