"""What AWS has made and does not show, or does not accept, for a while: only by the fault ``eventual-consistency``.

As AWS documents it, of what is made by a call:

- EC2: until then a call that names its id is refused, and lists leave it out. :data:`EC2` is the table; here the five
  kinds for which a lookup follows at once. https://docs.aws.amazon.com/ec2/latest/devguide/eventual-consistency.html
- IAM: a role or an instance profile that is new, or has a new role, is not known to other services: :data:`IAM`.
  https://docs.aws.amazon.com/IAM/latest/UserGuide/troubleshoot.html#troubleshoot_general_eventual-consistency

Left out: IAM itself, which shows its own at once here; a thing that was seen and is not seen by the next call; Auto
Scaling's own groups and instances, of which AWS documents no such delay.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Literal
from xml.etree import ElementTree as ET

from stacks.local.wire.aws_protocol import Call, Refused
from stacks.local.wire.faults import Faults

EC2: Final[Mapping[str, tuple[str, str, str]]] = {
    "i": ("instanceId", "DescribeInstances", "InvalidInstanceID.NotFound"),
    "lt": ("launchTemplateId", "DescribeLaunchTemplates", "InvalidLaunchTemplateId.NotFound"),
    "sg": ("groupId", "DescribeSecurityGroups", "InvalidGroup.NotFound"),
    "subnet": ("subnetId", "DescribeSubnets", "InvalidSubnetID.NotFound"),
    "vpc": ("vpcId", "DescribeVpcs", "InvalidVpcID.NotFound"),
}
"""Prefix of an id -> its element in answers, the call that lists it, the code of the refusal.

https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html
"""
_MAKES: Final = {
    "CreateLaunchTemplate": "lt",
    "CreateSecurityGroup": "sg",
    "CreateSubnet": "subnet",
    "CreateVpc": "vpc",
}
"""Instances tell of themselves: Auto Scaling launches them, too."""
_NO_PROFILE: Final = (
    "Value ({name}) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name"
)
_NOT_FULLY_FORMED: Final = "You must use a valid fully-formed launch template. "
IAM: Final[Mapping[tuple[str, str], tuple[str, str]]] = {
    ("ec2", "RunInstances"): ("InvalidParameterValue", _NO_PROFILE),
    ("ec2", "ReplaceIamInstanceProfileAssociation"): ("InvalidParameterValue", _NO_PROFILE),
    ("autoscaling", "CreateAutoScalingGroup"): ("ValidationError", _NOT_FULLY_FORMED + _NO_PROFILE),
    ("autoscaling", "UpdateAutoScalingGroup"): ("ValidationError", _NOT_FULLY_FORMED + _NO_PROFILE),
    ("eks", "POST /clusters"): ("InvalidParameterException", "roleArn, {name}, does not exist"),
    ("ssm", "CreateActivation"): ("ValidationException", "Nonexistent role or missing ssm service principal: {name}"),
}
"""The call that names a role or a profile -> its refusal, as the service words it.

https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/troubleshoot-launch.html, https://docs.aws.amazon.com/eks/latest/\
APIReference/API_CreateCluster.html, https://docs.aws.amazon.com/systems-manager/latest/APIReference/\
API_CreateActivation.html
"""
_PROFILE: Final = "IamInstanceProfile"


class Consistency:
    """What was made and is not seen yet. Safe to use from several threads."""

    def __init__(self, faults: Faults, clock: Callable[[], float]) -> None:
        self._faults = faults
        self._clock = clock
        self._lock = threading.Lock()
        self._seen_at: dict[str, float] = {}
        """Id, or name of a role or a profile, -> when the rest of AWS sees it."""
        self._profile_of: dict[str, str] = {}
        """Launch template -> the profile that it names."""

    def made(self, what: str, *, of: Literal["ec2", "iam"]) -> None:
        """It is there from now on, and seen later where the fault is in force."""
        seconds = self._faults.seen_after(of)
        with self._lock:
            if seconds:
                self._seen_at[what] = self._clock() + seconds

    def refuse(self, call: Call) -> Refused | None:
        """The error that a call meets which names what is not seen yet."""
        late = self._late()
        if not late:
            return None
        named = {part for key, value in call.parameters.items() for part in _names_in(key, value)}
        named |= {self._profile_of[one] for one in named & self._profile_of.keys()}
        found = min(named & late, default="")
        if not found:
            return None
        if (call.service, call.action) in IAM and not _is_of_ec2(found):
            code, words = IAM[call.service, call.action]
            return Refused(code, words.format(name=found))
        return _not_found(call, found) if _is_of_ec2(found) else None

    def answered(self, call: Call, status: str, body: bytes) -> bytes:
        """The answer without what is not seen yet; what the call made is noted."""
        if status.startswith("2"):
            self._note(call, body)
        late = {one for one in self._late() if _is_of_ec2(one)} if call.service == "ec2" else set()
        return _without(body, call.action, late) if late else body

    def _note(self, call: Call, body: bytes) -> None:
        if call.action in _MAKES:
            element = EC2[_MAKES[call.action]][0]
            for made in set(re.findall(rf"<{element}>([^<]+)<", body.decode())):
                self.made(made, of="ec2")
                self._note_template(call, made)
        elif call.action == "CreateRole":
            self.made(str(call.parameters["RoleName"]), of="iam")
        elif call.action in ("CreateInstanceProfile", "AddRoleToInstanceProfile"):
            self.made(str(call.parameters["InstanceProfileName"]), of="iam")

    def _note_template(self, call: Call, made: str) -> None:
        for key, value in call.parameters.items():
            if _PROFILE in key:
                with self._lock:
                    self._profile_of[made] = str(value).rpartition("/")[2]

    def _late(self) -> set[str]:
        with self._lock:
            now = self._clock()
            self._seen_at = {what: at for what, at in self._seen_at.items() if at > now}
            return set(self._seen_at)


def _is_of_ec2(name: str) -> bool:
    prefix, _, rest = name.partition("-")
    return prefix in EC2 and re.fullmatch(r"[0-9a-f]{8,17}", rest) is not None


def _names_in(key: str, value: object) -> Iterable[str]:
    """Ids, and names at the end of ARNs. A filter names nothing that must be there."""
    if key.startswith("Filter."):
        return ()
    return (part.rpartition("/")[2] for part in str(value).split(","))


def _not_found(call: Call, what: str) -> Refused | None:
    prefix = what.partition("-")[0]
    if call.service == "ec2":
        return Refused(EC2[prefix][2], f"The ID '{what}' does not exist")
    if call.service == "autoscaling" and prefix != "i":  # it knows the instances that it launched
        return Refused("ValidationError", f"The ID '{what}' does not exist")
    return None


def _without(body: bytes, action: str, late: set[str]) -> bytes:
    """EC2's answer without the items that are ``late``."""
    element = next((element for element, lists, _ in EC2.values() if lists == action), None)
    if element is None:
        return body
    root = ET.fromstring(body)  # noqa: S314 - moto's own answer
    for parent in list(root.iter()):
        for item in [child for child in parent if _text(child, element) in late]:
            parent.remove(item)
    return ET.tostring(root)


def _text(item: ET.Element, element: str) -> str:
    if item.tag.rpartition("}")[2] != "item":
        return ""
    return next((child.text or "" for child in item if child.tag.rpartition("}")[2] == element), "")
