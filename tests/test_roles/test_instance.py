"""What an instance asks AWS by itself: signed as AWS's own library signs, and asked as IMDSv2 wants it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.failures import BadInput
from roles.boot import settings_of
from roles.instance import Identity, Keys, signed

KEYS = Keys(access="AKIDEXAMPLE", secret="wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", session="token/+=")  # noqa: S106
NOW = datetime(2026, 7, 20, 12, 0, tzinfo=UTC)
WHO = Identity(id="i-1", name="ip-10-0-0-7.ec2.internal", address="10.0.0.7", zone="us-east-1a", region="us-east-1")


@given(st.binary(max_size=60), st.sampled_from(["us-east-1", "eu-central-1"]))
def test_signatures_are_those_of_the_sdk(body: bytes, region: str) -> None:
    """Header by header, for any body."""
    url = f"https://ssm.{region}.amazonaws.com"
    mine = signed(url, body, target="AmazonSSM.GetParameter", region=region, service="ssm", keys=KEYS, now=NOW)
    request = AWSRequest("POST", f"{url}/", data=body)
    for name in ("content-type", "x-amz-target"):
        request.headers[name] = mine[name]
    theirs = SigV4Auth(Credentials(KEYS.access, KEYS.secret, KEYS.session), "ssm", region)
    request.context["timestamp"] = mine["x-amz-date"]
    request.headers["X-Amz-Date"] = mine["x-amz-date"]
    request.headers["X-Amz-Security-Token"] = KEYS.session
    string = theirs.string_to_sign(request, theirs.canonical_request(request))
    assert mine["authorization"].endswith(f"Signature={theirs.signature(string, request)}")


def test_keys_are_not_shown() -> None:
    """Nor is the session."""
    assert "wJalr" not in repr(KEYS)
    assert "token" not in repr(KEYS)


def test_an_instance_is_its_group_and_itself() -> None:
    """Labels and taints of user data, name, zone and address of the metadata; it joins by itself."""
    node = {"labels": {"spillway.dev/group": "gpu"}, "taints": [{"key": "nvidia.com/gpu"}]}
    kubelet = {"server": "https://10.0.0.1:6443", "authority": "-----BEGIN CERTIFICATE-----\nx"}
    machine = settings_of(WHO, node=node, settings={"kubelet": kubelet})
    assert (machine.name, machine.address) == (WHO.name, WHO.address)
    assert machine.provider_id == "aws:///us-east-1a/i-1"
    assert machine.labels == {"spillway.dev/group": "gpu", "topology.kubernetes.io/zone": "us-east-1a"}
    assert machine.taints[0].effect == "NoSchedule"
    assert machine.kubelet
    assert machine.kubelet.join == "machine"


def test_a_mistake_in_what_it_was_told_names_the_file() -> None:
    """It stands in the boot log of a machine that nobody can log into."""
    with pytest.raises(BadInput, match=r"/etc/spillway/boot.yaml: settings: kernel.swop is not a key here"):
        settings_of(WHO, node={}, settings={"kernel": {"swop": "off"}})
