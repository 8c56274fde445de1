"""Which GPUs of this machine its jobs may use."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from autoscaler.model.errors import BadInput
from images.jobs import Job

VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
"""By which CUDA, and what stands on it, is told its GPUs; where it is set already, it bounds what jobs may use, too."""
_DRIVER: Final = Path("/proc/driver/nvidia/gpus")


def devices(environment: Mapping[str, str] = os.environ, *, driver: Path = _DRIVER) -> tuple[str, ...]:
    """Numbers or UUIDs of the GPUs that this user's jobs may use; none where the machine has none."""
    if VISIBLE in environment:
        return tuple(name.strip() for name in environment[VISIBLE].split(",") if name.strip())
    return tuple(str(number) for number in range(len(list(driver.glob("*"))))) if driver.is_dir() else ()


def given_to(job: Job, free: Collection[str], *, of: int) -> dict[tuple[str, int], tuple[str, ...]] | None:
    """GPUs of each task, different from those of all tasks that may run beside it.

    ``None`` where the machine (with ``of`` GPUs) or the job has none. A step may have those of the steps that it waits
    for, which have ended by then. Raises ``BadInput`` where too few are free.
    """
    if not of or not any(role.gpus for role in job.roles.values()):
        return None
    before = {name: job.steps_before(name) for name in job.roles}
    found: dict[tuple[str, int], tuple[str, ...]] = {}
    for name, index in job.tasks():
        one_after_other = before[name] | {other for other in job.roles if name in before[other]}
        held = {gpu for (other, _), gpus in found.items() if other not in one_after_other for gpu in gpus}
        left = [gpu for gpu in free if gpu not in held]
        if len(left) < job.roles[name].gpus:
            asked = len(held) + job.roles[name].gpus
            raise BadInput(
                f"job {job.name!r} asks for at least {asked} GPUs at once, of which {len(free)} of this machine's {of} "
                "are free now: `spillway jobs list --to local` shows which jobs hold them"
            )
        found[name, index] = tuple(left[: job.roles[name].gpus])
    return found
