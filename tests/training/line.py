"""The line of the founding documents, y = 2x + 10: the job that looks for it, and what it must have found."""

from __future__ import annotations

import re
from typing import Final

from images.cli import TEMPLATES

_SMALLER: Final = {"cpus: 8": "cpus: 0.4", "cpus: 4": "cpus: 0.2", "memory: 32Gi": "memory: 2Gi", "16Gi": "2Gi"}


def small_job() -> str:
    """The parameter-server template with amounts that a machine of two CPUs has."""
    text = (TEMPLATES / "parameter-server.yaml").read_text(encoding="utf-8")
    for much, little in _SMALLER.items():
        assert much in text
        text = text.replace(much, little)
    return text


def fitted(said: str, task: str) -> str:
    """Check the line that a task says it found; returns it."""
    found = re.search(rf"^{task}\b.*w = (\S+), b = (\S+)$", said, re.MULTILINE)
    assert found, said
    assert abs(float(found[1]) - 2) < 0.15
    assert abs(float(found[2]) - 10) < 0.15
    return found[0]
