"""What the roles leave on a machine runs the packaged programs, whatever lies in a folder that comes first in PATH."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from typing import Final

import pytest

from roles.engine.batched_facts import PATH
from tests import ROOT
from tests.test_roles.sandbox import Sandbox, whole_node

MISLED: Final = "/root/misled"
TRAPS: Final = f"""\
rm -rf /srv/traps {MISLED}; mkdir -p /srv/traps
printf '#!/bin/sh\\necho "${{0##*/}}" >> {MISLED}\\n' > /srv/traps/trap; chmod 755 /srv/traps/trap
for p in /usr/sbin/* /usr/bin/* nvidia-smi containerd ctr; do ln -sf trap "/srv/traps/${{p##*/}}"; done
mkdir -p /etc/spillway /var/lib/spillway; echo '0 3g.20gb' > /etc/spillway/mig-layout
"""
"""A program of every name, which says that it was called."""
RUNS: Final = re.compile(r"^Exec[A-Za-z]*=[-@:+!]*(\S*)", re.MULTILINE)


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """One for all tests here."""
    with Sandbox(tmp_path_factory.mktemp("sandbox")) as made:
        yield made


@pytest.fixture(scope="module")
def left(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """Each file that the roles would write on a whole node, with its text."""
    texts: Mapping[str, str] = sandbox.run({"node": whole_node(tmp_path_factory.mktemp("keys"))})["texts"]
    assert len(texts) > 20
    return texts


def test_no_script_calls_a_program_of_somebody_elses(sandbox: Sandbox, left: Mapping[str, str]) -> None:
    """Each is run under a PATH that begins with a folder of false programs."""
    scripts = {path: text for path, text in left.items() if text.startswith("#!")}
    assert {path.rpartition("/")[2] for path in scripts} >= {"mig-layout", "spillway-node-health"}
    for path, text in scripts.items():
        assert re.match(r"#!/\S+\n", text), f"{path} begins with {text.splitlines()[0]}"
        run = f"printf %s {shlex.quote(text)} > /root/script; PATH=/srv/traps:{PATH} /bin/sh /root/script || :"
        found = sandbox.run({"plant": f"{TRAPS}{run}", "place": [], "watch": [MISLED]})
        assert found["after"][MISLED] == "", path


def test_no_unit_hands_a_path_of_others_on(left: Mapping[str, str]) -> None:
    """Systemd's own begins with /usr/local, and so would that of a kubelet, of containerd and of what these call."""
    units = {path: text for path, text in left.items() if "/systemd/system/" in path and "[Service]" in text}
    assert len(units) > 3
    assert [path for path, text in units.items() if f"Environment=PATH={PATH}\n" not in text] == []


def test_units_and_configurations_name_programs_by_their_whole_paths(left: Mapping[str, str]) -> None:
    """Also those of the nightly run, and the runtimes of Docker."""
    nightly = {str(one): one.read_text(encoding="utf-8") for one in (ROOT / "roles" / "nightly").glob("*.service")}
    for path, text in {**left, **nightly}.items():
        assert [one for one in RUNS.findall(text) if not one.startswith("/") or one.endswith("/env")] == [], path
    runtimes = json.loads(left["/etc/docker/daemon.json"])["runtimes"]
    assert all(one["path"].startswith("/") for one in runtimes.values())


def test_the_nightly_run_is_no_roots() -> None:
    """It logs in elsewhere, and needs nothing of the machine that it runs on but its state folder."""
    (unit,) = (ROOT / "roles" / "nightly").glob("*.service")
    lines = unit.read_text(encoding="utf-8").splitlines()
    assert "User=spillway-nodes" in lines
    assert {"ProtectSystem=strict", "ProtectHome=yes", "NoNewPrivileges=yes", "UMask=0077"} <= {*lines}
    if shutil.which("systemd-analyze"):
        checked = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
        assert "Unknown" not in checked.stderr
