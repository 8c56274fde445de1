"""Types of Systems Manager, as the stand-in for the aws plugin serves them."""

# ruff: noqa: D102 - they are documented once, in `Kind`
# ruff: noqa: S105 - a token is the name of a type here

from __future__ import annotations

import time
from typing import Any, ClassVar, Final

from botocore.exceptions import ClientError

from stacks.local.pulumi_plugins.aws.kinds import (
    Cloud,
    Kind,
    Properties,
    Tags,
    arn,
    complaint,
    found,
    given,
    listed,
    mapped,
)

_BETWEEN_LOOKS: Final = 0.2


class Parameter(Kind):
    """A parameter. Its id is its name."""

    token = "aws:ssm/parameter:Parameter"
    inputs = frozenset({"name", "type", "value", "description", "keyId", "tier", "tags"})

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        self._put(cloud, wanted, Tags=listed(tags))
        name: str = wanted["name"]
        return name

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        parameter = found(cloud.client("ssm").get_parameter, "Parameter", Name=key, WithDecryption=True)
        if parameter is None:
            return None
        ssm = cloud.client("ssm")
        tags = ssm.list_tags_for_resource(ResourceType="Parameter", ResourceId=key)["TagList"]
        [about] = ssm.describe_parameters(ParameterFilters=[{"Key": "Name", "Values": [key]}])["Parameters"]
        return {
            "name": key,
            "type": parameter["Type"],
            **given(about, KeyId="keyId", Tier="tier"),
            "value": parameter["Value"],
            "version": parameter["Version"],
            "arn": parameter["ARN"],
            "tagsAll": mapped(tags),
        }

    def update(self, cloud: Cloud, key: str, old: Properties, new: Properties) -> None:
        """As the published plugin: whatever changes but tags, the value is written too, as the state has it."""
        if any(old.get(name) != new.get(name) for name in self.inputs - {"tags"}):
            self._put(cloud, new, Overwrite=True)

    def tag(self, cloud: Cloud, key: str, tags: Tags) -> None:
        cloud.client("ssm").add_tags_to_resource(ResourceType="Parameter", ResourceId=key, Tags=listed(tags))

    def untag(self, cloud: Cloud, key: str, names: list[str]) -> None:
        cloud.client("ssm").remove_tags_from_resource(ResourceType="Parameter", ResourceId=key, TagKeys=names)

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        cloud.client("ssm").delete_parameter(Name=key)

    @staticmethod
    def _put(cloud: Cloud, wanted: Properties, **more: Any) -> None:
        asked = given(
            wanted, name="Name", type="Type", value="Value", description="Description", keyId="KeyId", tier="Tier"
        )
        cloud.client("ssm").put_parameter(**asked, **more)


class Activation(Kind):
    """What on-prem machines register by. Its code is told once, when it is made."""

    token = "aws:ssm/activation:Activation"
    inputs = frozenset({"name", "description", "iamRole", "registrationLimit", "expirationDate", "tags"})
    _made: ClassVar[dict[str, str]] = {}
    """Codes of those that this process made, until they are in the engine's state."""

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        asked = given(
            wanted,
            name="DefaultInstanceName",
            description="Description",
            iamRole="IamRole",
            registrationLimit="RegistrationLimit",
            expirationDate="ExpirationDate",
        )
        made = cloud.client("ssm").create_activation(**asked, Tags=listed(tags))
        self._made[made["ActivationId"]] = made["ActivationCode"]
        key: str = made["ActivationId"]
        return key

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        by_id = [{"FilterKey": "ActivationIds", "FilterValues": [key]}]
        activations = cloud.client("ssm").describe_activations(Filters=by_id)["ActivationList"]
        if not activations:
            return None
        one, code = activations[0], self._made.pop(key, None)
        return {
            "iamRole": one["IamRole"],
            "description": one.get("Description"),
            "registrationLimit": one["RegistrationLimit"],
            "registrationCount": one["RegistrationsCount"],
            "expirationDate": one["ExpirationDate"].strftime("%Y-%m-%dT%H:%M:%SZ"),
            "tagsAll": mapped(one.get("Tags", [])),
            **({"activationCode": code} if code else {}),
        }

    def retag(self, cloud: Cloud, key: str, before: Tags, after: Tags) -> None:
        """Systems Manager takes tags of an activation when it is made, and no others later."""

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        cloud.client("ssm").delete_activation(ActivationId=key)


class Association(Kind):
    """A document that is run on instances; what it says, the plugin waits for."""

    token = "aws:ssm/association:Association"
    inputs = frozenset(
        {
            "name",
            "associationName",
            "targets",
            "parameters",
            "waitForSuccessTimeoutSeconds",
            "tags",
            "complianceSeverity",
        }
    )

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        made = cloud.client("ssm").create_association(**self._asked(wanted), Tags=listed(tags))
        key: str = made["AssociationDescription"]["AssociationId"]
        self._wait(cloud, key, wanted)
        return key

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        try:
            one = cloud.client("ssm").describe_association(AssociationId=key)["AssociationDescription"]
        except ClientError as error:
            if error.response["Error"]["Code"] == "AssociationDoesNotExist":
                return None
            raise
        return {
            "associationId": key,
            "arn": arn(cloud, "ssm", f"association/{key}"),
            "name": one["Name"],
            "associationName": one.get("AssociationName"),
            "targets": [{"key": target["Key"], "values": target["Values"]} for target in one.get("Targets", [])],
            "parameters": {name: ",".join(values) for name, values in one.get("Parameters", {}).items()},
            "tagsAll": wanted.get("tagsAll") or {**cloud.default_tags, **(wanted.get("tags") or {})},
        }

    def update(self, cloud: Cloud, key: str, old: Properties, new: Properties) -> None:
        cloud.client("ssm").update_association(AssociationId=key, **self._asked(new))
        self._wait(cloud, key, new)

    def retag(self, cloud: Cloud, key: str, before: Tags, after: Tags) -> None:
        """The stand-in for Systems Manager keeps no tags of associations."""

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        cloud.client("ssm").delete_association(AssociationId=key)

    @staticmethod
    def _asked(wanted: Properties) -> dict[str, Any]:
        return {
            "Name": wanted["name"],
            "Targets": [{"Key": one["key"], "Values": one["values"]} for one in wanted.get("targets", [])],
            "Parameters": {name: [value] for name, value in wanted.get("parameters", {}).items()},
            **given(wanted, associationName="AssociationName"),
        }

    @staticmethod
    def _wait(cloud: Cloud, key: str, wanted: Properties) -> None:
        end = time.monotonic() + wanted.get("waitForSuccessTimeoutSeconds", 0)
        while time.monotonic() < end:
            told = cloud.client("ssm").describe_association(AssociationId=key)["AssociationDescription"]
            if told["Overview"]["Status"] == "Success":
                return
            time.sleep(_BETWEEN_LOOKS)
        if "waitForSuccessTimeoutSeconds" in wanted:
            raise ClientError(complaint("the association did not succeed in time"), "DescribeAssociation")


KINDS: Final = (Parameter(), Activation(), Association())
