"""The Go tools of the local ground, built from pinned modules and kept per user and version.

:func:`ensure_tools` answers with a path for each: one on PATH whose version fits, else the cached one, else it builds.
What is cached is trusted only after the binary itself says what it is.
"""

from __future__ import annotations

import contextlib
import fcntl
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stacks.local.process.paths import cache_root
from stacks.local.toolchain.go_builds import Build, build, find_go

Progress = Callable[[str], None]
MODULES: Final = Path(__file__).with_name("modules")
"""The module of KWOK agrees with that of JobSet in each dependency's version, and that of Compose with that of the
training operator: what both need, client-go above all, is compiled once."""
_KUBERNETES: Final = "1.35.4"
_PULUMI: Final = "3.230.0"
_CONTAINER_TOOLKIT: Final = "1.20.0"


@dataclass(frozen=True, slots=True)
class Tool:
    """One binary: where its source is pinned, and how it tells what it is."""

    name: str
    module: Path
    """Folder whose go.mod and go.sum pin everything that goes into it."""
    package: str
    version: str
    says: str
    """Regular expression on what our own build reports when asked."""
    ask: tuple[str, ...] = ("--version",)
    fits: str = ""
    """Regular expression on what a binary on PATH reports that serves as well; empty: none does."""
    ldflags: str = ""
    beside: str = ""
    """A file in the module of its package that must lie beside the binary: a script, the types that it serves."""
    cgo: bool = False
    """True: building it needs a C compiler."""


def _kubernetes(name: str, *, says: str = "Kubernetes v{}", ask: tuple[str, ...] = ("--version",)) -> Tool:
    version = "k8s.io/component-base/version"
    major, minor, _ = _KUBERNETES.split(".")
    any_patch = rf"{major}\.{minor}\.\d+"
    return Tool(
        name=name,
        module=MODULES / "kubernetes",
        package=f"k8s.io/kubernetes/cmd/{name}",
        version=_KUBERNETES,
        says=f"^{says.format(re.escape(_KUBERNETES))}$",
        fits=f"^{says.format(any_patch)}$",
        ask=ask,
        ldflags=f"-X {version}.gitVersion=v{_KUBERNETES} -X {version}.gitMajor={major} -X {version}.gitMinor={minor}",
    )


TOOLS: Final[Mapping[str, Tool]] = {
    tool.name: tool
    for tool in (
        Tool(
            name="pulumi-language-python",
            module=MODULES / "pulumi-python",
            package="github.com/pulumi/pulumi/sdk/v3/python/cmd/pulumi-language-python",
            version="3.75.0",
            # It tells no version. The one of a newer pulumi on PATH finds its Python in another way: ours is used.
            says=r"^Usage of .*pulumi-language-python:$",
            ask=("-h",),
            beside="python/cmd/pulumi-language-python-exec",
        ),
        Tool(
            name="kwok",
            module=MODULES / "kwok",
            package="sigs.k8s.io/kwok/cmd/kwok",
            version="0.8.0",
            says=r"^kwok version v0\.8\.0 ",
            fits=r"^kwok version v0\.8\.\d+ ",
            ldflags="-X sigs.k8s.io/kwok/pkg/consts.Version=v0.8.0",
        ),
        Tool(
            name="etcd",
            module=MODULES / "kubernetes",
            package="go.etcd.io/etcd/server/v3",
            version="3.6.5",
            says=r"^etcd Version: 3\.6\.5$",
            fits=r"^etcd Version: 3\.[56]\.\d+$",
        ),
        _kubernetes("kube-apiserver"),
        _kubernetes("kube-controller-manager"),
        _kubernetes("kube-scheduler"),
        _kubernetes("kubelet"),
        Tool(
            name="pulumi",
            module=MODULES / "pulumi",
            package="github.com/pulumi/pulumi/pkg/v3/cmd/pulumi",
            version=_PULUMI,
            says=rf"^v{re.escape(_PULUMI)}$",
            fits=r"^v3\.[2-9]\d\d\.\d+$",
            ask=("version",),
            ldflags=f"-X github.com/pulumi/pulumi/sdk/v3/go/common/version.Version=v{_PULUMI}",
        ),
        Tool(  # for the tests of roles/ only
            name="nvidia-ctk",
            module=MODULES / "nvidia-container-toolkit",
            package="github.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-ctk",
            version=_CONTAINER_TOOLKIT,
            says=rf"^NVIDIA Container Toolkit CLI version {re.escape(_CONTAINER_TOOLKIT)}$",
            # NVML is looked up when it is first called: there need be none where it runs.
            ldflags=f"-X github.com/NVIDIA/nvidia-container-toolkit/internal/info.version={_CONTAINER_TOOLKIT}"
            " -extldflags=-Wl,-z,lazy",
            cgo=True,
        ),
        # For the test of a kubeadm control plane only.
        _kubernetes("kubeadm", says="v{}", ask=("version", "-o", "short")),
        _kubernetes("kubectl", says="Client Version: v{}", ask=("version", "--client")),
        Tool(  # for the tests of rendered jobs only, as is the next one
            name="jobset",
            module=MODULES / "jobset",
            package="sigs.k8s.io/jobset",
            version="0.12.0",
            says=r"^Usage of .*jobset:$",  # it tells no version
            ask=("-h",),
            beside="config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml",
        ),
        Tool(
            name="training-operator.v1",
            module=MODULES / "training-operator",
            package="github.com/kubeflow/training-operator/cmd/training-operator.v1",
            version="1.9.3",
            says=r"^Usage of .*training-operator\.v1:$",  # it tells no version
            ask=("-h",),
            beside="manifests/base/crds/kubeflow.org_tfjobs.yaml",
        ),
        Tool(  # for the test of jobs in real pods only, which find each other by name
            name="coredns",
            module=MODULES / "coredns",
            package="spillway.local/coredns",
            version="1.14.7",
            says=r"^CoreDNS-1\.14\.7$",
            fits=r"^CoreDNS-1\.1[0-9]\.\d+$",
            ask=("-version",),
        ),
        Tool(  # for the test of compose files only
            name="docker-compose",
            module=MODULES / "docker-compose",
            package="github.com/docker/compose/v2/cmd",
            version="2.40.3",
            says=r"^Docker Compose version v2\.40\.3$",
            fits=r"^Docker Compose version v2\.(2[4-9]|[34]\d)\.\d+$",
            ask=("version",),
            ldflags="-X github.com/docker/compose/v2/internal.Version=v2.40.3",
        ),
        Tool(  # for the test of a tunnel only
            name="wireguard-go",
            module=MODULES / "wireguard",
            package="golang.zx2c4.com/wireguard",
            version="0.0.20250522",
            says=r"^wireguard-go v0\.0\.20250522$",
            fits=r"^wireguard-go v0\.0\.\d+$",
        ),
    )
}
"""In the order in which they are built: the smallest first, so that the sources of the others arrive meanwhile."""


def ensure_tools(names: Iterable[str], *, progress: Progress, known: Mapping[str, Tool] = TOOLS) -> Mapping[str, Path]:
    """A path for each named tool; builds what is missing and says so.

    Raises ``BadInput`` where Go is missing or too old, ``Unavailable`` where a build fails.
    """
    asked = set(names)
    wanted = [tool for name, tool in known.items() if name in asked]
    found = _find_all(wanted)
    if len(found) < len(wanted):
        scratch = cache_root() / "go"
        go = find_go(scratch=scratch)
        with _building_alone(progress):
            found = _find_all(wanted)  # another process may have built them while this one waited
            missing = [tool for tool in wanted if tool.name not in found]
            if missing:
                build(go, [_how(tool) for tool in missing], scratch=scratch, progress=progress)
        found |= {tool.name: cached(tool) for tool in missing}
    return found


def cached(tool: Tool) -> Path:
    """Where our own build of it lies, or will lie."""
    return cache_root() / "tools" / f"{tool.name}-{tool.version}" / tool.name


def _find_all(wanted: Iterable[Tool]) -> dict[str, Path]:
    with ThreadPoolExecutor() as pool:
        found = pool.map(lambda tool: (tool.name, _find(tool)), wanted)
        return {name: path for name, path in found if path}


def _find(tool: Tool) -> Path | None:
    on_path = shutil.which(tool.name)
    if tool.fits and on_path and _reports(tool, Path(on_path), tool.fits):
        return Path(on_path).absolute()
    return cached(tool) if _is_itself(tool, cached(tool)) else None


def _is_itself(tool: Tool, binary: Path) -> bool:
    """Whether the binary runs, says that it is the pinned version, and has with it what it needs."""
    complete = not tool.beside or (binary.parent / Path(tool.beside).name).exists()
    return complete and _reports(tool, binary, tool.says)


def _reports(tool: Tool, binary: Path, what: str) -> bool:
    try:
        asked = subprocess.run(
            [str(binary), *tool.ask], capture_output=True, text=True, errors="replace", timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    said = asked.stdout + asked.stderr
    return asked.returncode in {0, 2} and re.search(what, said, flags=re.MULTILINE) is not None


def _how(tool: Tool) -> Build:
    return Build(
        name=tool.name,
        module=tool.module,
        package=tool.package,
        ldflags=tool.ldflags,
        beside=tool.beside,
        cgo=tool.cgo,
        target=cached(tool),
        is_good=lambda binary: _is_itself(tool, binary),
    )


@contextlib.contextmanager
def _building_alone(progress: Progress) -> Iterator[None]:
    """One build per user at a time: a second process waits for the first and then finds what it made."""
    folder = cache_root() / "tools"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            progress("another process is building the tools; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
