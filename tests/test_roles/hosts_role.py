"""This machine as one of a rolling change: ``python -m tests.test_roles.hosts_role FOLDER``.

Prints, as JSON, what each call of :class:`roles.rollout.ssh_hosts.SshHosts` came to, with what the file held by then.
"""

from gevent import monkey

monkey.patch_all()

import json  # noqa: E402 - the patch comes first
import sys  # noqa: E402
from pathlib import Path  # noqa: E402
from types import SimpleNamespace  # noqa: E402
from typing import Any  # noqa: E402

from roles.engine.disruption import Disruption  # noqa: E402
from roles.operations import files  # noqa: E402
from roles.rollout.ssh_hosts import SshHosts  # noqa: E402

FOLDER = Path(sys.argv[1])
FILE, KEPT = FOLDER / "file", FOLDER / "state/last-good/files"
MACHINES = {
    "@local": {
        "state_directory": str(FOLDER / "state"),
        "run_directory": str(FOLDER / "run"),
        "settings": SimpleNamespace(left_alone=()),
    }
}


def role() -> None:
    """One file."""
    files.place(name="file", dest=str(FILE), content="new\n", user=None, group=None)


class Pods:
    """The cluster, as far as a smoke pod goes: the phases that it answers in turn, and what was asked of it."""

    def __init__(self, *phases: str) -> None:
        self.phases, self.asked = [*phases], list[str]()

    def pod_phase(self, namespace: str, name: str) -> str:
        """The next one."""
        self.asked.append(f"{namespace}/{name}?")
        return self.phases.pop(0)

    def remove_pod(self, namespace: str, name: str) -> None:
        """Noted."""
        self.asked.append(f"-{namespace}/{name}")

    def run_pod(self, body: dict[str, Any]) -> None:
        """Noted with its node and image."""
        spec = body["spec"]
        self.asked.append(f"+{body['metadata']['name']} {spec['nodeName']} {spec['containers'][0]['image']}")


def smoke(image: str = "lab/smoke@sha256:1", *phases: str) -> list[Any]:
    """What a node is told of by its smoke pod, and what the cluster was asked."""
    pods = Pods(*phases)
    with_pods: Any = SshHosts(MACHINES, role, marks=pods, smoke=image)  # type: ignore[arg-type]  # all that it asks
    return [with_pods._why_no_smoke("a"), pods.asked]


def hosts(controller: str) -> SshHosts:
    """As this controller has them."""
    return SshHosts(MACHINES, role, controller=controller)


def now(said: Any) -> list[Any]:
    """What a call gave, and what lies there after it: the file, and whether something is kept."""
    return [said, FILE.read_text(encoding="utf-8"), KEPT.exists()]


FILE.write_text("old\n", encoding="utf-8")
ours = hosts("ours")
print(
    json.dumps(
        {
            "plan": now([one.resource for one in ours.plan(["@local"])["@local"].changes]),
            "take": now(ours.take("@local")),
            "another takes": now(hosts("another").take("@local")),
            "we take again": now(ours.take("@local")),
            "apply": now([one.resource for one in ours.apply("@local", Disruption.REBOOT).applied]),
            "restore": now([ours.restore("@local").failed, ours.restore("@local").left]),
            "apply again": now([one.resource for one in ours.apply("@local", Disruption.REBOOT).applied]),
            "settle": now(ours.settle("@local")),
            "restore after it": now(ours.restore("@local").failed),
            "another leaves": now(hosts("another").leave("@local")),
            "another still waits": now(hosts("another").take("@local")),
            "we leave": now(ours.leave("@local")),
            "another gets it": now(hosts("another").take("@local")),
            "we wait": now(ours.take("@local")),
            "without a name": now(hosts("").take("@local")),
            "smoke": [smoke("lab/smoke", phase) for phase in ("", "Pending", "Succeeded", "Failed")],
            "no smoke": smoke(""),
        }
    )
)
