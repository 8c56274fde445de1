"""A role with a driver of the version that the machine's settings ask for, from their mirror alone, and a file."""

from __future__ import annotations

from pyinfra.api.deploy import deploy

from roles.deploys.apt_sources import chosen_sources, package_sources, read_sources
from roles.operations import files, packages
from roles.settings.machine import settings
from roles.settings.version_matrix import choose, read_matrix


@deploy("Prepare")
def prepare() -> None:
    """The file would be written first."""
    files.place(name="a file", dest="/etc/spillway-first", content="x\n")
    sources = read_sources(settings().sources)
    package_sources(chosen=chosen_sources(sources, ["nvidia-cuda"], os="debian-12", minor="1.35"), exclusive=True)
    driver()


@deploy("Driver")
def driver() -> None:
    """Pinned and installed, and something after it."""
    wanted = {"nvidia-driver-cuda": f"{choose(read_matrix(), settings().versions, machine='m').driver}-1"}
    packages.pinned(name="pinned", pins_of="lab", wanted=wanted)
    packages.installed(name="installed", wanted=wanted)
    files.place(name="loaded at boot", dest="/etc/spillway-driver", content="x\n")
