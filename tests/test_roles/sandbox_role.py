"""In a sandbox, in a process of its own for gevent's sake: reads cases from standard input, one JSON object a line.

``plant``: shell that root runs first. ``users``: accounts as settings have them; these are then made so by the role.
``unit``: in place of that, packaged units that are kept running: those of ``docker``, or one as the fabric manager is.
``trust``: in place of that, what a machine believes. ``package``: in place of that, a package that is there, and a
file, for which a unit would be restarted.
``tables``: in place of that, /etc/hosts and /etc/fstab as the roles have them. ``sysctl``: kernel settings.
``place``: in place of that, paths at which a file is placed. ``node``: settings; of a plan of the whole node the paths
are told that it asks about, and the text of each file that it would write. ``watch``: paths whose state is told, before
and after. ``look_seconds``: how long a look may last; ``write_seconds``: how long the write into a home.
"""

if __name__ == "__main__":
    from gevent import monkey

    monkey.patch_all()

import json
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pyinfra.api.deploy import deploy
from pyinfra.context import host

from roles.deploys.docker import docker_units
from roles.deploys.users import accounts
from roles.engine import batched_facts
from roles.engine.fleet import connected, looking
from roles.facts.batched import About
from roles.facts.files import FILES, WAYS
from roles.facts.packages import Packages
from roles.gpu import container_toolkit
from roles.gpu import services as gpu_services
from roles.inventory.instance_settings import NOBODY
from roles.node import prepare
from roles.operations import apt, files, homes, kernel, packages, services, trust
from roles.operations.nodes import KUBECONFIG
from roles.settings.machine import MachineSettings


def main() -> None:
    """Answer each line with one."""
    for line in sys.stdin:
        print(json.dumps(_case(json.loads(line))), flush=True)


def _case(case: dict[str, Any]) -> dict[str, Any]:
    subprocess.run(["sh", "-ec", case.get("plant", ":")], check=True, stdout=sys.stderr, stdin=subprocess.DEVNULL)
    if case.get("nothing_more"):
        return {}
    if "node" in case:
        return _plan_of_a_node(case["node"])
    batched_facts.LOOK_SECONDS = case.get("look_seconds", batched_facts.LOOK_SECONDS)
    homes._SECONDS = case.get("write_seconds", homes._SECONDS)
    watched = case.get("watch", ())
    before, began = _states(watched), time.monotonic()
    settings = MachineSettings.model_validate({"name": "here", "address": "192.0.2.1", "users": case.get("users", ())})
    role: Callable[[], Any] = accounts
    if "place" in case:
        role = _placing(case["place"])
    elif "trust" in case:
        role = _trusting
    elif "package" in case:
        role = _packed(case["package"])
    elif "tables" in case:
        role = _tables
    elif "sysctl" in case:
        role = _setting(case["sysctl"])
    elif "unit" in case:
        role = _keeping(case["unit"])
    with connected([("@local", {"settings": settings})], role) as fleet:
        plan = fleet.plan()["@local"]
        (done,) = fleet.apply(["@local"])
    with connected([("@local", {"settings": settings})], role) as fleet:
        again = fleet.plan()["@local"]
    return {
        "changes": [one.resource for one in plan.changes],
        "disrupts": {one.resource: str(one.disruption) for one in plan.changes},
        "diffs": [one.diff for one in plan.changes],
        "refused": {one.resource: one.reason for one in plan.refused},
        "unknown": plan.failed,
        "failed": done.failed,
        "again": [one.resource for one in again.changes],
        "still_refused": {one.resource: one.reason for one in again.refused},
        "said": [said for _, fine, said in done.commands if not fine],
        "before": before,
        "after": _states(watched),
        "seconds": time.monotonic() - began,
    }


def _plan_of_a_node(given: dict[str, Any]) -> dict[str, Any]:
    """Every path of which the plan of a whole node asks what lies there: each that it writes, removes or corrects."""
    texts: dict[str, str] = {}
    write = files._write

    def remembering(dest: str, content: str, **how: Any) -> Any:
        texts[dest] = content
        return write(dest, content, **how)

    files._write = remembering
    settings = MachineSettings.model_validate({"name": "here", "address": "192.0.2.1", **given})
    with connected([("@local", {"settings": settings})], prepare) as fleet:
        plan = fleet.plan()["@local"]
        assert not plan.failed, plan.failed
        (machine,) = fleet.inventory
        asked = [ask.command for ask in looking(machine).seen.asked.values()]
    files._write = write
    paths = sorted({one.subject for one in asked if isinstance(one, About) and one.kind in (FILES, WAYS)})
    return {"paths": paths, "texts": texts}


def _placing(paths: Iterable[str]) -> Callable[[], Any]:
    @deploy("Files")
    def placed() -> None:
        for path in paths:
            files.place(path, "ours\n", name=path)

    return placed


@deploy("Tables")
def _tables() -> None:
    """The name is that which the kernel has: it is not set."""
    kernel.hostname(wanted=platform.node(), address="192.0.2.1", name="name")
    kernel.no_swap(name="swap")
    kernel.no_swap_units(name="swap units")


def _setting(values: dict[str, str]) -> Callable[[], Any]:
    @deploy("Settings")
    def settings() -> None:
        kernel.sysctl(values=values, brought_by=("no_such_module",), name="settings")

    return settings


@deploy("Trust")
def _trusting() -> None:
    trust.kubeconfig_ours(path=KUBECONFIG, server="https://192.0.2.1:6443", authority=NOBODY, name="kubeconfig")
    trust.registries_verified(folder="/etc/containerd/certs.d", name="registries")
    container_toolkit.specification_fresh(driver="580.126.09", name="specification")
    apt.spared_by_unattended_upgrades(patterns=("containerd",), name="upgrades")
    apt.usual_places(name="apt")
    apt.restarts_left_to_us(units=("containerd",), name="needrestart")


def _packed(name: str) -> Callable[[], Any]:
    @deploy("Package")
    def packed() -> None:
        have = host.get_fact(Packages)
        version = have[name].version if name in have else "*"  # before it is asked
        with services.restarts("nvidia-fabricmanager"):
            packages.pinned(name="pin", pins_of="tests", wanted={name: version})
            packages.installed(name="package", wanted={name: version})
            files.place(name="file", dest="/etc/tests.conf", content="ours\n")
        services.running(name="service", unit="nvidia-fabricmanager")

    return packed


def _keeping(unit: str) -> Callable[[], Any]:
    @deploy("Service")
    def kept() -> None:
        if unit == "docker":
            docker_units()
        else:
            gpu_services._runs(unit)

    return kept


def _states(paths: Iterable[str]) -> dict[str, str]:
    """Kind, owner, mode, number of names, and the text of a regular file."""
    return {path: _state(Path(path)) for path in paths}


def _state(path: Path) -> str:
    said = subprocess.run(["stat", "-c", "%F %U:%G %a", "--", path], capture_output=True, text=True, check=False).stdout
    if said.startswith("regular"):
        return f"{said.strip()} {path.read_bytes()!r}"
    if said.startswith("symbolic"):
        return f"{said.strip()} {path.readlink()}"
    if said.startswith("directory"):
        return f"{said.strip()} {sorted(one.name for one in path.iterdir())}"
    return said.strip()


if __name__ == "__main__":
    main()
