"""Kinds of drift: read from ``tests/drift``, dealt out into rounds, brought about on a machine."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import yaml
from pydantic import Field, model_validator

from autoscaler.config.documents import Document

FOLDER: Final = Path(__file__).parents[1] / "drift"
APT: Final = (
    "APT='env DEBIAN_FRONTEND=noninteractive apt-get -q -y --allow-downgrades --allow-change-held-packages"
    " --no-install-recommends'"
)


class Kind(Document):
    """One way to drift; ``tests/drift/README.md`` says what the keys mean."""

    name: str
    source: str = ""
    touches: tuple[str, ...] = Field(min_length=1)
    inject: str
    found: str = ""
    told: str = ""
    proof: str = ""
    refused: str = ""
    undo: str = ""
    after: str = ""
    alone: bool = False

    @model_validator(mode="after")
    def _ends_in_one_way(self) -> Kind:
        if bool(self.found) == bool(self.told):
            raise ValueError(f"{self.name}: is found by an operation, or told by a check of the preflight")
        if sum(map(bool, (self.proof, self.refused, self.told))) != 1 or bool(self.refused or self.told) != bool(
            self.undo
        ):
            raise ValueError(f"{self.name}: has a proof that it was mended, or refused or told with undo")
        return self

    def script(self) -> str:
        """The injection as one script that fails with its first command."""
        return f"set -e; {APT}; {self.inject}"


def read_kinds(folder: Path = FOLDER) -> list[Kind]:
    """Every kind, in the order of the files."""
    entries = [entry for file in sorted(folder.glob("*.yaml")) for entry in yaml.safe_load(file.read_text("utf-8"))]
    return [Kind.model_validate(entry) for entry in entries]


def rounds(kinds: Iterable[Kind]) -> list[list[Kind]]:
    """Few rounds, in none of which two kinds touch one thing or would be seen by one operation."""
    dealt: list[list[Kind]] = []
    for kind in kinds:
        fitting = (one for one in dealt if not kind.alone and not any(_collide(kind, other) for other in one))
        place = next(fitting, None)
        if place is None:
            dealt.append([kind])
        else:
            place.append(kind)
    return dealt


def _collide(one: Kind, other: Kind) -> bool:
    same = (one.found, one.told) == (other.found, other.told)
    if one.alone or other.alone or same or {*one.touches} & {*other.touches}:
        return True
    return any(_breaks_apt(a) and _calls_apt(b) for a, b in ((one, other), (other, one)))


def _breaks_apt(kind: Kind) -> bool:
    """Whether unmet dependencies stay, with which apt-get refuses everything that comes after."""
    return "--force-depends" in kind.inject


def _calls_apt(kind: Kind) -> bool:
    return "$APT" in kind.inject
