"""Where this project keeps files on a user's machine: one folder in the cache, nothing elsewhere."""

from __future__ import annotations

import os
from pathlib import Path

from autoscaler.failures import BadInput


def cache_root() -> Path:
    """``$XDG_CACHE_HOME/spillway``, or ``~/.cache/spillway``."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    if not Path(base).is_absolute():
        raise BadInput(f"XDG_CACHE_HOME = {base!r}: must be an absolute path such as /home/me/.cache")
    return Path(base) / "spillway"


def grounds() -> Path:
    """Where each running local ground has its folder."""
    return cache_root() / "grounds"
