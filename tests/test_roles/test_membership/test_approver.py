"""The approver's rounds: tokens at Parameter Store's stand-in, instances at EC2's, requests at a scripted API server.

The real API server, with the approver's own account: ``tests/live/test_approver.py``.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from autoscaler.kube.client import Kube
from autoscaler.model import labels as words
from autoscaler.model.errors import Unavailable
from roles.membership.approver import Approver, Round
from roles.membership.csr_policy import CLIENT
from tests.test_autoscaler.fake_api import Answer, Asked, FakeApi, fake_api
from tests.test_roles.test_membership.test_tokens import LONG_AGO, Server, entry
from tests.test_stacks.stand_in import IMAGE, StandIn, client, eventually, stand_in


class Cluster(Server):
    """Tokens as :class:`Server` has them; nodes, requests, and which of those were approved."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes: list[dict[str, Any]] = []
        self.requests: list[dict[str, Any]] = []
        self.approved: list[str] = []
        self.refuses_tokens = False
        self.refuses_next = False

    def __call__(self, asked: Asked) -> Answer:
        """One request."""
        if asked.path.endswith("/approval"):
            name = asked.path.split("/")[-2]
            self.approved.append(name)
            self.requests = [asked.body if one["metadata"]["name"] == name else one for one in self.requests]
            return Answer({})
        if (self.refuses_tokens or self.refuses_next) and "/secrets" in asked.path:
            self.refuses_next = False
            return Answer({"message": "no rights"}, status=403)
        if asked.path.endswith("/nodes"):
            return Answer({"items": self.nodes})
        if asked.path.endswith("/certificatesigningrequests"):
            return Answer({"items": self.requests})
        return super().__call__(asked)

    def token(self, node: str) -> str:
        """The one that is known for it."""
        return next(key for key, text in (self.data or {}).items() if json.loads(text).get("node") == node)

    def asks(self, node: str, *, by: str, name: str = "csr-1") -> None:
        """A kubelet's first request, by this token."""
        subject = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"),
                x509.NameAttribute(NameOID.COMMON_NAME, f"system:node:{node}"),
            ]
        )
        key = ec.generate_private_key(ec.SECP256R1())
        csr = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
        self.requests.append(
            {
                "metadata": {"name": name, "uid": name},
                "spec": {
                    "request": base64.b64encode(csr.public_bytes(serialization.Encoding.PEM)).decode(),
                    "signerName": CLIENT,
                    "username": f"system:bootstrap:{by}",
                    "groups": ["system:bootstrappers", words.BOOTSTRAPPERS],
                    "usages": ["digital signature", "client auth"],
                },
            }
        )

    def joins(self, name: str, instance: str, *, ready: str = "True") -> None:
        """A node of that name and instance."""
        self.nodes.append(
            {
                "metadata": {"name": name},
                "spec": {"providerID": f"aws:///us-east-1a/{instance}"},
                "status": {"conditions": [{"type": "Ready", "status": ready}]},
            }
        )


@dataclass
class Lab:
    """All parties."""

    name: str
    aws: StandIn
    cluster: Cluster
    approver: Approver
    ssm: Any

    def launch(self, **tags: str) -> tuple[str, str]:
        """An instance of the cluster's, unless the tags say otherwise: its id, and its private DNS name."""
        wanted = {words.TAG_CLUSTER: self.name, words.TAG_GROUP: "gpu"} | tags
        made = self.aws.ec2.run_instances(
            MinCount=1,
            MaxCount=1,
            ImageId=IMAGE,
            InstanceType="m6i.large",
            TagSpecifications=[
                {"ResourceType": "instance", "Tags": [{"Key": k, "Value": v} for k, v in wanted.items() if v]}
            ],
        )
        one = made["Instances"][0]
        self.aws.pass_time(30)
        eventually(lambda: self.aws.instance(one["InstanceId"])["State"]["Name"] == "running")
        return one["InstanceId"], one["PrivateDnsName"]

    def parameters(self) -> dict[str, str]:
        """What lies there for instances."""
        found = self.ssm.get_parameters_by_path(Path=f"/spillway/{self.name}", Recursive=True, WithDecryption=True)
        return {one["Name"].rpartition("/")[2]: one["Value"] for one in found["Parameters"]}

    def round(self) -> Round:
        """One."""
        return self.approver.round()


@pytest.fixture
def api() -> Iterator[FakeApi]:
    """A server of scripted answers."""
    with fake_api() as made:
        yield made


@pytest.fixture(scope="module")
def aws() -> Iterator[StandIn]:
    """One for all, in which each test has a cluster of its own."""
    with stand_in() as made:
        yield made


@pytest.fixture
def lab(aws: StandIn, api: FakeApi, tmp_path: Path) -> Iterator[Lab]:
    """Empty."""
    name, ssm = f"lab-{next(aws.numbers)}", client(aws.url, "ssm")
    cluster = Cluster()
    api.answer = cluster
    kube = Kube.connect(api.kubeconfig(tmp_path))
    yield Lab(name, aws, cluster, Approver(kube, ec2=aws.ec2, ssm=ssm, cluster=name), ssm)
    aws.ask("DELETE", "faults")


def test_an_instance_gets_one_token_and_its_first_certificate_and_then_none(lab: Lab) -> None:
    """The token lies where the instance alone may read it, is good for one request, and goes when it has joined."""
    instance, name = lab.launch()
    assert list(lab.round().told) == [f"{instance} may join as {name}, by the token {lab.cluster.token(name)}"]
    token = lab.parameters()[instance]
    assert token.partition(".")[0] == lab.cluster.token(name)
    tags = lab.ssm.list_tags_for_resource(
        ResourceType="Parameter", ResourceId=words.JOIN_PARAMETER.format(cluster=lab.name, instance=instance)
    )
    told = {one["Key"]: one["Value"] for one in tags["TagList"]}
    arn = f"arn:aws:ec2:us-east-1:123456789012:instance/{instance}"
    assert told == {words.TAG_CLUSTER: lab.name, words.TAG_INSTANCE: arn}
    assert list(lab.round().told) == []
    assert lab.parameters() == {instance: token}

    lab.cluster.asks(name, by=token.partition(".")[0])
    assert [verdict.refused_because for verdict in lab.round().verdicts] == [""]
    assert lab.cluster.approved == ["csr-1"]
    assert list(lab.round().told) == []  # the token was used: it gets no second one
    lab.cluster.joins(name, instance)
    assert list(lab.round().told) == [f"{instance} has joined as {name}"]
    assert (lab.parameters(), lab.cluster.secrets) == ({}, set())


def test_a_request_by_another_nodes_token_is_refused_in_words(lab: Lab) -> None:
    """And one for a node that is no instance of the cluster is left to others."""
    (_, one), (_, other) = lab.launch(), lab.launch()
    lab.round()
    lab.cluster.asks(other, by=lab.cluster.token(one))
    lab.cluster.asks("somebodys", by=lab.cluster.token(one), name="csr-2")
    (verdict,) = lab.round().verdicts
    assert (verdict.request, verdict.node) == ("csr-1", other)
    assert verdict.refused_because
    assert lab.cluster.approved == []


def test_a_token_lets_in_once_also_where_two_requests_wait(lab: Lab) -> None:
    """The second one is told that the token was used."""
    _, name = lab.launch()
    lab.round()
    key = lab.cluster.token(name)
    for request in ("csr-1", "csr-2"):
        lab.cluster.asks(name, by=key, name=request)
    first, second = lab.round().verdicts
    assert first.refused_because == ""
    assert second.refused_because == f"its token {key} has ended, or was used, in this moment"
    assert lab.cluster.approved == ["csr-1"]


@pytest.mark.parametrize("tags", [{words.TAG_CLUSTER: "another"}, {words.TAG_GROUP: ""}])
def test_an_instance_of_another_cluster_or_of_no_group_gets_nothing(lab: Lab, tags: dict[str, str]) -> None:
    """Its tags decide, as EC2 tells them."""
    lab.launch(**tags)
    assert list(lab.round().told) == []
    assert (lab.parameters(), lab.cluster.data) == ({}, None)


def test_a_name_that_another_instance_joined_under_is_no_membership(lab: Lab) -> None:
    """The node that bears it is of another instance, or is not Ready: this one still needs its token."""
    instance, name = lab.launch()
    lab.cluster.joins(name, "i-another")
    assert list(lab.round().told) == [f"{instance} may join as {name}, by the token {lab.cluster.token(name)}"]
    lab.cluster.nodes.clear()
    lab.cluster.joins(name, instance, ready="False")
    assert list(lab.round().told) == []
    assert list(lab.parameters()) == [instance]


@pytest.mark.parametrize("lost", ["the parameter", "the ledger", "its time"])
def test_a_token_that_is_no_good_any_more_is_made_again(lab: Lab, lost: str) -> None:
    """The cluster's and the one that the instance reads must be the same, and in time."""
    instance, name = lab.launch()
    lab.round()
    before = lab.parameters()[instance]
    path = words.JOIN_PARAMETER.format(cluster=lab.name, instance=instance)
    key = lab.cluster.token(name)
    if lost == "the parameter":
        lab.ssm.put_parameter(Name=path, Value="another.secret", Type="SecureString", Overwrite=True)
    else:
        assert lab.cluster.data is not None
        lab.cluster.data = {key: json.dumps(entry(name, LONG_AGO))} if lost == "its time" else {"x": "{}"}
    assert len(lab.round().told) == 1
    after = lab.parameters()[instance]
    assert after not in (before, "another.secret")
    assert after.partition(".")[0] == lab.cluster.token(name)
    assert f"bootstrap-token-{lab.cluster.token(name)}" in lab.cluster.secrets


def test_the_token_of_an_instance_that_is_gone_is_taken_away(lab: Lab) -> None:
    """Nothing else would: it lies there under the instance's id."""
    instance, _ = lab.launch()
    lab.round()
    lab.aws.ec2.terminate_instances(InstanceIds=[instance])
    assert list(lab.round().told) == [f"{instance} is not running any more: its token is gone"]
    assert lab.parameters() == {}


def test_an_instance_that_cannot_be_helped_is_told_and_gets_nothing_half(lab: Lab) -> None:
    """Its token could not be made: no parameter tells of one, and the next round tries again."""
    instance, _ = lab.launch()
    lab.cluster.refuses_tokens = True
    found = lab.round()
    assert "no rights" in found.problems[instance]
    assert (list(found.told), lab.parameters()) == ([], {})
    lab.cluster.refuses_tokens = False
    assert list(lab.round().problems) == []
    assert list(lab.parameters()) == [instance]


def test_an_instance_that_cannot_be_helped_holds_up_no_other(lab: Lab) -> None:
    """The one that is looked at after it gets its token in the same round."""
    both = {lab.launch()[0], lab.launch()[0]}
    lab.cluster.refuses_next = True
    found = lab.round()
    (refused,) = found.problems
    assert set(lab.parameters()) == both - {refused}
    assert [line.split()[0] for line in found.told] == [*both - {refused}]
    lab.round()
    assert set(lab.parameters()) == both


def test_without_aws_nothing_is_decided(lab: Lab) -> None:
    """In words, to be tried again."""
    lab.launch()
    lab.aws.fail("{kind: gone}")
    with pytest.raises(Unavailable, match="AWS"):
        lab.round()
    assert lab.cluster.data is None
