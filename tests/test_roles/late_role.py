"""A role whose second operation finds out while it runs that it would reboot: ``python -m tests.test_roles.late_role``.

Prints, as JSON, what a plan and two changes of this machine came to, in the folder that is named.
"""

from gevent import monkey

monkey.patch_all()

import json  # noqa: E402 - the patch comes first
import sys  # noqa: E402
from pathlib import Path  # noqa: E402
from types import SimpleNamespace  # noqa: E402
from typing import Any  # noqa: E402

from pyinfra.api.command import StringCommand  # noqa: E402
from pyinfra.api.operation import operation  # noqa: E402
from pyinfra.context import host  # noqa: E402

from roles.engine.disruption import Disruption, note  # noqa: E402
from roles.engine.fleet import connected  # noqa: E402
from roles.facts.files import FileState  # noqa: E402
from roles.operations import files  # noqa: E402
from roles.operations.files import Commands  # noqa: E402

FOLDER = Path(sys.argv[1])


@operation()
def booted_with(path: str) -> Commands:
    """Once the file is there, the machine must boot with it."""
    if host.get_fact(FileState, path=path) is None:
        host.noop("nothing to boot with")
        return
    note(Disruption.REBOOT)
    yield StringCommand(f"touch {FOLDER}/rebooted")


def role() -> None:
    """A file, and what it asks for."""
    files.place(name="file", dest=f"{FOLDER}/file", content="x", user=None, group=None)
    booted_with(name="boot", path=f"{FOLDER}/file")


def changed(allowed: Disruption, *left_alone: str) -> dict[str, Any]:
    """Plan and change, up to this class."""
    data = {"state_directory": str(FOLDER / "state"), "settings": SimpleNamespace(left_alone=left_alone)}
    with connected([("@local", data)], role) as fleet:
        plan = fleet.plan()["@local"]
        (done,) = fleet.apply(["@local"], allowed=allowed)
    return {
        "planned": [f"{one.resource} {one.disruption}" for one in plan.changes],
        "applied": [one.resource for one in done.applied],
        "held": [f"{one.resource} {one.disruption}" for one in done.held],
        "failed": done.failed,
    }


steps = [
    changed(Disruption.RELOAD, "file"),
    changed(Disruption.RELOAD),
    changed(Disruption.RELOAD),
    changed(Disruption.REBOOT),
]
print(json.dumps(steps))
