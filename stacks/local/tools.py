"""The Go tools of the local ground, built from pinned modules and kept per user and version.

:func:`ensure_tools` answers with a path for each: one on PATH whose version fits, else the cached one, else it builds.
What is cached is trusted only after the binary itself says what it is.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from autoscaler.failures import BadInput, Unavailable
from stacks.local.paths import cache_root

Progress = Callable[[str], None]
MODULES: Final = Path(__file__).with_name("modules")
OLDEST_GO: Final = (1, 25)
_KUBERNETES = "1.35.4"
_REPORT_EVERY = 10.0


@dataclass(frozen=True, slots=True)
class Tool:
    """One binary: where its source is pinned, what version it must report, how it is asked."""

    name: str
    module: str
    """Folder in ``stacks/local/modules`` whose go.mod and go.sum pin everything."""
    package: str
    version: str
    fits: str
    """Regular expression on what the binary reports: versions found on PATH that serve as well."""
    ask: tuple[str, ...] = ("--version",)
    ldflags: str = ""
    beside: str = ""
    """A script of the package's module that must lie beside the binary."""


def _kubernetes(name: str) -> Tool:
    version = "k8s.io/component-base/version"
    major, minor, _ = _KUBERNETES.split(".")
    return Tool(
        name=name,
        module="kubernetes",
        package=f"k8s.io/kubernetes/cmd/{name}",
        version=_KUBERNETES,
        fits=rf"v{major}\.{minor}\.\d+\b",
        ldflags=f"-X {version}.gitVersion=v{_KUBERNETES} -X {version}.gitMajor={major} -X {version}.gitMinor={minor}",
    )


_PULUMI = "3.230.0"
TOOLS: Final[Mapping[str, Tool]] = {
    tool.name: tool
    for tool in (
        _kubernetes("kube-apiserver"),
        _kubernetes("kube-controller-manager"),
        _kubernetes("kube-scheduler"),
        Tool(
            name="etcd",
            module="kubernetes",
            package="go.etcd.io/etcd/server/v3",
            version="3.6.5",
            fits=r"etcd Version: 3\.[56]\.\d+",
        ),
        Tool(
            name="kwok",
            module="kwok",
            package="sigs.k8s.io/kwok/cmd/kwok",
            version="0.8.0",
            fits=r"v?0\.8\.\d+",
            ldflags="-X sigs.k8s.io/kwok/pkg/consts.Version=v0.8.0",
        ),
        Tool(
            name="pulumi",
            module="pulumi",
            package="github.com/pulumi/pulumi/pkg/v3/cmd/pulumi",
            version=_PULUMI,
            fits=r"v3\.(2[3-9]\d|[3-9]\d\d)\.\d+",
            ask=("version",),
            ldflags=f"-X github.com/pulumi/pulumi/sdk/v3/go/common/version.Version=v{_PULUMI}",
        ),
        Tool(
            name="pulumi-language-python",
            module="pulumi-python",
            package="github.com/pulumi/pulumi/sdk/v3/python/cmd/pulumi-language-python",
            version="3.75.0",
            # Newer hosts start the program in their own way; one that lies on PATH belongs to a pulumi that lies there.
            fits=r"^$",
            ask=("-h",),
            beside="python/cmd/pulumi-language-python-exec",
        ),
    )
}


def ensure_tools(names: Iterable[str], *, progress: Progress) -> Mapping[str, Path]:
    """A path for each named tool; builds what is missing and says so.

    Raises ``BadInput`` where Go is missing or too old, ``Unavailable`` where a build fails.
    """
    wanted = [TOOLS[name] for name in names]
    found = {tool.name: path for tool in wanted if (path := _find(tool))}
    missing = [tool for tool in wanted if tool.name not in found]
    if missing:
        with _building_alone(progress):
            missing = [tool for tool in missing if not _is_itself(tool, _cached(tool))]
            _build(missing, progress=progress)
        found |= {tool.name: _cached(tool) for tool in wanted if tool.name not in found}
    return found


def _find(tool: Tool) -> Path | None:
    on_path = shutil.which(tool.name)
    if on_path and re.search(tool.fits, _reported(tool, Path(on_path)) or "-"):
        return Path(on_path)
    return _cached(tool) if _is_itself(tool, _cached(tool)) else None


def _cached(tool: Tool) -> Path:
    return cache_root() / "tools" / f"{tool.name}-{tool.version}" / tool.name


def _is_itself(tool: Tool, binary: Path) -> bool:
    """Whether the binary runs and says that it is the pinned version (tools that say none: that it runs)."""
    if tool.beside and not (binary.parent / Path(tool.beside).name).exists():
        return False
    reported = _reported(tool, binary)
    return reported is not None and (tool.fits == r"^$" or tool.version in reported)


def _reported(tool: Tool, binary: Path) -> str | None:
    try:
        asked = subprocess.run(
            [str(binary), *tool.ask],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
            env=os.environ | {"PULUMI_SKIP_UPDATE_CHECK": "1"},
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    return asked.stdout + asked.stderr if asked.returncode in (0, 2) else None


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


def _build(missing: list[Tool], *, progress: Progress) -> None:
    if not missing:
        return
    go = _go()
    modules = list(dict.fromkeys(tool.module for tool in missing))
    progress(
        f"building {len(missing)} tools from source, once for this user: {', '.join(tool.name for tool in missing)}"
        " (about 10 minutes on 2 cores when all are missing)"
    )
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="spillway-build-") as scratch:
        for number, module in enumerate(modules, start=1):
            shutil.copytree(MODULES / module, Path(scratch) / module)
            tools = [tool for tool in missing if tool.module == module]
            label = f"[{number}/{len(modules)}] {', '.join(tool.name for tool in tools)}"
            ahead = modules[number] if number < len(modules) else None
            with _downloading(go, ahead):
                _build_module(go, tools, source=Path(scratch) / module, label=label, began=began, progress=progress)
    progress(f"tools are built ({time.monotonic() - began:.0f} s in all)")


@contextlib.contextmanager
def _downloading(go: str, module: str | None) -> Iterator[None]:
    """Fetch the sources of the next module while the processors are busy with this one."""
    if module is None:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="spillway-fetch-") as scratch:
        shutil.copytree(MODULES / module, Path(scratch) / module)
        fetch = subprocess.Popen(
            [go, "mod", "download"], cwd=Path(scratch) / module, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            yield
        finally:
            fetch.terminate()  # what it has fetched stays; the build fetches the rest
            fetch.wait()


def _build_module(go: str, tools: list[Tool], *, source: Path, label: str, began: float, progress: Progress) -> None:
    """Build the tools of one module, those with the same flags in one go; each lands whole or not at all."""
    for flags in dict.fromkeys(tool.ldflags for tool in tools):
        alike = [tool for tool in tools if tool.ldflags == flags]
        made = source / "made"
        made.mkdir(exist_ok=True)
        _compile(go, alike, made=made, flags=flags, label=label, began=began, progress=progress)
        for tool in alike:
            _install(go, tool, made / Path(re.sub(r"/v\d+$", "", tool.package)).name, source=source)


def _compile(
    go: str, tools: list[Tool], *, made: Path, flags: str, label: str, began: float, progress: Progress
) -> None:
    # Debug information is of no use in a cached tool; without it, and with a lazier garbage collector, the compiler
    # needs about a fifth less time.
    command = [
        go,
        "build",
        "-mod=readonly",
        "-trimpath",
        "-gcflags=all=-dwarf=false",
        f"-ldflags=-s -w {flags}".rstrip(),
    ]
    build = subprocess.Popen(
        [*command, "-o", f"{made}/", *(tool.package for tool in tools)],
        cwd=made.parent,
        env=os.environ | {"GOGC": "400", "GOFLAGS": "", "GOWORK": "off", "GOTOOLCHAIN": "auto", "CGO_ENABLED": "0"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    said: list[str] = []
    reader = threading.Thread(target=lambda: said.extend(build.stderr or ()), daemon=True)
    reader.start()
    try:
        told = 0.0
        while build.poll() is None:
            if time.monotonic() - told >= _REPORT_EVERY:
                told = time.monotonic()
                progress(f"  {label}: {told - began:4.0f} s")
            time.sleep(0.2)
    finally:
        if build.poll() is None:
            build.terminate()
            build.wait()
    reader.join()
    if build.returncode:
        lines = [line.rstrip() for line in said if not line.startswith("go: downloading")]
        raise Unavailable(f"building {label} failed:\n" + "\n".join(f"    {line}" for line in lines[-8:]))


def _install(go: str, tool: Tool, binary: Path, *, source: Path) -> None:
    """Put the binary into the cache in one step, and check that it is what was asked for."""
    place = _cached(tool).parent
    fresh = place.with_name(f"{place.name}.new-{os.getpid()}")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    shutil.move(binary, fresh / tool.name)
    if tool.beside:
        module = tool.package.partition("/python/")[0]
        root = subprocess.run(
            [go, "list", "-mod=readonly", "-m", "-f", "{{.Dir}}", module],
            cwd=source,
            capture_output=True,
            text=True,
            check=True,
            env=os.environ | {"GOFLAGS": "", "GOWORK": "off", "GOTOOLCHAIN": "auto"},
        ).stdout.strip()
        script = fresh / Path(tool.beside).name
        shutil.copyfile(Path(root) / tool.beside, script)
        script.chmod(0o755)
    if not _is_itself(tool, fresh / tool.name):
        shutil.rmtree(fresh)
        raise Unavailable(f"{tool.name} was built but does not report version {tool.version}: the build is not usable")
    shutil.rmtree(place, ignore_errors=True)
    fresh.rename(place)


def _go() -> str:
    """The Go command, if it is recent enough."""
    wanted = ".".join(map(str, OLDEST_GO))
    go = shutil.which("go")
    if go is None:
        raise BadInput(f"Go is not on PATH: the local ground's tools are built with Go {wanted} or newer; install it")
    try:
        said = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, timeout=30, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        said = ""
    version = re.match(r"go(\d+)\.(\d+)", said.strip())
    if version is None:
        raise BadInput(f"{go} does not say its version: the local ground's tools need Go {wanted} or newer")
    if (int(version[1]), int(version[2])) < OLDEST_GO:
        raise BadInput(
            f"{go} is {said.strip()}: the local ground's tools need Go {wanted} or newer; install a newer one"
        )
    return go
