"""Bare Debian machines become Ready nodes of a real cluster, run pods, and are left alone from then on."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from roles import join
from tests.live.hybrid import until
from tests.live.lab import BUSYBOX, Lab, lab
from tests.live.machines import Bench, Host

pytestmark = pytest.mark.live

SERVICES = ("containerd", "kubelet", "systemd-journald")


@pytest.fixture(scope="module")
def ground(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Control plane and mirror."""
    with lab(bench, tmp_path_factory.mktemp("lab")) as made:
        yield made


@pytest.fixture(scope="module")
def machines(ground: Lab) -> list[Host]:
    """Three bare machines."""
    return ground.bench.machines("node-1", "node-2", "node-3")


@pytest.fixture(scope="module")
def applied(ground: Lab, machines: list[Host]) -> dict[str, Any]:
    """What the first run said."""
    return prepare(ground.inventory(machines), "apply")


def prepare(inventory: Path, *words: str) -> dict[str, Any]:
    """A run in a process of its own."""
    argv = [sys.executable, "-m", "tests.live.prepare", str(inventory), *words]
    done = subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def pids(host: Host) -> str:
    """When the machine and its services started, as process ids."""
    shown = " ".join(SERVICES)
    return host.boot_id() + host.run(f"systemctl show -p MainPID -p ExecMainStartTimestamp {shown}").stdout


def test_bare_machines_become_ready_nodes(ground: Lab, applied: dict[str, Any]) -> None:
    """By one run; with labels and taints of the inventory, and with nothing left of the way in."""
    assert {name: said["failed"] for name, said in applied.items()} == dict.fromkeys(applied, "")
    nodes = {node["metadata"]["name"]: node for node in ground.kube.get("/api/v1/nodes")["items"]}
    assert sorted(nodes) == ["node-1", "node-2", "node-3"]
    for name, node in nodes.items():
        assert next(one["status"] for one in node["status"]["conditions"] if one["type"] == "Ready") == "True"
        assert node["metadata"]["labels"]["spillway.dev/owner"] == "vision"
        assert node["spec"]["taints"] == [{"key": "lab.example/shared", "value": "yes", "effect": "NoSchedule"}]
        assert node["spec"]["providerID"] == f"onprem://{name}"
    secrets = ground.kube.get("/api/v1/namespaces/kube-system/secrets")["items"]
    assert [one["metadata"]["name"] for one in secrets if one["type"].startswith("bootstrap")] == []


def test_pods_run_to_completion_on_each(ground: Lab, applied: dict[str, Any]) -> None:
    """Sandbox and container from archives, no registry; the log comes back through the signed serving certificate."""
    for name in applied:
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"hello-{name}", "namespace": "default"},
            "spec": {
                "nodeSelector": {"kubernetes.io/hostname": name},
                "tolerations": [{"key": "lab.example/shared", "operator": "Exists"}],
                "restartPolicy": "Never",
                "automountServiceAccountToken": False,
                "containers": [
                    {"name": "c", "image": BUSYBOX, "args": ["-c", "/bin/busybox echo hello from $HOSTNAME"]}
                ],
            },
        }
        ground.kube.send("POST", "/api/v1/namespaces/default/pods", pod)
    for name in applied:
        path = f"/api/v1/namespaces/default/pods/hello-{name}"
        until(lambda path=path: ground.kube.get(path)["status"]["phase"] == "Succeeded", within=90)
        assert text_of(ground, f"{path}/log") == f"hello from hello-{name}\n"


def test_a_second_run_changes_and_restarts_nothing(ground: Lab, machines: list[Host], applied: dict[str, Any]) -> None:
    """Not even a process id differs."""
    before = [pids(host) for host in machines]
    again = prepare(ground.inventory(machines), "apply")
    assert {name: said["planned"] for name, said in again.items()} == {name: [] for name in applied}
    assert [pids(host) for host in machines] == before


def test_the_kubelet_serves_only_whom_the_cluster_lets_in(machines: list[Host], applied: dict[str, Any]) -> None:
    """Its certificate is signed for its own name and address; nobody without one is answered."""
    host = machines[0]
    shown = host.run("openssl x509 -noout -ext subjectAltName -in /var/lib/kubelet/pki/kubelet-server-current.pem")
    assert f"DNS:{host.name}, IP Address:{host.address}" in shown.stdout
    asked = host.run(
        "curl -s -o /dev/null -w '%{http_code}' --cacert /etc/kubernetes/pki/ca.crt"
        f" --resolve {host.name}:10250:{host.address} https://{host.name}:10250/pods"
    )
    assert asked.stdout == "401"


def test_a_machine_says_by_itself_what_is_ill(machines: list[Host], applied: dict[str, Any]) -> None:
    """The health check finds nothing; then the kubelet is gone, and it finds that."""
    host = machines[2]
    assert host.run("/usr/local/sbin/spillway-node-health").stdout == ""
    host.run("systemctl stop kubelet")
    ill = host.run("/usr/local/sbin/spillway-node-health", check=False)
    host.run("systemctl start kubelet")
    assert (ill.returncode, ill.stdout) == (1, "ill: kubelet\n")
    metrics = host.run("cat /var/lib/prometheus/node-exporter/spillway_health.prom").stdout
    assert 'spillway_node_healthy{check="containerd"} 1' in metrics


def test_a_label_and_a_taint_change_without_a_restart(
    ground: Lab, machines: list[Host], applied: dict[str, Any]
) -> None:
    """What the inventory no longer declares goes; what others wrote stays."""
    path = "/api/v1/nodes/node-1"
    ground.kube.send(
        "PATCH", path, {"metadata": {"labels": {"lab.example/other": "1"}}}, content="application/merge-patch+json"
    )
    file = ground.inventory(machines)
    file.write_text(file.read_text(encoding="utf-8").replace("owner: vision", "owner: speech"), encoding="utf-8")
    before = [pids(host) for host in machines]
    said = prepare(file, "apply")
    assert {tuple(one["planned"]) for one in said.values()} == {("the node's labels and taints",)}
    labels = ground.kube.get(path)["metadata"]["labels"]
    assert (labels["spillway.dev/owner"], labels["lab.example/other"]) == ("speech", "1")
    assert [pids(host) for host in machines] == before


def test_a_stolen_token_gives_no_other_node(ground: Lab, machines: list[Host], applied: dict[str, Any]) -> None:
    """With a token made for one node, its bearer asks for another one, and for more than a node: nobody approves."""
    assert applied
    kube = join.Kube.connect(ground.kubeconfig)
    token = join.mint_token(kube, "node-9")
    try:
        mine = ground.bench.machines("thief")[0]
        for name, subject in {
            "other": "/O=system:nodes/CN=system:node:node-1",
            "root": "/O=system:masters/CN=me",
        }.items():
            mine.run(f"openssl req -new -nodes -newkey rsa:2048 -keyout /tmp/k -out /tmp/{name}.csr -subj {subject}")
            csr = mine.run(f"base64 -w0 /tmp/{name}.csr").stdout
            answer = ask_for_certificate(ground, token, name=name, csr=csr)
            assert answer == 201
        expected = [
            join.expected_node(kube, "node-9", "198.18.0.99"),
            join.expected_node(kube, "node-1", machines[0].address),
        ]
        verdicts = {one.request: one.refused_because for one in join.approve_pending(kube, expected)}
        assert verdicts == {"other": "no token is valid for node-1"}
        for name in ("other", "root"):
            raw = ground.kube.get(f"/apis/certificates.k8s.io/v1/certificatesigningrequests/{name}")
            assert not raw.get("status", {}).get("certificate")
    finally:
        join.drop_tokens(kube, "node-9")
    assert ask_for_certificate(ground, token, name="late", csr=csr) == 401


def ask_for_certificate(ground: Lab, token: str, *, name: str, csr: str) -> int:
    """As the bearer of the token; gives HTTP's status."""
    import urllib3  # noqa: PLC0415

    body = {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {
            "request": csr,
            "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
            "usages": ["client auth"],
        },
    }
    pool = urllib3.PoolManager(ca_certs=str(ground.authority))
    url = f"{ground.url}/apis/certificates.k8s.io/v1/certificatesigningrequests"
    answer = pool.request("POST", url, json=body, headers={"Authorization": f"Bearer {token}"})
    return int(answer.status)


def text_of(ground: Lab, path: str) -> str:
    """An answer that is no JSON."""
    return join.Kube.connect(ground.kubeconfig).get(path).decode()
