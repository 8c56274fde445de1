"""The nightly CronJob as a real pod on a real node, and a machine whose cgroups systemd manages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import roles
from roles.rollout import health_gate
from stacks.local.ground.control_plane import apply_manifests
from tests.live.hybrid import until
from tests.live.lab import Lab, sleeper, spillway
from tests.live.machines import Host
from tests.live.python_image import spillway_image

pytestmark = pytest.mark.live

IMAGE = "lab.local/spillway:1"
STATE = "/var/lib/spillway-nights"
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


@pytest.fixture(scope="module")
def machines(ground: Lab) -> list[Host]:
    """One with cgroupfs, which runs the night; one whose cgroups systemd manages."""
    hosts = ground.bench.machines("node-1", "node-2")
    done = apply(ground, hosts)
    assert done == "Spillway nodes: 2 clean\nChanged: node-1, node-2\n"
    return hosts


def inventory(ground: Lab, hosts: list[Host], **changed: Any) -> dict[str, Any]:
    """Of these machines, without taints; the second has another cgroup driver."""
    given: dict[str, Any] = yaml.safe_load(ground.inventory(hosts).read_text(encoding="utf-8"))
    for machine in given["machines"]:
        del machine["taints"]
        machine.update(changed)
    given["machines"][1]["settings"]["container_runtime"] = {"cgroup_driver": "systemd"}
    return given


def apply(ground: Lab, hosts: list[Host]) -> str:
    """What `nodes apply` says."""
    file = ground.directory / "two.yaml"
    file.write_text(yaml.safe_dump(inventory(ground, hosts)), encoding="utf-8")
    rolling = ("--batch", "2", "--max-down", "2", "--state", str(ground.directory / "state"))
    done = spillway("nodes", "apply", "-i", str(file), "--kubeconfig", str(ground.kubeconfig), *rolling)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_kubelet_and_containerd_agree_on_systemd(ground: Lab, machines: list[Host]) -> None:
    """Both files say it, both services run, the node is Ready, and a pod's processes are in a scope of systemd."""
    host = machines[1]
    kubelet = json.loads(host.run("cat /etc/kubernetes/kubelet.json").stdout)
    assert kubelet["cgroupDriver"] == "systemd"
    assert "SystemdCgroup = true" in host.run("containerd config dump").stdout
    assert host.run("systemctl is-active containerd kubelet").stdout.split() == ["active", "active"]
    path = "/api/v1/namespaces/default/pods"
    ground.kube.send("POST", path, sleeper("in-a-scope", host.name))
    until(lambda: ground.kube.get(f"{path}/in-a-scope")["status"]["phase"] == "Running")
    groups = host.run("cat /proc/$(pgrep -f 'sleep 3600' | head -n 1)/cgroup").stdout
    assert "/cri-containerd-" in groups
    assert ".scope" in groups
    ground.kube.send("DELETE", f"{path}/in-a-scope")


def test_a_runtime_that_disagrees_does_not_pass_the_gate(ground: Lab, machines: list[Host]) -> None:
    """What somebody wrote into containerd's file alone is drift, and would keep a node closed after a change."""
    host = machines[1]
    host.run("sed -i 's/SystemdCgroup = true/SystemdCgroup = false/' /etc/containerd/config.toml")
    said = host.run(health_gate.SCRIPT + "true").stdout
    assert "the runtime runc has SystemdCgroup = false, the kubelet not" in health_gate.why_unhealthy(said)
    assert apply(ground, machines).endswith("Changed: node-2\n")
    assert health_gate.why_unhealthy(host.run(health_gate.SCRIPT + "true").stdout) == ""


def test_the_cronjob_runs_as_a_pod(ground: Lab, machines: list[Host], tmp_path: Path) -> None:
    """From the shipped manifest: a Job of its template ends well, its key comes out of its Secret, its report is kept.

    Put in by hand: what an admission controller and kube-proxy add elsewhere (the account's token, the way to the API
    server), a volume, and an image.
    """
    host = machines[0]
    archive = spillway_image(tmp_path / "spillway.tar", IMAGE)
    (ground.directory / "mirror" / "spillway.tar").symlink_to(archive)
    host.run(
        f"curl -sf -o /root/spillway.tar {ground.mirror}/spillway.tar && ctr -n k8s.io images import /root/spillway.tar"
        f" && rm /root/spillway.tar && install -d -o 65532 -g 65532 {STATE}",
        timeout=300,
    )
    lay_out(ground, machines)
    machines[1].run("echo 0 > /proc/sys/net/ipv4/ip_forward; rm /etc/logrotate.d/spillway")
    job = ground.kube.get("/apis/batch/v1/namespaces/spillway/cronjobs/spillway-nodes")["spec"]["jobTemplate"]
    made = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "tonight"},
        "spec": as_admitted(ground, job["spec"]),
    }
    jobs = "/apis/batch/v1/namespaces/spillway/jobs"
    ground.kube.send("POST", jobs, made)
    until(lambda: over(ground.kube.get(f"{jobs}/tonight")), within=240)
    (pod,) = ground.kube.get("/api/v1/namespaces/spillway/pods?labelSelector=job-name%3Dtonight")["items"]
    written = f"/var/log/pods/spillway_{pod['metadata']['name']}_*/reconcile/0.log"
    log = host.run(f"cat {written}", check=False).stdout + json.dumps(pod["status"])
    assert ground.kube.get(f"{jobs}/tonight")["status"].get("succeeded") == 1, log
    assert "Spillway nodes: 2 clean" in log
    assert machines[1].run("cat /proc/sys/net/ipv4/ip_forward; ls /etc/logrotate.d/spillway").stdout.startswith("1\n")
    night = json.loads(host.run(f"cat {STATE}/report.json").stdout)
    assert [one["host"] for one in night["machines"]] == ["node-1", "node-2"]
    assert "<html" in host.run(f"cat {STATE}/report.html").stdout
    lease = ground.kube.get("/apis/coordination.k8s.io/v1/namespaces/spillway/leases/spillway-nodes")
    assert not lease["spec"].get("holderIdentity"), "the lease was given back"


def lay_out(ground: Lab, machines: list[Host]) -> None:
    """What the manifest's head asks for, and a volume for its claim."""
    apply_manifests(ground.kube, (Path(roles.__file__).parent / "nightly" / "cronjob.yaml").read_text("utf-8"))
    given = inventory(ground, machines)
    del given["settings"]["kubeconfig"]
    given["settings"]["kubelet"]["authority"] = ground.authority.read_text(encoding="ascii")
    for machine in given["machines"]:
        machine["ssh"]["key"] = "/etc/spillway-ssh/id_ed25519"
    data = {"inventory.yaml": yaml.safe_dump(given)}
    space = "/api/v1/namespaces/spillway"
    key = ground.bench.key.read_text(encoding="ascii")
    ground.kube.send("POST", f"{space}/configmaps", {"metadata": {"name": "spillway-nodes"}, "data": data})
    secret = {"metadata": {"name": "spillway-nodes-ssh"}, "stringData": {"id_ed25519": key}}
    ground.kube.send("POST", f"{space}/secrets", secret)
    authority = {"metadata": {"name": "authority"}, "data": {"ca.crt": ground.authority.read_text(encoding="ascii")}}
    ground.kube.send("POST", f"{space}/configmaps", authority)
    volume = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": STATE}}
    ground.kube.send("POST", "/api/v1/persistentvolumes", {"metadata": {"name": "nights"}, "spec": volume})


def as_admitted(ground: Lab, spec: dict[str, Any]) -> dict[str, Any]:
    """The Job's specification as the API server of a whole cluster would have it, on the node that has the volume."""
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    host, _, port = ground.url.removeprefix("https://").partition(":")
    container["image"] = IMAGE
    container["imagePullPolicy"] = "Never"
    container["env"] += [
        {"name": "KUBERNETES_SERVICE_HOST", "value": host},
        {"name": "KUBERNETES_SERVICE_PORT", "value": port},
    ]
    container["volumeMounts"].append({"name": "account", "mountPath": ACCOUNT, "readOnly": True})
    token = {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}}
    authority = {"configMap": {"name": "authority"}}
    pod["volumes"].append({"name": "account", "projected": {"sources": [token, authority]}})
    pod["nodeSelector"] = {"kubernetes.io/hostname": "node-1"}
    return spec


def over(job: dict[str, Any]) -> bool:
    """Well or not."""
    return any(one["type"] in ("Complete", "Failed") for one in job.get("status", {}).get("conditions", ()))
