"""OpenPGP keys and signatures, read far enough to know whose they are: fingerprints, nothing verified here.

Verifying is apt's, on the machine, with the key file that a role puts there. This module tells on the controller which
key a file holds, and which key a repository is signed with now, so that a rotation has a name before apt fails. The
packets are those of RFC 4880 and RFC 9580.
"""

from __future__ import annotations

import base64
import hashlib
import re
import textwrap
from collections.abc import Iterator
from typing import Final

from autoscaler.model.errors import BadInput

_SIGNATURE, _PUBLIC_KEY = 2, 6
_V4: Final = 4
_ISSUER, _ISSUER_FINGERPRINT = 16, 33
_ARMOR: Final = re.compile(r"-----BEGIN PGP (?:PUBLIC KEY BLOCK|SIGNATURE)-----\n(.*?)-----END PGP", re.DOTALL)


def fingerprints(key: bytes, *, source: str) -> list[str]:
    """Fingerprints of the primary keys in a key file, armoured or not. Raises ``BadInput`` where there are none."""
    found = [_fingerprint(body) for kind, body in _packets(_dearmored(key), source) if kind == _PUBLIC_KEY]
    if not found:
        raise BadInput(f"{source}: holds no OpenPGP public key")
    return found


def signers(signed: bytes, *, source: str) -> list[str]:
    """Who signed an ``InRelease`` or ``Release.gpg``: fingerprints, or the last 16 digits where no more is told."""
    found = [_issuer(body) for kind, body in _packets(_dearmored(signed), source) if kind == _SIGNATURE]
    if not any(found):
        raise BadInput(f"{source}: carries no OpenPGP signature")
    return [one for one in found if one]


def armored(key: bytes) -> str:
    """The key as text, the form in which apt reads a ``.asc`` file."""
    if key.lstrip().startswith(b"-----BEGIN"):
        return key.decode("ascii", errors="replace").replace("\r\n", "\n")
    body = "\n".join(textwrap.wrap(base64.b64encode(key).decode(), 64))
    check = base64.b64encode(_crc24(key).to_bytes(3, "big")).decode()
    return f"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n{body}\n={check}\n-----END PGP PUBLIC KEY BLOCK-----\n"


def _dearmored(data: bytes) -> bytes:
    text = data.decode("latin-1").replace("\r\n", "\n")
    blocks = _ARMOR.findall(text)
    if not blocks:
        return data
    raw = b""
    for block in blocks:
        _, _, body = block.partition("\n\n") if "\n\n" in block[:200] or ":" in block[:80] else ("", "", block)
        lines = [line for line in body.splitlines() if line and not line.startswith("=")]
        raw += base64.b64decode("".join(lines))
    return raw


def _packets(data: bytes, source: str) -> Iterator[tuple[int, bytes]]:
    """Type and body of each packet."""
    at = 0
    try:
        while at < len(data):
            head = data[at]
            if not head & 0x80:
                raise BadInput(f"{source}: is no OpenPGP data")
            kind = head & 0x3F if head & 0x40 else (head >> 2) & 0x0F
            size, length = _length(data, at + 1) if head & 0x40 else _old_length(data, at + 1, head & 3)
            at += 1 + size + length
            if at > len(data) or not length:
                raise BadInput(f"{source}: the OpenPGP data ends too early")
            yield kind, data[at - length : at]
    except IndexError:
        raise BadInput(f"{source}: the OpenPGP data ends too early") from None


def _length(data: bytes, at: int) -> tuple[int, int]:
    """How many bytes tell the length, and the length."""
    first = data[at]
    if first < 192:  # noqa: PLR2004 - RFC 9580, 4.2.1
        return 1, first
    if first < 224:  # noqa: PLR2004
        return 2, ((first - 192) << 8) + data[at + 1] + 192
    return 5, int.from_bytes(data[at + 1 : at + 5], "big")


def _old_length(data: bytes, at: int, kind: int) -> tuple[int, int]:
    size = (1, 2, 4, 0)[kind]
    return (size, int.from_bytes(data[at : at + size], "big")) if size else (0, len(data) - at)


def _fingerprint(body: bytes) -> str:
    if body[0] == _V4:
        return hashlib.sha1(b"\x99" + len(body).to_bytes(2, "big") + body).hexdigest().upper()  # noqa: S324 - the format's
    return hashlib.sha256(b"\x9b" + len(body).to_bytes(4, "big") + body).hexdigest().upper()


def _issuer(body: bytes) -> str:
    """Returns the issuer from the subpackets of a version 4 signature, the hashed ones first."""
    if body[0] != _V4:
        return ""
    short, at = "", 4
    for _ in range(2):
        size = int.from_bytes(body[at : at + 2], "big")
        area, at = body[at + 2 : at + 2 + size], at + 2 + size
        for kind, content in _subpackets(area):
            if kind == _ISSUER_FINGERPRINT:
                return content[1:].hex().upper()
            if kind == _ISSUER:
                short = content.hex().upper()
    return short


def _subpackets(area: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(area):
        size, length = _length(area, at)
        yield area[at + size] & 0x7F, area[at + size + 1 : at + size + length]
        at += size + length


def _crc24(data: bytes) -> int:
    """The checksum of RFC 4880, 6.1."""
    crc = 0xB704CE
    for byte in data:
        crc ^= byte << 16
        for _ in range(8):
            crc = (crc << 1) ^ (0x1864CFB if crc & 0x800000 else 0)
    return crc & 0xFFFFFF
