"""What a job becomes, one module per target that can run it; each says what of the job it cannot say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from images.jobs import Job
from images.renderers import (
    aliyun_compose,
    compose,
    jobset,
    kubernetes,
    local,
    marathon,
    slurm,
    tfjob,
    volcano,
    yarn,
)
from images.renderers.rendering import Rendering


class Renderer(Protocol):
    """A pure function from a job to what its target reads."""

    def __call__(self, job: Job, *, run: str = ...) -> Rendering:
        """``run`` tells this run from earlier ones whose lines are in the same directory."""
        ...


RENDERERS: Final[Mapping[str, Renderer]] = {
    "kubernetes": kubernetes.render,
    "jobset": jobset.render,
    "tfjob": tfjob.render,
    "volcano": volcano.render,
    "compose": compose.render,
    "aliyun-compose": aliyun_compose.render,
    "slurm": slurm.render,
    "marathon": marathon.render,
    "yarn": yarn.render,
    "local": local.render,
}
