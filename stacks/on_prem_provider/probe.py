"""What a machine says of itself, and what of it stands in the way of its becoming a node.

One shell script asks everything, in one round trip; it writes nothing on the machine. :func:`parse` reads its answers,
:func:`findings` judges them: both know no network.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from stacks.on_prem_provider.findings import Finding
from stacks.on_prem_provider.ssh import Answer

CLOCK_SECONDS: Final = 5.0
"""Further off than this, certificates and tokens are not valid yet, or not any more."""
FAMILIES: Final = ("debian", "ubuntu")
"""Distributions that ``roles/`` know, by ID or ID_LIKE of /etc/os-release."""
ARCHITECTURES: Final = ("x86_64", "aarch64")

SCRIPT: Final = r"""
export LC_ALL=C PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"
say() { printf '%s=%s\n' "$1" "$2"; }
have() { command -v "$1" >/dev/null 2>&1; }
say began "$(date +%s.%N)"
say system "$(uname -s)"
say kernel "$(uname -r)"
say arch "$(uname -m)"
say hostname "$(uname -n)"
if [ -r /etc/os-release ]; then
  ( . /etc/os-release; say os "${PRETTY_NAME:-}"; say os_id "${ID:-}"; say os_like "${ID_LIKE:-}" )
fi
if [ "$(id -u)" = 0 ]; then say root itself
elif ! have sudo; then say root no-sudo
elif sudo -n true >/dev/null 2>&1; then say root sudo
else say root password
fi
for at in /var/lib/kubelet/kubeconfig /etc/kubernetes/kubelet.conf; do
  if [ "$(id -u)" = 0 ]; then text=$(cat "$at" 2>/dev/null); else text=$(sudo -n cat "$at" 2>/dev/null); fi
  part() { printf '%s\n' "$text" | sed -n "s/.*$1\"\{0,1\}: *\"\{0,1\}\([^\", ]*\).*/\1/p" | head -n 1; }
  say server "$(part server)"
  part certificate-authority-data | base64 -d 2>/dev/null | tr -d ' \r\n' |
    sed 's/-----BEGINCERTIFICATE-----//g; s/-----ENDCERTIFICATE-----/\n/g' | while IFS= read -r one; do
    [ -z "$one" ] || say authority "$(printf %s "$one" | base64 -d 2>/dev/null | sha256sum | cut -c 1-64)"
  done
done
for runtime in containerd dockerd crio; do
  if have "$runtime"; then say runtime "$("$runtime" --version 2>/dev/null | head -n 1)"; fi
done
at=/var/lib; [ -d "$at" ] || at=/
say disk "$(df -Pk "$at" 2>/dev/null | tail -n 1)"
smi=no
if have nvidia-smi; then
  if seen=$(timeout 15 nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>&1); then
    smi=yes; say seen_by nvidia-smi
    printf '%s\n' "$seen" | while IFS= read -r line; do say gpu "$line"; done
  else say broken "$(printf '%s' "$seen" | head -n 1)"
  fi
fi
if [ $smi = yes ]; then :
elif ls /proc/driver/nvidia/gpus/*/information >/dev/null 2>&1; then
  say seen_by /proc/driver/nvidia
  cat /proc/driver/nvidia/gpus/*/information | while IFS= read -r line; do
    case "$line" in Model:*) say gpu "${line#Model:}";; esac
  done
elif have lspci; then
  say seen_by lspci
  lspci -d 10de: | while IFS= read -r line; do
    case "$line" in *'3D controller'*|*'VGA compatible'*|*'Display controller'*) say card "$line";; esac
  done
else
  say seen_by /sys/bus/pci
  for device in /sys/bus/pci/devices/*; do
    [ -r "$device/vendor" ] || continue
    case "$(cat "$device/vendor") $(cat "$device/class")" in '0x10de 0x03'*) say card "${device##*/}";; esac
  done
fi
say ended "$(date +%s.%N)"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A machine as it was found."""

    system: str = ""
    kernel: str = ""
    architecture: str = ""
    hostname: str = ""
    os: str = ""
    families: tuple[str, ...] = ()
    root: str = ""
    """How the login becomes root: ``itself``, ``sudo``; or why not: ``no-sudo``, ``password``."""
    runtimes: tuple[str, ...] = ()
    disk: int = 0
    """Bytes of the file system that /var/lib is on."""
    disk_free: int = 0
    gpus: int = 0
    products: tuple[str, ...] = ()
    """As GPU feature discovery names them; empty where only cards were seen, since the driver is not there yet."""
    driver: str = ""
    seen_by: str = ""
    broken: str = ""
    """What nvidia-smi said where it failed."""
    authorities: frozenset[str] = frozenset()
    """Fingerprints of those that its kubelet believes, where it has one."""
    server: str = ""
    """The API server of that kubelet."""
    clock_ahead: float = field(default=0.0, compare=False)
    """Seconds that its clock is ahead of ours at least; negative: behind. The time on the way is given for free."""

    def lasting(self) -> dict[str, Any]:
        """What does not change by itself: this is kept in the state, so that a change of it shows as drift."""
        return {
            "os": self.os,
            "kernel": self.kernel,
            "architecture": self.architecture,
            "hostname": self.hostname,
            "containerRuntimes": list(self.runtimes),
            "diskGib": self.disk >> 30,
            "gpus": self.gpus,
            "gpuProducts": sorted(set(self.products)),
            "driver": self.driver,
            "gpusSeenBy": self.seen_by,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the inventory says that the machine has."""

    gpus: int
    product: str
    disk_free: int
    """Bytes that must be free at least."""
    authorities: frozenset[str] = frozenset()
    """Of the cluster that it is to join; empty where they are not told."""


def parse(answer: Answer) -> Seen:
    """The answers of the script. A line that is not one of its own (a banner of the login shell) is left out."""
    said = dict.fromkeys(("system", "kernel", "arch", "hostname", "os", "os_id", "os_like", "root"), "")
    lines = list(_pairs(answer.text))
    said |= dict(lines)
    size, free = _disk(said.get("disk", ""))
    cards = [value for key, value in lines if key == "card"]
    gpus = [value for key, value in lines if key == "gpu"]
    return Seen(
        system=said["system"],
        kernel=said["kernel"],
        architecture=said["arch"],
        hostname=said["hostname"],
        os=said["os"],
        families=(said["os_id"], *said["os_like"].split()),
        root=said["root"],
        runtimes=tuple(value for key, value in lines if key == "runtime" and value),
        disk=size,
        disk_free=free,
        gpus=len(cards) + len(gpus),
        products=tuple("-".join(gpu.partition(",")[0].split()) for gpu in gpus),
        driver=next((gpu.partition(",")[2].strip() for gpu in gpus), ""),
        seen_by=said.get("seen_by", ""),
        broken=said.get("broken", ""),
        authorities=frozenset(value for key, value in lines if key == "authority"),
        server=next((value for key, value in lines if key == "server" and value), ""),
        clock_ahead=_clock(said, answer),
    )


def findings(seen: Seen, wanted: Wanted) -> tuple[Finding, ...]:
    """Everything that stands in the way, at once."""
    return (
        *_of_the_system(seen),
        *_of_the_login(seen),
        *_of_the_kubelet(seen, wanted),
        *_of_the_gpus(seen, wanted),
        *_of_disk_and_clock(seen, wanted),
    )


def _of_the_system(seen: Seen) -> Iterator[Finding]:
    if seen.system != "Linux":
        yield Finding(f"it runs {seen.system or 'an unknown system'}", "nodes run Linux")
    elif not set(seen.families) & set(FAMILIES):
        yield Finding(
            f"it runs {seen.os or 'an unknown distribution'}",
            f"the roles know {' and '.join(FAMILIES)}: install one of them",
        )
    if seen.architecture not in ARCHITECTURES:
        yield Finding(
            f"its architecture is {seen.architecture or 'not told'}", f"nodes are {' or '.join(ARCHITECTURES)}"
        )


def _of_the_login(seen: Seen) -> Iterator[Finding]:
    if seen.root == "no-sudo":
        yield Finding("the login is not root, and sudo is missing", "apt-get install sudo, or set ssh.user: root")
    elif seen.root == "password":
        yield Finding(
            "sudo asks the login for a password",
            "put 'USER ALL=(ALL) NOPASSWD: ALL' into a file of /etc/sudoers.d (visudo -cf checks it)",
        )
    elif seen.root not in ("itself", "sudo"):
        yield Finding("it is not told how the login becomes root", "set ssh.user: root, or install sudo")


def _of_the_kubelet(seen: Seen, wanted: Wanted) -> Iterator[Finding]:
    """Compares authorities, since one cluster may be reached by several addresses."""
    if seen.authorities and wanted.authorities and not seen.authorities & wanted.authorities:
        yield Finding(
            f"it is a node of another cluster, {seen.server or 'whose address its kubelet does not tell'}",
            "take it out of that one first (of its stack's inventory; then kubeadm reset), or out of this one",
        )


def _of_the_gpus(seen: Seen, wanted: Wanted) -> Iterator[Finding]:
    broken = f" (nvidia-smi: {seen.broken})" if seen.broken else ""
    if seen.gpus != wanted.gpus:
        yield Finding(
            f"{seen.gpus} GPUs are seen by {seen.seen_by or 'nothing'}{broken}, the inventory says {wanted.gpus}",
            "correct gpus.count, or look for the missing card: lspci -d 10de:, dmesg | grep -i -e nvrm -e pcie",
        )
    others = sorted(set(seen.products) - {wanted.product})
    if wanted.gpus and others:
        yield Finding(f"its GPUs are {', '.join(others)}, the inventory says {wanted.product}", "correct gpus.product")


def _of_disk_and_clock(seen: Seen, wanted: Wanted) -> Iterator[Finding]:
    if seen.disk_free < wanted.disk_free:
        yield Finding(
            f"{_gib(seen.disk_free)} are free where /var/lib is, {_gib(wanted.disk_free)} are needed",
            "make room for images and logs, or lower min_disk_free",
        )
    if abs(seen.clock_ahead) > CLOCK_SECONDS:
        way = "ahead of" if seen.clock_ahead > 0 else "behind"
        yield Finding(
            f"its clock is at least {abs(seen.clock_ahead):.0f} s {way} ours, so certificates and tokens fail",
            "timedatectl set-ntp true, or give it a time server (/etc/systemd/timesyncd.conf)",
        )


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals and key.isidentifier():
            yield key, " ".join(value.split())


def _disk(line: str) -> tuple[int, int]:
    """Size and free space in bytes, of a line of ``df -Pk``."""
    columns = line.split()
    try:
        return int(columns[1]) << 10, int(columns[3]) << 10
    except (IndexError, ValueError):
        return 0, 0


def _gib(amount: int) -> str:
    return f"{amount / 2**30:.1f} GiB"


def _clock(said: Mapping[str, str], answer: Answer) -> float:
    """How far it is off, whenever within the time on the way it was read."""
    try:
        began, ended = float(said.get("began", "")), float(said.get("ended", ""))
    except ValueError:  # a date(1) without nanoseconds
        return 0.0
    ahead, behind = ended - answer.ended_at, began - answer.sent_at
    return ahead if ahead > 0 else min(behind, 0.0)
