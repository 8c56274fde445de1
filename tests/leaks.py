"""Looks for secrets in whatever a program leaves: as they are, in base64, in gzip, and in these within each other."""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

_DEPTH = 4
_BASE64 = re.compile(rb"[A-Za-z0-9+/_-]{16,}={0,2}")
_GZIP = b"\x1f\x8b\x08"


def leaks(secrets: Mapping[str, str], places: Mapping[str, bytes]) -> list[str]:
    """``SECRET in PLACE`` for each that can be read there; both are given by name."""
    return [
        f"{name} in {place}"
        for place, content in places.items()
        for name, secret in secrets.items()
        if any(secret.encode() in layer for layer in _layers(content))
    ]


def files_under(*folders: Path) -> dict[str, bytes]:
    """Every file, by its path; also hidden ones, and those that links point to are left out."""
    paths: Iterable[Path] = (path for folder in folders for path in folder.rglob("*"))
    return {str(path): path.read_bytes() for path in paths if path.is_file() and not path.is_symlink()}


def _layers(content: bytes, depth: int = _DEPTH) -> Iterator[bytes]:
    """The content, and what is packed in it."""
    yield content
    if depth == 0:
        return
    for start in _starts(content):
        with_rest = zlib.decompressobj(wbits=31)
        try:
            yield from _layers(with_rest.decompress(content[start:]), depth - 1)
        except zlib.error:
            continue
    for found in _BASE64.finditer(content):
        text = found[0].rstrip(b"=").replace(b"-", b"+").replace(b"_", b"/")
        for offset in range(4):  # a secret may begin within a quantum of text that goes before it
            part = text[offset:]
            try:
                raw = base64.b64decode(
                    part[: len(part) // 4 * 4] if len(part) % 4 == 1 else part + b"=" * (-len(part) % 4)
                )
            except binascii.Error:
                continue
            yield from _layers(raw, depth - 1) if _is_packed(raw) else (raw,)


def _starts(content: bytes) -> Iterator[int]:
    start = content.find(_GZIP)
    while start >= 0:
        yield start
        start = content.find(_GZIP, start + 1)


def _is_packed(raw: bytes) -> bool:
    """Worth another look: what base64 gives of ordinary words is noise."""
    return _GZIP in raw or bool(_BASE64.search(raw))
