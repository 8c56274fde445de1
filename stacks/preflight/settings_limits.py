"""What AWS or a machine would refuse in the middle of an update: names that are too long, keys of another region.

What one section of a stack file says is held to what the policy and the inventory say; nothing outside is asked.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from autoscaler.config.policy import Policy
from autoscaler.model.errors import BadInput
from stacks.control_plane.existing_members import MOST_MEMBERS, member_name
from stacks.settings.control_plane import EksSettings, KubeadmSettings
from stacks.settings.inventory import Inventory
from stacks.settings.stack import Settings

_LONGEST: Final = 40
"""Letters of a cluster's name: a bucket's has 63, and names its purpose and something random after it."""
_LONGEST_KUBEADM: Final = 28
"""A load balancer's name has 32, and ends in ``-api``: two clusters must not be cut to the same one."""
_TAKEN: Final = ("internal-", "sg-", "xn--")
"""What names of load balancers, security groups and buckets must not begin with."""


def check_limits(settings: Settings, policy: Policy, inventory: Inventory, *, source: str) -> None:
    """Raise ``BadInput`` with every mistake."""
    wrong = [
        *_of_the_name(settings, policy.cluster, source),
        *_of_keys(settings, policy.region),
        *_of_members(settings, policy.cluster),
        *_of_hybrid_machines(settings, inventory),
        *_of_removals(settings, inventory),
        *_of_probes(settings, inventory),
    ]
    if wrong:
        raise BadInput("\n".join(wrong))


def _of_the_name(settings: Settings, cluster: str, source: str) -> Iterator[str]:
    kubeadm = isinstance(settings.control_plane, KubeadmSettings)
    longest = _LONGEST_KUBEADM if kubeadm else _LONGEST
    if len(cluster) > longest:
        why = "load balancers" if kubeadm else "buckets and roles"
        yield (
            f"{source}: cluster = {cluster!r} has {len(cluster)} letters: the names of its {why} begin with it, and "
            f"AWS takes no longer ones: at most {longest} here"
        )
    for taken in _TAKEN:
        if cluster.startswith(taken):
            yield (
                f"{source}: cluster = {cluster!r}: names of its resources begin with it, and AWS keeps {taken} for "
                "itself: choose another name"
            )


def _of_keys(settings: Settings, region: str) -> Iterator[str]:
    control_plane = settings.control_plane
    keys = {"nodes.kms_key": settings.nodes.kms_key}
    if isinstance(control_plane, KubeadmSettings):
        keys["control_plane.key"] = control_plane.key
    if isinstance(control_plane, EksSettings):
        keys["control_plane.secrets_key"] = control_plane.secrets_key
    for name, arn in keys.items():
        where = arn.split(":")[3] if arn else region
        if where != region:
            yield (
                f"spillway:{name} = {arn!r} is a key of {where}, and the policy is for {region}: a key encrypts in its "
                f"own region only: name one of {region}"
            )


def _of_members(settings: Settings, cluster: str) -> Iterator[str]:
    if not isinstance(settings.control_plane, KubeadmSettings):
        return
    known = [member_name(cluster, number) for number in range(MOST_MEMBERS)]
    for name in settings.control_plane.reset:
        if name not in known:
            yield f"spillway:control_plane.reset names {name!r}, which is no member: they are {', '.join(known)}"


def _of_hybrid_machines(settings: Settings, inventory: Inventory) -> Iterator[str]:
    wanted = settings.control_plane
    if not isinstance(wanted, EksSettings) or wanted.hybrid is None:
        return
    count, most = len(inventory.machines), wanted.hybrid.machines
    if count > most:
        yield (
            f"spillway:control_plane.hybrid.machines = {most}, and {settings.inventory} has {count}: no more than "
            f"{most} could register: write {count} or more"
        )
    networks = [ipaddress.IPv4Network(one) for one in wanted.remote_node_networks]
    for place, machine in enumerate(inventory.machines):
        try:
            address = ipaddress.IPv4Address(machine.address)
        except ValueError:
            continue  # a name, or IPv6
        if not any(address in one for one in networks):
            yield (
                f"{settings.inventory}: machines[{place}] ({machine.name}).address = {address} is in no network of "
                f"spillway:control_plane.remote_node_networks ({', '.join(map(str, networks))}): add its network there"
            )


def _of_removals(settings: Settings, inventory: Inventory) -> Iterator[str]:
    """A name that is no machine's says nothing now, and takes a later machine of that name for dead."""
    if settings.program not in ("all", "on-prem"):
        return
    known = [machine.name for machine in inventory.machines]
    where = (
        f"{settings.inventory} has no such machine ({', '.join(known)})" if known else "no inventory has such a machine"
    )
    for name in settings.machines.force_removal:
        if name not in known:
            yield (
                f"spillway:machines.force_removal names {name!r}, and {where}: name one of its machines; one that "
                "is taken out there goes from this list in the same change"
            )


def _of_probes(settings: Settings, inventory: Inventory) -> Iterator[str]:
    """What it takes to ask a machine over SSH: its provider would miss it when half of the stack is made."""
    if settings.control_plane is None or settings.program not in ("all", "on-prem"):
        return
    for place, machine in enumerate(inventory.machines):
        where, ssh = f"{settings.inventory}: machines[{place}] ({machine.name}).ssh", machine.ssh
        if (settings.machines.probe or machine.probe) == "none":
            continue
        if not ssh.host_key:
            yield (
                f"{where}.host_key is missing: without it nobody knows which machine answers: `ssh-keyscan -p "
                f"{ssh.port} -t ed25519 {machine.address}` prints it, and the machine's console shows its fingerprint"
            )
        if ssh.key and not Path(ssh.key).expanduser().is_file():
            yield f"{where}.key = {ssh.key!r}: there is no such file: name a private key, or leave it to the SSH agent"
