"""A node in small whose change restarts containerd, as far as the rollout knows; ``WANTED`` says what is wanted."""

from __future__ import annotations

import os

from pyinfra.api.deploy import deploy

from roles.engine.disruption import Disruption, disrupts
from roles.operations import files

FILES = tuple(f"/etc/lab-daemon/{name}.conf" for name in ("main", "limits", "peers"))


@deploy("lab daemon")
def prepare() -> None:
    """Three files: a controller can end between any two."""
    with disrupts(Disruption.CONTAINERD_RESTART):
        for path in FILES:
            files.place(name=path, dest=path, content=f"version = {os.environ['WANTED']}\n", meaning="ini")
