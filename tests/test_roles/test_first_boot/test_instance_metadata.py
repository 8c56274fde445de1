"""What an instance asks AWS by itself: signed as AWS's own library signs, and asked as IMDSv2 wants it."""

from __future__ import annotations

import hashlib
import io
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.model import labels as words
from autoscaler.model.errors import BadInput
from roles.first_boot.boot import settings_of
from roles.first_boot.instance_metadata import Identity, Keys, gpus_on_the_bus, signed
from roles.inventory.instance_settings import NOBODY
from stacks.boot import fetch_bundle

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


def test_the_bundle_is_asked_for_as_the_sdk_would(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a script of its own, since the bundle holds all other code."""
    answers = {
        "dynamic/instance-identity/document": json.dumps({"region": "eu-central-1"}),
        "meta-data/iam/security-credentials/": "lab-node\n",
        "meta-data/iam/security-credentials/lab-node": json.dumps(
            {"AccessKeyId": KEYS.access, "SecretAccessKey": KEYS.secret, "Token": KEYS.session}
        ),
    }
    monkeypatch.setattr(fetch_bundle, "metadata", answers.__getitem__)
    url = "https://lab-bundle.s3.eu-central-1.amazonaws.com/0abc.tar.gz"
    mine = fetch_bundle.signed(url, NOW)
    request = AWSRequest("GET", url)
    theirs = S3SigV4Auth(Credentials(KEYS.access, KEYS.secret, KEYS.session), "s3", "eu-central-1")
    request.context["timestamp"] = mine["x-amz-date"]
    for name in ("X-Amz-Date", "X-Amz-Security-Token", "X-Amz-Content-SHA256"):
        request.headers[name] = mine[name.lower()]
    string = theirs.string_to_sign(request, theirs.canonical_request(request))
    assert mine["authorization"].endswith(f"Signature={theirs.signature(string, request)}")


@pytest.mark.parametrize(("content", "status"), [(b"the roles", 0), (b"something else", 1)])
def test_a_bundle_is_believed_by_its_digest_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, status: int
) -> None:
    """Anything else is asked for again, until patience is over, and never unpacked."""

    class Answers:
        """A server."""

        def open(self, *_: object, **__: object) -> io.BytesIO:
            return io.BytesIO(content)

    monkeypatch.setattr(fetch_bundle, "signed", lambda *_: {})
    monkeypatch.setattr(fetch_bundle, "_NOBODYS_PROXY", Answers())
    monkeypatch.setattr(fetch_bundle, "PATIENCE", 0.0)
    file = tmp_path / "bundle"
    assert fetch_bundle.main("https://b/x", hashlib.sha256(b"the roles").hexdigest(), str(file)) == status
    assert file.exists() == (status == 0)


def test_gpus_are_seen_before_there_is_a_driver(tmp_path: Path) -> None:
    """By vendor and class on the bus: neither their audio devices nor NVSwitches count."""
    for name, vendor, kind in (
        ("00:1e.0", "0x10de", "0x030200"),
        ("00:1f.0", "0x10de", "0x030200"),
        ("00:1f.1", "0x10de", "0x040300"),
        ("00:20.0", "0x10de", "0x068000"),
        ("00:03.0", "0x1d0f", "0x030000"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "vendor").write_text(f"{vendor}\n", encoding="ascii")
        (tmp_path / name / "class").write_text(f"{kind}\n", encoding="ascii")
    assert gpus_on_the_bus(tmp_path) == 2
    assert gpus_on_the_bus(tmp_path / "none") == 0


def test_an_instance_with_gpus_is_a_machine_with_gpus() -> None:
    """The GPU roles run by product and count, and its node says what software it has."""
    settings = {"gpu": {}, "kubelet": {"server": "https://a", "authority": NOBODY}}
    who = replace(WHO, type="p4d.24xlarge")
    machine = settings_of(who, node={}, settings=settings, gpus=8)
    assert (machine.gpu_product, machine.gpu_count) == ("NVIDIA-A100-SXM4-40GB", 8)
    assert machine.labels[words.GPU_PRESENT] == "true"
    assert settings_of(who, node={}, settings=settings).gpu_product == ""


def test_keys_are_not_shown() -> None:
    """Nor is the session."""
    assert "wJalr" not in repr(KEYS)
    assert "token" not in repr(KEYS)


def test_an_instance_is_its_group_and_itself() -> None:
    """Labels and taints of user data, name, zone and address of the metadata; it joins by itself."""
    node = {"labels": {"spillway.dev/group": "gpu"}, "taints": [{"key": "nvidia.com/gpu"}]}
    kubelet = {"server": "https://10.0.0.1:6443", "authority": NOBODY}
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
