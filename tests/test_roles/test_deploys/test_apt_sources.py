"""Package sources: whose key signs what, and where a machine fetches from."""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from autoscaler.model.errors import BadInput
from roles.deploys.apt_sources import checked_key, chosen_sources, read_sources
from roles.deploys.openpgp import armored, fingerprints, signers
from tests.test_roles.signing import Signer

needs_gpg = pytest.mark.skipif(not shutil.which("gpg"), reason="needs gpg (Debian package gnupg)")
BY_GPG = "725F21F388835F198E8BCC7AAE138E36B5B3F466"
"""Of the key with which gpg 2.2.40 signed ``Origin: tests`` in the forms below."""
IN_CLEAR = """\
-----BEGIN PGP SIGNED MESSAGE-----
Hash: SHA256

Origin: tests
-----BEGIN PGP SIGNATURE-----

iHUEARYIAB0WIQRyXyHziINfGY6LzHquE442tbP0ZgUCawMFjwAKCRCuE442tbP0
Zg7GAQCalsbG25GgN3zKjugOSoDLMh1aW7mnHOAO0n7mpxRbaAEAztOZIJzaRpv/
KA6oyQPr5iZNtnLxfPcIqHNtS4wU+AI=
=TSlb
-----END PGP SIGNATURE-----
"""
APART = """\
-----BEGIN PGP SIGNATURE-----

iHQEABYIAB0WIQRyXyHziINfGY6LzHquE442tbP0ZgUCawMFjwAKCRCuE442tbP0
ZhwUAPQPirK0KLGbhjnetk9zwRG6EW6KS9NnnvHW2ryFk3XEAP9GP103q1sAEMWQ
4ezNSGxU6CceyeeqgrCoEU2r8DRIDA==
=ol7s
-----END PGP SIGNATURE-----
"""
SIGNATURE = base64.b64decode("".join(APART.splitlines()[2:5]))
KEY_BY_GPG = base64.b64decode(
    "mDMEawMFjxYJKwYBBAHaRw8BAQdA7Fsgnrwvhmh+xdMDZ1KuK1zS2H068C8/uR7pKrXBNY20GHRoZSBhcmNoaXZlIG9mIHRoZSB0ZXN0c4iQ"
    "BBMWCAA4FiEEcl8h84iDXxmOi8x6rhOONrWz9GYFAmsDBY8CGwMFCwkIBwIGFQoJCAsCBBYCAwECHgECF4AACgkQrhOONrWz9GYPzQEA+2W+"
    "MuXAx9nvb/HcPqdtQ97dblq4CahkxnXYg0AdtaUA/jbt2kEz0xd5KOnvPnaZg8Pbt0ycA3O0efzVNwIFMFwB"
)


@pytest.fixture(scope="module")
def signer() -> Signer:
    """A key made for these tests."""
    return Signer("the archive of the tests")


def gpg(home: Path, *words: str, given: bytes = b"") -> bytes:
    """What gpg says of what needs no secret key, so that it starts no agent."""
    options = ["--homedir", str(home), "--no-autostart", "--batch", "--quiet"]
    done = subprocess.run(["gpg", *options, *words], input=given, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def own(signer: Signer, tmp_path: Path, **entry: object) -> dict[str, object]:
    """An inventory's `sources` whose NVIDIA repository is signed by the test's key."""
    key = tmp_path / "key.asc"
    key.write_bytes(signer.public)
    return {"repositories": {"nvidia-cuda": {"key": str(key), "fingerprints": [signer.fingerprint], **entry}}}


@needs_gpg
def test_a_fingerprint_is_what_gpg_says_it_is(signer: Signer, tmp_path: Path) -> None:
    """Armoured or not, and after our own armour, which gpg must be able to read again."""
    for key, fingerprint in ((signer.packets, signer.fingerprint), (KEY_BY_GPG, BY_GPG)):
        assert fingerprints(key, source="k") == [fingerprint]
        assert fingerprints(armored(key).encode(), source="k") == [fingerprint]
        assert f":{fingerprint}:" in gpg(tmp_path, "--show-keys", "--with-colons", given=key).decode()
        assert gpg(tmp_path, "--dearmor", given=armored(key).encode()) == key


@pytest.mark.parametrize(
    "signed", [IN_CLEAR.encode(), APART.encode(), SIGNATURE], ids=["in clear", "apart", "apart, not armoured"]
)
def test_who_signed_is_read_from_every_form_of_signature(signed: bytes) -> None:
    """An InRelease is signed in clear, a Release.gpg apart."""
    assert signers(signed, source="s") == [BY_GPG]


@pytest.mark.skipif(not shutil.which("gpgv"), reason="needs gpgv (Debian package gpgv)")
def test_what_our_signer_signs_is_believed_until_a_byte_of_it_differs(signer: Signer, tmp_path: Path) -> None:
    """By the program that apt asks; and so are its words of whose it is."""
    key, signed, text = (tmp_path / name for name in ("key", "InRelease", "Release"))
    key.write_bytes(signer.packets)
    text.write_bytes(b"Origin: tests\nSHA256:\n 0123 4 Packages\n")
    ask = ["gpgv", "--keyring", str(key), "--output", "-"]
    signed.write_bytes(signer.in_clear(text.read_text(encoding="ascii")))
    assert subprocess.run([*ask, str(signed)], check=True, capture_output=True).stdout == text.read_bytes()
    assert signers(signed.read_bytes(), source="s") == [signer.fingerprint]
    signed.write_bytes(signed.read_bytes().replace(b"0123", b"0124"))
    assert b"BAD signature" in subprocess.run([*ask, str(signed)], check=False, capture_output=True).stderr


def test_signing_asks_no_other_program() -> None:
    """An agent in the background ended under a test now and then."""
    makes = "from tests.test_roles.signing import Signer; print(Signer('x').in_clear('Origin: tests').decode())"
    bare = {"PATH": "", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", makes], env=bare, check=True, capture_output=True, text=True)
    assert "\nOrigin: tests\n-----BEGIN PGP SIGNATURE-----\n" in done.stdout


@needs_gpg
def test_the_debian_keyring_of_this_machine_can_be_read(tmp_path: Path) -> None:
    """Keys of several kinds and ages in one file."""
    keyring = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
    if not keyring.exists():
        pytest.skip("no Debian keyring here")
    listed = gpg(tmp_path, "--show-keys", "--with-colons", str(keyring)).decode()
    primary = re.findall(r"^pub:.*\n(?:.*\n)*?fpr:+([0-9A-F]+):", listed, flags=re.MULTILINE)
    assert fingerprints(keyring.read_bytes(), source=str(keyring)) == primary


@pytest.mark.parametrize("data", [b"", b"no key at all", b"\x99\x01"])
def test_what_is_no_key_is_refused(data: bytes) -> None:
    """Also one that ends in the middle."""
    with pytest.raises(BadInput, match=r"nvidia\.asc"):
        fingerprints(data, source="nvidia.asc")


def test_a_repository_gets_its_entry_and_its_own_key(signer: Signer, tmp_path: Path) -> None:
    """The key signs this repository and no other."""
    sources = read_sources(own(signer, tmp_path))
    (cuda,) = chosen_sources(sources, ["nvidia-cuda"], os="debian-12", minor="1.35")
    assert "URIs: https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64\n" in cuda.entry
    assert "Signed-By: /etc/apt/keyrings/spillway-nvidia-cuda.asc\n" in cuda.entry
    assert fingerprints(cuda.key.encode(), source="k") == [signer.fingerprint]


def test_a_mirror_stands_for_every_repository(signer: Signer, tmp_path: Path) -> None:
    """Each lies under its own name."""
    sources = read_sources({**own(signer, tmp_path), "mirror": "http://mirror.lab:8081/"})
    chosen = chosen_sources(sources, ["debian", "debian-security", "nvidia-cuda"], os="debian-12", minor="1.35")
    assert re.findall(r"URIs: (.*)", "".join(one.entry for one in chosen)) == [
        "http://mirror.lab:8081/debian",
        "http://mirror.lab:8081/debian-security",
        "http://mirror.lab:8081/nvidia-cuda",
    ]
    assert "Suites: bookworm bookworm-updates\n" in chosen[0].entry


def test_a_repository_of_another_distribution_is_passed_over() -> None:
    """An Ubuntu machine has no Debian sources."""
    chosen = chosen_sources(read_sources(), ["debian", "ubuntu"], os="ubuntu-24.04", minor="1.35")
    assert [one.name for one in chosen] == ["ubuntu"]
    assert "Suites: noble noble-updates noble-security\n" in chosen[0].entry


def test_a_key_with_another_fingerprint_is_refused(signer: Signer, tmp_path: Path) -> None:
    """The message has both, for whoever must decide whether the rotation was announced."""
    stranger = Signer("a stranger")
    with pytest.raises(BadInput, match=f"is {stranger.fingerprint}, not {signer.fingerprint}"):
        checked_key("nvidia-cuda", read_sources(own(signer, tmp_path)).repositories["nvidia-cuda"], stranger.public)


@pytest.mark.parametrize(
    ("entry", "wrong"),
    [
        ({"fingerprints": ["3BF863CC"]}, "a short key id can be forged"),
        ({"key": ""}, "unsigned repositories are not used"),
        ({"keys": "x"}, "keys is not a key here; did you mean key"),
    ],
)
def test_a_careless_entry_is_refused(signer: Signer, tmp_path: Path, entry: dict[str, object], wrong: str) -> None:
    """With what would be right."""
    with pytest.raises(BadInput, match=wrong):
        read_sources(own(signer, tmp_path, **entry))


def test_the_shipped_repositories_are_signed_and_by_whole_fingerprints() -> None:
    """Nothing is taken on trust."""
    for repository in read_sources().repositories.values():
        assert repository.keyring or repository.fingerprints
