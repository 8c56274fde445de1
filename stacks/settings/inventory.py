"""The on-prem machines of a lab, as its platform engineer writes them down: ``inventory.yaml``.

The file is read by ``stacks/`` (each machine becomes a resource of the stack) and by ``roles/`` (each becomes a pyinfra
host). This module imports no Pulumi.
"""

from __future__ import annotations

import base64
import ipaddress
import re
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field, field_validator

from autoscaler.config.documents import Document, read_document
from autoscaler.config.hostnames import is_dns_name, one_spelling, why_not_reached
from autoscaler.config.labels_and_taints import LABEL_VALUE, LABEL_VALUE_IS, Name, NodeLabels, TaintEntry, Taints
from autoscaler.model import labels as words
from autoscaler.model.resources import Resources, parse_quantity

_HOST_KEY: Final = re.compile(r"(ssh-ed25519|ecdsa-sha2-nistp(?:256|384|521)|ssh-rsa) ([A-Za-z0-9+/]+=*)")


_LEAST: Final = 2**20
"""Bytes below which a size has lost its unit."""
_TOLD: Final = {
    words.HOSTNAME: "name",
    words.ARCH: "what Spillway runs on",
    words.OS: "what Spillway runs on",
    words.GPU_PRODUCT: "gpus.product",
    words.GPU_COUNT: "gpus.count",
    words.GPU_MEMORY: "gpus.memory",
}
"""Labels that a machine's entry says in other words."""


class Gpus(Document):
    """The GPUs of one machine, all alike."""

    product: str = Field(description="as GPU feature discovery names it, e.g. NVIDIA-A100-SXM4-80GB", min_length=1)
    count: int = Field(ge=1, le=32, description="how many GPUs the machine has, e.g. 8")
    memory: str = Field(description="memory of one GPU, e.g. 80Gi")

    @field_validator("product")
    @classmethod
    def _product_can_be_a_label(cls, product: str) -> str:
        if not re.fullmatch(LABEL_VALUE, product):
            raise ValueError(f"becomes the value of a label, with dashes for blanks: {LABEL_VALUE_IS}")
        return product

    @field_validator("memory")
    @classmethod
    def _memory_is_a_quantity(cls, memory: str) -> str:
        return _some(memory)


class Ssh(Document):
    """How the machine is reached, and how it is known to be the one that is meant."""

    user: str = Field(default="root", pattern=r"^[a-z_][a-z0-9_.-]{0,31}$", description="an account, e.g. root")
    port: int = Field(default=22, ge=1, le=65535)
    key: str = Field(
        default="", description="path of the private key, e.g. ~/.ssh/lab; without it the SSH agent and ~/.ssh/id_*"
    )
    host_key: str = Field(
        default="",
        description="the machine's public host key, as `ssh-keyscan -t ed25519 ADDRESS` prints it after the address",
    )

    @field_validator("host_key")
    @classmethod
    def _host_key_is_one(cls, text: str) -> str:
        if text and not _is_host_key(text):
            raise ValueError(
                "is not a public host key: write its type and its base64, such as 'ssh-ed25519 AAAAC3NzaC1lZDI1...'"
            )
        return text


class Machine(Document):
    """One machine that the lab owns."""

    name: Name = Field(description="the machine's host name, which becomes the node's name, e.g. dgx-01")
    address: str = Field(description="its IP address or DNS name, e.g. 10.20.0.11", min_length=1)
    ssh: Ssh = Ssh()
    cpus: int = Field(ge=1, le=10000, description="logical CPUs, e.g. 128")
    memory: str = Field(description="main memory, e.g. 1Ti")
    disk: str = Field(default="500Gi", description="disk for containers and logs, e.g. 2Ti")
    gpus: Gpus | None = None
    rack: str = Field(default="", description="where it stands, e.g. r1: jobs that talk much are kept in one rack")
    owner: str = Field(default="", description="the team that bought it, e.g. vision")
    labels: NodeLabels = Field(default_factory=dict, description="more labels of its node")
    taints: Taints = Field(default=(), description="taints of its node, for as long as it is a member")
    probe: Literal["ssh", "none"] = Field(
        default="ssh",
        description="how what is written here is compared with the machine: over SSH, or not at all (a stand-in)",
    )
    settings: dict[str, Any] = Field(
        default_factory=dict, description="how its software is set up, over the fleet's: see roles/README.md"
    )

    @field_validator("memory", "disk")
    @classmethod
    def _is_a_quantity(cls, text: str) -> str:
        return _some(text)

    @field_validator("labels")
    @classmethod
    def _is_no_fact(cls, labels: dict[str, str]) -> dict[str, str]:
        for key in labels:
            if key in _TOLD:
                raise ValueError(f"sets {key!r}, which follows from {_TOLD[key]}: leave it out")
        return labels

    @field_validator("taints")
    @classmethod
    def _is_nobodys(cls, taints: tuple[TaintEntry, ...]) -> tuple[TaintEntry, ...]:
        for taint in taints:
            if taint.key.startswith((f"{words.PREFIX}/", "node.kubernetes.io/")):
                whose = "Spillway" if taint.key.startswith(words.PREFIX) else "Kubernetes"
                raise ValueError(f"has {taint.key}, which {whose} puts on and takes off itself: choose another key")
        return taints

    @field_validator("rack", "owner")
    @classmethod
    def _can_be_a_label(cls, text: str) -> str:
        if not re.fullmatch(LABEL_VALUE, text):
            raise ValueError(f"becomes the value of a label: {LABEL_VALUE_IS}")
        return text

    @field_validator("address")
    @classmethod
    def _address_can_be_one(cls, address: str) -> str:
        try:
            found = ipaddress.ip_address(address)
        except ValueError:
            if not is_dns_name(address):
                message = "is not an IP address: write one such as 10.20.0.11, or a DNS name"
                raise ValueError(message) from None
            return address
        if why_not_reached(str(found), allowed=("loopback",)):
            message = "is no address by which others reach a machine: write one such as 10.20.0.11"
            raise ValueError(message)
        return address

    def capacity(self) -> Resources:
        """What the machine has in all, in the units of ``Resources``."""
        amounts = {"cpu": str(self.cpus), "memory": self.memory, "ephemeral-storage": self.disk, "pods": "110"}
        if self.gpus:
            amounts[words.GPU] = str(self.gpus.count)
        return Resources.parse(amounts)

    def node_labels(self) -> dict[str, str]:
        """The labels that its node carries."""
        node = {words.HOSTNAME: self.name, words.ORIGIN: words.ON_PREM, words.ARCH: "amd64", words.OS: "linux"}
        if self.gpus:
            node[words.GPU_PRODUCT] = self.gpus.product
            node[words.GPU_COUNT] = str(self.gpus.count)
            node[words.GPU_MEMORY] = str(int(parse_quantity(self.gpus.memory)) >> 20)
        if self.rack:
            node[words.RACK] = self.rack
        if self.owner:
            node[words.OWNER] = self.owner
        return node | self.labels


class Inventory(Document):
    """All on-prem machines of one cluster."""

    machines: tuple[Machine, ...] = Field(description="the on-prem machines, one entry each")
    settings: dict[str, Any] = Field(
        default_factory=dict, description="how the software of all of them is set up: see roles/README.md"
    )
    ec2_settings: dict[str, Any] = Field(
        default_factory=dict, description="how that of the nodes in EC2 differs: goes into `spillway nodes bundle`"
    )

    @field_validator("machines")
    @classmethod
    def _each_once(cls, machines: tuple[Machine, ...]) -> tuple[Machine, ...]:
        for key, spelled in (("name", str.lower), ("address", one_spelling)):
            values = [spelled(getattr(machine, key)) for machine in machines]
            for number, value in enumerate(values):
                first = values.index(value)
                if first != number:
                    both = f"[{first}] ({machines[first].name}) and [{number}] ({machines[number].name})"
                    raise ValueError(f"{both} have the {key} {value!r}: each must have its own")
        return machines


def read_inventory(path: Path) -> Inventory:
    """Read and check an inventory file. Raises ``BadInput``."""
    return read_document(path, Inventory, what="inventory")


def _some(text: str) -> str:
    """A quantity of bytes of which there is some. Raises ``ValueError``."""
    amount = parse_quantity(text)
    if amount <= 0:
        raise ValueError("must be more than nothing, e.g. 64Gi")
    if amount < _LEAST:
        raise ValueError("is in bytes, and few: write its unit, e.g. 64Gi")
    return text


def _is_host_key(text: str) -> bool:
    """Its type stands once more at the head of its base64."""
    found = _HOST_KEY.fullmatch(text)
    if not found:
        return False
    try:
        blob = base64.b64decode(found[2], validate=True)
    except ValueError:
        return False
    return blob[4 : 4 + int.from_bytes(blob[:4])] == found[1].encode()
