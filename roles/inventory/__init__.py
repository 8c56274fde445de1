"""The machines to prepare: read from an inventory file, from a stack's outputs, or from both."""

from __future__ import annotations

from roles.inventory.hosts import machines

__all__ = ["machines"]
"""What ``pyinfra roles.inventory.machines`` looks for."""
