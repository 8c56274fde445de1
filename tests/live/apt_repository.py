"""A signed apt repository for tests: packages that the tests build, an index that their key signs, served over HTTP."""

from __future__ import annotations

import functools
import hashlib
import http.server
import shutil
import subprocess
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from tests.live.archive_part import Suites, write_part, write_release
from tests.test_roles.signing import Signer


@dataclass(frozen=True, slots=True)
class Deb:
    """A Debian package to build: files by path, each as text, bytes, or a path of this machine; links by path."""

    name: str
    version: str
    files: Mapping[str, str | bytes | Path] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    programs: tuple[str, ...] = ()
    """Which of the files are programs."""
    depends: str = ""
    conflicts: str = ""
    provides: str = ""
    replaces: str = ""
    scripts: Mapping[str, str] = field(default_factory=dict)
    """``postinst`` and others, as shell."""
    conffiles: tuple[str, ...] = ()

    def control(self) -> str:
        """The package's own description."""
        lines = {
            "Package": self.name,
            "Version": self.version,
            "Architecture": "amd64",
            "Maintainer": "the tests",
            "Depends": self.depends,
            "Conflicts": self.conflicts,
            "Provides": self.provides,
            "Replaces": self.replaces,
            "Description": "stand-in of the tests",
        }
        return "".join(f"{key}: {value}\n" for key, value in lines.items() if value)


class AptRepository:
    """A folder of packages, one suite ``/``, served at :attr:`address` for the length of a ``with`` block.

    ``passes_on``: what is not in the folder and begins with the key is fetched from the address that is its value.
    """

    def __init__(
        self, folder: Path, signer: Signer, *, listen: str, passes_on: Mapping[str, str] | None = None
    ) -> None:
        self.folder = folder
        self._signer = signer
        self._debs: dict[str, str] = {}
        self._carried: list[str] = []
        handler = functools.partial(_Mirror, passes_on or {}, directory=str(folder))
        self._server = http.server.ThreadingHTTPServer((listen, 0), handler)
        self.address = f"http://{listen}:{self._server.server_port}"

    def __enter__(self) -> Self:
        """Serve."""
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self._server.shutdown()
        self._server.server_close()

    def add(self, *debs: Deb) -> None:
        """Build them and write the index anew."""
        for deb in debs:
            self._debs[f"{deb.name}_{deb.version}"] = _listed(deb, self._build(deb))
        self.sign(self._signer)

    def withdraw(self, *names: str) -> None:
        """Have the index without these, each ``NAME_VERSION``, as a mirror that keeps the newest only."""
        for name in names:
            del self._debs[name]
        self.sign(self._signer)

    def sign(self, signer: Signer) -> None:
        """The index, signed by this key."""
        packages = "\n".join(self._debs[name] for name in sorted(self._debs)).encode()
        told = {"Origin": "tests", "Label": "tests", "Suite": "stable", "Codename": "tests"}
        write_release(self.folder, signer, told, {"Packages": packages})

    def carry(self, root: Path, archive: Mapping[str, Suites], *, more: Iterable[str] = ()) -> None:
        """Have the part of an archive that machines of this root can need, and ``more``: see ``archive_part.py``."""
        write_part(self.folder, self._signer, root, archive, more=more)
        self._carried += archive

    def for_all(self, signer: Signer, folder: Path) -> dict[str, Any]:
        """Settings of a machine that has this for its one mirror, with NVIDIA's packages signed by the tests.

        So is what it carries of an archive.
        """
        key = folder / "key.asc"
        key.write_bytes(signer.public)
        nvidia = ("nvidia-cuda", "nvidia-container-toolkit")
        for name in nvidia:
            (self.folder / name).symlink_to(".")
        signed = {"keyring": "", "key": str(key), "fingerprints": [signer.fingerprint]}
        return {"mirror": self.address, "repositories": dict.fromkeys((*nvidia, *self._carried), signed)}

    def _build(self, deb: Deb) -> Path:
        target = self.folder / f"{deb.name}_{deb.version.rpartition(':')[2]}_amd64.deb"
        with tempfile.TemporaryDirectory() as scratch:
            root = Path(scratch)
            for path, content in deb.files.items():
                place = root / path.lstrip("/")
                place.parent.mkdir(parents=True, exist_ok=True)
                if isinstance(content, Path):
                    shutil.copyfile(content, place)
                else:
                    place.write_bytes(content.encode() if isinstance(content, str) else content)
                place.chmod(0o755 if path in deb.programs else 0o644)
            for path, aim in deb.links.items():
                place = root / path.lstrip("/")
                place.parent.mkdir(parents=True, exist_ok=True)
                place.symlink_to(aim)
            control = root / "DEBIAN"
            control.mkdir()
            (control / "control").write_text(deb.control(), encoding="utf-8")
            if deb.conffiles:
                (control / "conffiles").write_text("".join(f"{path}\n" for path in deb.conffiles), encoding="utf-8")
            sums = [
                f"{hashlib.md5((root / path.lstrip('/')).read_bytes()).hexdigest()}  {path.lstrip('/')}\n"  # noqa: S324 - dpkg's
                for path in deb.files
                if path not in deb.conffiles
            ]
            (control / "md5sums").write_text("".join(sums), encoding="utf-8")
            for name, script in deb.scripts.items():
                (control / name).write_text(f"#!/bin/sh\nset -e\n{script}\n", encoding="utf-8")
                (control / name).chmod(0o755)
            root.chmod(0o755)
            subprocess.run(
                ["dpkg-deb", "--build", "--root-owner-group", "-Zgzip", "-z1", str(root), str(target)],
                check=True,
                capture_output=True,
            )
        return target


def _listed(deb: Deb, built: Path) -> str:
    data = built.read_bytes()
    return f"{deb.control()}Filename: ./{built.name}\nSize: {len(data)}\nSHA256: {hashlib.sha256(data).hexdigest()}\n"


class _Mirror(http.server.SimpleHTTPRequestHandler):
    """Serves the folder, and passes on what others have."""

    def __init__(self, passes_on: Mapping[str, str], *rest: Any, **arguments: Any) -> None:
        self._passes_on = passes_on
        super().__init__(*rest, **arguments)

    def do_GET(self) -> None:
        """A file of the folder, or of the archive that stands behind the beginning of its path."""
        here = Path(self.translate_path(self.path)).is_file()
        for beginning, address in self._passes_on.items():
            if self.path.startswith(beginning) and not here:
                self._pass_on(address + self.path.removeprefix(beginning))
                return
        super().do_GET()

    def _pass_on(self, address: str) -> None:
        try:
            with urllib.request.urlopen(address, timeout=60) as answer:  # noqa: S310 - an archive that the test names
                body = answer.read()
        except urllib.error.HTTPError as error:
            self.send_error(error.code)
            return
        except OSError as error:
            self.send_error(http.HTTPStatus.BAD_GATEWAY, str(error))
            return
        self.send_response(http.HTTPStatus.OK)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""
