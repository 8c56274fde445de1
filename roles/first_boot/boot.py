"""A machine that prepares itself at its first boot: what user data starts on an EC2 instance.

    python3 -m roles.first_boot.boot

It is told by ``/etc/spillway/node.yaml`` (labels and taints of its node group) and ``/etc/spillway/boot.yaml`` (which
cluster, and where its token is), has the fleet's settings in its bundle, learns its name and address from the instance
metadata service, and runs the same :func:`roles.node.prepare` as any other machine, on itself. The certificates are
approved elsewhere, by whoever knows which instances there are (:mod:`roles.membership.approver`).
"""

from __future__ import annotations

from roles import ROOT

if __name__ == "__main__":
    from gevent import monkey

    monkey.patch_all()

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from autoscaler.config.documents import parse_data
from autoscaler.model import labels as words
from autoscaler.model.errors import BadInput, Unavailable
from roles.checks.versions import machine_mistakes
from roles.engine.disruption import Disruption
from roles.engine.fleet import Role, connected
from roles.facts.nodes import PKI
from roles.first_boot.bundle import SETTINGS
from roles.first_boot.instance_metadata import Identity, credentials, gpus_on_the_bus, identity, parameter
from roles.inventory.hosts import with_gpu_labels
from roles.node import prepare
from roles.operations.nodes import BOOTSTRAP, bootstrap_config
from roles.operations.services import settle
from roles.settings.machine import MachineSettings, merged
from roles.settings.version_matrix import refuse

NODE_FILE: Final = Path("/etc/spillway/node.yaml")
BOOT_FILE: Final = Path("/etc/spillway/boot.yaml")
BUNDLED: Final = ROOT / SETTINGS
_LOCAL: Final = "@local"


def main() -> None:
    """Prepare this machine. Exit status 0: done, 1: something did not answer, 2: what it was told is wrong."""
    try:
        _boot()
    except (BadInput, Unavailable) as problem:
        print(f"spillway: {problem}", file=sys.stderr)
        sys.exit(2 if isinstance(problem, BadInput) else 1)


def _boot() -> None:
    told, node = _read(BOOT_FILE), _read(NODE_FILE)
    who = identity()
    settings = merged(_read(BUNDLED), told.get("settings") or {})
    machine = settings_of(who, node=node, settings=settings, gpus=gpus_on_the_bus())
    if machine.kubelet and not Path(PKI, "kubelet-client-current.pem").exists():
        _take_token(who, machine, told)
    become({"settings": machine}, prepare)


def become(data: Mapping[str, Any], role: Role) -> None:
    """Make this machine what the role says; its files of before are kept for as long as that does not succeed.

    Raises ``Unavailable`` where another try may help, ``BadInput`` where none will.
    """
    with connected([(_LOCAL, data)], role) as fleet:
        plan = fleet.plan()[_LOCAL]
        if plan.failed or plan.unreachable:
            raise Unavailable(plan.failed or plan.unreachable)
        (done,) = fleet.apply([_LOCAL], allowed=Disruption.MODULE_RELOAD)  # it would never come back to this point
        for change in done.applied:
            print(change.resource)
        if done.failed:
            raise Unavailable(done.failed)
        if done.held:
            raise BadInput(f"{done.held[0].resource}: needs a reboot: start from an image that was booted with it")
        fine, said = fleet.shell(_LOCAL, settle(data))  # a rollout that fails later must not go back to a bare machine
        if not fine:
            raise Unavailable(f"what was kept of the bare machine could not be removed: {said.strip()[-200:]}")


def settings_of(
    who: Identity, *, node: Mapping[str, Any], settings: Mapping[str, Any], gpus: int = 0
) -> MachineSettings:
    """The settings of an instance with so many GPUs. Raises ``BadInput``."""
    own = {
        "name": who.name,
        "address": who.address,
        "provider_id": f"aws:///{who.zone}/{who.id}",
        "labels": {**node.get("labels", {}), words.ZONE: who.zone},
        "taints": [
            {"key": one["key"], "value": one.get("value", ""), "effect": one.get("effect", "NoSchedule")}
            for one in node.get("taints") or ()
        ],
        "gpu_product": who.gpu_product if gpus else "",
        "gpu_count": gpus,
        "kubelet": {"join": "machine"},
    }
    machine = parse_data(merged(settings, own), MachineSettings, source=f"{BOOT_FILE}: settings")
    refuse(machine_mistakes(machine))
    return with_gpu_labels(machine)


def _take_token(who: Identity, machine: MachineSettings, told: Mapping[str, Any]) -> None:
    """The token that was made for this instance, by the rights of its own role."""
    name = str(told.get("token_parameter", "")).format(instance=who.id)
    if not name:
        raise BadInput(f"{BOOT_FILE}: token_parameter is missing: the parameter that holds this instance's token")
    token = parameter(name, region=who.region, keys=credentials(), patience=300)
    assert machine.kubelet  # noqa: S101 - our caller has looked
    text = bootstrap_config(server=machine.kubelet.server, authority=machine.kubelet.authority, token=token)
    place = Path(BOOTSTRAP)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.touch(mode=0o600)
    place.write_text(text, encoding="utf-8")


def _read(path: Path) -> dict[str, Any]:
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"{path}: user data should have written it: {error.strerror}") from None
    except yaml.YAMLError as error:
        raise BadInput(f"{path}: is not YAML: {error}") from None
    if not isinstance(found, dict):
        raise BadInput(f"{path}: must be a mapping of keys to values")
    return found


if __name__ == "__main__":
    main()
