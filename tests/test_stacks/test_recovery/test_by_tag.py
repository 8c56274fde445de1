"""What is taken away is waited for where the next deletion needs it gone, and no longer than it may take."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from botocore.stub import Stubber

from autoscaler.model.errors import Unavailable
from stacks.recovery import by_name
from stacks.recovery.by_tag import _LOOKS, TagFinder

KEYS = {"aws_access_key_id": "k", "aws_secret_access_key": "s", "region_name": "us-east-1"}
SLOW = {
    "nat-": ("aws:ec2/natGateway:NatGateway", "delete_nat_gateway", "deleted"),
    "vpce-": ("aws:ec2/vpcEndpoint:VpcEndpoint", "delete_vpc_endpoints", ""),
    "i-": ("aws:ec2/instance:Instance", "terminate_instances", "terminated"),
    "vpn-": ("aws:ec2/vpnConnection:VpnConnection", "delete_vpn_connection", "deleted"),
    "tgw-attach-": (
        "aws:ec2transitgateway/vpcAttachment:VpcAttachment",
        "delete_transit_gateway_vpc_attachment",
        "deleted",
    ),
}


class Time:
    """Only sleeping moves it."""

    def __init__(self) -> None:
        self.now, self.slept = 100.0, list[float]()

    def monotonic(self) -> float:
        """Seconds."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let it pass."""
        self.now += seconds
        self.slept.append(seconds)


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    """In the place of the machine's."""
    made = Time()
    monkeypatch.setattr(by_name, "time", made)
    return made


class Ec2:
    """Stands for EC2's client: what is deleted is there for a while longer."""

    def __init__(self, prefix: str, *, looks: int, ends: str, refuses: str = "") -> None:
        self.calls: list[str] = []
        self._prefix, self._left, self._ends, self._refuses = prefix, looks, ends, refuses

    def __getattr__(self, call: str) -> Any:
        """Any call."""
        return lambda **asked: self._answer(call, asked)

    def get_paginator(self, _call: str) -> Any:
        """Its tags are there as long as it is; something of another type has the same."""
        page = {"Tags": [{"ResourceId": f"{self._prefix}1"}, {"ResourceId": "rtb-1"}]}
        return SimpleNamespace(paginate=lambda **_: [page])

    def _answer(self, call: str, asked: dict[str, Any]) -> dict[str, Any]:
        self.calls.append(call)
        looked, field, ids = _LOOKS[self._prefix]
        if call != looked:
            refused = [{"Error": {"Message": self._refuses}}] if self._refuses else []
            return {"Unsuccessful": refused}
        assert asked == {ids: [f"{self._prefix}1"]}
        is_being_deleted = len(self.calls) > 1
        self._left -= is_being_deleted
        state = "deleting" if is_being_deleted and self._left >= 0 else self._ends if is_being_deleted else "available"
        if not state:
            raise ClientError({"Error": {"Code": "InvalidVpcEndpointId.NotFound", "Message": "gone"}}, call)
        told = {"State": {"Name": state}} if self._prefix == "i-" else {"State": state.capitalize()}
        return {field: [{"Instances": [told]} if self._prefix == "i-" else told]}


@pytest.mark.parametrize("prefix", SLOW)
def test_what_goes_slowly_is_waited_for(prefix: str, time: Time) -> None:
    """Its addresses, volume or interface are held till then, and the next deletion would be refused."""
    token, deletes, ends = SLOW[prefix]
    ec2 = Ec2(prefix, looks=2, ends=ends)
    finder = TagFinder(ec2, cluster="lab")
    ((key, remove),) = finder.finders[token]({"tags": {"Name": "it"}})
    remove()
    assert key == f"{prefix}1"
    looked = _LOOKS[prefix][0]
    assert ec2.calls == [looked, deletes, looked, looked, looked]
    assert time.slept == [1, 1]


def test_what_never_goes_is_not_waited_for_for_ever(time: Time) -> None:
    """Five minutes; what uses it next says what is wrong."""
    ec2 = Ec2("nat-", looks=10**6, ends="deleted")
    ((_, remove),) = TagFinder(ec2, cluster="lab").finders["aws:ec2/natGateway:NatGateway"]({"tags": {"Name": "it"}})
    remove()
    assert time.now == 400


@pytest.mark.usefixtures("time")
def test_an_endpoint_that_aws_keeps_is_told() -> None:
    """It answers that all is well, and lists what is not."""
    ec2 = Ec2("vpce-", looks=0, ends="", refuses="it is in use")
    ((_, remove),) = TagFinder(ec2, cluster="lab").finders["aws:ec2/vpcEndpoint:VpcEndpoint"]({"tags": {"Name": "it"}})
    with pytest.raises(Unavailable, match="AWS does not delete vpce-1: it is in use"):
        remove()


@pytest.mark.parametrize("attached", [[], ["vpc-1"]])
def test_a_gateway_is_taken_off_its_network_and_deleted(attached: list[str]) -> None:
    """Also where what made it was killed before it was attached."""
    key = "igw-0123456789abcdef0"
    ec2 = boto3.client("ec2", **KEYS)
    finder = TagFinder(ec2, cluster="c")
    found = {"InternetGatewayId": key, "Attachments": [{"VpcId": vpc, "State": "available"} for vpc in attached]}
    with Stubber(ec2) as stub:
        stub.add_response("describe_internet_gateways", {"InternetGateways": [found]}, {"InternetGatewayIds": [key]})
        for vpc in attached:
            stub.add_response("detach_internet_gateway", {}, {"InternetGatewayId": key, "VpcId": vpc})
        stub.add_response("delete_internet_gateway", {}, {"InternetGatewayId": key})
        finder._kinds["aws:ec2/internetGateway:InternetGateway"][1](key)
        stub.assert_no_pending_responses()
