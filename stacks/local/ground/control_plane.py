"""A real Kubernetes control plane on 127.0.0.1: etcd, API server, controller manager, scheduler, and KWOK.

:func:`control_plane` lays out files in a ground's folder and says which processes to hold; the keeper runs them.
KWOK plays the kubelets of nodes that carry ``kwok.x-k8s.io/node: fake``, by the stages in ``kwok_stages.yaml``.
"""

from __future__ import annotations

import base64
import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from autoscaler.model.errors import Unavailable
from stacks.local.ground.certificates import make_certificates
from stacks.local.kubeapi.client import KubeHttp, KubeRefusedError
from stacks.local.process.supervisor import Process

BINARIES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")
AUTOSCALER_USER = "spillway-autoscaler"
_USERS = {
    "admin": "system:masters",
    "system:kube-controller-manager": "system:masters",  # real clusters give each controller an account of its own
    "system:kube-scheduler": "",
    "kwok": "system:masters",
    AUTOSCALER_USER: "",
}


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """Where a control plane will answer, and the processes that make it."""

    url: str
    kubeconfig: Path
    """Of the administrator."""
    autoscaler_kubeconfig: Path
    """Of the user that ``autoscaler/rbac.yaml`` binds: what it lacks there, it lacks here."""
    processes: tuple[Process, ...]


def control_plane(
    directory: Path, *, tools: Mapping[str, Path], ports: tuple[int, int, int], address: str = "127.0.0.1"
) -> ControlPlane:
    """Write certificates, tokens and kubeconfigs into ``directory``.

    ``ports``: of etcd for clients and peers, and of the API server, which listens on ``address``: one that machines
    reach, where real ones are to join.
    """
    client, peer, api = ports
    url = f"https://{address}:{api}"
    made = make_certificates(directory / "certificates", addresses=(address,))
    tokens = {user: secrets.token_hex(16) for user in _USERS}
    token_file = directory / "tokens.csv"
    token_file.touch(mode=0o600)
    token_file.write_text(
        "".join(f'{token},{user},{user},"{_USERS[user]}"\n' for user, token in tokens.items()), encoding="utf-8"
    )
    configs = {
        user: _write_kubeconfig(
            directory / name, url=url, authority=made.authority.read_bytes(), user=user, token=tokens[user]
        )
        for user, name in {
            "admin": "kubeconfig",
            AUTOSCALER_USER: "autoscaler.kubeconfig",
            "system:kube-controller-manager": "controller-manager.kubeconfig",
            "system:kube-scheduler": "scheduler.kubeconfig",
            "kwok": "kwok.kubeconfig",
        }.items()
    }
    logs = directory / "logs"
    logs.mkdir(exist_ok=True)

    def process(name: str, *flags: str, after: tuple[str, ...] = (), ready_url: str = "") -> Process:
        return Process(
            name=name,
            argv=(str(tools[name]), *flags),
            log=str(logs / f"{name}.log"),
            after=after,
            ready_url=ready_url,
            authority=str(made.authority) if ready_url.startswith("https") else "",
        )

    return ControlPlane(
        url=url,
        kubeconfig=configs["admin"],
        autoscaler_kubeconfig=configs[AUTOSCALER_USER],
        processes=(
            process(
                "etcd",
                f"--data-dir={directory / 'etcd'}",
                f"--listen-client-urls=http://127.0.0.1:{client}",
                f"--advertise-client-urls=http://127.0.0.1:{client}",
                f"--listen-peer-urls=http://127.0.0.1:{peer}",
                f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
                f"--initial-cluster=default=http://127.0.0.1:{peer}",
                "--unsafe-no-fsync",  # this cluster's data need not outlive a power cut
                "--quota-backend-bytes=4294967296",
                "--log-level=warn",
                ready_url=f"http://127.0.0.1:{client}/health",
            ),
            process(
                "kube-apiserver",
                f"--etcd-servers=http://127.0.0.1:{client}",
                f"--secure-port={api}",
                f"--bind-address={address}",
                f"--advertise-address={address}",
                "--endpoint-reconciler-type=none",
                f"--tls-cert-file={made.certificate}",
                f"--tls-private-key-file={made.key}",
                f"--token-auth-file={token_file}",
                "--authorization-mode=Node,RBAC",
                "--enable-admission-plugins=NodeRestriction",  # a node speaks for itself and for no other
                "--enable-bootstrap-token-auth=true",
                f"--client-ca-file={made.authority}",
                # How it reaches kubelets: it believes only serving certificates that were signed here.
                f"--kubelet-certificate-authority={made.authority}",
                f"--kubelet-client-certificate={made.kubelet_client}",
                f"--kubelet-client-key={made.kubelet_client_key}",
                "--kubelet-preferred-address-types=InternalIP",
                "--service-cluster-ip-range=10.96.0.0/16",
                f"--service-account-issuer={url}",
                f"--service-account-key-file={made.account_key}",
                f"--service-account-signing-key-file={made.account_key}",
                # A ServiceAccount in every namespace takes seconds to appear; nothing here runs in a container.
                "--disable-admission-plugins=ServiceAccount",
                "--max-requests-inflight=2000",
                "--max-mutating-requests-inflight=1000",
                "--watch-cache-sizes=pods#20000,nodes#5000",
                "--v=1",
                after=("etcd",),
                ready_url=f"{url}/readyz",
            ),
            process(
                "kube-controller-manager",
                f"--kubeconfig={configs['system:kube-controller-manager']}",
                f"--service-account-private-key-file={made.account_key}",
                f"--root-ca-file={made.authority}",
                "--use-service-account-credentials=false",
                "--leader-elect=false",
                "--secure-port=0",
                "--controllers=*,tokencleaner,"
                "-nodeipam,-node-route-controller,-service-lb-controller,-cloud-node-lifecycle-controller",
                f"--cluster-signing-cert-file={made.authority}",
                f"--cluster-signing-key-file={made.authority_key}",
                "--allocate-node-cidrs=false",
                "--kube-api-qps=500",
                "--kube-api-burst=1000",
                "--concurrent-job-syncs=20",
                "--v=1",
                after=("kube-apiserver",),
            ),
            process(
                "kube-scheduler",
                f"--kubeconfig={configs['system:kube-scheduler']}",
                "--leader-elect=false",
                "--secure-port=0",
                "--kube-api-qps=500",
                "--kube-api-burst=1000",
                "--v=1",
                after=("kube-apiserver",),
            ),
            process(
                "kwok",
                f"--kubeconfig={configs['kwok']}",
                f"--config={Path(__file__).with_name('kwok_stages.yaml')}",
                "--manage-all-nodes=false",
                "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
                "--node-lease-duration-seconds=40",
                "--server-address=",
                after=("kube-apiserver",),
            ),
        ),
    )


def apply_manifests(kube: KubeHttp, text: str) -> None:
    """Server-side apply of every document of a YAML file, in order."""
    for manifest in yaml.safe_load_all(text):
        if manifest:
            path = path_of(manifest)
            kube.send(
                "PATCH",
                f"{path}/{manifest['metadata']['name']}?fieldManager=spillway-local&force=true",
                manifest,
                content="application/apply-patch+yaml",
            )


def wait_for_namespace(kube: KubeHttp, name: str = "default", *, patience: float = 60.0) -> None:
    """Until it is there: the API server makes ``default`` shortly after it is ready. Raises ``Unavailable``."""
    end = time.monotonic() + patience
    while True:
        try:
            kube.get(f"/api/v1/namespaces/{name}")
        except KubeRefusedError as refused:
            if time.monotonic() > end:
                raise Unavailable(f"the API server at {kube.url} has no namespace {name!r}: {refused}") from None
            time.sleep(0.02)
        else:
            return


_PLURALS = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "DaemonSet": "daemonsets",
    "PriorityClass": "priorityclasses",
    "RuntimeClass": "runtimeclasses",
}
_CLUSTER_WIDE = {
    *("Namespace", "ClusterRole", "ClusterRoleBinding", "PriorityClass", "RuntimeClass", "Node"),
    *("CustomResourceDefinition", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
}


def path_of(manifest: Mapping[str, object]) -> str:
    """Where objects of the manifest's kind and namespace are in the API."""
    kind, version = str(manifest["kind"]), str(manifest["apiVersion"])
    metadata = manifest["metadata"]
    namespace = metadata.get("namespace", "default") if isinstance(metadata, dict) else "default"
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    plural = _PLURALS.get(kind, f"{kind.lower()}s")
    return f"{root}/{plural}" if kind in _CLUSTER_WIDE else f"{root}/namespaces/{namespace}/{plural}"


def _write_kubeconfig(path: Path, *, url: str, authority: bytes, user: str, token: str) -> Path:
    """JSON is YAML: kubectl and every client read it."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "spillway-local",
        "clusters": [
            {
                "name": "spillway-local",
                "cluster": {"server": url, "certificate-authority-data": base64.b64encode(authority).decode()},
            }
        ],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "spillway-local", "context": {"cluster": "spillway-local", "user": user}}],
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps(config, indent=1), encoding="utf-8")
    return path
