"""The part of a distribution's archive that a machine of the bench can come to need, as a mirror of the lab's holds it.

The whole index has 60,000 packages, with which each step of apt takes most of a second. Packages are those of the
archive, with its digests; the index is signed by the mirror, as one that holds a selection has to. Machines that take
their packages from the archive itself, with its own key, are those of ``test_nodes.py`` and others.
"""

from __future__ import annotations

import email.utils
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.test_roles.signing import Signer

_NEEDS: Final = re.compile(r"^(?:Pre-)?Depends: (.*)$", re.MULTILINE)
_NAME: Final = re.compile(r"^Package: (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Suites:
    """One repository of ``roles/deploys/sources.yaml``."""

    suites: tuple[str, ...]
    components: tuple[str, ...]
    origin: str
    label: str


BOOKWORM: Final = {
    "debian": Suites(("bookworm", "bookworm-updates"), ("main",), "Debian", "Debian"),
    "debian-security": Suites(("bookworm-security",), ("main",), "Debian", "Debian-Security"),
}
NOBLE: Final = {
    "ubuntu": Suites(
        ("noble", "noble-updates", "noble-security"), ("main", "restricted", "universe"), "Ubuntu", "Ubuntu"
    ),
}


def write_part(
    folder: Path, signer: Signer, root: Path, repositories: Mapping[str, Suites], *, more: Iterable[str] = ()
) -> None:
    """Under ``folder``, what a machine of this root has and was fetched ahead, ``more``, and all that these need."""
    indexes = {
        (name, suite, component): _index(root, suite, component)
        for name, one in repositories.items()
        for suite in one.suites
        for component in one.components
    }
    assert any(indexes.values()), f"{root} has no index of these suites"
    wanted = _closure({*_names_in(root), *more}, indexes.values())
    for name, one in repositories.items():
        for suite in one.suites:
            parts = {
                component: "\n\n".join(
                    text
                    for package, stanzas in indexes[name, suite, component].items()
                    if package in wanted
                    for text in stanzas
                )
                for component in one.components
            }
            _write_suite(folder / name / "dists" / suite, signer, suite, one, parts)


def _index(root: Path, suite: str, component: str) -> dict[str, list[str]]:
    """Stanzas by package, as this root's apt has read them; none of a suite that it does not know."""
    found: dict[str, list[str]] = {}
    for file in (root / "var/lib/apt/lists").glob(f"*_dists_{suite}_{component}_binary-amd64_Packages"):
        for text in file.read_text(encoding="utf-8").split("\n\n"):
            if name := _NAME.search(text):
                found.setdefault(name[1], []).append(text.strip())
    return found


def _names_in(root: Path) -> set[str]:
    installed = _NAME.findall((root / "var/lib/dpkg/status").read_text(encoding="utf-8"))
    return {*installed, *(file.name.partition("_")[0] for file in (root / "var/cache/apt/archives").glob("*.deb"))}


def _closure(names: set[str], indexes: Iterable[Mapping[str, list[str]]]) -> set[str]:
    """With all that they depend on, whichever alternative is taken."""
    known, ahead, seen = list(indexes), set(names), set(names)
    while ahead:
        package = ahead.pop()
        for index in known:
            for text in index.get(package, ()):
                for line in _NEEDS.findall(text):
                    fresh = {word.split()[0].partition(":")[0] for word in re.split(r"[,|]", line)} - seen
                    seen |= fresh
                    ahead |= fresh
    return seen


def _write_suite(place: Path, signer: Signer, suite: str, one: Suites, parts: Mapping[str, str]) -> None:
    indexes = {
        f"{component}/binary-amd64/Packages": (f"{text}\n" if text else "").encode()
        for component, text in parts.items()
    }
    told = {"Origin": one.origin, "Label": one.label, "Suite": suite, "Codename": suite}
    write_release(place, signer, told | {"Components": " ".join(one.components)}, indexes)


def write_release(place: Path, signer: Signer, told: Mapping[str, str], indexes: Mapping[str, bytes]) -> None:
    """A suite's folder: its indexes by path, and an ``InRelease`` with what it tells of itself and their digests."""
    for path, data in indexes.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_bytes(data)
    digests = [f" {hashlib.sha256(data).hexdigest()} {len(data)} {path}" for path, data in indexes.items()]
    date = email.utils.formatdate(usegmt=True).replace("GMT", "UTC")
    lines = [f"{key}: {value}" for key, value in {**told, "Architectures": "amd64", "Date": date}.items()]
    (place / "InRelease").write_bytes(signer.in_clear("\n".join([*lines, "SHA256:", *digests]) + "\n"))
