"""What a program needs of the stack file beside its own section: told before anything is made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from autoscaler.model.errors import BadInput
from stacks.settings.inventory import Inventory
from stacks.settings.stack import Settings, access_of

Part = Literal["network", "control_plane"]


def check_needs(settings: Settings, inventory: Inventory) -> None:
    """Whether each part that another stack makes is named, and a release has where to go. Raises ``BadInput``."""
    program, kind = settings.program, settings.control_plane.kind if settings.control_plane else None
    for part in made_by_others(settings, inventory):
        stack_of(settings, part)
    if program == "release" and settings.release is None:
        raise BadInput("spillway:release is missing: the program release makes it, e.g. release: {image: ...}")
    if program in ("all", "release") and settings.release:
        if kind is None:
            raise BadInput(
                "spillway:release needs spillway:control_plane, the cluster that it goes into: name it, or take "
                "release out"
            )
        access_of(settings.release, kind)


def made_by_others(settings: Settings, inventory: Inventory) -> Iterator[Part]:
    """The parts that this program uses, and another stack makes."""
    program, kind = settings.program, settings.control_plane.kind if settings.control_plane else None
    of_others = kind in ("eks", "kubeadm")
    if program == "node-pools" or (program == "control-plane" and of_others):
        yield "network"
    if program == "on-prem" and settings.connectivity:
        yield "network"
    if of_others and (program in ("node-pools", "release") or (program == "on-prem" and inventory.machines)):
        yield "control_plane"


def stack_of(settings: Settings, part: Part) -> str:
    """The stack that makes a part that this one does not. Raises ``BadInput``."""
    stack: str | None = getattr(settings.stacks, part)
    if stack is None:
        raise BadInput(
            f"spillway:stacks.{part} is missing: the program {settings.program} needs the stack that makes it, "
            f"e.g. organization/spillway/lab-{part.replace('_', '-')}"
        )
    return stack
