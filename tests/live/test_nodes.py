"""Bare Debian machines become Ready nodes of a real cluster, run pods, and are left alone from then on."""

from __future__ import annotations

import itertools
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

import roles
from roles.deploys.health import CONDITION, health_script
from roles.facts.nodes import AUTHORITY
from roles.membership import bootstrap
from roles.settings.cluster import Kubelet
from roles.settings.machine import MachineSettings
from stacks.local.ground.control_plane import apply_manifests
from tests.live.hybrid import until
from tests.live.lab import BUSYBOX, FAILING, Lab, sleeper, spillway
from tests.live.machines import Host
from tests.test_roles.test_texts import NOBODY

pytestmark = pytest.mark.live

ROLLING = ("--batch", "3", "--max-down", "3")
SERVICES = ("containerd", "kubelet", "systemd-journald")


@pytest.fixture(scope="module")
def machines(ground: Lab) -> list[Host]:
    """Three bare machines."""
    return ground.bench.machines("node-1", "node-2", "node-3")


@pytest.fixture(scope="module")
def applied(ground: Lab, machines: list[Host]) -> list[str]:
    """The names of the machines, once the first run is over."""
    done = run(ground, machines, "apply", *ROLLING)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "Spillway nodes: 3 clean\nChanged: node-1, node-2, node-3\n"
    return [host.name for host in machines]


_AS_IN_A_POD = """
mount -t tmpfs tmpfs /run && mkdir -p /run/secrets/kubernetes.io/serviceaccount
cp "$0/token" "$0/ca.crt" /run/secrets/kubernetes.io/serviceaccount && exec "$@"
"""


def run(
    ground: Lab, machines: list[Host], command: str, *words: str, owner: str = "vision"
) -> subprocess.CompletedProcess[str]:
    """A command of `spillway nodes` for these machines, as an operator gives it."""
    inventory = ground.inventory(machines, owner=owner)
    cluster = () if command == "plan" else ("--kubeconfig", str(ground.kubeconfig))
    state = ("--state", str(ground.directory / "state"))
    return spillway("nodes", command, "-i", str(inventory), *state, *cluster, *words)


def pids(host: Host) -> str:
    """When the machine and its services started, as process ids."""
    shown = " ".join(SERVICES)
    return host.boot_id() + host.run(f"systemctl show -p MainPID -p ExecMainStartTimestamp {shown}").stdout


def test_bare_machines_become_ready_nodes(ground: Lab, applied: list[str]) -> None:
    """By `nodes apply` alone; with labels and taints of the inventory, and with nothing left of the way in."""
    nodes = {node["metadata"]["name"]: node for node in ground.kube.get("/api/v1/nodes")["items"]}
    assert sorted(nodes) == applied
    for name, node in nodes.items():
        ready = next(one for one in node["status"]["conditions"] if one["type"] == "Ready")
        assert ready["status"] == "True", ready
        assert node["metadata"]["labels"]["spillway.dev/owner"] == "vision"
        assert node["spec"]["taints"] == [{"key": "lab.example/shared", "value": "yes", "effect": "NoSchedule"}]
        assert node["spec"]["providerID"] == f"onprem://{name}"
    secrets = ground.kube.get("/api/v1/namespaces/kube-system/secrets")["items"]
    assert [one["metadata"]["name"] for one in secrets if one["type"].startswith("bootstrap")] == []


def test_pods_run_to_completion_on_each(ground: Lab, applied: list[str]) -> None:
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
        until(lambda path=path: ground.kube.get(path)["status"]["phase"] == "Succeeded")
        assert text_of(ground, f"{path}/log") == f"hello from hello-{name}\n"


def test_a_second_run_changes_and_restarts_nothing(ground: Lab, machines: list[Host], applied: list[str]) -> None:
    """Not even a process id differs."""
    before = [pids(host) for host in machines]
    again = run(ground, machines, "apply", *ROLLING)
    assert (again.returncode, again.stdout.splitlines()[-1]) == (0, "Spillway nodes: 3 clean")
    assert [pids(host) for host in machines] == before


def test_the_kubelet_serves_only_whom_the_cluster_lets_in(machines: list[Host], applied: list[str]) -> None:
    """Its certificate is signed for its own name and address; nobody without one is answered."""
    host = machines[0]
    shown = host.run("openssl x509 -noout -ext subjectAltName -in /var/lib/kubelet/pki/kubelet-server-current.pem")
    assert f"DNS:{host.name}, IP Address:{host.address}" in shown.stdout
    asked = host.run(
        "curl -s -o /dev/null -w '%{http_code}' --cacert /etc/kubernetes/pki/ca.crt"
        f" --resolve {host.name}:10250:{host.address} https://{host.name}:10250/pods"
    )
    assert asked.stdout == "401"


def test_a_machine_says_by_itself_what_is_ill(machines: list[Host], applied: list[str]) -> None:
    """The health check finds nothing; then the kubelet is gone, and it finds that."""
    host = machines[2]
    assert host.run("/usr/local/sbin/spillway-node-health").stdout == ""
    host.run("systemctl stop kubelet")
    ill = host.run("/usr/local/sbin/spillway-node-health", check=False)
    host.run("systemctl start kubelet")
    assert (ill.returncode, ill.stdout) == (1, "ill: kubelet\n")
    metrics = host.run("cat /var/lib/prometheus/node-exporter/spillway_health.prom").stdout
    assert 'spillway_node_healthy{check="containerd"} 1' in metrics


def test_a_node_says_that_a_gpu_is_ill_and_since_when(ground: Lab, machines: list[Host], applied: list[str]) -> None:
    """As its kubelet does, of no other; the time of the change is kept. `nvidia-smi` is a script of three words."""
    host, smi = machines[1], "/usr/bin/nvidia-smi"
    kubelet = Kubelet(server=ground.url, authority=NOBODY)
    machine = MachineSettings(name=host.name, address=host.address, gpu_count=2, kubelet=kubelet)
    check = f"sh -c {shlex.quote(health_script(machine))}"

    def told() -> tuple[str, str, str]:
        conditions = ground.kube.get(f"/api/v1/nodes/{host.name}")["status"]["conditions"]
        (one,) = (one for one in conditions if one["type"] == CONDITION)
        return one["status"], one["message"], one["lastTransitionTime"]

    def with_gpus(count: int) -> None:
        host.run(f"printf '#!/bin/sh\\nyes GPU | head -n {count}\\n' > {smi}; chmod 755 {smi}")
        assert host.run(check, check=False).stderr == ""

    try:
        with_gpus(2)
        assert told()[:2] == ("True", "spillway-node-health: all is well")
        with_gpus(1)
        status, message, since = told()
        assert (status, message) == ("False", "spillway-node-health: gpus")
        time.sleep(1.1)  # times are in whole seconds
        with_gpus(1)
        assert told() == (status, message, since)
        other = host.run(
            "cd /var/lib/kubelet && curl -s -o /dev/null -w '%{http_code}' -X PATCH"
            " --cert pki/kubelet-client-current.pem"
            f" --cacert {AUTHORITY} -H 'Content-Type: application/merge-patch+json' -d '{{}}'"
            f" $(awk '$1 == \"server:\" {{print $2}}' kubeconfig)/api/v1/nodes/node-1/status"
        )
        assert other.stdout == "403"
        with_gpus(2)
        assert told()[0] == "True"
    finally:
        host.run(f"rm -f {smi}")


def test_a_label_changes_without_a_restart(ground: Lab, machines: list[Host], applied: list[str]) -> None:
    """What the inventory no longer declares goes; what others wrote stays."""
    path = "/api/v1/nodes/node-1"
    ground.kube.send(
        "PATCH", path, {"metadata": {"labels": {"lab.example/other": "1"}}}, content="application/merge-patch+json"
    )
    before = [pids(host) for host in machines]
    planned = run(ground, machines, "plan", owner="speech")
    assert planned.returncode == 2
    assert planned.stdout.count("the node's labels and taints") == 3
    done = run(ground, machines, "apply", *ROLLING, "--smoke-image", BUSYBOX, owner="speech")
    assert done.returncode == 0, done.stdout + done.stderr
    labels = ground.kube.get(path)["metadata"]["labels"]
    assert (labels["spillway.dev/owner"], labels["lab.example/other"]) == ("speech", "1")
    assert [pids(host) for host in machines] == before
    assert smoke_pods(ground) == {f"spillway-nodes-smoke-{name}" for name in applied}  # each ran, and is gone
    assert ground.kube.get("/api/v1/namespaces/default/pods?labelSelector=app.kubernetes.io/managed-by")["items"] == []


def smoke_pods(ground: Lab) -> set[str]:
    """The pods of health gates whose container a kubelet has started."""
    events = ground.kube.get("/api/v1/namespaces/default/events?fieldSelector=reason=Started")["items"]
    names = {event["involvedObject"]["name"] for event in events}
    return {name for name in names if "smoke" in name}


def test_a_smoke_pod_that_fails_closes_its_node_and_halts_the_rollout(
    ground: Lab, machines: list[Host], applied: list[str]
) -> None:
    """The canary stays closed, the others are as they were; once the pod runs, an operator's word opens it."""
    options = (*ROLLING, "--health-seconds", "8", "--smoke-image", FAILING)
    halted = run(ground, machines, "apply", *options, owner="robots")
    assert halted.returncode == 5, halted.stdout + halted.stderr
    assert "node-1: unhealthy after the change: the smoke pod spillway-nodes-smoke-node-1" in halted.stderr
    nodes = {name: ground.kube.get(f"/api/v1/nodes/{name}") for name in applied}
    assert [name for name, node in nodes.items() if node["spec"].get("unschedulable")] == ["node-1"]
    assert nodes["node-1"]["metadata"]["annotations"]["spillway.dev/nodes-phase"] == "failed"
    assert nodes["node-2"]["metadata"]["labels"]["spillway.dev/owner"] == "speech"
    again = run(ground, machines, "apply", *ROLLING, "--smoke-image", BUSYBOX, owner="robots")
    assert again.returncode == 5, again.stdout + again.stderr
    done = run(ground, machines, "apply", *ROLLING, "--smoke-image", BUSYBOX, "--retry", owner="robots")
    assert done.returncode == 0, done.stdout + done.stderr
    nodes = {name: ground.kube.get(f"/api/v1/nodes/{name}") for name in applied}
    assert {node["metadata"]["labels"]["spillway.dev/owner"] for node in nodes.values()} == {"robots"}
    assert not any(node["spec"].get("unschedulable") for node in nodes.values())


def test_a_node_that_owes_a_reboot_is_drained_and_rebooted(
    ground: Lab, machines: list[Host], applied: list[str]
) -> None:
    """Its pods leave by eviction first; it comes back Ready and open, with another boot; the others go on running."""
    path = "/api/v1/namespaces/default/pods"
    ground.kube.send("POST", path, sleeper("stays-until-asked", applied[1]))
    until(lambda: ground.kube.get(f"{path}/stays-until-asked")["status"]["phase"] == "Running")
    before = [pids(host) for host in machines]
    machines[1].run("touch /run/reboot-required; echo linux-image-lab > /run/reboot-required.pkgs")
    held = run(ground, machines, "reconcile", *ROLLING, owner="robots")
    assert held.returncode == 2, held.stdout + held.stderr
    assert "reboot is more than reload, and default/stays-until-asked would end: it waits for a drain" in held.stdout
    done = run(ground, machines, "apply", *ROLLING, "--smoke-image", BUSYBOX, owner="robots")
    assert done.returncode == 0, done.stdout + done.stderr
    after = [pids(host) for host in machines]
    assert [one == other for one, other in zip(before, after, strict=True)] == [True, False, True]
    assert after[1].splitlines()[0] != before[1].splitlines()[0]
    node = ground.kube.get(f"/api/v1/nodes/{applied[1]}")
    assert "unschedulable" not in node["spec"]
    assert any(one["type"] == "Ready" and one["status"] == "True" for one in node["status"]["conditions"])
    assert "stays-until-asked" not in [one["metadata"]["name"] for one in ground.kube.get(path)["items"]]
    assert run(ground, machines, "plan", owner="robots").returncode == 0


def test_a_configured_machine_is_adopted_as_it_is(
    ground: Lab, machines: list[Host], applied: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The inventory that is written for it has an empty plan; what is taken out of it again is seen."""
    host, file = machines[2], tmp_path / "adopted.yaml"
    assert host.name in applied
    monkeypatch.setenv("HOME", str(tmp_path))  # nobody has used ssh there
    adopted = spillway("nodes", "adopt", host.address, "--key", str(ground.bench.key), "--output", str(file))
    assert adopted.returncode == 0, adopted.stdout + adopted.stderr
    assert spillway("nodes", "plan", "-i", str(file)).returncode == 0
    written = yaml.safe_load(file.read_text(encoding="utf-8"))
    (entry,) = written["machines"]
    assert (entry["name"], entry["settings"]["kubelet"]["server"]) == (host.name, ground.url)
    assert entry["settings"]["untested"] == ["kubelet with containerd"]
    spared = entry["settings"].pop("left_alone")
    file.write_text(yaml.safe_dump(written), encoding="utf-8")
    planned = spillway("nodes", "plan", "-i", str(file), "--full")
    assert planned.returncode == 2
    assert all(resource in planned.stdout for resource in spared)


def test_a_night_of_the_cronjob(ground: Lab, machines: list[Host], applied: list[str], tmp_path: Path) -> None:
    """Its command as a process, with its account's token where a pod has it: a node that was lost joins again."""
    apply_manifests(ground.kube, (Path(roles.__file__).parent / "nightly" / "cronjob.yaml").read_text("utf-8"))
    asked = "/api/v1/namespaces/spillway/serviceaccounts/spillway-nodes/token"
    token = ground.kube.send("POST", asked, {"spec": {"expirationSeconds": 3600}})["status"]["token"]
    (tmp_path / "token").write_text(token, encoding="ascii")
    shutil.copy(ground.authority, tmp_path / "ca.crt")
    inventory = yaml.safe_load(ground.inventory(machines, owner="night").read_text(encoding="utf-8"))
    del inventory["settings"]["kubeconfig"]
    (tmp_path / "inventory.yaml").write_text(yaml.safe_dump(inventory), encoding="utf-8")
    lost = machines[2]
    lost.run("systemctl stop kubelet; rm -rf /var/lib/kubelet/pki /var/lib/kubelet/kubeconfig")
    ground.kube.send("DELETE", f"/api/v1/nodes/{lost.name}")
    job = ground.kube.get("/apis/batch/v1/namespaces/spillway/cronjobs/spillway-nodes")
    (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    mounts = {"/etc/spillway/inventory.yaml": "inventory.yaml", "/var/lib/spillway": "state"}
    words = [str(tmp_path / mounts[word]) if word in mounts else word for word in container["args"]]
    host, _, port = ground.url.removeprefix("https://").partition(":")
    environment = {key: value for key, value in os.environ.items() if key != "KUBECONFIG"}
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-ec", _AS_IN_A_POD, str(tmp_path), sys.executable, "-m", *words],
        env=environment | {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "Spillway nodes: 3 clean\nChanged: node-1, node-2, node-3\n"
    node = ground.kube.get(f"/api/v1/nodes/{lost.name}")
    assert node["metadata"]["labels"]["spillway.dev/owner"] == "night"
    assert any(one["type"] == "Ready" and one["status"] == "True" for one in node["status"]["conditions"])


def test_a_stolen_token_gives_no_other_node(ground: Lab, machines: list[Host], applied: list[str]) -> None:
    """With a token made for one node, its bearer asks for another one, and for more than a node: nobody approves."""
    assert applied
    kube = bootstrap.Kube.connect(ground.kubeconfig)
    token = bootstrap.mint_token(kube, "node-9")
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
            bootstrap.expected_node(kube, "node-9", "198.18.0.99"),
            bootstrap.expected_node(kube, "node-1", machines[0].address),
        ]
        verdicts = {one.request: one.refused_because for one in bootstrap.approve_pending(kube, expected)}
        assert verdicts == {"other": "no token is valid for node-1"}
        for name in ("other", "root"):
            raw = ground.kube.get(f"/apis/certificates.k8s.io/v1/certificatesigningrequests/{name}")
            assert not raw.get("status", {}).get("certificate")
    finally:
        bootstrap.drop_tokens(kube, "node-9")
    names = (f"late-{number}" for number in itertools.count())
    until(lambda: ask_for_certificate(ground, token, name=next(names), csr=csr) == 401)


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
    return bootstrap.Kube.connect(ground.kubeconfig).get(path).decode()
