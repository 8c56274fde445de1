"""The machines. pyinfra deploys that turn a bare machine into a node and keep it one."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
"""The folder that the rooms lie in: a checkout, ``site-packages``, or an unpacked bundle."""
