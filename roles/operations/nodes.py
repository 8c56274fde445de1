"""A machine becomes a member of the cluster: its part on the machine, the controller's at the Kubernetes API."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Final

from pyinfra.api.command import FunctionCommand, PyinfraCommand, QuoteString, StringCommand
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.api.state import State
from pyinfra.context import host

from autoscaler.kube.client import Expired, Kube, Refused
from autoscaler.model.errors import BadInput, Unavailable
from roles.facts.nodes import PKI, Identity, OwnNode
from roles.membership import bootstrap
from roles.settings.controller_files import local_path

BOOTSTRAP: Final = "/etc/kubernetes/bootstrap.kubeconfig"
KUBECONFIG: Final = "/var/lib/kubelet/kubeconfig"
Commands = Generator[PyinfraCommand, None, None]
_LAST_WORDS: Final = "journalctl -u kubelet -n 200 -o cat --no-pager 2>/dev/null | grep '^[EF][0-9]' | tail -n 2 >&2"


class AtTheApi(FunctionCommand):
    """What the controller does at the Kubernetes API; shown in words, since arguments may hold what is secret."""

    def __repr__(self) -> str:
        """Its words in a plan."""
        return f"at the Kubernetes API: {(self.function.__doc__ or '').strip()}"


@operation()
def token_brought(node: str, *, server: str, authority: str, kubeconfig: str = "") -> Commands:
    """Bring a token by which the kubelet asks for its certificate: minted only now, for this node, for ten minutes.

    A node that has its certificate needs none. ``kubeconfig``: by which the controller reaches the API server.
    """
    if "client" in host.get_fact(Identity, node=node):
        host.noop(f"{node} has its certificate")
        return
    yield StringCommand(f"rm -rf {KUBECONFIG} {PKI}/kubelet-client-*")
    cluster = {"server": server, "authority": authority}
    yield AtTheApi(_bring_token, (node, cluster, kubeconfig), {})


@operation()
def admitted(node: str, *, address: str, kubeconfig: str = "") -> Commands:
    """Approve the certificates that the node asks for, until it is Ready and serves with a signed one."""
    have = host.get_fact(Identity, node=node)
    if {"client", "server"} <= have:
        host.noop(f"{node} is a member")
        return
    yield AtTheApi(_admit, (node, address, kubeconfig), {})
    yield StringCommand(f"rm -f {BOOTSTRAP}")


@operation()
def marked(
    node: str, *, server: str, labels: Mapping[str, str], taints: Sequence[Mapping[str, str]], kubeconfig: str = ""
) -> Commands:
    """Have these labels and taints on the node; what others put there stays."""
    now = host.get_fact(OwnNode, server=server, node=node)
    if now and _is_marked(now, labels=labels, taints=taints):
        host.noop(f"{node} has its labels and taints")
        return
    yield AtTheApi(_mark, (node, (dict(labels), [dict(one) for one in taints]), kubeconfig), {})


def bootstrap_config(*, server: str, authority: str, token: str) -> str:
    """A kubeconfig with a token and nothing else."""
    cluster = {"server": server, "certificate-authority-data": base64.b64encode(authority.encode()).decode()}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cluster", "cluster": cluster}],
        "users": [{"name": "bootstrap", "user": {"token": token}}],
        "contexts": [{"name": "bootstrap", "context": {"cluster": "cluster", "user": "bootstrap"}}],
        "current-context": "bootstrap",
    }
    return json.dumps(config, indent=1) + "\n"


def _is_marked(node: Mapping[str, Any], *, labels: Mapping[str, str], taints: Sequence[Mapping[str, str]]) -> bool:
    patch = bootstrap.marks(node, labels=labels, taints=taints)
    have = node["metadata"].get("labels", {}), node["metadata"].get("annotations", {})
    wanted = patch["metadata"]["labels"], patch["metadata"]["annotations"]
    same = all(now.get(key) == value for now, then in zip(have, wanted, strict=True) for key, value in then.items())
    return same and _as_set(node["spec"].get("taints", ())) == _as_set(patch["spec"]["taints"])


def _as_set(taints: Sequence[Mapping[str, str]]) -> set[tuple[str, str, str]]:
    return {(one["key"], one.get("value", ""), one["effect"]) for one in taints}


def _bring_token(state: State, host: Host, node: str, cluster: dict[str, str], kubeconfig: str) -> bool:  # noqa: ARG001
    """Make a token for this node and bring it to the machine."""

    def bring(kube: Kube) -> bool:
        token = bootstrap.mint_token(kube, node)
        text = bootstrap_config(token=token, **cluster)
        script = f"umask 077; mkdir -p /etc/kubernetes; base64 -d > {BOOTSTRAP}"
        return _shell(host, StringCommand(script), stdin=base64.b64encode(text.encode()).decode())

    return _with_kube(host, kubeconfig, bring)


def _admit(
    state: State,  # noqa: ARG001 - by these two names pyinfra knows that we want them
    host: Host,
    node: str,
    address: str,
    kubeconfig: str,
) -> bool:
    """Approve the certificates that this node may have, until it is Ready and holds them."""
    have = Identity().command(node).get_raw_value()
    both = StringCommand(f"test \"$({{ {have}; }} | grep -cxE 'client|server')\" = 2")

    def admit(kube: Kube) -> bool:
        bootstrap.admit(kube, node, address, holds=lambda: _shell(host, both))
        return True

    return _with_kube(host, kubeconfig, admit)


def _mark(
    state: State,  # noqa: ARG001 - by these two names pyinfra knows that we want them
    host: Host,
    node: str,
    declared: tuple[dict[str, str], list[dict[str, str]]],
    kubeconfig: str,
) -> bool:
    """Write this node's labels and taints."""

    def mark(kube: Kube) -> bool:
        labels, taints = declared
        bootstrap.mark(kube, node, labels=labels, taints=taints)
        return True

    return _with_kube(host, kubeconfig, mark)


def _with_kube(host: Host, kubeconfig: str, act: Callable[[Kube], bool]) -> bool:
    """What goes wrong at the API is told through the machine, where pyinfra looks for the reasons of a failure."""
    try:
        return act(Kube.connect(local_path(kubeconfig) if kubeconfig else None))
    except (BadInput, Unavailable, Refused, Expired) as error:
        _shell(host, StringCommand(f"{_LAST_WORDS}; echo", QuoteString(str(error)), ">&2; false"))
        return False


def _shell(host: Host, command: StringCommand, *, stdin: str = "") -> bool:
    sudo = {"_sudo": True} if host.data.get("_sudo") else {}
    lines = {"_stdin": [stdin]} if stdin else {}
    return bool(host.run_shell_command(command, **sudo, **lines)[0])
