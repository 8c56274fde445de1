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
    """GPUs of each task, all different; ``None`` where the machine (with ``of`` GPUs) or the job has none.

    Raises ``BadInput`` where too few are free: tasks of a job start together.
    """
    asked = sum(job.roles[role].gpus for role, _index in job.tasks())
    if not of or not asked:
        return None
    if asked > len(free):
        raise BadInput(
            f"job {job.name!r} asks for {asked} GPUs, of which {len(free)} of this machine's {of} are free now: "
            "`spillway jobs list --to local` shows which jobs hold them"
        )
    left = iter(free)
    return {(role, index): tuple(next(left) for _ in range(job.roles[role].gpus)) for role, index in job.tasks()}
