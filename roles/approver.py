"""Lets EC2 instances in: a token for each one that is running and no member yet, and its certificates.

One round after the other, beside the autoscaler: who is let in is decided by what EC2 says of the instances with the
cluster's tag, never by what a machine says of itself. The token lies in Parameter Store under the instance's own id,
where the role of the instance may read it; it ends with the join, or after ten minutes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from autoscaler import labels as words
from autoscaler.kube import Kube
from roles import join

PARAMETER = "/spillway/{cluster}/join/{instance}"


@dataclass(frozen=True, slots=True)
class Instance:
    """A running instance, as EC2 knows it."""

    id: str
    name: str
    """Private DNS name."""
    address: str


def running_instances(ec2: Any, cluster: str) -> list[Instance]:
    """Those with the cluster's tag; ``ec2`` is a boto3 client."""
    pages = ec2.get_paginator("describe_instances").paginate(
        Filters=[
            {"Name": f"tag:{words.TAG_CLUSTER}", "Values": [cluster]},
            {"Name": "instance-state-name", "Values": ["running"]},
        ]
    )
    return [
        Instance(one["InstanceId"], one["PrivateDnsName"], one["PrivateIpAddress"])
        for page in pages
        for reservation in page["Reservations"]
        for one in reservation["Instances"]
    ]


def let_in(kube: Kube, ssm: Any, cluster: str, instances: Iterable[Instance]) -> list[join.Verdict]:
    """One round: tokens for those that need one, certificates for those that ask, and no token for members.

    ``ssm`` is a boto3 client.
    """
    members = _members(kube)
    waiting = [one for one in instances if members.get(one.name, "") != one.id]
    expected = []
    for one in instances:
        node = join.expected_node(kube, one.name, one.address)
        if one in waiting and not node.token:
            _give_token(kube, ssm, cluster, one)
            node = join.expected_node(kube, one.name, one.address)
        expected.append(node)
    verdicts = join.approve_pending(kube, expected)
    for node, one in zip(expected, instances, strict=True):
        if one not in waiting and node.token:
            join.drop_tokens(kube, one.name)
            _drop_parameter(ssm, PARAMETER.format(cluster=cluster, instance=one.id))
    return verdicts


def _give_token(kube: Kube, ssm: Any, cluster: str, instance: Instance) -> None:
    ssm.put_parameter(
        Name=PARAMETER.format(cluster=cluster, instance=instance.id),
        Value=join.mint_token(kube, instance.name),
        Type="SecureString",
        Overwrite=True,
    )


def _drop_parameter(ssm: Any, name: str) -> None:
    try:
        ssm.delete_parameter(Name=name)
    except ssm.exceptions.ParameterNotFound:
        return


def _members(kube: Kube) -> Mapping[str, str]:
    """Instance id by the name of each node that is Ready."""
    found = {}
    for node in json.loads(kube.get("/api/v1/nodes"))["items"]:
        ready = any(one["type"] == "Ready" and one["status"] == "True" for one in node["status"].get("conditions", ()))
        if ready:
            found[node["metadata"]["name"]] = node["spec"].get("providerID", "").rpartition("/")[2]
    return found
