"""What an instance of a kubeadm control plane is told at boot: a cloud-config with one script and what it must know.

It holds no secret: names of SecureStrings, never what is in them. The image, or the roles that prepare it, bring
kubeadm, kubelet, kubectl, containerd, etcdctl and the AWS CLI. Imports no Pulumi.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from shlex import quote
from typing import Any, Final

import yaml

from stacks import ROOT

SCRIPT: Final = ROOT / "stacks" / "boot" / "control_plane.sh"
LIMIT: Final = 16 * 1024
"""Bytes of user data that EC2 takes at most, before base64."""
COMMAND: Final = "/usr/local/sbin/spillway-control-plane"
MEMBER_FILE: Final = "/etc/spillway/control-plane.env"
KUBEADM_FILE: Final = "/etc/spillway/kubeadm.yaml"
NOT_YET: Final = "not-yet"
"""What a SecureString holds until the first member has written it."""
API_PORT: Final = 6443
_PATIENCE: Final = 840
_UNITS: Final = "/etc/systemd/system/spillway-{}"


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """Names of the SecureStrings by which members and nodes come in, and by which members tell of themselves."""

    token: str
    certificate_key: str
    kubeconfig: str
    version: str
    """What the API servers run."""


@dataclass(frozen=True, kw_only=True)
class MemberSpec:
    """What one member must know."""

    cluster: str
    region: str
    version: str
    first: bool
    """Whether it founds the cluster where there is none yet."""
    endpoint: str
    """Host name of the load balancer."""
    names: tuple[str, ...]
    """More names and addresses for the API server's certificate."""
    pod_network: str
    service_network: str
    data_volume: str
    key: str
    """ARN of the KMS key of the SecureStrings."""
    parameters: Parameters
    bucket: str
    snapshot_every: timedelta


def render_member(spec: MemberSpec) -> str:
    """The cloud-config. The same spec gives the same text, byte for byte."""
    seconds = int(spec.snapshot_every.total_seconds())
    files = {
        COMMAND: (SCRIPT.read_text(encoding="utf-8"), "0755"),
        MEMBER_FILE: (member_file(spec), "0644"),
        KUBEADM_FILE: (kubeadm_config(spec), "0644"),
        _UNITS.format("control-plane.service"): (_SERVICE.format(what="A member", verb="up"), "0644"),
        _UNITS.format("snapshot.service"): (_SERVICE.format(what="A snapshot of etcd", verb="snapshot"), "0644"),
        _UNITS.format("snapshot.timer"): (_TIMER.format(seconds=seconds), "0644"),
        _UNITS.format("renew-token.service"): (_SERVICE.format(what="A new token", verb="renew-token"), "0644"),
        _UNITS.format("renew-token.timer"): (_TIMER.format(seconds=3600), "0644"),
    }
    entries = [
        {"path": path, "owner": "root:root", "permissions": mode, "content": text}
        for path, (text, mode) in files.items()
    ]
    start = [
        ["systemctl", "daemon-reload"],
        ["systemctl", "enable", "--now", "--no-block", "spillway-control-plane.service"],
        ["systemctl", "enable", "--now", "spillway-snapshot.timer", "spillway-renew-token.timer"],
    ]
    return "#cloud-config\n" + yaml.safe_dump({"write_files": entries, "runcmd": start}, sort_keys=False, width=1000)


def member_file(spec: MemberSpec) -> str:
    """What the script reads: one shell variable a line."""
    said = {
        "CLUSTER": spec.cluster,
        "REGION": spec.region,
        "FIRST": "yes" if spec.first else "no",
        "ENDPOINT": f"{spec.endpoint}:{API_PORT}",
        "DATA_VOLUME": spec.data_volume,
        "KEY": spec.key,
        "BUCKET": spec.bucket,
        "TOKEN_PARAMETER": spec.parameters.token,
        "CERTIFICATE_KEY_PARAMETER": spec.parameters.certificate_key,
        "KUBECONFIG_PARAMETER": spec.parameters.kubeconfig,
        "VERSION_PARAMETER": spec.parameters.version,
        "NOT_YET": NOT_YET,
        "PATIENCE": str(_PATIENCE),
        "KUBEADM_CONFIG": KUBEADM_FILE,
        "KUBERNETES_DIR": "/etc/kubernetes",
        "KUBELET_DIR": "/var/lib/kubelet",
        "ETCD_DIR": "/var/lib/etcd",
        "DATA_DIR": "/var/lib/spillway",
    }
    return "".join(f"{name}={quote(value)}\n" for name, value in said.items())


def kubeadm_config(spec: MemberSpec) -> str:
    """The cluster as kubeadm is to found it; the member's script adds the key that only it knows."""
    cluster: dict[str, Any] = {
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "ClusterConfiguration",
        "clusterName": spec.cluster,
        "kubernetesVersion": f"v{spec.version}",
        "controlPlaneEndpoint": f"{spec.endpoint}:{API_PORT}",
        "networking": {"podSubnet": spec.pod_network, "serviceSubnet": spec.service_network},
        "apiServer": {"certSANs": [spec.endpoint, "localhost", "127.0.0.1", *spec.names]},
    }
    return yaml.safe_dump(cluster, sort_keys=False)


def healthy_command() -> str:
    """What waits on an instance until its member is one: run by Systems Manager, which `pulumi up` waits for."""
    wait = f"until {COMMAND} healthy; do sleep 5; done"
    return f"timeout {_PATIENCE} sh -c {json.dumps(wait)}"


_SERVICE: Final = f"""\
[Unit]
Description={{what}} of the control plane
After=network-online.target containerd.service
Wants=network-online.target
[Service]
Type=oneshot
ExecStart={COMMAND} {{verb}}
[Install]
WantedBy=multi-user.target
"""
_TIMER: Final = """\
[Timer]
OnBootSec=10min
OnUnitActiveSec={seconds}s
RandomizedDelaySec=60s
[Install]
WantedBy=timers.target
"""
