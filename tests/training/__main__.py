"""``python -m tests.training``: makes what the tests of jobs stand on before they start, and tells how it goes.

Each test would make for itself what it lacks, one after the other, while processors wait for the last. What this
machine or this user cannot have is left out here, and told by the tests that skip.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import pytest

from tests import conftest  # noqa: F401 - finds the administrator's programs
from tests.live.__main__ import say, told
from tests.live.debian import BenchError
from tests.live.debian import why_not as why_no_machines
from tests.live.slurm import slurm_system
from tests.training.frameworks import environment, horovod
from tests.training.image import first_image, why_no_image
from tests.training.podman import podman_system
from tests.training.yarn import jars, why_not

PARTS: Final[Mapping[str, Callable[[], object]]] = {
    "TensorFlow": partial(environment, "tensorflow"),
    "Horovod": lambda: shutil.which("g++") and horovod(),
    "the image of the job templates": lambda: why_no_image() or first_image(),
    "a folder for machines with Podman": lambda: why_no_machines() or podman_system(),
    "a folder for machines with Slurm": lambda: why_no_machines() or slurm_system(),
    "Jupyter": partial(environment, "jupyter"),
    "Spark": partial(environment, "spark"),
    "YARN": lambda: why_not() or jars(),
}


def main() -> int:
    """Exit status: 0, or 1 where something cannot be made."""
    for what, make in PARTS.items():
        try:
            with told(what):
                make()
        except pytest.skip.Exception as reason:
            say(f"{what} is left out: {reason}")
        except (AssertionError, BenchError) as failure:
            say(f"spillway: {what}: {failure}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
