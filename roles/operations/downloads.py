"""Files that a machine fetches itself, known by their digest before they are used."""

from __future__ import annotations

import posixpath
import shlex

from pyinfra.api.command import StringCommand
from pyinfra.api.operation import operation
from pyinfra.context import host

from roles.facts.files import FileState
from roles.operations.files import Commands, refuse_strangers


@operation()
def fetched(url: str, dest: str, *, sha256: str, mode: str = "755") -> Commands:
    """Have the file of this digest at ``dest``. What is there is replaced in one step, once the new one is known."""
    now = host.get_fact(FileState, path=dest)
    refuse_strangers(posixpath.dirname(dest))
    if now and now.is_file and now.sha256 == sha256 and now.mode == mode:
        host.noop(f"{dest} is as it should be")
        return
    if now and now.is_file and now.sha256 == sha256:
        yield StringCommand(f"chmod {mode} {shlex.quote(dest)}")
        return
    yield StringCommand(fetching(url, dest, sha256=sha256, mode=mode))


def fetching(url: str, dest: str, *, sha256: str, mode: str = "644") -> str:
    """Shell that does it with apt's own downloader: a bare Debian has no other, and it knows the machine's proxies."""
    folder, name = posixpath.split(dest)
    part = shlex.quote(f"{folder}/.{name}.part")
    helper = "/usr/lib/apt/apt-helper -o Acquire::Retries=3 -o APT::Sandbox::User=root download-file"
    return (
        f"mkdir -p {shlex.quote(folder)} && {helper} {shlex.quote(url)} {part} SHA256:{sha256} >/dev/null"
        f" && chmod {mode} {part} && mv -fT {part} {shlex.quote(dest)}"
    )
