"""Builds Go programs from pinned modules: one call of the compiler per module, all of it in one scratch folder.

Go's caches lie in that folder too, so that nothing is left in the user's home. They stay there when a build is
interrupted, which lets the next one go on from there, and are removed once all programs stand.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Final

from autoscaler.model.errors import BadInput, Unavailable
from stacks.local.process.reaper import leashed

OLDEST_GO: Final = (1, 25, 0)
_REPORT_EVERY: Final = 10.0
_LEAST_MEMORY: Final = 1 << 30
_ENOUGH_MEMORY: Final = 3 << 30
"""For one compiler; as many run at once as there are processors."""


@dataclass(frozen=True, slots=True)
class Build:
    """One program to build."""

    name: str
    module: Path
    """Folder with the go.mod and go.sum that pin its sources."""
    package: str
    target: Path
    """Where the binary goes; its folder is replaced as a whole."""
    is_good: Callable[[Path], bool]
    """Asked of the new binary before it takes its place."""
    ldflags: str = ""
    beside: str = ""
    """A file of the module that the package belongs to, copied beside the binary."""
    cgo: bool = False
    """True: it calls C, and a C compiler is needed."""


@dataclass(frozen=True, slots=True)
class Go:
    """The Go command of this machine, and the variables that it runs with."""

    command: str
    version: tuple[int, ...]
    env: Mapping[str, str]


def find_go(*, scratch: Path) -> Go:
    """Go as it will build in ``scratch``. Raises ``BadInput`` where it is missing or too old."""
    wanted = ".".join(map(str, OLDEST_GO[:2]))
    need = f"the local ground's tools are built with Go {wanted} or newer"
    command = shutil.which("go")
    if command is None:
        raise BadInput(f"Go is not on PATH: {need}; install it and put it on PATH")
    env = _environment(scratch)
    try:
        asked = subprocess.run(
            [command, "version"],
            env=env | {"GOTOOLCHAIN": "local"},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BadInput(f"{command} does not run ({error}): {need}") from None
    version = re.search(r"\bgo(\d+(?:\.\d+)+)", asked.stdout)
    if version is None:
        said = (asked.stdout + asked.stderr).strip()[:80]
        raise BadInput(f"`{command} version` says {said!r}, which is no version: {need}")
    found = _numbers(version[1])
    if found < OLDEST_GO:
        raise BadInput(f"{command} is Go {version[1]}: {need}; install a newer one and put it first on PATH")
    return Go(command, found, env)


def build(go: Go, builds: Sequence[Build], *, scratch: Path, progress: Callable[[str], None]) -> None:
    """Build them all, module by module in the order given. Each lands whole or not at all. Raises ``Unavailable``."""
    began = time.monotonic()
    what = f"{len(builds)} tools" if len(builds) > 1 else "a tool"
    names = ", ".join(one.name for one in builds)
    progress(f"building {what} from source, once for this user: {names} (the demo's seven take 9 minutes on 2 cores)")
    modules = list(dict.fromkeys(one.module for one in builds))
    Path(go.env["GOTMPDIR"]).mkdir(parents=True, exist_ok=True)  # another process's build may have ended meanwhile
    sources = _copy(modules, to=scratch / "src")
    for module in modules:
        needed = _go_that_it_needs(module)
        if _numbers(needed) > go.version:
            progress(f"  {module.name} needs Go {needed}; Go fetches that itself, from the module proxy")
    with _fetching(go, [sources[module] for module in modules[1:]]):
        for number, module in enumerate(modules, start=1):
            alike = [one for one in builds if one.module == module]
            label = f"[{number}/{len(modules)}] {', '.join(one.name for one in alike)}"
            _compile(go, alike, source=sources[module], label=label, began=began, progress=progress)
            for one in alike:
                _install(go, one, source=sources[module])
    shutil.rmtree(scratch, ignore_errors=True)
    progress(f"tools are built ({time.monotonic() - began:.0f} s in all)")


def _copy(modules: Sequence[Path], *, to: Path) -> dict[Path, Path]:
    shutil.rmtree(to, ignore_errors=True)
    return {module: Path(shutil.copytree(module, to / module.name)) for module in modules}


def _go_that_it_needs(module: Path) -> str:
    line = re.search(r"^go (\S+)$", (module / "go.mod").read_text(encoding="utf-8"), flags=re.MULTILINE)
    return line[1] if line else "1"


def _numbers(version: str) -> tuple[int, ...]:
    """``1.25`` and ``1.25.0`` are the same version, and compare so."""
    parts = [int(part) for part in version.split(".")]
    return tuple(parts + [0] * (3 - len(parts)))


def _environment(scratch: Path) -> dict[str, str]:
    """Go's own settings, with its caches in ``scratch`` unless the user has named others."""
    unwanted = {"GOOS", "GOARCH", "GOEXPERIMENT", "GOMEMLIMIT", "GOGC"}
    kept = {key: value for key, value in os.environ.items() if key not in unwanted}
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return {
        "GOCACHE": str(scratch / "build"),
        "GOMODCACHE": str(scratch / "mod"),
        "GOENV": str(config / "go" / "env"),
        **kept,
        **_lazy_collector(),
        "XDG_CONFIG_HOME": str(scratch / "config"),  # where Go counts its use
        "GOTMPDIR": str(scratch / "tmp"),
        "GOFLAGS": "-modcacherw",
        "GOWORK": "off",
        "GOTOOLCHAIN": "auto",
        "CGO_ENABLED": "0",
    }


def _lazy_collector() -> dict[str, str]:
    """The compiler needs a seventh less time where it collects its garbage only when memory runs short."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    share = memory // (2 * (os.cpu_count() or 1))
    return {"GOGC": "off", "GOMEMLIMIT": str(min(share, _ENOUGH_MEMORY))} if share >= _LEAST_MEMORY else {}


@contextlib.contextmanager
def _fetching(go: Go, sources: Sequence[Path]) -> Iterator[None]:
    """Fetch the sources of later modules while the processors are busy with the first ones."""
    stop = threading.Event()

    def fetch() -> None:
        for source in sources:
            if stop.is_set():
                return
            with _started(go, ["mod", "download"], source=source, output=subprocess.DEVNULL) as download:
                while download.poll() is None and not stop.wait(0.2):
                    pass

    thread = threading.Thread(target=fetch)
    thread.start()
    try:
        yield
    finally:
        stop.set()  # should one not be through, its build fetches the rest, or says why it cannot
        thread.join()


def _compile(
    go: Go, alike: Sequence[Build], *, source: Path, label: str, began: float, progress: Callable[[str], None]
) -> None:
    packages = [one.package for one in alike]
    flags = " ".join(dict.fromkeys(one.ldflags for one in alike if one.ldflags))
    words = [
        *("build", "-v", "-mod=readonly", "-trimpath", "-buildvcs=false", "-pgo=off"),
        *("-gcflags=all=-dwarf=false", f"-ldflags=-s -w {flags}".rstrip()),
        *("-o", f"{source / 'made'}{os.sep}", *packages),
    ]
    (source / "made").mkdir()
    log = source / "build.log"
    if any(one.cgo for one in alike):
        go = replace(go, env={**go.env, "CGO_ENABLED": "1"})
    with log.open("wb") as output, _started(go, words, source=source, output=output) as compiler:
        _watch(compiler, log=log, label=label, began=began, progress=progress)
    if compiler.returncode:
        wrong = [line for line in _lines(log) if " " in line and not line.startswith("go: downloading")]
        raise Unavailable(f"building {label} failed:\n" + "\n".join(f"    {line[:300]}" for line in wrong[-8:]))
    progress(f"  {time.monotonic() - began:4.0f} s: built {label}")


def _watch(
    compiler: subprocess.Popen[str], *, log: Path, label: str, began: float, progress: Callable[[str], None]
) -> None:
    """Say how it goes: on a terminal in one line that changes, elsewhere in a line now and then."""
    live = sys.stderr.isatty()
    told = float("-inf")
    while compiler.poll() is None:
        now = time.monotonic()
        packages = sum(1 for line in _lines(log) if " " not in line)  # -v names each package as its turn comes
        doing = f"{packages} packages compiled" if packages else "fetching sources"
        line = f"  {now - began:4.0f} s: {doing} for {label}"
        if live:
            width = shutil.get_terminal_size().columns - 1
            print(f"\r\x1b[K{line[:width]}", end="", file=sys.stderr, flush=True)
        elif now - told >= _REPORT_EVERY:
            told = now
            progress(line)
        time.sleep(0.2)
    if live:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _lines(log: Path) -> list[str]:
    return log.read_text(encoding="utf-8", errors="replace").splitlines()


def _install(go: Go, one: Build, *, source: Path) -> None:
    """Put the binary in its place in one step, once it has said that it is what was asked for."""
    place = one.target.parent
    for old in place.parent.glob(f"{place.name}.new-*"):  # of an install that was cut off
        shutil.rmtree(old)
    fresh = place.with_name(f"{place.name}.new-{os.getpid()}")
    fresh.mkdir(parents=True)
    binary = fresh / one.target.name
    shutil.move(source / "made" / _named_by_go(one.package), binary)
    if one.beside:
        script = fresh / Path(one.beside).name
        shutil.copyfile(_folder_of_module(go, one.package, source=source) / one.beside, script)
        script.chmod(0o755)
    if not one.is_good(binary):
        shutil.rmtree(fresh)
        raise Unavailable(f"{one.name} was built but does not say that it is the pinned version: it is not usable")
    shutil.rmtree(place, ignore_errors=True)
    fresh.rename(place)


def _named_by_go(package: str) -> str:
    """The file that ``go build -o FOLDER/`` writes for it: the last part of its path that is no major version."""
    return Path(re.sub(r"/v\d+$", "", package)).name


def _folder_of_module(go: Go, package: str, *, source: Path) -> Path:
    words = ["list", "-mod=readonly", "-f", "{{.Module.Dir}}", package]
    asked = subprocess.run([go.command, *words], cwd=source, env=go.env, capture_output=True, text=True, check=False)
    if asked.returncode:
        raise Unavailable(f"Go does not find the module of {package}: {asked.stderr.strip()[-300:]}")
    return Path(asked.stdout.strip())


@contextlib.contextmanager
def _started(go: Go, words: Sequence[str], *, source: Path, output: IO[bytes] | int) -> Iterator[subprocess.Popen[str]]:
    """Run Go; it and the compilers that it started end with the ``with`` block, or with this process."""
    process = subprocess.Popen(
        leashed([go.command, *words]),
        cwd=source,
        env=go.env,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        text=True,
        start_new_session=True,  # a Ctrl-C at the terminal reaches the caller, which ends it
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait()
