"""NVIDIA's packages as the tests build them: real names, paths, units and version rules around stand-ins.

The container toolkit's ``nvidia-ctk`` is the real one, built from its Go module. No module can be loaded on a machine
of a test: modprobe itself is real, and is told (``install``, ``remove`` in modprobe.d) to run a script in its place.
"""

from __future__ import annotations

import os
import struct
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.live.apt_repository import Deb

HERE: Final = Path(__file__).parent
LIBRARIES: Final = "/usr/lib/x86_64-linux-gnu"
_OPEN: Final = "Dual MIT/GPL"
_MODPROBE: Final = """\
# A stand-in: these modules hold no code, and scripts run in place of loading them.
install nvidia /usr/lib/nvidia-stand-in/load
install nvidia_uvm /bin/true
remove nvidia /usr/lib/nvidia-stand-in/unload
remove nvidia_uvm /bin/true
remove nvidia_drm /bin/true
remove nvidia_modeset /bin/true
remove nvidia_peermem /bin/true
"""
_DAEMON: Final = "#!/bin/sh\n# A stand-in that only stays.\nexec sleep infinity\n"
_FABRIC_MANAGER: Final = """\
#!/bin/sh
# A stand-in: like the real one it ends at once where the loaded driver is of another version.
grep -q ' {version} ' /proc/driver/nvidia/version 2>/dev/null || {{ echo "driver version mismatch" >&2; exit 1; }}
exec sleep infinity
"""
_REFRESH: Final = """\
[Unit]
Description=Refresh NVIDIA CDI specification file
ConditionPathExists=/usr/bin/nvidia-smi

[Service]
Type=oneshot
EnvironmentFile=-/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env
ExecStart=/usr/bin/nvidia-smi -L
ExecStart=/usr/bin/nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml

[Install]
WantedBy=multi-user.target
"""
_REFRESH_PATH: Final = """\
[Unit]
Description=Refresh the CDI specification when driver or toolkit change

[Path]
PathChanged=/lib/modules/%v/modules.dep
PathChanged=/usr/bin/nvidia-ctk

[Install]
WantedBy=multi-user.target
"""
_STARTS: Final = """\
systemctl daemon-reload 2>/dev/null || true
for unit in {units}; do
  systemctl -q enable $unit 2>/dev/null || true
  systemctl -q start $unit 2>/dev/null || true
done"""


def driver(version: str) -> list[Deb]:
    """The driver's packages, open and proprietary modules, with its two daemons."""
    revision = f"{version}-1"
    return [
        Deb("libnvidia-ml1", revision, *_library("libnvidia-ml", _nvml(version), version)),
        Deb("libcuda1", revision, *_library("libcuda", _nvml(version), version)),
        Deb(
            "nvidia-driver-cuda",
            revision,
            {"/usr/bin/nvidia-smi": HERE / "nvidia-smi"},
            programs=("/usr/bin/nvidia-smi",),
            depends=f"libnvidia-ml1 (= {revision}), libcuda1 (= {revision})",
        ),
        _modules("nvidia-kernel-open-dkms", version, _OPEN, conflicts="nvidia-kernel-dkms"),
        _modules("nvidia-kernel-dkms", version, "NVIDIA", conflicts="nvidia-kernel-open-dkms"),
        _service("nvidia-persistenced", revision, "/usr/bin/nvidia-persistenced", _DAEMON),
        _service(
            "nvidia-fabricmanager", revision, "/usr/bin/nv-fabricmanager", _FABRIC_MANAGER.format(version=version)
        ),
    ]


def driver_of_ubuntu(version: str) -> list[Deb]:
    """The same with the names that they have on Ubuntu: up to R580 with the branch, of which there can be one only."""
    branch, revision = version.partition(".")[0], f"{version}-0ubuntu1"
    of_branch = f"-{branch}" if branch < "590" else ""
    library, nvml = _library("libnvidia-ml", _nvml(version), version)
    cuda, cuda_link = _library("libcuda", _nvml(version), version)
    common = f"nvidia-kernel-common{of_branch} (= {revision})"
    return [
        Deb(f"nvidia-kernel-common{of_branch}", revision, **_the_only("nvidia-kernel-common")),
        Deb(
            f"libnvidia-compute{of_branch}",
            revision,
            {**library, **cuda},
            {**nvml, **cuda_link},
            depends=common,
            **_the_only("libnvidia-compute"),
        ),
        Deb(
            f"nvidia-utils{of_branch}",
            revision,
            {"/usr/bin/nvidia-smi": HERE / "nvidia-smi"},
            programs=("/usr/bin/nvidia-smi",),
            depends=f"libnvidia-compute{of_branch}",
            **_the_only("nvidia-utils"),
        ),
        *(
            replace(
                _modules(name, version, licence, conflicts="nvidia-kernel-source"),
                version=revision,
                depends=f"dkms, kmod, {common}",
                provides="nvidia-kernel-source",
            )
            for name, licence in ((f"nvidia-dkms{of_branch}-open", _OPEN), (f"nvidia-dkms{of_branch}", "NVIDIA"))
        ),
        _service("nvidia-persistenced", revision, "/usr/bin/nvidia-persistenced", _DAEMON),
        replace(
            _service(
                "nvidia-fabricmanager",
                f"{version}-1",
                "/usr/bin/nv-fabricmanager",
                _FABRIC_MANAGER.format(version=version),
                package="nvidia-fabricmanager" if branch >= "580" else f"nvidia-fabricmanager-{branch}",
            ),
            **_the_only("fabricmanager"),
        ),
    ]


def container_toolkit(version: str, *, ctk: Path) -> list[Deb]:
    """The toolkit's four packages; ``ctk`` is the real program."""
    revision = f"{version}-1"
    base = Deb(
        "nvidia-container-toolkit-base",
        revision,
        {
            "/usr/bin/nvidia-ctk": ctk,
            "/usr/bin/nvidia-cdi-hook": "#!/bin/sh\n# A stand-in: containers of tests need none of its links.\n",
            "/usr/bin/nvidia-container-runtime": '#!/bin/sh\n# A stand-in: it adds no device.\nexec runc "$@"\n',
            "/usr/lib/systemd/system/nvidia-cdi-refresh.service": _REFRESH,
            "/usr/lib/systemd/system/nvidia-cdi-refresh.path": _REFRESH_PATH,
            "/etc/nvidia-container-runtime/config.toml": '[nvidia-container-runtime]\nmode = "auto"\n',
        },
        programs=("/usr/bin/nvidia-ctk", "/usr/bin/nvidia-cdi-hook", "/usr/bin/nvidia-container-runtime"),
        scripts={"postinst": _STARTS.format(units="nvidia-cdi-refresh.path nvidia-cdi-refresh.service")},
        conffiles=("/etc/nvidia-container-runtime/config.toml",),
    )
    return [
        base,
        Deb("libnvidia-container1", revision, {f"{LIBRARIES}/libnvidia-container.so.{version}": "stand-in\n"}),
        Deb("libnvidia-container-tools", revision, depends=f"libnvidia-container1 (= {revision})"),
        Deb(
            "nvidia-container-toolkit",
            revision,
            {"/usr/bin/nvidia-container-runtime-hook": "#!/bin/sh\n# A stand-in.\n"},
            programs=("/usr/bin/nvidia-container-runtime-hook",),
            depends=f"nvidia-container-toolkit-base (= {revision}), libnvidia-container-tools (= {revision})",
        ),
    ]


def kernel() -> list[Deb]:
    """What building modules needs: headers of the kernel that runs, and dkms. The epoch puts it before Debian's own."""
    release = os.uname().release
    return [
        Deb("dkms", "99:3.0.11-1", {"/usr/sbin/dkms": HERE / "dkms"}, programs=("/usr/sbin/dkms",)),
        headers(release),
    ]


def headers(release: str) -> Deb:
    """The package with the headers of that kernel."""
    return Deb(f"linux-headers-{release}", "1", {f"/lib/modules/{release}/build/Makefile": "# a stand-in\n"})


def cuda(version: str) -> Deb:
    """The CUDA toolkit's package of that release."""
    return Deb(
        f"cuda-toolkit-{version.replace('.', '-')}", f"{version}.2-1", {f"/usr/local/cuda-{version}/version": "\n"}
    )


def _the_only(role: str) -> dict[str, str]:
    """Of all packages that provide this there can be one."""
    return {"provides": role, "conflicts": role}


def _library(name: str, built: bytes, version: str) -> tuple[dict[str, bytes], dict[str, str]]:
    return {f"{LIBRARIES}/{name}.so.{version}": built}, {f"{LIBRARIES}/{name}.so.1": f"{name}.so.{version}"}


def _nvml(version: str) -> bytes:
    with tempfile.TemporaryDirectory() as scratch:
        target = Path(scratch, "nvml.so")
        words = ["-shared", "-fPIC", "-Os", "-s", f'-DDRIVER="{version}"', "-o", str(target), str(HERE / "nvml.c")]
        subprocess.run(["gcc", *words], check=True, capture_output=True)
        return target.read_bytes()


def _modules(name: str, version: str, licence: str, *, conflicts: str) -> Deb:
    source = f"/usr/src/nvidia-{version}"
    built = f"dkms install -m nvidia -v {version} -k $(uname -r)"
    return Deb(
        name,
        f"{version}-1",
        {
            f"{source}/nvidia.ko": module(version, licence),
            f"{source}/nvidia-uvm.ko": module(version, licence),
            "/usr/lib/nvidia-stand-in/load": HERE / "load",
            "/usr/lib/nvidia-stand-in/unload": HERE / "unload",
            "/usr/lib/modprobe.d/nvidia-stand-in.conf": _MODPROBE,
        },
        programs=("/usr/lib/nvidia-stand-in/load", "/usr/lib/nvidia-stand-in/unload"),
        depends="dkms, kmod",
        conflicts=conflicts,
        scripts={
            "postinst": f'[ "$1" != configure ] || {built}',
            "prerm": f"dkms remove -m nvidia -v {version} -k $(uname -r)",
        },
    )


def _service(name: str, revision: str, program: str, text: str, *, package: str = "") -> Deb:
    unit = f"[Unit]\nDescription={name}\n\n[Service]\nExecStart={program}\n\n[Install]\nWantedBy=multi-user.target\n"
    return Deb(
        package or name,
        revision,
        {program: text, f"/lib/systemd/system/{name}.service": unit},
        programs=(program,),
        scripts={
            "postinst": _STARTS.format(units=f"{name}.service"),
            "prerm": f'[ "$1" != remove ] || systemctl stop {name}.service || true',
            "postrm": "systemctl daemon-reload || true",
        },
    )


def module(version: str, licence: str) -> bytes:
    """A kernel module with a version and a licence and nothing else: an ELF file with what modinfo reads."""
    info = b"".join(f"{key}={value}".encode() + b"\0" for key, value in (("version", version), ("license", licence)))
    names = b"\0.modinfo\0.shstrtab\0.strtab\0.symtab\0"
    symbols = bytes(24)
    content = info + names + b"\0" + symbols
    start = 64
    sections = (
        (0, 0, 0, 0, 0, 0, 0),
        (1, 1, start, len(info), 0, 0, 1),
        (10, 3, start + len(info), len(names), 0, 0, 1),
        (20, 3, start + len(info) + len(names), 1, 0, 0, 1),
        (28, 2, start + len(info) + len(names) + 1, len(symbols), 3, 24, 1),
    )
    table = b"".join(
        struct.pack("<IIQQQQIIQQ", name, kind, 0, 0, at, size, link, 1 if kind == 2 else 0, align, entry)
        for name, kind, at, size, link, entry, align in sections
    )
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    header = ident + struct.pack("<HHIQQQIHHHHHH", 1, 62, 1, 0, 0, start + len(content), 0, 64, 0, 0, 64, 5, 2)
    return header + content + table
