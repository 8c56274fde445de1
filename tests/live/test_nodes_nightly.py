"""What is shipped for the night is what systemd and the API server take, and what the run needs is allowed."""

from __future__ import annotations

import base64
import copy
import itertools
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from autoscaler.kube.client import Kube, Refused
from autoscaler.model.errors import Unavailable
from roles.membership import bootstrap
from roles.rollout.lock import LEASE, only_run
from roles.rollout.model import Phase, Resident
from roles.rollout.node_state import Marks
from roles.rollout.ssh_hosts import smoke_pod
from stacks.local.ground.control_plane import apply_manifests, path_of
from tests import ROOT
from tests.live.conftest import Plane

NIGHTLY = ROOT / "roles" / "nightly"
NODE = "night-1"
NUMBERS = itertools.count()
pytestmark = pytest.mark.live


def shipped(kind: str) -> list[dict[str, Any]]:
    """The objects of that kind in what is shipped."""
    text = (NIGHTLY / "cronjob.yaml").read_text(encoding="utf-8")
    return [one for one in yaml.safe_load_all(text) if one["kind"] == kind]


@pytest.fixture
def night(plane: Plane, tmp_path: Path) -> Iterator[Kube]:
    """The API as the account of the CronJob has it, by a token of it; on a node that is there."""
    rights = ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
    bounds = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ConfigMap")
    for kind in ("Namespace", "ServiceAccount", *rights, *bounds):
        apply_manifests(plane.kube, yaml.safe_dump_all(shipped(kind)))
    asked = "/api/v1/namespaces/spillway/serviceaccounts/spillway-nodes/token"
    token = plane.kube.send("POST", asked, {"spec": {"expirationSeconds": 3600}})["status"]["token"]
    config = yaml.safe_load(plane.kubeconfig.read_text(encoding="utf-8"))
    config["users"][0]["user"] = {"token": token}
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config), encoding="utf-8")
    plane.fake_node(NODE)
    yield Kube.connect(tmp_path / "kubeconfig")
    plane.kube.send("DELETE", f"/api/v1/nodes/{NODE}")


def everything(plane: Plane, kube: Kube, folder: Path) -> None:
    """All that a night may ask of the API: look, close, evict, open, try a pod, hold the lease, let a node join."""
    marks = Marks(kube)
    marks.look()
    marks.begin(NODE, Phase.DRAINING, cordon=True)
    left = marks.evict(Resident(key="default/absent", uid="none", holds_gpu=False))
    if left:
        raise Refused(403, left)
    marks.finish(NODE)
    pod = f"smoke-{next(NUMBERS)}"
    marks.run_pod(smoke_pod(pod, node=NODE, image="none"))
    marks.pod_phase("default", pod)
    marks.remove_pod("default", pod)
    for _ in range(2):  # the first makes the lease, the second takes it
        with only_run(folder, kube):
            pass
    token = bootstrap.mint_token(kube, NODE)
    asked = ask_for_certificate(plane, token)
    verdicts = bootstrap.approve_pending(kube, [bootstrap.expected_node(kube, NODE, "198.18.0.9")])
    assert [one.refused_because for one in verdicts if one.request == asked] == [""]
    bootstrap.mark(kube, NODE, labels={"spillway.dev/owner": "night"}, taints=[])
    bootstrap.drop_tokens(kube, NODE)


def ask_for_certificate(plane: Plane, token: str) -> str:
    """As a kubelet that has the token; gives the name of the request."""
    key = ec.generate_private_key(ec.SECP256R1())
    names = [(NameOID.ORGANIZATION_NAME, "system:nodes"), (NameOID.COMMON_NAME, f"system:node:{NODE}")]
    subject = x509.Name([x509.NameAttribute(kind, text) for kind, text in names])
    csr = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    name = f"night-{next(NUMBERS)}"
    body = {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {
            "request": base64.b64encode(csr.public_bytes(serialization.Encoding.PEM)).decode(),
            "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
            "usages": ["client auth"],
        },
    }
    cluster = yaml.safe_load(plane.kubeconfig.read_text(encoding="utf-8"))["clusters"][0]["cluster"]
    authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
    with urllib3.PoolManager(ca_cert_data=authority) as pool:
        url = f"{plane.url}/apis/certificates.k8s.io/v1/certificatesigningrequests"
        answers = [pool.request("POST", url, json=body, headers={"Authorization": f"Bearer {token}"})]
        while answers[-1].status == 401 and len(answers) < 100:
            time.sleep(0.1)
            answers.append(pool.request("POST", url, json=body, headers={"Authorization": f"Bearer {token}"}))
    assert answers[-1].status == 201, answers[-1].data
    return name


def roles_without_one_verb() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every role of the account, each time with one verb less; and which."""
    for role in (*shipped("ClusterRole"), *shipped("Role")):
        for number, rule in enumerate(role["rules"]):
            for verb in rule["verbs"] if "resources" in rule else ():
                less = copy.deepcopy(role)
                verbs = less["rules"][number]["verbs"]
                verbs[verbs.index(verb)] = "nothing"  # a rule needs at least one
                yield f"{role['metadata']['name']}: {verb} {rule['resources']}", less


def within(patience: float, is_so: Callable[[], bool]) -> bool:
    """The API server learns of a role a moment after it was written."""
    end = time.monotonic() + patience
    while not is_so():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def test_the_accounts_rights_are_what_a_night_needs_and_no_more(plane: Plane, night: Kube, tmp_path: Path) -> None:
    """With all verbs everything goes, with any one less something is refused; what no night does is refused anyhow."""
    leases = "/apis/coordination.k8s.io/v1/namespaces/spillway/leases"

    def is_refused() -> bool:
        if any(one["metadata"]["name"] == LEASE for one in plane.kube.get(leases)["items"]):
            plane.kube.send("DELETE", f"{leases}/{LEASE}")  # to make one is part of a first night
        try:
            everything(plane, night, tmp_path)
        except (Refused, Unavailable) as refused:
            return "forbidden" in str(refused) or "not permitted" in str(refused)
        return False

    assert not is_refused()
    for verb, less in roles_without_one_verb():
        plane.kube.send("PUT", f"{path_of(less)}/{less['metadata']['name']}", less)
        assert within(5, is_refused), f"no night needs {verb}"
        apply_manifests(plane.kube, yaml.safe_dump_all((*shipped("ClusterRole"), *shipped("Role"))))
        assert within(5, lambda: not is_refused()), f"not given back: {verb}"
    for method, beyond in (
        ("DELETE", f"/api/v1/nodes/{NODE}"),
        ("GET", "/api/v1/namespaces/default/secrets"),
        ("POST", "/api/v1/namespaces/kube-system/pods"),
        ("GET", "/apis/apps/v1/daemonsets"),
    ):
        with pytest.raises(Refused, match="forbidden"):
            night.send(method, beyond, {} if method == "POST" else None)


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not here")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    """No unknown key, no unit that is missing."""
    for unit in NIGHTLY.glob("spillway-nodes.*"):
        text = unit.read_text(encoding="utf-8").replace(
            "/opt/spillway/bin/spillway", "/usr/bin/env"
        )  # one that is here
        (tmp_path / unit.name).write_text(text, encoding="utf-8")
    units = [str(tmp_path / f"spillway-nodes.{kind}") for kind in ("service", "timer")]
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True, check=False, timeout=60
    )
    said = [line for line in done.stderr.splitlines() if "spillway-nodes" in line]
    assert (done.returncode, said) == (0, []), done.stderr


def test_the_api_server_takes_the_manifest(plane: Plane) -> None:
    """Strictly: a misspelt field is an error. The namespace is made for good, everything else is a dry run."""
    taken = []
    for manifest in yaml.safe_load_all((NIGHTLY / "cronjob.yaml").read_text(encoding="utf-8")):
        path = f"{path_of(manifest)}/{manifest['metadata']['name']}"
        dry = "" if manifest["kind"] == "Namespace" else "&dryRun=All"
        strict = f"{path}?fieldManager=tests&force=true&fieldValidation=Strict{dry}"
        plane.kube.send("PATCH", strict, manifest, content="application/apply-patch+yaml")
        taken.append(manifest["kind"])
    assert {"CronJob", "ClusterRole"} <= set(taken)


def test_a_lease_keeps_runs_of_two_machines_apart(plane: Plane, tmp_path: Path) -> None:
    """Held for the run, given back after it."""
    kube = Kube.connect(plane.kubeconfig)
    path = f"/apis/coordination.k8s.io/v1/namespaces/spillway/leases/{LEASE}"
    with only_run(tmp_path, kube) as lease:
        assert lease is not None
        assert lease.is_mine()
        assert json.loads(kube.get(path))["spec"]["holderIdentity"] == lease.identity
    assert not json.loads(kube.get(path))["spec"].get("holderIdentity")
