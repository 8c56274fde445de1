"""What one machine is to be: its entry of the inventory with everything that the roles read, typed and checked.

The fleet's ``settings`` of the inventory file come first, a machine's own ``settings`` lie over them, key by key.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import Field, field_validator, model_validator
from pyinfra.context import host

from autoscaler.config.documents import Document
from autoscaler.config.hostnames import Host, is_host, why_not_reached
from autoscaler.config.labels_and_taints import TaintEntry
from autoscaler.model.resources import parse_quantity
from roles.settings.addresses import is_port
from roles.settings.cluster import ContainerRuntime, Download, Kubelet, PodNetwork
from roles.settings.gpu import GpuSoftware
from roles.settings.mig import why_not_divided

_ACCOUNT: Final = r"^[a-z_][a-z0-9_-]{0,31}$"
_PUBLIC_KEY: Final = re.compile(r"(?:\S.* )?((?:sk-)?(?:ssh|ecdsa)-[a-z0-9@.-]+) ([A-Za-z0-9+/]+=*)(?: .*)?")
"""What may stand before its type says what its bearer may do: sshd(8), "AUTHORIZED_KEYS FILE FORMAT"."""
OF_THE_SYSTEM: Final = (
    *("daemon", "bin", "sys", "sync", "games", "man", "lp", "mail", "news", "uucp", "proxy", "www-data", "backup"),
    *("list", "irc", "gnats", "nobody", "_apt", "messagebus", "polkitd", "sshd", "syslog"),
    *("systemd-network", "systemd-resolve", "systemd-timesync"),
)
"""Accounts that Debian and Ubuntu make for their own programs: base-passwd(5), and the packages of a bare machine."""
_LEAST_LOG: Final = 2**16
"""Bytes of a log below which its size has lost its unit."""
_NEEDED_SYSCTL: Final = (
    "net.ipv4.ip_forward",
    "net.bridge.bridge-nf-call-iptables",
    "net.bridge.bridge-nf-call-ip6tables",
)
"""Without these a node loses its pods' traffic."""


class Time(Document):
    """How the clock is kept right."""

    service: Literal["chrony", "none"] = Field(
        default="chrony", description="chrony, or none where the machine's own host keeps its clock"
    )
    servers: tuple[Host, ...] = Field(
        default=(), description="time servers, names or addresses, e.g. [ntp1.lab]; empty: those of the distribution"
    )

    @field_validator("servers")
    @classmethod
    def _servers_are_reached(cls, servers: tuple[str, ...]) -> tuple[str, ...]:
        for server in servers:
            if why := why_not_reached(server):
                raise ValueError(f"holds {server!r}, which {why}: write time servers, e.g. [ntp1.lab]")
        return servers

    @model_validator(mode="after")
    def _servers_are_asked(self) -> Time:
        if self.service == "none" and self.servers:
            raise ValueError("servers are asked by chrony alone: leave them out, or write service: chrony")
        return self


class Kernel(Document):
    """The kernel's settings and modules, on top of those that Kubernetes needs."""

    sysctl: dict[str, str] = Field(default_factory=dict, description="more settings, e.g. {vm.max_map_count: 262144}")
    modules: tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")], ...] = Field(
        default=(), description="more modules to load now and at boot, by their names, e.g. [ib_umad]"
    )
    swap: Literal["off", "keep"] = Field(default="off", description="off, or keep: kubelet then tolerates it")

    reboot_for: tuple[Literal["kernel", "request", "nouveau"], ...] = Field(
        default=("kernel", "request", "nouveau"),
        description="a drained node reboots where a newer kernel is installed, where Debian asks for it"
        " (/run/reboot-required), where nouveau holds the GPUs; empty: never",
    )
    reboot_seconds: int = Field(default=900, ge=30, le=7200, description="until it must be back")

    @field_validator("swap", mode="before")
    @classmethod
    def _off_is_a_word(cls, given: Any) -> Any:
        """YAML reads it as false."""
        return "off" if given is False else given

    @field_validator("modules")
    @classmethod
    def _module_is_not_forbidden(cls, modules: tuple[str, ...]) -> tuple[str, ...]:
        if "nouveau" in modules:
            raise ValueError("names nouveau, which takes the GPUs from NVIDIA's driver: leave it out")
        return modules

    @field_validator("sysctl", mode="before")
    @classmethod
    def _values_are_text(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        spelled: dict[str, str] = {}
        for key, value in given.items():
            plain = str(key).replace("/", ".")  # sysctl takes both for one
            if plain in spelled:
                raise ValueError(f"sets {plain} twice, as {spelled[plain]} and as {key}: leave one out")
            spelled[plain] = str(key)
            if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_./-]*", str(key)):
                raise ValueError(f"names {key!r}: write the key of a kernel setting, e.g. vm.max_map_count")
            if isinstance(value, (dict, list, bool)) or value is None or "\n" in str(value):
                raise ValueError(f"sets {key} to {value!r}: write a number or a line of text")
            if plain in _NEEDED_SYSCTL and str(value) != "1":
                raise ValueError(f"sets {key} to {value!r}: pods of a node need it to be 1, leave it out")
        return {key: str(value) for key, value in given.items()}


class User(Document):
    """An account."""

    name: str = Field(pattern=_ACCOUNT, description="e.g. ada")
    keys: tuple[str, ...] = Field(default=(), description="public SSH keys that are let in; no others are")
    groups: tuple[Annotated[str, Field(pattern=_ACCOUNT)], ...] = Field(
        default=(), description="further groups that it is a member of, e.g. [video]"
    )
    sudo: bool = Field(default=False, description="may become root without a password")
    shell: str = Field(default="/bin/bash", pattern=r"^/[\w./+-]+$", description="a whole path, e.g. /bin/zsh")
    gone: bool = Field(default=False, description="true: the account is locked and lets no key in; its files stay")

    @field_validator("keys")
    @classmethod
    def _keys_are_public(cls, keys: tuple[str, ...]) -> tuple[str, ...]:
        for key in keys:
            if not key_in(key):
                raise ValueError(f"holds {key[:40]!r}, which is no public key: write 'ssh-ed25519 AAAA... name'")
        return keys

    @model_validator(mode="after")
    def _is_a_persons(self) -> User:
        if self.name in OF_THE_SYSTEM:
            raise ValueError("is an account of the system, which its own programs run as: name a person's")
        written = [key for key in ("groups", "sudo", "gone") if getattr(self, key)]
        if self.name == "root" and written:
            raise ValueError(f"may have keys and a shell, and may do everything as it is: leave out {written[0]}")
        return self


class Logs(Document):
    """How long logs stay, and where they go."""

    journal_size: str = Field(
        default="2G", pattern=r"^[1-9][0-9]{0,5}[KMGT]$", description="of the journal at most, e.g. 2G"
    )
    keep: str = Field(default="14day", pattern=r"^[1-9][0-9]{0,3}(day|week|month)$", description="how long, e.g. 14day")
    ship_to: str = Field(default="", description="HOST:PORT of a syslog server (RFC 5424 over TCP); empty: nowhere")
    container_size: str = Field(default="50Mi", description="of one container's log before it is rotated")
    container_files: int = Field(default=3, ge=2, le=20, description="rotated files kept for each container")

    @field_validator("ship_to")
    @classmethod
    def _ship_to_has_a_port(cls, text: str) -> str:
        host_, _, port = text.rpartition(":")
        if text and not (is_host(host_) and is_port(port)):
            raise ValueError("must be HOST:PORT, e.g. logs.lab:6514")
        if why := why_not_reached(host_, allowed=("loopback",)):  # a collector of the machine's own may pass them on
            raise ValueError(f"names {host_}, which {why}: write a log server's, e.g. logs.lab:6514")
        return text

    @field_validator("container_size")
    @classmethod
    def _size_is_one(cls, text: str) -> str:
        if parse_quantity(text) <= 0:
            raise ValueError("must be more than nothing, e.g. 50Mi")
        if parse_quantity(text) < _LEAST_LOG:
            raise ValueError("is in bytes, and few: write its unit, e.g. 50Mi")
        return text


class ControlPlane(Document):
    """The machine is to become an image for members of a kubeadm control plane."""


class NodeImage(Document):
    """The machine is to become an image for nodes: it gets their kubelet, and nothing of any cluster."""

    download: Download | None = Field(default=None, description="the kubelet as a file; else its Debian package")


class Health(Document):
    """When a machine calls itself ill."""

    disk_free: int = Field(default=10, ge=1, le=90, description="percent of each disk that must be free")
    every: str = Field(
        default="1min", pattern=r"^[1-9][0-9]{0,4}(s|min|h)$", description="how often it looks, e.g. 1min"
    )


class MachineSettings(Document):
    """Everything about one machine."""

    name: str
    address: str
    labels: dict[str, str] = Field(default_factory=dict)
    taints: tuple[TaintEntry, ...] = ()
    gpu_product: str = ""
    gpu_count: int = 0
    provider_id: str = ""
    kubeconfig: str = Field(default="", description="by which the controller reaches the API server; else $KUBECONFIG")

    time: Time = Time()
    kernel: Kernel = Kernel()
    users: tuple[User, ...] = ()
    ssh_passwords: Literal["as-is", "refused"] = Field(default="as-is", description="refused: only keys are let in")
    undeclared: Literal["told", "ignored"] = Field(
        default="told", description="accounts, groups, sudo and keys of root beyond the declared users: told, or not"
    )
    logs: Logs = Logs()
    health: Health = Health()
    container_runtime: ContainerRuntime = ContainerRuntime()
    pod_network: PodNetwork = PodNetwork()
    kubelet: Kubelet | None = Field(default=None, description="absent: the machine is prepared, but joins no cluster")
    control_plane: ControlPlane | None = Field(
        default=None,
        description="{}: what an image for members of a kubeadm control plane needs; absent: nothing of it",
    )
    node_image: NodeImage | None = Field(
        default=None, description="{}: what an image for nodes needs beside the rest; absent: nothing of it"
    )
    gpu: GpuSoftware | None = Field(
        default=None, description="NVIDIA's software; absent: as the machine's image brings it"
    )
    versions: dict[str, str] = Field(default_factory=dict, description="in place of the matrix's, e.g. {driver: ...}")
    untested: tuple[str, ...] = Field(
        default=(),
        description="pairs of parts that the matrix refuses and you answer for, e.g. [kubelet with containerd]",
    )
    sources: dict[str, Any] = Field(default_factory=dict, description="in place of sources.yaml's, or a mirror")
    left_alone: tuple[str, ...] = Field(
        default=(), description="resources, by their names in a plan, that stay on this machine as they are"
    )

    @field_validator("users")
    @classmethod
    def _each_user_once(cls, users: tuple[User, ...]) -> tuple[User, ...]:
        names = [user.name for user in users]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"has {twice[0]} twice: an account has one entry")
        return users

    @model_validator(mode="after")
    def _a_member_is_made_by_kubeadm(self) -> MachineSettings:
        if self.control_plane and self.kubelet:
            raise ValueError(
                "has both control_plane and kubelet: kubeadm makes a member's kubelet, so leave kubelet out of what "
                "becomes such an image"
            )
        return self

    @model_validator(mode="after")
    def _an_image_is_of_one_kind_and_in_no_cluster(self) -> MachineSettings:
        beside = [name for name in ("kubelet", "control_plane") if getattr(self, name)]
        if self.node_image and beside:
            raise ValueError(
                f"has both node_image and {beside[0]}: an image for nodes is in no cluster, and each node finds its "
                f"own at its first boot: leave {beside[0]} out"
            )
        return self

    @model_validator(mode="after")
    def _mig_names_gpus_that_are_there(self) -> MachineSettings:
        """A machine without GPUs may have the fleet's layout: it gets none of it."""
        why = (
            why_not_divided(self.gpu.mig, product=self.gpu_product, count=self.gpu_count)
            if self.gpu and self.gpu_count
            else ""
        )
        if why:
            raise ValueError(why)
        return self


def key_in(line: str) -> bytes:
    """The public key itself in a line of ``authorized_keys``; nothing where it holds none that sshd would take."""
    found = _PUBLIC_KEY.fullmatch(line.strip())
    if not found:
        return b""
    try:
        blob = base64.b64decode(found[2], validate=True)
    except ValueError:
        return b""
    length = int.from_bytes(blob[:4])  # its type stands once more at the head
    return blob if blob[4 : 4 + length] == found[1].encode() and len(blob) > 4 + length else b""


def settings() -> MachineSettings:
    """The settings of the machine that a role is running for."""
    found = host.data.get("settings")
    return found if isinstance(found, MachineSettings) else MachineSettings.model_validate(found)


def merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Later layers over earlier ones; mappings are merged key by key, everything else is replaced whole."""
    made: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            below = made.get(key)
            made[key] = merged(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return made
