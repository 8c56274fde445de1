"""A lab as an owner has it: bare machines, a control plane that they reach, and a mirror of what they need."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from roles.settings.machine import merged
from stacks.local.ground.control_plane import BINARIES, control_plane, wait_for_namespace
from stacks.local.kubeapi.client import KubeHttp
from stacks.local.process.ports import free_ports
from stacks.local.toolchain.tools import ensure_tools
from tests.live.debian import image_archive
from tests.live.hybrid import kept
from tests.live.machines import Bench, Host

SANDBOX = "lab.local/pause:1"
PAUSE = ("/bin/busybox", "sleep", "2147483647")
"""What its program is."""
BUSYBOX = "lab.local/busybox:1"
FAILING = "lab.local/failing:1"
"""Its program ends at once, with an error."""


@dataclass(frozen=True, slots=True)
class Lab:
    """All of it, running."""

    bench: Bench
    kube: KubeHttp
    url: str
    """Of the API server."""
    kubeconfig: Path
    authority: Path
    mirror: str
    """URL of the folder with kubelet and images."""
    digests: Mapping[str, str]
    """SHA-256 by file name."""
    directory: Path

    def settings(self) -> dict[str, Any]:
        """Of the fleet: what differs from the defaults because these machines are containers, or have no registry."""
        images = [
            {"name": name, "url": f"{self.mirror}/{file}", "sha256": self.digests[file]}
            for name, file in ((SANDBOX, "pause.tar"), (BUSYBOX, "busybox.tar"), (FAILING, "failing.tar"))
        ]
        kubelet = {"url": f"{self.mirror}/kubelet", "sha256": self.digests["kubelet"]}
        return {
            "kubeconfig": str(self.kubeconfig),
            "time": {"service": "none"},
            "kernel": {"swap": "keep"},
            "versions": {"containerd": "1.6.20", "runc": "1.1.5"},
            "untested": ["kubelet with containerd"],  # what Debian has is older than what is tested with this kubelet
            "container_runtime": {
                "package": "containerd",
                "cgroup_driver": "cgroupfs",
                "keep_oom_scores": True,
                "sandbox_image": SANDBOX,
                "images": images,
            },
            "kubelet": {
                "server": self.url,
                "authority": str(self.authority),
                "download": kubelet,
                "config": {"failCgroupV1": False},
            },
        }

    def inventory(
        self, hosts: list[Host], *, owner: str = "vision", own: Mapping[str, Mapping[str, Any]] | None = None
    ) -> Path:
        """The inventory file of these machines; ``own``: what one of them has beside that, by its name."""
        known = [line.split(" ", 1) for line in self.bench.known_hosts.read_text(encoding="ascii").splitlines()]
        entries = [
            {
                "name": host.name,
                "address": host.address,
                "cpus": 2,
                "memory": "2Gi",
                "rack": "r1",
                "owner": owner,
                "taints": [{"key": "lab.example/shared", "value": "yes"}],
                "ssh": {"key": str(self.bench.key), "host_key": dict(known)[host.address].strip()},
                "settings": {"pod_network": {"kind": "bridge", "pods": f"10.244.{number}.0/24"}},
            }
            for number, host in enumerate(hosts, start=1)
        ]
        file = self.directory / "inventory.yaml"
        entries = [merged(entry, (own or {}).get(str(entry["name"]), {})) for entry in entries]
        file.write_text(yaml.safe_dump({"settings": self.settings(), "machines": entries}), encoding="utf-8")
        return file


@contextlib.contextmanager
def lab(bench: Bench, directory: Path, *, in_pods: bool = False) -> Iterator[Lab]:
    """The control plane and the mirror for the length of a ``with`` block; ``in_pods``: pods talk to it, too."""
    tools = ensure_tools([*BINARIES, "kubelet"], progress=lambda line: print(line, file=sys.stderr, flush=True))
    ports = free_ports(3)
    plane = control_plane(
        directory, tools=tools, ports=(ports[0], ports[1], ports[2]), address=bench.gateway, in_pods=in_pods
    )
    with kept(plane.processes, directory=directory):
        kube = KubeHttp(plane.kubeconfig)
        wait_for_namespace(kube)
        folder = directory / "mirror"
        folder.mkdir()
        (folder / "kubelet").symlink_to(tools["kubelet"])
        image_archive(folder / "pause.tar", SANDBOX, command=PAUSE)
        image_archive(folder / "busybox.tar", BUSYBOX)
        image_archive(folder / "failing.tar", FAILING, command=("/bin/busybox", "false"))
        with serving(folder, address=bench.gateway) as url:
            yield Lab(
                bench=bench,
                kube=kube,
                url=plane.url,
                kubeconfig=plane.kubeconfig,
                authority=directory / "certificates" / "ca.crt",
                mirror=url,
                digests={file.name: digest_of(file) for file in folder.iterdir()},
                directory=directory,
            )


@contextlib.contextmanager
def serving(folder: Path, *, address: str) -> Iterator[str]:
    """The folder over HTTP for the length of a ``with`` block; gives its URL."""

    class Quiet(SimpleHTTPRequestHandler):
        """Says nothing of each request."""

        def log_message(self, *_: object) -> None:
            """Silent."""

    with ThreadingHTTPServer((address, 0), functools.partial(Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://{address}:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def sleeper(name: str, node: str) -> dict[str, Any]:
    """A pod that stays until it is told to go."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "containers": [{"name": "c", "image": BUSYBOX, "args": ["-c", "/bin/busybox sleep 3600"]}],
        },
    }


def digest_of(file: Path) -> str:
    """SHA-256."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def spillway(*words: str) -> subprocess.CompletedProcess[str]:
    """The command line, as a user calls it."""
    return subprocess.run(
        [sys.executable, "-m", "spillway", *words],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=600,
        check=False,
    )
