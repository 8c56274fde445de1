"""Role: the accounts of a machine, and how they come in."""

from __future__ import annotations

from typing import Final

from pyinfra.api.deploy import deploy

from roles.engine.disruption import Disruption, disrupts
from roles.operations import files, homes, services, users
from roles.operations.services import restarts
from roles.settings.machine import settings

SSH_FILE: Final = "/etc/ssh/sshd_config.d/10-spillway.conf"
"""Early: of two settings in sshd's files the first one counts."""


@deploy("Accounts and SSH keys")
def accounts() -> None:
    """Every declared account with exactly its keys; those that are gone are locked; passwords only where they may."""
    wanted = settings()
    for user in wanted.users:
        if user.gone:
            users.gone(user=user.name, name=f"account {user.name} is locked")
            homes.keys(user=user.name, keys=(), name=f"no keys of account {user.name}")
        else:
            users.present(
                user=user.name,
                groups=user.groups,
                shell=user.shell,
                sudo=user.sudo,
                name=f"account {user.name}",
            )
            homes.keys(user=user.name, keys=user.keys, name=f"the keys of account {user.name}")
    if wanted.users:
        users.own_keys_alone(name="sshd reads the accounts' own keys")
        here = tuple(user.name for user in wanted.users if not user.gone and user.keys)
        users.nobody_kept_out(users=here, name="accounts are let in")
    if wanted.ssh_passwords == "refused":
        with disrupts(Disruption.RELOAD), restarts("ssh"):
            files.place(
                name="sshd lets in keys only",
                dest=SSH_FILE,
                content="PasswordAuthentication no\nKbdInteractiveAuthentication no\n",
                meaning="sshd",
                validate="sshd -t -f {path}",
            )
        services.running(unit="ssh", reload=True, name="sshd runs")
        users.no_passwords(ours=SSH_FILE, name="nobody lets passwords in")
