"""An image that holds this project, as ``pip install spillway`` would leave it: made from what runs the tests."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from tests import ROOT
from tests.live.debian import pack_image

ROOMS: Final = ("autoscaler", "images", "roles", "stacks", "spillway.py")
NEEDED: Final = (
    *("click", "cryptography", "kubernetes", "msgspec", "prometheus-client", "pydantic", "pyinfra", "pyyaml", "rich"),
    *("tomli-w", "urllib3"),
)
"""What `spillway nodes` imports: the image needs no Pulumi and no AWS."""
_NOT_RUN: Final = shutil.ignore_patterns(
    "__pycache__", "test", "tests", "idlelib", "tkinter", "ensurepip", "config-*", "site-packages", "*.a"
)


def spillway_image(path: Path, name: str) -> Path:
    """Write it in the format that ``ctr images import`` takes."""
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        root.chmod(0o755)  # a pod of any user reads it
        prefix = Path(sys.base_prefix)
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        inside = root / prefix.relative_to("/")
        shutil.copytree(prefix / "lib" / version, inside / "lib" / version, ignore=_NOT_RUN)
        (inside / "bin").mkdir()
        shutil.copy2(Path(sys.executable).resolve(), inside / "bin" / "python3")
        site = inside / "lib" / version / "site-packages"
        _copy_distributions(site)
        tracked = subprocess.run(
            ["git", "ls-files", "-z", *ROOMS], cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout
        for file in filter(None, tracked.split("\0")):
            (site / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / file, site / file)
        program = root / "usr/bin/spillway"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!{prefix}/bin/python3\nfrom spillway import main\nmain()\n", encoding="ascii")
        program.chmod(0o755)
        _copy_libraries(root, [inside / "bin/python3", *inside.rglob("*.so*")])
        (root / "tmp").mkdir(mode=0o1777)
        pack_image(path, name, root=root, environment={"PATH": f"/usr/bin:{prefix}/bin"})
    return path


def _copy_distributions(site: Path) -> None:
    ours = Path(sysconfig.get_path("purelib"))
    for one in _closure(NEEDED):
        for file in distribution(one).files or ():
            source = Path(str(file.locate())).resolve()
            if source.is_relative_to(ours) and source.is_file():
                target = site / source.relative_to(ours)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target)


def _closure(names: Iterable[str]) -> set[str]:
    found, left = set[str](), list(names)
    while left:
        name = re.sub(r"[-_.]+", "-", left.pop()).lower()
        try:
            needs = distribution(name).requires or []
        except PackageNotFoundError:  # of another platform
            continue
        if name not in found:
            found.add(name)
            left += [re.split(r"[\s;<>=!~\[(]", need, maxsplit=1)[0] for need in needs if "extra ==" not in need]
    return found


def _copy_libraries(root: Path, programs: Iterable[Path]) -> None:
    """The shared libraries of this machine that they load, and what loads these."""
    shown = subprocess.run(["ldd", *map(str, programs)], check=False, capture_output=True, text=True).stdout
    for library in {Path(one) for one in re.findall(r"(?:=> |\t)(/\S+) \(0x", shown)}:
        if not library.is_relative_to(root):
            target = root / library.relative_to("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(library.resolve(), target)
