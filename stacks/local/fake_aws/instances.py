"""moto's EC2 with the gaps closed that matter to a cluster. :class:`Ec2` takes the place of moto's backend class.

What moto lacks, and what is done here:

- instances are running at once: here they are ``pending`` until the boot delay has passed;
- capacity never runs out: here ``RunInstances`` asks the faults' script, and fails with AWS's words;
- no capacity can be reserved: here it can, and a template that targets a reservation launches into it alone; what a
  group has in a Capacity Block ends half an hour before it;
- ``ClientToken`` is not idempotent: here the same token gives the same reservation;
- a launch template's metadata options, instance profile and root volume are dropped: here they reach the instance;
- a NAT gateway that is deleted keeps its address: here it lets it go;
- a gateway endpoint has no route in a table that it is given later, and fails to go: here its routes follow;
- a launch template is described with the tags that it was made with: here with those that it has;
- ``CreateLaunchTemplateVersion`` ignores ``SourceVersion``: here the new data is laid over that version's.

Left as moto has it: an instance that ends is ``terminated`` at once, without a while of ``shutting-down``.
"""

from __future__ import annotations

import base64
import binascii
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final

from moto.core.responses import ActionResult
from moto.core.types import Base64EncodedString
from moto.ec2.exceptions import EC2ClientError, InvalidInstanceIdError
from moto.ec2.models import EC2Backend
from moto.ec2.models.amis import AMIS, Ami
from moto.ec2.models.instance_types import INSTANCE_TYPES
from moto.ec2.models.instances import Instance, Reservation
from moto.ec2.models.launch_templates import LaunchTemplate
from moto.ec2.models.nat_gateways import NatGateway

from autoscaler.model import labels as words
from autoscaler.model.instance_types import InstanceType, quota_of, read_instance_type
from stacks.local.fake_aws.boot import Booted
from stacks.local.fake_aws.capacity_reservations import BLOCK, CapacityReservationCalls, CapacityReservations
from stacks.local.fake_aws.consistency import Consistency
from stacks.local.fake_aws.ledger import Ledger, Life
from stacks.local.fake_aws.placement_groups import PlacementGroupCalls, PlacementGroups
from stacks.local.wire.faults import Faults, Joining

GROUP_TAG: Final = "aws:autoscaling:groupName"
_ROOT_DEVICES: Final = ("/dev/xvda", "/dev/sda1")
_ROOT_GIB: Final = 8
_GIB: Final = 2**30
_NO_QUOTA: Final = (
    "You have requested more vCPU capacity than your current vCPU limit of 64 allows for the instance bucket that the "
    "specified instance type belongs to. Please visit http://aws.amazon.com/contact-us/ec2-request to request an "
    "adjustment to this limit."
)


@dataclass
class World:
    """What all parts of the stand-in share."""

    faults: Faults = field(default_factory=Faults)
    ledger: Ledger = field(default_factory=Ledger)
    boot_delay: timedelta = timedelta(seconds=3)
    end_delay: timedelta = timedelta(seconds=1)
    """How long an instance of a group is ``Terminating``."""
    retry_after: timedelta = timedelta(seconds=5)
    """How long a group waits after a failed launch before it tries again."""
    clock: Callable[[], float] = time.monotonic
    lock: threading.RLock = field(default_factory=threading.RLock)
    """Held around everything that touches moto, which is not made for threads."""
    changed: Callable[[], None] = lambda: None
    """Told whenever there may be something to do for a group or a node."""
    consistency: Consistency = field(init=False)
    _made: tuple[datetime, float] = field(init=False)

    def __post_init__(self) -> None:
        """Makes what goes by the faults and the clock."""
        self.consistency = Consistency(self.faults, self.clock)
        self._made = datetime.now(UTC), self.clock()

    def now(self) -> datetime:
        """The date, which goes on with the clock."""
        date, made = self._made
        return date + timedelta(seconds=self.clock() - made)


@dataclass
class Begun:
    """An instance that was launched."""

    instance: Instance
    launched: float
    runs_at: float
    joining: Joining


class Ec2(EC2Backend):
    """The EC2 of one region."""

    world: World

    def __init__(self, region_name: str, account_id: str) -> None:
        super().__init__(region_name, account_id)
        self.begun: dict[str, Begun] = {}
        self._by_token: dict[str, Reservation] = {}
        self._by_id: dict[str, Instance] = {}
        self.placement_groups = PlacementGroups()
        self.capacity_reservations = CapacityReservations(self.world.now)

    def _load_amis(self) -> None:
        """The images that moto tells of in every region; the thousand that each region has besides take 0.25 s."""
        for image in AMIS:
            self.amis[image["ami_id"]] = Ami(self, **image | {"owner_alias": "amazon"})

    # moto searches all instances and images for each of these; with a thousand instances that takes a minute

    def get_instance(self, instance_id: str) -> Instance:
        """Returns an instance by id; one that is just being launched is in the newest reservation."""
        if instance_id not in self._by_id and self.reservations:
            newest = next(reversed(self.reservations.values()))
            self._by_id.update((instance.id, instance) for instance in newest.instances)
        if instance_id not in self._by_id:
            raise InvalidInstanceIdError(instance_id)
        return self._by_id[instance_id]

    def get_multi_instances_by_id(self, instance_ids: list[str], filters: Any = None) -> list[Instance]:
        """Returns instances by ids, all of which must be there."""
        unknown = [instance_id for instance_id in instance_ids if instance_id not in self._by_id]
        if unknown:
            raise InvalidInstanceIdError(unknown)
        found = [self._by_id[instance_id] for instance_id in instance_ids]
        return [instance for instance in found if instance.applies(filters)]

    def describe_images(self, *arguments: Any, **kwargs: Any) -> list[Any]:
        """Describes images as moto does; at once where it is one image that is asked for, as at each launch."""
        wanted = (kwargs.get("filters") or {}).get("image-id")
        if arguments or set(kwargs) != {"filters"} or set(kwargs["filters"]) != {"image-id"} or wanted is None:
            found: list[Any] = super().describe_images(*arguments, **kwargs)
            return found
        return [self.amis[image] for image in wanted if image in self.amis]

    def run_instances(
        self,
        image_id: str,
        count: int,
        user_data: Base64EncodedString | None,
        security_group_names: list[str],
        **kwargs: Any,
    ) -> Reservation:
        """Runs instances as moto does, after asking for capacity; the new ones are pending."""
        token = kwargs.get("client_token", "ABCDE")  # what moto gives where the caller sent none
        if token != "ABCDE" and token in self._by_token:  # noqa: S105 - not a secret
            return self._by_token[token]
        template = self._template_data(kwargs.get("launch_template"))
        kwargs.setdefault("block_device_mappings", _with_root(template.get("BlockDeviceMappings") or []))
        kwargs["metadata_options"] = template.get("MetadataOptions", {}) | (kwargs.get("metadata_options") or {})
        group = kwargs.get("tags", {}).get("instance", {}).get(GROUP_TAG, "")
        reserved = _reservation_of(template)
        placement_group = (template.get("Placement") or {}).get("GroupName") or kwargs.pop("placement_group", None)
        if reserved:
            kind, zone = _type_of(kwargs, template), self._zone_of(kwargs)
            self.capacity_reservations.check(reserved, kind, zone, count, market=market_of(template))
        elif market_of(template) == BLOCK:
            raise EC2ClientError("InvalidParameterCombination", "A Capacity Block is named by the reservation's id.")
        else:
            self._ask_for_capacity(count, template=template, **kwargs)
        reservation = super().run_instances(image_id, count, user_data, security_group_names, **kwargs)
        for instance in reservation.instances:
            self._give_profile(instance, template)
            self._begin(instance, group=group)
            if reserved:
                self.capacity_reservations.uses[instance.id] = reserved
            if placement_group:
                self.placement_groups.uses[instance.id] = placement_group
        self._by_token[token] = reservation
        self.world.changed()
        return reservation

    def terminate_instances(self, instance_ids: list[str]) -> list[tuple[Instance, Any]]:
        """Terminates instances as moto does, and in the ledger."""
        ended = super().terminate_instances(instance_ids)
        for instance, _ in ended:
            self.begun.pop(instance.id, None)
            self.capacity_reservations.uses.pop(instance.id, None)
            self.placement_groups.uses.pop(instance.id, None)
            self.world.ledger.ended(instance.id)
        self.world.changed()
        return ended

    def describe_launch_templates(self, *asked: Any, **more: Any) -> list[LaunchTemplate]:
        """Describes launch templates as moto does, each with its tags of now."""
        found: list[LaunchTemplate] = super().describe_launch_templates(*asked, **more)
        for template in found:
            template.tags = template.get_tags()
        return found

    def delete_nat_gateway(self, nat_gateway_id: str) -> NatGateway:
        """Deletes a gateway as moto does; its address is free for another, as on AWS."""
        gateway = super().delete_nat_gateway(nat_gateway_id)
        for address in self.addresses:
            if address.eni is not None and address.eni is gateway._eni:  # noqa: SLF001 - moto tells it nowhere else
                self.disassociate_address(association_id=address.association_id)
        return gateway

    def modify_vpc_endpoint(self, vpc_id: str, *changes: Any, **more: Any) -> None:
        """Modifies an endpoint as moto does (which calls the endpoint's id so), and its routes."""
        endpoint = self.vpc_end_points[vpc_id]
        before, listed = set(endpoint.route_table_ids), endpoint.destination_prefix_list_id or ""
        super().modify_vpc_endpoint(vpc_id, *changes, **more)
        after = set(endpoint.route_table_ids)
        for table in after - before:
            self.create_route(table, None, gateway_id=vpc_id, destination_prefix_list_id=listed)
        for table in before - after:
            self.delete_route(table, listed)

    def start_due(self, now: float) -> float | None:
        """Let those run whose boot delay has passed; gives the time of the next one."""
        waiting = [begun for begun in self.begun.values() if begun.instance.state == "pending"]
        for begun in waiting:
            if begun.runs_at <= now:
                begun.instance.start()
                self.world.ledger.running(begun.instance.id)
        return min((begun.runs_at for begun in waiting if begun.runs_at > now), default=None)

    def booted(self) -> Iterator[Booted]:
        """The running instances that shall be nodes, now or soon."""
        for begun in self.begun.values():
            instance, delay = begun.instance, begun.joining.delay
            if instance.state == "running" and delay is not None:
                joins_at = begun.launched + delay.total_seconds()
                yield Booted(
                    id=instance.id,
                    type=instance_type_of(instance.instance_type),
                    zone=instance.availability_zone or "",
                    region=self.region_name,
                    name=instance.private_dns_name,
                    address=instance.private_ip or "",
                    user_data=decoded(instance.user_data),
                    disk=_root_gib(instance) * _GIB,
                    joins_at=joins_at,
                    devices_at=joins_at + begun.joining.devices_later.total_seconds(),
                    differing=_differing(instance),
                )

    def _ask_for_capacity(self, count: int, *, template: dict[str, Any], **kwargs: Any) -> None:
        instance_type, zone = _type_of(kwargs, template), self._zone_of(kwargs)
        fault = self.world.faults.refusal(instance_type=instance_type, zone=zone, count=count)
        quota, asked = self.world.faults.quota(), count * instance_type_of(instance_type).vcpus
        if quota is not None and asked + self._vcpus(instance_type) > quota:
            raise NotLaunched("VcpuLimitExceeded", _NO_QUOTA.replace("64", str(quota)), late=timedelta(0))
        if fault is not None and fault.kind == "quota":
            raise NotLaunched("VcpuLimitExceeded", _NO_QUOTA, late=fault.late)
        if fault is not None:
            raise NotLaunched("InsufficientInstanceCapacity", no_capacity(instance_type, zone), late=fault.late)

    def _vcpus(self, instance_type: str) -> int:
        """Counts vCPUs in use of the same quota on demand: spot capacity is not told apart here."""
        like, kinds = quota_of(instance_type, spot=False), [one.instance.instance_type for one in self.begun.values()]
        return sum(instance_type_of(kind).vcpus for kind in kinds if quota_of(kind, spot=False) == like)

    def _zone_of(self, kwargs: dict[str, Any]) -> str:
        subnet = kwargs.get("subnet_id") or next((nic.get("SubnetId") for nic in kwargs.get("nics") or []), None)
        if subnet:
            return str(self.get_subnet(subnet).availability_zone)
        return kwargs.get("placement") or f"{self.region_name}a"

    def _begin(self, instance: Instance, *, group: str) -> None:
        world, now = self.world, self.world.clock()
        zone = instance.availability_zone or ""
        instance._state.name, instance._state.code = "pending", 0  # noqa: SLF001 - moto has no other way
        self._by_id[instance.id] = instance
        world.consistency.made(instance.id, of="ec2")
        self.begun[instance.id] = Begun(
            instance=instance,
            launched=now,
            runs_at=now + world.boot_delay.total_seconds(),
            joining=world.faults.joining(instance_type=instance.instance_type, zone=zone, boot_delay=world.boot_delay),
        )
        world.ledger.launched(
            Life(
                id=instance.id,
                instance_type=instance.instance_type,
                zone=zone,
                group=group,
                market=instance.lifecycle or "on-demand",
                launched_at=0,
            )
        )

    def _template_data(self, launch_template: dict[str, Any] | None) -> dict[str, Any]:
        if not launch_template:
            return {}
        return dict(self._get_template_from_args(launch_template).data)

    def _give_profile(self, instance: Instance, template: dict[str, Any]) -> None:
        profile = template.get("IamInstanceProfile") or {}
        if profile:
            self.associate_iam_instance_profile(
                instance.id, iam_instance_profile_name=profile.get("Name"), iam_instance_profile_arn=profile.get("Arn")
            )


class Ec2Response(CapacityReservationCalls, PlacementGroupCalls):
    """The EC2 calls that answer otherwise than moto's."""

    def create_launch_template_version(self) -> ActionResult:
        """Creates a version as moto does, laid over ``SourceVersion``."""
        backend = self.ec2_backend
        name, template_id = self._get_param("LaunchTemplateName"), self._get_param("LaunchTemplateId")
        source = self._get_param("SourceVersion")
        template = backend.get_launch_template_by_name(name) if name else backend.get_launch_template(template_id)
        below = dict(template.get_version(source).data) if source else {}  # before $Latest is another
        result = super().create_launch_template_version()
        data = template.versions[-1].data
        if data.get("UserData"):
            data["UserData"] = Base64EncodedString(data["UserData"])
        data.update({key: value for key, value in below.items() if data.get(key) is None})
        return result


class NotLaunched(EC2ClientError):  # noqa: N818 - reads as what it is at the raise site
    """EC2 launches no such instance; an Auto Scaling group knows it ``late``r."""

    def __init__(self, code: str, message: str, *, late: timedelta) -> None:
        super().__init__(code, message)
        self.late = late


def no_capacity(instance_type: str, zone: str) -> str:
    """Returns the message of AWS for a type that a zone has none of."""
    region = zone[:-1]
    others = ", ".join(f"{region}{letter}" for letter in "abcdf" if f"{region}{letter}" != zone)
    return (
        f"We currently do not have sufficient {instance_type} capacity "
        f"in the Availability Zone you requested ({zone}). "
        "Our system will be working on provisioning additional capacity. "
        f"You can currently get {instance_type} capacity by not specifying an Availability Zone in your request "
        f"or choosing {others}."
    )


@cache
def instance_type_of(name: str) -> InstanceType:
    """Returns a type of moto's catalogue, which is EC2's own."""
    return read_instance_type(INSTANCE_TYPES[name])


def decoded(user_data: object) -> str:
    """User data as the instance would read it; empty where there is none, or where it is not text."""
    try:
        return base64.b64decode(str(user_data or "")).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""


def _differing(instance: Instance) -> dict[str, str]:
    """What the group's tags say of a node's size: no machine boots here that could tell otherwise."""
    tags = getattr(getattr(instance, "autoscaling_group", None), "tags", [])
    start = words.TEMPLATE_RESOURCE
    return {tag["Key"].removeprefix(start): tag["Value"] for tag in tags if tag["Key"].startswith(start)}


def _type_of(asked: dict[str, Any], template: dict[str, Any]) -> str:
    """The template's, where the caller names none."""
    own = str(asked.get("instance_type") or "")
    return str(template.get("InstanceType") or own) if asked.get("is_instance_type_default") else own


def _reservation_of(template: dict[str, Any]) -> str:
    """Id of the Capacity Reservation that a launch template targets; empty for none."""
    target = (template.get("CapacityReservationSpecification") or {}).get("CapacityReservationTarget") or {}
    return str(target.get("CapacityReservationId") or "")


def market_of(template: dict[str, Any]) -> str:
    """The market type of a launch template; empty for on demand."""
    return str((template.get("InstanceMarketOptions") or {}).get("MarketType") or "")


def _with_root(mappings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The template's volumes, with a root volume that ends with its instance; moto's own extra root is left out."""
    volumes = [dict(mapping) for mapping in mappings if mapping.get("Ebs")]
    for volume in volumes:
        if volume["DeviceName"] in _ROOT_DEVICES:
            volume["Ebs"] = {"DeleteOnTermination": True, "VolumeSize": _ROOT_GIB} | volume["Ebs"]
            return volumes
    root = {"DeviceName": _ROOT_DEVICES[0], "Ebs": {"DeleteOnTermination": True, "VolumeSize": _ROOT_GIB}}
    return [root, *volumes]


def _root_gib(instance: Instance) -> int:
    volumes = instance.block_device_mapping
    root = next((volumes[device] for device in _ROOT_DEVICES if device in volumes), None)
    return int(root.size) if root is not None else _ROOT_GIB
