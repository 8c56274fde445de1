"""A cluster at the size that the numbers are about: a real API server, so many KWOK nodes and running pods."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoscaler.config.policy import Policy, read_policy
from autoscaler.model.errors import Unavailable
from stacks.local.ground.control_plane import BINARIES, apply_manifests, control_plane, wait_for_namespace
from stacks.local.ground.lifecycle import RBAC
from stacks.local.kubeapi.client import KubeHttp
from stacks.local.process.ports import free_ports
from stacks.local.toolchain.tools import ensure_tools
from tests.live.hybrid import Aws, kept, stand_in_aws

POLICY = """
cluster: bench
groups:
  - name: gpu
    instance_type: g5.12xlarge
    zones: [us-east-1a]
    max: 1000
    usd_per_hour: 5.672
    taints: [{key: nvidia.com/gpu}]
scale_up: {boot_timeout: 2h}
"""
"""Nothing that is bought ever joins while the benchmark runs: each probe needs a purchase of its own."""


@dataclass(frozen=True, slots=True)
class Size:
    """How big."""

    nodes: int = 1000
    pods: int = 10_000


@dataclass(frozen=True, slots=True)
class Loaded:
    """The cluster, loaded."""

    kube: KubeHttp
    kubeconfig: Path
    autoscaler_kubeconfig: Path
    aws: Aws
    policy: Path
    rules: Policy
    directory: Path


@contextlib.contextmanager
def loaded_cluster(directory: Path, size: Size) -> Iterator[Loaded]:
    """Stand it up and fill it; everything ends with the ``with`` block."""
    tools = ensure_tools(BINARIES, progress=_say)
    ports = free_ports(3)
    plane = control_plane(directory, tools=tools, ports=(ports[0], ports[1], ports[2]))
    with kept(plane.processes, directory=directory):
        kube = KubeHttp(plane.kubeconfig, connections=32)
        wait_for_namespace(kube)
        apply_manifests(kube, RBAC.read_text(encoding="utf-8"))
        policy = directory / "policy.yaml"
        policy.write_text(POLICY, encoding="utf-8")
        rules = read_policy(policy)
        with stand_in_aws(directory / "aws", kubeconfig=plane.kubeconfig, boot_delay="2h") as aws:
            aws.make_groups(rules)
            _fill(kube, size)
            yield Loaded(
                kube=kube,
                kubeconfig=plane.kubeconfig,
                autoscaler_kubeconfig=plane.autoscaler_kubeconfig,
                aws=aws,
                policy=policy,
                rules=rules,
                directory=directory,
            )


def _fill(kube: KubeHttp, size: Size) -> None:
    began = time.monotonic()
    with ThreadPoolExecutor(max_workers=16) as pool:
        list(pool.map(lambda number: kube.send("POST", "/api/v1/nodes", _node(number)), range(size.nodes)))
        _say(f"{size.nodes} nodes after {time.monotonic() - began:.0f} s")
        path = "/api/v1/namespaces/default/pods"
        list(pool.map(lambda number: kube.send("POST", path, _pod(number, size)), range(size.pods)))
    _say(f"{size.pods} pods after {time.monotonic() - began:.0f} s")
    end = time.monotonic() + 300
    while _is_one_not_running(kube):
        if time.monotonic() > end:
            raise Unavailable("the pods of the benchmark do not all run after 300 s: is the machine busy?")
        time.sleep(1)
    _say(f"all of them run after {time.monotonic() - began:.0f} s")


def _node(number: int) -> dict[str, Any]:
    name = f"node-{number:04d}"
    capacity = {"cpu": "64", "memory": "256Gi", "pods": "110", "ephemeral-storage": "500Gi"}
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"rack-{number % 20}"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": {"kwok.x-k8s.io/node": "fake"}, "labels": labels},
        "status": {"allocatable": capacity, "capacity": capacity},
    }


def _pod(number: int, size: Size) -> dict[str, Any]:
    """Bound already, as if the scheduler had done it: ten thousand of them are load, not what is measured."""
    app = f"app-{number % 50}"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"pod-{number:05d}", "labels": {"app": app, "pod-template-hash": f"{number % 997:x}"}},
        "spec": {
            "nodeName": f"node-{number % size.nodes:04d}",
            "containers": [
                {"name": "main", "image": "image", "resources": {"requests": {"cpu": "2", "memory": f"{number % 8}Gi"}}}
            ],
        },
    }


def _is_one_not_running(kube: KubeHttp) -> bool:
    return bool(kube.get("/api/v1/pods?fieldSelector=status.phase%21%3DRunning&limit=1")["items"])


def _say(line: str) -> None:
    print(f"  {line}", flush=True)
