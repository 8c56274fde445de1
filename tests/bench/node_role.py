"""One node described three times: with our operations, with stock pyinfra's, and as an Ansible playbook."""

from __future__ import annotations

from io import StringIO
from typing import Any

from pyinfra.operations import apt
from pyinfra.operations import files as stock

from roles.operations import files, packages

FILES = {f"/etc/bench.d/{number:02}.conf": f"# file {number}\nvalue = {number}\n" for number in range(20)}
FOLDERS = ("/etc/bench.d", "/var/lib/bench")
LINK = "/etc/bench-link"
PACKAGES = ("procps", "kmod", "sudo")


def ours() -> None:
    """What a role of this project looks like."""
    for folder in FOLDERS:
        stock.directory(folder, mode="755", name=folder)
    for path, text in FILES.items():
        files.place(path, text, meaning="ini", name=path)
    stock.link(LINK, "/etc/hostname", name="link")
    packages.installed(dict.fromkeys(PACKAGES, "*"), hold=False, name="packages")


def of_pyinfra() -> None:
    """The same with stock operations only."""
    for folder in FOLDERS:
        stock.directory(folder, mode="755", name=folder)
    for path, text in FILES.items():
        stock.put(StringIO(text), path, mode="644", user="root", group="root", name=path)
    stock.link(LINK, "/etc/hostname", name="link")
    apt.packages(list(PACKAGES), name="packages")


def playbook() -> list[dict[str, Any]]:
    """The same for Ansible, without its own gathering of facts."""
    tasks: list[dict[str, Any]] = [
        {"ansible.builtin.file": {"path": folder, "state": "directory", "mode": "0755"}} for folder in FOLDERS
    ]
    tasks += [
        {"ansible.builtin.copy": {"dest": path, "content": text, "mode": "0644", "owner": "root", "group": "root"}}
        for path, text in FILES.items()
    ]
    tasks.append({"ansible.builtin.file": {"path": LINK, "src": "/etc/hostname", "state": "link"}})
    tasks.append({"ansible.builtin.command": {"argv": ["dpkg-query", "-W", *PACKAGES]}, "changed_when": False})
    return [{"hosts": "all", "gather_facts": False, "tasks": tasks}]
