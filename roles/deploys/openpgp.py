"""OpenPGP keys and signatures, read far enough to know whose they are: fingerprints, nothing verified here.

Verifying is apt's, on the machine, with the key file that a role puts there. This module tells on the controller which
key a file holds, and which key a repository is signed with now, so that a rotation has a name before apt fails. The
packets are read by Sequoia.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from pysequoia import ArmorKind, armor
from pysequoia.packet import Packet, PacketPile, Tag

from autoscaler.model.errors import BadInput

_ARMOR: Final = re.compile(
    rb"-----BEGIN PGP (PUBLIC KEY BLOCK|SIGNATURE)-----\r?\n.*?-----END PGP \1-----\r?\n?", re.DOTALL
)


def fingerprints(key: bytes, *, source: str) -> list[str]:
    """Fingerprints of the primary keys in a key file, armoured or not. Raises ``BadInput`` where there are none."""
    found = [packet.fingerprint for packet in _packets(key, source) if packet.tag == Tag.PublicKey]
    if not found:
        raise BadInput(f"{source}: holds no OpenPGP public key")
    return [one.upper() for one in found if one]


def signers(signed: bytes, *, source: str) -> list[str]:
    """Who signed an ``InRelease`` or ``Release.gpg``: fingerprints, or the last 16 digits where no more is told."""
    made = [packet for packet in _packets(signed, source) if packet.tag == Tag.Signature]
    found = [packet.issuer_fingerprint or packet.issuer_key_id for packet in made]
    if not any(found):
        raise BadInput(f"{source}: carries no OpenPGP signature")
    return [one.upper() for one in found if one]


def armored(key: bytes) -> str:
    """The key as text, the form in which apt reads a ``.asc`` file."""
    if key.lstrip().startswith(b"-----BEGIN"):
        return key.decode("ascii", errors="replace").replace("\r\n", "\n")
    return str(armor(key, ArmorKind.PublicKey))


def _packets(data: bytes, source: str) -> Iterator[Packet]:
    """Of every armoured block, such as that below a text in clear; of the whole where there is none."""
    blocks = [found[0] for found in _ARMOR.finditer(data)] or [data]
    for block in blocks:
        try:
            yield from PacketPile.from_bytes(block)
        except Exception as error:  # noqa: BLE001 - Sequoia has one kind of error for all
            raise BadInput(f"{source}: is no whole OpenPGP data: {error}") from None
