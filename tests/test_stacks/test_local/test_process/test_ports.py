"""Ports that are given to processes before these bind them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from autoscaler.model.errors import Unavailable
from stacks.local.process import ports
from stacks.local.process.ports import free_ports


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A note of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "spillway"


def test_ports_are_free_and_differ() -> None:
    """And lie where the kernel gives none to outgoing connections."""
    given = free_ports(20)
    assert len(set(given)) == 20
    assert all(20000 <= port < 32000 for port in given)


def test_what_was_given_but_is_not_bound_yet_is_not_given_to_another_process() -> None:
    """A worker that joined its job 50 s later once found its port taken."""
    ask = f"from {ports.__name__} import free_ports; print(*free_ports(300))"
    askers = [
        subprocess.Popen([sys.executable, "-c", ask], env=os.environ, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    given = [int(port) for one in askers for port in one.communicate(timeout=60)[0].split()]
    given += free_ports(300)
    assert len(given) == len(set(given)) == 1500


def test_a_port_that_is_bound_is_left_out(cache: Path) -> None:
    """Also where it is the next; after the last comes the first again."""
    free_ports(1)
    (cache / "last-port").write_text("31997")
    with socket.create_server(("127.0.0.1", 31998)):
        given = free_ports(2)
    assert given[0] == 31999
    assert given[1] < 21000


def test_a_broken_note_is_written_anew(cache: Path) -> None:
    """It is no more than a hint."""
    free_ports(1)
    (cache / "last-port").write_text("99999")
    (given,) = free_ports(1)
    assert (cache / "last-port").read_text() == str(given)


def test_more_than_there_are_is_told() -> None:
    """Not waited for."""
    with pytest.raises(Unavailable, match="no 12001 free ports between 20000 and 32000"):
        free_ports(12_001)


def test_a_link_in_place_of_the_note_is_not_followed(cache: Path, tmp_path: Path) -> None:
    """Nothing is written to where it points."""
    cache.mkdir()
    (cache / "last-port").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Unavailable, match="cannot be written"):
        free_ports(1)
    assert not (tmp_path / "elsewhere").exists()
