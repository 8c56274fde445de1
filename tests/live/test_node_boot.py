"""An instance prepares itself at its first boot, by the user data that the programs gave its group, and joins."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from autoscaler import labels as words
from roles.bundle import made_for
from stacks.local.control_plane import apply_manifests
from stacks.local.engine import EngineSettings, pulumi_preview, pulumi_up
from stacks.user_data import FETCH_SCRIPT
from tests.live.amazon import in_ec2
from tests.live.hybrid import Aws, stand_in_aws, until
from tests.live.lab import Lab, spillway
from tests.live.machines import Host
from tests.live.stacks import settings_for

pytestmark = pytest.mark.live

CLUSTER = "lab"
GPU = "lab-gpu-a10g-us-east-1a"
GROUPS = [
    {
        "name": "gpu-a10g",
        "instance_type": "g5.xlarge",
        "zones": ["us-east-1a", "us-east-1b"],
        "max": 2,
        "taints": [{"key": words.GPU, "value": "present"}],
    }
]
RBAC = Path(__file__).parents[2] / "roles" / "rbac.yaml"


@pytest.mark.skipif(made_for() != "3.11 x86_64", reason="a bundle made here does not run on Debian 12's Python 3.11")
def test_an_instance_that_boots_becomes_a_node(ground: Lab, engine: dict[str, Path], tmp_path: Path) -> None:
    """The program renders its user data, cloud-init runs it, the approver lets it in: nothing is made by hand."""
    with stand_in_aws(tmp_path / "aws") as aws:
        settings = stack(ground, aws, engine, tmp_path)
        outputs = pulumi_up(settings)
        assert pulumi_preview(settings), "a second up changes nothing"
        aws.client("autoscaling").set_desired_capacity(AutoScalingGroupName=GPU, DesiredCapacity=1)
        instance = until(partial(running, aws))
        user_data = told(aws, instance)
        names = ["ssm.us-east-1.amazonaws.com", bundle_host(user_data)]
        (host,) = ground.bench.machines("instance")
        role = outputs.node_role_arn.rpartition("/")[2]
        around = {"instance": instance, "role": role, "url": aws.url, "names": names, "folder": tmp_path}
        with in_ec2(ground.bench, host, **around), letting_in(ground, aws, tmp_path) as approver:
            seed(host, instance, user_data)
            host = ground.bench.restart(host, wait=False)
            until(
                partial(is_ready, ground, instance["PrivateDnsName"]),
                within=480,
                told=lambda: boot_log(host) + approver.read_text(encoding="utf-8"),
            )
            signed = "test -s /var/lib/kubelet/pki/kubelet-server-current.pem"  # asked for once it is registered
            until(lambda: host.run(signed, check=False).returncode == 0, within=60)
            until(lambda: "has joined" in approver.read_text(encoding="utf-8"), within=60)
            assert_joined(ground, host, instance)
            assert not kept(aws), "its token is gone"
            until(lambda: host.run("test -e /var/lib/spillway/booted", check=False).returncode == 0, within=60)
            gone = host.run("test -e /var/lib/spillway/last-good", check=False)
            assert gone.returncode == 1, "the machine that booted well forgets the bare one"


def stack(ground: Lab, aws: Aws, engine: dict[str, Path], folder: Path) -> EngineSettings:
    """As an owner writes it: the on-prem machines' inventory, its bundle, and a stack whose nodes fetch that."""
    inventory = folder / "inventory.yaml"
    only_there = {"pod_network": {"kind": "bridge", "pods": "10.244.9.0/24"}}
    inventory.write_text(
        yaml.safe_dump({"machines": [], "settings": ground.settings(), "ec2_settings": only_there}), encoding="utf-8"
    )
    bundled = spillway("nodes", "bundle", str(folder / "nodes.tar.gz"), "-i", str(inventory))
    assert bundled.returncode == 0, bundled.stderr
    made = settings_for(folder, aws_url=aws.url, tools=engine, cluster=CLUSTER, groups=GROUPS)
    nodes = {"ami": "ami-12c6146b", "roles": "bundle", "bundle": str(folder / "nodes.tar.gz")}
    return replace(made, kubeconfig=ground.kubeconfig, overrides={"spillway:nodes": nodes})


def running(aws: Aws) -> dict[str, Any] | None:
    """The one instance of the group, as EC2 describes it."""
    by = [{"Name": "instance-state-name", "Values": ["running"]}]
    found = aws.client("ec2").describe_instances(Filters=by)["Reservations"]
    return dict(found[0]["Instances"][0]) if found else None


def told(aws: Aws, instance: dict[str, Any]) -> str:
    """Its user data, as EC2 hands it out."""
    asked = {"InstanceId": instance["InstanceId"], "Attribute": "userData"}
    return base64.b64decode(aws.client("ec2").describe_instance_attribute(**asked)["UserData"]["Value"]).decode()


def bundle_host(user_data: str) -> str:
    """Where it fetches the bundle."""
    scripts = "".join(one["content"] for one in yaml.safe_load(user_data)["write_files"])
    line = next(line for line in scripts.splitlines() if line.startswith(f"python3 {FETCH_SCRIPT}"))
    return str(urlsplit(line.split()[2]).hostname)


def seed(host: Host, instance: dict[str, Any], user_data: str) -> None:
    """cloud-init on the machine's image, and what it finds at its next start."""
    host.run("apt-get update -q && apt-get install -q -y --no-install-recommends cloud-init", timeout=300)
    image = host.upper / "etc/cloud/cloud.cfg.d/99_bench.cfg"  # we know the machine by its key, and come in as root
    image.write_text("{ssh_deletekeys: false, disable_root: false}\n", encoding="ascii")
    folder = host.upper / "var/lib/cloud/seed/nocloud"
    host.run(f"mkdir -p /{folder.relative_to(host.upper)}")
    (folder / "meta-data").write_text(f"instance-id: {instance['InstanceId']}\n", encoding="ascii")
    (folder / "user-data").write_text(user_data, encoding="utf-8")


@contextlib.contextmanager
def letting_in(ground: Lab, aws: Aws, folder: Path) -> Iterator[Path]:
    """The approver as its own process, with the rights of its ServiceAccount; gives its log."""
    namespace = f"apiVersion: v1\nkind: Namespace\nmetadata: {{name: {words.NAMESPACE}}}\n---\n"
    apply_manifests(ground.kube, namespace + RBAC.read_text(encoding="utf-8"))
    kubeconfig, log = account(ground, folder / "approver.kubeconfig"), folder / "approver.log"
    command = [sys.executable, "-m", "spillway", "nodes", "approve", "--cluster", CLUSTER, "--region", "us-east-1"]
    with log.open("w") as out:
        process = subprocess.Popen(
            [*command, "--kubeconfig", str(kubeconfig)],
            env={**os.environ, **aws.env},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )
        try:
            yield log
        finally:
            process.terminate()
            assert process.wait(timeout=30) == 0, log.read_text(encoding="utf-8")


def account(ground: Lab, path: Path) -> Path:
    """A kubeconfig with a token of the approver's ServiceAccount, as its pods have one."""
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    place = f"/api/v1/namespaces/{words.NAMESPACE}/serviceaccounts/{words.APPROVER}/token"
    config = json.loads(ground.kubeconfig.read_text(encoding="utf-8"))
    config["users"][0]["user"] = {"token": ground.kube.send("POST", place, asked)["status"]["token"]}
    path.write_text(json.dumps(config), encoding="utf-8")
    return path


def assert_joined(ground: Lab, host: Host, instance: dict[str, Any]) -> None:
    """The node is what its group says, its certificate names it alone, and its token is good for nobody."""
    name, zone = instance["PrivateDnsName"], instance["Placement"]["AvailabilityZone"]
    node = ground.kube.get(f"/api/v1/nodes/{name}")
    assert node["spec"]["providerID"] == f"aws:///{zone}/{instance['InstanceId']}"
    assert node["spec"]["taints"] == [
        {"key": words.GPU, "value": "present", "effect": "NoSchedule"},
        {"key": words.RESERVED, "effect": "NoSchedule"},
    ]
    wanted = {words.GROUP: "gpu-a10g", words.ORIGIN: words.EC2, words.ZONE: zone, words.INSTANCE_TYPE: "g5.xlarge"}
    assert {key: node["metadata"]["labels"].get(key) for key in wanted} == wanted
    shown = host.run("openssl x509 -noout -ext subjectAltName -in /var/lib/kubelet/pki/kubelet-server-current.pem")
    assert f"DNS:{name}, IP Address:{instance['PrivateIpAddress']}" in shown.stdout
    secrets = ground.kube.get("/api/v1/namespaces/kube-system/secrets")["items"]
    assert [one for one in secrets if one["type"].startswith("bootstrap")] == []


def kept(aws: Aws) -> list[str]:
    """Parameters of instances that wait."""
    path = words.JOIN_PARAMETER.format(cluster=CLUSTER, instance="").rstrip("/")
    return [one["Name"] for one in aws.client("ssm").get_parameters_by_path(Path=path)["Parameters"]]


def is_ready(ground: Lab, name: str) -> bool:
    """A Ready node of that name."""
    nodes = [one for one in ground.kube.get("/api/v1/nodes")["items"] if one["metadata"]["name"] == name]
    conditions = nodes[0]["status"].get("conditions", []) if nodes else []
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def boot_log(host: Host) -> str:
    """Why it is not."""
    said = "cat /var/log/spillway/boot.log; tail -n 20 /var/log/cloud-init.log; journalctl -u kubelet -n 10 -o cat"
    return host.run(said, check=False).stdout[-4000:]
