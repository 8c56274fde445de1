"""Lets EC2 instances in: a token for each one that is running and no member yet, and its certificates.

One round after the other, beside the autoscaler: which nodes are let in is decided by what EC2 says of the
instances with the cluster's tag, never by what a machine says of itself. The token lies in Parameter Store under the
instance's own id, tagged with the instance's ARN, by which alone its role may read it; it ends with the join, or after
ten minutes. One instance that cannot be helped holds up no other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from autoscaler.kube.client import Kube, Refused
from autoscaler.model import labels as words
from autoscaler.model.errors import Unavailable
from roles.membership import bootstrap
from roles.membership.csr_policy import Expected

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Instance:
    """A running instance, as EC2 knows it."""

    id: str
    name: str
    """Private DNS name."""
    address: str
    arn: str = ""


@dataclass(frozen=True, slots=True)
class Round:
    """What one round of approvals did."""

    verdicts: Sequence[bootstrap.Verdict] = ()
    told: Sequence[str] = ()
    """What was given and taken, one line each."""
    problems: Mapping[str, str] = field(default_factory=dict)
    """By instance, why it could not be helped this time."""


class Approver:
    """The outside parties, and the rounds between them. ``ec2`` and ``ssm`` are boto3 clients."""

    def __init__(self, kube: Kube, *, ec2: Any, ssm: Any, cluster: str) -> None:
        self._kube, self._ec2, self._ssm, self._cluster = kube, ec2, ssm, cluster

    def round(self) -> Round:
        """Look at everything, and let in the nodes that may come in.

        Raises ``Unavailable`` where AWS or the API server does not answer.
        """
        try:
            instances = running_instances(self._ec2, self._cluster)
            kept = self._parameters()
        except (BotoCoreError, ClientError) as error:
            raise Unavailable(f"AWS: {error}") from None
        try:
            return self._let_in(instances, kept)
        except Refused as refused:
            raise Unavailable(f"the API server refuses ({refused.status}): {refused}") from None

    def _let_in(self, instances: Iterable[Instance], kept: Mapping[str, str]) -> Round:
        members = _members(self._kube)
        expected, told, problems = [], [], {}
        for one in instances:
            try:
                node, lines = self._see_to(one, token_kept=kept.get(one.id, ""), joined=members.get(one.name) == one.id)
            except (BotoCoreError, ClientError, Refused) as error:
                problems[one.id] = str(error)
                continue
            expected.append(node)
            told += lines
        verdicts = bootstrap.approve_pending(self._kube, expected)
        for gone in sorted(kept.keys() - {one.id for one in instances}):
            self._drop_parameter(gone)
            told.append(f"{gone} is not running any more: its token is gone")
        return Round(verdicts, told, problems)

    def _see_to(self, one: Instance, *, token_kept: str, joined: bool) -> tuple[Expected, list[str]]:
        """A token where it has none that is good, no token where it needs none."""
        node = bootstrap.expected_node(self._kube, one.name, one.address)
        if joined:
            if node.token:
                bootstrap.drop_tokens(self._kube, one.name)
            if token_kept:
                self._drop_parameter(one.id)
            return node, [f"{one.id} has joined as {one.name}"] if token_kept else []
        # One that was used has done what it could. Else the cluster's and the one that the instance reads must be the
        # same: whoever made it may have been stopped between the two, or another has made its own meanwhile.
        if node.token and (node.used_by or token_kept.partition(".")[0] == node.token):
            return node, []
        self._keep(one, bootstrap.mint_token(self._kube, one.name))
        node = bootstrap.expected_node(self._kube, one.name, one.address)
        return node, [f"{one.id} may join as {one.name}, by the token {node.token}"]

    def _parameters(self) -> dict[str, str]:
        """The tokens that lie there, by instance."""
        path = self._parameter("").rstrip("/")
        pages = self._ssm.get_paginator("get_parameters_by_path").paginate(Path=path, WithDecryption=True)
        return {one["Name"].rpartition("/")[2]: one["Value"] for page in pages for one in page["Parameters"]}

    def _keep(self, one: Instance, token: str) -> None:
        """Keeps the token: only a new parameter takes tags, and only an old one is overwritten."""
        name = self._parameter(one.id)
        tags = [
            {"Key": words.TAG_CLUSTER, "Value": self._cluster},
            {"Key": words.TAG_INSTANCE, "Value": one.arn},
        ]
        try:
            self._ssm.put_parameter(Name=name, Value=token, Type="SecureString", Tags=tags)
        except self._ssm.exceptions.ParameterAlreadyExists:
            self._ssm.put_parameter(Name=name, Value=token, Type="SecureString", Overwrite=True)

    def _drop_parameter(self, instance: str) -> None:
        try:
            self._ssm.delete_parameter(Name=self._parameter(instance))
        except self._ssm.exceptions.ParameterNotFound:
            return

    def _parameter(self, instance: str) -> str:
        return words.JOIN_PARAMETER.format(cluster=self._cluster, instance=instance)


def running_instances(ec2: Any, cluster: str) -> list[Instance]:
    """Those with the cluster's tag that belong to a node group; ``ec2`` is a boto3 client."""
    return list(_instances(ec2, cluster))


def _instances(ec2: Any, cluster: str) -> Iterator[Instance]:
    region = ec2.meta.region_name
    partition = ec2.meta.partition
    pages = ec2.get_paginator("describe_instances").paginate(
        Filters=[
            {"Name": f"tag:{words.TAG_CLUSTER}", "Values": [cluster]},
            {"Name": "tag-key", "Values": [words.TAG_GROUP]},
            {"Name": "instance-state-name", "Values": ["running"]},
        ]
    )
    for page in pages:
        for reservation in page["Reservations"]:
            for one in reservation["Instances"]:
                arn = f"arn:{partition}:ec2:{region}:{reservation['OwnerId']}:instance/{one['InstanceId']}"
                yield Instance(one["InstanceId"], one["PrivateDnsName"], one["PrivateIpAddress"], arn)


def _members(kube: Kube) -> Mapping[str, str]:
    """Instance id by the name of each node that is Ready."""
    found = {}
    for node in json.loads(kube.get("/api/v1/nodes"))["items"]:
        ready = any(one["type"] == "Ready" and one["status"] == "True" for one in node["status"].get("conditions", ()))
        if ready:
            found[node["metadata"]["name"]] = node["spec"].get("providerID", "").rpartition("/")[2]
    return found
