"""Packages on a real machine with real apt: what is not signed by us is not believed, and nobody else is in the way."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from roles.deploys.apt_sources import Repository, chosen_sources, package_sources, read_sources, why_not_signed_by_us
from roles.engine.fleet import connected
from roles.engine.host_plan import HostPlan
from roles.operations import packages
from tests.live.apt_repository import AptRepository, Deb
from tests.live.machines import Bench, Host
from tests.live.operating import Operator
from tests.test_roles.signing import Signer

pytestmark = pytest.mark.live


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine whose only route is a mirror with packages of ours."""

    host: Host
    repository: AptRepository
    signer: Signer
    described: Repository
    key: Path

    def want(self, wanted: Mapping[str, str], *, instead_of: Collection[str] = ()) -> str:
        """Have these packages; gives why not."""
        role = functools.partial(self._role, wanted, instead_of)
        with connected([(self.host.name, self.host.ssh_data())], role) as fleet:
            plan = fleet.plan()[self.host.name]
            assert not plan.failed, plan.failed
            (done,) = fleet.apply([self.host.name])
            return done.failed

    def plan(self, wanted: Mapping[str, str]) -> HostPlan:
        """What would be done for these packages."""
        with connected([(self.host.name, self.host.ssh_data())], lambda: self._role(wanted)) as fleet:
            return fleet.plan()[self.host.name]

    def version(self, package: str) -> str:
        """The installed version; empty where it is not installed."""
        shown = self.host.run(f"dpkg-query -W -f '${{db:Status-Abbrev}} ${{Version}}' {package}", check=False).stdout
        return shown.split()[1] if shown[1:2] == "i" else ""

    def _role(self, wanted: Mapping[str, str], instead_of: Collection[str] = ()) -> None:
        entry = {"uri": "https://nowhere.invalid", "key": str(self.key), "fingerprints": [self.signer.fingerprint]}
        sources = read_sources({"mirror": self.repository.address, "repositories": {"nvidia-cuda": entry}})
        chosen = chosen_sources(sources, ["nvidia-cuda"], os="debian-12", minor="1.35")
        package_sources(name="sources", chosen=chosen, exclusive=True)
        packages.pinned(name="pinned", pins_of="lab", wanted=wanted)
        packages.installed(name="installed", wanted=wanted, instead_of=instead_of)


@pytest.fixture(scope="module")
def signer() -> Signer:
    """The key of the mirror."""
    return Signer("the mirror")


@pytest.fixture(scope="module")
def hosts(bench: Bench) -> list[Host]:
    """One for each test, all before the first connection: paramiko reads the file with their keys once."""
    return bench.light(*(f"apt{number}" for number in range(1, 11)))


@pytest.fixture
def machine(bench: Bench, hosts: list[Host], signer: Signer, tmp_path: Path) -> Iterator[Machine]:
    """A fresh machine and mirror for each test."""
    folder = tmp_path / "mirror"
    folder.mkdir()
    (folder / "nvidia-cuda").symlink_to(".")
    key = tmp_path / "key.asc"
    key.write_bytes(signer.public)
    described = Repository(uri="https://nowhere.invalid", key=str(key), fingerprints=(signer.fingerprint,))
    with AptRepository(folder, signer, listen=bench.gateway) as repository:
        repository.add(Deb("lab-tool", "1.0-1"), Deb("lab-tool", "2.0-1"))
        host = hosts.pop()
        host.run("ip route del default")
        yield Machine(host, repository, signer, described, key)


def test_a_machine_behind_a_mirror_needs_no_other_route(machine: Machine) -> None:
    """It reaches nobody else, and gets the version that is pinned, not the newest; a second plan is empty."""
    assert machine.host.run("ip route").stdout.count("\n") == 1
    assert machine.host.run("timeout 3 sh -c 'echo > /dev/tcp/1.1.1.1/53'", check=False).returncode != 0
    assert machine.want({"lab-tool": "1.0-1"}) == ""
    assert machine.version("lab-tool") == "1.0-1"
    assert machine.host.run("apt-mark showhold").stdout.split() == ["lab-tool"]
    assert machine.plan({"lab-tool": "1.0-1"}).is_clean


def test_a_held_package_goes_up_and_down_with_its_pin(machine: Machine) -> None:
    """And is held again each time; apt lets go of what it changes."""
    for version in ("2.0-1", "1.0-1", "2.0-*"):
        assert machine.want({"lab-tool": version}) == ""
        assert machine.version("lab-tool").startswith(version.rstrip("*"))
        assert machine.host.run("apt-mark showhold").stdout.split() == ["lab-tool"]


def test_a_package_that_was_tampered_with_is_refused(machine: Machine) -> None:
    """Its content is not what the signed index says."""
    (file,) = machine.repository.folder.glob("lab-tool_2.0-1_*.deb")
    content = bytearray(file.read_bytes())
    content[-20] ^= 1
    file.write_bytes(bytes(content))
    assert "SHA256" in machine.want({"lab-tool": "2.0-1"})
    assert machine.version("lab-tool") == ""


def test_an_index_that_was_tampered_with_is_refused(machine: Machine) -> None:
    """A package that nobody signed for cannot be smuggled in."""
    index = machine.repository.folder / "Packages"
    index.write_bytes(index.read_bytes() + b"\nPackage: evil\nVersion: 1\n")
    assert "unexpected size" in machine.want({"lab-tool": "2.0-1"})
    assert machine.version("lab-tool") == ""


def test_a_repository_signed_by_an_unknown_key_is_refused(machine: Machine) -> None:
    """The machine does not believe it, and the controller knows whose key it is now."""
    uri = f"{machine.repository.address}/nvidia-cuda"
    assert why_not_signed_by_us("nvidia-cuda", machine.described, uri) == ""
    stranger = Signer("a stranger")
    machine.repository.sign(stranger)
    assert "NO_PUBKEY" in machine.want({"lab-tool": "2.0-1"})
    assert stranger.fingerprint in why_not_signed_by_us("nvidia-cuda", machine.described, uri)
    assert machine.version("lab-tool") == ""


def test_no_other_package_is_taken_away_for_the_sake_of_one(machine: Machine) -> None:
    """What would have to go stays, and the wanted one is refused."""
    machine.repository.add(Deb("lab-rival", "1-1", conflicts="lab-tool"))
    assert machine.want({"lab-tool": "2.0-1"}) == ""
    machine.host.run("rm -f /var/lib/apt/lists/spillway-updated")
    assert "Conflicts: lab-tool" in machine.want({"lab-rival": "1-1"})
    assert (machine.version("lab-tool"), machine.version("lab-rival")) == ("2.0-1", "")


def test_a_package_takes_the_place_of_another_once_it_is_here_and_of_no_third(machine: Machine) -> None:
    """The old one stays where the new one cannot be fetched, or where somebody else needs it."""
    machine.repository.add(Deb("lab-rival", "1-1", conflicts="lab-tool"), Deb("lab-user", "1-1", depends="lab-tool"))
    assert machine.want({"lab-tool": "2.0-1", "lab-user": "1-1"}) == ""
    machine.host.run("apt-mark unhold lab-user")
    refused = machine.want({"lab-rival": "1-1"}, instead_of=["lab-tool"])
    assert "refused: would also remove lab-user" in refused
    machine.host.run("dpkg --purge lab-user")
    (file,) = machine.repository.folder.glob("lab-rival_*.deb")
    away = file.rename(file.with_suffix(".away"))
    assert "404" in machine.want({"lab-rival": "1-1"}, instead_of=["lab-tool"])
    assert (machine.version("lab-tool"), machine.version("lab-rival")) == ("2.0-1", "")
    away.rename(file)
    assert machine.want({"lab-rival": "1-1"}, instead_of=["lab-tool"]) == ""
    assert (machine.version("lab-tool"), machine.version("lab-rival")) == ("", "1-1")
    assert machine.host.run("apt-mark showhold").stdout.split() == ["lab-rival"]


def test_apt_waits_for_another_apt(machine: Machine) -> None:
    """Unattended-upgrades runs at boot; what failed at once would fail every morning."""
    hold = (
        "import fcntl,time;f=open('/var/lib/dpkg/lock-frontend','w');fcntl.lockf(f,fcntl.LOCK_EX);"
        "print(1,flush=1);time.sleep(3)"
    )
    machine.host.run(f'setsid python3 -c "{hold}" </dev/null >/run/held 2>&1 & until [ -s /run/held ]; do :; done')
    assert machine.want({"lab-tool": "2.0-1"}) == ""
    assert machine.version("lab-tool") == "2.0-1"


def test_a_version_that_no_source_has_is_told_by_a_plan(machine: Machine) -> None:
    """Also of a bare machine, with the versions that there are; nothing is left behind, and the next plan asks anew."""
    machine.repository.add(*(Deb("nvidia-driver-cuda", f"580.{number}-1") for number in ("126.09", "95.05", "82.07")))
    before = machine.host.run(
        "find /tmp /var/tmp /etc/apt /var/lib/apt /var/cache/apt -newermt 2000-01-01 | sort"
    ).stdout
    plan = machine.plan({"nvidia-driver-cuda": "580.126.9-1"})
    (refusal,) = plan.refused
    assert (refusal.resource, refusal.setting) == ("installed", "versions.driver")
    assert refusal.reason == (
        "no package source of this machine has nvidia-driver-cuda 580.126.9-1; of nvidia-driver-cuda there are"
        " 580.126.09-1, 580.95.05-1, 580.82.07-1"
    )
    assert (
        machine.host.run("find /tmp /var/tmp /etc/apt /var/lib/apt /var/cache/apt -newermt 2000-01-01 | sort").stdout
        == before
    )
    plan = machine.plan({"nvidia-driver-cuda": "580.126.09-1", "cuda-toolkit-13-9": "*"})
    assert [one.reason for one in plan.refused] == [
        "no package source of this machine has cuda-toolkit-13-9; they have no cuda-toolkit-13-9 at all"
    ]
    machine.repository.add(Deb("cuda-toolkit-13-9", "13.9.0-1"))
    assert machine.want({"nvidia-driver-cuda": "580.95.*", "cuda-toolkit-13-9": "*"}) == ""
    assert machine.version("nvidia-driver-cuda") == "580.95.05-1"
    machine.repository.withdraw("nvidia-driver-cuda_580.95.05-1")
    assert machine.plan({"nvidia-driver-cuda": "580.95.*", "cuda-toolkit-13-9": "*"}).is_clean, (
        "what is there is not asked for"
    )
    machine.repository.__exit__()
    away = machine.plan({"nvidia-driver-cuda": "580.1.01-1"})
    assert not away.refused, "a mirror that is away has not said no"


def test_a_version_that_no_source_has_is_told_with_its_line_and_nothing_is_begun(
    machine: Machine, tmp_path: Path
) -> None:
    """By check, plan and apply alike, before a file is written there; an operator may answer for it."""
    machine.repository.add(Deb("nvidia-driver-cuda", "580.126.09-1"), Deb("nvidia-driver-cuda", "580.95.05-1"))
    host = machine.host
    rolling = ("--no-cluster", "--health-seconds", "0", "--ignore", "systemd")
    operator = Operator({host.name: host}, tmp_path, role="tests.live.versions_role:prepare", rolling=rolling)
    inventory: dict[str, Any] = yaml.safe_load(operator.inventory.read_text(encoding="utf-8"))
    entry = {"uri": "https://nowhere.invalid", "key": str(machine.key), "fingerprints": [machine.signer.fingerprint]}
    shared = {"mirror": machine.repository.address, "repositories": {"nvidia-cuda": entry}}
    inventory["machines"][0]["settings"] = {"sources": shared, "versions": {"driver": "580.126.90"}}
    operator.inventory.write_text(yaml.safe_dump(inventory, sort_keys=False), encoding="utf-8")
    line = operator.inventory.read_text(encoding="utf-8").partition("driver: 580")[0].count("\n") + 1
    told = (
        f"{operator.inventory}:{line}: machine {host.name}: settings: versions.driver = '580.126.90': no package source"
        " of this machine has nvidia-driver-cuda 580.126.90-1; of nvidia-driver-cuda there are 580.126.09-1,"
        " 580.95.05-1"
    )
    for command, where in (("check", "error: packages: "), ("plan", "Driver | installed: refused: ")):
        status, said = operator.call(command)
        assert status == 2, said
        assert f"{where}{told}" in said
    status, record = operator.record("apply")
    assert (status, record["changed"]) == (2, [])
    assert f"packages: {told}" in record["held"][host.name]
    assert host.run("ls /etc/spillway-first /etc/apt/preferences.d/spillway-lab", check=False).stdout == ""
    assert operator.record("apply", "--ignore", "packages")[0] == 2
    assert host.run("ls /etc/spillway-first /etc/spillway-driver", check=False).stdout == "/etc/spillway-first\n"
    text = operator.inventory.read_text(encoding="utf-8")
    operator.inventory.write_text(text.replace("580.126.90", "580.126.09"), encoding="utf-8")
    status, said = operator.call("apply")
    assert status == 0, said
    assert machine.version("nvidia-driver-cuda") == "580.126.09-1"
