"""The controllers of JobSets and TFJobs as processes beside the local API server, with their types and webhooks."""

from __future__ import annotations

import base64
import contextlib
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from stacks.local.ground.certificates import make_certificates
from stacks.local.ground.control_plane import apply_manifests
from stacks.local.kubeapi.client import KubeRefusedError
from stacks.local.process.ports import free_ports
from stacks.local.process.supervisor import Process
from stacks.local.toolchain.tools import TOOLS, ensure_tools
from tests.live.conftest import Plane
from tests.live.hybrid import kept, until

JOBSETS: Final = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"
TFJOBS: Final = "/apis/kubeflow.org/v1/namespaces/default/tfjobs"
_CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_WEBHOOKS: Final = "/apis/admissionregistration.k8s.io/v1"
_SECRET: Final = "training-operator-webhook-cert"  # noqa: S105 - a name
_WITH_TMP: Final = 'mount --bind "$1" /tmp; shift; exec "$@"'
"""The training operator reads its certificate from one folder of /tmp: this is a /tmp of its own."""


@contextlib.contextmanager
def jobset_controller(plane: Plane, directory: Path) -> Iterator[None]:
    """It reconciles JobSets, behind its webhooks for them.

    Its two webhooks for pods are left out: they place a JobSet alone in a zone, which no job of ours asks for.
    """
    binary = ensure_tools(["jobset"], progress=print)["jobset"]
    certificates = _certificates(directory / "certificates")
    webhook, health = free_ports(2)
    config = directory / "jobset.yaml"
    config.write_text(
        "apiVersion: config.jobset.x-k8s.io/v1alpha1\n"
        "kind: Configuration\n"
        "leaderElection: {leaderElect: false}\n"
        "internalCertManagement: {enable: false}\n"
        f"webhook: {{host: 127.0.0.1, port: {webhook}, certDir: {certificates}}}\n",
        encoding="utf-8",
    )
    process = Process(
        name="jobset",
        argv=(
            *(str(binary), f"--config={config}", "--metrics-bind-address=0"),
            f"--health-probe-bind-address=127.0.0.1:{health}",
        ),
        env={"KUBECONFIG": str(plane.kubeconfig)},
        log=str(directory / "jobset.log"),
        ready_url=f"http://127.0.0.1:{health}/readyz",
    )
    asks = partial(_webhook, certificates=certificates, port=webhook, group="jobset.x-k8s.io", version="v1alpha2")
    with (
        _types(plane, binary.with_name(Path(TOOLS["jobset"].beside).name), "jobsets.jobset.x-k8s.io", JOBSETS),
        kept([process], directory=directory),
        _asked(plane, asks("Mutating", "/mutate-jobset-x-k8s-io-v1alpha2-jobset", "jobsets", ["CREATE"])),
        _asked(plane, asks("Validating", "/validate-jobset-x-k8s-io-v1alpha2-jobset", "jobsets", ["CREATE", "UPDATE"])),
    ):
        yield


@contextlib.contextmanager
def training_operator(plane: Plane, directory: Path) -> Iterator[None]:
    """It reconciles TFJobs, behind its webhook for them."""
    binary = ensure_tools(["training-operator.v1"], progress=print)["training-operator.v1"]
    tmp = directory / "tmp"
    certificates = _certificates(tmp / "k8s-webhook-server" / "serving-certs")
    shutil.copy(plane.kubeconfig, tmp / "kubeconfig")
    shutil.copy(binary, tmp)  # the user's cache may lie in /tmp, which it does not see
    webhook, health = free_ports(2)
    process = Process(
        name="training-operator",
        argv=(
            *("unshare", "--mount", "sh", "-ec", _WITH_TMP, "sh", str(tmp), f"/tmp/{binary.name}"),  # noqa: S108 - its own
            *("--enable-scheme=tfjob", "--metrics-bind-address=0", f"--webhook-server-port={webhook}"),
            *(f"--health-probe-bind-address=127.0.0.1:{health}", f"--webhook-secret-name={_SECRET}"),
        ),
        env={"KUBECONFIG": "/tmp/kubeconfig", "MY_POD_NAMESPACE": "default"},  # noqa: S108 - its own
        log=str(directory / "training-operator.log"),
        ready_url=f"http://127.0.0.1:{health}/readyz",
    )
    asks = partial(_webhook, certificates=certificates, port=webhook, group="kubeflow.org", version="v1")
    crd = binary.with_name(Path(TOOLS["training-operator.v1"].beside).name)
    with (
        _types(plane, crd, "tfjobs.kubeflow.org", TFJOBS),
        _empty_secret(plane),  # it writes a certificate of its own into it
        kept([process], directory=directory),
        _asked(plane, asks("Validating", "/validate-kubeflow-org-v1-tfjob", "tfjobs", ["CREATE", "UPDATE"])),
    ):
        yield


def _certificates(directory: Path) -> Path:
    """A folder with ``tls.crt`` and ``tls.key`` for 127.0.0.1, and ``ca.crt``."""
    made = make_certificates(directory)
    shutil.copy(made.certificate, directory / "tls.crt")
    shutil.copy(made.key, directory / "tls.key")
    return directory


@contextlib.contextmanager
def _types(plane: Plane, crd: Path, name: str, path: str) -> Iterator[None]:
    """The API server serves the controller's own definition of its objects."""
    apply_manifests(plane.kube, crd.read_text(encoding="utf-8"))
    try:
        until(partial(_is_served, plane, path))
        yield
    finally:
        plane.kube.send("DELETE", f"{_CRDS}/{name}")
        until(lambda: not _is_served(plane, f"{_CRDS}/{name}"))


def _is_served(plane: Plane, path: str) -> bool:
    try:
        plane.kube.get(path)
    except KubeRefusedError:
        return False
    return True


def _webhook(
    kind: str,
    path: str,
    resource: str,
    operations: list[str],
    *,
    certificates: Path,
    port: int,
    group: str,
    version: str,
) -> dict[str, Any]:
    """A configuration by which the API server asks the process at that path, and refuses where it does not answer."""
    name = f"{kind.lower()}.{resource}.test"
    authority = base64.b64encode((certificates / "ca.crt").read_bytes()).decode()
    hook = {
        "name": name,
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "clientConfig": {"url": f"https://127.0.0.1:{port}{path}", "caBundle": authority},
        "rules": [{"apiGroups": [group], "apiVersions": [version], "resources": [resource], "operations": operations}],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{kind}WebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [hook],
    }


@contextlib.contextmanager
def _asked(plane: Plane, configuration: dict[str, Any]) -> Iterator[None]:
    path = f"{_WEBHOOKS}/{configuration['kind'].lower()}s"
    plane.kube.send("POST", path, configuration)
    try:
        yield
    finally:
        plane.kube.send("DELETE", f"{path}/{configuration['metadata']['name']}")


@contextlib.contextmanager
def _empty_secret(plane: Plane) -> Iterator[None]:
    path = "/api/v1/namespaces/default/secrets"
    plane.kube.send("POST", path, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": _SECRET}})
    try:
        yield
    finally:
        plane.kube.send("DELETE", f"{path}/{_SECRET}")
