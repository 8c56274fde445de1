"""Things outside the stack that its files name, and whether they are there: zones, keys, gateways, other stacks.

Asked before any resource is declared; else they would be missed halfway, or by nodes that never come.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final

import pulumi
import pulumi.runtime
import pulumi_aws as aws

from autoscaler.model.errors import BadInput, Unavailable
from stacks.preflight.inputs import Plans
from stacks.preflight.requirements import Part, stack_of
from stacks.settings.control_plane import EksSettings, KubeadmSettings
from stacks.settings.on_prem import RoutedSettings, VpnSettings
from stacks.settings.outputs import exported_name
from stacks.settings.stack import Settings

_ABSENT: Final = ("no matching", "NotFound", "couldn't find resource", "empty result")
_NO_STACK: Final = ("unknown stack", "no stack named", "not found", "404")
_READ: Final = "pulumi:pulumi:readStackOutputs"
_ENABLED: Final = "Enabled"
_LISTED_BY: Final = {
    "tgw": "aws ec2 describe-transit-gateways",
    "vgw": "aws ec2 describe-vpn-gateways",
    "pcx": "aws ec2 describe-vpc-peering-connections",
}
_TOLD_BY: Final[Mapping[Part, str]] = {"network": "subnets", "control_plane": "control_plane"}
"""The output by which a stack shows that it made the part."""


def check_zones_there(zones: Collection[str], *, region: str, source: str, provider: aws.Provider) -> None:
    """Whether this account has them. Raises ``BadInput`` or ``Unavailable``."""
    try:
        there = aws.get_availability_zones(state="available", opts=pulumi.InvokeOptions(provider=provider)).names
    except Exception as error:  # noqa: BLE001 - a failed look-up has no type of its own
        raise Unavailable(f"EC2 does not tell which zones {region} has: {error}") from None
    missing = sorted(set(zones) - set(there))
    if missing:
        raise BadInput(
            f"{source}: groups[].zones, or spillway:network of the stack file, name {', '.join(missing)}, and in "
            f"{region} this account has {', '.join(there)}"
        )


def check_keys_there(settings: Settings, *, parts: Collection[str], provider: aws.Provider) -> None:
    """Whether KMS keys are there, and enabled. Raises ``BadInput`` with every mistake.

    Of a key of another account KMS may tell us nothing, though EC2 may use it: that is let through.
    """
    opts = pulumi.InvokeOptions(provider=provider)
    wrong = []
    for where, key in _keys(settings, parts):
        state = _state_of(key, opts)
        if state != _ENABLED:
            wrong.append(
                f"{where} = {key!r}: {state}: nothing could be encrypted with it: `aws kms describe-key --key-id "
                f"{key}` must show an enabled key"
            )
    if wrong:
        raise BadInput("\n".join(wrong))


def check_gateway_there(settings: Settings, *, provider: aws.Provider) -> None:
    """Whether what leads on-prem is. Raises ``BadInput`` or ``Unavailable``."""
    wanted, opts = settings.connectivity, pulumi.InvokeOptions(provider=provider)
    key, gateway = "", None
    if isinstance(wanted, RoutedSettings):
        key, gateway = "via", wanted.via
    if isinstance(wanted, VpnSettings):
        key, gateway = "transit_gateway", wanted.transit_gateway
    if not gateway:
        return
    kind = gateway.partition("-")[0]
    look_ups: dict[str, Callable[[], object]] = {
        "tgw": lambda: aws.ec2transitgateway.get_transit_gateway(id=gateway, opts=opts),
        "vgw": lambda: aws.ec2.get_vpn_gateway(id=gateway, opts=opts),
        "pcx": lambda: aws.ec2.get_vpc_peering_connection(id=gateway, opts=opts),
    }
    where = f"spillway:connectivity.{key} = {gateway!r}"
    try:
        look_ups[kind]()
    except Exception as error:  # noqa: BLE001 - as above
        if not any(said in str(error) for said in _ABSENT):
            raise Unavailable(f"{where}: EC2 does not tell whether it is there: {error}") from None
        raise BadInput(f"{where}: is not there: `{_LISTED_BY[kind]}` lists those that are") from None


def check_stack_there(plans: Plans, part: Part) -> None:
    """Whether the stack that makes a part has made it, as this one takes it. Raises ``BadInput`` or ``Unavailable``."""
    name = stack_of(plans.settings, part)
    where = f"spillway:stacks.{part} = {name!r}"
    try:
        outputs: Mapping[str, Any] = (pulumi.runtime.invoke(_READ, {"name": name}).value or {}).get("outputs") or {}
    except Exception as error:  # noqa: BLE001 - as above
        if not any(said in str(error) for said in _NO_STACK):
            raise Unavailable(f"{where}: its outputs cannot be read: {error}") from None
        raise BadInput(f"{where}: there is no such stack: `pulumi stack ls --all` lists those that there are") from None
    made = outputs.get(exported_name(_TOLD_BY[part]))
    if not made:
        raise BadInput(
            f"{where}: that stack has made no {part.replace('_', ' ')} yet: `pulumi up --stack {name}` first"
        )
    wanted = plans.settings.control_plane
    if part == "control_plane" and wanted and made["kind"] != wanted.kind:
        raise BadInput(
            f"spillway:control_plane.kind = {wanted.kind!r}, and the stack {name} has made one of kind {made['kind']}: "
            f"repeat its section here"
        )
    missing = sorted(set(plans.zones) - set(made)) if part == "network" else []
    if missing:
        raise BadInput(
            f"{where}: its network has no subnet in {', '.join(missing)}, only in {', '.join(sorted(made))}: bring it "
            f"up first, or change groups[].zones of {plans.settings.policy_path}"
        )


def _keys(settings: Settings, parts: Collection[str]) -> Iterator[tuple[str, str]]:
    """Each with the key of the stack file that names it."""
    control_plane = settings.control_plane if "control-plane" in parts else None
    if settings.nodes.kms_key and "node-pools" in parts:
        yield "spillway:nodes.kms_key", settings.nodes.kms_key
    if isinstance(control_plane, KubeadmSettings) and control_plane.key:
        yield "spillway:control_plane.key", control_plane.key
    if isinstance(control_plane, EksSettings) and control_plane.secrets_key:
        yield "spillway:control_plane.secrets_key", control_plane.secrets_key


def _state_of(key: str, opts: pulumi.InvokeOptions) -> str:
    try:
        return aws.kms.get_key(key_id=key, opts=opts).key_state
    except Exception as error:  # noqa: BLE001 - as above
        return "KMS has no such key" if any(said in str(error) for said in _ABSENT) else _ENABLED
