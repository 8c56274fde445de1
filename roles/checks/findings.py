"""`spillway nodes check`: what must hold before a machine is changed, each with its remedy.

All checks of a machine run in one command that only reads. A check prints nothing where it holds, and what it found
where it does not. An ``error`` would make a change fail on that machine, a ``warning`` would not.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Final, Literal

_MARK: Final = "==spillway-check=="


@dataclass(frozen=True, slots=True)
class Check:
    """One named question."""

    name: str
    severity: Literal["error", "warning"]
    shell: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A check that did not hold on a machine."""

    host: str
    check: str
    severity: str
    found: str
    remedy: str


_WRITTEN: Final = "/ /var /var/lib/spillway /var/lib/dpkg /var/cache/apt/archives /var/lib/containerd"
"""Folders that a change writes into, each of which may be a file system of its own."""
APT_LOCK: Final = """\
for f in /var/lib/dpkg/lock-frontend /var/lib/dpkg/lock /var/lib/apt/lists/lock /var/cache/apt/archives/lock; do
  [ ! -e $f ] || awk -v i=":$(stat -c %i $f)" 'substr($6, length($6) - length(i) + 1) == i { print $5 }' /proc/locks
done | sort -u | while read -r p; do
  c=; [ ! -r "/proc/$p/comm" ] || read -r c < "/proc/$p/comm"
  echo "held by process $p${c:+ ($c)}"
done"""
"""The kernel's own list: no program of a bare machine says it."""
_FIREWALL: Final = r"""
! grep -qsi '^ENABLED=yes' /etc/ufw/ufw.conf || echo 'ufw is on, and drops what it has no rule for'
{ iptables-save; ip6tables-save; } 2>/dev/null | awk '
  /^:(INPUT|FORWARD) DROP/ { print "iptables: " substr($1, 2) " drops what it has no rule for" }
  /^-A INPUT .*--dports? [0-9,:]*10250.* -j (DROP|REJECT)/ { print "iptables: " $0 }' | sort -u
has=$(command -v iptables-save)
nft list ruleset 2>/dev/null | awk -v has="$has" '
  $1 == "table" { theirs = has != "" && ($2 == "ip" || $2 == "ip6") && $3 == "filter"; table = $2 " " $3 }
  theirs { next }
  /hook (input|forward) .*policy drop/ { print "nftables: " table ": " $4 " drops what it has no rule for" }
  /dport (10250|\{[^}]*10250[^}]*\}).* (drop|reject)/ { print "nftables: " table ":" $0 }' | sort -u
"""
_BOOT_LINE: Final = r"""
of='systemd[.](unified_cgroup_hierarchy|legacy_systemd_cgroup_controller)|cgroup_no_v1|swapaccount|nouveau[.]modeset'
files="/proc/cmdline /etc/default/grub /etc/default/grub.d/*.cfg"
grep -hoE "($of|nvidia[.]NVreg_[A-Za-z]+)=[^ \"]*" $files 2>/dev/null |
  sort -u | sed 's/^/the kernel is started with /'
grep -HoE '^ *options +nvidia .*NVreg_(EnableGpuFirmware|NvLinkDisable)=[0-9]+' /etc/modprobe.d/*.conf
"""
_BASICS: Final = r"""
{ [ -c /dev/null ] && [ "$(stat -c %a /dev/null)" = 666 ]; } || echo '/dev/null is no device that all may write to'
[ "$(stat -c %a /tmp)" = 1777 ] || echo '/tmp has not the mode 1777'
grep -qxE '[0-9a-f]{32}' /etc/machine-id || echo '/etc/machine-id names no machine'
"""
_BOOT_MOUNTS: Final = r"""
awk '$1 !~ /^#/ && NF > 3 && $3 != "swap" && $4 !~ /(^|,)(noauto|nofail)(,|$)/ { print $1, $2 }' /etc/fstab |
while read -r what where; do
  case $what in
    UUID=*) at=/dev/disk/by-uuid/${what#*=} ;; LABEL=*) at=/dev/disk/by-label/${what#*=} ;;
    PARTUUID=*) at=/dev/disk/by-partuuid/${what#*=} ;; /dev/*) at=$what ;; *) continue ;;
  esac
  [ -e "$at" ] || mountpoint -q "$where" || echo "$where: /etc/fstab has the boot wait for $what, which is not there"
done
"""
_POD_NETWORK: Final = r"""
pods=$(sed -n 's/.*"subnet": *"\([0-9.]*\.0\/[0-9]*\)".*/\1/p' /etc/cni/net.d/10-spillway.conflist)
has=$(ip -4 -o addr show cni0 | awk '{ print $4; exit }')
[ -z "$pods" ] || [ -z "$has" ] || [ "$has" = "$(echo "$pods" | sed 's|[.]0/|.1/|')" ] ||
  echo "the bridge cni0 has $has, and pods get addresses of $pods: no new pod starts"
taken=$(ls /var/lib/cni/networks/spillway | grep -c '^[0-9.]*$'); run=$(ls /run/netns | grep -c '^cni-')
[ $((taken - run)) -lt 100 ] || echo "$taken addresses are taken, and $run pods run"
"""
"""A bridge of another subnet, and addresses that were not given back, keep a node Ready on which no new pod starts.

https://github.com/containerd/cri/issues/948
"""

CHECKS: Final = (
    Check(
        "distribution",
        "error",
        '. /etc/os-release 2>/dev/null; case "$ID" in debian|ubuntu) ;; *) echo "${PRETTY_NAME:-unknown}";; esac',
        "the roles know Debian and Ubuntu: install one of them",
    ),
    Check(
        "root",
        "error",
        '[ "$(id -u)" = 0 ] || echo "commands run as $(id -un)"',
        "let the SSH user become root without a password: a file in /etc/sudoers.d with NOPASSWD: ALL",
    ),
    Check(
        "systemd",
        "error",
        '[ -d /run/systemd/system ] || echo "PID 1 is $(cat /proc/1/comm)"',
        "boot the machine with systemd: its services cannot be kept otherwise",
    ),
    Check(
        "disk",
        "error",
        f"df -Pk $(ls -d {_WRITTEN} 2>/dev/null) | awk 'NR > 1 && $4 < 1048576"
        ' { print $6 " has " int($4 / 1024) " MiB free" }\' | sort -u',
        "free at least 1 GiB, such as with apt-get clean and journalctl --vacuum-size=500M",
    ),
    Check(
        "inodes",
        "error",
        f"df -Pi $(ls -d {_WRITTEN} 2>/dev/null) | awk 'NR > 1 && $2 > 0 && $4 < 10000"
        ' { print $6 " has " $4 " inodes free" }\' | sort -u',
        "remove small files: find where they are with du --inodes -x / | sort -n | tail",
    ),
    Check(
        "read-only",
        "error",
        f"for d in {_WRITTEN} /etc /etc/spillway /usr /boot; do"
        ' [ ! -d "$d" ] || [ -w "$d" ] || echo "$d cannot be written: it is mounted read-only, or immutable"; done',
        "look for errors of the disk in dmesg, repair it with fsck, and mount it read-write; or chattr -i",
    ),
    Check(
        "dpkg",
        "warning",
        "dpkg --audit 2>/dev/null | head -3",
        "an installation was cut off: the next change finishes it (dpkg --configure -a, apt-get -f install)",
    ),
    Check(
        "apt-lock",
        "warning",
        APT_LOCK,
        "wait for the other apt to end: changes wait up to five minutes for it",
    ),
    Check(
        "host-name",
        "warning",
        'getent hosts "$(hostname)" >/dev/null || echo "$(hostname) does not resolve on the machine itself"',
        "the roles mend it (/etc/hosts); until then sudo may be slow",
    ),
    Check(
        "memory",
        "error",
        "awk '/^MemAvailable/ && $2 < 262144 { print int($2 / 1024) \" MiB of memory are free\" }' /proc/meminfo",
        "find what holds the memory: ps aux --sort=-rss | head",
    ),
    Check(
        "reboot",
        "warning",
        "[ ! -e /run/reboot-required ] || sed 's/^/asked for by /' /run/reboot-required.pkgs 2>/dev/null | head -3",
        "reboot at a time that suits: spillway nodes apply drains the node for what needs it",
    ),
    Check(
        "firewall",
        "warning",
        _FIREWALL,
        "let the API server in at port 10250, and pods through: ufw allow and ufw route allow, or rules before it",
    ),
    Check(
        "boot-line",
        "warning",
        _BOOT_LINE,
        "take it out of /etc/default/grub, update-grub, and reboot: it changes what the roles have set up",
    ),
    Check(
        "basics",
        "warning",
        _BASICS,
        "mknod -m 666 /dev/null c 1 3; chmod 1777 /tmp; systemd-machine-id-setup: apt and the kubelet rely on these",
    ),
    Check(
        "boot-mounts",
        "warning",
        _BOOT_MOUNTS,
        "write nofail into its options, or take the line out: the next boot would end in the emergency mode",
    ),
    Check(
        "boot-space",
        "warning",
        'df -Pk /boot | awk \'NR > 1 && $4 < 102400 { print "/boot has " int($4 / 1024) " MiB free" }\'',
        "remove kernels that nothing boots (apt-get autoremove --purge): images of modules are built there",
    ),
    Check(
        "pod-network",
        "warning",
        _POD_NETWORK,
        "drain the node; then ip link delete cni0, and remove /var/lib/cni/networks/spillway",
    ),
    Check(
        "unfinished",
        "warning",
        "[ ! -d /run/spillway/owed ] || ls /run/spillway/owed | sed 's/^/a restart is owed by /'",
        "an earlier run ended in between: the next one goes on by itself",
    ),
)


def script(checks: tuple[Check, ...] = CHECKS) -> str:
    """Asks everything; a check that hangs ends after ten seconds, and says so."""
    hung = "[ $? != 124 ] || echo 'this could not be found out: it hung for 10 s'"
    parts = [
        f"echo; echo {_MARK} {one.name}; timeout -k 1 10 sh -c {shlex.quote(one.shell)} 2>/dev/null || {hung}"
        for one in checks
    ]
    return "\n".join([*parts, "true"])


def findings(host: str, said: str, checks: tuple[Check, ...] = CHECKS) -> list[Finding]:
    """What does not hold, given what :func:`script` printed."""
    parts = {}
    for piece in said.split(f"{_MARK} ")[1:]:
        name, _, body = piece.partition("\n")
        parts[name.strip()] = " ".join(body.partition("\n==spillway-")[0].split())
    return [
        Finding(host=host, check=one.name, severity=one.severity, found=parts[one.name], remedy=one.remedy)
        for one in checks
        if parts.get(one.name)
    ]


def clock_finding(host: str, skew: float) -> list[Finding]:
    """The machine's clock against ours, seconds. A certificate is valid from five minutes before it was made."""
    if abs(skew) < 30:  # noqa: PLR2004 - seconds that leases and logs bear
        return []
    found = f"{abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} this controller"
    severity = "error" if abs(skew) >= 300 else "warning"  # noqa: PLR2004 - those five minutes
    remedy = "start its time service: timedatectl set-ntp true, then look again"
    return [Finding(host, "clock", severity, found, remedy)]


def unreachable(host: str, reason: str) -> Finding:
    """No connection, or no account that may come in."""
    remedy = "try ssh to its address by hand: is it up, is the port open, is its host key the one in the inventory?"
    if "uthentication" in reason:
        remedy = "put the controller's public key into the authorized_keys of the inventory's SSH user"
    if "resolve hostname" in reason:
        remedy = "write its IP address into the inventory, or a name that this controller can look up"
    if "host key" in reason.lower():
        remedy = "compare its host key at its console; if it was installed anew, write the new key into the inventory"
    if "No host key" in reason:
        remedy = (
            "write its public host key into the inventory (ssh.host_key: `ssh-keyscan -t ed25519 ADDRESS` prints it;"
            " compare it at the machine's console), or say --accept-new-host-keys once"
        )
    return Finding(host, "connection", "error", reason, remedy)
