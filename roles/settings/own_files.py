"""Files of the controller itself, in folders that others may write too: no link of theirs is followed.

``--state`` and ``--textfile`` may name a folder such as that of Prometheus' node exporter, which is its own account's.
What is written is for its writer alone, unless it is said otherwise: a journal has the diffs of all machines.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from pathlib import Path
from typing import Final

PRIVATE: Final = 0o600
PUBLIC: Final = 0o644
"""Of a file for other accounts to read, as metrics are for a collector."""


def open_alone(path: Path) -> int:
    """A descriptor of this file, made where there is none, to read and to append. Raises ``OSError``.

    A link, a pipe, or a file that has another name besides is none: what is written there could be anybody's. One of
    ours that others may read, as earlier versions made it, is closed to them.
    """
    descriptor = os.open(
        path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, PRIVATE
    )
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
        if found.st_mode & 0o077 and found.st_uid == os.geteuid():
            os.fchmod(descriptor, PRIVATE)
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EPERM, "it is no file, or it has another name besides", str(path))


def write_whole(path: Path, text: str, *, mode: int = PRIVATE) -> None:
    """Never half there for a reader, and written through no link. Raises ``OSError``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = _folder(path.parent)
    fresh = f".{path.name}.{secrets.token_hex(8)}.new"
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with open(os.open(fresh, flags, mode, dir_fd=folder), "w", encoding="utf-8") as file:  # noqa: PTH123 - of a descriptor
                os.fchmod(file.fileno(), mode)  # whatever the caller's umask
                file.write(text)
            os.replace(fresh, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            os.unlink(fresh, dir_fd=folder)
            raise
    finally:
        os.close(folder)


def _folder(path: Path) -> int:
    """A descriptor. A link to it counts where it is root's or the caller's."""
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        if not path.is_symlink() or path.lstat().st_uid not in (0, os.geteuid()):
            raise
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
