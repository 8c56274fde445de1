"""Where a machine's packages come from: repositories, the keys that sign them, and a mirror that stands for them all.

With a mirror set, each repository lies under ``MIRROR/NAME`` and every other source of the machine goes: it needs no
route to anywhere else. Keys travel with the controller, checked there against the fingerprints of ``sources.yaml``.
"""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import Field, field_validator, model_validator
from pyinfra.api.deploy import deploy
from pyinfra.context import host

from autoscaler.config.documents import Document, parse_data, read_document
from autoscaler.model.errors import BadInput, Unavailable
from roles.deploys.openpgp import armored, fingerprints, signers
from roles.facts.apt_candidates import KEYRINGS
from roles.facts.packages import OsRelease, SourceFiles
from roles.operations import apt, files, packages
from roles.settings.addresses import host_of
from roles.settings.controller_files import local_path
from roles.settings.machine import MachineSettings, settings
from roles.settings.version_matrix import choose, read_matrix

SOURCES: Final = Path(__file__).with_name("sources.yaml")
_WORDS: Final = ("distribution", "release", "version", "codename", "minor")
"""What an address may leave open: the machine fills it in."""
_DISTRIBUTIONS: Final = ("debian", "ubuntu")
CODENAMES: Final = {"12": "bookworm", "13": "trixie", "22.04": "jammy", "24.04": "noble", "26.04": "resolute"}
_TIMEOUT: Final = 20.0
_LOCK: Final = "/etc/apt/apt.conf.d/90spillway-lock"


class Repository(Document):
    """One apt repository."""

    uri: str = Field(description="where it lies, e.g. https://pkgs.k8s.io/core:/stable:/v1.35/deb")
    suites: tuple[str, ...] = ("/",)
    components: tuple[str, ...] = ()
    key: str = Field(default="", description="its signing key: a path on the controller, an address, or the text")
    fingerprints: tuple[str, ...] = Field(default=(), description="of the keys that may sign it, 40 hex digits each")
    keyring: str = Field(default="", description="in place of key: a keyring that the machine's base system has")
    only: tuple[str, ...] = Field(default=(), description="distributions that have it; empty: all")

    @field_validator("fingerprints", mode="before")
    @classmethod
    def _fingerprints_are_whole(cls, given: Any) -> tuple[str, ...]:
        if not isinstance(given, (list, tuple)):
            raise ValueError("must be a list, e.g. [EB693B3035CD5710E231E123A4B469963BF863CC]")  # noqa: TRY004 - pydantic's
        wanted = tuple(str(one).replace(" ", "").upper() for one in given)
        for one in wanted:
            if not re.fullmatch(r"[0-9A-F]{40}|[0-9A-F]{64}", one):
                raise ValueError(f"holds {one}: a fingerprint has 40 hex digits; a short key id can be forged")
        return wanted

    @field_validator("uri")
    @classmethod
    def _uri_is_a_place(cls, uri: str) -> str:
        plain = _filled(uri)
        local = re.fullmatch(r"(file|copy):/\S*", plain)
        if not local and not host_of(plain):
            raise ValueError("must be an address such as https://pkgs.k8s.io/core:/stable:/v1.35/deb")
        return uri

    @field_validator("suites", "components")
    @classmethod
    def _words_are_words(cls, words: tuple[str, ...]) -> tuple[str, ...]:
        for word in words:
            if not re.fullmatch(r"\S+", _filled(word)):
                raise ValueError(f"holds {word!r}: must be words without blanks, e.g. [stable]")
        return words

    @field_validator("suites")
    @classmethod
    def _suites_are_some(cls, suites: tuple[str, ...]) -> tuple[str, ...]:
        if not suites:
            raise ValueError("must name one at least, e.g. [/] for a repository without suites")
        return suites

    @field_validator("only")
    @classmethod
    def _only_of_those_that_are_known(cls, only: tuple[str, ...]) -> tuple[str, ...]:
        for one in only:
            if one not in _DISTRIBUTIONS:
                raise ValueError(f"names {one!r}: the roles know {' and '.join(_DISTRIBUTIONS)}")
        return only

    @field_validator("key")
    @classmethod
    def _key_is_there(cls, place: str) -> str:
        if is_text(place):
            return place
        if "://" in place and not host_of(place):
            raise ValueError("must be a path on this controller, or an address such as https://mirror.lab/key.asc")
        if place and "://" not in place and not local_path(place).is_file():
            raise ValueError("there is no such file: name the signing key, a file on this controller, or its address")
        return place

    @model_validator(mode="after")
    def _is_signed(self) -> Repository:
        if bool(self.key) == bool(self.keyring) or bool(self.key) != bool(self.fingerprints):
            raise ValueError("needs key with fingerprints, or keyring: unsigned repositories are not used")
        return self


class Sources(Document):
    """All repositories, and the mirror."""

    repositories: dict[str, Repository]
    mirror: str = Field(default="", description="stands for all of them, each under its name: http://mirror.lab:8081")

    @field_validator("mirror")
    @classmethod
    def _mirror_is_an_address(cls, mirror: str) -> str:
        if mirror and not host_of(mirror):
            raise ValueError("must be an address such as http://mirror.lab:8081")
        return mirror


def _filled(text: str) -> str:
    """Fills something into each place of the text. Raises ``ValueError``."""
    try:
        return text.format(**dict.fromkeys(_WORDS, "1"))
    except (KeyError, IndexError, ValueError, AttributeError):
        known = ", ".join(f"{{{word}}}" for word in _WORDS)
        raise ValueError(f"has braces around what stands for nothing; there are {known}") from None


@dataclass(frozen=True, slots=True)
class Source:
    """One repository, ready to be put on a machine."""

    name: str
    entry: str
    """The deb822 text."""
    key: str = ""
    """Armoured; empty where the machine's own keyring signs."""

    @property
    def entry_path(self) -> str:
        """Returns the file in which apt reads the source."""
        return f"/etc/apt/sources.list.d/spillway-{self.name}.sources"

    @property
    def key_path(self) -> str:
        """Where the key lies: for this repository alone, not trusted for any other."""
        return f"{KEYRINGS}/spillway-{self.name}.asc"


def read_sources(
    own: Mapping[str, Any] | None = None,
    *,
    source: str = "inventory",
    entry: str = "",
    written: Callable[[], yaml.Node | None] = lambda: None,
) -> Sources:
    """The shipped repositories with an inventory's ``sources`` laid over them. Raises ``BadInput``."""
    shipped = _shipped()
    if not own:
        return shipped
    merged: dict[str, Any] = shipped.model_dump()
    given = own.get("repositories", {})
    for name, one in given.items() if isinstance(given, dict) else ():
        known = merged["repositories"].get(name, {})
        merged["repositories"][name] = {**known, **one} if isinstance(one, dict) else one
    if not isinstance(given, dict):
        merged["repositories"] = given
    rest = {key: own[key] for key in own if key != "repositories"}
    return parse_data({**merged, **rest}, Sources, source=source, entry=entry, written=written)


@cache
def _shipped() -> Sources:
    """Read once, for however many machines."""
    return read_document(SOURCES, Sources, what="package sources")


def chosen_sources(
    sources: Sources, names: Iterable[str], *, os: str, minor: str, keys: Mapping[str, bytes] | None = None
) -> list[Source]:
    """The named repositories for a machine with this ``os`` (debian-12); ``keys`` stand in for what would be fetched.

    Raises ``BadInput`` where a name is unknown or a key is not the one that the fingerprints name.
    """
    distribution, _, release = os.partition("-")
    words = {
        "distribution": distribution,
        "release": release,
        "version": os.replace("-", "").replace(".", ""),
        "codename": CODENAMES.get(release, release),
        "minor": minor,
    }
    found = []
    for name in names:
        repository = sources.repositories.get(name)
        if repository is None:
            raise BadInput(f"package source {name!r}: known are {', '.join(sources.repositories)}")
        if repository.only and distribution not in repository.only:
            continue
        key = checked_key(name, repository, (keys or {}).get(name)) if repository.key else ""
        found.append(Source(name=name, entry=_entry(name, repository, words, mirror=sources.mirror), key=key))
    return found


def checked_key(name: str, repository: Repository, key: bytes | None = None) -> str:
    """The signing key as text, once it is known to be the right one."""
    key = key if key is not None else read_key(repository.key)
    place = "in the settings" if is_text(repository.key) else f"at {repository.key}"
    held = fingerprints(key, source=place)
    strangers = sorted({*held} - {*repository.fingerprints})
    if strangers:
        raise BadInput(
            f"package source {name}: the key {place} is {', '.join(strangers)}, not"
            f" {' or '.join(repository.fingerprints)}. If its owner announced a new key, write that fingerprint down"
        )
    return armored(key)


def why_not_signed_by_us(name: str, repository: Repository, uri: str) -> str:
    """Who signs the repository's index now: empty where we know one of them. Raises ``Unavailable``."""
    place = (
        f"{uri.rstrip('/')}/" + ("" if repository.suites[0] == "/" else f"dists/{repository.suites[0]}/") + "InRelease"
    )
    now = signers(_fetched(place), source=place)
    if any(known.endswith(one) for one in now for known in repository.fingerprints):
        return ""
    return (
        f"package source {name}: {place} is signed by {', '.join(now)} now, not {' or '.join(repository.fingerprints)}"
    )


def is_text(key: str) -> bool:
    """Whether a key is given itself, and not by the place where it lies."""
    return key.lstrip().startswith("-----BEGIN PGP PUBLIC KEY BLOCK-----")


@cache
def read_key(place: str) -> bytes:
    """A key from its text, a path or an address. Raises ``BadInput`` or ``Unavailable``."""
    if is_text(place):
        return place.encode()
    if "://" in place:
        return _fetched(place)
    try:
        return local_path(place).read_bytes()
    except OSError as error:
        raise BadInput(f"{place}: cannot read this signing key: {error.strerror}") from None


@deploy("package sources")
def node_sources() -> None:
    """The repositories that the settings of the machine ask for; with a mirror, all of them from there."""
    machine = settings()
    os = host.get_fact(OsRelease)
    if not os:
        return
    sources = _of_settings(json.dumps(machine.sources, sort_keys=True), source=f"machine {machine.name}")
    minor = ".".join(choose(read_matrix(), machine.versions, machine=machine.name).kubelet.split(".")[:2])
    chosen = chosen_sources(sources, needed(machine, mirrored=bool(sources.mirror)), os=os, minor=minor)
    package_sources(chosen=chosen, exclusive=bool(sources.mirror))


def needed(machine: MachineSettings, *, mirrored: bool) -> list[str]:
    """The repositories that a machine installs from; its distribution's own are written for a mirror only."""
    names = ["debian", "debian-security", "ubuntu"] if mirrored else []
    if machine.gpu and machine.gpu_count:
        names += ["nvidia-cuda", "nvidia-container-toolkit"] if machine.gpu.driver else ["nvidia-container-toolkit"]
    brought = machine.kubelet or machine.node_image
    if machine.control_plane or (brought and brought.download is None):
        names.append("kubernetes")
    if machine.container_runtime.package == "containerd.io":
        names.append("docker")
    return names


def signed_places(machine: MachineSettings) -> list[tuple[str, Repository, str]]:
    """Name, description and address of the repositories with keys of their own that the machine installs from.

    Without a mirror the address may hold words that only the machine can fill in: such a one is left out.
    """
    sources = _of_settings(json.dumps(machine.sources, sort_keys=True), source=f"machine {machine.name}")
    named = [(name, sources.repositories[name]) for name in needed(machine, mirrored=bool(sources.mirror))]
    places = [
        (name, one, f"{sources.mirror.rstrip('/')}/{name}" if sources.mirror else one.uri)
        for name, one in named
        if one.key and one.suites == ("/",)
    ]
    return [place for place in places if "{" not in place[2]]


@cache
def _of_settings(own: str, *, source: str) -> Sources:
    """Read once for all machines that have the same."""
    return read_sources(json.loads(own), source=source)


@deploy("package sources")
def package_sources(chosen: Iterable[Source], *, exclusive: bool) -> None:
    """The repositories of a machine, each with its key; ``exclusive`` (a mirror stands for all): and no others."""
    ours, chosen = set(), list(chosen)
    entries = tuple((source.entry_path, source.entry, source.key) for source in chosen)
    packages.come_from(entries, exclusive=exclusive)
    files.guarded(dest=KEYRINGS, mode="755", name="apt may look into the folder of the keys")
    for source in chosen:
        if source.key:
            files.place(name=f"key of {source.name}", dest=source.key_path, content=source.key)
        files.place(name=f"packages from {source.name}", dest=source.entry_path, content=source.entry, meaning="deb822")
        ours.add(source.entry_path)
    files.place(name="apt waits for its lock", dest=_LOCK, content='DPkg::Lock::Timeout "300";\n', meaning="apt.conf")
    files.last_word(name="nobody has apt wait less", dest=_LOCK, about=r"(#clear\s+)?DPkg::Lock::Timeout\b")
    apt.usual_places(name="apt reads its usual folders")
    apt.signed_only(name="apt takes signed packages alone")
    for path in host.get_fact(SourceFiles):
        is_left_over = Path(path).name.startswith("spillway-") and path not in ours
        if path not in ours and (exclusive or is_left_over):
            files.absent(name=f"no packages from {path}", dest=path)


def _entry(name: str, repository: Repository, words: Mapping[str, str], *, mirror: str) -> str:
    uri = f"{mirror.rstrip('/')}/{name}" if mirror else repository.uri.format(**words)
    suites = " ".join(suite.format(**words) for suite in repository.suites)
    lines = [
        "Types: deb",
        f"URIs: {uri}",
        f"Suites: {suites}",
        f"Components: {' '.join(repository.components)}" if repository.components else "",
        "Architectures: amd64",
        f"Signed-By: {repository.keyring or f'{KEYRINGS}/spillway-{name}.asc'}",
    ]
    return "".join(f"{line}\n" for line in lines if line)


def _fetched(address: str) -> bytes:
    if not address.startswith(("https://", "http://")):
        raise BadInput(f"{address}: must be a path, or an address that begins with https://")
    try:
        with urllib.request.urlopen(address, timeout=_TIMEOUT) as answer:  # noqa: S310 - the scheme is checked above
            return bytes(answer.read())
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        reason = getattr(error, "reason", error)
        raise Unavailable(f"{address}: {reason}; with no way there, give a path under sources") from None
