"""What a machine has and knows as a member of the cluster: its certificates, and its own Node object."""

from __future__ import annotations

import json
import shlex
from typing import Any, Final

from pyinfra.api.command import StringCommand
from pyinfra.api.facts import FactBase

from roles.facts.batched import Plain

AUTHORITY: Final = "/etc/kubernetes/pki/ca.crt"
PKI: Final = "/var/lib/kubelet/pki"


class Identity(FactBase[frozenset[str]]):
    """Which of ``client`` and ``server`` certificates are the node's own, signed, and good for another week."""

    @staticmethod
    def default() -> frozenset[str]:
        """Returns the value for no output: no valid certificate."""
        return frozenset()

    def command(self, node: str) -> StringCommand:
        """Asks openssl which of the kubelet's certificates are good for another week."""
        subject = shlex.quote(f"system:node:{node}")
        return Plain(
            f"for k in client server; do f={PKI}/kubelet-$k-current.pem; [ -s $f ]"
            " && s=$(openssl x509 -in $f -noout -checkend 604800 -subject)"
            f' && case "$s " in *{subject}[!a-z0-9.-]*) ;; *) false ;; esac'
            f" && openssl verify -CAfile {AUTHORITY} $f >/dev/null 2>&1 && echo $k; done; true"
        )

    def process(self, output: list[str]) -> frozenset[str]:
        """Reads one word per line."""
        return frozenset(line for line in output if line in ("client", "server"))


class OwnNode(FactBase[dict[str, Any] | None]):
    """The machine's Node object, read with its own certificate; ``None`` where it has none or nothing answers."""

    def command(self, server: str, node: str) -> StringCommand:
        """A node may read itself."""
        pem = f"{PKI}/kubelet-client-current.pem"
        url = shlex.quote(f"{server}/api/v1/nodes/{node}")
        return Plain(f"curl -sf -m 10 --cacert {AUTHORITY} --cert {pem} --key {pem} {url} 2>/dev/null || true")

    def process(self, output: list[str]) -> dict[str, Any] | None:
        """What of it roles write."""
        try:
            node = json.loads("\n".join(output))
        except ValueError:
            return None
        return {"metadata": node["metadata"], "spec": node.get("spec", {})}


class NameServers(FactBase[str]):
    """Where a machine has its name servers written down that its pods reach too; empty: in /etc/resolv.conf."""

    @staticmethod
    def default() -> str:
        """Returns the value for no output: the usual place."""
        return ""

    def command(self) -> StringCommand:
        """Ubuntu's names systemd-resolved on the machine's own loopback, where a pod has no resolver."""
        theirs = "/run/systemd/resolve/resolv.conf"
        return Plain(
            f"! grep -qs '^nameserver 127[.]0[.]0[.]5[34]' /etc/resolv.conf || [ ! -f {theirs} ] || echo {theirs}"
        )

    def process(self, output: list[str]) -> str:
        """Reads one path."""
        return "".join(output[:1])
