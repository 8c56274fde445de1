"""Where this project keeps files on a user's machine: one folder in the cache, nothing elsewhere."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from autoscaler.model.errors import BadInput, Unavailable


def cache_root() -> Path:
    """Returns ``$XDG_CACHE_HOME/spillway``, or ``~/.cache/spillway``."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    if not Path(base).is_absolute():
        raise BadInput(f"XDG_CACHE_HOME = {base!r}: must be an absolute path such as /home/me/.cache")
    return Path(base) / "spillway"


@contextlib.contextmanager
def written_in_cache() -> Iterator[None]:
    """Tell in words where the cache cannot be written, for what happens inside. Raises ``Unavailable``."""
    try:
        yield
    except OSError as error:
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        place, root = Path(error.filename or "-"), cache_root()
        if not (is_full or root in (place, *place.parents) or place in root.parents):
            raise
        raise Unavailable(
            f"the cache {cache_root()} cannot be written: {error.strerror}"
            f"{f' ({error.filename})' if error.filename else ''}; "
            f"{'make room there' if is_full else 'mend that'}, or name another folder in XDG_CACHE_HOME"
        ) from None


def grounds() -> Path:
    """Where each running local ground has its folder."""
    return cache_root() / "grounds"
