"""Run a command of this checkout: ``python3 stacks/local/toolchain/bootstrap.py COMMAND ARGUMENTS...``, as make does.

The first run makes a virtual environment from ``requirements.lock`` in the user's cache; later ones start at once. The
command runs with that environment first on PATH and with every tool's own cache turned towards ours, so that nothing is
written beside the sources. Standard library only: this file runs with whatever ``python3`` the user has.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

CHECKOUT = Path(__file__).resolve().parents[3]
OLDEST_PYTHON = (3, 11)
_REPORT_EVERY = 10.0
_KEEP_UNUSED = 14 * 24 * 3600.0
"""Seconds after which an environment that nothing started from is thrown away."""


class _BootstrapError(Exception):
    """Told to the user in words; ``status`` is the exit status."""

    def __init__(self, message: str, *, status: int = 1) -> None:
        super().__init__(message)
        self.status = status


def main(arguments: Sequence[str]) -> int:
    """Make the environment where it is missing, then become the command."""
    if not arguments:
        print("usage: python3 stacks/local/toolchain/bootstrap.py COMMAND ARGUMENTS...", file=sys.stderr)
        return 2
    try:
        check_python(sys.version_info[:2])
        cache = cache_root()
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, _interrupt)
        place = ensure_environment(cache=cache, checkout=CHECKOUT)
    except _BootstrapError as problem:
        print(f"spillway: {problem}", file=sys.stderr)
        return problem.status
    except OSError as problem:
        print(f"spillway: the environment could not be made: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nspillway: interrupted; the next run begins the environment anew", file=sys.stderr)
        return 130
    return _become(arguments, environment(os.environ, place=place, cache=cache))


def check_python(version: tuple[int, ...]) -> None:
    """Refuse a Python that the project does not run on."""
    if version < OLDEST_PYTHON:
        wanted, found = ".".join(map(str, OLDEST_PYTHON)), ".".join(map(str, version))
        raise _BootstrapError(
            f"this is Python {found} ({sys.executable}); Spillway needs {wanted} or newer. "
            "Install one and put it first on PATH as python3",
            status=2,
        )


def cache_root() -> Path:
    """Returns what ``stacks.local.process.paths`` does, which cannot be imported before the environment is there."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    if not Path(base).is_absolute():
        raise _BootstrapError(f"XDG_CACHE_HOME = {base!r}: must be an absolute path such as /home/me/.cache", status=2)
    return Path(base) / "spillway"


def ensure_environment(*, cache: Path, checkout: Path) -> Path:
    """The virtual environment of this checkout, its lock file and this Python; made where it is not complete."""
    place = cache / "venvs" / _fingerprint(checkout)
    if not (_is_made(place) and _is_linked(place, checkout)):
        place.parent.mkdir(parents=True, exist_ok=True)
        with _alone(place.parent / "lock") as lock:
            if not _is_made(place):
                _make(place, cache=cache, checkout=checkout, lock=lock)
                _throw_away_unused(place.parent)
            if not _is_linked(place, checkout):
                _link_checkout(place, checkout)
    _stamp(place).touch()  # the environment is in use
    return place


def environment(given: os._Environ[str] | dict[str, str], *, place: Path, cache: Path) -> dict[str, str]:
    """The command's environment variables: ours first on PATH, and every tool's cache inside ours."""
    temporary = cache / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    # Bytecode is written, in our cache: a command is dozens of Pythons, and each would compile all that it imports.
    unwanted = {"PYTHONHOME", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE"}
    kept = {key: value for key, value in given.items() if key not in unwanted}
    return kept | {
        "PATH": f"{place / 'bin'}{os.pathsep}{given.get('PATH', os.defpath)}",
        "VIRTUAL_ENV": str(place),
        "PYTHONPYCACHEPREFIX": str(place / "pycache"),
        "PYTHONNOUSERSITE": "1",
        "PYTEST_DEBUG_TEMPROOT": str(temporary),
        "HYPOTHESIS_STORAGE_DIRECTORY": str(cache / "hypothesis"),
        "MYPY_CACHE_DIR": str(cache / "mypy"),
        "RUFF_CACHE_DIR": str(cache / "ruff"),
    }


def _fingerprint(checkout: Path) -> str:
    digest = hashlib.sha256()
    for part in (
        (checkout / "requirements.lock").read_bytes(),
        sys.version.encode(),
        os.path.realpath(sys.executable).encode(),
        str(checkout).encode(),
    ):
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()[:16]


def _stamp(place: Path) -> Path:
    return place / "complete"


def _is_made(place: Path) -> bool:
    """The stamp is written last; the interpreter is a link, which dangles once its Python is uninstalled."""
    return _stamp(place).exists() and (place / "bin" / "python").exists()


def _is_linked(place: Path, checkout: Path) -> bool:
    return _stamp(place).read_text(encoding="utf-8") == _project(checkout)


def _project(checkout: Path) -> str:
    return hashlib.sha256((checkout / "pyproject.toml").read_bytes()).hexdigest()


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[int]:
    """One process at a time; the others wait and then find what the first one made. Gives the lock's descriptor."""
    with lock.open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            _tell("another process is preparing a Python environment; waiting for it")
            fcntl.flock(held, fcntl.LOCK_EX)
        yield held.fileno()


def _make(place: Path, *, cache: Path, checkout: Path, lock: int) -> None:
    began = time.monotonic()
    _tell(f"preparing a Python environment in {place}, once for this version (about a minute)")
    temporary = _temporary(place)
    for old in (place, temporary):
        shutil.rmtree(old, ignore_errors=True)
    temporary.mkdir()
    try:
        _make_empty(place, lock=lock)
        _install_packages(place, cache=cache, packages=checkout / "requirements.lock", began=began, lock=lock)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    _link_checkout(place, checkout)
    _tell(f"the Python environment is ready ({time.monotonic() - began:.0f} s)")


def _temporary(place: Path) -> Path:
    """Where venv and pip have their temporary files, which they leave there when they are interrupted."""
    return place.with_name("tmp")


def _make_empty(place: Path, *, lock: int) -> None:
    with _started([sys.executable, "-m", "venv", str(place)], place=place, lock=lock) as (venv, said):
        venv.wait()
    if venv.returncode:
        hint = "on Debian and Ubuntu the package python3-venv is needed"
        raise _BootstrapError(f"{sys.executable} -m venv failed ({hint}):\n{_indent(said)}")


def _install_packages(place: Path, *, cache: Path, packages: Path, began: float, lock: int) -> None:
    """Installs with uv, ten times as fast, once pip has fetched it; with pip alone where it has another index."""
    uv = _pinned("uv", packages)
    if uv and not _has_own_index(place):
        only_uv = place / "uv.lock"
        only_uv.write_text(uv, encoding="utf-8")
        _pip(place, cache=cache, packages=only_uv, began=began, lock=lock)
        command = [str(place / "bin" / "uv"), "pip", "install", "--python", str(place / "bin" / "python")]
        command += ["--require-hashes", "--requirement", str(packages), "--cache-dir", str(cache / "uv")]
        command += ["--system-certs"]  # as pip does: where a company's own authority signs, uv trusts it as well
        _install(command, place=place, packages=packages, began=began, lock=lock)
    else:
        _pip(place, cache=cache, packages=packages, began=began, lock=lock)


def _pinned(name: str, packages: Path) -> str:
    """The lines of one package in a lock file: its version and hashes."""
    found = re.search(rf"^{name}==.*(?:\n[ \t]+.*)*", packages.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return f"{found[0]}\n" if found else ""


def _has_own_index(place: Path) -> bool:
    """Whether the user told pip where packages are: uv would not know."""
    asked = [str(place / "bin" / "python"), "-m", "pip", "config", "list"]
    said = subprocess.run(asked, capture_output=True, text=True, check=False, env=_clean_environment(place)).stdout
    return "index-url" in said


def _pip(place: Path, *, cache: Path, packages: Path, began: float, lock: int) -> None:
    # Bytecode is written for what is imported, when it is imported: most of the AWS SDK never is.
    command = [
        *(str(place / "bin" / "python"), "-m", "pip", "install", "--require-hashes", "-r", str(packages)),
        *("--no-compile", "--no-input", "--progress-bar=off", "--disable-pip-version-check"),
        *("--cache-dir", str(cache / "pip")),
    ]
    _install(command, place=place, packages=packages, began=began, lock=lock)


def _install(command: Sequence[str], *, place: Path, packages: Path, began: float, lock: int) -> None:
    with _started(command, place=place, lock=lock) as (pip, said):
        _watch(pip, said=said, began=began)
    if pip.returncode:
        who = "uv" if command[0].endswith("uv") else "pip"
        raise _BootstrapError(f"{who} could not install {packages}; it ends with:\n{_indent(said[-8:])}")


@contextlib.contextmanager
def _started(command: Sequence[str], *, place: Path, lock: int) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """Run a program and gather what it says; it and all that it started end with the ``with`` block."""
    program = subprocess.Popen(
        command,
        env=_clean_environment(place) | {"PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        pass_fds=[lock],  # should this process be killed, no other begins while the program goes on
        start_new_session=True,
    )
    said: list[str] = []
    reader = threading.Thread(target=lambda: said.extend(line.rstrip() for line in program.stdout or ()), daemon=True)
    reader.start()
    try:
        yield program, said
    finally:
        if program.poll() is None:
            os.killpg(program.pid, signal.SIGKILL)
            program.wait()
        reader.join()


def _watch(pip: subprocess.Popen[str], *, said: Sequence[str], began: float) -> None:
    """Say how it goes: on a terminal in one line that changes, elsewhere in a line now and then."""
    live = sys.stderr.isatty()
    told = time.monotonic()
    while pip.poll() is None:
        time.sleep(0.2)
        packages = sum(1 for line in said if line.startswith("Collecting "))
        count = f"{packages} packages" if packages else "packages"
        line = f"  {time.monotonic() - began:4.0f} s: fetching and installing {count}"
        if live:
            print(f"\r{line}", end="", file=sys.stderr, flush=True)
        elif time.monotonic() - told > _REPORT_EVERY:
            told = time.monotonic()
            _tell(line)
    if live:
        print(file=sys.stderr)


def _link_checkout(place: Path, checkout: Path) -> None:
    """What an editable install would do, without a build backend and without a file in the checkout."""
    import tomllib  # noqa: PLC0415 - not in the Pythons that check_python refuses in words

    version = tomllib.loads((checkout / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    (site,) = (place / "lib").glob("python3.*/site-packages")
    for old in site.glob("spillway-*.dist-info"):
        shutil.rmtree(old)
    (site / "spillway.pth").write_text(f"{checkout}\n", encoding="utf-8")
    record = site / f"spillway-{version}.dist-info"
    record.mkdir()
    (record / "METADATA").write_text(f"Metadata-Version: 2.1\nName: spillway\nVersion: {version}\n", encoding="utf-8")
    script = place / "bin" / "spillway"
    script.write_text(f"#!{place / 'bin' / 'python'}\nfrom spillway import main\n\nmain()\n", encoding="utf-8")
    script.chmod(0o755)
    _stamp(place).write_text(_project(checkout), encoding="utf-8")


def _throw_away_unused(venvs: Path) -> None:
    for stamp in venvs.glob("*/complete"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - stamp.stat().st_mtime > _KEEP_UNUSED:
                shutil.rmtree(stamp.parent, ignore_errors=True)


def _become(arguments: Sequence[str], variables: dict[str, str]) -> int:  # noqa: RET503 - execve does not return
    command = shutil.which(arguments[0], path=variables["PATH"])
    if command is None:
        print(f"spillway: {arguments[0]}: no such command", file=sys.stderr)
        return 127
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(command, list(arguments), variables)  # noqa: S606 - no shell is wanted between


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _clean_environment(place: Path) -> dict[str, str]:
    """Ours, without what would make venv or pip look at other packages."""
    unwanted = {"PYTHONHOME", "PYTHONPATH", "PIP_TARGET", "PIP_PREFIX", "PIP_USER", "PIP_REQUIRE_VIRTUALENV"}
    kept = {key: value for key, value in os.environ.items() if key not in unwanted}
    return {**kept, "TMPDIR": str(_temporary(place))}


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _indent(said: Sequence[str]) -> str:
    return "\n".join(f"    {line[:300]}" for line in said) or "    (it said nothing)"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
