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
from stacks.local.ground.certificates import Certificates, make_certificates
from stacks.local.kubeapi.client import KubeHttp, KubeRefusedError
from stacks.local.process.supervisor import Process

BINARIES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")
AUTOSCALER_USER = "spillway-autoscaler"
SERVICE_ADDRESS = "10.96.0.1"
"""Of the Service ``kubernetes``: the first address of the range."""
_USERS = {
    "admin": ("kubeconfig", "system:masters"),
    # Real clusters give each controller an account of its own.
    "system:kube-controller-manager": ("controller-manager.kubeconfig", "system:masters"),
    "system:kube-scheduler": ("scheduler.kubeconfig", ""),
    "kwok": ("kwok.kubeconfig", "system:masters"),
    AUTOSCALER_USER: ("autoscaler.kubeconfig", ""),
}
"""The kubeconfig and the group of each user."""


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
    directory: Path,
    *,
    tools: Mapping[str, Path],
    ports: tuple[int, int, int],
    address: str = "127.0.0.1",
    in_pods: bool = False,
) -> ControlPlane:
    """Write certificates, tokens and kubeconfigs into ``directory``.

    ``ports``: of etcd for clients and peers, and of the API server, which listens on ``address``: one that machines
    reach, where real ones are to join. ``in_pods``: what talks to it runs in pods too, which get a token of their
    ServiceAccount and know it as ``SERVICE_ADDRESS``.
    """
    client, peer, api = ports
    url = f"https://{address}:{api}"
    made = make_certificates(directory / "certificates", addresses=(address, SERVICE_ADDRESS))
    tokens = _write_tokens(directory / "tokens.csv")
    authority = made.authority.read_bytes()
    configs = {
        user: _write_kubeconfig(directory / name, url=url, authority=authority, user=user, token=tokens[user])
        for user, (name, _) in _USERS.items()
    }
    (directory / "logs").mkdir(exist_ok=True)
    plane = _Plane(directory=directory, tools=tools, url=url, made=made, configs=configs)
    return ControlPlane(
        url=url,
        kubeconfig=configs["admin"],
        autoscaler_kubeconfig=configs[AUTOSCALER_USER],
        processes=(
            plane.etcd(client=client, peer=peer),
            plane.api_server(etcd=client, address=address, port=api, in_pods=in_pods),
            plane.controller_manager(),
            plane.scheduler(),
            plane.kwok(),
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plane:
    """What the processes of one control plane share; a method gives each of them."""

    directory: Path
    tools: Mapping[str, Path]
    url: str
    made: Certificates
    configs: Mapping[str, Path]
    """Kubeconfigs, by user."""

    def etcd(self, *, client: int, peer: int) -> Process:
        """Returns the etcd process."""
        return self._process(
            "etcd",
            f"--data-dir={self.directory / 'etcd'}",
            f"--listen-client-urls=http://127.0.0.1:{client}",
            f"--advertise-client-urls=http://127.0.0.1:{client}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-cluster=default=http://127.0.0.1:{peer}",
            "--unsafe-no-fsync",  # this cluster's data need not outlive a power cut
            "--quota-backend-bytes=4294967296",
            "--log-level=warn",
            ready_url=f"http://127.0.0.1:{client}/health",
        )

    def api_server(self, *, etcd: int, address: str, port: int, in_pods: bool) -> Process:
        """Returns the kube-apiserver process."""
        # A ServiceAccount in every namespace takes seconds to appear; mostly nothing here runs in a container.
        accounts = () if in_pods else ("--disable-admission-plugins=ServiceAccount",)
        return self._process(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{etcd}",
            f"--secure-port={port}",
            f"--bind-address={address}",
            f"--advertise-address={address}",
            "--endpoint-reconciler-type=none",
            f"--tls-cert-file={self.made.certificate}",
            f"--tls-private-key-file={self.made.key}",
            f"--token-auth-file={self.directory / 'tokens.csv'}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",  # a node speaks for itself and for no other
            "--enable-bootstrap-token-auth=true",
            f"--client-ca-file={self.made.authority}",
            # How it reaches kubelets: it believes only serving certificates that were signed here.
            f"--kubelet-certificate-authority={self.made.authority}",
            f"--kubelet-client-certificate={self.made.kubelet_client}",
            f"--kubelet-client-key={self.made.kubelet_client_key}",
            "--kubelet-preferred-address-types=InternalIP",
            "--service-cluster-ip-range=10.96.0.0/16",
            f"--service-account-issuer={self.url}",
            f"--service-account-key-file={self.made.account_key}",
            f"--service-account-signing-key-file={self.made.account_key}",
            *accounts,
            "--max-requests-inflight=2000",
            "--max-mutating-requests-inflight=1000",
            "--watch-cache-sizes=pods#20000,nodes#5000",
            "--v=1",
            after=("etcd",),
            ready_url=f"{self.url}/readyz",
        )

    def controller_manager(self) -> Process:
        """Returns the kube-controller-manager process."""
        return self._process(
            "kube-controller-manager",
            f"--kubeconfig={self.configs['system:kube-controller-manager']}",
            f"--service-account-private-key-file={self.made.account_key}",
            f"--root-ca-file={self.made.authority}",
            "--use-service-account-credentials=false",
            "--leader-elect=false",
            "--secure-port=0",
            "--controllers=*,tokencleaner,"
            "-nodeipam,-node-route-controller,-service-lb-controller,-cloud-node-lifecycle-controller",
            f"--cluster-signing-cert-file={self.made.authority}",
            f"--cluster-signing-key-file={self.made.authority_key}",
            "--allocate-node-cidrs=false",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
            "--concurrent-job-syncs=20",
            "--v=1",
            after=("kube-apiserver",),
        )

    def scheduler(self) -> Process:
        """Returns the kube-scheduler process."""
        return self._process(
            "kube-scheduler",
            f"--kubeconfig={self.configs['system:kube-scheduler']}",
            "--leader-elect=false",
            "--secure-port=0",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
            "--v=1",
            after=("kube-apiserver",),
        )

    def kwok(self) -> Process:
        """The kubelets of fake nodes."""
        return self._process(
            "kwok",
            f"--kubeconfig={self.configs['kwok']}",
            f"--config={Path(__file__).with_name('kwok_stages.yaml')}",
            "--manage-all-nodes=false",
            "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
            "--node-lease-duration-seconds=40",
            "--server-address=",
            after=("kube-apiserver",),
        )

    def _process(self, name: str, *flags: str, after: tuple[str, ...] = (), ready_url: str = "") -> Process:
        return Process(
            name=name,
            argv=(str(self.tools[name]), *flags),
            log=str(self.directory / "logs" / f"{name}.log"),
            after=after,
            ready_url=ready_url,
            authority=str(self.made.authority) if ready_url.startswith("https") else "",
        )


def _write_tokens(path: Path) -> dict[str, str]:
    """A new token for each user, in the API server's format; gives them by user."""
    tokens = {user: secrets.token_hex(16) for user in _USERS}
    path.touch(mode=0o600)
    lines = (f'{token},{user},{user},"{_USERS[user][1]}"\n' for user, token in tokens.items())
    path.write_text("".join(lines), encoding="utf-8")
    return tokens


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
    """Waits for a namespace: the API server makes ``default`` shortly after it is ready. Raises ``Unavailable``."""
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
