"""Names that hold for one process and its children: a file of hosts of their own, in place of a DNS server's."""

from __future__ import annotations

import os
import shutil
from typing import Final

WITH_HOSTS: Final = ("sh", "-ec", 'mount --bind "$1" /etc/hosts; shift; exec "$@"', "sh")
"""Before the file and a command, in a mount namespace of its own."""


def why_not() -> str:
    """Why no process can have one here; empty where one can."""
    if shutil.which("unshare") is None:
        return "install util-linux"
    return "" if os.geteuid() == 0 else "only root gives a process a file of hosts of its own"
