"""Systems Manager as far as moto does not serve it: activations of on-prem machines, and associations of instances.

Nothing is run on an instance: an association counts as done as soon as its instances run, which is when AWS would
begin. What the first member of a control plane hands on by then is handed on for it (`members.py`). Of the parameters
that AWS keeps for everybody those of the images for EKS, and of Ubuntu's, are here; the images are some of moto's.
"""

from __future__ import annotations

import json
import re
import secrets
import time
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from moto.ec2.models import ec2_backends
from moto.iam.models import iam_backends

from stacks.local.wire.aws_protocol import Call, Refused, Reply, refusal
from tests.fakes.aws_services.members import hand_on

Json = dict[str, Any]
_MACHINES: Final = 1000
_AHEAD: Final = 30 * 86400.0
_DOCUMENTS: Final = ("AWS-RunShellScript",)
_EKS_IMAGE: Final = re.compile(
    r"/aws/service/eks/optimized-ami/1\.\d+/amazon-linux-2023/(?P<kind>\w+/\w+)/recommended/image_id"
)
EKS_IMAGES: Final = {
    "x86_64/standard": "ami-076f415166b04f5fe",
    "arm64/standard": "ami-0e9271c829888680e",
    "x86_64/nvidia": "ami-999844e0",
}
"""By architecture and variant."""
_IMAGES: Final = {
    f"/aws/service/canonical/ubuntu/server/24.04/stable/current/{architecture}/hvm/ebs-gp3/ami-id": image
    for architecture, image in (("amd64", "ami-12c6146b"), ("arm64", "ami-0e9271c829888680e"))
}
"""Others that AWS keeps, by parameter."""


class SystemsManager:
    """Of every region of one account."""

    def __init__(self, account: str) -> None:
        self._account = account
        self._activations: dict[tuple[str, str], Json] = {}
        self._associations: dict[tuple[str, str], Json] = {}
        self._calls: Mapping[str, Callable[[str, Mapping[str, Any]], Json]] = {
            "GetParameter": self._get_public_parameter,
            "CreateActivation": self._create_activation,
            "DescribeActivations": self._describe_activations,
            "DeleteActivation": self._delete_activation,
            "CreateAssociation": self._create_association,
            "DescribeAssociation": self._describe_association,
            "ListAssociations": self._list_associations,
            "UpdateAssociation": self._update_association,
            "DeleteAssociation": self._delete_association,
        }

    def answer(self, call: Call) -> Reply | None:
        """What Systems Manager says to one call; ``None`` where moto knows it."""
        own = self._calls.get(call.action)
        if own is None:
            return None
        if call.action == "GetParameter":
            name = call.parameters["Name"]
            if name not in _IMAGES and not _EKS_IMAGE.fullmatch(name):
                return None
        try:
            said = own(call.region, call.parameters)
        except Refused as refused:
            return refusal(call, refused)
        return 200, "application/x-amz-json-1.1", json.dumps(said).encode()

    def _get_public_parameter(self, _: str, asked: Mapping[str, Any]) -> Json:
        name = asked["Name"]
        found = _EKS_IMAGE.fullmatch(name)
        image = EKS_IMAGES.get(found["kind"]) if found else _IMAGES.get(name)
        if image is None:
            raise Refused("ParameterNotFound", f"Parameter {name} not found.")
        return {"Parameter": {"Name": name, "Type": "String", "Value": image, "Version": 1, "DataType": "text"}}

    def _create_activation(self, region: str, asked: Mapping[str, Any]) -> Json:
        role = next(
            (
                one
                for one in iam_backends[self._account]["aws"].roles.values()
                if f"{one.path or '/'}{one.name}" == f"/{asked['IamRole']}"  # with its path, as AWS's console gives it
            ),
            None,
        )
        if role is None or "ssm.amazonaws.com" not in json.dumps(role.assume_role_policy_document):
            raise Refused(
                "ValidationException", f"Nonexistent role or missing ssm service principal: {asked['IamRole']}"
            )
        limit, expires = asked.get("RegistrationLimit", 1), _seconds(asked.get("ExpirationDate", time.time() + 86400))
        if not 1 <= limit <= _MACHINES:
            raise Refused("ValidationException", f"RegistrationLimit {limit} must be between 1 and {_MACHINES}")
        if not time.time() < expires <= time.time() + _AHEAD:
            raise Refused("ValidationException", "ExpirationDate must be in the future, and within 30 days")
        key = str(uuid.uuid4())
        self._activations[region, key] = {
            "ActivationId": key,
            "Description": asked.get("Description"),
            "IamRole": asked["IamRole"],
            "RegistrationLimit": limit,
            "RegistrationsCount": 0,
            "ExpirationDate": expires,
            "Expired": False,
            "CreatedDate": time.time(),
            "Tags": asked.get("Tags", []),
        }
        return {"ActivationId": key, "ActivationCode": secrets.token_urlsafe(15)}

    def _describe_activations(self, region: str, asked: Mapping[str, Any]) -> Json:
        wanted = [value for one in asked.get("Filters", []) for value in one["FilterValues"]]
        return {
            "ActivationList": [
                one for (where, key), one in self._activations.items() if where == region and key in (wanted or [key])
            ]
        }

    def _delete_activation(self, region: str, asked: Mapping[str, Any]) -> Json:
        if self._activations.pop((region, asked["ActivationId"]), None) is None:
            raise Refused("InvalidActivationId", "The activation ID is not valid")
        return {}

    def _create_association(self, region: str, asked: Mapping[str, Any]) -> Json:
        self._check_association(region, asked)
        key = str(uuid.uuid4())
        self._associations[region, key] = {"AssociationId": key, **asked}
        return self._describe_association(region, {"AssociationId": key})

    def _describe_association(self, region: str, asked: Mapping[str, Any]) -> Json:
        found = self._association(region, asked)
        targets = [one for one in self._instances(region) if one.id in _targets(found)]
        is_done = all(one.state == "running" for one in targets)
        for one in targets if is_done else ():
            hand_on(self._account, region, one)
        return {"AssociationDescription": found | {"Overview": {"Status": "Success" if is_done else "Pending"}}}

    def _list_associations(self, region: str, asked: Mapping[str, Any]) -> Json:
        wanted = {one["key"]: one["value"] for one in asked.get("AssociationFilterList", [])}
        listed = [one for (where, _), one in self._associations.items() if where == region]
        return {"Associations": [one for one in listed if all(one.get(key) == wanted[key] for key in wanted)]}

    def _update_association(self, region: str, asked: Mapping[str, Any]) -> Json:
        found = self._association(region, asked)
        self._check_association(region, {**found, **asked})
        found |= asked
        return self._describe_association(region, asked)

    def _delete_association(self, region: str, asked: Mapping[str, Any]) -> Json:
        self._association(region, asked)
        del self._associations[region, asked["AssociationId"]]
        return {}

    def _check_association(self, region: str, asked: Mapping[str, Any]) -> None:
        if asked["Name"] not in _DOCUMENTS:
            raise Refused("InvalidDocument", f"Document {asked['Name']} does not exist")
        unknown = set(_targets(asked)) - {one.id for one in self._instances(region)}
        if unknown:
            raise Refused("InvalidInstanceId", f"Instances {sorted(unknown)} are not managed")

    def _association(self, region: str, asked: Mapping[str, Any]) -> Json:
        found = self._associations.get((region, asked["AssociationId"]))
        if found is None:
            raise Refused("AssociationDoesNotExist", "The specified association does not exist.")
        return found

    def _instances(self, region: str) -> list[Any]:
        return list(ec2_backends[self._account][region].all_instances())


def _targets(association: Mapping[str, Any]) -> list[str]:
    return [value for target in association.get("Targets", []) for value in target["Values"]]


def _seconds(when: float | str) -> float:
    return when if isinstance(when, (int, float)) else datetime.fromisoformat(when).astimezone(UTC).timestamp()
