"""What hangs is ended on the machine itself, what is cut off is told, and the other machines go on."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import ROOT
from tests.live.apt_repository import AptRepository, Deb
from tests.live.machines import Bench, Host
from tests.live.operating import Operator, ended
from tests.test_roles.signing import Signer

pytestmark = pytest.mark.live

NAMES = ("m0", "m1", "m2")
_UNIT = "[Service]\nExecStart=/usr/bin/lab-daemon\n[Install]\nWantedBy=multi-user.target\n"
_HOLDER = (
    "import fcntl,time;f=open('/var/lib/dpkg/lock-frontend','w');fcntl.lockf(f,fcntl.LOCK_EX);"
    "print(1,flush=1);time.sleep(600)"
)
_STALL = "cd /usr/sbin; rm -f /var/stalled; printf '#!/bin/sh\\ntouch /var/stalled; sleep 20\\n' > sync; chmod 755 sync"
"""Every file is synced before it is renamed into place: there a change stands still."""


@dataclass(frozen=True, slots=True)
class Ground:
    """Three machines, their mirror, and a second one that only the machine in the middle installs from."""

    bench: Bench
    hosts: dict[str, Host]
    mirror: AptRepository
    folder: Path

    def operator(self, folder: Path, wanted: str, *, health_seconds: int = 0) -> Operator:
        """Wants this version everywhere. A machine that boots needs ``health_seconds`` until it is healthy again."""
        return Operator(
            self.hosts,
            folder,
            role="tests.live.faults_role:prepare",
            rolling=("--no-cluster", "--health-seconds", str(health_seconds)),
            environment={"WANTED": wanted},
        )

    def versions(self) -> dict[str, str]:
        """Of the package, by machine."""
        return {name: host.run("dpkg-query -W -f='${Version}' lab-daemon").stdout for name, host in self.hosts.items()}

    def boots(self) -> dict[str, str]:
        """When each machine started."""
        return {name: host.boot_id() for name, host in self.hosts.items()}


def daemon(version: str) -> list[Deb]:
    """The package, and what only this version of it depends on."""
    needs = f"lab-library-{version}"
    broken = {"/usr/bin/containerd": "#!/bin/sh\necho 'a = = 1'\n"} if version == "3" else {}
    files = {
        "/usr/bin/lab-daemon": "#!/bin/sh\nexec sleep infinity\n",
        "/lib/systemd/system/lab-daemon.service": _UNIT,
        **broken,
    }
    return [
        Deb(needs, version),
        Deb("lab-daemon", version, files=files, programs=("/usr/bin/lab-daemon", *broken), depends=needs),
    ]


@pytest.fixture(scope="module")
def ground(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """Machines with version 1."""
    folder = tmp_path_factory.mktemp("mirror")
    signer = Signer("the lab")
    with AptRepository(folder, signer, listen=bench.gateway) as mirror:
        for version in ("1", "2", "3", "4"):
            mirror.add(*daemon(version))
        (folder / "key.asc").write_bytes(signer.public)
        hosts = {host.name: host for host in bench.machines(*NAMES)}
        source = f"deb [signed-by=/etc/apt/keyrings/lab.asc] {mirror.address} ./"
        for host in hosts.values():
            host.run(
                f"mkdir -p /etc/apt/keyrings; echo '{signer.public.decode()}' > /etc/apt/keyrings/lab.asc;"
                f" rm -rf /etc/apt/sources.list.d; echo '{source}' > /etc/apt/sources.list; ip route del default"
            )
        made = Ground(bench, hosts, mirror, folder)
        status, said = made.operator(tmp_path_factory.mktemp("first"), "1").call("apply", "--batch", "3")
        assert status == 0, said
        yield made


def test_faults_of_machines(ground: Ground) -> None:
    """One after the other, on two machines: a fact that hangs, a command that hangs, a cable that is pulled."""
    first, second = ground.bench.light("f0", "f1")
    link = f"sv{first.process.pid}"
    given = {
        "machines": [(one.name, one.ssh_data()) for one in (first, second)],
        "cut": ["ip", "link", "set", link, "down"],
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.live.nodes_faults"],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=False,
        timeout=150,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["asked"][1] == 1, "the second machine is asked everything at once"
    assert all("sleep 777" in failed for failed in found["fact"].values())
    assert all(found["command"])
    assert found["cut"]["f0"] != ""
    assert found["cut"]["f1"] == ""
    subprocess.run(["ip", "link", "set", link, "up"], check=True)
    for machine in (first, second):
        left = machine.run("ps ax -o args | grep '^sleep 77' || true").stdout
        assert left == "", f"{machine.name}: an orphan is left: {left}"
    assert second.run("ls /run/went-on").returncode == 0


def test_a_lock_that_another_apt_holds_and_a_mirror_that_is_down(ground: Ground, tmp_path: Path) -> None:
    """Each is its machine's trouble, named; the third is changed; once both are over the next run converges."""
    locked, unserved = ground.hosts["m1"], ground.hosts["m2"]
    locked.run(f'setsid python3 -c "{_HOLDER}" </dev/null >/run/held 2>&1 & until [ -s /run/held ]; do :; done')
    unserved.run(f"sed -i 's#{ground.mirror.address}#http://{ground.bench.gateway}:9#' /etc/apt/sources.list")
    operator = ground.operator(tmp_path, "2")
    status, record = operator.record("reconcile", "--batch", "3")
    assert (status, record["changed"], record["counts"]) == (2, ["m0"], {"clean": 1, "drifted": 2})
    assert re.search(r"apt's lock was held by process \d+ \(python3\)", record["failed"]["m1"])
    assert f"Could not connect to {ground.bench.gateway}:9" in record["failed"]["m2"]
    assert ground.versions() == {"m0": "2", "m1": "1", "m2": "1"}
    assert unserved.run("systemctl is-active lab-daemon").stdout == "active\n"
    locked.run("pkill -f lock-frontend")
    unserved.run(f"sed -i 's#http://{ground.bench.gateway}:9#{ground.mirror.address}#' /etc/apt/sources.list")
    status, said = operator.call("reconcile", "--batch", "3")
    assert status == 0, said
    assert set(ground.versions().values()) == {"2"}
    assert operator.call("plan")[0] == 0


@pytest.mark.parametrize("fault", ["its cable is pulled", "its power is cut"])
def test_a_machine_that_is_lost_in_the_middle_of_a_change(ground: Ground, tmp_path: Path, fault: str) -> None:
    """It is told, the others are changed meanwhile, and the next run goes on with it."""
    lost = ground.hosts["m1"]
    lost.run(_STALL)
    link = f"sv{lost.process.pid}"
    wanted, health_seconds = ("4", 0) if "cable" in fault else ("2", 60)
    operator = ground.operator(tmp_path, wanted, health_seconds=health_seconds)
    running = operator.start("reconcile", "--json", "--batch", "3")
    stalled = lost.upper / "var/stalled"
    end = time.monotonic() + 90
    while not stalled.exists() and time.monotonic() < end:
        time.sleep(0.1)
    try:
        subprocess.run(["ip", "link", "set", link, "down"], check=True)  # without power nothing more is said, either
        if "power" in fault:
            ground.hosts["m1"] = lost = ground.bench.restart(lost)
        status, record = ended(running)
    finally:
        subprocess.run(["ip", "link", "set", f"sv{lost.process.pid}", "up"], check=True)
    assert status in (2, 3, 4), record
    assert record["failed"]["m1"] != ""
    assert record["changed"] == ["m0", "m2"]
    lost.run("rm /usr/sbin/sync; ip route del default", check=False)
    status, said = operator.call("reconcile", "--batch", "3")
    assert status == 0, said
    assert set(ground.versions().values()) == {wanted}
    assert operator.call("plan")[0] == 0


def test_packages_go_back_where_the_gate_fails(ground: Ground, tmp_path: Path) -> None:
    """To the versions before, out of apt's own cache where no mirror has them any more; nothing new stays."""
    before, canary = ground.versions(), ground.hosts["m0"]
    was = before["m0"]
    canary.run("rm -f /var/lib/apt/lists/spillway-updated")  # its index is of today
    ground.mirror.withdraw(f"lab-daemon_{was}", f"lab-library-{was}_{was}")
    try:
        status, record = ground.operator(tmp_path, "3").record("reconcile")
    finally:
        ground.mirror.add(*daemon(was))
    assert status == 5, record
    assert record["halted"].startswith("m1: the change left it unhealthy, as it did m0,")
    assert "cause: unhealthy after the change" in record["halted"]
    assert "journal of m1: " in record["halted"]
    assert "containerd's configuration does not parse" in record["failed"]["m0"]
    assert ground.versions() == before
    assert canary.run("cat /etc/lab-daemon.conf").stdout == f"version = {before['m0']}\n"
    assert canary.run("ls /usr/bin/containerd", check=False).returncode != 0
    assert canary.run("dpkg-query -W -f='${db:Status-Abbrev}' lab-library-3", check=False).stdout.strip() in ("", "rc")
    assert canary.run("apt-mark showhold").stdout.split() == ["lab-daemon"]
    assert canary.run("systemctl is-active lab-daemon").stdout == "active\n"
    status, said = ground.operator(tmp_path, before["m0"]).call("plan")
    assert status == 0, said


def test_a_machine_that_owes_a_reboot_is_rebooted(ground: Ground, tmp_path: Path) -> None:
    """That one, and only it; the service is back and the next plan is empty. One that is not back in time is told."""
    wanted, before = ground.versions()["m0"], ground.boots()
    ground.hosts["m2"].run("touch /run/reboot-required; echo linux-image-lab > /run/reboot-required.pkgs")
    operator = ground.operator(tmp_path, wanted)
    status, said = operator.call("plan")
    assert (status, "no reboot is owed  [reboot]" in said) == (2, True)
    assert "reboots: asked for by linux-image-lab" in said
    status, said = operator.call("apply")
    assert status == 0, said
    after = ground.boots()
    assert [name for name in NAMES if after[name] != before[name]] == ["m2"]
    assert ground.hosts["m2"].run("systemctl is-active lab-daemon").stdout == "active\n"
    assert operator.call("plan")[0] == 0
