"""Whether the versions of one machine go together: those that it will have, with the GPUs that it has.

Asked for every machine when an inventory is read, before one of them is touched; what only the machine itself can tell
(kernel, distribution) is asked again in ``spillway nodes check``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from autoscaler.model.errors import BadInput, Unavailable
from roles.checks.findings import Finding
from roles.deploys.apt_sources import Repository, signed_places, why_not_signed_by_us
from roles.settings.machine import MachineSettings
from roles.settings.version_matrix import Mistake, choose, mistakes, read_matrix

_OF_GPUS: Final = ("driver", "driver_modules", "fabric_manager", "container_toolkit", "cuda", "architecture", "os")


def machine_mistakes(machine: MachineSettings, brought: Mapping[str, str] | None = None) -> list[Mistake]:
    """The pairs that do not go together. ``brought``: kernel and os, where they are known. Raises ``BadInput``."""
    matrix = read_matrix()
    chosen = choose(matrix, machine.versions, machine=machine.name)
    have = {"architecture": matrix.architecture(machine.gpu_product), **(brought or {})}
    unused = set(_unused(machine))
    found = mistakes(matrix, chosen, machine=machine.name, brought=have)
    answered_for = {frozenset(pair.split(" with ")) for pair in machine.untested}
    pairs = {frozenset(rule.pair): " with ".join(rule.pair) for rule in matrix.rules}
    for pair in machine.untested:
        if frozenset(pair.split(" with ")) not in pairs:
            known = ", ".join(sorted(pairs.values()))
            raise BadInput(f"machine {machine.name}: untested: {pair!r} is no pair of the matrix; there are {known}")
    return [
        replace(mistake, stops=mistake.stops and frozenset(mistake.pair) not in answered_for)
        for mistake in found
        if not unused & {*mistake.pair}
    ]


def version_findings(machine: MachineSettings, *, kernel: str, os: str, runc: str = "") -> list[Finding]:
    """The pairs that do not go together on the machine as it is, with the kernel and the distribution that it has.

    ``runc`` is the one that it starts containers by: some packages of containerd bring their own. None yet: empty.
    """
    return [
        Finding(
            host=machine.name,
            check="versions",
            severity="error" if mistake.stops else "warning",
            found=mistake.text.removeprefix(f"{machine.name}: "),
            remedy="choose other versions: settings.versions of the machine, or roles/settings/versions.yaml",
        )
        for mistake in machine_mistakes(machine, {"kernel": kernel, "os": os, "runc": runc})
    ]


def signing_findings(machines: Iterable[object]) -> list[Finding]:
    """The repositories that these machines install from and that somebody else signs now."""
    asked: dict[str, tuple[str, Repository, str]] = {}
    for machine in machines:
        if isinstance(machine, MachineSettings):
            for name, repository, uri in signed_places(machine):
                asked[uri] = (name, repository, uri)
    return [finding for place in asked.values() if (finding := _signing(*place))]


def _signing(name: str, repository: Repository, uri: str) -> Finding | None:
    remedy = (
        "if its owner announced a new key, write its fingerprint under sources.repositories; else trust nothing there"
    )
    try:
        found = why_not_signed_by_us(name, repository, uri)
    except (Unavailable, BadInput) as reason:
        found, remedy = str(reason), "machines that reach it another way than this controller are not concerned"
        return Finding(host="this controller", check="repository", severity="warning", found=found, remedy=remedy)
    return Finding("this controller", "repository", "error", found, remedy) if found else None


def _unused(machine: MachineSettings) -> tuple[str, ...]:
    """The parts that this machine does not get."""
    if machine.control_plane:
        unused: tuple[str, ...] = ("api_server",)  # no other than its own, which comes in kubeadm's images
    else:
        unused = () if machine.kubelet or machine.node_image else ("kubelet",)
    if machine.gpu is None or not machine.gpu_count:
        return (*unused, *_OF_GPUS)
    if not machine.gpu.cuda:
        unused = (*unused, "cuda")
    return unused if machine.gpu.driver else (*unused, "driver_modules", "fabric_manager")
