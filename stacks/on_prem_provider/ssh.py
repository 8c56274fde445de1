"""The only door to the machines: one connection, one script, a limit on every wait, no host key but the pinned one."""

from __future__ import annotations

import base64
import hashlib
import logging
import shlex
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import paramiko

from stacks.on_prem_provider.findings import Finding

CONNECT_SECONDS: Final = 10.0
"""For each of: the TCP connection, the banner, the authentication."""
SCRIPT_SECONDS: Final = 40
"""After which the machine itself ends the script."""
_LEEWAY: Final = 10.0
_LARGEST: Final = 1 << 20
"""Bytes of answer that are taken: a script of ours says far less."""
_RSA: Final = {"rsa-sha2-256", "rsa-sha2-512"}
"""The signatures of an ssh-rsa key; the one with SHA-1 is not taken."""
_ALGORITHMS: Final = {
    *("ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "ssh-rsa"),
    *_RSA,
}
"""All that the client would take as a host key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """How a machine is reached, and how it is known."""

    address: str
    port: int
    user: str
    host_key: str
    """Type and base64."""
    key: str = ""
    """Path of a private key; empty: the agent's, and ~/.ssh/id_*."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a script wrote, and when it was sent and had ended, in seconds of this machine's clock."""

    text: str
    sent_at: float
    ended_at: float


class Unreached(Exception):  # noqa: N818 - reads as what it is at the raise site
    """The script was not run to its end, for the reason given."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(str(finding))
        self.finding = finding


def run_script(login: Login, script: str, *, connect: float = CONNECT_SECONDS, limit: int = SCRIPT_SECONDS) -> Answer:
    """Run a shell script on the machine. Raises ``Unreached``."""
    logging.getLogger("paramiko").setLevel(logging.CRITICAL)  # its threads' stack traces say nothing to a user
    with paramiko.SSHClient() as client:
        _connect(client, login, seconds=connect)
        return _run(client, script, limit=limit)


def fingerprint(host_key: str) -> str:
    """Returns the fingerprint as ssh shows it: ``SHA256:...``."""
    digest = hashlib.sha256(base64.b64decode(host_key.split()[1])).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def _connect(client: paramiko.SSHClient, login: Login, *, seconds: float) -> None:
    kind, blob = login.host_key.split()
    name = login.address if login.port == paramiko.config.SSH_PORT else f"[{login.address}]:{login.port}"
    client.get_host_keys().add(name, kind, paramiko.PKey.from_type_string(kind, base64.b64decode(blob)))
    client.set_missing_host_key_policy(paramiko.RejectPolicy())
    wanted = _RSA if kind == "ssh-rsa" else {kind}
    try:
        client.connect(
            login.address,
            port=login.port,
            username=login.user,
            key_filename=str(Path(login.key).expanduser()) if login.key else None,
            allow_agent=not login.key,
            look_for_keys=not login.key,
            disabled_algorithms={"keys": sorted(_ALGORITHMS - wanted)},
            timeout=seconds,
            banner_timeout=seconds,
            auth_timeout=seconds,
            channel_timeout=seconds,
        )
    except (paramiko.SSHException, OSError, EOFError, ValueError) as error:
        raise Unreached(_why(error, login)) from None


def _why(error: Exception, login: Login) -> Finding:
    where = f"{login.address} port {login.port}"
    if isinstance(error, paramiko.BadHostKeyException):
        seen = f"{error.key.get_name()} {error.key.get_base64()}"
        return Finding(
            f"{where} shows the host key {fingerprint(seen)}, which is not the pinned {fingerprint(login.host_key)}",
            "another machine answers there, or it was installed anew: compare with its console "
            f"(ssh-keygen -lf /etc/ssh/ssh_host_*_key.pub), then write ssh.host_key: {seen}",
        )
    if isinstance(error, paramiko.ssh_exception.IncompatiblePeer):
        kind = login.host_key.split()[0]
        return Finding(
            f"{where} has no host key of the pinned type {kind}, or speaks only old ciphers",
            f"look what it has: ssh-keyscan -p {login.port} {login.address}",
        )
    if isinstance(error, paramiko.AuthenticationException):
        key = f"the public half of {login.key}" if login.key else "a public key of your agent or ~/.ssh/id_*"
        return Finding(
            f"{where} lets no {login.user} in by the keys that were offered",
            f"put {key} into ~{login.user}/.ssh/authorized_keys there, or name another ssh.key or ssh.user",
        )
    if isinstance(error, FileNotFoundError):
        return Finding(f"there is no private key {login.key}", "name one that is there as ssh.key")
    return Finding(f"{where} does not answer ({_reason(error)})", _is_it_up(login))


def _is_it_up(login: Login) -> str:
    return (
        "is it switched on, does sshd listen there, and does a route lead to it? "
        f"try: ssh -v -p {login.port} {login.user}@{login.address}"
    )


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, paramiko.ssh_exception.NoValidConnectionsError):
        causes = error.errors.values()
        return ", ".join(sorted({str(getattr(cause, "strerror", None) or cause) for cause in causes}))
    if isinstance(error, socket.gaierror):
        return "its name is not known"
    if "banner" in str(error) or "No existing session" in str(error):  # how paramiko tells of its time limits
        return "it takes the connection and then says nothing"
    return str(getattr(error, "strerror", None) or error or type(error).__name__)


def _run(client: paramiko.SSHClient, script: str, *, limit: int) -> Answer:
    transport = client.get_transport()
    if transport is None:
        raise Unreached(Finding("the connection was closed", "try again"))
    try:
        channel = transport.open_session(timeout=CONNECT_SECONDS)
        channel.settimeout(limit + _LEEWAY)
        sent_at = time.time()
        channel.exec_command(f"timeout -k 2 {limit} sh -c {shlex.quote(script)}")
        text = _read_all(channel, ends_at=time.monotonic() + limit + _LEEWAY)
        ended_at = time.time()
    except (paramiko.SSHException, OSError, EOFError) as error:
        raise Unreached(_broke_off(_reason(error))) from None
    if channel.exit_status:
        raise Unreached(_ended_with(channel.exit_status, text, limit))
    return Answer(text=text, sent_at=sent_at, ended_at=ended_at)


def _read_all(channel: Any, *, ends_at: float) -> str:
    data = b""
    while chunk := channel.recv(1 << 16):
        data += chunk
        if len(data) > _LARGEST or time.monotonic() > ends_at:
            raise paramiko.SSHException("it goes on talking")
    if not channel.status_event.wait(_LEEWAY):
        raise paramiko.SSHException("it does not say how the probe ended")
    return data.decode(errors="replace")


def _broke_off(reason: str) -> Finding:
    return Finding(
        f"it let us in, but the probe was not answered ({reason})",
        "the machine hangs (a dead disk or network file system, no memory): look at its console",
    )


def _ended_with(status: int, text: str, limit: int) -> Finding:
    if status in (124, 137):  # those of timeout(1)
        last = text.rstrip().rpartition("\n")[2]
        return Finding(
            f"it let us in, but had not answered all questions after {limit} s (the last answer: {last or 'none'})",
            "a command hangs there, as nvidia-smi does with a broken GPU, or df with a dead mount: run them by hand",
        )
    return Finding(
        f"the probe ended with status {status} there",
        "the login needs a POSIX shell and timeout(1) of coreutils: try ssh ... 'timeout 5 sh -c true'",
    )
