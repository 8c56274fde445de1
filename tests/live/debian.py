"""The Debian root folder that all test machines share, what this machine needs to start any, and images for them."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

import roles
from stacks.local.process.paths import cache_root

SUITE: Final = "bookworm"
IN_ROOT: Final = (
    *("systemd-sysv", "dbus", "openssh-server", "python3-minimal", "sudo", "iproute2", "ca-certificates"),
    *("acl", "kmod", "procps", "gnupg", "busybox-static"),
)
AHEAD: Final = (
    *("chrony", "conntrack", "containerd", "containernetworking-plugins", "curl", "ethtool", "iptables", "logrotate"),
    *("openssl", "rsyslog", "runc", "socat", "unattended-upgrades"),
)
"""Packages that are fetched with the root and not installed: forty machines do not fetch them forty times."""
MERGED: Final = ("--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr",)
"""Debian 12 merges /usr with a package that needs all of Perl, unless it finds it merged. In Ubuntu it is."""
ON_HOST: Final = {
    "mmdebstrap": "mmdebstrap",
    "systemd-nspawn": "systemd-container",
    "iptables": "iptables",
    "ssh-keygen": "openssh-client",
    "ssh": "openssh-client",
    "ip": "iproute2",
}
"""Programs that this machine needs, each with the Debian package that has it."""
_KEYS: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
"""Those of Debian's archive, which an Ubuntu machine has in a package of that name."""
_TRIAL: Final = """
mkdir "$1/l" "$1/u" "$1/w" "$1/m"
mount -t overlay overlay -o "lowerdir=$1/l,upperdir=$1/u,workdir=$1/w" "$1/m"
"""


@dataclass(frozen=True, slots=True)
class System:
    """What machines of the bench are installed with."""

    root: Path
    """The folder that they share."""
    furnish: Callable[[Path, str], None]
    """Write what an installer would have asked for, given where a machine's own files go and its name."""


class BenchError(Exception):
    """A machine did not come up, or a command failed on it: the message has what it said."""


def why_not() -> str:
    """Why no bench can be set up here; empty where one can. Installs what this machine lacks, where apt can."""
    if os.geteuid() != 0:
        return "machines need root: namespaces, mounts, a bridge"
    missing = {package for program, package in ON_HOST.items() if not shutil.which(program)}
    missing |= set() if _KEYS.exists() else {_KEYS.stem}
    if missing and not shutil.which("apt-get"):
        return f"this machine lacks {', '.join(sorted(missing))} and has no apt-get to install them"
    if missing:
        for words in (["update"], ["install", "-y", "--no-install-recommends", *sorted(missing)]):
            done = subprocess.run(
                ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300", *words],
                env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
            )
        if done.returncode:
            return f"apt-get cannot install {', '.join(sorted(missing))}: {done.stderr.strip()[-200:]}"
    with tempfile.TemporaryDirectory() as scratch:
        tried = subprocess.run(
            ["unshare", "-m", "-n", "-p", "-f", "sh", "-ec", _TRIAL, "trial", scratch],
            capture_output=True,
            text=True,
            check=False,
        )
    said = tried.stderr.strip()[-200:]
    return f"this machine does not let us make namespaces and overlays: {said}" if tried.returncode else ""


def cached_root() -> Path:
    """Built by mmdebstrap where it is not there yet; another process that builds it is waited for."""
    return built_once(_root(), _build)


def debian() -> System:
    """Debian with what a bare machine has."""
    return System(cached_root(), lambda upper, _: as_here_resolved(upper))


def root_folder(suite: str, *words: str) -> Path:
    """Where a root lies that is built from these words: from others, another one."""
    return cache_root() / "roots" / f"{suite}-{hashlib.sha256(' '.join(words).encode()).hexdigest()[:8]}"


def built_once(place: Path, build: Callable[[Path], None]) -> Path:
    """The root at ``place``, built where it is not there yet; another process that builds one is waited for."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with (place.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if place.is_dir():
            return place
        fresh = place.with_name(f"{place.name}.new")
        shutil.rmtree(fresh, ignore_errors=True)
        build(fresh)
        for key in (fresh / "etc/ssh").glob("ssh_host_*"):
            key.unlink()  # each machine has its own
        (fresh / "etc/machine-id").write_text("", encoding="ascii")
        fresh.rename(place)
    return place


def bootstrap(suite: str, root: Path, archive: str, *, include: Sequence[str], options: Sequence[str] = MERGED) -> None:
    """Install what every system has, apt and ``include`` into a new folder. Raises ``BenchError`` with what it said.

    mmdebstrap unpacks and configures all packages at once, for two fifths of the processor time of debootstrap.
    """
    words = [
        *("mmdebstrap", "--mode=root", "--variant=minbase", "--components=main"),
        *(f"--include={','.join(('apt', *include))}", *options),
        *(f"--aptopt={file}" for file in apt_settings()),
        *(suite, str(root), archive),
    ]
    done = subprocess.run(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        raise BenchError(f"mmdebstrap failed:\n{done.stdout[-1500:]}")
    for file in ("00mmdebstrap", "99mmdebstrap"):
        (root / "etc/apt/apt.conf.d" / file).unlink(missing_ok=True)


def fetch_ahead(root: Path, packages: Sequence[str]) -> None:
    """Into apt's own cache. Names are resolved and proxies used as this machine does it."""
    resolving = root / "etc/resolv.conf"
    as_it_was = resolving.readlink() if resolving.is_symlink() else None
    own = apt_settings()
    as_here_resolved(root)
    for file in own:
        shutil.copyfile(file, root / file.relative_to("/"))
    for words in (("update",), ("install", "-y", "--no-install-recommends", "--download-only", *packages)):
        run("chroot", str(root), "apt-get", "-q", "-o", "APT::Sandbox::User=root", *words)
    for file in own:
        (root / file.relative_to("/")).unlink()
    resolving.unlink(missing_ok=True)
    if as_it_was:
        resolving.symlink_to(as_it_was)


def as_here_resolved(root: Path) -> None:
    """Names are looked up as this machine does it."""
    with contextlib.suppress(FileNotFoundError):
        (root / "etc/resolv.conf").unlink(missing_ok=True)
        shutil.copyfile("/etc/resolv.conf", root / "etc/resolv.conf")


def _root() -> Path:
    return root_folder(SUITE, *IN_ROOT, "|", *AHEAD)


def _build(root: Path) -> None:
    bootstrap(SUITE, root, debian_archive(), include=IN_ROOT)
    fetch_ahead(root, AHEAD)


def apt_settings() -> list[Path]:
    """Files that say by which ways this machine's apt reaches its sources."""
    ways = re.compile(r"^\s*Acquire::(http|https|Check|Retries)", re.MULTILINE)
    found = sorted(Path("/etc/apt/apt.conf.d").glob("*"))
    return [file for file in found if ways.search(file.read_text(encoding="utf-8", errors="replace"))]


def image_archive(
    path: Path, name: str, *, command: Sequence[str] = ("/bin/busybox", "sh"), program: Path | None = None
) -> Path:
    """Write an image of busybox, and of one more static program, in the format that ``ctr images import`` takes."""
    busybox = cached_root() / "bin/busybox"
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        (root / "bin").mkdir()
        for file in filter(None, (busybox, program)):
            shutil.copy(file, root / "bin")
        return pack_image(path, name, root=root, command=command, environment={"PATH": "/bin"})


def pack_image(
    path: Path, name: str, *, root: Path, environment: Mapping[str, str], command: Sequence[str] = ()
) -> Path:
    """Write an image of one layer that holds what lies under ``root``."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        layer = folder / "layer.tar"
        fixed = ("--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner")
        run("tar", *fixed, "-cf", str(layer), "-C", str(root), ".")
        digest = run("sha256sum", str(layer)).split()[0]
        config = {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Entrypoint": list(command), "Env": [f"{key}={value}" for key, value in environment.items()]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        }
        manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
        run("tar", *fixed, "-cf", str(path), "-C", str(folder), "manifest.json", "config.json", "layer.tar")
    return path


def debian_archive() -> str:
    """The archive that this machine itself installs Debian from, else Debian's own."""
    for file in (Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))):
        if file.is_file():
            text = file.read_text(encoding="utf-8", errors="replace")
            for found in re.findall(r"^(?:URIs:|deb(?: \[[^]]*\])?)\s+(\S+)", text, flags=re.MULTILINE):
                if str(found).rstrip("/").endswith("/debian"):
                    return str(found)
    packages = yaml.safe_load((Path(roles.__file__).parent / "deploys" / "sources.yaml").read_text(encoding="utf-8"))
    return str(packages["repositories"]["debian"]["uri"])


def run(*words: str) -> str:
    """What a program says. Raises ``BenchError`` where it fails."""
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise BenchError(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout
