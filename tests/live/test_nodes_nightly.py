"""What is shipped for the night is what systemd and the API server take, and what the run needs is allowed."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from autoscaler.kube import Kube
from roles.lock import LEASE, only_run
from tests.live.conftest import Plane

NIGHTLY = Path(__file__).parents[2] / "roles" / "nightly"
pytestmark = pytest.mark.live


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not here")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    """No unknown key, no unit that is missing."""
    for unit in NIGHTLY.glob("spillway-nodes.*"):
        shutil.copy(unit, tmp_path)
    units = [str(tmp_path / f"spillway-nodes.{kind}") for kind in ("service", "timer")]
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True, check=False, timeout=60
    )
    said = [line for line in done.stderr.splitlines() if "spillway-nodes" in line]
    assert (done.returncode, said) == (0, []), done.stderr


def test_the_api_server_takes_the_manifest(plane: Plane) -> None:
    """Strictly: a misspelt field is an error. The namespace is made for good, everything else is a dry run."""
    paths = {
        "Namespace": "/api/v1/namespaces",
        "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
        "PersistentVolumeClaim": "/api/v1/namespaces/{}/persistentvolumeclaims",
        "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
        "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
        "CronJob": "/apis/batch/v1/namespaces/{}/cronjobs",
    }
    taken = []
    for manifest in yaml.safe_load_all((NIGHTLY / "cronjob.yaml").read_text(encoding="utf-8")):
        kind = manifest["kind"]
        namespaces = [one["metadata"]["name"] for one in plane.kube.get("/api/v1/namespaces")["items"]]
        if kind == "Namespace" and manifest["metadata"]["name"] in namespaces:
            continue
        path = paths[kind].format(manifest["metadata"].get("namespace", ""))
        dry = "" if kind == "Namespace" else "&dryRun=All"
        plane.kube.send("POST", f"{path}?fieldValidation=Strict{dry}", manifest)
        taken.append(kind)
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
