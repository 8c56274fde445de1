"""An OpenPGP key of the tests' own, and what it signs: by RFC 9580 around RSA, with no process to ask.

gpg signs through an agent alone, a process in the background that a test can lose. What is made here is tried by those
who must believe it: apt's gpgv on the machines, and the gpg of this machine in
``test_roles/test_deploys/test_apt_sources.py``.
"""

from __future__ import annotations

import hashlib
import time
from typing import Final

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from roles.deploys.openpgp import armored

_VERSION: Final = b"\x04"
_RSA, _SHA512 = b"\x01", b"\x0a"
_SIGNATURE, _PUBLIC_KEY, _USER_ID = 2, 6, 13
_OF_BYTES, _OF_TEXT, _OF_A_NAME = b"\x00", b"\x01", b"\x13"
"""Kinds of signatures."""
_MADE, _ISSUER, _USES, _ISSUER_FINGERPRINT = 2, 16, 27, 33
"""What a signature tells beside itself."""
_CERTIFIES_AND_SIGNS: Final = b"\x03"
_IN_CLEAR: Final = "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA512\n"


class Signer:
    """One key. It lives as long as this."""

    def __init__(self, name: str) -> None:
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=3072)
        self._made = int(time.time()).to_bytes(4, "big")
        numbers = self._key.public_key().public_numbers()
        body = _VERSION + self._made + _RSA + _number(numbers.n) + _number(numbers.e)
        hashed, user = b"\x99" + len(body).to_bytes(2, "big") + body, name.encode()
        self._fingerprint = hashlib.sha1(hashed).digest()  # noqa: S324 - the format's
        self.fingerprint = self._fingerprint.hex().upper()
        named = hashed + b"\xb4" + len(user).to_bytes(4, "big") + user
        own = self._signature(_OF_A_NAME, named, (_USES, _CERTIFIES_AND_SIGNS))
        self.packets = _packet(_PUBLIC_KEY, body) + _packet(_USER_ID, user) + own
        """The public key as bytes."""
        self.public = armored(self.packets).encode()

    def apart(self, data: bytes) -> bytes:
        """A signature that is a file of its own."""
        return self._signature(_OF_BYTES, data)

    def in_clear(self, text: str) -> bytes:
        """A text with its signature, as an ``InRelease`` has it. No line ends with a blank or begins with a dash."""
        lines = text.splitlines()
        signature = self._signature(_OF_TEXT, "\r\n".join(lines).encode())
        tail = armored(signature).replace("PUBLIC KEY BLOCK", "SIGNATURE")
        return "\n".join([_IN_CLEAR, *lines, tail]).encode()

    def _signature(self, kind: bytes, data: bytes, *more: tuple[int, bytes]) -> bytes:
        told = [(_MADE, self._made), (_ISSUER_FINGERPRINT, _VERSION + self._fingerprint), *more]
        beside = _area(*told)
        signed = _VERSION + kind + _RSA + _SHA512 + beside
        whole = data + signed + _VERSION + b"\xff" + len(signed).to_bytes(4, "big")
        value = int.from_bytes(self._key.sign(whole, padding.PKCS1v15(), hashes.SHA512()), "big")
        digest = hashlib.sha512(whole).digest()
        issuer = _area((_ISSUER, self._fingerprint[-8:]))
        return _packet(_SIGNATURE, signed + issuer + digest[:2] + _number(value))


def _packet(kind: int, body: bytes) -> bytes:
    return bytes([0xC0 | kind, 0xFF]) + len(body).to_bytes(4, "big") + body


def _area(*told: tuple[int, bytes]) -> bytes:
    held = b"".join(bytes([len(said) + 1, kind]) + said for kind, said in told)
    return len(held).to_bytes(2, "big") + held


def _number(value: int) -> bytes:
    return value.bit_length().to_bytes(2, "big") + value.to_bytes((value.bit_length() + 7) // 8, "big")
