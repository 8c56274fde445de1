"""The line of the founding documents, y = 2x + 10: the job that looks for it, and what it must have found."""

from __future__ import annotations

import re
from typing import Final

from click.testing import CliRunner

from images.cli import TEMPLATES, jobs
from stacks.local.process.ports import free_ports

SMALL: Final = ("cpus=0.4", "memory=2Gi", "server_cpus=0.2", "server_memory=2Gi", "gpus=0")
"""Parameters of the parameter-server template for a machine of two CPUs."""
PARAMETER_SERVER: Final = (TEMPLATES / "parameter-server.yaml").read_text(encoding="utf-8")


def params(*given: str) -> tuple[str, ...]:
    """As the command line takes them."""
    return tuple(word for one in given for word in ("-p", one))


def typed(*words: str) -> str:
    """What `spillway jobs WORDS` prints."""
    done = CliRunner().invoke(jobs, words)
    assert done.exit_code == 0, done.output
    return done.stdout


def free_port() -> int:
    """The first of eight that are next to each other: for templates of the host's network."""
    while (ports := free_ports(8))[-1] != ports[0] + 7:
        pass
    return ports[0]


def fitted(said: str, task: str) -> str:
    """Check the line that a task says it found; returns it."""
    found = re.search(rf"^{task}\b.*w = (\S+), b = (\S+)$", said, re.MULTILINE)
    assert found, said
    assert abs(float(found[1]) - 2) < 0.15
    assert abs(float(found[2]) - 10) < 0.15
    return found[0]
