"""What goes wrong with a machine, told in words: the provider itself, a real sshd, a real API server, no engine."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autoscaler.model import labels as words
from autoscaler.model.errors import Unavailable
from stacks.on_prem_provider import machine, ssh
from stacks.on_prem_provider.kube import Kube
from stacks.on_prem_provider.ssh import Login, Unreached, run_script
from tests.live.conftest import Plane
from tests.live.sshd import SshMachine, ssh_machine

pytestmark = pytest.mark.live

OTHER_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGPKSUTyz1HwHReFVvD5obVsALAgJRNarH4TRpNePnAS"


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshMachine]:
    """A machine that stays up."""
    with ssh_machine(tmp_path_factory.mktemp("host")) as made:
        yield made


@pytest.fixture
def kube(plane: Plane) -> Iterator[Kube]:
    """The provider's own door to the API server."""
    yield Kube(plane.kubeconfig.read_text(encoding="utf-8"))
    plane.kube.send("DELETE", f"/api/v1/namespaces/kube-system/secrets?labelSelector={words.BOOTSTRAP_TOKEN}")
    plane.kube.send("DELETE", "/apis/policy/v1/namespaces/default/poddisruptionbudgets")


def wanted(host: SshMachine | None = None, **changed: Any) -> dict[str, Any]:
    """Properties of a machine without GPUs, as they come over the wire."""
    access = dict(host.entry) if host else {"user": "root"}
    if "host_key" in access:
        access["hostKey"] = access.pop("host_key")
    ordinary = {
        "name": "dgx-01",
        "cluster": "lab",
        "address": "127.0.0.1",
        "cpus": 2,
        "memory": "1Gi",
        "ssh": access,
        "minDiskFree": "1Mi",
        "probe": "ssh" if host else "none",
    }
    return ordinary | changed


def login(host: SshMachine, **changed: Any) -> Login:
    """The right one, but for what is changed."""
    entry = host.entry
    right = Login(
        address="127.0.0.1",
        port=host.port,
        user=str(entry["user"]),
        key=str(entry["key"]),
        host_key=host.host_key,
    )
    return dataclasses.replace(right, **changed)


def refusal(of: Login, script: str = "true", **limits: Any) -> str:
    """Why the script was not run."""
    with pytest.raises(Unreached) as unreached:
        run_script(of, script, **limits)
    return str(unreached.value)


def test_a_machine_that_is_down_or_is_another_one_is_told(host: SshMachine) -> None:
    """With what to look at; a wrong host key is told before anybody is authenticated."""
    assert "does not answer (Connection refused): is it switched on" in refusal(login(host, port=1))
    assert "its name is not known" in refusal(login(host, address="nowhere.invalid"))
    wrong = refusal(login(host, host_key=OTHER_KEY))
    assert f"which is not the pinned {ssh.fingerprint(OTHER_KEY)}" in wrong
    assert f"then write ssh.host_key: {host.host_key}" in wrong
    log = (host.folder / "sshd.log").read_text(encoding="utf-8")
    assert "Accepted" not in log
    assert "Failed publickey" not in log
    assert "put the public half of" in refusal(login(host, user="nobody"))
    assert "there is no private key /nowhere" in refusal(login(host, key="/nowhere"))


def test_a_machine_that_hangs_holds_nobody_up(tmp_path: Path, host: SshMachine) -> None:
    """Neither before it speaks, nor in a command: that one is ended there too."""
    marker = f"{time.time_ns() % 10**9 + 10**9}"
    said = refusal(login(host), f"echo gpu=first; sleep {marker}", limit=1)
    assert "had not answered all questions after 1 s (the last answer: gpu=first)" in said
    assert not [path for path in Path("/proc").glob("[0-9]*/cmdline") if marker.encode() in _read(path)]
    with ssh_machine(tmp_path / "hanging") as hanging:
        hanging.hang()
        said = refusal(login(hanging), connect=1.0)
    assert "takes the connection and then says nothing" in said


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_a_login_without_root_is_told(host: SshMachine, tmp_path: Path) -> None:
    """Sudo is not there, or asks; the rest is told beside it."""
    who = 'case $1 in -u) echo 1000;; *) /usr/bin/id "$@";; esac'
    host.program("id", who)
    try:
        host.program("sudo", "exit 1")
        with pytest.raises(Unavailable) as unfit:
            machine._probed(machine.read_args(wanted(host, gpus={"product": "X", "count": 1, "memory": "1Gi"})), None)
        assert "2 things are in the way" in str(unfit.value)
        assert "sudo asks the login for a password: put 'USER ALL=(ALL) NOPASSWD: ALL'" in str(unfit.value)
        assert "0 GPUs are seen by" in str(unfit.value)
    finally:
        (host.folder / "bin/id").unlink()
        (host.folder / "bin/sudo").unlink()


def test_a_refresh_tells_of_a_machine_that_is_down_and_keeps_what_was_known(kube: Kube, tmp_path: Path) -> None:
    """The next update asks again, and fails with what is wrong, or finds all well."""
    with ssh_machine(tmp_path / "host") as host:
        state = machine.create(kube, wanted(host, labels={"tier": "gold"}))
        assert state["found"]["kernel"]
        host.down()
        now = machine.read(kube, state)
    assert "does not answer" in now["problems"][0]
    assert now["found"] == state["found"]
    assert now["labels"] == {"tier": "gold"}
    assert machine.difference(now, wanted(host, labels={"tier": "gold"})) == (["problems"], [])
    with pytest.raises(Unavailable, match="does not answer"):
        machine.update(kube, now, wanted(host, labels={"tier": "gold"}))


def test_a_node_that_somebody_deleted_is_registered_anew(kube: Kube, plane: Plane) -> None:
    """With its labels and taints."""
    state = machine.create(kube, wanted(taints=[{"key": "x"}]))
    plane.kube.send("DELETE", "/api/v1/nodes/dgx-01")
    now = machine.read(kube, state)
    assert now["registered"] is False
    machine.update(kube, now, wanted(taints=[{"key": "x"}]))
    taints = plane.kube.get("/api/v1/nodes/dgx-01")["spec"]["taints"]
    assert {"key": "x", "effect": "NoSchedule"} in taints


def test_a_node_of_another_machine_is_not_taken(kube: Kube, plane: Plane) -> None:
    """It is somebody's, and stays theirs."""
    node = {"metadata": {"name": "dgx-01"}, "spec": {"providerID": "aws:///us-east-1a/i-1"}}
    plane.kube.send("POST", "/api/v1/nodes", node)
    with pytest.raises(Unavailable, match="there is a node dgx-01 already, which is aws:///us-east-1a/i-1"):
        machine.create(kube, wanted())
    with pytest.raises(Unavailable, match="and not this machine"):
        machine.delete(kube, wanted())
    assert plane.kube.get("/api/v1/nodes/dgx-01")["spec"].get("unschedulable") is None


def test_an_api_server_that_is_gone_is_told(plane: Plane, tmp_path: Path) -> None:
    """By its address; the machine was asked first, and nothing is half done."""
    config = json.loads(plane.kubeconfig.read_text(encoding="utf-8"))
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    gone = Kube(json.dumps(config))
    for act in (machine.create, machine.read, machine.delete):
        with pytest.raises(Unavailable, match=r"API server at https://127\.0\.0\.1:1 does not answer"):
            act(gone, wanted())


# --- Taking a machine out ---------------------------------------------------------------------------------------------


def placed(plane: Plane, *, replicas: int = 2, node: str | None = None, **meta: Any) -> None:
    """A ReplicaSet whose pods are on the machine; the cluster has no other that they could go to."""
    template = {
        "metadata": {"labels": {"app": "train"}, **meta},
        "spec": {
            "containers": [{"name": "c", "image": "none"}],
            "automountServiceAccountToken": False,
            **({"nodeName": node, "tolerations": [{"operator": "Exists"}]} if node else {}),
        },
    }
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "train"}}, "template": template}
    body = {"metadata": {"name": "train"}, "spec": spec}
    plane.kube.send("POST", "/apis/apps/v1/namespaces/default/replicasets", body)
    wait(lambda: len(on_the_machine(plane) if node else running(plane)) == replicas)


def on_the_machine(plane: Plane) -> list[dict[str, Any]]:
    """All pods there."""
    found = plane.kube.get("/api/v1/namespaces/default/pods?fieldSelector=spec.nodeName%3Ddgx-01")
    return list(found["items"])


def running(plane: Plane) -> list[dict[str, Any]]:
    """Those that run."""
    return [pod for pod in on_the_machine(plane) if pod["status"].get("phase") == "Running"]


def wait(holds: Any, *, patience: float = 30.0) -> None:
    """Until it does."""
    end = time.monotonic() + patience
    while not holds():
        assert time.monotonic() < end, "did not come about"
        time.sleep(0.05)


@pytest.fixture
def taken_in(kube: Kube, plane: Plane) -> Iterator[dict[str, Any]]:
    """A machine whose kubelet KWOK plays; its state."""
    plane.fake_node("dgx-01")
    state = machine.create(kube, wanted(drainTimeout="20s"))
    yield state
    plane.kube.send("DELETE", "/apis/apps/v1/namespaces/default/replicasets?propagationPolicy=Background")


def test_a_machine_is_emptied_and_taken_out(taken_in: dict[str, Any], kube: Kube, plane: Plane) -> None:
    """Its pods are evicted, its node is deleted, its token is void; done again, there is nothing left to do."""
    placed(plane)
    machine.delete(kube, taken_in)
    assert kube.find("/api/v1/nodes/dgx-01") is None
    assert running(plane) == []
    assert (
        plane.kube.get(f"/api/v1/namespaces/kube-system/secrets?labelSelector={words.BOOTSTRAP_TOKEN}")["items"] == []
    )
    review = {"spec": {"token": taken_in["joinToken"]}, "kind": "TokenReview"}
    seen = plane.kube.send("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review)
    assert words.BOOTSTRAPPERS not in str(seen)
    machine.delete(kube, taken_in)


def test_a_disruption_budget_is_respected_and_named(taken_in: dict[str, Any], kube: Kube, plane: Plane) -> None:
    """The node stays, cordoned so that the autoscaler does not open it, until the budget lets the pods go."""
    placed(plane)
    selector = {"matchLabels": {"app": "train"}}
    budget = {"metadata": {"name": "keep-two"}, "spec": {"minAvailable": 2, "selector": selector}}
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    plane.kube.send("POST", budgets, budget)
    wait(lambda: plane.kube.get(f"{budgets}/keep-two").get("status", {}).get("currentHealthy") == 2)
    with pytest.raises(Unavailable) as blocked:
        machine.delete(kube, {**taken_in, "drainTimeout": "2s", "forceRemoval": True})  # which is for those down
    said = str(blocked.value)
    assert "node dgx-01 is cordoned, but not empty after 2 s" in said
    assert "default/train-" in said
    assert "keep-two needs 2 healthy pods and has 2 currently" in said
    node = plane.kube.get("/api/v1/nodes/dgx-01")
    assert node["spec"]["unschedulable"]
    assert node["metadata"]["annotations"][words.CORDONED_BY] != words.AUTOSCALER
    assert len(running(plane)) == 2, "none was evicted beside the budget"
    plane.kube.send("DELETE", f"{budgets}/keep-two")
    machine.delete(kube, taken_in)
    assert kube.find("/api/v1/nodes/dgx-01") is None


def test_pods_that_nobody_would_make_anew_are_named_before_any_is_evicted(
    taken_in: dict[str, Any], kube: Kube, plane: Plane
) -> None:
    """And one that asks not to be disrupted."""
    placed(plane, replicas=1, annotations={words.DO_NOT_DISRUPT: "true"})
    container = {"name": "c", "image": "none"}
    spec = {"nodeName": "dgx-01", "containers": [container], "automountServiceAccountToken": False}
    plane.kube.send("POST", "/api/v1/namespaces/default/pods", {"metadata": {"name": "alone"}, "spec": spec})
    wait(lambda: len(running(plane)) == 2)
    with pytest.raises(Unavailable) as blocked:
        machine.delete(kube, taken_in)
    assert "default/alone: no controller would make it anew" in str(blocked.value)
    assert "it asks not to be disrupted" in str(blocked.value)
    assert len(running(plane)) == 2


def test_a_machine_that_is_down_goes_when_that_is_said(kube: Kube, plane: Plane) -> None:
    """Its pods cannot end there, where no kubelet is; without the word nothing is given up."""
    state = machine.create(kube, wanted(drainTimeout="2s"))
    placed(plane, replicas=1, node="dgx-01")
    with pytest.raises(Unavailable) as blocked:
        machine.delete(kube, state)
    assert "is ending since" in str(blocked.value)
    assert "force_removal: true" in str(blocked.value)
    assert on_the_machine(plane)
    machine.delete(kube, {**state, "forceRemoval": True})
    assert kube.find("/api/v1/nodes/dgx-01") is None
    plane.kube.send("DELETE", "/apis/apps/v1/namespaces/default/replicasets?propagationPolicy=Background")
