"""What a killed engine left outside EC2: found by its name with the cluster's tag, and taken away."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from autoscaler.model import labels as words
from stacks.recovery.orphans import OrphanFinder, remove
from tests.test_stacks.stand_in import StandIn, client, stand_in

LAB, OTHER = {words.TAG_CLUSTER: "lab"}, {words.TAG_CLUSTER: "other"}


@pytest.fixture(scope="module")
def here() -> Iterator[StandIn]:
    """A stand-in for AWS."""
    with stand_in() as made:
        yield made


def listed(tags: dict[str, str], key: str = "Key", value: str = "Value") -> list[dict[str, str]]:
    """As most services take them."""
    return [{key: name, value: text} for name, text in tags.items()]


def log_group(url: str, name: str, tags: dict[str, str]) -> None:
    """A log group."""
    client(url, "logs").create_log_group(logGroupName=name, tags=tags)


def event_rule(url: str, name: str, tags: dict[str, str]) -> None:
    """A rule of EventBridge."""
    client(url, "events").put_rule(Name=name, EventPattern='{"source": ["aws.ec2"]}', Tags=listed(tags))


def queue(url: str, name: str, tags: dict[str, str]) -> None:
    """A queue."""
    client(url, "sqs").create_queue(QueueName=name, tags=tags)


def key(url: str, name: str, tags: dict[str, str]) -> None:
    """A key, which has a description and no name."""
    client(url, "kms").create_key(Description=name, Tags=listed(tags, "TagKey", "TagValue"))


def bucket(url: str, name: str, tags: dict[str, str]) -> None:
    """A bucket."""
    client(url, "s3").create_bucket(Bucket=name)
    client(url, "s3").put_bucket_tagging(Bucket=name, Tagging={"TagSet": listed(tags)})


def parameter(url: str, name: str, tags: dict[str, str]) -> None:
    """A parameter."""
    client(url, "ssm").put_parameter(Name=name, Value="x", Type="String", Tags=listed(tags))


def target_group(url: str, name: str, tags: dict[str, str]) -> None:
    """A target group of a load balancer."""
    vpc = client(url, "ec2").describe_vpcs()["Vpcs"][0]["VpcId"]
    client(url, "elbv2").create_target_group(Name=name, Protocol="TCP", Port=6443, VpcId=vpc, Tags=listed(tags))


def balancer(url: str, name: str, tags: dict[str, str]) -> None:
    """A load balancer."""
    subnet = client(url, "ec2").describe_subnets()["Subnets"][0]["SubnetId"]
    client(url, "elbv2").create_load_balancer(Name=name, Subnets=[subnet], Type="network", Tags=listed(tags))


@pytest.mark.parametrize(
    ("token", "property_", "make"),
    [
        ("aws:cloudwatch/logGroup:LogGroup", "name", log_group),
        ("aws:kms/key:Key", "description", key),
        ("aws:cloudwatch/eventRule:EventRule", "name", event_rule),
        ("aws:sqs/queue:Queue", "name", queue),
        ("aws:s3/bucket:Bucket", "bucket", bucket),
        ("aws:ssm/parameter:Parameter", "name", parameter),
        ("aws:lb/targetGroup:TargetGroup", "name", target_group),
        ("aws:lb/loadBalancer:LoadBalancer", "name", balancer),
    ],
)
def test_ours_goes_and_anothers_of_a_like_name_stays(
    here: StandIn,
    monkeypatch: pytest.MonkeyPatch,
    token: str,
    property_: str,
    make: Callable[[str, str, dict[str, str]], Any],
) -> None:
    """By its whole name, and the cluster's tag; what the state records is no orphan."""
    for name, value in (("ENDPOINT_URL", here.url), ("ACCESS_KEY_ID", "local"), ("SECRET_ACCESS_KEY", "local")):
        monkeypatch.setenv(f"AWS_{name}", value)
    mine, others = f"lab-{make.__name__}".replace("_", "-"), f"lab-{make.__name__}-2".replace("_", "-")
    make(here.url, mine, LAB)
    make(here.url, others, OTHER)
    finder = OrphanFinder(region="us-east-1", cluster="lab", recorded=frozenset())
    assert finder.knows(token, {property_: mine})
    assert finder.find(token, "it", {property_: others}) == []
    [orphan] = finder.find(token, "it", {property_: mine})
    recorded = OrphanFinder(
        region="us-east-1", cluster="lab", recorded=frozenset({(token, orphan.what.split(" ", 1)[1])})
    )
    assert recorded.find(token, "it", {property_: mine}) == []
    remove(orphan)
    assert finder.find(token, "it", {property_: mine}) == []


def test_a_bucket_that_holds_something_stays(here: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it is no leftover of a creation that was cut off: S3 refuses, and that is told."""
    for name, value in (("ENDPOINT_URL", here.url), ("ACCESS_KEY_ID", "local"), ("SECRET_ACCESS_KEY", "local")):
        monkeypatch.setenv(f"AWS_{name}", value)
    bucket(here.url, "lab-full", LAB)
    s3 = client(here.url, "s3")
    s3.put_object(Bucket="lab-full", Key="x", Body=b"x")
    finder = OrphanFinder(region="us-east-1", cluster="lab", recorded=frozenset())
    [orphan] = finder.find("aws:s3/bucket:Bucket", "it", {"bucket": "lab-full"})
    with pytest.raises(s3.exceptions.ClientError, match="BucketNotEmpty"):
        remove(orphan)
