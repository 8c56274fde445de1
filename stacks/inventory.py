"""The on-prem machines of a lab, as its platform engineer writes them down: ``inventory.yaml``.

The file is read by ``stacks/`` (each machine becomes a resource of the stack) and by ``roles/`` (each becomes a pyinfra
host). This module imports no Pulumi.
"""

from __future__ import annotations

import ipaddress
from pathlib import Path

from pydantic import Field, field_validator

from autoscaler import labels as words
from autoscaler.cluster import Resources, parse_quantity
from autoscaler.documents import Document, read_document
from autoscaler.policy import Name, TaintEntry


class Gpus(Document):
    """The GPUs of one machine, all alike."""

    product: str = Field(description="as GPU feature discovery names it, e.g. NVIDIA-A100-SXM4-80GB", min_length=1)
    count: int = Field(ge=1, le=32, description="how many GPUs the machine has, e.g. 8")
    memory: str = Field(description="memory of one GPU, e.g. 80Gi")

    @field_validator("memory")
    @classmethod
    def _memory_is_a_quantity(cls, memory: str) -> str:
        parse_quantity(memory)
        return memory


class Ssh(Document):
    """How the machine is reached."""

    user: str = Field(default="root", min_length=1)
    port: int = Field(default=22, ge=1, le=65535)


class Machine(Document):
    """One machine that the lab owns."""

    name: Name = Field(description="the machine's host name, which becomes the node's name, e.g. dgx-01")
    address: str = Field(description="its IP address or DNS name, e.g. 10.20.0.11", min_length=1)
    ssh: Ssh = Ssh()
    cpus: int = Field(ge=1, description="logical CPUs, e.g. 128")
    memory: str = Field(description="main memory, e.g. 1Ti")
    disk: str = Field(default="500Gi", description="disk for containers and logs, e.g. 2Ti")
    gpus: Gpus | None = None
    rack: str = ""
    owner: str = ""
    labels: dict[str, str] = Field(default_factory=dict)
    taints: tuple[TaintEntry, ...] = ()

    @field_validator("memory", "disk")
    @classmethod
    def _is_a_quantity(cls, text: str) -> str:
        parse_quantity(text)
        return text

    @field_validator("address")
    @classmethod
    def _address_can_be_one(cls, address: str) -> str:
        digits_and_dots = set(address) <= set("0123456789.")
        if digits_and_dots or ":" in address:
            try:
                ipaddress.ip_address(address)
            except ValueError:
                message = "is not an IP address: write one such as 10.20.0.11, or a DNS name"
                raise ValueError(message) from None
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

    @field_validator("machines")
    @classmethod
    def _each_once(cls, machines: tuple[Machine, ...]) -> tuple[Machine, ...]:
        for key in ("name", "address"):
            values = [getattr(machine, key) for machine in machines]
            twice = sorted({value for value in values if values.count(value) > 1})
            if twice:
                message = f"two machines have the {key} {twice[0]!r}: each must have its own"
                raise ValueError(message)
        return machines


def read_inventory(path: Path) -> Inventory:
    """Read and check an inventory file. Raises ``BadInput``."""
    return read_document(path, Inventory, what="inventory")
