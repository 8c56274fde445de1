"""What a program says of one machine, typed: the entry of the inventory, and how it is handled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pulumi.provider.experimental.provider import CheckFailure
from pydantic import ConfigDict, Field, ValidationError, field_validator
from pydantic.alias_generators import to_camel

from autoscaler.config.documents import parse_span
from autoscaler.config.labels_and_taints import Name
from autoscaler.model.resources import parse_quantity
from stacks.on_prem_provider.values import Plain
from stacks.settings.inventory import Machine

HOST_KEY: Final = "hostKey"
"""Of ``ssh``, on the wire; ``host_key`` in the inventory."""


class MachineArgs(Machine):
    """The properties of the resource, by their names in a program's own spelling."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    cluster: Name = Field(description="the cluster that the machine is of")
    member: bool = Field(
        default=True,
        description="whether it becomes the node of its name; EKS hybrid nodes come in under one of Systems Manager's",
    )
    min_disk_free: str = Field(default="20Gi", description="disk that must be free for images and logs")
    drain_timeout: str = Field(default="10m", description="how long its pods may take to leave when it is taken away")
    force_removal: bool = Field(
        default=False, description="the machine is down for good: do not wait for its pods when it is taken away"
    )
    renew_join: str = Field(default="", description="any new text: issue new join credentials")

    @field_validator("min_disk_free")
    @classmethod
    def _free_is_a_quantity(cls, text: str) -> str:
        parse_quantity(text)
        return text

    @field_validator("drain_timeout")
    @classmethod
    def _drain_is_a_span(cls, text: str) -> str:
        parse_span(text)
        return text


def read_args(properties: Plain) -> MachineArgs:
    """Reads the engine's properties, which were checked before; what is an output only is left out."""
    known = {field.alias for field in MachineArgs.model_fields.values()}
    return MachineArgs.model_validate(_respelled({key: value for key, value in properties.items() if key in known}))


def write_args(args: MachineArgs) -> Plain:
    """Writes them as the engine keeps them, with every default, so that a new default is a change."""
    written = args.model_dump(by_alias=True, mode="json")
    ssh = written["ssh"]
    ssh[HOST_KEY] = ssh.pop("host_key")
    return written


def check_args(properties: Plain) -> tuple[CheckFailure, ...]:
    """Every mistake, by the property that it is in and with what would be right."""
    try:
        args = MachineArgs.model_validate(_respelled(properties))
    except ValidationError as invalid:
        return tuple(_failures(invalid))
    if args.probe == "ssh" and not args.ssh.host_key:
        ask = f"ssh-keyscan -p {args.ssh.port} -t ed25519 {args.address}"
        reason = (
            f"is missing: without it nobody knows which machine answers. `{ask}` prints it; compare its fingerprint "
            "with the one on the machine's console"
        )
        return (CheckFailure(f"ssh.{HOST_KEY}", reason),)
    return ()


def _failures(invalid: ValidationError) -> Iterator[CheckFailure]:
    for error in invalid.errors(include_url=False):
        where = ".".join(HOST_KEY if part == "host_key" else str(part) for part in error["loc"])
        given = "" if isinstance(error["input"], (dict, list)) else f"{error['input']!r}: "
        reason = error["msg"].removeprefix("Value error, ")
        yield CheckFailure(where, "is missing" if error["type"] == "missing" else f"{given}{reason}")


def _respelled(properties: Plain) -> dict[str, Any]:
    ssh = properties.get("ssh")
    if not isinstance(ssh, dict) or HOST_KEY not in ssh:
        return properties
    return {**properties, "ssh": {("host_key" if key == HOST_KEY else key): value for key, value in ssh.items()}}
