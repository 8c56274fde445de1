"""What a live test of the autoscaler stands on: the stand-in for AWS with a policy's groups, and the real command."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import boto3

from autoscaler.config.policy import Policy, asg_name, interruption_queue, read_policy
from autoscaler.model import labels as words
from autoscaler.model.constraints import Taint
from stacks.local.kubeapi.client import KubeHttp
from stacks.local.process.ports import free_ports
from stacks.local.process.supervisor import Process, answers, start_keeper, stop_keeper, tail
from stacks.nodes.interruptions import PATTERN
from stacks.nodes.node_groups import group_tags
from stacks.nodes.user_data import NodeSpec, render_user_data
from tests.live.zygote import AWS, SPILLWAY, Child, zygote

AN_IMAGE = "ami-12c6146b"
"""The stand-in has it in every region."""
_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
"""Seconds between two looks: of a cheap one, and of the dearest."""
POLICY = """
cluster: test
groups:
  - name: gpu
    instance_type: g5.12xlarge
    zones: [us-east-1a]
    max: 4
    usd_per_hour: 5.672
    taints: [{key: nvidia.com/gpu}]
scale_up: {boot_timeout: 30s}
scale_down: {idle_after: 60s}
"""


@dataclass(frozen=True, slots=True)
class Aws:
    """A running stand-in."""

    url: str
    env: dict[str, str] = field(repr=False)

    def client(self, service: str) -> Any:
        """A boto3 client of it."""
        keys = {"aws_access_key_id": "local", "aws_secret_access_key": "local", "region_name": "us-east-1"}
        return boto3.client(service, endpoint_url=self.url, **keys)  # type: ignore[call-overload]

    def asked(self, action: str = "LaunchInstances") -> list[dict[str, Any]]:
        """Every call of that name that was granted, oldest first."""
        with urllib.request.urlopen(f"{self.url}/spillway/requests", timeout=10) as answer:  # noqa: S310 - our own
            requests = json.load(answer)["requests"]
        return [one for one in requests if one["action"] == action and not one["error"]]

    def put_faults(self, *faults: dict[str, Any]) -> None:
        """Put these in force, in place of those before."""
        body = json.dumps({"faults": list(faults)}).encode()
        request = urllib.request.Request(f"{self.url}/spillway/faults", data=body, method="PUT")  # noqa: S310
        urllib.request.urlopen(request, timeout=10).close()  # noqa: S310

    def interrupt(self, instance: str, *, kind: str = "interruption", after: str = "2m") -> None:
        """EC2 tells now that it takes the instance back, and does so later."""
        body = json.dumps({"instance": instance, "kind": kind, "after": after}).encode()
        request = urllib.request.Request(f"{self.url}/spillway/interruptions", data=body, method="POST")  # noqa: S310
        urllib.request.urlopen(request, timeout=10).close()  # noqa: S310

    def make_interruption_queue(self, cluster: str) -> None:
        """What EventBridge tells of instances goes there, as the stacks make it."""
        sqs, events, name = self.client("sqs"), self.client("events"), interruption_queue(cluster)
        url = sqs.create_queue(QueueName=name)["QueueUrl"]
        arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        events.put_rule(Name=name, EventPattern=json.dumps(PATTERN))
        events.put_targets(Rule=name, Targets=[{"Id": "autoscaler", "Arn": arn}])

    def make_groups(self, policy: Policy) -> None:
        """One Auto Scaling group for each entry and zone, as the stacks make them."""
        ec2, scaling = self.client("ec2"), self.client("autoscaling")
        subnets = {one["AvailabilityZone"]: one["SubnetId"] for one in ec2.describe_subnets()["Subnets"]}
        for entry in policy.groups:
            labels = {words.ORIGIN: words.EC2, words.GROUP: entry.name, words.CAPACITY_TYPE: entry.capacity_type}
            taints = tuple(taint.as_taint() for taint in entry.taints)
            taints += (Taint(words.RESERVED),) if policy.scale_up.reserve else ()
            spec = NodeSpec(cluster=policy.cluster, labels=labels | entry.labels, taints=taints)
            data: dict[str, Any] = {
                "ImageId": AN_IMAGE,
                "InstanceType": entry.types[0],
                "UserData": base64.b64encode(render_user_data(spec).encode()).decode(),
            }
            if entry.capacity_reservation:
                target = {"CapacityReservationId": entry.capacity_reservation}
                data["CapacityReservationSpecification"] = {"CapacityReservationTarget": target}
            if entry.capacity_type == "capacity-block":
                data["InstanceMarketOptions"] = {"MarketType": "capacity-block"}
            for zone in entry.zones:
                name = asg_name(policy.cluster, entry.name, zone)
                tags = group_tags(policy.cluster, policy.region, entry, zone, reserved=policy.scale_up.reserve)
                ec2.create_launch_template(LaunchTemplateName=name, LaunchTemplateData=data)
                scaling.create_auto_scaling_group(
                    AutoScalingGroupName=name,
                    MinSize=0,
                    MaxSize=entry.max,
                    LaunchTemplate={"LaunchTemplateName": name, "Version": "$Latest"},
                    VPCZoneIdentifier=subnets[zone],
                    Tags=[{"Key": key, "Value": value, "PropagateAtLaunch": False} for key, value in tags.items()],
                )


@contextlib.contextmanager
def stand_in_aws(
    directory: Path, *, kubeconfig: Path | None = None, boot_delay: str = "1s", port: int | None = None
) -> Iterator[Aws]:
    """The stand-in as its own process for the length of a ``with`` block."""
    directory.mkdir(exist_ok=True)
    port = port or free_ports(1)[0]
    url, log = f"http://127.0.0.1:{port}", directory / "aws.log"
    cluster = ("--kubeconfig", str(kubeconfig)) if kubeconfig else ()
    server = zygote(AWS).start(
        *("--port", str(port), "--boot-delay", boot_delay, "--retry-after", "1s", *cluster), log=log
    )
    try:
        until(lambda: server.poll() is not None or answers(f"{url}/spillway/health"), told=partial(tail, log))
        assert server.poll() is None, tail(log)
        yield Aws(
            url=url,
            env={
                "AWS_ENDPOINT_URL": url,
                "AWS_ACCESS_KEY_ID": "local",
                "AWS_SECRET_ACCESS_KEY": "local",
                "AWS_DEFAULT_REGION": "us-east-1",
                "AWS_EC2_METADATA_DISABLED": "true",
            },
        )
        server.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(20)
    finally:
        server.kill()
        server.wait()


@contextlib.contextmanager
def kept(processes: Sequence[Process], *, directory: Path) -> Iterator[None]:
    """Processes under a keeper for the length of a ``with`` block."""
    keeper = start_keeper(processes, directory=directory, tie=True)
    try:
        yield
    finally:
        stop_keeper(directory)
        keeper.wait(timeout=60)
        if keeper.stdin:
            keeper.stdin.close()


@dataclass(slots=True)
class Autoscaler:
    """The real command, as its own process."""

    process: Child | subprocess.Popen[bytes]
    log: Path

    def said(self) -> list[dict[str, Any]]:
        """Its log so far."""
        lines = self.log.read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def texts(self) -> str:
        """What it said to people, and on standard error."""
        return self.log.read_text(encoding="utf-8")

    def kill(self) -> None:
        """As the kernel would: no handler runs."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """As a user would; gives the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)


@contextlib.contextmanager
def autoscaler(
    *words_: str, policy: Path, env: dict[str, str], kubeconfig: Path, log: Path, anew: bool = False
) -> Iterator[Autoscaler]:
    """`spillway autoscale run` for the length of a ``with`` block.

    ``anew``: with a start and memory of its own, to be measured; else forked from a process that has imported it.
    """
    line = ["autoscale", "run", "--policy", str(policy), "--kubeconfig", str(kubeconfig), "--log-format", "json"]
    line += words_
    process: Child | subprocess.Popen[bytes]
    if anew:
        with log.open("ab") as out:
            argv = [sys.executable, "-m", "spillway", *line]
            process = subprocess.Popen(argv, env=os.environ | env, stdout=out, stderr=out)
    else:
        process = zygote(SPILLWAY).start(*line, log=log, env=env)
    try:
        yield Autoscaler(process, log)
    finally:
        process.kill()
        process.wait()


class Cable:
    """A TCP connection to a port of this machine that can be pulled out and put back.

    ``address``: where it is plugged in, for what does not run on this machine.
    """

    def __init__(self, to: int, *, address: str = "127.0.0.1") -> None:
        self._to, self._address = to, address
        self.port = free_ports(1)[0]
        self._open: set[socket.socket] = set()
        self._listener: socket.socket | None = None
        self.put_back()

    def put_back(self) -> None:
        """Connections are made again."""
        self._listener = socket.create_server((self._address, self.port))
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def pull_out(self) -> None:
        """Every connection breaks, and new ones are refused."""
        if self._listener is not None:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
        for one in tuple(self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.create_connection(("127.0.0.1", self._to))
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self._carry, args=(one, other), daemon=True).start()

    def _carry(self, one: socket.socket, other: socket.socket) -> None:
        self._open.add(one)
        with contextlib.suppress(OSError):
            while data := one.recv(2**16):
                other.sendall(data)
        self._open.discard(one)
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        one.close()


def send_all(kube: KubeHttp, requests: Iterable[tuple[str, str, Any]]) -> None:
    """Sends requests (method, path, body) beside each other, and returns when all have been answered."""
    with ThreadPoolExecutor(max_workers=8) as pool:
        list(pool.map(lambda request: kube.send(*request), requests))


def until(holds: Callable[[], Any], *, within: float = 120.0, told: Callable[[], object] = lambda: "") -> Any:
    """What ``holds`` gives once it is true. Fails the test where it does not become so; ``told`` says why.

    A look that takes long, such as a login to a machine, is made less often: it leaves the CPU to what it waits for.
    """
    end = time.monotonic() + within
    while True:
        began = time.monotonic()
        if found := holds():
            return found
        now = time.monotonic()
        assert now < end, told()
        time.sleep(min(max(_PAUSE, 2 * (now - began)), _LONGEST_PAUSE))


def gpu_pod(name: str, *, gpus: int = 4, **metadata: Any) -> dict[str, Any]:
    """A pod that needs GPUs and may go to EC2."""
    container = {"name": "c", "image": "i", "resources": {"limits": {words.GPU: gpus}, "requests": {"cpu": "1"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", **metadata},
        "spec": {
            "containers": [container],
            "tolerations": [{"key": words.GPU, "operator": "Exists"}],
            "terminationGracePeriodSeconds": 0,
        },
    }


def make_pod(kube: KubeHttp, pod: dict[str, Any]) -> None:
    """Create it."""
    kube.send("POST", "/api/v1/namespaces/default/pods", pod)


def bound(kube: KubeHttp, pod: str) -> str:
    """The node that the pod is bound to; empty while it is not."""
    return str(kube.get(f"/api/v1/namespaces/default/pods/{pod}")["spec"].get("nodeName", ""))


def write_policy(directory: Path, text: str = POLICY) -> tuple[Path, Policy]:
    """The policy as a file and as read."""
    path = directory / "policy.yaml"
    path.write_text(text, encoding="utf-8")
    return path, read_policy(path)
