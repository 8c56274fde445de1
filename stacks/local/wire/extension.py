"""Stand-ins that no local stack needs, and that tests add: the package that ``SPILLWAY_FAKES`` names holds them.

It has a package ``aws_services`` for the stand-in for AWS, ``aws_plugin`` for that of the aws plugin, and a module
``kubernetes_plugin``, the stand-in for the kubernetes plugin.
"""

from __future__ import annotations

import importlib
import os
from types import ModuleType
from typing import Final

FAKES: Final = "SPILLWAY_FAKES"


def extension(part: str) -> ModuleType | None:
    """The part of the package that the environment names; ``None`` where it names none."""
    package = os.environ.get(FAKES)
    return importlib.import_module(f"{package}.{part}") if package else None
