"""A fleet of a Debian and an Ubuntu machine: bare, then Ready nodes by one command, left alone, and mended."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from stacks.local.toolchain.tools import ensure_tools
from tests.live import ubuntu as ubuntus
from tests.live.apt_repository import AptRepository
from tests.live.archive_part import NOBLE
from tests.live.drift import FOLDER, read_kinds, rounds
from tests.live.hybrid import until
from tests.live.lab import BUSYBOX, Lab, spillway
from tests.live.machines import Host
from tests.live.nvidia import packages
from tests.live.test_nodes import pids, text_of
from tests.live.ubuntu import ubuntu, ubuntu_archive, why_not
from tests.test_roles.signing import Signer

pytestmark = pytest.mark.live

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGPKSUTyz1HwHReFVvD5obVsALAgJRNarH4TRpNePnAS ada"
DRIVER, NEXT_DRIVER, NEWEST_DRIVER = "570.211.01", "580.126.09", "590.48.01"
KINDS = read_kinds(FOLDER / "ubuntu")
ROUNDS = rounds(KINDS)


@dataclass(frozen=True, slots=True)
class Fleet:
    """Two machines, and what the inventory says of the second alone."""

    ground: Lab
    debian: Host
    ubuntu: Host
    own: dict[str, Any]

    def run(self, command: str, *words: str, driver: str = DRIVER) -> subprocess.CompletedProcess[str]:
        """A command of `spillway nodes`, as an operator gives it."""
        own = {**self.own, "settings": {**self.own["settings"]}}
        own["settings"]["versions"] = {**own["settings"]["versions"], "driver": driver}
        inventory = self.ground.inventory([self.debian, self.ubuntu], own={self.ubuntu.name: own})
        if command in ("apply", "reconcile"):
            words = ("--kubeconfig", str(self.ground.kubeconfig), "--batch", "2", "--max-down", "2", *words)
        return spillway("nodes", command, "-i", str(inventory), "--state", str(self.ground.directory / "u"), *words)

    def applied(self, *words: str, driver: str = DRIVER) -> str:
        """What a change that went well said."""
        done = self.run("apply", *words, driver=driver)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def drift(self, *words: str, driver: str = DRIVER) -> str:
        """What a plan says; empty where there is nothing to do."""
        done = self.run("plan", *words, driver=driver)
        return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.fixture(scope="module")
def fleet(ground: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Bare machines. The second has GPUs, and gets all its packages from one mirror."""
    if reason := why_not():
        pytest.skip(reason)
    if not shutil.which("gcc"):
        pytest.skip("needs gcc to make packages")
    folder = tmp_path_factory.mktemp("repository")
    ctk = ensure_tools(["nvidia-ctk"], progress=print)["nvidia-ctk"]
    passes_on = {"/ubuntu/": f"{ubuntu_archive()}/"}
    signer = Signer("the tests")
    with AptRepository(folder, signer, listen=ground.bench.gateway, passes_on=passes_on) as repository:
        repository.carry(ubuntu().root, NOBLE)
        for version in (DRIVER, NEXT_DRIVER, "580.159.03", NEWEST_DRIVER):
            repository.add(*packages.driver_of_ubuntu(version))
        repository.add(*packages.container_toolkit("1.20.0", ctk=ctk), *packages.kernel())
        own = {
            "gpus": {"product": "NVIDIA-A100-SXM4-40GB", "count": 2, "memory": "40Gi"},
            "settings": {
                "gpu": {"mig": {0: ["3g.20gb", "3g.20gb"], 1: []}, "fabric_manager": True},
                "sources": repository.for_all(signer, folder),
                "versions": {"containerd": "1.7.12", "runc": "1.1.12"},
                "users": [{"name": "ada", "keys": [KEY], "sudo": True}],
                "ssh_passwords": "refused",
                "time": {"service": "chrony", "servers": ["192.0.2.1"]},
            },
        }
        (debian,) = ground.bench.machines("debian-1")
        (other,) = ground.bench.machines("ubuntu-1", system=ubuntu())
        yield Fleet(ground, debian, other, own)


@pytest.fixture(scope="module")
def ready(fleet: Fleet) -> Fleet:
    """The machines once the first run is over."""
    assert fleet.applied().startswith("Spillway nodes: 2 clean\nChanged: debian-1, ubuntu-1\n")
    return fleet


def test_an_archive_that_is_out_of_reach_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not to try, and not a failure: it is told within seconds, also by one who never answers."""
    monkeypatch.setattr(ubuntus, "ubuntu_archive", lambda: "http://127.0.0.1:9/ubuntu")
    assert why_not() == "Ubuntu's archive cannot be reached: [Errno 111] Connection refused"
    monkeypatch.setattr(ubuntus, "_ANSWERS_WITHIN", 0.2)
    monkeypatch.setattr(ubuntus, "ubuntu_archive", lambda: "http://192.0.2.1/ubuntu")
    assert why_not().startswith("Ubuntu's archive cannot be reached: ")


def test_a_bare_machine_passes_the_preflight(fleet: Fleet) -> None:
    """Nothing is in the way of a change."""
    done = fleet.run("check")
    assert done.returncode == 0, done.stdout + done.stderr


def test_both_become_ready_nodes_and_run_pods(ready: Fleet) -> None:
    """Each runs one to its end, whose name server is one that pods reach."""
    kube = ready.ground.kube
    for host in (ready.debian, ready.ubuntu):
        node = kube.get(f"/api/v1/nodes/{host.name}")
        assert any(one["type"] == "Ready" and one["status"] == "True" for one in node["status"]["conditions"])
        kube.send("POST", "/api/v1/namespaces/default/pods", pod(host.name))
    for host in (ready.debian, ready.ubuntu):
        path = f"/api/v1/namespaces/default/pods/hello-{host.name}"
        until(lambda path=path: kube.get(path)["status"]["phase"] == "Succeeded")
        said = text_of(ready.ground, f"{path}/log")
        assert "nameserver" in said
        assert "127.0.0.53" not in said
    assert "Ubuntu 24.04" in kube.get("/api/v1/nodes/ubuntu-1")["status"]["nodeInfo"]["osImage"]


def pod(node: str) -> dict[str, Any]:
    """It tells whom it asks for names."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"hello-{node}", "namespace": "default"},
        "spec": {
            "nodeName": node,
            "dnsPolicy": "Default",
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "containers": [{"name": "c", "image": BUSYBOX, "args": ["-c", "/bin/busybox cat /etc/resolv.conf"]}],
        },
    }


def test_a_second_run_changes_and_restarts_nothing(ready: Fleet) -> None:
    """Not even a process id differs."""
    before = [pids(host) for host in (ready.debian, ready.ubuntu)]
    said = ready.applied()
    assert said.startswith("Spillway nodes: 2 clean\n")
    assert "Changed" not in said
    assert [pids(host) for host in (ready.debian, ready.ubuntu)] == before
    assert ready.drift() == ""


def test_the_driver_of_the_next_branch_takes_the_place_of_all_packages_of_the_last(ready: Fleet) -> None:
    """Ubuntu has the branch in their names, and in its own archive newer ones of the same: neither is in the way."""
    said = ready.applied(driver=NEXT_DRIVER)
    assert "Changed: ubuntu-1\n" in said
    have = ready.ubuntu.run("dpkg-query -W -f '${Package} ${Version}\\n' '*nvidia*'").stdout
    assert f"libnvidia-compute-580 {NEXT_DRIVER}-0ubuntu1\n" in have
    assert f"nvidia-kernel-common-580 {NEXT_DRIVER}-0ubuntu1\n" in have
    assert ready.ubuntu.run("cat /proc/driver/nvidia/version").stdout.count(NEXT_DRIVER) == 1
    assert ready.ubuntu.run("dpkg -l | grep '^ii.*nvidia.*570'", check=False).stdout == ""
    assert ready.drift(driver=NEXT_DRIVER) == ""


@pytest.mark.parametrize("driver", [NEWEST_DRIVER, NEXT_DRIVER])
def test_the_branch_without_a_name_of_its_own_comes_and_goes(ready: Fleet, driver: str) -> None:
    """From R590 on no package bears the branch. The way back is no other than the way there."""
    assert "Changed: ubuntu-1\n" in ready.applied(driver=driver)
    have = ready.ubuntu.run("dpkg-query -W -f '${db:Status-Abbrev} ${Version} ${Package}\\n' '*nvidia*'").stdout
    installed = [line.split()[1:] for line in have.splitlines() if line[1] == "i" and "container" not in line]
    assert {version.partition("-")[0] for version, _ in installed} == {driver}
    assert {"-580" in name for _, name in installed if "compute" in name} == {driver == NEXT_DRIVER}
    assert ready.ubuntu.run("cat /proc/driver/nvidia/version").stdout.count(driver) == 1
    assert ready.drift(driver=driver) == ""


@pytest.mark.parametrize("number", range(len(ROUNDS)), ids=lambda number: f"round-{number}")
def test_drift_is_found_and_mended_or_refused_with_the_reason(ready: Fleet, number: int) -> None:
    """As on Debian, by the commands of an operator; then the plan is empty."""
    kinds, limit = ROUNDS[number], ("--limit", ready.ubuntu.name)
    for kind in kinds:
        ready.ubuntu.run(kind.script())
    planned = json.loads(ready.run("plan", "--json", *limit, driver=NEXT_DRIVER).stdout)
    (machine,) = planned["machines"]
    seen = {
        one["resource"].split(" (")[0].rpartition(" | ")[2]: one for one in (*machine["changes"], *machine["refused"])
    }
    done = ready.run("apply", *limit, driver=NEXT_DRIVER)
    wrong = [f"{kind.name}: not found by {kind.found!r}: {sorted(seen)}" for kind in kinds if kind.found not in seen]
    for kind in kinds:
        if kind.refused and kind.refused not in str(seen.get(kind.found, "")) + done.stdout + done.stderr:
            wrong.append(f"{kind.name}: not refused: {done.stdout}{done.stderr}")
        if kind.proof and (proof := ready.ubuntu.run(kind.proof, check=False)).returncode:
            wrong.append(f"{kind.name}: not mended: {proof.stdout}{proof.stderr}{done.stdout}{done.stderr}")
        ready.ubuntu.run(f"set -e; {kind.undo or kind.after or ':'}", check=False)
    assert wrong == []
    assert ready.drift(*limit, driver=NEXT_DRIVER) == ""


def test_a_setting_that_the_kernel_has_not_is_refused_with_the_one_that_is_like_it(ready: Fleet) -> None:
    """At boot it would be passed over; nothing is written."""
    own = {**ready.own, "settings": {**ready.own["settings"], "kernel": {"sysctl": {"vm.max_mapcount": "262144"}}}}
    planned = Fleet(ready.ground, ready.debian, ready.ubuntu, own).run("plan", driver=NEXT_DRIVER)
    assert planned.returncode == 2
    assert "has no setting vm.max_mapcount: did you mean vm.max_map_count?" in planned.stdout
