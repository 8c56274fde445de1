"""What a resource type of the stand-in for the aws plugin is made of, and the words that they all need.

A class says what may be asked for (``inputs``), and how to make, find, change and delete one; which changes replace the
resource is a table (``replacements.py``). Names are those of the real plugin.
Types of one service stand together in a module named after it; ``registry.py`` lists them all.
"""

# ruff: noqa: ARG002 - every kind has the same methods, whatever it needs of what it is given
# ruff: noqa: D102 - they are documented once, in `Kind`

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

import boto3
from botocore import xform_name
from botocore.config import Config
from botocore.exceptions import ClientError

from stacks.local.pulumi_plugins.aws.replacements import REPLACED

Properties = dict[str, Any]
Tags = Mapping[str, str]
PROPAGATION: Final = 120.0
"""Seconds that the provider waits for what AWS has made to be seen by all of AWS.

https://github.com/hashicorp/terraform-provider-aws/blob/main/docs/retries-and-waiters.md
"""
BETWEEN_TRIES: Final = 0.2
NOT_SEEN: Final = ("Invalid IAM Instance Profile", "roleArn, ", "Nonexistent role or missing ssm service principal")
"""What a service says of a role or profile that it does not see yet."""
_ID: Final = re.compile(r"\b[a-z]+-[0-9a-f]{8,17}\b")


class Cloud:
    """The AWS endpoint that the provider was configured with."""

    def __init__(self, *, region: str, endpoint: str, default_tags: Tags) -> None:
        self.region = region
        self.default_tags = dict(default_tags)
        self._endpoint = endpoint
        self._clients: dict[str, Any] = {}
        self._making = threading.Lock()
        self._made: set[str] = set()
        """Ids of what this process has made."""

    def client(self, service: str) -> Any:
        """A client of one service; made once, usable from every thread."""
        with self._making:
            if service not in self._clients:
                # Adaptive waits would hide from a test what it asked for; the engine shows the error.
                config = Config(retries={"mode": "standard", "max_attempts": 3}, max_pool_connections=20)
                make: Any = boto3.client  # its types know one signature per service
                made = self._clients[service] = make(
                    service, region_name=self.region, endpoint_url=self._endpoint, config=config
                )
                made.meta.events.register(f"after-call.{service}", self._note)
                made.meta.events.register(f"needs-retry.{service}", self._wait_to_be_seen)
            return self._clients[service]

    def _note(self, model: Any, parsed: Mapping[str, Any], **_: object) -> None:
        """What a call has made may be seen late."""
        if model.name.startswith("Create") and "Error" not in parsed:
            self._made.update(_ID.findall(json.dumps(parsed, default=str)))

    def _wait_to_be_seen(self, response: Any, attempts: int, operation: Any, **_: object) -> float | None:
        """Seconds until the call is tried again; ``None``: its answer stands.

        The provider waits, too, until no address is mapped any more before it detaches an internet gateway.
        """
        error = (response[1] if response else {}).get("Error", {})
        words = error.get("Message", "")
        is_new = any(one in self._made for one in _ID.findall(words))
        is_mapped = operation.name == "DetachInternetGateway" and error.get("Code") == "DependencyViolation"
        waits = is_new or is_mapped or any(of_iam in words for of_iam in NOT_SEEN)
        return BETWEEN_TRIES if waits and attempts * BETWEEN_TRIES < PROPAGATION else None

    @property
    def ec2(self) -> Any:
        """A client of EC2."""
        return self.client("ec2")

    @property
    def scaling(self) -> Any:
        """A client of Auto Scaling."""
        return self.client("autoscaling")

    @property
    def iam(self) -> Any:
        """A client of IAM."""
        return self.client("iam")


class Kind:
    """One type of resource. As it stands: an EC2 resource with tags, of which nothing can be changed."""

    token: ClassVar[str]
    inputs: ClassVar[frozenset[str]]
    unordered: ClassVar[frozenset[str]] = frozenset()
    """Lists whose order means nothing."""
    moving: ClassVar[frozenset[str]] = frozenset()
    """Outputs that an update changes."""
    named: ClassVar[str] = ""
    """The property that gets a name made up when the program gives none, and that must be unique."""
    tagged: ClassVar[bool] = True
    """It has a map of tags, to which the provider's default tags are added."""

    @property
    def fixed(self) -> frozenset[str]:
        """What cannot be changed afterwards: another resource is made in its place."""
        return REPLACED[self.token]

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        """Make one; gives its id."""
        raise NotImplementedError

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        """What stands there now, inputs and outputs; ``None`` where it is gone."""
        raise NotImplementedError

    def update(self, cloud: Cloud, key: str, old: Properties, new: Properties) -> None:
        """Change what can be changed, tags apart."""

    def retag(self, cloud: Cloud, key: str, before: Tags, after: Tags) -> None:
        """Bring the tags to ``after``."""
        gone = [name for name in before if name not in after]
        fresh = {name: value for name, value in after.items() if before.get(name) != value}
        if gone:
            self.untag(cloud, key, gone)
        if fresh:
            self.tag(cloud, key, fresh)

    def tag(self, cloud: Cloud, key: str, tags: Tags) -> None:
        """Add these tags, in place of those of the same names."""
        cloud.ec2.create_tags(Resources=[key], Tags=listed(tags))

    def untag(self, cloud: Cloud, key: str, names: list[str]) -> None:
        """Take the tags of these names away."""
        cloud.ec2.delete_tags(Resources=[key], Tags=[{"Key": name} for name in names])

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        """Deletes the resource."""
        raise NotImplementedError


class Ec2Kind(Kind):
    """A resource that EC2 makes, describes and deletes in one call each: said as a table.

    The noun gives the calls: a ``NatGateway`` is made by ``create_nat_gateway``, found among the ``NatGateways`` of
    ``describe_nat_gateways(NatGatewayIds=[...])``, deleted by ``delete_nat_gateway(NatGatewayId=...)``.
    """

    noun: ClassVar[str]
    tag_type: ClassVar[str]
    """What EC2 calls it in ``TagSpecifications``."""
    asked: ClassVar[Mapping[str, str]] = {}
    """Inputs that are given on creation and found again in the description, by EC2's names."""
    told: ClassVar[Mapping[str, str]] = {}
    """Outputs of the description, by EC2's names."""

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        made = self._call(cloud, "create")(
            **given(wanted, **self.asked), TagSpecifications=specified(self.tag_type, tags)
        )
        key: str = made[self.noun][f"{self.noun}Id"]
        self.update(cloud, key, {}, wanted)
        return key

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        found = self.describe(cloud, key)
        if found is None:
            return None
        return {name: found.get(field) for name, field in {**self.asked, **self.told}.items()} | tags_of(found)

    def describe(self, cloud: Cloud, key: str) -> Any:
        """What EC2 says of it; ``None`` where it is gone."""
        return first(self._call(cloud, "describe", "s"), f"{self.noun}s", **{f"{self.noun}Ids": [key]})

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        self._call(cloud, "delete")(**{f"{self.noun}Id": key})

    def _call(self, cloud: Cloud, verb: str, ending: str = "") -> Any:
        return getattr(cloud.ec2, f"{verb}_{xform_name(self.noun)}{ending}")


def found(call: Callable[..., Any], field: str, **asked: Any) -> Any:
    """A field of the answer; ``None`` where AWS says that there is no such thing."""
    try:
        return call(**asked)[field]
    except ClientError as error:
        code = error.response["Error"]["Code"]
        if "NotFound" in code or code == "NoSuchEntity":
            return None
        raise


def first(call: Callable[..., Any], field: str, **asked: Any) -> Any:
    """The one thing asked for by its id; ``None`` where it is gone."""
    answer = found(call, field, **asked)
    return answer[0] if answer else None


def given(wanted: Mapping[str, Any], /, **names: str) -> dict[str, Any]:
    """Those of the wanted properties that are there, by AWS's names."""
    return {field: wanted[name] for name, field in names.items() if wanted.get(name) is not None}


def specified(kind: str, tags: Tags) -> list[dict[str, Any]]:
    """Tags for a call that makes something."""
    return [{"ResourceType": kind, "Tags": listed(tags)}] if tags else []


def listed(tags: Tags) -> list[dict[str, str]]:
    """Tags as AWS takes them."""
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def mapped(tags: list[dict[str, str]]) -> dict[str, str]:
    """A list of tags, as boto gives it or with its keys in camel case, as a mapping."""
    pairs = ((tag.get("Key", tag.get("key", "")), tag.get("Value", tag.get("value", ""))) for tag in tags)
    return {key: value for key, value in pairs if not key.startswith("aws:")}


def tags_of(described: Mapping[str, Any]) -> Properties:
    """The output that every tagged type has."""
    return {"tagsAll": mapped(described.get("Tags") or [])}


def arn(cloud: Cloud, service: str, what: str) -> str:
    """The ARN of something for which the API tells none."""
    return f"arn:aws:{service}:{cloud.region}:123456789012:{what}"


def complaint(message: str, *, code: str = "InvalidQuery") -> Any:
    """The answer of a call that AWS refuses."""
    return {"Error": {"Code": code, "Message": message}}


def pascal(value: Any) -> Any:
    """Keys as the API spells them."""
    if isinstance(value, dict):
        return {key[:1].upper() + key[1:]: pascal(inner) for key, inner in value.items()}
    return [pascal(inner) for inner in value] if isinstance(value, list) else value


def camel(value: Any) -> Any:
    """Keys as the plugin spells them."""
    if isinstance(value, dict):
        return {key[:1].lower() + key[1:]: camel(inner) for key, inner in value.items()}
    return [camel(inner) for inner in value] if isinstance(value, list) else value
