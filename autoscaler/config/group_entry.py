"""An entry of the scaling policy's ``groups``: one kind of node that may be bought."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field, StringConstraints, WithJsonSchema, field_validator, model_validator
from pydantic.json_schema import JsonSchemaValue

from autoscaler.config.document_keys import infrastructure, live
from autoscaler.config.documents import Document, Span
from autoscaler.config.labels_and_taints import Name, NodeLabels, TaintEntry, Taints
from autoscaler.config.schedules import Budget
from autoscaler.model.cluster import CapacityType
from autoscaler.model.labels import PREFIX, may_kubelet_give
from autoscaler.model.resources import Resources, parse_quantity

DISK: Final = "100Gi"
"""Of the root volume, where a policy does not say."""
LARGEST_DISK = 64 * 2**40
"""Of gp3: https://docs.aws.amazon.com/ebs/latest/userguide/general-purpose.html."""
InstanceTypeName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]+\.[a-z0-9-]+$")]
ReservationId = Annotated[str, StringConstraints(pattern=r"^cr-[0-9a-f]{8,17}$")]
_AMOUNTS: Final[JsonSchemaValue] = {
    "type": "object",
    "additionalProperties": {"anyOf": [{"type": "string"}, {"type": "number"}]},
}
_OVERRIDES = 40
"""Types that a mixed instances policy takes.

https://docs.aws.amazon.com/autoscaling/ec2/userguide/ec2-auto-scaling-quotas.html"""


class GroupEntry(Document):
    """One kind of node that may be bought: becomes one Auto Scaling group in each of its zones."""

    name: Annotated[Name, infrastructure()] = Field(description="a short name for this group, e.g. gpu-a10g")
    formerly: Annotated[tuple[Name, ...], infrastructure()] = Field(
        default=(),
        description="names that this entry had before, until every stack has been brought up under the new one",
    )
    instance_type: Annotated[InstanceTypeName | None, infrastructure()] = Field(
        default=None, description="an EC2 instance type, e.g. g5.12xlarge"
    )
    instance_types: Annotated[tuple[InstanceTypeName, ...], infrastructure()] = Field(
        default=(),
        max_length=_OVERRIDES,
        description="in place of instance_type: several of one shape, the one to prefer first",
    )
    zones: Annotated[tuple[str, ...], infrastructure()] = Field(
        description="availability zones to buy in, e.g. [us-east-1a, us-east-1b]", min_length=1
    )
    capacity_type: Annotated[CapacityType, infrastructure()] = Field(
        default="on-demand",
        description="how its nodes are bought; capacity-block: in the Capacity Block for ML that capacity_reservation "
        "names, from its start until EC2 takes its instances back, half an hour before its end",
    )
    min: Annotated[int, infrastructure("nodes")] = Field(
        default=0, ge=0, description="nodes kept at all times, over all zones: the groups' MinSize"
    )
    max: Annotated[int, live("nodes")] = Field(
        ge=0, description="nodes at most, over all zones, e.g. 8; above the groups' MaxSize it waits for `pulumi up`"
    )
    usd_per_hour: Annotated[float | None, live("$/h")] = Field(
        default=None,
        ge=0,
        allow_inf_nan=False,
        description="price of one node; asked of the AWS price list when absent",
    )
    labels: Annotated[NodeLabels, infrastructure()] = Field(
        default_factory=dict, description="more labels of its nodes, e.g. {example.com/tier: batch}"
    )
    taints: Annotated[Taints, infrastructure()] = Field(default=(), description="taints of its nodes")
    resources: Annotated[dict[str, str], WithJsonSchema(_AMOUNTS), infrastructure()] = Field(
        default_factory=dict,
        description="allocatable amounts that differ from what EC2 says of the type, e.g. {ephemeral-storage: 200Gi}",
    )
    disk: Annotated[str, infrastructure("bytes")] = Field(
        default=DISK, description="size of the root volume, e.g. 200Gi"
    )
    efa: Annotated[bool, infrastructure()] = Field(
        default=False, description="Elastic Fabric Adapters, as many as the instance type has"
    )
    placement: Annotated[Literal["any", "cluster"], infrastructure()] = Field(
        default="any", description="cluster: nodes close together on the network, in one placement group"
    )

    capacity_reservation: Annotated[ReservationId | None, infrastructure()] = Field(
        default=None,
        description="id of a Capacity Reservation that its nodes are launched into, e.g. cr-0123456789abcdef0: as many "
        "as it has room for, and at no price, for it is paid anyway; it need not match open",
    )
    upfront_usd: Annotated[float, live("$")] = Field(
        default=0.0,
        ge=0,
        allow_inf_nan=False,
        description="what its Capacity Block cost when it was bought, which AWS does not say later: counted in `spend` "
        "and budgets, evenly from the block's start to its end, and in no limit",
    )

    budget: Budget = Budget()
    headroom: Annotated[int, live("nodes")] = Field(
        default=0, ge=0, description="nodes kept free at all times, beyond what pods need, within all limits"
    )
    idle_after: Annotated[Span | None, live("time")] = Field(
        default=None, description="how long a node of it stands idle before it goes; absent: scale_down.idle_after"
    )

    @property
    def disk_bytes(self) -> int:
        """Size of the root volume."""
        return int(parse_quantity(self.disk))

    @property
    def types(self) -> tuple[str, ...]:
        """What its nodes may be: the type, or those of the set, the preferred one first."""
        return self.instance_types or (self.instance_type or "",)

    @field_validator("labels")
    @classmethod
    def _a_node_brings_them(cls, labels: dict[str, str]) -> dict[str, str]:
        for key in labels:
            if not may_kubelet_give(key):
                message = (
                    f"sets {key!r}, which no kubelet may give its own node: a new one would come without it, or not at "
                    f"all: choose another prefix, e.g. example.com/{key.rpartition('/')[2]}"
                )
                raise ValueError(message)
        return labels

    @field_validator("taints")
    @classmethod
    def _is_nobodys(cls, taints: tuple[TaintEntry, ...]) -> tuple[TaintEntry, ...]:
        for taint in taints:
            if taint.key.startswith(f"{PREFIX}/"):
                message = f"has {taint.key}, which Spillway puts on and takes off itself: choose another key"
                raise ValueError(message)
        return taints

    @field_validator("zones", "instance_types", "formerly")
    @classmethod
    def _each_once(cls, listed: tuple[str, ...]) -> tuple[str, ...]:
        twice = sorted({one for one in listed if listed.count(one) > 1})
        if twice:
            message = f"names {twice[0]} twice"
            raise ValueError(message)
        return listed

    @field_validator("resources", mode="before")
    @classmethod
    def _resources_are_quantities(cls, resources: object) -> object:
        if not isinstance(resources, dict):
            return resources
        written = {key: str(value) for key, value in resources.items()}
        for key, amount in Resources.parse(written).items():
            if amount < 0:
                message = f"{key}: {written[key]} is less than nothing"
                raise ValueError(message)
        return written

    @field_validator("disk")
    @classmethod
    def _disk_is_a_quantity(cls, disk: str) -> str:
        if parse_quantity(disk) < 8 * 2**30:
            message = "must be at least 8Gi: the operating system's image needs it"
            raise ValueError(message)
        if parse_quantity(disk) > LARGEST_DISK:
            message = "must be at most 64Ti: no gp3 volume is larger"
            raise ValueError(message)
        return disk

    @model_validator(mode="after")
    def _one_way_to_say_the_type(self) -> GroupEntry:
        if bool(self.instance_type) == bool(self.instance_types):
            message = (
                f"gives {'both' if self.instance_type else 'neither'} of instance_type and instance_types: "
                "write instance_type: g5.12xlarge, or instance_types: [g5.12xlarge, g5.24xlarge] for a set of one shape"
            )
            raise ValueError(message)
        return self

    @model_validator(mode="before")
    @classmethod
    def _what_is_reserved_is_paid(cls, said: object) -> object:
        if isinstance(said, dict) and said.get("capacity_reservation") and said.get("usd_per_hour") is None:
            return {**said, "usd_per_hour": 0.0}
        return said

    @model_validator(mode="after")
    def _one_reservation_is_of_one_kind(self) -> GroupEntry:
        if self.capacity_reservation is None:
            return self
        wrong = "capacity_type: spot" if self.capacity_type == "spot" else ""
        wrong = wrong or (f"zones {', '.join(self.zones)}" if len(self.zones) > 1 else "")
        wrong = wrong or ("instance_types" if self.instance_types else "")
        if wrong:
            message = (
                f"capacity_reservation with {wrong}: a Capacity Reservation is of one instance type in one zone, on "
                "demand: write an entry for it alone"
            )
            raise ValueError(message)
        return self

    @model_validator(mode="after")
    def _a_block_is_reserved_and_ends(self) -> GroupEntry:
        if self.capacity_type != "capacity-block":
            return self
        if self.capacity_reservation is None:
            message = "capacity_type: capacity-block without capacity_reservation: write the id of the Capacity Block"
            raise ValueError(message)
        if self.min:
            message = f"capacity_type: capacity-block with min {self.min}: its nodes end with the block: leave min out"
            raise ValueError(message)
        return self

    @model_validator(mode="after")
    def _only_blocks_are_paid_upfront(self) -> GroupEntry:
        if self.upfront_usd and self.capacity_type != "capacity-block":
            message = (
                f"upfront_usd {self.upfront_usd:g} with capacity_type: {self.capacity_type}: only Capacity Blocks are "
                "paid beforehand: leave it out, or write what a node costs as usd_per_hour"
            )
            raise ValueError(message)
        return self

    @model_validator(mode="after")
    def _close_together_in_one_zone(self) -> GroupEntry:
        asked = "efa: true" if self.efa else "placement: cluster"
        if (self.efa or self.placement == "cluster") and len(self.zones) > 1:
            message = (
                f"{asked} with zones {', '.join(self.zones)}: neither an EFA's traffic nor a cluster placement group "
                "crosses zones: write one entry for each zone"
            )
            raise ValueError(message)
        return self

    @model_validator(mode="after")
    def _min_within_max(self) -> GroupEntry:
        if self.min > self.max:
            message = f"min {self.min} is above max {self.max}: max must be at least min"
            raise ValueError(message)
        return self
