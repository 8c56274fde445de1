r"""The machines to prepare, for pyinfra: from an inventory file, from a stack's outputs, or from both.

Plain pyinfra finds them by two environment variables::

    SPILLWAY_INVENTORY=inventory.yaml SPILLWAY_OUTPUTS=outputs.json \
        pyinfra roles.inventory.machines roles.node.prepare
"""

from __future__ import annotations

import base64
import contextlib
import errno
import fcntl
import functools
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from autoscaler.config.documents import parse_data
from autoscaler.model.errors import BadInput
from autoscaler.model.resources import parse_quantity
from roles.checks.versions import machine_mistakes
from roles.deploys.apt_sources import read_sources
from roles.inventory.instance_settings import instance_settings
from roles.inventory.reachability import refuse_unreachable
from roles.settings.controller_files import local_path
from roles.settings.gpu import gpu_labels
from roles.settings.machine import MachineSettings, User, key_in, merged
from roles.settings.source_lines import Written
from roles.settings.version_matrix import choose, read_matrix, refuse
from stacks.settings.inventory import Inventory, Machine, Ssh, read_inventory
from stacks.settings.outputs import MachineOutput, StackOutputs, parse_outputs

FILE: Final = "SPILLWAY_INVENTORY"
OUTPUTS: Final = "SPILLWAY_OUTPUTS"
_PREFIX: Final = "spillway-hosts-"
_OF_THE_ENTRY: Final = frozenset({"name", "address", "labels", "taints", "gpu_product", "gpu_count", "provider_id"})
"""What settings cannot say: the machine's entry, or the stack, does."""
Hosts = list[tuple[str, dict[str, Any]]]
"""pyinfra's inventory: name and data of each machine."""


def machines() -> dict[str, Hosts]:
    """The hosts for plain pyinfra, by group. Raises ``BadInput``."""
    outputs = os.environ.get(OUTPUTS)
    file = os.environ.get(FILE, "" if outputs else "inventory.yaml")
    return {"machines": read_machines(Path(file) if file else None, outputs=Path(outputs) if outputs else None)}


def read_machines(file: Path | None, *, outputs: Path | None = None) -> Hosts:
    """The hosts of an inventory file, of a stack's outputs (JSON), or of both. Raises ``BadInput``."""
    if file is None and outputs is None:
        raise BadInput("no machines: give an inventory file, or the outputs of a stack")
    written = read_inventory(file) if file else Inventory(machines=())
    stack = _exported(outputs) if outputs else None
    exported = stack.machines if stack else ()
    mistakes = _mistakes(written, exported, file=file, outputs=outputs)
    if mistakes:
        raise BadInput("\n".join(mistakes))
    fleet, lines = merged(_of_control_plane(stack), written.settings), Written(file)
    if written.ec2_settings:
        instance_settings(written, source=str(file), written=lines)
    hosts = [
        (machine.name, host_data(machine, fleet=fleet, source=str(file), written=lines)) for machine in written.machines
    ]
    known = {machine.name for machine in written.machines}
    hosts += [
        (one.name, _of_output(one, fleet=fleet, source=str(outputs))) for one in exported if one.name not in known
    ]
    refuse_unreachable((data["settings"] for _, data in hosts), source=str(file or outputs), written=lines)
    return hosts


def host_data(machine: Machine, *, fleet: Mapping[str, Any], source: str, written: Written) -> dict[str, Any]:
    """The pyinfra data of one machine. Raises ``BadInput`` naming file, line, machine and key."""
    own = {
        "name": machine.name,
        "address": machine.address,
        "labels": machine.node_labels(),
        "taints": [taint.model_dump() for taint in machine.taints],
        "gpu_product": machine.gpus.product if machine.gpus else "",
        "gpu_count": machine.gpus.count if machine.gpus else 0,
        "provider_id": f"onprem://{machine.name}",
    }
    ssh = machine.ssh
    settings = _checked(own, fleet, machine.settings, source=source, written=written)
    reserved = settings.kubelet.reserved if settings.kubelet else {}
    for keys, why in (
        (("kubelet", "join"), _why_it_cannot_join(settings)),
        (("users",), _why_shut_out(settings.users, ssh)),
        (("kubelet", "reserved"), _why_all(reserved, machine)),
    ):
        if why:
            line = written.line_of_setting(*keys, machine=machine.name)
            raise BadInput(f"{source}{line}: machine {machine.name}: settings: {'.'.join(keys)}: {why}")
    data = _connection(machine.address, user=ssh.user, port=ssh.port, key=ssh.key, host_key=ssh.host_key)
    return data | {"settings": settings}


def _why_it_cannot_join(settings: MachineSettings) -> str:
    """No token is put where a machine of one's own would look for it."""
    if settings.kubelet is None or settings.kubelet.join == "controller":
        return ""
    return "machine is for EC2, where an instance finds its token at boot, and here none would be found: leave it out"


def _why_all(reserved: Mapping[str, str], machine: Machine) -> str:
    """Why nothing would be left for pods; empty where something is."""
    whole = {"cpu": str(machine.cpus), "memory": machine.memory, "ephemeral-storage": machine.disk}
    for resource, amount in reserved.items():
        if resource in whole and parse_quantity(amount) >= parse_quantity(whole[resource]):
            return f"keeps {amount} of {resource} back, and the machine has {whole[resource]}: leave its pods something"
    return ""


def _why_shut_out(users: Iterable[User], ssh: Ssh) -> str:
    """Why the next run could not come in any more, as far as the file and a public key beside the private one tell."""
    way = "is the account by which the machine is reached (ssh.user)"
    user = next((user for user in users if user.name == ssh.user), None)
    if user is None:
        return ""
    if user.gone or not user.keys:
        return f"{user.name} {'is gone' if user.gone else 'has no keys'}, and {way}: let in another one first"
    try:
        ours = key_in(local_path(f"{ssh.key}.pub").read_text(encoding="ascii")) if ssh.key else b""
    except (OSError, UnicodeDecodeError):
        return ""
    if not ours or ours in {key_in(key) for key in user.keys}:
        return ""
    return f"the keys of {user.name}, which {way}, have not that of ssh.key ({ssh.key}.pub): add it"


def _of_output(machine: MachineOutput, *, fleet: Mapping[str, Any], source: str) -> dict[str, Any]:
    """A machine that the inventory file does not have: all that the stack tells of it."""
    own = {
        "name": machine.name,
        "address": machine.address,
        "labels": dict(machine.labels),
        "taints": [msgspec.to_builtins(taint) for taint in machine.taints],
        "gpu_product": machine.gpu_product,
        "gpu_count": machine.gpus,
        "provider_id": f"onprem://{machine.name}",
    }
    data = _connection(
        machine.address,
        user=machine.ssh_user,
        port=machine.ssh_port,
        key=machine.ssh_key,
        host_key=machine.ssh_host_key,
    )
    return data | {"settings": _checked(own, fleet, {}, source=source)}


def _checked(
    own: Mapping[str, Any],
    fleet: Mapping[str, Any],
    settings: Mapping[str, Any],
    *,
    source: str,
    written: Written | None = None,
) -> MachineSettings:
    given, lines, name = merged(fleet, settings), written or Written(), str(own["name"])
    entry = f"machine {name}: settings"
    fixed = sorted(given.keys() & _OF_THE_ENTRY)
    if fixed:
        line = lines.line_of_setting(fixed[0], machine=name)
        raise BadInput(f"{source}{line}: {entry}.{fixed[0]}: stands in the machine's own entry, not among its settings")
    machine = parse_data(
        merged(given, own), MachineSettings, source=source, entry=entry, written=lambda: lines.settings(name)
    )
    read_sources(
        machine.sources,
        source=source,
        entry=f"{entry}: sources",
        written=lambda: lines.setting("sources", machine=name),
    )
    try:
        refuse(machine_mistakes(machine))
    except BadInput as mistake:
        where = f"{source}{lines.line_of_setting('versions', machine=name)}"
        raise BadInput("\n".join(f"{where}: {line}" for line in str(mistake).splitlines())) from None
    return with_gpu_labels(machine)


def with_gpu_labels(machine: MachineSettings) -> MachineSettings:
    """Returns the machine with the labels that say what software its GPUs have; as it is where it has none."""
    if not machine.gpu_count:
        return machine
    chosen = choose(read_matrix(), machine.versions, machine=machine.name)
    of_gpus = gpu_labels(machine.gpu, chosen.driver, chosen.driver_modules)
    return machine.model_copy(update={"labels": of_gpus | machine.labels})


def _connection(
    address: str, *, user: str = "root", port: int = 22, key: str = "", host_key: str = ""
) -> dict[str, Any]:
    """How pyinfra connects: to a machine whose host key is known, from the inventory or from ~/.ssh/known_hosts."""
    data: dict[str, Any] = {"ssh_hostname": address, "ssh_user": user, "ssh_port": port}
    data["ssh_strict_host_key_checking"] = "yes"
    if user != "root":
        data["_sudo"] = True
    if key:
        data["ssh_key"] = str(local_path(key))
    if host_key:
        data["ssh_known_hosts_file"] = str(_known_hosts(address, port, host_key))
    return data


def _known_hosts(address: str, port: int, host_key: str) -> Path:
    """A file of ssh(1) with this one key: paramiko takes keys from files only. It goes with the process."""
    file = Path(_scratch().name) / f"{address}-{port}"
    shown = address if port == 22 else f"[{address}]:{port}"  # noqa: PLR2004 - as known_hosts writes other ports
    file.write_text(f"{shown} {host_key}\n", encoding="ascii")
    return file


@functools.cache
def _scratch() -> tempfile.TemporaryDirectory[str]:
    """This process's own, locked for as long as it lives. What processes that were killed have left goes here."""
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # in use, or of another account
            descriptor = _locked(left, fcntl.LOCK_NB)
            shutil.rmtree(left, ignore_errors=True)
            os.close(descriptor)
    while True:
        made = tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True)
        with contextlib.suppress(FileNotFoundError):  # another process took it for left before it was locked
            _locked(Path(made.name))
            Path(made.name).stat()
            return made
        made.cleanup()


def _locked(folder: Path, how: int = 0) -> int:
    """The descriptor that holds the lock, by flock(2). Raises ``OSError``."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(descriptor).st_uid != os.geteuid():  # root may open and remove what is another account's
            raise PermissionError(errno.EPERM, "it is another account's", str(folder))
        fcntl.flock(descriptor, fcntl.LOCK_EX | how)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _of_control_plane(stack: StackOutputs | None) -> dict[str, Any]:
    """The cluster that the stack made is the one that its machines join, unless the file says otherwise."""
    plane = stack.control_plane if stack else None
    if plane is None or plane.kind == "eks":  # machines of a lab join EKS by its own agent, not as kubelets of ours
        return {}
    authority = base64.b64decode(plane.certificate_authority).decode()
    return {"kubelet": {"server": plane.endpoint, "authority": authority}}


def _exported(outputs: Path) -> StackOutputs:
    try:
        return parse_outputs(json.loads(outputs.read_text(encoding="utf-8")))
    except OSError as error:
        raise BadInput(f"{outputs}: cannot read the stack's outputs: {error.strerror}") from None
    except ValueError as error:
        raise BadInput(f"{outputs}: is not JSON as `pulumi stack output --json` prints it: {error}") from None


def _mistakes(
    written: Inventory, exported: Iterable[MachineOutput], *, file: Path | None, outputs: Path | None
) -> list[str]:
    """Where file and stack speak of one machine and mean two."""
    by_name, lines = {machine.name: machine for machine in written.machines}, Written(file)
    return [
        f"{file}{lines.line('address', machine=one.name)}: machine {one.name}: address ="
        f" {by_name[one.name].address!r}, but {outputs} says {one.address!r}:"
        " bring the stack up to date (pulumi up), or mend the file"
        for one in exported
        if one.name in by_name and by_name[one.name].address != one.address
    ]
