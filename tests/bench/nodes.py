"""How long a night without drift takes: our engine, stock pyinfra, Ansible; one node, the same machines, one run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

from stacks.local.process.paths import cache_root
from tests.bench import node_role
from tests.bench.figure import Figure
from tests.live.debian import why_not
from tests.live.machines import Bench, Host

ANSIBLE = "ansible-core==2.19.*"
_CONFIG = """[defaults]
forks = 50
host_key_checking = False
retry_files_enabled = False
interpreter_python = /usr/bin/python3
[ssh_connection]
pipelining = True
ssh_args = -o ControlMaster=auto -o ControlPersist=60s -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR
"""
"""Ansible at its best: pipelining, connections that stay, all machines at once."""


def nodes(sizes: tuple[int, ...], *, with_ansible: int) -> Iterator[Figure]:
    """Figures for fleets of these sizes; Ansible sees the first ``with_ansible`` machines."""
    if reason := why_not():
        raise SystemExit(f"no machines to measure on: {reason}")
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as folder, Bench(Path(folder) / "bench") as bench:
        hosts = bench.light(*(f"m{number:03}" for number in range(max(sizes))))
        _look("mend", hosts[:1], Path(folder))
        _make_alike(hosts[0], hosts[1:])
        for size in sizes:
            bound = {40: 1.5, 100: 4.0}.get(size)
            looks = [_look("ours", hosts[:size], Path(folder)) for _ in range(3)]
            ours = min(looks, key=lambda look: float(look["seconds"]))
            yield Figure(f"plan of {size} machines, nothing to do", ours["seconds"], "s", bound)
            yield Figure("of it the controller's processor time", ours["busy"], "s")
        size = min(sizes)
        stock = _look("snapshot", hosts[:size], Path(folder))["seconds"]
        yield Figure(f"the same {size}, stock operations on one look", stock, "s")
        yield Figure(f"the same {size}, stock pyinfra", _look("pyinfra", hosts[:size], Path(folder))["seconds"], "s")
        if with_ansible:
            yield from _against_ansible(hosts[:with_ansible], Path(folder))


def _make_alike(first: Host, others: list[Host]) -> None:
    """What the first was mended to, in one command for each of the others: a plan of all of them finds nothing."""
    paths = " ".join(path.lstrip("/") for path in (*node_role.FOLDERS, node_role.LINK))
    archive = first.run(f"tar -C / -c {paths} | base64 -w0").stdout
    with ThreadPoolExecutor(max_workers=4) as pool:
        list(pool.map(lambda host: host.run(f"echo {archive} | base64 -d | tar -C / -xp"), others))


def _against_ansible(hosts: list[Host], folder: Path) -> Iterator[Figure]:
    with ThreadPoolExecutor(max_workers=4) as pool:  # its modules need all of Python's library
        list(
            pool.map(lambda host: host.run("apt-get -qq update && apt-get -qq -y install python3", timeout=600), hosts)
        )
    ours = min(_look("ours", hosts, folder)["seconds"] for _ in range(2))
    theirs = _ansible(hosts, folder)
    yield Figure(f"plan of {len(hosts)} machines, nothing to do", ours, "s")
    yield Figure(f"the same {len(hosts)}, Ansible", theirs, "s")
    yield Figure("our time in a tenth of Ansible's", 10 * ours / theirs, "", bound=1.0)


def _look(kind: str, hosts: list[Host], folder: Path) -> dict[str, Any]:
    file = folder / "machines.json"
    file.write_text(json.dumps([(host.name, host.ssh_data()) for host in hosts]), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.nodes_look", kind, str(file)],
        env={key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"},  # as installed
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{kind}: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if kind != "mend" and found["changed"]:
        raise SystemExit(f"{kind}: {found['changed']} machines would change, and none should")
    return found


def _ansible(hosts: list[Host], folder: Path) -> float:
    """Seconds of one run that changes nothing; the first, which warms connections, does not count."""
    (folder / "ansible.cfg").write_text(_CONFIG, encoding="utf-8")
    (folder / "play.yaml").write_text(yaml.safe_dump(node_role.playbook()), encoding="utf-8")
    lines = [
        f"{host.name} ansible_host={host.address} ansible_user=root ansible_ssh_private_key_file={host.key}"
        for host in hosts
    ]
    (folder / "hosts").write_text("\n".join(lines) + "\n", encoding="utf-8")
    words = [str(_ansible_program()), "-i", str(folder / "hosts"), str(folder / "play.yaml")]
    environment = os.environ | {"ANSIBLE_CONFIG": str(folder / "ansible.cfg"), "LC_ALL": "C.UTF-8"}
    seconds = 0.0
    for _ in range(2):
        began = time.perf_counter()
        done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
        seconds = time.perf_counter() - began
        if done.returncode:
            raise SystemExit(f"ansible-playbook: {(done.stdout + done.stderr)[-2000:]}")
    if any("changed=0" not in line for line in done.stdout.splitlines() if "unreachable=" in line):
        raise SystemExit(f"ansible-playbook changes something:\n{done.stdout[-1500:]}")
    return seconds


def _ansible_program() -> Path:
    """In a virtual environment of its own: this project does not depend on it."""
    place = cache_root() / "bench" / "ansible"
    program = place / "bin" / "ansible-playbook"
    if not program.exists():
        subprocess.run(["uv", "venv", "--quiet", "--python", sys.executable, str(place)], check=True)
        python = str(place / "bin" / "python")
        subprocess.run(["uv", "pip", "install", "--quiet", "--python", python, ANSIBLE], check=True)
    return program
