"""What a fleet makes of machines and roles that fail: ``python -m tests.test_roles.fleet_role FOLDER``.

Prints, as JSON, what each came to; HOME is the folder.
"""

from gevent import monkey

monkey.patch_all()

import itertools  # noqa: E402 - the patch comes first
import json  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
from collections.abc import Callable  # noqa: E402
from pathlib import Path  # noqa: E402
from types import SimpleNamespace  # noqa: E402
from typing import Any  # noqa: E402

from pyinfra.api.command import FileUploadCommand, FunctionCommand, StringCommand  # noqa: E402
from pyinfra.api.exceptions import OperationError  # noqa: E402
from pyinfra.api.operation import operation  # noqa: E402
from pyinfra.context import host  # noqa: E402

from autoscaler.model.errors import BadInput  # noqa: E402
from roles.engine.disruption import Disruption, Harmless  # noqa: E402
from roles.engine.fleet import connected  # noqa: E402
from roles.facts.files import FileState  # noqa: E402
from roles.operations.files import Commands  # noqa: E402

FOLDER = Path(sys.argv[1])
os.environ["HOME"] = str(FOLDER)
NUMBERS = itertools.count()


@operation()
def shell(command: str) -> Commands:
    """It runs each time."""
    yield StringCommand(command)


@operation()
def unfit(setting: str) -> Commands:
    """No source has what is asked for."""
    error = OperationError("there is no such version")
    error.setting = setting  # type: ignore[attr-defined]
    raise error
    yield StringCommand("true")


@operation()
def mode(file: Path) -> Commands:
    """What no service reads."""
    yield Harmless(f"chmod 600 {file}")


@operation()
def put(file: Path) -> Commands:
    """A file of this side."""
    yield FileUploadCommand(__file__, str(file))


@operation()
def call(function: Callable[[], Any]) -> Commands:
    """Something that is done on this side."""
    yield FunctionCommand(function, [], {})


def kinds() -> None:
    """A command of each kind; all are said to restart a kubelet."""
    put(name="put", file=FOLDER / "put")
    mode(name="mode", file=FOLDER / "put")
    call(name="call", function=(FOLDER / "called").touch)
    host.connector_data["disruption"] = dict.fromkeys(host.op_hash_order, Disruption.KUBELET_RESTART)


def raises() -> None:
    """Where its work is done, not where it is planned."""
    call(name="call", function=(FOLDER / "none" / "called").touch)


def refuses() -> None:
    """One operation cannot be planned; the others can."""
    unfit(name="driver", setting="driver")
    shell(name="after", command=f"touch {FOLDER}/after")


def breaks() -> None:
    """The second one fails: the third does not run."""
    shell(name="one", command=f"touch {FOLDER}/one")
    shell(name="two", command="echo it is full >&2; exit 3")
    shell(name="three", command=f"touch {FOLDER}/three")


def alone() -> None:
    """The second one fails, and holds up nothing else."""
    shell(name="one", command="true")
    broken = shell(name="two", command="exit 3")
    host.connector_data["alone"] = {host.op_hash_order[-1]}
    shell(name="three", command=f"touch {FOLDER}/alone-three")
    assert broken


def silent() -> None:
    """The second one says nothing, and the first one said why it failed."""
    shell(name="one", command="echo it is full >&2; exit 3")
    host.connector_data["alone"] = {host.op_hash_order[-1]}
    shell(name="two", command="exit 3")


def asks_for_ever() -> None:
    """Each time another fact."""
    host.get_fact(FileState, path=f"/none/{next(NUMBERS)}")


def mistaken() -> None:
    """A mistake in a role."""
    raise ValueError("no such thing")


def wrongly_set() -> None:
    """A mistake in the inventory."""
    raise BadInput("dgx-01: gpu = 9")


def tried(role: Callable[[], None]) -> dict[str, Any]:
    """Plan it for this machine and for one that does not answer, and do it on both."""
    here = {"state_directory": str(FOLDER / "state"), "settings": SimpleNamespace(left_alone=())}
    away = here | {"ssh_hostname": "127.0.0.1", "ssh_port": 1, "ssh_allow_agent": False}
    with connected([("@local", here), ("away", away)], role) as fleet:
        plans = fleet.plan()
        done = {one.host: one for one in fleet.apply(["@local", "away"])}
        said = fleet.shells("echo it is here; exit 2", ["@local"])
    local = done["@local"]
    return {
        "planned": [one.resource for one in plans["@local"].changes],
        "disruptions": [one.disruption.name for one in plans["@local"].changes],
        "commands": [command for one in plans["@local"].changes for command in one.commands],
        "refused": [[one.resource, one.reason, one.setting] for one in plans["@local"].refused],
        "why": plans["@local"].failed,
        "applied": [one.resource for one in local.applied],
        "failed": local.failed,
        "alone": local.alone,
        "away": [plans["away"].unreachable, done["away"].failed],
        "said": said["@local"],
        "ran": [[command.partition(" at ")[0], fine] for command, fine, _ in local.commands],
    }


ROLES = refuses, breaks, alone, silent, asks_for_ever, mistaken, wrongly_set, kinds, raises
print(json.dumps([tried(role) for role in ROLES]))
