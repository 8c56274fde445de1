"""The control plane in a stack's configuration: ``spillway:control_plane``, one of three by its ``kind``.

What is wrong in itself is refused here; what is wrong with the rest of the stack (zones, networks), by the programs.
"""

from __future__ import annotations

import ipaddress
import re
from datetime import datetime, timedelta
from itertools import combinations
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, SecretStr, field_validator, model_validator

from autoscaler.config.documents import Document, Span, parse_span
from autoscaler.config.hostnames import is_address, is_dns_name

LogDays = Literal[1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 3653]
"""What CloudWatch takes."""
LogType = Literal["api", "audit", "authenticator", "controllerManager", "scheduler"]
_PRINCIPAL: Final = r"^arn:aws[a-z-]*:iam::\d{12}:(role|user)/\S+$"
_KEY: Final = r"^arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{12}:key/\S+$"


_PRIVATE: Final = tuple(map(ipaddress.IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")))
"""RFC 1918."""
_SHARED: Final = ipaddress.IPv4Network("100.64.0.0/10")
"""RFC 6598: EKS takes it for nodes and pods, and so may pods and services."""
_WORLD: Final = 8
"""A network with a shorter prefix is the world, also where it is written in two halves."""
_FEWEST_SERVICES, _MOST_SERVICES = 28, 12
NODE_PODS: Final = 24
"""Prefix of each node's part of the network of pods, as kubeadm's controller manager has it."""


_OLDEST: Final = 31
"""Minor version of Kubernetes: from there on kubeadm reads our configuration (v1beta4); EKS ends with older ones."""


def _not_before(oldest: int, version: str) -> str:
    if int(version.split(".")[1]) < oldest:
        raise ValueError(f"must be 1.{oldest} or newer")
    return version


def _a_network(text: str) -> str:
    try:
        ipaddress.IPv4Network(text)
    except ValueError as error:
        raise ValueError(f"must be a network such as 10.20.0.0/16: {error}") from None
    return text


def a_private_network(text: str) -> str:
    """The text of one. Raises ``ValueError``."""
    network = ipaddress.IPv4Network(_a_network(text))
    if not any(network.subnet_of(one) for one in _PRIVATE):
        raise ValueError("must be a private network, e.g. 10.20.0.0/16: of 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16")
    return text


def _a_cluster_network(text: str) -> str:
    network = ipaddress.IPv4Network(_a_network(text))
    if not any(network.subnet_of(one) for one in (*_PRIVATE, _SHARED)):
        raise ValueError(
            "must be a private network, e.g. 10.20.0.0/16: of 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, 100.64.0.0/10"
        )
    return text


def _a_public_network(text: str) -> str:
    network = ipaddress.IPv4Network(_a_network(text))
    if network.prefixlen < _WORLD:
        raise ValueError("name the networks that need it, not the whole internet, e.g. 203.0.113.7/32")
    if any(network.overlaps(one) for one in (*_PRIVATE, _SHARED)):
        raise ValueError("must be a network of the internet, e.g. 203.0.113.7/32: a private one comes by the VPC")
    return text


def _each_once(listed: tuple[str, ...]) -> tuple[str, ...]:
    twice = sorted({one for one in listed if listed.count(one) > 1})
    if twice:
        raise ValueError(f"names {twice[0]} twice")
    return listed


def _each_apart(listed: tuple[str, ...]) -> tuple[str, ...]:
    networks = [ipaddress.IPv4Network(one) for one in _each_once(listed)]
    for one, other in combinations(sorted(networks), 2):
        if one.overlaps(other):
            raise ValueError(f"names {one} and {other}, which is a part of it: write each address once")
    return listed


def _a_name_of_a_server(text: str) -> str:
    """One that kubeadm takes: small letters, and a first label that may stand for any."""
    if not (is_address(text) or (text == text.lower() and is_dns_name(text.removeprefix("*.")))):
        raise ValueError("must be a DNS name or an IP address, e.g. api.lab.example.org")
    return text


ClusterNetwork = Annotated[str, AfterValidator(_a_cluster_network)]
PublicNetwork = Annotated[str, AfterValidator(_a_public_network)]
PrivateNetwork = Annotated[str, AfterValidator(a_private_network)]
ServerName = Annotated[str, AfterValidator(_a_name_of_a_server)]
Once = AfterValidator(_each_once)
Apart = AfterValidator(_each_apart)


class ExistingSettings(Document):
    """A cluster that is there already: its kubeconfig, as a file or as a secret."""

    kind: Literal["existing"]
    kubeconfig_path: str | None = Field(
        default=None, description="path of a kubeconfig, from the folder of Pulumi.yaml"
    )
    kubeconfig: SecretStr | None = Field(
        default=None,
        description="text of a kubeconfig: pulumi config set --secret --path spillway:control_plane.kubeconfig",
    )
    context: str | None = Field(default=None, description="which context of it; else its current one")
    at_least: str = Field(default="1.33", pattern=r"^1\.\d+$", description="oldest version that will do, e.g. 1.33")
    join_token: SecretStr | None = Field(
        default=None, description="bootstrap token by which EC2 nodes join; kept as a SecureString for them"
    )

    @field_validator("join_token")
    @classmethod
    def _token_is_one(cls, token: SecretStr | None) -> SecretStr | None:
        if token and not re.fullmatch(r"[a-z0-9]{6}\.[a-z0-9]{16}", token.get_secret_value()):
            raise ValueError("must be a bootstrap token such as `kubeadm token create` prints")
        return token

    @model_validator(mode="after")
    def _one_kubeconfig(self) -> ExistingSettings:
        if (self.kubeconfig is None) == (self.kubeconfig_path is None):
            raise ValueError("needs either kubeconfig_path (a file) or kubeconfig (a secret)")
        return self


class HybridSettings(Document):
    """On-prem machines as EKS hybrid nodes: they come in by a Systems Manager activation."""

    machines: int = Field(ge=1, le=1000, description="how many machines may register, e.g. 8")
    expires: str | None = Field(
        default=None,
        description="until when, at most 30 days ahead, e.g. 2026-12-01T00:00:00Z; else a day after it was made",
    )

    @field_validator("expires")
    @classmethod
    def _expires_is_a_time(cls, text: str | None) -> str | None:
        try:
            datetime.strptime(text or "2026-12-01T00:00:00Z", "%Y-%m-%dT%H:%M:%S%z")
        except ValueError:
            raise ValueError("must be a time in UTC such as 2026-12-01T00:00:00Z") from None
        return text


class EksSettings(Document):
    """A cluster of Amazon EKS."""

    kind: Literal["eks"]
    version: str = Field(default="1.35", pattern=r"^1\.\d+$", description="version of Kubernetes, e.g. 1.35")
    endpoint: Literal["private", "both"] = Field(
        default="private",
        description="from where the API server is reached: the VPC alone, or the internet too; without a private one "
        "the nodes would have to come from the internet as well",
    )
    public_networks: Annotated[tuple[PublicNetwork, ...], Apart] = Field(
        default=(), description="who may reach a public endpoint, e.g. [203.0.113.7/32]"
    )
    remote_node_networks: tuple[ClusterNetwork, ...] = Field(default=(), description="networks of the on-prem machines")
    remote_pod_networks: tuple[ClusterNetwork, ...] = Field(default=(), description="networks of the pods on them")
    hybrid: HybridSettings | None = None
    admins: Annotated[tuple[Annotated[str, Field(pattern=_PRINCIPAL)], ...], Once] = Field(
        min_length=1, description="ARNs of the roles or users who administer the cluster"
    )
    secrets_key: str | None = Field(
        default=None, pattern=_KEY, description="KMS key for Secrets of the cluster; else one is made"
    )
    logs: Annotated[tuple[LogType, ...], Once] = ("api", "audit", "authenticator")
    log_days: LogDays = 30
    addons: dict[str, str] = Field(
        default={"vpc-cni": "", "kube-proxy": ""},
        description="EKS add-ons and their versions; empty: the version that EKS takes for the cluster's. "
        "coredns comes with the cluster: as an add-on it holds `pulumi up` until a node is there",
    )
    deletion_protection: bool = Field(default=False, description="whether AWS refuses to delete the cluster")

    @field_validator("version")
    @classmethod
    def _aws_still_makes_it(cls, text: str) -> str:
        return _not_before(_OLDEST, text)

    @model_validator(mode="after")
    def _public_for_somebody(self) -> EksSettings:
        if (self.endpoint == "private") == bool(self.public_networks):
            raise ValueError(
                "endpoint both needs public_networks, e.g. [203.0.113.7/32]: who may reach it; private takes none"
            )
        return self

    @model_validator(mode="after")
    def _remote_networks_fit(self) -> EksSettings:
        if self.hybrid and not self.remote_node_networks:
            raise ValueError("hybrid needs remote_node_networks: EKS must know where the machines are")
        if self.remote_pod_networks and not self.remote_node_networks:
            raise ValueError("remote_pod_networks needs remote_node_networks")
        together = [ipaddress.IPv4Network(one) for one in (*self.remote_node_networks, *self.remote_pod_networks)]
        for one, other in combinations(together, 2):
            if one.overlaps(other):
                raise ValueError(f"remote networks {one} and {other} overlap: each address must be in one only")
        return self


class Snapshots(Document):
    """Snapshots of etcd, kept in S3."""

    every: Span = Field(default=parse_span("1h"), description="time between two, e.g. 1h")
    keep_days: int = Field(default=30, ge=1, le=3650, description="days until a snapshot is removed")
    outlive_the_cluster: bool = Field(default=False, description="whether `pulumi destroy` leaves the bucket alone")

    @field_validator("every")
    @classmethod
    def _every_few_minutes_at_most(cls, span: timedelta) -> timedelta:
        if span < timedelta(minutes=5):
            raise ValueError("must be 5m or more: each is a whole copy of etcd, e.g. 1h")
        return span

    @model_validator(mode="after")
    def _one_is_always_kept(self) -> Snapshots:
        if self.every > timedelta(days=self.keep_days) / 2:
            raise ValueError(
                f"every must be half of keep_days ({self.keep_days}) or less: else the last one goes before the next "
                "is sure to be there"
            )
        return self


class KubeadmSettings(Document):
    """A control plane on instances of our own, made by kubeadm."""

    kind: Literal["kubeadm"]
    version: str = Field(default="1.35.4", pattern=r"^1\.\d+\.\d+$", description="version of Kubernetes, e.g. 1.35.4")
    instances: Literal[1, 3] = Field(default=3, description="1, or 3 to stand the loss of one")
    reset: Annotated[tuple[str, ...], Once] = Field(
        default=(),
        description="members on which `kubeadm reset` has run, and which may go, e.g. [lab-control-plane-2]",
    )
    instance_type: str = Field(
        default="m6i.large", pattern=r"^[a-z0-9-]+\.[a-z0-9-]+$", description="type and size, e.g. m6i.large"
    )
    ami: str = Field(
        pattern=r"^(ami-[0-9a-f]{8,17}|ssm:/\S+)$",
        description="image with kubeadm, kubelet, containerd, etcdctl and the AWS CLI on it: ami-..., or ssm:/path",
    )
    root_volume_gib: int = Field(default=40, ge=20, le=65536)
    data_volume_gib: int = Field(default=20, ge=10, le=65536, description="volume of etcd and of the cluster's keys")
    names: Annotated[tuple[ServerName, ...], Once] = Field(
        default=(),
        description="further names and addresses in the API server's certificate, e.g. [api.lab.example.org]",
    )
    clients: Annotated[tuple[PrivateNetwork, ...], Apart] = Field(
        default=(), description="networks beside the VPC that may reach the API server, such as the on-prem ones"
    )
    pod_network: ClusterNetwork = "10.244.0.0/16"
    service_network: ClusterNetwork = "10.96.0.0/12"
    key: str | None = Field(
        default=None, pattern=_KEY, description="KMS key for volumes, secrets and snapshots; else one is made"
    )
    snapshots: Snapshots = Snapshots()

    @field_validator("version")
    @classmethod
    def _kubeadm_reads_its_configuration(cls, text: str) -> str:
        return _not_before(_OLDEST, text)

    @model_validator(mode="after")
    def _networks_apart(self) -> KubeadmSettings:
        if ipaddress.IPv4Network(self.pod_network).overlaps(ipaddress.IPv4Network(self.service_network)):
            raise ValueError(f"pod_network {self.pod_network} and service_network {self.service_network} overlap")
        return self

    @field_validator("pod_network")
    @classmethod
    def _pods_of_a_node_fit(cls, text: str) -> str:
        if ipaddress.IPv4Network(text).prefixlen >= NODE_PODS:
            raise ValueError(f"must be larger than /{NODE_PODS}, which each node has of it, e.g. 10.244.0.0/16")
        return text

    @field_validator("service_network")
    @classmethod
    def _services_are_as_many_as_kubeadm_takes(cls, text: str) -> str:
        if not _MOST_SERVICES <= ipaddress.IPv4Network(text).prefixlen <= _FEWEST_SERVICES:
            raise ValueError(f"must be between /{_MOST_SERVICES} and /{_FEWEST_SERVICES}, e.g. 10.96.0.0/12")
        return text

    @field_validator("instances", mode="before")
    @classmethod
    def _a_count(cls, count: object) -> object:
        return str(count) if isinstance(count, bool) else count


ControlPlaneSettings = Annotated[ExistingSettings | EksSettings | KubeadmSettings, Field(discriminator="kind")]
