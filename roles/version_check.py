"""Whether the versions of one machine go together: those that it will have, with the GPUs that it has.

Asked for every machine when an inventory is read, before one of them is touched; what only the machine itself can tell
(kernel, distribution) is asked again in ``spillway nodes check``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from roles.settings import MachineSettings
from roles.versions import Mistake, choose, mistakes, read_matrix

_OF_GPUS: Final = ("driver", "driver_modules", "fabric_manager", "container_toolkit", "cuda", "architecture")


def machine_mistakes(machine: MachineSettings, brought: Mapping[str, str] | None = None) -> list[Mistake]:
    """The pairs that do not go together. ``brought``: kernel and os, where they are known."""
    matrix = read_matrix()
    chosen = choose(matrix, machine.versions, machine=machine.name)
    have = {"architecture": matrix.architecture(machine.gpu_product), **(brought or {})}
    unused = set(_unused(machine))
    found = mistakes(matrix, chosen, machine=machine.name, brought=have)
    return [mistake for mistake in found if not unused & {*mistake.pair}]


def _unused(machine: MachineSettings) -> tuple[str, ...]:
    """The parts that this machine does not get."""
    if machine.gpu is None or not machine.gpu_count:
        return _OF_GPUS
    unused = () if machine.gpu.cuda else ("cuda",)
    return unused if machine.gpu.driver else (*unused, "driver_modules", "fabric_manager")
