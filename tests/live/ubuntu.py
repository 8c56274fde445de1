"""The Ubuntu root folder of test machines: what a bare machine of a cloud has, from Ubuntu's own archive.

Left out of what a cloud's image has: snapd, which mounts file systems that no container may mount.
"""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

import yaml

import roles
from tests.live.debian import BenchError, System, bootstrap, built_once, fetch_ahead, root_folder, run

SUITE: Final = "noble"
IN_ROOT: Final = (
    *("systemd-sysv", "systemd-resolved", "systemd-timesyncd", "dbus", "openssh-server", "python3-minimal", "sudo"),
    *("iproute2", "ca-certificates", "acl", "kmod", "procps", "gnupg", "netplan.io", "ufw", "apparmor", "needrestart"),
    *("unattended-upgrades", "rsyslog", "cloud-init", "cron", "locales"),
)
AHEAD: Final = (
    *("chrony", "conntrack", "containerd=1.7.12-0ubuntu4", "containernetworking-plugins", "curl", "ethtool"),
    *("iptables", "logrotate", "openssl", "runc=1.1.12-0ubuntu3", "socat"),
)
"""Packages that are fetched with the root and not installed."""
_KEYRING: Final = "pool/main/u/ubuntu-keyring/ubuntu-keyring_2023.11.28.1_all.deb"
_KEYRING_SHA256: Final = "36de43b15853ccae0028e9a767613770c704833f82586f28eb262f0311adb8a8"
"""Whoever serves the archive: its keys are these, or nothing is taken from there."""
_KEYS: Final = "usr/share/keyrings/ubuntu-archive-keyring.gpg"
_ANSWERS_WITHIN: Final = 5.0
_SOURCES: Final = """\
Types: deb
URIs: {archive}
Suites: noble noble-updates noble-backports
Components: main universe restricted multiverse
Signed-By: /usr/share/keyrings/ubuntu-archive-keyring.gpg

Types: deb
URIs: {archive}
Suites: noble-security
Components: main universe restricted multiverse
Signed-By: /usr/share/keyrings/ubuntu-archive-keyring.gpg
"""
"""As an image of a cloud has them; there the second one names another server."""
_USER_DATA: Final = "#cloud-config\nssh_deletekeys: false\napt: {preserve_sources_list: true}\n"
"""The bench knows its machines by their keys."""


def why_not() -> str:
    """Why no Ubuntu machine can be made here; empty where one can."""
    try:
        _fetched(f"dists/{SUITE}/Release.gpg", seconds=_ANSWERS_WITHIN)
    except OSError as error:
        return f"Ubuntu's archive cannot be reached: {getattr(error, 'reason', error)}"
    return ""


def has_root() -> bool:
    """Whether it was built before."""
    return _root().is_dir()


def ubuntu() -> System:
    """Ubuntu as a cloud's image has it, its cloud-init with a seed of the bench's own."""
    return System(built_once(_root(), _build), _furnish)


def ubuntu_archive() -> str:
    """Ubuntu's own."""
    packages = yaml.safe_load((Path(roles.__file__).parent / "deploys" / "sources.yaml").read_text(encoding="utf-8"))
    return str(packages["repositories"]["ubuntu"]["uri"])


def _root() -> Path:
    return root_folder(SUITE, *IN_ROOT, "|", *AHEAD, "|", _SOURCES)


def _build(root: Path) -> None:
    archive = ubuntu_archive()
    with tempfile.TemporaryDirectory() as scratch:
        keyring = Path(scratch) / _KEYS
        _unpack_keys(Path(scratch))
        bootstrap(SUITE, root, archive, include=IN_ROOT, options=[f"--keyring={keyring}"])
    (root / "etc/apt/sources.list").write_text("# see sources.list.d/ubuntu.sources\n", encoding="ascii")
    (root / "etc/apt/sources.list.d/ubuntu.sources").write_text(_SOURCES.format(archive=archive), encoding="ascii")
    fetch_ahead(root, AHEAD)


def _unpack_keys(folder: Path) -> None:
    """The keys by which everything else is checked. Raises ``BenchError`` where they are others."""
    package = folder / "keyring.deb"
    package.write_bytes(_fetched(_KEYRING, seconds=60.0))
    digest = hashlib.sha256(package.read_bytes()).hexdigest()
    if digest != _KEYRING_SHA256:
        raise BenchError(f"{_KEYRING}: has SHA-256 {digest}, not {_KEYRING_SHA256}")
    run("dpkg-deb", "--extract", str(package), str(folder))


def _fetched(path: str, *, seconds: float) -> bytes:
    with urllib.request.urlopen(f"{ubuntu_archive()}/{path}", timeout=seconds) as answer:  # noqa: S310 - http, see sources.yaml
        return bytes(answer.read())


def _furnish(upper: Path, name: str) -> None:
    """Its own resolver asks whom this machine asks; its cloud-init is told its name and to leave the network alone."""
    asked = subprocess.run(
        ["awk", '$1 == "nameserver" { print $2 }', "/etc/resolv.conf"], capture_output=True, text=True, check=True
    )
    _write(upper / "etc/systemd/resolved.conf.d/bench.conf", f"[Resolve]\nDNS={' '.join(asked.stdout.split())}\n")
    _write(upper / "etc/cloud/cloud.cfg.d/99-bench.cfg", "datasource_list: [NoCloud]\nnetwork: {config: disabled}\n")
    seed = upper / "var/lib/cloud/seed/nocloud"
    _write(seed / "meta-data", f"instance-id: {name}-1\nlocal-hostname: {name}\n")
    _write(seed / "user-data", _USER_DATA)


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
