"""Package sources: whose key signs what, and where a machine fetches from."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from autoscaler.failures import BadInput
from roles.signatures import armored, fingerprints, signers
from roles.sources import checked_key, chosen_sources, read_sources
from tests.test_roles.signing import Signer, needs_gpg

pytestmark = needs_gpg


@pytest.fixture(scope="module")
def signer() -> Iterator[Signer]:
    """A key made for these tests."""
    with Signer("the archive of the tests") as made:
        yield made


def own(signer: Signer, tmp_path: Path, **entry: object) -> dict[str, object]:
    """An inventory's `sources` whose NVIDIA repository is signed by the test's key."""
    key = tmp_path / "key.asc"
    key.write_bytes(signer.public)
    return {"repositories": {"nvidia-cuda": {"key": str(key), "fingerprints": [signer.fingerprint], **entry}}}


def test_a_fingerprint_is_what_gpg_says_it_is(signer: Signer) -> None:
    """Armoured or not, and after our own armour, which gpg must be able to read again."""
    assert fingerprints(signer.public, source="k") == [signer.fingerprint]
    raw = signer.gpg("--export")
    assert fingerprints(raw, source="k") == [signer.fingerprint]
    assert signer.gpg("--dearmor", given=armored(raw).encode()) == raw


@pytest.mark.parametrize("way", [["--clear-sign"], ["--detach-sign"], ["--detach-sign", "--armor"]])
def test_who_signed_is_read_from_every_form_of_signature(signer: Signer, way: list[str]) -> None:
    """An InRelease is signed in clear, a Release.gpg apart."""
    assert signers(signer.gpg(*way, given=b"Origin: tests\n"), source="s") == [signer.fingerprint]


def test_the_debian_keyring_of_this_machine_can_be_read(signer: Signer) -> None:
    """Keys of several kinds and ages in one file."""
    keyring = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
    if not keyring.exists():
        pytest.skip("no Debian keyring here")
    listed = signer.gpg("--show-keys", "--with-colons", str(keyring)).decode()
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
    with (
        Signer("a stranger") as stranger,
        pytest.raises(BadInput, match=f"is {stranger.fingerprint}, not {signer.fingerprint}"),
    ):
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


def test_nothing_is_left_of_a_test_process_that_is_killed() -> None:
    """Its agent ends within seconds, and its folder goes: nobody would do it later.

    Whoever asks the agent keeps it from looking whether we are there.
    """
    makes = "from tests.test_roles.signing import Signer; signer = Signer('x'); print(signer.home, flush=True); input()"
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", makes], stdin=pipe, stdout=pipe, text=True)
    assert process.stdout
    home = process.stdout.readline().strip()
    try:
        asks = ["gpg-connect-agent", "--homedir", home, "--no-autostart", "GETINFO pid", "/bye"]
        agent = subprocess.run(asks, check=True, capture_output=True, text=True).stdout.split()[1]
        process.kill()
        process.communicate()
        end = time.monotonic() + 60
        while is_alive(agent) or Path(home).exists():
            assert time.monotonic() < end, "its agent lives on, or its folder is there"
            time.sleep(0.2)
    finally:
        process.kill()
        shutil.rmtree(home, ignore_errors=True)


def is_alive(process: str) -> bool:
    """And no zombie that waits to be asked how it ended."""
    try:
        return bool(Path(f"/proc/{process}/cmdline").read_bytes())
    except (FileNotFoundError, ProcessLookupError):
        return False
