"""What one machine is to be: its entry of the inventory with everything that the roles read, typed and checked.

The fleet's ``settings`` of the inventory file come first, a machine's own ``settings`` lie over them, key by key.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field, field_validator, model_validator
from pyinfra.context import host

from autoscaler.documents import Document
from autoscaler.policy import TaintEntry
from autoscaler.resources import parse_quantity
from roles.gpu_settings import GpuSoftware, why_not_divided

_HOST: Final = r"^[A-Za-z0-9][A-Za-z0-9.:-]*$"
_ACCOUNT: Final = r"^[a-z_][a-z0-9_-]{0,31}$"
_LAST_PORT: Final = 65535
_RESERVED: Final = ("cpu", "memory", "ephemeral-storage", "pid")
_WORD: Final = r"^\S+$"
_Host = Annotated[str, Field(pattern=_HOST)]
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_PUBLIC_KEY: Final = re.compile(r"(sk-)?(ssh|ecdsa)-[a-z0-9@.-]+ [A-Za-z0-9+/=]+( .*)?")


class Download(Document):
    """A file that the machine fetches, known by its content."""

    url: str = Field(description="where the machine fetches it, e.g. http://mirror.lab/kubelet-1.35.4")
    sha256: str = Field(description="of its content, 64 hex digits, as sha256sum prints them")

    @field_validator("url")
    @classmethod
    def _url_is_http(cls, url: str) -> str:
        if not url.startswith(("http://", "https://")):
            raise ValueError("must begin with https:// or http://")
        return url

    @field_validator("sha256")
    @classmethod
    def _digest_is_whole(cls, digest: str) -> str:
        if not _SHA256.fullmatch(digest):
            raise ValueError("must be 64 hex digits, as sha256sum prints them")
        return digest


class Image(Download):
    """An archive with a container image, for machines that reach no registry."""

    name: str = Field(description="the image's name, as pods write it, e.g. registry.k8s.io/pause:3.10", min_length=1)


class Time(Document):
    """How the clock is kept right."""

    service: Literal["chrony", "none"] = Field(
        default="chrony", description="chrony, or none where the machine's own host keeps its clock"
    )
    servers: tuple[_Host, ...] = Field(
        default=(), description="time servers, names or addresses, e.g. [ntp1.lab]; empty: those of the distribution"
    )


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

    @field_validator("sysctl", mode="before")
    @classmethod
    def _values_are_text(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        for key, value in given.items():
            if not re.fullmatch(r"[A-Za-z0-9_./*-]+", str(key)):
                raise ValueError(f"names {key!r}: write the key of a kernel setting, e.g. vm.max_map_count")
            if isinstance(value, (dict, list, bool)) or value is None or "\n" in str(value):
                raise ValueError(f"sets {key} to {value!r}: write a number or a line of text")
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
            if not _PUBLIC_KEY.fullmatch(key):
                raise ValueError(f"holds {key[:40]!r}, which is no public key: write 'ssh-ed25519 AAAA... name'")
        return keys


class Logs(Document):
    """How long logs stay, and where they go."""

    journal_size: str = Field(default="2G", pattern=r"^\d+[KMGT]$", description="of the journal at most, e.g. 2G")
    keep: str = Field(default="14day", pattern=r"^\d+(day|week|month)$", description="how long, e.g. 14day")
    ship_to: str = Field(default="", description="HOST:PORT of a syslog server (RFC 5424 over TCP); empty: nowhere")
    container_size: str = Field(default="50Mi", description="of one container's log before it is rotated")
    container_files: int = Field(default=3, ge=2, le=20, description="rotated files kept for each container")

    @field_validator("ship_to")
    @classmethod
    def _ship_to_has_a_port(cls, text: str) -> str:
        host_, _, port = text.rpartition(":")
        if text and not (re.fullmatch(_HOST, host_) and port.isdigit() and 0 < int(port) <= _LAST_PORT):
            raise ValueError("must be HOST:PORT, e.g. logs.lab:6514")
        return text

    @field_validator("container_size")
    @classmethod
    def _size_is_one(cls, text: str) -> str:
        parse_quantity(text)
        return text


class ContainerRuntime(Document):
    """containerd and runc."""

    package: Literal["containerd.io", "containerd"] = Field(
        default="containerd.io", description="Docker's package (brings runc), or the distribution's own"
    )
    cgroup_driver: Literal["systemd", "cgroupfs"] = Field(
        default="systemd", description="of containerd and kubelet alike; cgroupfs where systemd does not own the tree"
    )
    sandbox_image: str = Field(
        default="registry.k8s.io/pause:3.10", pattern=_WORD, description="holds a pod's namespaces"
    )
    images: tuple[Image, ...] = Field(default=(), description="images imported from archives: no registry is asked")
    keep_oom_scores: bool = Field(
        default=False, description="true inside a container whose host refuses lower OOM scores"
    )


class PodNetwork(Document):
    """How pods get addresses."""

    kind: Literal["cluster", "bridge"] = Field(
        default="cluster", description="cluster: a DaemonSet of the cluster brings it; bridge: one of our own"
    )
    pods: str = Field(default="", description="for a bridge: this machine's pods, e.g. 10.244.7.0/24")

    @model_validator(mode="after")
    def _a_bridge_has_a_subnet(self) -> PodNetwork:
        if self.kind == "bridge":
            try:
                ipaddress.ip_network(self.pods)
            except ValueError:
                raise ValueError(
                    f"pods = {self.pods!r} must be this machine's own subnet, e.g. 10.244.7.0/24"
                ) from None
        return self


class Kubelet(Document):
    """The kubelet, and the cluster that it joins."""

    server: str = Field(description="the API server as the machine reaches it, e.g. https://10.20.0.1:6443")
    authority: str = Field(description="the cluster's certificate authority: PEM text, or a path on the controller")
    join: Literal["controller", "machine"] = Field(
        default="controller",
        description="who brings the token: the controller by SSH, or the machine finds it at boot (EC2)",
    )
    download: Download | None = Field(default=None, description="the kubelet as a file; else its Debian package")
    cluster_dns: tuple[str, ...] = Field(default=(), description="addresses of the cluster's DNS, e.g. [10.96.0.10]")
    cluster_domain: str = Field(default="cluster.local", pattern=_HOST, description="e.g. cluster.local")
    max_pods: int = Field(default=110, ge=1, le=1000)
    reserved: dict[str, str] = Field(
        default_factory=lambda: {"cpu": "500m", "memory": "1Gi"}, description="kept for the machine's own services"
    )
    config: dict[str, Any] = Field(default_factory=dict, description="further keys of its KubeletConfiguration")

    @field_validator("cluster_dns")
    @classmethod
    def _dns_has_addresses(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for address in given:
            try:
                ipaddress.ip_address(address)
            except ValueError:
                raise ValueError(f"holds {address!r}: write IP addresses, e.g. [10.96.0.10]") from None
        return given

    @field_validator("reserved")
    @classmethod
    def _reserved_are_amounts(cls, given: dict[str, str]) -> dict[str, str]:
        for resource, amount in given.items():
            if resource not in _RESERVED:
                raise ValueError(f"names {resource!r}: a kubelet keeps back {', '.join(_RESERVED)}")
            parse_quantity(amount)
        return given

    @field_validator("server")
    @classmethod
    def _server_is_https(cls, server: str) -> str:
        if not re.fullmatch(r"https://[^/\s]+", server):
            raise ValueError("must be https://HOST:PORT")
        return server

    @field_validator("authority")
    @classmethod
    def _authority_is_read(cls, given: str) -> str:
        if given.lstrip().startswith("-----BEGIN CERTIFICATE"):
            return given.strip() + "\n"
        try:
            text = Path(given).expanduser().read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"cannot be read: {getattr(error, 'strerror', 'it is no text')}") from None
        if "-----BEGIN CERTIFICATE-----" not in text:
            raise ValueError("holds no certificate: name the cluster's ca.crt, a file in PEM")
        return f"{text}\n"


class ControlPlane(Document):
    """The machine is to become an image for members of a kubeadm control plane."""


class Health(Document):
    """When a machine calls itself ill."""

    disk_free: int = Field(default=10, ge=1, le=90, description="percent of each disk that must be free")
    every: str = Field(default="1min", pattern=r"^[1-9]\d*(s|min|h)$", description="how often it looks, e.g. 1min")


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
    logs: Logs = Logs()
    health: Health = Health()
    container_runtime: ContainerRuntime = ContainerRuntime()
    pod_network: PodNetwork = PodNetwork()
    kubelet: Kubelet | None = Field(default=None, description="absent: the machine is prepared, but joins no cluster")
    control_plane: ControlPlane | None = Field(
        default=None,
        description="{}: what an image for members of a kubeadm control plane needs; absent: nothing of it",
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
    def _mig_names_gpus_that_are_there(self) -> MachineSettings:
        """A machine without GPUs may have the fleet's layout: it gets none of it."""
        why = (
            why_not_divided(self.gpu, product=self.gpu_product, count=self.gpu_count)
            if self.gpu and self.gpu_count
            else ""
        )
        if why:
            raise ValueError(why)
        return self


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
