"""The autoscaler's own release in a cluster with a real kubelet: its manifests, its image, its way to AWS."""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from autoscaler.config.release_manifests import NAME, NAMESPACE, aws_secret
from autoscaler.model import labels as words
from stacks.local.ground.control_plane import SERVICE_ADDRESS, apply_manifests
from stacks.local.kubeapi.client import KubeHttp
from stacks.local.process.paths import cache_root
from stacks.local.toolchain.go_builds import find_go
from tests.live.hybrid import Aws, Cable, stand_in_aws, until, write_policy
from tests.live.lab import Lab, spillway
from tests.live.machines import Host
from tests.training.image import AUTOSCALER

PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
ACCOUNT: Final = f"system:serviceaccount:{NAMESPACE}:{NAME}"
POLICY: Final = """
cluster: test
groups:
  - name: gpu
    instance_type: g5.12xlarge
    zones: [us-east-1a]
    max: 4
    usd_per_hour: 5.672
    taints: [{key: nvidia.com/gpu}]
scale_up: {boot_timeout: 60s}
scale_down: {idle_after: 5s}
"""
_OPERATOR: Final = "github.com/prometheus-operator/prometheus-operator"
_OPERATOR_VERSION: Final = "v0.82.0"


@dataclass(frozen=True, slots=True)
class Released:
    """It runs."""

    kube: KubeHttp
    host: Host
    aws: Aws
    manifests: list[dict[str, Any]]

    def pods(self) -> list[dict[str, Any]]:
        """Of the Deployment, those that are to stay."""
        found = self.kube.get(f"{PODS}?labelSelector=app.kubernetes.io/name={NAME}")["items"]
        return [one for one in found if "deletionTimestamp" not in one["metadata"]]

    def ready(self) -> bool:
        """Both replicas are."""
        found = [one for pod in self.pods() for one in pod["status"].get("conditions", ()) if one["type"] == "Ready"]
        return [one["status"] for one in found] == ["True", "True"]

    def leader(self) -> str:
        """The pod that holds the lease; empty where none does."""
        leases = self.kube.get(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases")["items"]
        return next((one["spec"].get("holderIdentity", "") for one in leases if one["metadata"]["name"] == NAME), "")

    def evict(self, pod: str) -> None:
        """As `kubectl drain` does. Raises ``KubeRefusedError`` where a budget forbids it."""
        self.kube.send("POST", f"{PODS}/{pod}/eviction", {"metadata": {"name": pod, "namespace": NAMESPACE}})

    def may(self, verb: str, resource: str, *, group: str = "", name: str = "", namespace: str = NAMESPACE) -> bool:
        """Whether the API server lets its account do that."""
        about = {"verb": verb, "group": group, "resource": resource, "name": name, "namespace": namespace}
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}", "system:authenticated"]
        asked = {"spec": {"user": ACCOUNT, "groups": groups, "resourceAttributes": about}}
        said = self.kube.send("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", asked)
        return bool(said["status"]["allowed"])

    def texts(self) -> str:
        """What its replicas said, the ended ones too, and how the pods do."""
        said = self.host.run(f"cat /var/log/pods/{NAMESPACE}_*/*/*.log", check=False).stdout
        states = [(one["metadata"]["name"], one["spec"].get("nodeName"), one["status"]) for one in self.pods()]
        return f"{said[-6000:]}\n{json.dumps(states)[-4000:]}"

    def scraped(self) -> list[str]:
        """What the ServiceMonitor means: the addresses behind its Services, by labels, at its port, by name.

        The operator has Prometheus look for them itself, which Debian's cannot.
        """
        [monitor] = self.kube.get(f"/apis/monitoring.coreos.com/v1/namespaces/{NAMESPACE}/servicemonitors")["items"]
        [endpoint] = monitor["spec"]["endpoints"]
        labels = ",".join(f"{key}={value}" for key, value in monitor["spec"]["selector"]["matchLabels"].items())
        services = self.kube.get(f"/api/v1/namespaces/{NAMESPACE}/services?labelSelector={labels}")["items"]
        slices = self.kube.get(f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices")["items"]
        names = {one["metadata"]["name"] for one in services}
        return [
            f"{address}:{port['port']}"
            for one in slices
            if one["metadata"]["labels"]["kubernetes.io/service-name"] in names
            for port in one["ports"]
            if port["name"] == endpoint["port"]
            for place in one["endpoints"]
            for address in place["addresses"]
        ]


@contextlib.contextmanager
def released(ground: Lab, host: Host, folder: Path) -> Iterator[Released]:
    """What `autoscale manifests` prints, applied to the cluster, with an AWS that its pods reach."""
    kube = ground.kube
    _let_pods_reach(ground, host)
    apply_manifests(kube, service_monitors())
    with stand_in_aws(folder / "aws", kubeconfig=ground.kubeconfig) as aws:
        file, policy = write_policy(folder, POLICY)
        aws.make_groups(policy)
        cable = Cable(int(aws.url.rpartition(":")[2]), address=ground.bench.gateway)
        line = ("autoscale", "manifests", "--policy", str(file), "--image", AUTOSCALER)
        done = spillway(*line, "--aws-access", "access-key", "--service-monitor")
        assert done.returncode == 0, done.stderr
        made = list(yaml.safe_load_all(done.stdout))
        key = aws.env | {"AWS_ENDPOINT_URL": f"http://{ground.bench.gateway}:{cable.port}"}
        [namespace] = [one for one in made if one["kind"] == "Namespace"]
        secret = {"apiVersion": "v1", "kind": "Secret", "stringData": key}
        secret["metadata"] = {"name": aws_secret("autoscaler"), "namespace": NAMESPACE}
        apply_manifests(kube, yaml.safe_dump_all([namespace, secret]))
        until(lambda: _is_served(kube))
        apply_manifests(kube, done.stdout)
        running = Released(kube=kube, host=host, aws=aws, manifests=made)
        try:
            yield running
        finally:
            kube.send("DELETE", f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{NAME}")
            until(lambda: not kube.get(PODS)["items"], told=running.texts)
            for rest in (
                f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{words.LEASE}",
                f"/api/v1/namespaces/{NAMESPACE}/configmaps",
            ):
                kube.send("DELETE", rest)
            cable.pull_out()


def _let_pods_reach(ground: Lab, host: Host) -> None:
    """The API server by the address of its Service: what kube-proxy would do, which this ground lacks."""
    to = ground.url.removeprefix("https://")
    host.run(f"iptables -t nat -A PREROUTING -d {SERVICE_ADDRESS} -p tcp --dport 443 -j DNAT --to-destination {to}")


def _is_served(kube: KubeHttp) -> bool:
    groups = kube.get("/apis")["groups"]
    return any(one["name"] == "monitoring.coreos.com" for one in groups)


def service_monitors() -> str:
    """The Prometheus operator's own definition of a ServiceMonitor, from its Go module; it is kept in the cache.

    Skips the test where no module proxy can be reached.
    """
    kept = cache_root() / f"service-monitors-{_OPERATOR_VERSION}.yaml"
    if kept.exists():
        return kept.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory(prefix="spillway-go-") as place:
        go = find_go(scratch=Path(place))
        asked = subprocess.run(
            [go.command, "mod", "download", "-json", f"{_OPERATOR}@{_OPERATOR_VERSION}"],
            cwd=place,
            env={**go.env, "GOFLAGS": "-modcacherw"},
            capture_output=True,
            text=True,
            check=False,
        )
        said = json.loads(asked.stdout or "{}")
        if asked.returncode:
            pytest.skip(f"{_OPERATOR} cannot be fetched: {said.get('Error') or asked.stderr}")
        crds = Path(said["Dir"]) / "example" / "prometheus-operator-crd"
        text = (crds / "monitoring.coreos.com_servicemonitors.yaml").read_text(encoding="utf-8")
    kept.write_text(text, encoding="utf-8")
    return text
