"""Files of the controller itself, in folders that others may write too: no link of theirs is followed.

``--state`` and ``--textfile`` may name a folder such as that of Prometheus' node exporter, which is its own account's.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from pathlib import Path


def open_alone(path: Path) -> int:
    """A descriptor of this file, made where there is none, to read and to append. Raises ``OSError``.

    A link, a pipe, or a file that has another name besides is none: what is written there could be anybody's.
    """
    descriptor = os.open(
        path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644
    )
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EPERM, "it is no file, or it has another name besides", str(path))


def write_whole(path: Path, text: str) -> None:
    """Never half there for a reader, and written through no link. Raises ``OSError``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = _folder(path.parent)
    fresh = f".{path.name}.{secrets.token_hex(8)}.new"
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with open(os.open(fresh, flags, 0o666, dir_fd=folder), "w", encoding="utf-8") as file:  # noqa: PTH123 - of a descriptor
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
