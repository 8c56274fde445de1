"""The approver on a real API server with the stand-in for AWS: who is let in, who is not, and what it may do there."""

from __future__ import annotations

import base64
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from autoscaler.config.release_manifests import RBAC as AUTOSCALER_RBAC
from autoscaler.kube.client import Kube, Refused
from autoscaler.model import labels as words
from autoscaler.model.errors import Unavailable
from roles.membership.approver import Approver, Round
from roles.membership.csr_policy import CLIENT, SERVING
from roles.membership.tokens import LEDGER
from stacks.local.ground.control_plane import apply_manifests
from stacks.local.kubeapi.client import KubeHttp
from stacks.release.approver_manifests import RBAC
from tests.live.hybrid import AN_IMAGE, Aws, stand_in_aws, until
from tests.live.test_release import Audited, audited, granted, may, resources

pytestmark = pytest.mark.live

__all__ = ["audited"]
ACCOUNT = f"system:serviceaccount:{words.NAMESPACE}:{words.APPROVER}"
_REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aws]:
    """Of this module's own."""
    with stand_in_aws(tmp_path_factory.mktemp("aws"), boot_delay="0s") as made:
        yield made


@pytest.fixture(scope="module")
def account(audited: Audited, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kubeconfig of the approver's ServiceAccount."""
    for file in (AUTOSCALER_RBAC, RBAC):  # the namespace comes with the autoscaler
        apply_manifests(audited.kube, file.read_text(encoding="utf-8"))
    return audited.as_the_account(tmp_path_factory.mktemp("account") / "kubeconfig", account=words.APPROVER)


def approver_of(account: Path, aws: Aws) -> Approver:
    """As its pods run it."""
    return Approver(Kube.connect(account), ec2=aws.client("ec2"), ssm=aws.client("ssm"), cluster="lab")


def launch(aws: Aws) -> dict[str, Any]:
    """A running instance of a group of the cluster."""
    ec2 = aws.client("ec2")
    tags = [{"Key": words.TAG_CLUSTER, "Value": "lab"}, {"Key": words.TAG_GROUP, "Value": "gpu"}]
    started = ec2.run_instances(
        ImageId=AN_IMAGE,
        MinCount=1,
        MaxCount=1,
        InstanceType="g5.xlarge",
        TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
    )["Instances"][0]
    by = {"InstanceIds": [started["InstanceId"]]}
    state = lambda: ec2.describe_instances(**by)["Reservations"][0]["Instances"][0]  # noqa: E731
    until(lambda: state()["State"]["Name"] == "running")
    return dict(state())


def token_for(aws: Aws, instance: dict[str, Any]) -> str:
    """What the instance reads; empty where there is none."""
    ssm = aws.client("ssm")
    name = words.JOIN_PARAMETER.format(cluster="lab", instance=instance["InstanceId"])
    try:
        return str(ssm.get_parameter(Name=name, WithDecryption=True)["Parameter"]["Value"])
    except ssm.exceptions.ParameterNotFound:
        return ""


class Kubelet:
    """What a kubelet does at the API server, without one."""

    def __init__(self, audited: Audited, instance: dict[str, Any]) -> None:
        self._audited, self._instance = audited, instance
        self.name: str = instance["PrivateDnsName"]
        self._key = ec.generate_private_key(ec.SECP256R1())

    def ask(self, request: str, *, signer: str, by: str | Path, name: str = "") -> int:
        """For a certificate of a node; ``by``: a token, or the file of a client's certificate. Gives HTTP's status."""
        subject = [
            (NameOID.ORGANIZATION_NAME, "system:nodes"),
            (NameOID.COMMON_NAME, f"system:node:{name or self.name}"),
        ]
        builder = x509.CertificateSigningRequestBuilder(x509.Name([x509.NameAttribute(*one) for one in subject]))
        if signer == SERVING:
            names = x509.SubjectAlternativeName([x509.DNSName(self.name)])
            builder = builder.add_extension(names, critical=False)
        csr = builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        usage = "server auth" if signer == SERVING else "client auth"
        body = {
            "apiVersion": "certificates.k8s.io/v1",
            "kind": "CertificateSigningRequest",
            "metadata": {"name": request},
            "spec": {
                "request": base64.b64encode(csr).decode(),
                "signerName": signer,
                "usages": ["digital signature", usage],
            },
        }
        headers = {"Authorization": f"Bearer {by}"} if isinstance(by, str) else {}
        cert = {} if isinstance(by, str) else {"cert_file": str(by), "key_file": str(by)}
        authority = self._audited.directory / "certificates" / "ca.crt"
        with urllib3.PoolManager(ca_certs=str(authority), **cert) as pool:  # type: ignore[arg-type]
            return pool.request("POST", f"{self._audited.url}{_REQUESTS}", json=body, headers=headers).status

    def signed(self, request: str, folder: Path) -> Path:
        """The certificate that the controller manager signed, with the key, in one file."""

        def issued() -> str:
            return str(self._audited.kube.get(f"{_REQUESTS}/{request}").get("status", {}).get("certificate", ""))

        certificate = base64.b64decode(until(issued))
        plain = serialization.NoEncryption()
        file = folder / f"{request}.pem"
        pem = self._key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
        file.write_bytes(certificate + pem)
        return file

    def register(self) -> None:
        """Its node, which is Ready."""
        place, own = self._instance["Placement"]["AvailabilityZone"], self._instance["InstanceId"]
        node = {"metadata": {"name": self.name}, "spec": {"providerID": f"aws:///{place}/{own}"}}
        self._audited.kube.send("POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", **node})
        ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        merge = "application/merge-patch+json"
        self._audited.kube.send("PATCH", f"/api/v1/nodes/{self.name}/status", ready, content=merge)


def approved(done: Round) -> dict[str, str]:
    """By request, why it was not; empty: it was."""
    return {one.request: one.refused_because for one in done.verdicts}


def test_an_instance_joins_and_another_gets_no_name_but_its_own(
    audited: Audited, account: Path, aws: Aws, tmp_path: Path
) -> None:
    """The whole way at the API, once as who it is, once as an impostor; and each verb of the account is used."""
    approver = approver_of(account, aws)
    honest, thief = Kubelet(audited, first := launch(aws)), Kubelet(audited, second := launch(aws))
    approver.round()
    mine, its = token_for(aws, first), token_for(aws, second)
    assert mine != its
    assert thief.ask("stolen-name", signer=CLIENT, by=its, name=honest.name) == 201
    assert honest.ask("own-name", signer=CLIENT, by=mine) == 201
    verdicts = approved(approver.round())
    assert verdicts["own-name"] == ""
    assert f"asks for {honest.name}, whose token is {mine.partition('.')[0]}" in verdicts["stolen-name"]
    certificate = honest.signed("own-name", tmp_path)
    assert honest.ask("serving", signer=SERVING, by=certificate) == 201
    assert approved(approver.round())["serving"] == ""
    honest.register()
    done = approver.round()
    assert any("has joined" in line for line in done.told)
    assert token_for(aws, first) == ""
    assert token_for(aws, second) == its
    names = (f"late-{number}" for number in itertools.count())  # the API server hears of a Secret's end a moment later
    until(lambda: honest.ask(next(names), signer=CLIENT, by=mine) == 401)
    use_the_lease(audited, account)
    used = audited.uses(ACCOUNT)
    assert not {use for use, codes in used.items() if 403 in codes}
    # To approve is asked by the API server itself, of the signer that a request names.
    assert set(used) == granted(RBAC) - {("certificates.k8s.io", "signers", "approve")}


def use_the_lease(audited: Audited, account: Path) -> None:
    """As the service does beside its rounds."""
    from autoscaler.kube.leader_election import Lease  # noqa: PLC0415

    lease = Lease(Kube.connect(account), namespace=words.NAMESPACE, identity="test", name=words.APPROVER)
    assert [lease.try_once(), lease.try_once()] == ["test", "test"]
    lease.stop()
    assert audited.kube.get(f"/apis/coordination.k8s.io/v1/namespaces/{words.NAMESPACE}/leases/{words.APPROVER}")


def test_nothing_else_is_allowed(audited: Audited, account: Path) -> None:
    """Every verb on every resource of its namespaces, and of the cluster: no, but for those of `rbac.yaml`."""
    as_it = KubeHttp(account)
    verbs = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
    named = {"leases": words.APPROVER, "configmaps": LEDGER, "clusterrolebindings": "spillway:node-bootstrappers"}
    allowed = {
        (group, resource, verb)
        for group, resource in resources(audited.kube)
        for verb in verbs
        for namespace in (words.NAMESPACE, "kube-system")
        if may(as_it, group, resource, verb, namespace=namespace, named=named)
    }
    of_everybody = {use for use in allowed if use[0] in ("authorization.k8s.io", "authentication.k8s.io")}
    assert allowed - of_everybody == granted(RBAC) - {("certificates.k8s.io", "signers", "approve")}
    assert not may(as_it, "", "secrets", "get", namespace="default", named={})
    assert not may(as_it, "rbac.authorization.k8s.io", "clusterrolebindings", "get", named={"clusterrolebindings": "x"})


ROOT_CA = {"kubernetes.io/service-account.name": "clusterrole-aggregation-controller"}
TOKEN = "bootstrap.kubernetes.io/token"  # noqa: S105 - a type
SPILLWAY = "system:bootstrappers:spillway"


def secret(name: str, *, kind: str = TOKEN, groups: str = SPILLWAY, **metadata: Any) -> dict[str, Any]:
    """A Secret as the account may try to write it."""
    key = name.removeprefix("bootstrap-token-")
    data = {"token-id": key, "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true"}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": kind,
        "metadata": {"name": name, "namespace": "kube-system", **metadata},
        "stringData": {**data, **({"auth-extra-groups": groups} if groups else {})},
    }


def test_it_makes_and_deletes_bootstrap_tokens_and_no_other_secret(audited: Audited, account: Path) -> None:
    """With Secrets of kube-system whoever holds the account would be the cluster's administrator."""
    kube, admin, secrets = Kube.connect(account), audited.kube, "/api/v1/namespaces/kube-system/secrets"
    until(lambda: refused(kube, "POST", secrets, secret("other-1", kind="Opaque")) == 422)
    kube.send("POST", secrets, secret("bootstrap-token-abcdef"))
    kube.send("DELETE", f"{secrets}/bootstrap-token-abcdef")
    account_token = secret("stolen", kind="kubernetes.io/service-account-token", annotations=ROOT_CA)
    in_another_group = secret("bootstrap-token-abcdeg", groups="system:bootstrappers:kubeadm:default-node-token")
    for wrong in (
        account_token,
        secret("plain", kind="Opaque"),
        in_another_group,
        secret("bootstrap-token-abcdeh", groups=""),
    ):
        assert refused(kube, "POST", secrets, wrong) == 422, wrong["metadata"]["name"]
    admin.send("POST", secrets, secret("of-another", kind="Opaque"))
    admin.send("POST", secrets, secret("bootstrap-token-abcdei", groups="system:bootstrappers:x"))
    assert refused(kube, "DELETE", f"{secrets}/of-another") == 422
    for path in (secrets, f"{secrets}/of-another", f"{secrets}/bootstrap-token-abcdei"):
        assert refused(kube, "GET", path) == 403
    for path in (f"{secrets}/of-another", f"{secrets}/bootstrap-token-abcdei"):
        assert refused(kube, "PATCH", path, {"metadata": {"labels": {"a": "b"}}}) == 403
    admin.send("POST", secrets, secret("of-an-administrator", kind="Opaque")), "whom the policy does not bind"


def refused(kube: Kube, method: str, path: str, body: object = None) -> int:
    """The status of a request that is refused; 0 where it is not."""
    content = "application/merge-patch+json" if method == "PATCH" else "application/json"
    try:
        kube.send(method, path, body, content=content)
    except Refused as answer:
        return answer.status
    return 0


def test_a_token_that_is_lost_is_made_again(audited: Audited, account: Path, aws: Aws) -> None:
    """The parameter deleted, or overwritten by another approver: the instance gets one that is good."""
    approver, ssm = approver_of(account, aws), aws.client("ssm")
    instance = launch(aws)
    name = words.JOIN_PARAMETER.format(cluster="lab", instance=instance["InstanceId"])
    approver.round()
    first = token_for(aws, instance)
    approver.round()
    assert token_for(aws, instance) == first, "one that is good stays"
    ssm.delete_parameter(Name=name)
    approver.round()
    second = token_for(aws, instance)
    ssm.put_parameter(Name=name, Value=first, Type="SecureString", Overwrite=True)
    approver.round()
    third = token_for(aws, instance)
    assert len({first, second, third}) == 3
    kubelet = Kubelet(audited, instance)
    asked = {token: kubelet.ask(f"lost-{n}", signer=CLIENT, by=token) for n, token in enumerate((first, second, third))}
    assert list(asked.values()) == [401, 401, 201]
    tags = {
        one["Key"]: one["Value"]
        for one in ssm.list_tags_for_resource(ResourceType="Parameter", ResourceId=name)["TagList"]
    }
    assert tags[words.TAG_INSTANCE] == f"arn:aws:ec2:us-east-1:123456789012:instance/{instance['InstanceId']}"
    aws.client("ec2").terminate_instances(InstanceIds=[instance["InstanceId"]])
    until(lambda: approver.round() and not token_for(aws, instance))


def test_one_that_cannot_be_helped_holds_up_no_other(account: Path, aws: Aws) -> None:
    """Parameter Store refuses every second write: what it refused is told, and done in a later round."""
    approver, instances = approver_of(account, aws), [launch(aws), launch(aws)]
    aws.put_faults({"kind": "throttle", "actions": ["PutParameter"], "every": 1, "code": "AccessDeniedException"})
    done = approver.round()
    assert set(done.problems) >= {one["InstanceId"] for one in instances}
    aws.put_faults()
    assert not approver.round().problems
    assert all(token_for(aws, one) for one in instances)


def test_without_aws_nobody_is_let_in_and_without_the_api_server_neither(account: Path, aws: Aws) -> None:
    """In words, to be tried again: nothing is taken away meanwhile."""
    approver, instance = approver_of(account, aws), launch(aws)
    approver.round()
    before = token_for(aws, instance)
    aws.put_faults({"kind": "gone", "how": "reset"})
    with pytest.raises(Unavailable, match="AWS"):
        approver.round()
    aws.put_faults()
    config = json.loads(account.read_text(encoding="utf-8"))
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    nowhere = account.with_name("nowhere")
    nowhere.write_text(json.dumps(config), encoding="utf-8")
    from autoscaler.kube.credentials import Account  # noqa: PLC0415

    lost = Approver(Kube(Account(nowhere)), ec2=aws.client("ec2"), ssm=aws.client("ssm"), cluster="lab")
    with pytest.raises(Unavailable):
        lost.round()
    assert token_for(aws, instance) == before


def test_of_two_one_acts_and_the_other_takes_over(account: Path, aws: Aws, tmp_path: Path) -> None:
    """The real command, twice: an instance gets one token; when the one that acts is killed, the other goes on."""
    instance = launch(aws)
    both = [start(account, aws, tmp_path / name) for name in ("a", "b")]
    try:
        [acting] = until(lambda: who_said("may join", tmp_path), told=lambda: logs(tmp_path))
        both[acting].kill()
        second = launch(aws)
        until(lambda: token_for(aws, second), told=lambda: logs(tmp_path))
        assert token_for(aws, instance) == first_of(tmp_path / "ab"[acting], aws, instance)
    finally:
        for process in both:
            process.terminate()
        codes = [process.wait(timeout=30) for process in both]
    assert sorted(codes) == [-9, 0], logs(tmp_path)


def start(account: Path, aws: Aws, log: Path) -> subprocess.Popen[bytes]:
    """`spillway nodes approve` as in its pod."""
    command = [sys.executable, "-m", "spillway", "nodes", "approve", "--cluster", "lab", "--region", "us-east-1"]
    with log.open("w") as out:
        return subprocess.Popen(
            [*command, "--kubeconfig", str(account), "--identity", log.name],
            env={**os.environ, **aws.env},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )


def first_of(log: Path, aws: Aws, instance: dict[str, Any]) -> str:
    """The token that this log tells of, whole, if it is still the one that is kept."""
    [line] = [
        one for one in log.read_text(encoding="utf-8").splitlines() if f"{instance['InstanceId']} may join" in one
    ]
    kept = token_for(aws, instance)
    assert kept.partition(".")[0] in line
    assert kept.partition(".")[2] not in line, "its secret part stands in no log"
    return kept


def who_said(words: str, folder: Path) -> list[int]:
    """Which of both."""
    return [number for number in (0, 1) if words in (folder / "ab"[number]).read_text(encoding="utf-8")]


def logs(folder: Path) -> str:
    """What both said."""
    return "".join(file.read_text(encoding="utf-8") for file in (folder / "a", folder / "b"))
