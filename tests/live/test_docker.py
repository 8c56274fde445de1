"""From Debian's containerd to Docker's and back, Docker with it: beside containers that run, and must not notice."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from roles.deploys.apt_sources import node_sources
from roles.deploys.container_runtime import container_runtime
from roles.deploys.docker import docker
from roles.engine.disruption import Disruption
from roles.engine.fleet import Fleet, connected
from roles.settings.machine import MachineSettings, settings
from tests.live.apt_repository import Deb
from tests.live.debian import cached_root, image_archive, run
from tests.live.lab import digest_of
from tests.live.machines import Bench, Host
from tests.live.test_drift import mirror, said
from tests.test_roles.signing import Signer

pytestmark = pytest.mark.live

IMAGE = "docker.io/library/busybox:1"


def containers_alone() -> None:
    """The roles of a machine that has no Docker of ours."""
    node_sources()
    container_runtime()


def prepare() -> None:
    """The roles of a machine that have to do with containers."""
    containers_alone()
    docker(containerd=settings().container_runtime.package, systemd_cgroup=False)


@dataclass(frozen=True, slots=True)
class Node:
    """A machine, and what it is told but for the package of containerd."""

    host: Host
    settings: dict[str, Any]
    role: Callable[[], None] = prepare

    @contextlib.contextmanager
    def wanting(self, package: str) -> Iterator[Fleet]:
        """The machine as the planner has it, planned for."""
        runtime = {**self.settings["container_runtime"], "package": package}
        wanted = MachineSettings.model_validate({**self.settings, "container_runtime": runtime})
        with connected([(self.host.name, {**self.host.ssh_data(), "settings": wanted})], self.role) as fleet:
            plan = fleet.plan()[self.host.name]
            assert not plan.failed, plan.failed
            yield fleet

    def apply(self, package: str) -> str:
        """Have this one; gives why not."""
        with self.wanting(package) as fleet:
            (done,) = fleet.apply([self.host.name])
            return done.failed

    def drift(self, package: str) -> str:
        """What there is to do for this one."""
        with self.wanting(package) as fleet:
            return said(fleet.plans[self.host.name])


@pytest.fixture(scope="module")
def node(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """With Debian's containerd and Docker, and a repository that has Docker's own under their names."""
    folder = tmp_path_factory.mktemp("repository")
    signer = Signer("Docker, as far as the tests go")
    with mirror(folder, signer, bench) as repository:
        image_archive(folder / "busybox.tar", IMAGE, command=())
        shared = repository.for_all(signer, folder)
        dockers = {**shared["repositories"]["nvidia-cuda"], "suites": ["/"], "components": []}
        (folder / "docker").symlink_to(".")
        image = {"url": f"{repository.address}/busybox.tar", "sha256": digest_of(folder / "busybox.tar")}
        (host,) = bench.machines("docker")
        made = Node(
            host,
            {
                "name": "docker",
                "address": host.address,
                "gpu_product": "NVIDIA-A100-SXM4-40GB",
                "gpu_count": 1,
                "gpu": {"driver": False, "docker": True},
                "sources": {**shared, "repositories": {**shared["repositories"], "docker": dockers}},
                "versions": {"containerd": "1.6.20", "runc": "1.1.5"},
                "container_runtime": {
                    "cgroup_driver": "cgroupfs",
                    "keep_oom_scores": True,
                    "images": [{"name": IMAGE, **image}],
                },
            },
        )
        repository.add(dockers_containerd(folder / "containerd"))
        assert made.apply("containerd") == ""
        (engine,) = (host.upper / "var/cache/apt/archives").glob("docker.io_*.deb")
        repository.add(*dockers_engine(engine, folder / "engine"))
        assert made.drift("containerd") == ""
        yield made


def dockers_containerd(scratch: Path) -> Deb:
    """``containerd.io`` of Debian's programs, as Docker packs it: with runc, and a configuration that has no CRI."""
    for package in ("containerd", "runc"):
        (file,) = (cached_root() / "var/cache/apt/archives").glob(f"{package}_*.deb")
        run("dpkg-deb", "--extract", str(file), str(scratch))
    programs = {
        f"/usr/bin/{name}": scratch / "usr/bin" / name for name in ("containerd", "containerd-shim-runc-v2", "ctr")
    }
    unit = (scratch / "lib/systemd/system/containerd.service").read_text(encoding="utf-8")
    return Deb(
        "containerd.io",
        "1.6.20-1",
        {
            **programs,
            "/usr/bin/runc": scratch / "usr/sbin/runc",
            "/etc/containerd/config.toml": 'disabled_plugins = ["cri"]\n',
            "/lib/systemd/system/containerd.service": unit,
        },
        programs=(*programs, "/usr/bin/runc"),
        provides="containerd, runc",
        conflicts="containerd, runc",
        replaces="containerd, runc",
        scripts=starts("containerd"),
        conffiles=("/etc/containerd/config.toml",),
    )


def dockers_engine(packed: Path, scratch: Path) -> list[Deb]:
    """``docker-ce`` and its client, of the programs of Debian's package."""
    run("dpkg-deb", "--extract", str(packed), str(scratch))
    engine = {f"/usr/bin/{name}": scratch / "usr/sbin" / name for name in ("dockerd", "docker-proxy")}
    units = {
        f"/lib/systemd/system/{name}": (scratch / "lib/systemd/system" / name)
        .read_text(encoding="utf-8")
        .replace("/usr/sbin/", "/usr/bin/")
        for name in ("docker.service", "docker.socket")
    }
    version = "5:20.10.24-3~debian.12~bookworm"
    return [
        Deb(
            "docker-ce-cli",
            version,
            {"/usr/bin/docker": scratch / "usr/bin/docker"},
            programs=("/usr/bin/docker",),
            conflicts="docker.io",
        ),
        Deb(
            "docker-ce",
            version,
            {**engine, **units},
            programs=tuple(engine),
            depends="containerd.io, docker-ce-cli, iptables",
            conflicts="docker.io",
            scripts={**starts("docker"), "preinst": "groupadd --force --system docker"},
        ),
    ]


def starts(unit: str) -> dict[str, str]:
    """What a package with a service does to it."""
    return {
        "postinst": f"systemctl daemon-reload; systemctl enable {unit}; systemctl restart {unit}",
        "prerm": f'[ "$1" != remove ] || systemctl stop {unit}.service {unit}.socket || true',
        "postrm": "systemctl daemon-reload || true",
    }


def test_a_docker_that_nobody_asked_for_is_not_taken_away(node: Node) -> None:
    """It depends on Debian's containerd, so that stays too; the reason names it."""
    node.host.run("apt-mark unhold docker.io")
    own = {**node.settings, "gpu": {"driver": False}}
    failed = Node(node.host, own, containers_alone).apply("containerd.io")
    assert "refused: would also remove docker.io" in failed
    assert node.host.run("runc --version && docker version && dpkg -s containerd").returncode == 0
    assert node.apply("containerd") == ""


def test_a_change_of_the_package_waits_where_containerd_may_not_restart(node: Node) -> None:
    """And so does all that comes after it."""
    with node.wanting("containerd.io") as fleet:
        before = pids(node.host)
        (done,) = fleet.apply([node.host.name], allowed=Disruption.RELOAD)
        assert done.failed == ""
        assert {str(change.disruption) for change in done.held if "containerd 1.6.20" in change.resource} == {
            "containerd-restart"
        }
    assert pids(node.host) == before
    assert node.apply("containerd") == ""


@pytest.mark.parametrize("package", ["containerd.io", "containerd"])
def test_containers_outlive_a_change_of_the_package(node: Node, package: str) -> None:
    """The same processes go on, and both engines have them in hand: they can be entered and ended."""
    host = node.host
    host.run(f"ctr -n k8s.io run -d {IMAGE} pod /bin/busybox sleep 3600")
    start_as_a_person_does(node)
    before = sleepers(host)
    assert len(before) == 2
    assert node.apply(package) == ""
    assert sleepers(host) == before
    assert node.drift(package) == ""
    assert host.run("runc --version").stdout.startswith("runc version 1.1.5")
    assert host.run("dpkg -S $(command -v containerd)").stdout.startswith(f"{package}:")
    assert "sandbox_image" in host.run("containerd config dump").stdout
    assert host.run("ctr -n k8s.io task exec --exec-id e pod /bin/busybox echo in").stdout == "in\n"
    assert host.run("docker exec person /bin/busybox echo in").stdout == "in\n"
    host.run("docker rm -f person && ctr -n k8s.io task kill -s KILL pod && sleep 1 && ctr -n k8s.io container rm pod")
    assert sleepers(host) == []


def test_containers_outlive_the_first_restart_of_a_docker_that_was_here_before_us(node: Node) -> None:
    """It was started without the setting by which they do: it takes that before it ends."""
    host = node.host
    host.run("sed -i '/live-restore/d' /etc/docker/daemon.json && systemctl restart docker")
    start_as_a_person_does(node)
    before, engines = sleepers(host), pids(host)
    assert node.apply("containerd") == ""
    assert pids(host) != engines
    assert (len(before), sleepers(host)) == (1, before)
    host.run("docker rm -f person")


def start_as_a_person_does(node: Node) -> None:
    """A container of Docker's that stays."""
    (image,) = node.settings["container_runtime"]["images"]
    node.host.run(
        f"/usr/lib/apt/apt-helper download-file {image['url']} /root/image.tar && docker load -i /root/image.tar"
    )
    node.host.run(f"docker run -d --net none --name person {IMAGE} /bin/busybox sleep 3600")


def sleepers(host: Host) -> list[str]:
    """Processes of containers of the test."""
    return host.run("pgrep -f '^/bin/busybox sleep 3600'", check=False).stdout.split()


def pids(host: Host) -> str:
    """Of both engines."""
    return host.run("systemctl show -P MainPID containerd docker").stdout
