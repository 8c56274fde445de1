"""Packages on a real machine with real apt: what is not signed by us is not believed, and nobody else is in the way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from roles.engine import connected
from roles.operations import packages
from roles.plan import HostPlan
from roles.sources import Repository, chosen_sources, package_sources, read_sources, why_not_signed_by_us
from tests.live.apt_repository import AptRepository, Deb
from tests.live.machines import Bench, Host
from tests.test_roles.signing import Signer, needs_gpg

pytestmark = [pytest.mark.live, needs_gpg]


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine whose only route is a mirror with packages of ours."""

    host: Host
    repository: AptRepository
    signer: Signer
    described: Repository
    key: Path

    def want(self, wanted: Mapping[str, str]) -> str:
        """Have these packages; gives why not."""
        with connected([(self.host.name, self.host.ssh_data())], lambda: self._role(wanted)) as fleet:
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

    def _role(self, wanted: Mapping[str, str]) -> None:
        entry = {"uri": "https://nowhere.invalid", "key": str(self.key), "fingerprints": [self.signer.fingerprint]}
        sources = read_sources({"mirror": self.repository.address, "repositories": {"nvidia-cuda": entry}})
        chosen = chosen_sources(sources, ["nvidia-cuda"], os="debian-12", minor="1.35")
        package_sources(name="sources", chosen=chosen, exclusive=True)
        packages.pinned(name="pinned", pins_of="lab", wanted=wanted)
        packages.installed(name="installed", wanted=wanted)


@pytest.fixture(scope="module")
def signer() -> Iterator[Signer]:
    """The key of the mirror."""
    with Signer("the mirror") as made:
        yield made


@pytest.fixture(scope="module")
def hosts(bench: Bench) -> list[Host]:
    """One for each test, all before the first connection: paramiko reads the file with their keys once."""
    return bench.light(*(f"apt{number}" for number in range(1, 9)))


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
    with Signer("a stranger") as stranger:
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


def test_apt_waits_for_another_apt(machine: Machine) -> None:
    """Unattended-upgrades runs at boot; what failed at once would fail every morning."""
    hold = (
        "import fcntl,time;f=open('/var/lib/dpkg/lock-frontend','w');fcntl.lockf(f,fcntl.LOCK_EX);"
        "print(1,flush=1);time.sleep(3)"
    )
    machine.host.run(f'setsid python3 -c "{hold}" </dev/null >/run/held 2>&1 & until [ -s /run/held ]; do :; done')
    assert machine.want({"lab-tool": "2.0-1"}) == ""
    assert machine.version("lab-tool") == "2.0-1"
