"""On-prem machines as resources: the real engine, a real sshd for each machine, a real API server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from autoscaler.model import labels as words
from stacks.local.ground.lifecycle import ENGINE_BINARIES
from stacks.local.kubeapi.client import KubeHttp
from stacks.local.process.paths import cache_root
from stacks.local.process.reaper import leashed
from stacks.local.toolchain.tools import ensure_tools
from tests import ROOT
from tests.live import engine_deaths
from tests.live.conftest import Plane
from tests.live.forked_python import forked_python
from tests.live.sshd import SshMachine, ssh_machine

pytestmark = pytest.mark.live

A100 = "NVIDIA A100-SXM4-40GB"
PROGRAM = f"""
import json, os, sys
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
import pulumi
from stacks.interrupted import end_without_a_trace
from stacks.settings.inventory import read_inventory
from stacks.nodes.on_prem_machines import Machines, MachinesArgs, WireguardKey
from stacks.settings.on_prem import MachineSettings
end_without_a_trace()
said = json.loads(Path("said.json").read_text())
inventory = read_inventory(Path("inventory.yaml"))
kubeconfig = Path(said.pop("kubeconfig")).read_text()
settings = MachineSettings(**said)
made = Machines("lab", MachinesArgs(cluster="lab", inventory=inventory, kubeconfig=kubeconfig, settings=settings))
key = WireguardKey("tunnel")
for name, machine in made.machines.items():
    pulumi.export(name, {{"token": machine.join_token, "found": machine.found}})
pulumi.export("public", key.public_key)
"""


@dataclass
class Stack:
    """A project of its own, with its state in a folder of the test."""

    folder: Path
    tools: Mapping[str, Path]
    kubeconfig: Path
    entries: dict[str, dict[str, Any]] = field(default_factory=dict)
    said: dict[str, Any] = field(default_factory=dict)

    def write(self) -> None:
        """The project and what it is told."""
        (self.folder / "state").mkdir(parents=True, exist_ok=True)
        for name in ("bin", "tmp"):
            (self.folder / name).mkdir(exist_ok=True)
        (self.folder / "Pulumi.yaml").write_text("name: lab\nruntime: python\n", encoding="utf-8")
        (self.folder / "__main__.py").write_text(PROGRAM, encoding="utf-8")
        inventory = {"machines": [{"name": name, **entry} for name, entry in self.entries.items()]}
        (self.folder / "inventory.yaml").write_text(yaml.safe_dump(inventory), encoding="utf-8")
        (self.folder / "said.json").write_text(json.dumps({"kubeconfig": str(self.kubeconfig), **self.said}))
        for name, runs in {
            "python": "",
            "python3": "",
            "pulumi-resource-spillway-onprem": f"{ROOT}/stacks/on_prem_provider",
        }.items():
            script = self.folder / "bin" / name
            script.write_text(f'#!/bin/sh\nexec {forked_python()} {runs} "$@"\n', encoding="utf-8")
            script.chmod(0o755)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """An engine run."""
        self.write()
        path = [self.folder / "bin", *{tool.parent for tool in self.tools.values()}, Path(sys.executable).parent]
        own = {
            "PATH": os.pathsep.join([*map(str, path), os.environ["PATH"]]),
            "TMPDIR": str(self.folder / "tmp"),  # the engine logs into it
            "PULUMI_HOME": str(self.folder / "home"),
            "PULUMI_BACKEND_URL": f"file://{self.folder / 'state'}",
            "PULUMI_CONFIG_PASSPHRASE": "test",
            "PULUMI_SKIP_UPDATE_CHECK": "1",
            "PYTHONPYCACHEPREFIX": os.environ.get("PYTHONPYCACHEPREFIX") or str(cache_root() / "pycache"),
        }
        inherited = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        return subprocess.Popen(
            leashed([str(self.tools["pulumi"]), *arguments, "--non-interactive", "--color", "never", "-s", "test"]),
            cwd=self.folder,
            env=inherited | own,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: str) -> tuple[int, str]:
        """Exit status, and all that it said."""
        engine = self.start(*arguments)
        said, _ = engine.communicate(timeout=180)
        return engine.returncode, said

    def up(self, *arguments: str) -> str:
        """Which must succeed."""
        status, said = self.run("up", "--yes", "--skip-preview", *arguments)
        assert status == 0, said
        return said

    def outputs(self) -> dict[str, Any]:
        """With secrets in clear."""
        status, said = self.run("stack", "output", "--show-secrets", "--json")
        assert status == 0, said
        outputs: dict[str, Any] = json.loads(said[said.index("{") :])
        return outputs

    def state(self) -> str:
        """Every byte that the engine keeps."""
        return "".join(
            path.read_text(encoding="utf-8", errors="replace")
            for path in sorted((self.folder / "state").rglob("*"))
            if path.is_file()
        )


@pytest.fixture(scope="module")
def engine_tools() -> dict[str, Path]:
    """The engine's binaries."""
    return dict(ensure_tools(ENGINE_BINARIES, progress=print))


@pytest.fixture
def stack(tmp_path: Path, engine_tools: dict[str, Path], plane: Plane) -> Iterator[Stack]:
    """An empty stack. What it leaves in the cluster goes with it."""
    made = Stack(folder=tmp_path / "project", tools=engine_tools, kubeconfig=plane.kubeconfig)
    status, said = (made.folder.mkdir(), made.run("stack", "init"))[1]
    assert status == 0, said
    yield made
    plane.kube.send("DELETE", f"/api/v1/namespaces/kube-system/secrets?labelSelector={words.BOOTSTRAP_TOKEN}")


@pytest.fixture
def dgx(tmp_path: Path) -> Iterator[SshMachine]:
    """A machine with two GPUs, as its nvidia-smi says."""
    with ssh_machine(tmp_path / "dgx") as machine:
        machine.program("nvidia-smi", f"echo '{A100}, 580.65.06'; echo '{A100}, 580.65.06'")
        yield machine


def entry(machine: SshMachine, **changed: Any) -> dict[str, Any]:
    """As the inventory has it."""
    gpus = {"product": A100.replace(" ", "-"), "count": 2, "memory": "40Gi"}
    ordinary = {"address": "127.0.0.1", "cpus": 2, "memory": "1Gi", "gpus": gpus, "ssh": machine.entry, "rack": "r1"}
    return ordinary | changed


def tokens(kube: KubeHttp) -> list[dict[str, Any]]:
    """Bootstrap tokens of machines."""
    found = kube.get(f"/api/v1/namespaces/kube-system/secrets?labelSelector={words.BOOTSTRAP_TOKEN}")
    return list(found["items"])


def node_of(kube: KubeHttp, name: str) -> dict[str, Any] | None:
    """The Node object; none where it is gone."""
    found = [node for node in kube.get("/api/v1/nodes")["items"] if node["metadata"]["name"] == name]
    return found[0] if found else None


def who_is(plane: Plane, token: str) -> list[str]:
    """The groups that the API server sees behind a token; none where it knows nobody."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    status = plane.kube.send("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review)["status"]
    return list(status.get("user", {}).get("groups", []))


def test_a_machine_through_its_life(stack: Stack, dgx: SshMachine, plane: Plane) -> None:
    """Taken in, unchanged, drifted, mended, changed, taken out: in one test, since engine runs take long."""
    stack.entries["dgx-01"] = entry(dgx, owner="vision", labels={"tier": "gold"}, taints=[{"key": "nvidia.com/gpu"}])
    stack.up()
    node = node_of(plane.kube, "dgx-01")
    assert node
    labels = node["metadata"]["labels"]
    assert (labels[words.ORIGIN], labels[words.RACK], labels[words.OWNER]) == (words.ON_PREM, "r1", "vision")
    assert (labels["tier"], labels[words.GPU_COUNT]) == ("gold", "2")
    assert {"key": "nvidia.com/gpu", "effect": "NoSchedule"} in node["spec"]["taints"]
    assert_join_credentials_are_good(stack, plane)

    assert stack.run("preview", "--refresh", "--expect-no-changes")[0] == 0, "a second look finds all as it was"

    drift(plane, dgx)
    status, said = stack.run("preview", "--refresh", "--expect-no-changes", "--diff")
    assert status != 0, said
    for word in ('- tier: "gold"', "~ taints", "1 GPUs are seen by nvidia-smi, the inventory says 2"):
        assert word in said
    dgx.program("nvidia-smi", f"echo '{A100}, 580.65.06'; echo '{A100}, 580.65.06'")
    stack.up("--refresh")
    mended = node_of(plane.kube, "dgx-01")
    assert mended
    assert mended["metadata"]["labels"]["tier"] == "gold"
    assert {"key": "nvidia.com/gpu", "effect": "NoSchedule"} in mended["spec"]["taints"]
    assert {"key": "other", "effect": "NoSchedule"} in mended["spec"]["taints"], "what is not ours is left alone"

    assert_changes_are_made_in_place(stack, dgx, plane)
    assert_a_new_name_is_a_new_machine(stack, plane)
    status, said = stack.run("destroy", "--yes", "--skip-preview")
    assert status == 0, said
    assert node_of(plane.kube, "dgx-a") is None
    assert tokens(plane.kube) == []


def test_an_engine_that_is_killed_in_between_leaves_nothing_that_the_next_run_does_not_take_up(
    stack: Stack, dgx: SshMachine, plane: Plane, tmp_path: Path
) -> None:
    """Killed when the node was registered and before its state was written; one node and one token stand in the end."""
    stack.entries["dgx-01"] = entry(dgx)
    dgx.program("nvidia-smi", f"touch {tmp_path}/asked; sleep 3; echo '{A100}, 580.65.06'; echo '{A100}, 580.65.06'")
    engine = stack.start("up", "--yes", "--skip-preview")
    eventually((tmp_path / "asked").exists)
    kill(engine)
    stack.run("cancel", "--yes")  # its lock is still there
    assert node_of(plane.kube, "dgx-01") is None, "killed while the machine was asked: nothing is registered"

    dgx.program("nvidia-smi", f"echo '{A100}, 580.65.06'; echo '{A100}, 580.65.06'")
    engine = stack.start("up", "--yes", "--skip-preview")
    eventually(lambda: node_of(plane.kube, "dgx-01"))
    kill(engine)
    stack.run("cancel", "--yes")
    stack.up()
    assert len(tokens(plane.kube)) == 1
    assert words.BOOTSTRAPPERS in who_is(plane, stack.outputs()["dgx-01"]["token"])
    assert stack.run("preview", "--refresh", "--expect-no-changes")[0] == 0


def kill(engine: subprocess.Popen[str]) -> None:
    """At once, and wait until nothing of it is left."""
    assert engine_deaths.kill(engine)
    engine.communicate()


def eventually(holds: Callable[[], object], *, patience: float = 60.0) -> None:
    """Wait until it does."""
    end = time.monotonic() + patience
    while not holds():
        assert time.monotonic() < end, "did not come about"
        time.sleep(0.02)


def assert_join_credentials_are_good(stack: Stack, plane: Plane) -> None:
    """The API server takes them, for that node and a short time; they are in the state encrypted only."""
    token = stack.outputs()["dgx-01"]["token"]
    assert words.BOOTSTRAPPERS in who_is(plane, token)
    [secret] = tokens(plane.kube)
    assert secret["type"] == "bootstrap.kubernetes.io/token"
    assert set(secret["data"]) == {
        *("token-id", "token-secret", "expiration", "description"),
        *("usage-bootstrap-authentication", "auth-extra-groups"),
    }
    kept = stack.state()
    assert token not in kept
    assert token.partition(".")[2] not in kept
    assert plane.kubeconfig.read_text() not in kept
    assert json.loads(plane.kubeconfig.read_text())["users"][0]["user"]["token"] not in kept


def drift(plane: Plane, dgx: SshMachine) -> None:
    """Somebody edits the node, and a card falls off the bus."""
    path = "/api/v1/nodes/dgx-01"
    merge = "application/merge-patch+json"
    taints = [{"key": "other", "effect": "NoSchedule"}]
    edit = {"metadata": {"labels": {"tier": None}}, "spec": {"taints": taints}}
    plane.kube.send("PATCH", path, edit, content=merge)
    dgx.program("nvidia-smi", f"echo '{A100}, 580.65.06'")


def assert_changes_are_made_in_place(stack: Stack, dgx: SshMachine, plane: Plane) -> None:
    """Labels and taints that are taken off the entry are taken off the node; new credentials void the old ones."""
    before = stack.outputs()["dgx-01"]["token"]
    uid = (node_of(plane.kube, "dgx-01") or {})["metadata"]["uid"]
    stack.entries["dgx-01"] = entry(dgx, owner="speech", labels={"new": "yes"})
    stack.said["renew_join"] = "again"
    said = stack.up()
    assert "updated" in said
    node = node_of(plane.kube, "dgx-01")
    assert node
    assert node["metadata"]["uid"] == uid
    assert "tier" not in node["metadata"]["labels"]
    assert (node["metadata"]["labels"]["new"], node["metadata"]["labels"][words.OWNER]) == ("yes", "speech")
    assert not [taint for taint in node["spec"]["taints"] if taint["key"] == "nvidia.com/gpu"]
    after = stack.outputs()["dgx-01"]["token"]
    assert who_is(plane, before) == []
    assert words.BOOTSTRAPPERS in who_is(plane, after)


def assert_a_new_name_is_a_new_machine(stack: Stack, plane: Plane) -> None:
    """It leaves as the one, and joins as the other."""
    stack.entries["dgx-a"] = stack.entries.pop("dgx-01")
    stack.up()
    assert node_of(plane.kube, "dgx-01") is None
    assert node_of(plane.kube, "dgx-a")


def test_a_machine_that_is_not_as_written_is_told_with_all_findings_at_once(
    stack: Stack, dgx: SshMachine, plane: Plane
) -> None:
    """Each with its remedy; nothing is registered."""
    gpus = {"product": "NVIDIA-H100-80GB-HBM3", "count": 8, "memory": "80Gi"}
    stack.entries["dgx-01"] = entry(dgx, gpus=gpus)
    stack.said["min_disk_free"] = "900Ti"
    status, said = stack.run("up", "--yes", "--skip-preview")
    assert status != 0
    assert "machine dgx-01 (127.0.0.1): 3 things are in the way" in said
    assert "2 GPUs are seen by nvidia-smi, the inventory says 8: correct gpus.count" in said
    assert "its GPUs are NVIDIA-A100-SXM4-40GB, the inventory says NVIDIA-H100-80GB-HBM3" in said
    assert "900.0" in said or "921600.0 GiB are needed: make room" in said
    assert 'File "' not in said.partition("spillway-onprem:index:Machine (dgx-01):")[2], "no stack trace"
    assert node_of(plane.kube, "dgx-01") is None
    assert tokens(plane.kube) == []
