"""Real parts for the live tests: one control plane per test process, started once, ended with it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from stacks.local.ground.control_plane import BINARIES, ControlPlane, apply_manifests, control_plane, wait_for_namespace
from stacks.local.ground.lifecycle import ENGINE_BINARIES, RBAC
from stacks.local.kubeapi.client import KubeHttp
from stacks.local.process.ports import free_ports
from stacks.local.toolchain.tools import ensure_tools
from tests.live.debian import why_not
from tests.live.hybrid import kept, stand_in_aws
from tests.live.lab import Lab, lab
from tests.live.machines import Bench


@dataclass(frozen=True, slots=True)
class Plane:
    """A running control plane with KWOK."""

    url: str
    kubeconfig: Path
    autoscaler_kubeconfig: Path
    kube: KubeHttp
    directory: Path

    @classmethod
    def of(cls, made: ControlPlane, kube: KubeHttp, directory: Path) -> Plane:
        """Of one that has been started."""
        return cls(made.url, made.kubeconfig, made.autoscaler_kubeconfig, kube, directory)

    def fake_node(self, name: str, **amounts: str) -> None:
        """Register a node that KWOK makes ready; its amounts as Kubernetes quantities (``gpu`` is nvidia.com/gpu)."""
        capacity = {"cpu": "16", "memory": "64Gi", "pods": "110"} | {
            {"gpu": "nvidia.com/gpu"}.get(key, key): value for key, value in amounts.items()
        }
        self.kube.send(
            "POST",
            "/api/v1/nodes",
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {
                    "name": name,
                    "annotations": {"kwok.x-k8s.io/node": "fake"},
                    "labels": {"kubernetes.io/hostname": name},
                },
                "status": {"allocatable": capacity, "capacity": capacity},
            },
        )


@pytest.fixture(scope="session")
def tools() -> dict[str, Path]:
    """The built tools; a first run builds them, which takes minutes."""
    return dict(ensure_tools(BINARIES, progress=lambda line: print(line, flush=True)))


@pytest.fixture(scope="session")
def engine() -> dict[str, Path]:
    """The binaries of the Pulumi engine."""
    return dict(ensure_tools(ENGINE_BINARIES, progress=lambda line: print(line, flush=True)))


@pytest.fixture(scope="module")
def aws_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A stand-in for AWS, of each module's own."""
    with stand_in_aws(tmp_path_factory.mktemp("aws"), boot_delay="0s") as aws:
        yield aws.url


@pytest.fixture(scope="session")
def control_plane_process(tools: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """The processes of one control plane, for the whole session of this test process."""
    directory = tmp_path_factory.mktemp(f"plane-{os.getpid()}")
    ports = free_ports(3)
    plane = control_plane(directory, tools=tools, ports=(ports[0], ports[1], ports[2]))
    with kept(plane.processes, directory=directory):
        kube = KubeHttp(plane.kubeconfig)
        wait_for_namespace(kube)
        apply_manifests(kube, RBAC.read_text(encoding="utf-8"))
        yield Plane.of(plane, kube, directory)


@pytest.fixture
def plane(control_plane_process: Plane) -> Iterator[Plane]:
    """The control plane, emptied of what a test left: pods, jobs, services, nodes, events, and what autoscalers wrote.

    One that was killed leaves a lease that has to run out, an order that the next would make again, and a ledger.
    """
    yield control_plane_process
    everything = (
        "/apis/batch/v1/namespaces/default/jobs?propagationPolicy=Background",
        "/apis/apps/v1/namespaces/default/daemonsets?propagationPolicy=Background",
        "/api/v1/namespaces/default/pods?gracePeriodSeconds=0",
        "/api/v1/namespaces/default/services?fieldSelector=metadata.name!=kubernetes",
        "/api/v1/namespaces/default/events",
        "/api/v1/nodes",
        "/apis/coordination.k8s.io/v1/namespaces/spillway/leases",
        "/api/v1/namespaces/spillway/configmaps",
    )
    for path in everything:  # whole collections: the server passes over what its garbage collector took meanwhile
        control_plane_process.kube.send("DELETE", path)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A bench for Debian machines, for one module of tests; see :mod:`tests.live.machines`."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    with Bench(tmp_path_factory.mktemp("bench")) as made:
        yield made


@pytest.fixture(scope="module")
def ground(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Control plane and mirror beside the bench."""
    with lab(bench, tmp_path_factory.mktemp("lab")) as made:
        yield made
