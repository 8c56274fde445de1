"""The search for secrets finds one in every wrapping, and cries at nothing else."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable

import pytest

from tests.leaks import leaks

SECRET = "correct-horse-battery"  # noqa: S105 - made up
PLAIN = b"the engine said: all is well, and nothing else"


@pytest.mark.parametrize(
    "wrap",
    [
        lambda secret: secret,
        base64.b64encode,
        gzip.compress,
        lambda secret: base64.b64encode(gzip.compress(secret)),
        lambda secret: gzip.compress(base64.b64encode(b"#cloud-config\n" + secret)),
        lambda secret: base64.b64encode(base64.b64encode(secret)),
        lambda secret: base64.b64encode(b"x" + secret + b"\n"),
        lambda secret: base64.urlsafe_b64encode(b"\xff\xfe" + secret),
        lambda secret: json.dumps({"userData": base64.b64encode(secret).decode()}).encode(),
    ],
)
def test_a_planted_secret_is_found(wrap: Callable[[bytes], bytes]) -> None:
    """In whatever wrapping, in the midst of other things."""
    planted = PLAIN + b" " + wrap(b"password=" + SECRET.encode()) + b" " + PLAIN
    assert leaks({"passphrase": SECRET}, {"a log": planted, "another": PLAIN}) == ["passphrase in a log"]


def test_what_holds_none_is_clean() -> None:
    """Also where it looks like base64, or begins as gzip does."""
    assert leaks({"passphrase": SECRET}, {"a": PLAIN * 50, "b": b"\x1f\x8b\x08 no gzip", "c": b"A" * 999}) == []
