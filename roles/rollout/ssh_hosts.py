"""The machines' side of a rolling change, over SSH: each call connects anew and looks afresh."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final

import msgspec
from pyinfra.api.exceptions import PyinfraError

from roles.checks.findings import APT_LOCK
from roles.engine.disruption import Disruption
from roles.engine.fleet import Fleet, Machines, Role, connected
from roles.engine.host_plan import Done, HostPlan
from roles.gpu.driver import reload_module
from roles.operations.files import STAYS, kept_at, restore_kept
from roles.operations.packages import NOT_BACK, restore_packages
from roles.operations.services import owed_at, run_directory, settle
from roles.rollout import health_gate
from roles.rollout.model import Restored
from roles.rollout.node_state import NODES, Marks

_SECONDS: Final = 120
_RESTORE_SECONDS: Final = 900
"""Packages are fetched and installed again."""
TAKEN_SECONDS: Final = 7200
"""How long a controller that died keeps others off a machine; it itself goes on at once."""
_LOCK: Final = re.compile(r"Unable to acquire the dpkg|Could not get lock|Unable to lock")
"""How apt says that it has waited in vain."""
_SMOKE_NAMESPACE: Final = "default"
_RESTORE: Final = """\
{{ back=$(
{files}
) || exit 1; }} 2>&1
packages=$(
{packages}
) || exit 1
echo "$packages"
{module}
[ -n "$back$packages" ] || exit 0
case "$back" in */systemd/system/*) systemctl daemon-reload;; esac
for unit in $(ls {owed} 2>/dev/null; cat {owed}.done 2>/dev/null); do
  [ "$unit" = daemon-reload ] || systemctl restart "$unit"
done
rm -rf {owed} {owed}.done
exit 0
"""
"""Whatever was restarted with the new files, or was about to be, is restarted with the old ones."""


class SshHosts:
    """Machines with one role. ``smoke`` is the image of a pod that must run to its end on a node after a change."""

    def __init__(
        self,
        machines: Machines,
        role: Role,
        *,
        marks: Marks | None = None,
        smoke: str = "",
        controller: str = "",
        tell: Callable[[str], None] = print,
    ) -> None:
        """``controller``: the name under which machines are kept from others; without one they are not."""
        self._machines = dict(machines)
        self._role = role
        self._marks, self._smoke, self._controller = marks, smoke, controller
        self._tell = tell

    def plan(self, names: Iterable[str]) -> Mapping[str, HostPlan]:
        """A look at these machines, side by side."""
        with connected([(name, self._machines[name]) for name in names], self._role) as fleet:
            return fleet.plan()

    def take(self, name: str) -> str:
        """Takes the machine by a file on it, which a reboot takes away."""
        if not self._controller:
            return ""
        done, said = self._shell(name, taking(run_directory(self._machines[name]), self._controller))
        return said.strip() if done else ""  # one that does not answer is told as that

    def leave(self, name: str) -> None:
        """The file goes, where it is ours."""
        if self._controller:
            self._shell(name, leaving(run_directory(self._machines[name]), self._controller))

    def apply(self, name: str, allowed: Disruption) -> Done:
        """Look once more, then do it."""
        holders = ""
        with self._one(name) as fleet:
            plan = fleet.plan()[name]
            if any("apt-get" in command for change in plan.changes for command in change.commands):
                holders = self._tell_lock(name)
            (done,) = fleet.apply([name], allowed=allowed)
        if holders and _LOCK.search(done.failed):
            return msgspec.structs.replace(done, failed=f"{done.failed}; before, apt's lock was held by {holders}")
        return done

    def _tell_lock(self, name: str) -> str:
        """The processes that hold apt's lock: it waits for minutes, and does not always name them."""
        done, said = self._shell(name, APT_LOCK)
        if not (done and said.strip()):
            return ""
        holders = " and ".join(line.removeprefix("held by ") for line in said.strip().splitlines())
        self._tell(f"{name}: waits for apt's lock, {holders}")
        return holders

    def why_unhealthy(self, name: str) -> str:
        """The gate's script, and a pod where one is asked for."""
        done, said = self._shell(name, health_gate.SCRIPT + "true\n")
        if not done:
            return said or "it does not answer"
        return health_gate.why_unhealthy(said) or self._why_no_smoke(name)

    def restore(self, name: str) -> Restored:
        """The last good files and packages, and a restart of whatever read the others."""
        data = self._machines[name]
        kept, owed = kept_at(data), shlex.quote(owed_at(data))
        script = _RESTORE.format(
            files=restore_kept(kept), packages=restore_packages(kept), module=reload_module(), owed=owed
        )
        done, said = self._shell(name, script, seconds=_RESTORE_SECONDS)
        if not done:
            return Restored(failed=f"its last good files could not be put back: {said[-400:]}")
        return Restored(left=what_is_left(said))

    def settle(self, name: str) -> None:
        """What is there now is the last good."""
        self._shell(name, settle(self._machines[name]))

    def _one(self, name: str) -> AbstractContextManager[Fleet]:
        return connected([(name, self._machines[name])], self._role)

    def _shell(self, name: str, script: str, *, seconds: int = _SECONDS) -> tuple[bool, str]:
        with self._one(name) as fleet:
            return _run(fleet, name, script, seconds=seconds)

    def _why_no_smoke(self, name: str) -> str:
        """A pod bound to the node runs to its end: sandbox, container and their removal work."""
        if not (self._smoke and self._marks):
            return ""
        pod = f"{NODES}-smoke-{name}"
        phase = self._marks.pod_phase(_SMOKE_NAMESPACE, pod)
        if phase == "Succeeded":
            self._marks.remove_pod(_SMOKE_NAMESPACE, pod)
            return ""
        if phase == "Failed":
            self._marks.remove_pod(_SMOKE_NAMESPACE, pod)
            return f"the smoke pod {pod} failed"
        if not phase:
            self._marks.run_pod(smoke_pod(pod, node=name, image=self._smoke))
        return f"the smoke pod {pod} has not ended yet"


def taking(folder: str, controller: str) -> str:
    """Shell that keeps other controllers off a machine for :data:`TAKEN_SECONDS`; prints which one it is taken by."""
    return f"""\
set -eu; mkdir -p -m 755 {folder}; exec 9> {folder}/controller.lock; flock 9
read -r up rest < /proc/uptime; now=${{up%.*}}; until=0; by=
[ ! -s {folder}/controller ] || read -r until by < {folder}/controller
if [ "$by" != {shlex.quote(controller)} ] && [ "$until" -gt "$now" ]; then echo "$by"; exit 0; fi
echo $((now + {TAKEN_SECONDS})) {shlex.quote(controller)} > {folder}/controller"""


def leaving(folder: str, controller: str) -> str:
    """Shell that lets others change the machine, where it is this one that holds it."""
    return f"""\
[ -s {folder}/controller ] || exit 0; exec 9> {folder}/controller.lock; flock 9
read -r until by < {folder}/controller; [ "$by" != {shlex.quote(controller)} ] || rm -f {folder}/controller"""


def what_is_left(said: str) -> str:
    """What the script of a restoration could not put back, in its own words; empty where all is as it was."""
    return "; ".join(line.strip() for line in said.splitlines() if line.startswith(NOT_BACK) or STAYS in line)


def smoke_pod(name: str, *, node: str, image: str) -> dict[str, Any]:
    """A pod that is bound to its node past the scheduler: the node is closed at this time."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": _SMOKE_NAMESPACE, "labels": {"app.kubernetes.io/managed-by": NODES}},
        "spec": {
            "nodeName": node,
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "smoke", "image": image, "imagePullPolicy": "IfNotPresent"}],
        },
    }


def _run(fleet: Fleet, name: str, script: str, *, seconds: int) -> tuple[bool, str]:
    if name in fleet.unreachable:
        return False, fleet.unreachable[name]
    try:
        return fleet.shell(name, script, seconds=seconds)
    except (PyinfraError, OSError, TimeoutError, EOFError) as error:
        return False, " ".join(str(error).split()) or type(error).__name__
