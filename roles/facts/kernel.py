"""The kernel as it runs: settings, modules, swap, and the name that the machine goes by."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final

from pyinfra.api.command import StringCommand
from pyinfra.api.facts import FactBase

from roles.facts.batched import About, Kind, Lines, Plain

_SIGNS: Final = {"overlay": "grep -qw overlay /proc/filesystems", "br_netfilter": "[ -d /proc/sys/net/bridge ]"}
"""How a module shows that is part of the kernel itself, where its parameters do not."""


def setting_path(key: str) -> str:
    """The path below /proc/sys: which of dot and slash comes first parts the words, and the other one stands for it.

    So ``net.ipv4.conf.eth0/100.rp_filter`` and ``net/ipv4/conf/eth0.100/rp_filter`` are one setting.
    """
    first = next((one for one in key if one in "./"), "/")
    return key if first == "/" else key.translate(str.maketrans("./", "/."))


def _values(keys: Sequence[str]) -> str:
    """One process for all. The shell's own `read` takes a byte at a time, and a number's file gives no second one."""
    return f"grep -asH '' -- {' '.join(shlex.quote(f'/proc/sys/{setting_path(key)}') for key in keys)}; true"


def _split_values(lines: Lines, keys: Sequence[str]) -> dict[str, Lines]:
    return {key: [line for line in lines if line.startswith(f"/proc/sys/{setting_path(key)}:")] for key in keys}


SYSCTL: Final = Kind("sysctl", _values, _split_values)


class SysctlValue(FactBase[str | None]):
    """The value in force, its parts separated by single spaces; ``None`` where the kernel has no such setting."""

    def command(self, key: str) -> StringCommand:
        """One key of the question."""
        return About(SYSCTL, key)

    def process(self, output: list[str]) -> str | None:
        """``path:value``, a line for each of its lines."""
        return " ".join(word for line in output for word in line.partition(":")[2].split()) or None


class SysctlNames(FactBase[list[str]]):
    """Every setting that the kernel has, by its :func:`setting_path`. Asked only where one is missing."""

    @staticmethod
    def default() -> list[str]:
        """Returns the value for no output: not known."""
        return []

    def command(self) -> StringCommand:
        """Lists the settings as the files they are."""
        return Plain("find /proc/sys -type f 2>/dev/null; true")

    def process(self, output: list[str]) -> list[str]:
        """Reads ``/proc/sys/vm/swappiness`` as ``vm/swappiness``."""
        return [line.removeprefix("/proc/sys/") for line in output]


class SysctlFiles(FactBase[list[tuple[str, str, str]]]):
    """Every assignment in files that are read at boot, in the order in which they are read: path, setting, value.

    The setting is by :func:`setting_path`.
    """

    @staticmethod
    def default() -> list[tuple[str, str, str]]:
        """Returns the value for no output: none."""
        return []

    def command(self) -> StringCommand:
        """Searches every folder that systemd-sysctl reads."""
        files = " ".join(f"{folder}/sysctl.d/*.conf" for folder in ("/usr/lib", "/usr/local/lib", "/run", "/etc"))
        return Plain(f"grep -D skip -sHE '^[[:space:]]*-?[^#;=[:space:]][^=]*=' {files}; true")

    def process(self, output: list[str]) -> list[tuple[str, str, str]]:
        """``path:key = value``, in the order in which systemd-sysctl reads: by file name, whatever the folder."""
        found = []
        for line in sorted(output, key=_by_file_name):
            path, _, assignment = line.partition(":")
            key, equals, value = assignment.partition("=")
            if equals:
                found.append((path, setting_path(key.strip().lstrip("-").strip()), " ".join(value.split())))
        return found


def _by_file_name(line: str) -> tuple[str, str]:
    path = line.partition(":")[0]
    return path.rpartition("/")[2], path


def _modules(names: Sequence[str]) -> str:
    tests = []
    for name in names:
        plain, quoted = name.replace("-", "_"), shlex.quote(name)
        sign = f" || {{ {_SIGNS[plain]}; }}" if plain in _SIGNS else ""
        tests.append(
            f"if [ -d /sys/module/{plain} ] || grep -q '^{plain} ' /proc/modules{sign}; then echo {quoted} loaded;"
            f" elif modinfo {quoted} >/dev/null 2>&1; then echo {quoted} available; else echo {quoted} absent; fi"
        )
    return "\n".join(tests)


def _split_modules(lines: Lines, names: Sequence[str]) -> dict[str, Lines]:
    return {name: [line for line in lines if line.split()[:1] == [name]] for name in names}


MODULES: Final = Kind("modules", _modules, _split_modules)


class ModuleState(FactBase[str]):
    """State of a kernel module: ``loaded`` (also: part of the kernel itself), ``available``, or ``absent``."""

    @staticmethod
    def default() -> str:
        """Returns that it is not known to be there."""
        return "absent"

    def command(self, module: str) -> StringCommand:
        """One module of the question."""
        return About(MODULES, module)

    def process(self, output: list[str]) -> str:
        """Reads ``name state``."""
        return output[0].split()[1] if output else "absent"


_NOTHING: Final = {"install": ("false", "true"), "alias": ("off",)}
"""What stands for a module in modprobe.d(5) and loads none."""


class ForbiddenModules(FactBase[dict[str, str]]):
    """Kernel modules that modprobe.d(5) keeps from being loaded, with the file that says so."""

    @staticmethod
    def default() -> dict[str, str]:
        """Returns the value for no output: none."""
        return {}

    def command(self) -> StringCommand:
        """Searches the folders that people write into: what a package brings along knows what it does."""
        files = "/run/modprobe.d/*.conf /etc/modprobe.d/*.conf"
        return Plain(f"grep -D skip -sHE '^[[:space:]]*(blacklist|install|alias)[[:space:]]' {files}; true")

    def process(self, output: list[str]) -> dict[str, str]:
        """``blacklist X``, ``alias X off``, or ``install X /bin/false``: other commands load it in their own way."""
        found = {}
        for line in output:
            path, _, rule = line.partition(":")
            verb, name, *instead = [*rule.split(), "", ""][:3]
            if verb == "blacklist" or instead[0].rpartition("/")[2] in _NOTHING[verb]:
                found[name.replace("-", "_")] = path
        return found


class SwapDevices(FactBase[list[str]]):
    """What is swapped to now."""

    @staticmethod
    def default() -> list[str]:
        """Returns the value for no output: no swap."""
        return []

    def command(self) -> StringCommand:
        """The kernel's own list, without its heading."""
        return Plain("sed 1d /proc/swaps")

    def process(self, output: list[str]) -> list[str]:
        """Reads the first column."""
        return [line.split()[0] for line in output if line.strip()]


class SwapUnits(FactBase[list[str]]):
    """Files of units that bring swap at boot, but for what systemd makes of fstab itself."""

    @staticmethod
    def default() -> list[str]:
        """Returns the value for no output: none."""
        return []

    def command(self) -> StringCommand:
        """Searches every folder that an operator may write units into; a link to /dev/null brings nothing."""
        return Plain(
            "for f in /etc/systemd/system/*.swap /run/systemd/system/*.swap /usr/local/lib/systemd/system/*.swap;"
            ' do [ ! -s "$f" ] || echo "$f"; done'
        )

    def process(self, output: list[str]) -> list[str]:
        """Reads one path per line."""
        return [line for line in output if line]


class LiveHostname(FactBase[str]):
    """The name that the kernel gives the machine."""

    @staticmethod
    def default() -> str:
        """Returns the value for no output: not known."""
        return ""

    def command(self) -> StringCommand:
        """Reads the kernel's name; hostname(1) a bare machine may lack."""
        return Plain("cat /proc/sys/kernel/hostname")

    def process(self, output: list[str]) -> str:
        """Reads one line."""
        return output[0].strip() if output else ""


class RebootAsked(FactBase[list[str]]):
    """Packages that ask for a reboot, as Debian writes it down; a reboot forgets it."""

    @staticmethod
    def default() -> list[str]:
        """Returns the value for no output: no request."""
        return []

    def command(self) -> StringCommand:
        """The file may be there without the list of packages."""
        return Plain(
            "[ ! -e /run/reboot-required ] || "
            "{ sort -u /run/reboot-required.pkgs 2>/dev/null | grep . || echo /run/reboot-required; }"
        )

    def process(self, output: list[str]) -> list[str]:
        """One line for all of them."""
        names = [line.strip() for line in output if line.strip()]
        return [f"asked for by {', '.join(names[:5])}"] if names else []


class ClockOffset(FactBase[float]):
    """Seconds between the clock and that of its time servers, as chrony measures them; 0 where it does not."""

    @staticmethod
    def default() -> float:
        """Returns the value for no output: nothing measures it."""
        return 0.0

    def command(self) -> StringCommand:
        """A line ``System time     : 0.000012 seconds slow of NTP time``."""
        return Plain(
            "! command -v chronyc >/dev/null ||"
            " timeout 5 chronyc -n tracking 2>/dev/null | sed -n 's/^System time *: //p'"
        )

    def process(self, output: list[str]) -> float:
        """Positive where the machine is behind."""
        words = output[0].split() if output else []
        try:
            seconds = float(words[0])
        except (IndexError, ValueError):
            return 0.0
        return seconds if "slow" in words else -seconds
