"""An instance prepares itself at its first boot, by what its group's user data says, and joins the cluster."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import boto3
import pytest

from autoscaler import labels as words
from autoscaler.cluster import Taint
from autoscaler.kube import Kube
from roles import approver
from roles.bundle import made_for, make_bundle
from stacks.user_data import Bundle, NodeSpec, render_user_data
from tests.live.hybrid import until
from tests.live.lab import Lab, lab
from tests.live.machines import Bench, Host

pytestmark = pytest.mark.live

CLUSTER = "lab"


@pytest.fixture(scope="module")
def ground(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Control plane and mirror."""
    with lab(bench, tmp_path_factory.mktemp("lab")) as made:
        yield made


@pytest.mark.skipif(made_for() != "3.11 x86_64", reason="a bundle made here does not run on Debian 12's Python 3.11")
def test_an_instance_that_boots_becomes_a_node(ground: Lab) -> None:
    """cloud-init runs the user data; the token comes by the instance's own parameter; its certificates are checked."""
    (host,) = ground.bench.machines("instance")
    with amazon(ground.bench, host) as aws:
        host.run("apt-get update -q && apt-get install -q -y --no-install-recommends cloud-init", timeout=300)
        image = host.upper / "etc/cloud/cloud.cfg.d/99_bench.cfg"  # we know the machine by its key, and come in as root
        image.write_text("{ssh_deletekeys: false, disable_root: false}\n", encoding="ascii")
        seed = host.upper / "var/lib/cloud/seed/nocloud"
        host.run(f"mkdir -p /{seed.relative_to(host.upper)}")
        (seed / "meta-data").write_text(f"instance-id: {aws.id}\n", encoding="ascii")
        (seed / "user-data").write_text(user_data(ground, aws), encoding="utf-8")
        with letting_in(ground, aws):
            host = ground.bench.restart(host, wait=False)
            until(partial(is_ready, ground, aws.name), within=480, told=lambda: boot_log(host))
            until(lambda: not aws.ssm.describe_parameters()["Parameters"], within=30)
            signed = "test -s /var/lib/kubelet/pki/kubelet-server-current.pem"  # asked for once it is registered
            until(lambda: host.run(signed, check=False).returncode == 0, within=60)
    node = ground.kube.get(f"/api/v1/nodes/{aws.name}")
    assert node["spec"]["providerID"] == f"aws:///{aws.zone}/{aws.id}"
    assert node["spec"]["taints"] == [{"key": words.GPU, "value": "present", "effect": "NoSchedule"}]
    assert node["metadata"]["labels"][words.GROUP] == "gpu-a10g"
    assert node["metadata"]["labels"][words.ZONE] == aws.zone
    shown = host.run("openssl x509 -noout -ext subjectAltName -in /var/lib/kubelet/pki/kubelet-server-current.pem")
    assert f"DNS:{aws.name}, IP Address:{host.address}" in shown.stdout
    secrets = ground.kube.get("/api/v1/namespaces/kube-system/secrets")["items"]
    assert [one for one in secrets if one["type"].startswith("bootstrap")] == []


def user_data(ground: Lab, aws: Amazon) -> str:
    """Of the instance's group."""
    bundle = ground.directory / "mirror" / "bundle.tar.gz"
    digest = make_bundle(bundle)
    settings = ground.settings()
    settings["pod_network"] = {"kind": "bridge", "pods": "10.244.9.0/24"}
    settings["kubelet"]["authority"] = ground.authority.read_text(encoding="ascii")
    spec = NodeSpec(
        cluster=CLUSTER,
        labels={words.ORIGIN: words.EC2, words.GROUP: "gpu-a10g"},
        taints=(Taint(key=words.GPU, value="present", effect="NoSchedule"),),
        bundle=Bundle(
            url=f"{ground.mirror}/bundle.tar.gz",
            sha256=digest,
            token_parameter=approver.PARAMETER.format(cluster=CLUSTER, instance="{instance}"),
            settings=settings,
            endpoints={"metadata": aws.metadata, "ssm_endpoint": aws.url},
        ),
    )
    return render_user_data(spec)


def is_ready(ground: Lab, name: str) -> bool:
    """A Ready node of that name."""
    nodes = [one for one in ground.kube.get("/api/v1/nodes")["items"] if one["metadata"]["name"] == name]
    conditions = nodes[0]["status"].get("conditions", []) if nodes else []
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def boot_log(host: Host) -> str:
    """Why it is not."""
    said = "cat /var/log/spillway/boot.log; tail -n 20 /var/log/cloud-init.log; journalctl -u kubelet -n 10 -o cat"
    return host.run(said, check=False).stdout[-4000:]


class Amazon:
    """What the instance and the approver see of AWS: moto's EC2 and SSM, and a metadata service."""

    def __init__(self, url: str, metadata: str, host: Host, subnet: str) -> None:
        keys = {"aws_access_key_id": "local", "aws_secret_access_key": "local", "region_name": "us-east-1"}
        self.url, self.metadata = url, metadata
        self.ec2: Any = boto3.client("ec2", endpoint_url=url, **keys)  # type: ignore[call-overload]
        self.ssm: Any = boto3.client("ssm", endpoint_url=url, **keys)  # type: ignore[call-overload]
        vpc = self.ec2.create_vpc(CidrBlock="198.18.0.0/16")["Vpc"]["VpcId"]
        made = self.ec2.create_subnet(VpcId=vpc, CidrBlock=subnet, AvailabilityZone="us-east-1a")["Subnet"]
        image = self.ec2.describe_images()["Images"][0]["ImageId"]
        started = self.ec2.run_instances(
            ImageId=image,
            MinCount=1,
            MaxCount=1,
            InstanceType="g5.xlarge",
            SubnetId=made["SubnetId"],
            PrivateIpAddress=host.address,
            TagSpecifications=[
                {"ResourceType": "instance", "Tags": [{"Key": words.TAG_CLUSTER, "Value": CLUSTER}]},
            ],
        )["Instances"][0]
        self.id, self.name, self.zone = started["InstanceId"], started["PrivateDnsName"], "us-east-1a"


@contextlib.contextmanager
def amazon(bench: Bench, host: Host) -> Iterator[Amazon]:
    """Both services on the bench's address."""
    from moto.server import ThreadedMotoServer  # noqa: PLC0415 - slow to import

    server = ThreadedMotoServer(ip_address=bench.gateway, port=0, verbose=False)
    server.start()
    address, port = server.get_host_and_port()
    says: dict[str, str] = {}
    imds = ThreadingHTTPServer((bench.gateway, 0), partial(Metadata, says))
    threading.Thread(target=imds.serve_forever).start()
    try:
        aws = Amazon(f"http://{address}:{port}", f"http://{bench.gateway}:{imds.server_port}", host, str(bench.subnet))
        document = {
            "instanceId": aws.id,
            "privateIp": host.address,
            "availabilityZone": aws.zone,
            "region": "us-east-1",
        }
        role = {"AccessKeyId": "local", "SecretAccessKey": "local", "Token": "session"}
        says |= {
            "dynamic/instance-identity/document": json.dumps(document),
            "meta-data/local-hostname": aws.name,
            "meta-data/iam/security-credentials/": "node",
            "meta-data/iam/security-credentials/node": json.dumps(role),
        }
        yield aws
    finally:
        imds.shutdown()
        imds.server_close()
        server.stop()


class Metadata(BaseHTTPRequestHandler):
    """A metadata service that answers only those who asked for a session first, as IMDSv2 does."""

    def __init__(self, says: dict[str, str], *arguments: Any) -> None:
        self._says = says
        super().__init__(*arguments)

    def do_PUT(self) -> None:
        """A session token."""
        self._answer(200, "session")

    def do_GET(self) -> None:
        """One path."""
        if self.headers.get("X-aws-ec2-metadata-token") != "session":
            self._answer(401, "")
            return
        path = self.path.removeprefix("/latest/")
        self._answer(200 if path in self._says else 404, self._says.get(path, ""))

    def log_message(self, *_: object) -> None:
        """Silent."""

    def _answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())


@contextlib.contextmanager
def letting_in(ground: Lab, aws: Amazon) -> Iterator[None]:
    """The approver, round after round, as it runs beside the autoscaler."""
    kube, over = Kube.connect(ground.kubeconfig), threading.Event()

    def rounds() -> None:
        while not over.wait(0.5):
            approver.let_in(kube, aws.ssm, CLUSTER, approver.running_instances(aws.ec2, CLUSTER))

    thread = threading.Thread(target=rounds)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
