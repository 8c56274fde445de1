"""Files of the controller that settings name."""

from __future__ import annotations

import os
from pathlib import Path


def local_path(text: str) -> Path:
    """Fills in ``~``; ``~NAME`` of an unknown account stays as it is, and is a file that is not there."""
    return Path(os.path.expanduser(text))  # noqa: PTH111 - Path.expanduser raises RuntimeError for nobody's
