"""Keys as resources: made once, kept encrypted in the state, made anew when ``rotate`` changes."""

from __future__ import annotations

import base64
import secrets
import string
from typing import Final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from stacks.on_prem_provider.values import Plain

_ALPHABET: Final = string.ascii_letters + string.digits
PRESHARED_LENGTH: Final = 48
"""AWS takes 8 to 64 letters, digits, dots and underscores, of which the first is no zero."""


def wireguard_pair() -> Plain:
    """A private key and its public half, as ``wg genkey`` and ``wg pubkey`` write them."""
    private = X25519PrivateKey.generate()
    return {
        "privateKey": base64.b64encode(private.private_bytes_raw()).decode(),
        "publicKey": base64.b64encode(private.public_key().public_bytes_raw()).decode(),
    }


def preshared_key() -> Plain:
    """A key for one tunnel of a VPN connection."""
    first = secrets.choice(string.ascii_letters)
    return {"key": first + "".join(secrets.choice(_ALPHABET) for _ in range(PRESHARED_LENGTH - 1))}
