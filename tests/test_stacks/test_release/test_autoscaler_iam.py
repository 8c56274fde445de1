"""What the autoscaler may do on AWS, held against the calls that its door to AWS makes."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import autoscaler.cloud.autoscaling_groups
import autoscaler.cloud.group_reader
import autoscaler.cloud.group_writes
import autoscaler.cloud.interruption_queue
import autoscaler.cloud.prices
import autoscaler.cloud.quotas
import autoscaler.cloud.reservations
from autoscaler.model import labels as words
from stacks.aws.trust import trust_of_service_account
from stacks.release.autoscaler_iam import LISTENS, OF_LAUNCHES, READS, WRITES, autoscaler_rights


def calls() -> set[str]:
    """Every action that the groups and their prices ask a client for, as IAM spells it."""
    found: set[str] = set()
    cloud = autoscaler.cloud
    modules = (cloud.autoscaling_groups, cloud.group_reader, cloud.group_writes, cloud.prices)
    trees = [ast.parse(Path(module.__file__).read_text(encoding="utf-8")) for module in modules]
    for node in (node for tree in trees for node in ast.walk(tree)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        service = ast.unparse(node.func.value).rpartition("_clients.")[2].removesuffix("()")
        if service not in ("autoscaling", "ec2", "pricing"):
            continue
        method = node.func.attr
        if method == "get_paginator":
            [argument] = node.args
            assert isinstance(argument, ast.Constant)
            method = str(argument.value)
        found.add(f"{service}:{''.join(word.capitalize() for word in method.split('_'))}")
    return found


def test_it_may_make_each_call_that_it_makes_and_no_other() -> None:
    """A new call in the door needs a line in the policy; a call that goes takes its line with it."""
    assert calls() == {*READS, *WRITES} - {"servicequotas:GetServiceQuota", "ec2:DescribeCapacityReservations"}
    queue = Path(autoscaler.cloud.interruption_queue.__file__).read_text(encoding="utf-8")
    assert set(re.findall(r"_sqs\.(\w+)\(", queue)) == {"get_queue_url", "receive_message", "delete_message_batch"}
    reservations = Path(autoscaler.cloud.reservations.__file__).read_text(encoding="utf-8")
    assert set(re.findall(r"_ec2\.(\w+)\(", reservations)) == {"describe_capacity_reservations"}
    assert "client.get_service_quota(" in Path(autoscaler.cloud.quotas.__file__).read_text(encoding="utf-8")


def test_only_groups_of_its_own_cluster_can_be_changed() -> None:
    """By the name that they have, and by the tag that only the stack writes."""
    look, resize, launch, listen = autoscaler_rights(cluster="lab", region="us-east-1")["Statement"]
    assert look["Action"] == list(READS)
    assert not set(look["Action"]) & set(WRITES)
    assert all(action.split(":")[1].startswith(("Describe", "Get")) for action in look["Action"])
    assert resize["Action"] == list(WRITES)
    assert resize["Resource"] == "arn:*:autoscaling:us-east-1:*:autoScalingGroup:*:autoScalingGroupName/lab-*"
    assert launch["Action"] == list(OF_LAUNCHES)
    assert "ec2:RunInstances" not in launch["Action"], "with it a fleet of any template could be launched"
    assert launch["Condition"] == {"StringEquals": {"aws:RequestedRegion": "us-east-1"}}
    assert (listen["Action"], listen["Resource"]) == (list(LISTENS), "arn:*:sqs:us-east-1:*:lab-interruptions")
    assert resize["Condition"] == {"StringEquals": {f"autoscaling:ResourceTag/{words.TAG_CLUSTER}": "lab"}}


def test_only_its_own_service_account_takes_its_role() -> None:
    """Not any pod of the cluster."""
    arn = "arn:aws:iam::123456789012:oidc-provider/issuer/id/1"
    [statement] = trust_of_service_account(
        provider_arn=arn, issuer="https://issuer/id/1", namespace="spillway", account="spillway-autoscaler"
    )["Statement"]
    assert statement["Principal"] == {"Federated": arn}
    assert statement["Condition"] == {
        "StringEquals": {
            "issuer/id/1:aud": "sts.amazonaws.com",
            "issuer/id/1:sub": "system:serviceaccount:spillway:spillway-autoscaler",
        }
    }
