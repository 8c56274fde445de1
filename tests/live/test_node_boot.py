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
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
import yaml

import roles
from autoscaler.kube.schema.convert import node_from
from autoscaler.kube.schema.core import NodeJson
from autoscaler.model import labels as words
from autoscaler.model.cluster import Notice
from roles.first_boot.bundle import made_for
from stacks.local.ground.control_plane import apply_manifests
from stacks.local.toolchain.pulumi_engine import EngineSettings, pulumi_preview, pulumi_up
from stacks.nodes.user_data import FETCH_SCRIPT
from tests import ROOT
from tests.live.amazon import in_ec2
from tests.live.hybrid import Aws, stand_in_aws, until
from tests.live.lab import Lab, sleeper, spillway
from tests.live.machines import Host
from tests.live.stacks import settings_for

pytestmark = [pytest.mark.live, pytest.mark.long]

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
ONLY_THERE = {"pod_network": {"kind": "bridge", "pods": "10.244.9.0/24"}}
RBAC = ROOT / "roles" / "rbac.yaml"


@pytest.mark.skipif(made_for() != "3.11 x86_64", reason="a bundle made here does not run on Debian 12's Python 3.11")
def test_an_instance_that_boots_becomes_a_node(ground: Lab, engine: dict[str, Path], tmp_path: Path) -> None:
    """The program renders its user data, cloud-init runs it, the approver lets it in: nothing is made by hand."""
    with stand_in_aws(tmp_path / "aws") as aws:
        settings = stack(ground, aws, engine, tmp_path, roles="bundle", bundle=str(bundle(ground, tmp_path)))
        outputs = pulumi_up(settings)
        assert pulumi_preview(settings), "a second up changes nothing"
        aws.client("autoscaling").set_desired_capacity(AutoScalingGroupName=GPU, DesiredCapacity=1)
        instance = until(partial(running, aws))
        user_data = told(aws, instance)
        names = ["ssm.us-east-1.amazonaws.com", bundle_host(user_data)]
        (host,) = ground.bench.machines("instance")
        role = outputs.node_role_arn.rpartition("/")[2]
        around = {"instance": instance, "role": role, "url": aws.url, "names": names, "folder": tmp_path}
        with in_ec2(ground.bench, host, **around) as ec2_says, letting_in(ground, aws, tmp_path) as approver:
            cloud_init(host)
            seed(host, instance, user_data)
            host = ground.bench.restart(host, wait=False)
            until(
                partial(is_ready, ground, instance["PrivateDnsName"]),
                within=480,
                told=lambda: boot_log(host) + approver.read_text(encoding="utf-8"),
            )
            signed = "test -s /var/lib/kubelet/pki/kubelet-server-current.pem"  # asked for once it is registered
            until(lambda: host.run(signed, check=False).returncode == 0)
            until(lambda: "has joined" in approver.read_text(encoding="utf-8"))
            assert_joined(ground, host, instance)
            assert not kept(aws), "its token is gone"
            until(partial(is_booted, host), within=480, told=partial(boot_log, host))
            gone = host.run("test -e /var/lib/spillway/last-good", check=False)
            assert gone.returncode == 1, "the machine that booted well forgets the bare one"
            ec2_says["meta-data/spot/instance-action"] = '{"action": "terminate", "time": "2026-08-01T10:02:00Z"}'
            notice = until(lambda: notice_of(ground, instance), told=lambda: boot_log(host))
            assert (notice.instance, notice.kind) == (instance["InstanceId"], "interruption")
            assert notice.ends == datetime(2026, 8, 1, 10, 2, tzinfo=UTC)
            del ec2_says["meta-data/spot/instance-action"]
            until(lambda: notice_of(ground, instance) is None)


def notice_of(ground: Lab, instance: dict[str, Any]) -> Notice | None:
    """What the node has heard from EC2 itself, as the autoscaler reads it."""
    raw = ground.kube.get(f"/api/v1/nodes/{instance['PrivateDnsName']}")
    return node_from(msgspec.json.decode(json.dumps(raw), type=NodeJson)).notice


def stack(ground: Lab, aws: Aws, engine: dict[str, Path], folder: Path, **nodes: str) -> EngineSettings:
    """As an owner writes it; ``nodes`` say by which roles."""
    made = settings_for(folder, aws_url=aws.url, tools=engine, cluster=CLUSTER, groups=GROUPS)
    overrides = {"spillway:nodes": {"ami": "ami-12c6146b", **nodes}}
    return replace(made, kubeconfig=ground.kubeconfig, overrides=overrides)


def bundle(ground: Lab, folder: Path) -> Path:
    """Of the on-prem machines' inventory."""
    inventory, file = folder / "inventory.yaml", folder / "nodes.tar.gz"
    inventory.write_text(
        yaml.safe_dump({"machines": [], "settings": ground.settings(), "ec2_settings": ONLY_THERE}), encoding="utf-8"
    )
    bundled = spillway("nodes", "bundle", str(file), "-i", str(inventory))
    assert bundled.returncode == 0, bundled.stderr
    return file


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


def cloud_init(host: Host) -> None:
    """On the machine, as on every image for EC2."""
    host.run("apt-get update -q && apt-get install -q -y --no-install-recommends cloud-init", timeout=300)
    image = host.upper / "etc/cloud/cloud.cfg.d/99_bench.cfg"  # we know the machine by its key, and come in as root
    image.write_text("{ssh_deletekeys: false, disable_root: false}\n", encoding="ascii")


def seed(host: Host, instance: dict[str, Any], user_data: str) -> None:
    """What cloud-init finds at the next start."""
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


def is_booted(host: Host) -> bool:
    """Whether it has done all that it does at its first boot; the node may be ready before."""
    return host.run("test -e /var/lib/spillway/booted", check=False).returncode == 0


def boot_log(host: Host) -> str:
    """Why it is not."""
    said = "cat /var/log/spillway/boot.log; tail -n 20 /var/log/cloud-init.log; journalctl -u kubelet -n 10 -o cat"
    return host.run(said, check=False).stdout[-4000:]


@pytest.mark.skipif(made_for() != "3.11 x86_64", reason="a bundle made here does not run on Debian 12's Python 3.11")
def test_a_machine_that_became_an_image_boots_as_a_node(ground: Lab, engine: dict[str, Path], tmp_path: Path) -> None:
    """By the roles of the image, sealed by the script of the README: nothing but the cluster is new at its boot."""
    with stand_in_aws(tmp_path / "aws") as aws:
        image = baked(ground, tmp_path)
        settings = stack(ground, aws, engine, tmp_path, roles="baked")
        outputs = pulumi_up(settings)
        aws.client("autoscaling").set_desired_capacity(AutoScalingGroupName=GPU, DesiredCapacity=1)
        instance = until(partial(running, aws))
        (host,) = ground.bench.machines("from-image", image=image)
        role = outputs.node_role_arn.rpartition("/")[2]
        names = ["ssm.us-east-1.amazonaws.com"]
        around = {"instance": instance, "role": role, "url": aws.url, "names": names, "folder": tmp_path}
        with in_ec2(ground.bench, host, **around), letting_in(ground, aws, tmp_path) as approver:
            seed(host, instance, told(aws, instance))
            host = ground.bench.restart(host, wait=False)
            until(
                partial(is_ready, ground, instance["PrivateDnsName"]),
                within=240,
                told=lambda: boot_log(host) + approver.read_text(encoding="utf-8"),
            )
            until(partial(is_booted, host), within=480, told=partial(boot_log, host))
            changed = {line for line in host.run("cat /var/log/spillway/boot.log").stdout.splitlines() if " | " in line}
            assert changed == {f"{AS_ITSELF} | host name {instance['PrivateDnsName']}", *OF_ITS_CLUSTER}
            again = "cd /opt/spillway/roles && PYTHONPATH=. LC_ALL=C.UTF-8 python3 -m roles.first_boot.boot"
            assert host.run(again).stdout == "", "what the boot has left, the roles leave alone"
            ground.kube.send("POST", "/api/v1/namespaces/default/pods", sleeper("work", instance["PrivateDnsName"]))
            work = "/api/v1/namespaces/default/pods/work"
            until(lambda: ground.kube.get(work)["status"]["phase"] == "Running", told=partial(boot_log, host))


AS_ITSELF = "Name, clock, kernel and limits"
OF_ITS_CLUSTER = {
    "Node health check | what health means here",
    "Kubelet | the cluster's authority",
    "Kubelet | kubelet's configuration",
    "Kubelet | kubelet's unit",
    "Kubelet | systemd knows kubelet's unit",
    "Kubelet | kubelet runs",
    "Interruption notices | what listens to EC2 as a unit",
    "Interruption notices | systemd knows what listens to EC2",
    "Interruption notices | what listens to EC2 runs",
}
"""All that the roles change at the first boot from an image: what no image can have."""
SEAL = Path(roles.__file__).with_name("seal_image.sh")


def baked(ground: Lab, folder: Path) -> Path:
    """The disks of a machine that was made by the roles for an image, with the bundle unpacked, and sealed."""
    (host,) = ground.bench.machines("bakery")
    cloud_init(host)
    fleet, known = ground.settings(), ground.bench.known_hosts.read_text(encoding="ascii").splitlines()
    own = {key: value for key, value in fleet.items() if key not in ("kubelet", "kubeconfig")}
    settings = own | ONLY_THERE | {"node_image": {"download": fleet["kubelet"]["download"]}}
    ssh = {"key": str(host.key), "host_key": dict(line.split(" ", 1) for line in known)[host.address].strip()}
    machine = {"name": host.name, "address": host.address, "cpus": 2, "memory": "2Gi", "ssh": ssh}
    inventory = folder / "image.yaml"
    inventory.write_text(yaml.safe_dump({"settings": settings, "machines": [machine]}), encoding="utf-8")
    rolling = ("--state", str(folder / "state"), "--no-cluster", "--health-seconds", "0")
    applied = spillway("nodes", "apply", "-i", str(inventory), *rolling)
    assert applied.returncode == 0, applied.stdout + applied.stderr
    host.run("mkdir -p /opt/spillway/roles")
    fed(host, "tar -xz -C /opt/spillway/roles", bundle(ground, folder))
    identity = host.run("cat /etc/machine-id").stdout.strip()
    host.run("mkdir -p /var/lib/kubelet && touch /var/lib/kubelet/kubeconfig")
    assert "it has been in a cluster: /var/lib/kubelet/kubeconfig" in fed(host, "sh", SEAL, status=2)
    host.run("rm /var/lib/kubelet/kubeconfig")
    fed(host, "sh", SEAL)
    image = ground.bench.image_of(host)
    assert_nothing_of_its_own(image / "upper", host.name, host.address, identity, ssh["host_key"].split()[1])
    return image


def fed(host: Host, command: str, file: Path, *, status: int = 0) -> str:
    """What a command says that reads a file of this machine."""
    options = [f"-oUserKnownHostsFile={host.known_hosts}", "-oBatchMode=yes"]
    with file.open("rb") as content:
        words = ["ssh", "-i", str(host.key), *options, f"root@{host.address}", command]
        done = subprocess.run(words, stdin=content, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def assert_nothing_of_its_own(root: Path, *marks: str) -> None:
    """Who the machine was, who may come in, what it logged, and a cluster: none of it is on the image."""
    patterns = [
        *("etc/ssh/ssh_host_*", "root/.ssh/*", "home/*/.ssh/*", "etc/hostname", "var/log/**/*", "tmp/*", "var/tmp/*"),
        *("var/lib/cloud/instances/*", "var/lib/cloud/seed/*", "var/lib/cloud/instance", "var/lib/systemd/random-seed"),
        *("etc/kubernetes/**/*", "var/lib/kubelet/**/*", "etc/spillway/*", "var/lib/spillway/last-good/*"),
    ]
    found = {str(one.relative_to(root)) for pattern in patterns for one in root.glob(pattern) if one.is_file()}
    assert not found
    assert (root / "etc/machine-id").read_text(encoding="ascii") == ""
    words = [word for mark in marks for word in ("-e", mark)]
    named = subprocess.run(["grep", "-rlaF", *words, "."], cwd=root, capture_output=True, text=True, check=False)
    assert named.stdout == ""
