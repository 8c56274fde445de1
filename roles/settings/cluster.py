"""Settings of a machine as a member of a cluster: container runtime, addresses of pods, kubelet."""

from __future__ import annotations

import functools
import ipaddress
import re
from typing import Any, Final, Literal

from pydantic import Field, field_validator, model_validator

from autoscaler.config.documents import Document
from autoscaler.config.hostnames import DnsName, why_not_reached
from autoscaler.config.image_names import ImageName
from autoscaler.model.resources import parse_quantity
from roles.settings.addresses import host_of
from roles.settings.controller_files import local_path
from roles.settings.kubelet_keys import why_wrong

_RESERVED: Final = ("cpu", "memory", "ephemeral-storage", "pid")
_NAME_SERVERS: Final = 3
"""A pod's resolv.conf holds no more."""
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_BEGINS: Final = "-----BEGIN CERTIFICATE-----"
_FEWEST_PODS: Final = 16
"""Addresses of a bridge below which its subnet is a slip of the pen."""


class Download(Document):
    """A file that the machine fetches, known by its content."""

    url: str = Field(description="where the machine fetches it, e.g. http://mirror.lab/kubelet-1.35.4")
    sha256: str = Field(description="of its content, 64 hex digits, as sha256sum prints them")

    @field_validator("url")
    @classmethod
    def _url_is_http(cls, url: str) -> str:
        if not url.startswith(("http://", "https://")):
            raise ValueError("must begin with https:// or http://")
        if not host_of(url):
            raise ValueError("must be the address of a file, e.g. http://mirror.lab/kubelet-1.35.4")
        return url

    @field_validator("sha256")
    @classmethod
    def _digest_is_whole(cls, digest: str) -> str:
        if not _SHA256.fullmatch(digest):
            raise ValueError("must be 64 hex digits, as sha256sum prints them")
        return digest


class Image(Download):
    """An archive with a container image, for machines that reach no registry."""

    name: ImageName = Field(description="the image's name, as pods write it, e.g. registry.k8s.io/pause:3.10")


class ContainerRuntime(Document):
    """Which containerd and runc a machine has."""

    package: Literal["containerd.io", "containerd"] = Field(
        default="containerd.io", description="Docker's package (brings runc), or the distribution's own"
    )
    cgroup_driver: Literal["systemd", "cgroupfs"] = Field(
        default="systemd", description="of containerd and kubelet alike; cgroupfs where systemd does not own the tree"
    )
    sandbox_image: ImageName = Field(
        default="registry.k8s.io/pause:3.10",
        description="the image that holds a pod's namespaces, e.g. registry.k8s.io/pause:3.10",
    )
    images: tuple[Image, ...] = Field(default=(), description="images imported from archives: no registry is asked")
    keep_oom_scores: bool = Field(
        default=False, description="true inside a container whose host refuses lower OOM scores"
    )

    @field_validator("images")
    @classmethod
    def _each_image_once(cls, images: tuple[Image, ...]) -> tuple[Image, ...]:
        names = [image.name for image in images]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"has {twice[0]} twice: an image comes from one archive")
        return images


class PodNetwork(Document):
    """How pods on the machine get addresses."""

    kind: Literal["cluster", "bridge"] = Field(
        default="cluster", description="cluster: a DaemonSet of the cluster brings it; bridge: one of our own"
    )
    pods: str = Field(default="", description="for a bridge: this machine's pods, e.g. 10.244.7.0/24")

    @model_validator(mode="after")
    def _a_bridge_has_a_subnet(self) -> PodNetwork:
        if self.kind == "cluster":
            if self.pods:
                raise ValueError(f"pods = {self.pods!r} is for a bridge: write kind: bridge beside it, or leave it out")
            return self
        try:
            subnet = ipaddress.ip_network(self.pods)
        except ValueError:
            raise ValueError(f"pods = {self.pods!r} must be this machine's own subnet, e.g. 10.244.7.0/24") from None
        if why := why_not_reached(str(subnet.network_address)) or why_not_reached(str(subnet.broadcast_address)):
            raise ValueError(f"pods = {self.pods!r} {why}: write this machine's own subnet, e.g. 10.244.7.0/24")
        if subnet.num_addresses < _FEWEST_PODS:
            held = f"holds {subnet.num_addresses} addresses"
            raise ValueError(f"pods = {self.pods!r} {held}: write a subnet that pods find room in, e.g. 10.244.7.0/24")
        return self


class Kubelet(Document):
    """The kubelet, and the cluster that it joins."""

    server: str = Field(description="the API server as the machine reaches it, e.g. https://10.20.0.1:6443")
    authority: str = Field(description="the cluster's certificate authority: PEM text, or a path on the controller")
    join: Literal["controller", "machine"] = Field(
        default="controller",
        description="what brings the token: the controller by SSH, or the machine finds it at boot (EC2)",
    )
    download: Download | None = Field(default=None, description="the kubelet as a file; else its Debian package")
    cluster_dns: tuple[str, ...] = Field(default=(), description="addresses of the cluster's DNS, e.g. [10.96.0.10]")
    cluster_domain: DnsName = Field(default="cluster.local", description="e.g. cluster.local")
    max_pods: int = Field(default=110, ge=1, le=1000)
    reserved: dict[str, str] = Field(
        default_factory=lambda: {"cpu": "500m", "memory": "1Gi"}, description="kept for the machine's own services"
    )
    config: dict[str, Any] = Field(default_factory=dict, description="further keys of its KubeletConfiguration")

    @field_validator("cluster_dns")
    @classmethod
    def _dns_has_addresses(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for number, address in enumerate(given):
            try:
                ipaddress.ip_address(address)
            except ValueError:
                raise ValueError(f"holds {address!r}: write IP addresses, e.g. [10.96.0.10]") from None
            # A cache of each node's own may have an address that means nothing beyond it.
            if why := why_not_reached(address, allowed=("link-local",)):
                raise ValueError(f"holds {address!r}, which {why}: no pod finds a DNS there, write e.g. [10.96.0.10]")
            if address in given[:number]:
                raise ValueError(f"has {address} twice: once is enough")
        if len(given) > _NAME_SERVERS:
            raise ValueError(f"has {len(given)} addresses: a pod asks the first {_NAME_SERVERS}, leave the others out")
        return given

    @field_validator("reserved")
    @classmethod
    def _reserved_are_amounts(cls, given: dict[str, str]) -> dict[str, str]:
        for resource, amount in given.items():
            if resource not in _RESERVED:
                raise ValueError(f"names {resource!r}: a kubelet keeps back {', '.join(_RESERVED)}")
            if parse_quantity(amount) < 0:
                raise ValueError(f"keeps {amount} of {resource} back: must not be less than nothing, e.g. 1Gi")
        return given

    @field_validator("server")
    @classmethod
    def _server_is_https(cls, server: str) -> str:
        host = host_of(server)
        if not host or not re.fullmatch(r"https://[^/@]+", server):
            raise ValueError("must be https://HOST:PORT, e.g. https://10.20.0.1:6443")
        # A machine may have a load balancer of its own before the API servers.
        if why := why_not_reached(host, allowed=("loopback",)):
            raise ValueError(f"names {host}, which {why}: write the API server's, e.g. https://10.20.0.1:6443")
        return server

    @field_validator("config")
    @classmethod
    def _keys_are_known(cls, config: dict[str, Any]) -> dict[str, Any]:
        if why := why_wrong(config):
            raise ValueError(why)
        return config

    @field_validator("authority")
    @classmethod
    def _authority_is_read(cls, given: str) -> str:
        if given.lstrip().startswith(_BEGINS.rstrip("-")):
            return _whole(given.strip(), "the text")
        try:
            text = local_path(given).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"cannot be read: {getattr(error, 'strerror', 'it is no text')}") from None
        if _BEGINS not in text:
            raise ValueError("holds no certificate: name the cluster's ca.crt, a file in PEM")
        return _whole(text, "the file")


@functools.cache
def _whole(text: str, what: str) -> str:
    """The text of certificates that can be read, every one of them. Raises ``ValueError``."""
    from cryptography.x509 import load_pem_x509_certificates  # noqa: PLC0415 - a machine that joins nothing needs none

    try:
        read = len(load_pem_x509_certificates(text.encode()))
    except ValueError:
        read = 0
    if read < text.count(_BEGINS):
        raise ValueError(
            f"{what} is no certificate that can be read: copy the cluster's ca.crt whole, from its first BEGIN"
            " CERTIFICATE to its last END CERTIFICATE"
        )
    return f"{text}\n"
