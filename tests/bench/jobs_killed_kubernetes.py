"""A cluster of two machines for ``jobs-killed``: real kubelets and containerd, under the real autoscaler."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from autoscaler.kube.client import Kube
from autoscaler.model import labels as words
from images.backends import kubernetes
from images.renderers.kubernetes import LOGS_SECRET
from stacks.local.ground.control_plane import apply_manifests
from stacks.local.ground.lifecycle import RBAC
from stacks.local.kubeapi.client import KubeRefusedError
from tests.bench.jobs_killed_places import BACK, CUT_OFF, DEAD, LAUNCHERS, Strikes, processes_below, typed
from tests.live.bucket import Bucket
from tests.live.hybrid import autoscaler, stand_in_aws, until, write_policy
from tests.live.lab import PAUSE, Lab, digest_of, lab, spillway
from tests.live.machines import Bench, Host
from tests.live.python_image import spillway_image
from tests.training.cluster_dns import cluster_dns

IMAGE: Final = "lab.local/python:1"
_SANDBOX: Final = "a pod's sandbox"
_OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"
_PODS: Final = "/api/v1/namespaces/default/pods"


@dataclass
class Kubernetes:
    """Two nodes; either has room for the whole job."""

    ground: Lab
    hosts: list[Host]
    home: Path
    dns: str
    """Where names of the cluster are asked for."""
    bucket: Bucket | None = None
    python: str = "python3"
    seconds: tuple[float, ...] = (1.0, 8.0)
    told: Mapping[str, str] = field(default_factory=dict)
    cuts = LAUNCHERS | {CUT_OFF, DEAD, BACK, _SANDBOX}
    _lost: Host | None = None
    _kube: Kube = field(init=False)
    more: str = field(init=False)

    def __post_init__(self) -> None:
        """Connect as users do."""
        self._kube = Kube.connect(self.ground.kubeconfig)
        self.more = f"image: {IMAGE}, volumes: [{{mount: {self.home}, host: {self.home}}}]"

    def submit(self, file: Path) -> None:
        """By the command line."""
        self._typed("submit", str(file))

    def outcome(self, name: str) -> str:
        """As its Jobs say."""
        return kubernetes.outcome(self._kube, namespace="default", name=name)

    def strikes(self, name: str) -> Strikes:
        """At pods, what runs them, and machines.

        Of one that is cut off the Node is deleted, as of an instance which is gone, or its owner says that it is out of
        service: https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/#non-graceful-node-shutdown.
        """
        pods = [pod for pod in self._pods() if pod["metadata"]["labels"].get(words.JOB) == name]
        used = {pod["spec"].get("nodeName") for pod in pods}
        there = [host for host in self.hosts if host is not self._lost and host.name in used]
        return {
            "a pod": [partial(self._delete, f"{_PODS}/{pod['metadata']['name']}") for pod in pods],
            "kubelet": [partial(_end, host, "kubelet") for host in there],
            "containerd": [partial(_end, host, "containerd") for host in there],
            _SANDBOX: [
                partial(os.kill, pid, signal.SIGKILL)
                for host in there
                for pid in processes_below(host.process.pid, lambda command: command == [*PAUSE])
            ],
            CUT_OFF: [partial(self._cut, host) for host in there if self._lost is None],
            DEAD: [partial(self._declare_dead, host) for host in there if self._lost is None],
            BACK: [partial(self._restart, host) for host in there],
        }

    def held(self) -> list[str]:
        """Pods that have not ended, and hold something of a machine that is there."""
        gone = self._lost.name if self._lost else ""
        return [
            f"{pod['metadata']['name']} on {pod['spec']['nodeName']}"
            for pod in self._pods()
            if pod["status"]["phase"] in ("Pending", "Running") and pod["spec"].get("nodeName", gone) != gone
        ]

    def forget(self, name: str) -> None:
        """By the command line; the machine is started again, and a node as it was."""
        self._typed("delete", name)
        if self._lost is None:
            return
        self._restart(self._lost)
        try:
            self._taint(self._lost, None)
        except KubeRefusedError:  # its Node was deleted
            join(self.ground, self.hosts, dns=self.dns)
        self._lost = None
        until(lambda: all(map(_is_ready, self.ground.kube.get("/api/v1/nodes")["items"])), within=120)

    def _restart(self, host: Host) -> None:
        """Where its Node is there, it is the same one afterwards."""
        self.hosts[self.hosts.index(host)] = self.ground.bench.restart(host)

    def _typed(self, *line: str) -> None:
        typed(*line, "--kubeconfig", str(self.ground.kubeconfig))

    def _pods(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ground.kube.get(_PODS)["items"]
        return found

    def _delete(self, path: str) -> None:
        with contextlib.suppress(KubeRefusedError):  # it is gone
            self.ground.kube.send("DELETE", path)

    def _cut(self, host: Host) -> None:
        self._lost = host
        host.process.kill()
        self._delete(f"/api/v1/nodes/{host.name}")

    def _declare_dead(self, host: Host) -> None:
        self._lost = host
        host.process.kill()
        self._taint(host, {"key": _OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"})

    def _taint(self, host: Host, taint: dict[str, str] | None) -> None:
        """Put the mark of a machine that is out of service on its Node, or take it away."""
        path = f"/api/v1/nodes/{host.name}"
        others = [one for one in self.ground.kube.get(path)["spec"].get("taints", ()) if one["key"] != _OUT_OF_SERVICE]
        taints = [*others, *([taint] if taint else [])]
        self.ground.kube.send("PATCH", path, {"spec": {"taints": taints}}, content="application/merge-patch+json")


def _is_ready(node: dict[str, Any]) -> bool:
    conditions = node["status"].get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _end(host: Host, unit: str) -> None:
    """It is started again by systemd, after five seconds. Raises ``ProcessLookupError`` while it is not."""
    if host.run(f"systemctl kill --kill-who=main --signal=KILL {unit}", check=False).returncode:
        raise ProcessLookupError


@contextlib.contextmanager
def cluster(bench: Bench, *, home: Path, directory: Path, kept: Bucket | None) -> Iterator[Kubernetes]:
    """Two machines made nodes, and the autoscaler that lets gangs in, for the length of a ``with`` block.

    Pods have the keys of a bucket from a Secret.
    """
    directory.mkdir()
    for one in ("lab", "brain"):
        (directory / one).mkdir()
    with lab(bench, directory / "lab") as ground, cluster_dns(ground) as dns:
        spillway_image(ground.directory / "mirror" / "python.tar", IMAGE)
        hosts = bench.machines("k1", "k2")
        join(ground, hosts, dns=dns)
        apply_manifests(ground.kube, RBAC.read_text(encoding="utf-8"))
        if kept:
            secret = {"metadata": {"name": LOGS_SECRET}, "stringData": kept.environment}
            ground.kube.send("POST", "/api/v1/namespaces/default/secrets", secret)
        account, brain = ground.directory / "autoscaler.kubeconfig", directory / "brain"
        with stand_in_aws(brain / "aws", kubeconfig=ground.kubeconfig) as aws:
            file, policy = write_policy(brain)
            aws.make_groups(policy)
            with autoscaler(policy=file, env=aws.env, kubeconfig=account, log=brain / "log") as running:
                made = Kubernetes(ground=ground, hosts=hosts, home=home, dns=dns, bucket=kept)
                until(lambda: _leads(ground), told=running.texts)
                yield made


def join(ground: Lab, hosts: list[Host], *, dns: str) -> None:
    """`nodes apply`; the image is brought as an archive, for there is no registry."""
    given = yaml.safe_load(ground.inventory(hosts).read_text(encoding="utf-8"))
    archive = ground.directory / "mirror" / "python.tar"
    entry = {"name": IMAGE, "url": f"{ground.mirror}/{archive.name}", "sha256": digest_of(archive)}
    given["settings"]["container_runtime"]["images"].append(entry)
    given["settings"]["kubelet"]["cluster_dns"] = [dns]  # tasks that see no common directory find each other by name
    for machine in given["machines"]:
        del machine["taints"]
    inventory = ground.directory / "nodes.yaml"
    inventory.write_text(yaml.safe_dump(given), encoding="utf-8")
    state = ("--state", str(ground.directory / "state"))
    done = spillway("nodes", "apply", "-i", str(inventory), "--kubeconfig", str(ground.kubeconfig), *state)
    assert done.returncode == 0, done.stdout + done.stderr


def _leads(ground: Lab) -> bool:
    leases = ground.kube.get("/apis/coordination.k8s.io/v1/namespaces/spillway/leases")["items"]
    return any(one["metadata"]["name"] == words.LEASE and one["spec"].get("holderIdentity") for one in leases)
