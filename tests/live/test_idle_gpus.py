"""GPUs that are held and not used, or ill: the autoscaler as its own process reads exporters, tells, and acts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from autoscaler.cli.autoscale import gpus
from autoscaler.model import labels as words
from stacks.local.kubeapi.client import KubeHttp, KubeRefusedError
from tests.fakes.dcgm_exporter import Gpu, dcgm_exporter
from tests.live.conftest import Plane
from tests.live.hybrid import POLICY, autoscaler, bound, gpu_pod, make_pod, stand_in_aws, until, write_policy

pytestmark = pytest.mark.live
RULES = "idle_gpus: {enabled: true, told_after: 1s, freed_after: 2s}\nfaults: {dcgm: true, after: 1s}\n"
GANG = {"labels": {words.GANG: "g"}, "annotations": {words.GANG_SIZE: "1"}}


def test_a_notebook_that_does_not_use_its_gpu_is_told_and_freed(plane: Plane, tmp_path: Path) -> None:
    """One that does stays, and so does a gang, which is told alone. A machine whose GPU had a grave Xid is closed."""
    kube = plane.kube
    plane.fake_node("lab", gpu="4")
    pods = [gpu_pod("notebook", gpus=1), gpu_pod("trains", gpus=1), gpu_pod("g-0", gpus=1, **GANG)]
    for pod in pods:
        make_pod(kube, pod)
    with dcgm_exporter() as exporter, dcgm_exporter() as of_ill:
        make_pod(kube, _exporter_pod("dcgm", "lab", exporter.port))
        until(lambda: all(_runs(kube, name) for name in ("notebook", "trains", "g-0", "dcgm")))
        plane.fake_node("ill", gpu="4")
        make_pod(kube, _exporter_pod("dcgm-ill", "ill", of_ill.port))
        until(lambda: _runs(kube, "dcgm-ill"))
        for name in ("dcgm", "dcgm-ill"):
            _say_where(kube, name, "127.0.0.1")
        of_ill.gpus = (Gpu(0, 0), Gpu(1, 0, xid=79))
        exporter.gpus = tuple(
            Gpu(number, percent, "default", pod)
            for number, (pod, percent) in enumerate((("notebook", 0), ("trains", 88), ("g-0", 1)))
        )
        file, policy = write_policy(tmp_path, POLICY + RULES)
        log = tmp_path / "autoscaler.log"
        with stand_in_aws(tmp_path / "aws", kubeconfig=plane.kubeconfig, boot_delay="500ms") as aws:
            aws.make_groups(policy)
            with autoscaler(policy=file, env=aws.env, kubeconfig=plane.autoscaler_kubeconfig, log=log) as brain:
                until(lambda: _is_gone(kube, "notebook"), told=brain.texts)
                until(lambda: len(_events(kube)) == 2, told=brain.texts)
                # An eviction is logged once the API server has answered: the pod is gone a moment before.
                until(lambda: "evict pod default/notebook to free GPUs" in brain.texts(), told=brain.texts)
                until(lambda: _is_closed(kube, "ill"), told=brain.texts)
                shown = CliRunner().invoke(gpus, ["--devices", "--kubeconfig", str(plane.kubeconfig)])
                assert shown.exit_code == 0, shown.output
                lines = [line.split() for line in shown.output.splitlines()]
                assert [words[:5] for words in lines[1:3]] == [
                    ["ill", "0", "-", "-", "0%"],
                    ["ill", "1", "-", "-", "0%"],
                ]
                assert ["lab", "1", "0", "default/trains", "trains", "88%", "-", "-"] in lines, shown.output
                assert brain.stop() == 0
                said = brain.texts()
    assert "default/notebook: 1 GPU held and used less than 5% since" in said
    assert "it stays, for it is of a gang" in said
    assert "ill: the DCGM exporter tells of GPU 1: Xid 79 since" in said
    assert not _is_closed(kube, "lab")
    assert {bound(kube, "trains"), bound(kube, "g-0")} == {"lab"}
    assert _events(kube) == [("g-0", "GpusNotUsed"), ("notebook", "GpusNotUsed")]


def _exporter_pod(name: str, node: str, port: int) -> dict[str, Any]:
    """As the exporter's DaemonSet makes it, on another port."""
    pod = gpu_pod(name, gpus=0, labels={"app.kubernetes.io/name": "dcgm-exporter"})
    pod["spec"]["nodeName"] = node
    (container,) = pod["spec"]["containers"]
    container["ports"] = [{"name": "metrics", "containerPort": port}]
    container["resources"] = {}
    return pod


def _say_where(kube: KubeHttp, name: str, address: str) -> None:
    """No kubelet runs here: the stand-in serves on this machine."""
    status = {"status": {"podIP": address, "podIPs": [{"ip": address}]}}
    path = f"/api/v1/namespaces/default/pods/{name}/status"
    kube.send("PATCH", path, status, content="application/merge-patch+json")


def _runs(kube: KubeHttp, name: str) -> bool:
    return bool(kube.get(f"/api/v1/namespaces/default/pods/{name}")["status"]["phase"] == "Running")


def _is_closed(kube: KubeHttp, node: str) -> bool:
    return bool(kube.get(f"/api/v1/nodes/{node}")["spec"].get("unschedulable"))


def _is_gone(kube: KubeHttp, name: str) -> bool:
    try:
        return "deletionTimestamp" in kube.get(f"/api/v1/namespaces/default/pods/{name}")["metadata"]
    except KubeRefusedError:
        return True


def _events(kube: KubeHttp) -> list[tuple[str, str]]:
    found = kube.get("/api/v1/namespaces/default/events")["items"]
    ours = [one for one in found if one.get("reportingComponent") == words.AUTOSCALER]
    return sorted((one["involvedObject"]["name"], one["reason"]) for one in ours)
