"""The roles and what they import as one file that a bare machine unpacks and runs with its own Python.

``spillway nodes bundle FILE`` writes it from what is installed here, with the settings of the fleet, and prints its
SHA-256. The same installation and the same inventory give the same bytes. Compiled parts fit the minor version of
Python and the kind of machine that it was made with: the bundle says which in its first file.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import io
import platform
import re
import sys
import tarfile
from collections.abc import Iterator, Mapping
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, Final

import yaml

from autoscaler.model.errors import BadInput

SETTINGS: Final = "settings.yaml"
"""In the bundle: what :mod:`roles.first_boot.boot` lays under what the stack tells."""
OURS: Final = ("autoscaler", "roles", "stacks")
NEEDED: Final = ("cryptography", "kubernetes", "msgspec", "pydantic", "pyinfra", "pyyaml", "tomli-w", "urllib3")
"""Distributions that the roles import; what these need comes along."""
_LEFT_OUT: Final = re.compile(
    r"(^|/)(__pycache__|tests?|testing)/|\.pyc$|\.pyi$|^kubernetes/(client/(api|models)|docs)/.+_api_"
)


def make_bundle(file: Path, settings: Mapping[str, Any] | None = None) -> str:
    """Write it, with the settings of its machines; gives its SHA-256."""
    found = dict(sorted(_files()))
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as archive:
        _add(archive, "PYTHON", f"{made_for()}\n".encode())
        _add(archive, SETTINGS, yaml.safe_dump(dict(settings or {}), sort_keys=True).encode())
        for name, source in found.items():
            _add(archive, name, source.read_bytes())
    data = gzip.compress(plain.getvalue(), compresslevel=6, mtime=0)
    file.write_bytes(data)
    return hashlib.sha256(data).hexdigest()


def made_for() -> str:
    """The Python that can run it."""
    return f"{sys.version_info.major}.{sys.version_info.minor} {platform.machine()}"


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), 0o644
    archive.addfile(entry, io.BytesIO(content))


def _files() -> Iterator[tuple[str, Path]]:
    for package in OURS:
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError(package)
        root = Path(spec.origin).parent
        kinds = (".py", ".yaml", ".typed") if package != "stacks" else (".py",)
        for path in root.rglob("*"):
            name = f"{package}/{path.relative_to(root)}"
            is_ground = name.startswith("stacks/") and name not in _OF_THE_GROUND
            if path.suffix in kinds and not _LEFT_OUT.search(name) and not is_ground:
                yield name, path
    for one in _closure(NEEDED).values():
        for file in one.files or ():
            name = str(file)
            if not name.startswith("..") and not _LEFT_OUT.search(name):
                yield name, Path(str(file.locate()))


_OF_THE_GROUND: Final = (
    "stacks/__init__.py",
    "stacks/settings/__init__.py",
    "stacks/settings/inventory.py",
    "stacks/settings/outputs.py",
)


def _closure(names: tuple[str, ...]) -> dict[str, Distribution]:
    found: dict[str, Distribution] = {}
    left = list(names)
    while left:
        name = re.sub(r"[-_.]+", "-", left.pop()).lower()
        if name in found:
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            if name in names:
                raise BadInput(f"{name} is not installed here: install this project with all that it needs") from None
            continue  # of another platform, or of another version of Python
        needs = [need for need in found[name].requires or () if "extra ==" not in need]
        left += [re.split(r"[\s;<>=!~\[(]", need, maxsplit=1)[0] for need in needs]
    return found
