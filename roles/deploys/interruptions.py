"""Role: an EC2 instance that hears from EC2 itself when it is about to be taken back, and tells the cluster."""

from __future__ import annotations

import posixpath
from pathlib import Path
from typing import Final

from pyinfra.api.deploy import deploy

from autoscaler.model.labels import INTERRUPTION
from roles.deploys import interruption_watch
from roles.engine.batched_facts import PATH
from roles.facts.nodes import AUTHORITY, PKI
from roles.operations import files, services
from roles.operations.nodes import KUBECONFIG
from roles.operations.services import DAEMON_RELOAD, restarts
from roles.settings.machine import settings

SCRIPT: Final = "/usr/local/sbin/spillway-interruption-watch"
SERVICE: Final = "/etc/systemd/system/spillway-interruption-watch.service"


@deploy("Interruption notices")
def interruptions() -> None:
    """A service that asks the instance metadata service; nothing on machines that are not EC2's.

    An image for nodes has what it runs; the node that it is for is known at its boot.
    """
    machine = settings()
    if machine.node_image:
        _program()
    if not (machine.kubelet and machine.provider_id.startswith("aws://")):
        return
    own = f"{KUBECONFIG} {AUTHORITY} {PKI}/kubelet-client-current.pem"
    unit = posixpath.basename(SERVICE)
    with restarts(DAEMON_RELOAD), restarts(unit):
        _program()
        files.place(
            name="what listens to EC2 as a unit",
            dest=SERVICE,
            content="[Unit]\nDescription=Interruption notices of EC2\n\n[Service]\n"
            f"Environment=PATH={PATH}\nExecStart=/usr/bin/python3 -I {SCRIPT} {INTERRUPTION} {machine.name} {own}\n"
            "Restart=always\nRestartSec=5\nProtectSystem=strict\nPrivateTmp=yes\nNoNewPrivileges=yes\n\n"
            "[Install]\nWantedBy=multi-user.target\n",
            meaning="ini",
        )
        services.only_drop_ins(unit=unit, name=f"no override of {unit}")
    services.daemon_reload(name="systemd knows what listens to EC2")
    services.running(unit=unit, name="what listens to EC2 runs")


def _program() -> None:
    files.place(
        name="what listens to EC2",
        dest=SCRIPT,
        content=Path(interruption_watch.__file__).read_text(encoding="utf-8"),
        mode="755",
    )
