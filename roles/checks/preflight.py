"""The preflight of machines that are connected, side by side: one command for each that only reads."""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from autoscaler.model.errors import BadInput
from roles.checks import access
from roles.checks import findings as preflight
from roles.checks.findings import Finding
from roles.checks.versions import version_findings
from roles.engine.fleet import Fleet
from roles.engine.host_plan import HostPlan, Refusal
from roles.facts.containers import RuncInUse
from roles.facts.packages import OsRelease
from roles.settings.controller_files import local_path
from roles.settings.machine import MachineSettings, key_in
from roles.settings.version_matrix import MATRIX, choose, read_matrix

CHECKS: Final = (*(one.name for one in preflight.CHECKS), "clock", "versions", "packages")
"""The names by which an operator may say that a finding does not stop a change."""
Place = Callable[[str, str], str]
"""Where the inventory says which version of a part a machine has: file, line, machine, key."""
_RUNC: Final = f'printf "%s\\n" "$({RuncInUse().command()})"'
_SHELL: Final = (
    f"date +%s.%N; uname -r; {OsRelease().command()}; {_RUNC}; {preflight.script()}; {access.SCRIPT.strip()}"
)


def findings(fleet: Fleet, machines: Iterable[tuple[str, Mapping[str, Any]]]) -> list[Finding]:
    """What does not hold, machine by machine; of those that do not answer, that."""
    data = dict(machines)
    asked = time.time()
    said = fleet.shells(_SHELL, (name for name in data if name not in fleet.unreachable))
    found = [preflight.unreachable(host, reason) for host, reason in sorted(fleet.unreachable.items())]
    for name, (done, text) in said.items():
        if done:
            found += _judged(name, text, data[name], asked=asked)
        else:
            found.append(preflight.unreachable(name, text or "its checks did not end"))
    return found


def findings_of(plans: Iterable[HostPlan]) -> list[Finding]:
    """What a plan has found out that no check asks for: versions of packages that no repository offers."""
    remedy = "choose a version that there is, or bring the mirror up to date"
    return [
        Finding(host=plan.host, check="packages", severity="error", found=one.reason, remedy=remedy)
        for plan in plans
        for one in plan.refused
        if one.setting
    ]


def with_places(
    plans: Mapping[str, HostPlan], machines: Iterable[tuple[str, Mapping[str, Any]]], place: Place
) -> dict[str, HostPlan]:
    """The plans, in which a refusal says where the setting stands that asked for it."""
    settings = {name: data.get("settings") for name, data in machines}
    return {
        name: replace(plan, refused=tuple(_placed(one, settings.get(name), place) for one in plan.refused))
        for name, plan in plans.items()
    }


def _placed(refusal: Refusal, machine: object, place: Place) -> Refusal:
    if not refusal.setting or not isinstance(machine, MachineSettings):
        return refusal
    part = refusal.setting.rpartition(".")[2]
    follows = part == "fabric_manager" and part not in machine.versions and "driver" in machine.versions
    part = "driver" if follows else part
    version = getattr(choose(read_matrix(), machine.versions, machine=machine.name), part)
    where = place(machine.name, part) if part in machine.versions else f"{MATRIX.name}: chosen.{part}"
    return replace(refusal, reason=f"{where} = {version!r}: {refusal.reason}")


def blocked(found: Iterable[Finding], *, ignored: Collection[str] = ()) -> dict[str, str]:
    """Machine: why nothing may be changed on it. One that does not answer is told as that elsewhere."""
    errors: dict[str, list[str]] = defaultdict(list)
    for one in found:
        if one.severity == "error" and one.check not in {*ignored, "connection"}:
            errors[one.host].append(f"{one.check}: {one.found} ({one.remedy}; or --ignore {one.check})")
    return {host: f"the preflight found an error: {'; '.join(texts)}" for host, texts in errors.items()}


def parse_ignored(names: Sequence[str]) -> frozenset[str]:
    """Names of checks. Raises ``BadInput`` that lists them all."""
    for name in names:
        if name not in CHECKS:
            raise BadInput(f"--ignore: {name!r} is no check of the preflight; there are {', '.join(CHECKS)}")
    return frozenset(names)


def _judged(name: str, text: str, data: Mapping[str, Any], *, asked: float) -> list[Finding]:
    settings = data.get("settings")
    clock, kernel, release, runc = [*text.split("\n", 4), "", "", ""][:4]
    try:
        skew = _skew(float(clock), asked, time.time())
    except ValueError:
        skew = 0.0
    found = preflight.findings(name, text) + preflight.clock_finding(name, skew)
    if isinstance(settings, MachineSettings):
        found += version_findings(settings, kernel=kernel, os=release, runc=runc)
        user, keys = data.get("ssh_user", "root"), _keys_of(data.get("ssh_key", ""))
        found += access.access_findings(name, text, settings, reached_as=user, own_keys=keys)
    return found


def _keys_of(private: str) -> list[bytes]:
    """The public key that lies beside the private one, where one does."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return [key_in(local_path(f"{private}.pub").read_text(encoding="ascii"))] if private else []
    return []


def _skew(clock: float, asked: float, answered: float) -> float:
    """Seconds by which a clock is ahead of ours, whenever it was read between question and answer."""
    return clock - answered if clock > answered else min(clock - asked, 0.0)
