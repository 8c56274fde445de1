"""Role: what every machine needs before it is asked to run anything: name, clock, kernel, limits, journal, updates."""

from __future__ import annotations

import re
from typing import Final

from pyinfra.api.deploy import deploy

from roles.operations import apt, files, kernel, packages, services
from roles.operations.services import restarts
from roles.settings.machine import MachineSettings, settings

PACKAGES: Final = (
    *("ca-certificates", "conntrack", "curl", "ethtool", "iptables", "kmod", "logrotate", "openssl", "procps", "socat"),
)
"""What kubelet, the pod network and these roles themselves call."""
MODULES: Final = ("br_netfilter", "nf_conntrack", "overlay")
SYSCTL: Final = {
    "net.ipv4.ip_forward": "1",
    "net.bridge.bridge-nf-call-iptables": "1",
    "net.bridge.bridge-nf-call-ip6tables": "1",
    # A kubelet sets these itself where it may; a machine that has them at boot never runs a pod without them.
    "vm.overcommit_memory": "1",
    "kernel.panic": "10",
    "kernel.panic_on_oops": "1",
    # A data loader with many workers and a log tailer per container watch more files than the kernel's defaults.
    "fs.inotify.max_user_instances": "8192",
    "fs.inotify.max_user_watches": "524288",
}
TIME_DAEMONS: Final = ("systemd-timesyncd", "ntp", "ntpsec", "openntpd")
"""chrony conflicts with each. The first is what Debian and Ubuntu are installed with, and nothing else goes with it."""
LOADERS: Final = ("systemd-modules-load.service", "systemd-sysctl.service")
"""They read at boot what the roles have written for it."""
LIMITS: Final = "/etc/security/limits.d/90-spillway.conf"
JOURNAL: Final = "/etc/systemd/journald.conf.d/90-spillway.conf"
SPARED: Final = (
    *("containerd", "cri-tools", "cuda-", "docker", "kubeadm", "kubectl", "kubelet", "kubernetes-cni"),
    *("libnvidia-", "libxnvctrl", "linux-headers-", "linux-image-", "nvidia-", "runc", "xserver-xorg-video-nvidia"),
)
"""Beginnings of the names of packages that only this project upgrades: on a node that is drained, all that go together
at once. Kernels are among them: one without the driver's module takes the GPUs away at the next boot."""


OURS: Final = ("containerd", "docker", "kubelet", "nvidia-", "spillway-")
"""Beginnings of the names of services that nothing restarts but this project, on a node that is drained."""


@deploy("Name, clock, kernel and limits")
def system() -> None:
    """The machine below the cluster."""
    wanted = settings()
    kernel.hostname(wanted=wanted.name, address=wanted.address, name=f"host name {wanted.name}")
    if wanted.time.service == "chrony":
        packages.removed(names=TIME_DAEMONS, name="no second time service")
    packages.installed(name="tools that a node calls", wanted=dict.fromkeys(tools(wanted), "*"), hold=False)
    apt.spared_by_unattended_upgrades(patterns=SPARED, name="unattended upgrades leave the node's software alone")
    apt.restarts_left_to_us(units=OURS, name="needrestart leaves the node's services alone")
    _clock()
    modules = (*MODULES, *wanted.kernel.modules)
    kernel.modules(names=modules, name="kernel modules, now and at boot")
    kernel.sysctl(values=SYSCTL | wanted.kernel.sysctl, brought_by=modules, name="kernel settings, now and at boot")
    services.unmasked(units=LOADERS, name="modules and settings are taken at boot")
    services.boots_into_service(name="the machine boots into service")
    if wanted.kernel.swap == "off":
        kernel.no_swap(name="no swap")
        kernel.no_swap_units(name="no unit brings swap")
    _limits()
    _journal()


def tools(machine: MachineSettings) -> list[str]:
    """Packages of the distribution that this and later roles need: in one go, since apt reads its lists each time."""
    more = {
        "chrony": machine.time.service == "chrony",
        "containernetworking-plugins": machine.pod_network.kind == "bridge",
        "rsyslog": bool(machine.logs.ship_to),
    }
    return sorted({*PACKAGES, *(name for name, needed in more.items() if needed)})


def _clock() -> None:
    clock = settings().time
    if clock.service == "none":
        return
    with restarts("chrony"):
        if clock.servers:
            files.place(
                name="time servers",
                dest="/etc/chrony/chrony.conf",
                content=chrony_config(clock.servers),
                meaning="chrony",
                validate="chronyd -p -f {path}",
            )
    services.running(unit="chrony", name="the time service runs")
    kernel.clock_set(name="the clock is right")


def chrony_config(servers: tuple[str, ...]) -> str:
    """Configures these servers alone; a clock that is far off is set at the start, not under running jobs."""
    lines = [f"server {server} iburst" for server in servers]
    rest = ("keyfile /etc/chrony/chrony.keys", "driftfile /var/lib/chrony/chrony.drift", "logdir /var/log/chrony")
    return "\n".join((*lines, *rest, "maxupdateskew 100.0", "rtcsync", "makestep 1 3", "leapsectz right/UTC", ""))


def _limits() -> None:
    """Pinned memory (NCCL over InfiniBand) and many open files, for users and for services."""
    files.place(
        name="limits of users",
        dest=LIMITS,
        content="* - memlock unlimited\nroot - memlock unlimited\n* - nofile 1048576\nroot - nofile 1048576\n",
        meaning="limits",
    )
    files.last_word(name="no later limits", dest=LIMITS, about=r"(\*|root)\s+\S+\s+(memlock|nofile)\s")
    users = tuple(user.name for user in settings().users if not user.gone)
    files.no_other_word(
        name="no limits of their own for our accounts",
        dest=LIMITS,
        also="/etc/security/limits.conf",
        about=rf"({'|'.join(map(re.escape, ('root', *users)))}|@\S+)\s+\S+\s+(memlock|nofile)\s",
    )
    files.included(by="/etc/pam.d/sshd", line="session required pam_limits.so", name="sshd gives limits")


def _journal() -> None:
    logs = settings().logs
    with restarts("systemd-journald"):
        files.place(
            name="the journal has a limit",
            dest=JOURNAL,
            content=(
                f"[Journal]\nStorage=persistent\nSystemMaxUse={logs.journal_size}\n"
                f"MaxRetentionSec={logs.keep}\nRateLimitBurst=20000\n"
            ),
            meaning="ini",
        )
    files.last_word(
        name="no later limit of the journal",
        dest=JOURNAL,
        about=r"(Storage|SystemMaxUse|MaxRetentionSec|RateLimitBurst)\s*=",
    )
    services.running(unit="systemd-journald", name="the journal runs")
