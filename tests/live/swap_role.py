"""What the kernel may refuse: to give swap up, and to load a module."""

from __future__ import annotations

from roles.operations import kernel


def prepare() -> None:
    """As `system` does it on every node."""
    kernel.no_swap(name="no swap")
    kernel.modules(name="modules", names=("overlay",))
